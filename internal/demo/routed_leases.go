package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

const (
	// firstLease bounds the time from the call that makes a port to its lease: some ten ms, and a
	// second if the client has to ask again.
	firstLease = 3 * time.Second
	// leaseGone bounds the time that a lease outlives its port: removals are batched for a second.
	leaseGone = 5 * time.Second
	// gatewayDevice carries the gateways' addresses on a routed host.
	gatewayDevice = "ns-calico"
	// policyRoutes is the protocol number of the policy agent's routes.
	policyRoutes = "79"
)

// showLeases shows DHCP for all workloads, and for one made by calls to the Neutron API.
func (d *demo) showLeases(ctx context.Context, r *routed) error {
	for _, w := range []*workload{r.web, r.app, r.db} {
		d.check("routed: "+w.Name+" gets its address by DHCP from its host", w.Address(false)+"/24 via "+appsGateway, func() (string, error) {
			if err := w.askDHCP(ctx, d.lab.Dir); err != nil {
				return "", err
			}
			return w.addressAndRouter(ctx, false)
		})
	}
	d.check("routed: web makes its IPv6 address of its host's advertisement", r.web.Address(true)+" via host", func() (string, error) {
		return r.web.awaitAddressAndRouter(ctx, true)
	})
	d.check("routed: app asks its gateway for the name db.example.org", r.db.Address(false), func() (string, error) {
		return r.app.lookUp(ctx, appsGateway, "db.example.org")
	})
	return d.showCalls(ctx, r)
}

// showCalls makes a routed network and a workload on it.
func (d *demo) showCalls(ctx context.Context, r *routed) error {
	api, err := d.lab.Admin.Network()
	if err != nil {
		return err
	}
	operator := &lab.Tenant{API: api, Admin: api, Undo: &d.undo}
	network, err := operator.RoutedNetwork(ctx, "lan", subnets.CreateOpts{CIDR: "10.66.0.0/24", IPVersion: gophercloud.IPv4},
		subnets.CreateOpts{CIDR: "2001:db8:66::/64", IPVersion: gophercloud.IPv6, IPv6AddressMode: "dhcpv6-stateful", IPv6RAMode: "dhcpv6-stateful"})
	if err != nil {
		return err
	}
	allow := rules.CreateOpts{Protocol: rules.ProtocolTCP, PortRangeMin: allowedPort, PortRangeMax: allowedPort}
	allow6 := allow
	allow6.EtherType = rules.EtherType6
	group, err := operator.Group(ctx, "vm", true, allow, allow6)
	if err != nil {
		return err
	}
	called := time.Now()
	port, err := operator.BoundPort(ctx, "vm", network.ID, routedHost, []string{"10.66.0.11", "2001:db8:66::11"}, group)
	if err != nil {
		return err
	}
	r.operator = operator
	vm, err := d.lab.NewWorkload("vm", r.host, port)
	if err != nil {
		return err
	}
	r.vm = &workload{vm}
	d.checkWithin("routed: vm's port made and bound by a call: its lease", firstLease, func() (time.Duration, error) {
		if err := d.lab.PlugIn(vm); err != nil {
			return 0, err
		}
		err := r.vm.askDHCP(ctx, d.lab.Dir)
		return time.Since(called), err
	})
	d.check("routed: what vm has of it", r.vm.Address(false)+"/24 via "+vmGateway, func() (string, error) { return r.vm.addressAndRouter(ctx, false) })
	d.check("routed: vm gets its IPv6 address by DHCPv6", r.vm.Address(true)+" via host", func() (string, error) {
		if err := r.vm.askDHCPv6(ctx, d.lab.Dir); err != nil {
			return "", err
		}
		return r.vm.awaitAddressAndRouter(ctx, true)
	})
	d.check("routed: status of vm's port in the API", "ACTIVE", func() (string, error) { return operator.WaitStatus(ctx, r.vm.Port.ID, "ACTIVE") })
	return d.showGroup(ctx, r, group)
}

// showGroup shows traffic to vm that its security group allows, and other traffic.
func (d *demo) showGroup(ctx context.Context, r *routed, group string) error {
	stop, err := serveAll(endpoint{r.vm, allowedPort}, endpoint{r.vm, forbiddenPort})
	defer stop()
	if err != nil {
		return err
	}
	d.ask(ctx, "routed: TCP %s to %s:%d, which its group allows", r.outside, r.vm, allowedPort, "vm answered")
	d.ask(ctx, "routed: TCP %s to %s:%d, which it does not", r.outside, r.vm, forbiddenPort, silence)
	d.check(fmt.Sprintf("routed: TCP web to vm:%d by IPv6", allowedPort), "vm answered", func() (string, error) {
		return r.web.ask(ctx, r.vm.Address(true), allowedPort)
	})
	udp, err := lab.StartUDPStream(ctx, r.outside.Workload, r.vm.Workload, forbiddenPort)
	if err != nil {
		return err
	}
	defer udp.Close()
	open := rules.CreateOpts{Protocol: rules.ProtocolUDP, PortRangeMin: forbiddenPort, PortRangeMax: forbiddenPort}
	d.checkChange(ctx, fmt.Sprintf("routed: rule added by a call, UDP outside to vm:%d: it passes", forbiddenPort), inForce, func() error {
		_, err := r.operator.Allow(ctx, group, open)
		return err
	}, udp.FlowsAfter)
	return nil
}

