package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/schema"
)

// twoServers are two Services over one etcd.
func twoServers(t *testing.T, o control.Options) [2]*world {
	t.Helper()
	st := inEtcd(t, false)
	return [2]*world{open(t, st, o), open(t, st, o)}
}

// together runs f n times at once, and returns what the errors were as clients see them.
func together(n int, f func(i int) error) map[string]int {
	var mu sync.Mutex
	outcomes := map[string]int{}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			class, _, _ := strings.Cut(problem(f(i)), ":")
			mu.Lock()
			defer mu.Unlock()
			outcomes[class]++
		})
	}
	all.Wait()
	return outcomes
}

// TestDefaultGroupIsMadeOnce by many first requests at two servers.
func TestDefaultGroupIsMadeOnce(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	got := together(24, func(i int) error {
		w := ws[i%2]
		switch i % 3 {
		case 0:
			_, err := w.create(w.member, neutron.Networks, `{}`)
			return err
		case 1:
			_, err := w.create(w.member, neutron.SecurityGroups, `{"name":"x","description":"`+fmt.Sprint(i)+`"}`)
			return err
		}
		_, err := all(w.SecurityGroups().List(context.Background(), w.member, neutron.Query{}))
		return err
	})
	if got[""] != 24 {
		t.Errorf("outcomes %v", got)
	}
	groups, err := all(ws[0].SecurityGroups().List(t.Context(), ws[0].member, neutron.Query{Names: []string{"default"}}))
	if err != nil || len(groups) != 1 || len(groups[0].Rules) != 4 {
		t.Errorf("default groups %v, %v", groups, err)
	}
}

// TestSmallSubnetIsSharedOut: at two servers at once, every address is given once, and only the
// rest is refused.
func TestSmallSubnetIsSharedOut(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	n := ws[0].network(`{}`)
	ws[0].subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/28"`) // 13 addresses beside the gateway
	got := together(20, func(i int) error {
		_, err := ws[i%2].create(ws[0].member, neutron.Ports, `{"network_id":"`+n.ID+`"}`)
		return err
	})
	if got[""] != 13 || got["IpAddressGenerationFailure"] != 7 {
		t.Errorf("outcomes %v", got)
	}
	ports, _ := all(ws[1].Ports().List(t.Context(), ws[1].member, neutron.Query{}))
	seen := map[string]bool{}
	for _, p := range ports {
		if a := p.FixedIPs[0].IPAddress.String(); seen[a] {
			t.Errorf("%s given twice", a)
		} else {
			seen[a] = true
		}
	}
}

// TestOneOfManyGetsIt: an address, a MAC, a vlan and an interface that many want at once go to one.
func TestOneOfManyGetsIt(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	ws[0].hosts("h1")
	ws[0].carry("physnet1", "public")
	n := ws[0].network(`{}`)
	ws[0].subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	for _, tt := range []struct {
		r          neutron.Resource
		text, lost string
	}{
		{neutron.Ports, `{"network_id":"` + n.ID + `","fixed_ips":[{"ip_address":"10.0.0.9"}]}`, "IpAddressAlreadyAllocated"},
		{neutron.Ports, `{"network_id":"` + n.ID + `","mac_address":"fa:16:3e:01:02:03"}`, "MacAddressInUse"},
		{neutron.Ports, `{"network_id":"` + n.ID + `","binding:host_id":"h1","binding:profile":{"interface_name":"eth0"}}`, "PortBindingError"},
		{neutron.Networks, `{"provider:network_type":"vlan","provider:physical_network":"physnet1","provider:segmentation_id":7}`, "VlanIdInUse"},
		{neutron.Networks, `{"provider:network_type":"flat","provider:physical_network":"public"}`, "FlatNetworkInUse"},
		{neutron.Networks, `{"provider:network_type":"vxlan","provider:segmentation_id":7}`, "TunnelIdInUse"},
		{neutron.Subnets, `{"network_id":"` + n.ID + `","ip_version":4,"cidr":"10.5.0.0/24"}`, "InvalidInput"},
	} {
		got := together(8, func(i int) error {
			_, err := ws[i%2].create(ws[0].admin, tt.r, tt.text)
			return err
		})
		if got[""] != 1 || got[tt.lost] != 7 {
			t.Errorf("%s: outcomes %v", tt.text, got)
		}
	}
}

// TestNetworkGoesOrPortComes: with a network deleted while ports are made on it, one side loses,
// and nothing hangs in the air.
func TestNetworkGoesOrPortComes(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	for range 20 {
		n := ws[0].network(`{}`)
		s := ws[0].subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
		together(4, func(i int) error {
			if i == 0 {
				return ws[0].remove(ws[0].member, neutron.Networks, n.ID)
			}
			_, err := ws[i%2].create(ws[0].member, neutron.Ports, `{"network_id":"`+n.ID+`"}`)
			return err
		})
		_, gone := ws[0].Networks().Show(t.Context(), ws[0].member, n.ID)
		ports, err := all(ws[0].Ports().List(t.Context(), ws[0].admin, neutron.Query{NetworkIDs: []string{n.ID}}))
		if err != nil || (gone != nil) != (len(ports) == 0) {
			t.Errorf("network gone: %v, with %d ports, %v", gone, len(ports), err)
		}
		if left := strings.Join(ws[0].dump(), "\n"); gone != nil && (strings.Contains(left, n.ID) || strings.Contains(left, s.ID)) {
			t.Errorf("left of a deleted network:\n%s", left)
		}
	}
}

