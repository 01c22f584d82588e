package control_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
)

// gate is a store whose next commits wait until a number of them have come, so that all rest on the
// same state. It counts those that are refused.
type gate struct {
	store.Store
	mu        sync.Mutex
	waiting   int
	open      chan struct{} // nil: commits do not wait
	conflicts atomic.Int64
}

// await has the next n commits wait for each other.
func (g *gate) await(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting, g.open = n, make(chan struct{})
	g.conflicts.Store(0)
}

func (g *gate) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	g.mu.Lock()
	open := g.open
	if g.waiting--; open != nil && g.waiting == 0 {
		close(open)
		g.open = nil
	}
	g.mu.Unlock()
	if open != nil {
		<-open
	}
	rev, err := g.Store.Commit(ctx, conds, ops)
	if err != nil {
		g.conflicts.Add(1)
	}
	return rev, err
}

// TestInterfacesDoNotConflict: interfaces added to one router at the same time conflict only where
// their subnets overlap, and then only one is added.
func TestInterfacesDoNotConflict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		cidrs []string
		lost  int
	}{
		{"apart", []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.1.0.0/16", "192.0.2.0/24", "fd00:1::/64", "fd00:2::/64", "fd00:0:1::/48"}, 0},
		{"equal", []string{"10.0.0.0/24", "10.0.0.0/24"}, 1},
		{"nested", []string{"10.0.0.0/16", "10.0.7.0/24"}, 1},
		{"nested the other way", []string{"10.0.7.128/25", "10.0.0.0/20"}, 1},
		{"nested in IPv6", []string{"fd00::/16", "fd00:7::/64"}, 1},
		{"within one digit", []string{"10.0.0.0/25", "10.0.0.0/26"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := &gate{Store: store.NewMemory()}
			w := open(t, g, control.Options{})
			r := w.router(`{}`)
			var subnets []string
			for _, cidr := range tt.cidrs {
				subnets = append(subnets, w.subnetOn(cidr).ID)
			}
			g.await(len(subnets))
			got := together(len(subnets), func(i int) error {
				_, err := w.join(w.member, r.ID, neutron.InterfaceRequest{SubnetID: subnets[i]})
				return err
			})
			if got[""] != len(subnets)-tt.lost || got["BadRequest"] != tt.lost || int(g.conflicts.Load()) != tt.lost {
				t.Errorf("outcomes %v with %d conflicts", got, g.conflicts.Load())
			}
		})
	}
}

// TestRoutersAtOnce: what two requests do to a router at the same time is decided as one after the
// other would be.
func TestRoutersAtOnce(t *testing.T) {
	t.Parallel()
	type world2 struct {
		*world
		router, network, subnet, external, port, joinedSubnet, lone, empty string
	}
	add := func(w *world2) error {
		_, err := w.join(w.admin, w.router, neutron.InterfaceRequest{SubnetID: w.subnet})
		return err
	}
	update := func(text string) func(*world2) error {
		return func(w *world2) error {
			text := strings.NewReplacer("$network", w.network, "$external", w.external).Replace(text)
			_, err := w.change(w.admin, neutron.Routers, w.router, text)
			return err
		}
	}
	for _, tt := range []struct {
		name     string
		one, two func(*world2) error
		allowed  []string // outcomes of the two in order
	}{
		{"interface and deletion", func(w *world2) error {
			_, err := w.join(w.admin, w.lone, neutron.InterfaceRequest{SubnetID: w.subnet})
			return err
		}, func(w *world2) error { return w.remove(w.admin, neutron.Routers, w.lone) }, []string{" RouterInUse", "RouterNotFound "}},
		{"interface and deletion of the subnet", func(w *world2) error {
			_, err := w.join(w.admin, w.router, neutron.InterfaceRequest{SubnetID: w.empty})
			return err
		}, func(w *world2) error { return w.remove(w.admin, neutron.Subnets, w.empty) }, []string{" SubnetInUse", "SubnetNotFound "}},
		{"gateway and internal network", update(`{"external_gateway_info":{"network_id":"$external"}}`), func(w *world2) error {
			_, err := w.change(w.admin, neutron.Networks, w.external, `{"router:external":false}`)
			return err
		}, []string{" ExternalNetworkInUse", "BadRequest "}},
		{"interface and DHCP port", add, func(w *world2) error {
			_, err := w.create(w.admin, neutron.Ports, `{"network_id":"`+w.network+`","device_owner":"network:dhcp"}`)
			return err
		}, []string{" "}},
		{"interface and gateway of the subnet", add, func(w *world2) error {
			_, err := w.change(w.admin, neutron.Subnets, w.subnet, `{"gateway_ip":"10.0.0.254","allocation_pools":[{"start":"10.0.0.2","end":"10.0.0.99"}]}`)
			return err
		}, []string{" ", " GatewayIpInUse"}},
		{"interface and route", add, update(`{"routes":[{"destination":"10.9.0.0/16","nexthop":"10.1.0.9"}]}`), []string{" "}},
		{"interface that goes and route", func(w *world2) error {
			_, err := w.part(w.admin, w.router, neutron.InterfaceRequest{SubnetID: w.joinedSubnet})
			return err
		}, update(`{"routes":[{"destination":"10.9.0.0/16","nexthop":"10.1.0.9"}]}`), []string{" InvalidRoutes", "RouterInterfaceInUseByRoute "}},
		{"interface by a port and deletion of the port", func(w *world2) error {
			_, err := w.join(w.admin, w.router, neutron.InterfaceRequest{PortID: w.port})
			return err
		}, func(w *world2) error { return w.remove(w.admin, neutron.Ports, w.port) }, []string{" ServicePortInUse", "PortNotFound "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := &gate{Store: store.NewMemory()}
			w := &world2{world: open(t, g, control.Options{})}
			s := w.subnetOn("10.0.0.0/24")
			w.router, w.network, w.subnet, w.lone = w.world.router(`{}`).ID, s.NetworkID, s.ID, w.world.router(`{}`).ID
			w.external, _ = w.world.external()
			w.joinedSubnet, w.empty = w.subnetOn("10.1.0.0/24").ID, w.subnetOn("10.2.0.0/24").ID
			w.joined(w.router, w.joinedSubnet)
			w.port = w.world.port(s.NetworkID, `"fixed_ips":[{"ip_address":"10.0.0.7"}]`).ID
			g.await(2)
			var outcomes [2]string
			together(2, func(i int) error {
				err := []func(*world2) error{tt.one, tt.two}[i](w)
				outcomes[i], _, _ = strings.Cut(problem(err), ":")
				return err
			})
			got, fine := outcomes[0]+" "+outcomes[1], false
			for _, allowed := range tt.allowed {
				fine = fine || got == allowed
			}
			if !fine {
				t.Errorf("outcomes %q", got)
			}
			w.checkDerived(t)
		})
	}
}

// TestRouterQuota: as many routers as the quota allows, whoever asks for them at once.
func TestRouterQuota(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	got := together(16, func(i int) error {
		_, err := ws[i%2].create(ws[0].member, neutron.Routers, fmt.Sprintf(`{"name":"%d"}`, i))
		return err
	})
	if got[""] != 10 || got["OverQuota"] != 6 {
		t.Errorf("outcomes %v", got)
	}
}