// endLeases deletes what calls have made, and checks the host.
func (d *demo) endLeases(ctx context.Context, r *routed) {
	address := r.vm.Address(false)
	called := time.Now()
	d.checkWithin("routed: vm's port deleted by a call: its route goes", inForce, func() (time.Duration, error) {
		if err := ports.Delete(ctx, r.operator.API, r.vm.Port.ID).ExtractErr(); err != nil {
			return 0, err
		}
		return r.goneAfter(ctx, called, func() (string, error) { return r.routesOf(ctx, r.vm) })
	})
	d.checkWithin("routed: and its lease, and its gateway's address", leaseGone, func() (time.Duration, error) {
		return r.goneAfter(ctx, called, func() (string, error) {
			if leases, known := r.leases(d.lab.Dir); !known || strings.Contains(leases, " "+address+" ") {
				return "a lease of " + address, nil
			}
			shown, err := r.host.NS.Output(ctx, "ip", "-brief", "addr", "show", "dev", gatewayDevice)
			if strings.Contains(shown, vmGateway+"/24") {
				return shown, err
			}
			return "", err
		})
	})
}

// showNothingLeft checks the host once all its endpoints are deleted.
func (d *demo) showNothingLeft(ctx context.Context, r *routed) {
	d.checkWithin("routed: no endpoint left: no route, dnsmasq, gateway device", leaseGone, func() (time.Duration, error) {
		return r.goneAfter(ctx, time.Now(), func() (string, error) {
			for _, w := range []*workload{r.web, r.app, r.db, r.vm} {
				if left, err := r.routesOf(ctx, w); left != "" || err != nil {
					return left, err
				}
			}
			if left, err := r.dnsmasqs(ctx); left != "" || err != nil {
				return left, err
			}
			links, err := r.host.NS.Output(ctx, "ip", "-brief", "link")
			if strings.Contains(links, gatewayDevice) {
				return gatewayDevice, err
			}
			return "", err
		})
	})
}

// goneAfter waits until nothing is left, and returns how long after since. The error names the
// rest.
func (r *routed) goneAfter(ctx context.Context, since time.Time, left func() (string, error)) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*leaseGone)
	defer cancel()
	last := ""
	err := netlab.Until(ctx, "the end", func() (_ bool, err error) {
		last, err = left()
		return last == "", err
	})
	if last != "" {
		return 0, errors.New("left: " + last)
	}
	return time.Since(since), err
}

// routesOf returns the routes on the host to a workload's addresses.
func (r *routed) routesOf(ctx context.Context, w *workload) (string, error) {
	for _, family := range []string{"-4", "-6"} {
		shown, err := r.host.NS.Output(ctx, "ip", family, "route", "show", "dev", w.Tap(), "proto", policyRoutes)
		if shown != "" || err != nil {
			return shown, err
		}
	}
	return "", nil
}

// dnsmasqs returns the dnsmasq processes on the host.
func (r *routed) dnsmasqs(ctx context.Context) (string, error) {
	pids, err := r.host.NS.Output(ctx, "ip", "netns", "pids", r.host.NS.Name)
	found := ""
	for pid := range strings.FieldsSeq(pids) {
		name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm")) // it may have ended
		if strings.TrimSpace(string(name)) == "dnsmasq" {
			found += "dnsmasq " + pid + " "
		}
	}
	return found, err
}

// leases returns the leases in force on the host; none are known while one dnsmasq replaces
// another.
func (r *routed) leases(dir string) (text string, known bool) {
	pid, err := os.ReadFile(filepath.Join(dir, r.host.Name, "dhcp", "pid"))
	if err != nil {
		return "", false
	}
	arguments, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "cmdline"))
	if err != nil {
		return "", false
	}
	for a := range strings.SplitSeq(string(arguments), "\x00") {
		if file, ok := strings.CutPrefix(a, "--dhcp-leasefile="); ok {
			raw, err := os.ReadFile(file)
			return string(raw), err == nil
		}
	}
	return "", false
}