// TestAutomaticAddressesReachAllPorts: of ports and an auto-address subnet made at once, every port
// has its address.
func TestAutomaticAddressesReachAllPorts(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	for range 5 {
		n := ws[0].network(`{}`)
		got := together(9, func(i int) error {
			w := ws[i%2]
			if i == 4 {
				_, err := w.create(w.member, neutron.Subnets,
					`{"network_id":"`+n.ID+`","ip_version":6,"cidr":"fd00::/64","ipv6_ra_mode":"slaac","ipv6_address_mode":"slaac"}`)
				return err
			}
			_, err := w.create(w.member, neutron.Ports, `{"network_id":"`+n.ID+`"}`)
			return err
		})
		if got[""] != 9 {
			t.Errorf("outcomes %v", got)
		}
		ports, _ := all(ws[0].Ports().List(t.Context(), ws[0].member, neutron.Query{NetworkIDs: []string{n.ID}}))
		for _, p := range ports {
			if len(p.FixedIPs) != 1 {
				t.Errorf("port %s has addresses %v", p.ID, p.FixedIPs)
			}
		}
	}
}

// TestQuotaIsExact however many ask at once, one by one and in bulk, at two servers.
func TestQuotaIsExact(t *testing.T) {
	t.Parallel()
	const limit = 100
	ws := twoServers(t, control.Options{Quotas: map[string]int{"port": limit}})
	n := ws[0].network(`{}`)
	port := `{"network_id":"` + n.ID + `","fixed_ips":[]}`
	bulk := make([]string, 40)
	for i := range bulk {
		bulk[i] = port
	}
	got := together(80, func(i int) error {
		texts := []string{port}
		if i%20 == 0 {
			texts = bulk
		}
		_, err := ws[i%2].create(ws[0].member, neutron.Ports, texts...)
		return err
	})
	if got[""]+got["OverQuota"] != 80 {
		t.Errorf("outcomes %v", got)
	}
	uses, err := ws[0].QuotaDetails(t.Context(), ws[0].member, ws[0].member.ProjectID)
	if err != nil || uses["port"].Used != limit && got["OverQuota"] == 0 || uses["port"].Used > limit {
		t.Errorf("use %+v after %v, %v", uses["port"], got, err)
	}
	_, err = ws[0].create(ws[0].member, neutron.Ports, bulk...)
	ws[0].expect(err, "OverQuota: Quota exceeded for resources: ['port'].")
}

// TestConcurrentRules of one group are all there.
func TestConcurrentRules(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	g := must[*neutron.SecurityGroupView](ws[0], ws[0].member, neutron.SecurityGroups, `{"name":"g"}`)
	got := together(20, func(i int) error {
		_, err := ws[i%2].create(ws[0].member, neutron.SecurityGroupRules, fmt.Sprintf(
			`{"security_group_id":"%s","direction":"ingress","protocol":"tcp","port_range_min":%d,"port_range_max":%d}`, g.ID, i+1, i+1))
		return err
	})
	after, err := ws[0].SecurityGroups().Show(t.Context(), ws[0].member, g.ID)
	if err != nil || got[""] != 20 || len(after.Rules) != 22 || after.RevisionNumber != 21 {
		t.Errorf("outcomes %v, group %+v, %v", got, after, err)
	}
}

// TestTwoServersAgree: what one server does, the other sees.
func TestTwoServersAgree(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	n := ws[0].network(`{"name":"n"}`)
	s := ws[1].subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	for i := range 10 {
		p := ws[i%2].port(n.ID, "")
		if _, err := ws[(i+1)%2].change(ws[0].member, neutron.Ports, p.ID, `{"name":"x"}`); err != nil {
			t.Error(err)
		}
		if err := ws[i%2].remove(ws[0].member, neutron.Ports, p.ID); err != nil {
			t.Error(err)
		}
	}
	if err := ws[0].remove(ws[0].member, neutron.Subnets, s.ID); err != nil {
		t.Error(err)
	}
	if err := ws[1].remove(ws[0].member, neutron.Networks, n.ID); err != nil {
		t.Error(err)
	}
	snap, _ := ws[0].db.View(t.Context())
	if left := schema.Bundles.Count(snap); left != 1 { // the default group's
		t.Errorf("%d bundles left", left)
	}
}

// TestStoreAway: with the store gone, errors are not for clients, and say so.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all(w.Networks().List(ctx, w.member, neutron.Query{})); err == nil || !strings.HasPrefix(problem(err), "not for clients") {
		t.Errorf("list: %v", err)
	}
	if _, err := w.Networks().Create(ctx, w.member, []neutron.Values{{"project_id": "mine"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("create: %v", err)
	}
	_ = w.st.(*store.Memory).Close()
	if _, err := all(w.Networks().List(t.Context(), w.member, neutron.Query{})); err == nil {
		t.Error("list from a closed store")
	}
}
