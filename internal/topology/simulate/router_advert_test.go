package simulate

import (
	"net/netip"
	"reflect"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

func subnet6Of(network string) topology.DhcpV6 {
	return topology.DhcpV6{ID: "s-" + network, NetworkID: network, SubnetAddress: prefix("2001:db8:1::/64"), RAMode: "slaac", Enabled: true}
}

// Each change of what a network advertises is reported, whatever it follows from.
func TestAdvertisementChanges(t *testing.T) {
	t.Parallel()
	reported := map[string]bool{}
	w := NewWorld(Options{AdvertisementChanged: func(network string) { reported[network] = true }})
	l := &lab{w, watched{NewSimulator(w)}, NewMemory()}
	all := []string{"net1", "net2"}
	now := func() map[string]Advertisement {
		m := map[string]Advertisement{}
		for _, id := range all {
			if a, ok := w.Advertisement(id); ok {
				m[id] = a
			}
		}
		return m
	}
	s := subnet6Of("net1")
	put := func(d topology.DhcpV6) func() {
		return func() { l.Apply(owner("subnet", d.ID), &topology.Bundle{DhcpV6s: []topology.DhcpV6{d}}) }
	}
	changed := func(change func(*topology.DhcpV6)) func() {
		return func() {
			change(&s)
			put(s)()
		}
	}
	network := func(id string, up bool) func() {
		return func() {
			l.Apply(owner("network", id), &topology.Bundle{Networks: []topology.Network{{ID: id, AdminStateUp: up}}})
		}
	}
	routerUp := func(up bool) func() {
		return func() {
			b := routerBundle("r")
			b.Routers[0].AdminStateUp = up
			l.Apply(owner("router", "r"), b)
		}
	}
	host := func(st *topology.HostState) func() { return func() { w.ApplyHostState("h9", st) } }
	gateway := func(b *topology.Bundle) func() { return func() { l.Apply(owner("l2-gateway-connection", "c"), b) } }
	leadingOut := func() {
		b := r61.bundle()
		b.Routes = append(b.Routes, topology.Route{ID: "out", SrcSubnet: prefix("::/0"), DstSubnet: prefix("::/0"), NextHop: topology.HopPort, NextHopPortID: "q-r61", Weight: 100})
		l.Apply(r61.owner(), b)
	}
	for _, step := range []struct {
		name  string
		do    func()
		quiet bool // nothing else is advertised
	}{
		{"a subnet without its network", put(s), true},
		{"its network", network("net1", true), false},
		{"another network", network("net2", true), true},
		{"DNS", changed(func(d *topology.DhcpV6) { d.DNSServerAddress = []netip.Addr{ip("2001:db8::53")} }), false},
		{"MTU", changed(func(d *topology.DhcpV6) { d.InterfaceMTU = 1400 }), false},
		{"the underlay's MTU", host(&topology.HostState{HostID: "h9", MTU: 1300}), false},
		{"the host is gone", host(nil), false},
		{"no MTU of its own", changed(func(d *topology.DhcpV6) { d.InterfaceMTU = 0 }), false},
		{"a VTEP", gateway(connection("net1", topology.Port{RouterID: "r", VNI: 77, TunnelIP: ip("192.0.2.1")})), false},
		{"a VLAN instead", gateway(connection("net1", topology.Port{NetworkID: "trunk", VlanID: 101})), false},
		{"another network's VLAN", gateway(connection("net2", topology.Port{NetworkID: "trunk", VlanID: 101})), false},
		{"no gateway", gateway(nil), true},
		{"mode", changed(func(d *topology.DhcpV6) { d.RAMode = "dhcpv6-stateful" }), false},
		{"address mode", changed(func(d *topology.DhcpV6) { d.AddressMode = "dhcpv6-stateful" }), true},
		{"a router without its interface", routerUp(true), true},
		{"its interface", func() { l.link(r61) }, false},
		{"router down", routerUp(false), false},
		{"router up", routerUp(true), false},
		{"its default route leads there", leadingOut, false},
		{"no longer", func() { l.link(r61) }, false},
		{"its MAC", func() { l.link(link{id: "r61", router: "r", network: "net1", n: 61, at: r61.at}) }, false},
		{"the network's end of its link", func() { l.Apply(owner("port", "b-r61"), nil) }, false},
		{"again", func() { l.link(r61) }, false},
		{"interface gone", func() { l.Apply(r61.owner(), nil) }, false},
		{"network down", network("net1", false), false},
		{"network up", network("net1", true), false},
		{"moved to another network", changed(func(d *topology.DhcpV6) { d.NetworkID = "net2" }), false},
		{"subnet gone", func() { l.Apply(owner("subnet", s.ID), nil) }, false},
	} {
		before := now()
		clear(reported)
		step.do()
		after := now()
		if reflect.DeepEqual(before, after) != step.quiet {
			t.Errorf("%s: advertised %+v, then %+v", step.name, before, after)
		}
		for id := range mergedKeys(before, after) {
			if !reflect.DeepEqual(before[id], after[id]) && !reported[id] {
				t.Errorf("%s: the change of %s is not reported", step.name, id)
			}
		}
	}
}

func mergedKeys(a, b map[string]Advertisement) map[string]bool {
	all := map[string]bool{}
	for id := range a {
		all[id] = true
	}
	for id := range b {
		all[id] = true
	}
	return all
}

// Of several routers on a network that is the default one which has a subnet's gateway address, and
// one whose way out is the network is none.
func TestDefaultRouterAdvertised(t *testing.T) {
	t.Parallel()
	l := example6()
	s := subnet6Of("net1")
	s.DefaultGateway = ptr(ip("2001:db8:1::1"))
	l.Apply(owner("subnet", s.ID), &topology.Bundle{DhcpV6s: []topology.DhcpV6{s}})
	l.router("r0")
	l.link(link{id: "a", router: "r0", network: "net1", n: 21, at: prefix("2001:db8:1::2/64")}) // before r61 by its id
	if a, ok := l.Advertisement("net1"); !ok || a.Router != routerMAC(11) || a.Lifetime != routerLifetime {
		t.Errorf("advertised %+v", a)
	}
	l.Apply(r61.owner(), nil)
	if a, ok := l.Advertisement("net1"); !ok || a.Router != routerMAC(21) || a.Lifetime != routerLifetime {
		t.Errorf("without the gateway %+v", a)
	}
	guest := link{id: "a", router: "r0", network: "net1", n: 21, at: prefix("2001:db8:1::2/64")}
	b := guest.bundle()
	b.Ports[0].Guest = true
	l.Apply(guest.owner(), b)
	if a, ok := l.Advertisement("net1"); !ok || a.Router != responderMAC || a.Lifetime != 0 {
		t.Errorf("of another project %+v", a)
	}
	b.Ports[0].PortSubnet = []netip.Prefix{prefix("2001:db8:1::1/64")}
	l.Apply(guest.owner(), b)
	if a, ok := l.Advertisement("net1"); !ok || a.Router != routerMAC(21) || a.Lifetime != routerLifetime {
		t.Errorf("of another project, with the gateway address %+v", a)
	}
	out := subnet6Of("net4") // where r has its gateway
	l.Apply(owner("subnet", out.ID), &topology.Bundle{DhcpV6s: []topology.DhcpV6{out}})
	if a, ok := l.Advertisement("net4"); !ok || a.Router != responderMAC || a.Lifetime != 0 {
		t.Errorf("on the external network %+v", a)
	}
}

func TestFarewell(t *testing.T) {
	t.Parallel()
	p1 := packet.AdvertPrefix{Prefix: prefix("2001:db8:1::/64"), Autonomous: true, Valid: 86400, Preferred: 14400}
	p2 := packet.AdvertPrefix{Prefix: prefix("2001:db8:2::/64"), Valid: 86400, Preferred: 14400}
	made := p2
	made.Autonomous = true
	d1, d2 := ip("2001:db8::1"), ip("2001:db8::2")
	advert := func(router packet.MAC, lifetime uint16, prefixes []packet.AdvertPrefix, dns ...netip.Addr) Advertisement {
		return Advertisement{Router: router, RouterAdvert: packet.RouterAdvert{Lifetime: lifetime, MTU: 1450, Prefixes: prefixes, DNS: dns, DNSLifetime: 1800}}
	}
	ended := func(a Advertisement) Advertisement {
		a.DNSLifetime = 0
		for i := range a.Prefixes {
			a.Prefixes[i].Valid, a.Prefixes[i].Preferred = 0, 0
		}
		return a
	}
	type list = []packet.AdvertPrefix
	before := advert(mac(1), 1800, list{p1, p2}, d1, d2)
	for _, c := range []struct {
		name string
		next Advertisement
		want *Advertisement
	}{
		{"the same", before, nil},
		{"more", advert(mac(1), 1800, list{p1, p2, made}, d1, d2), nil},
		{"fewer prefixes and servers", advert(mac(1), 1800, list{p1}, d2), ptr(ended(advert(mac(1), 1800, list{p2}, d1)))},
		{"another mode", advert(mac(1), 1800, list{p1, made}, d1, d2), ptr(ended(advert(mac(1), 1800, list{p2})))},
		{"another router", advert(mac(2), 1800, list{p1, p2}, d1, d2), ptr(ended(advert(mac(1), 0, nil, d1, d2)))},
		{"no default router", advert(mac(1), 0, list{p1, p2}, d1, d2), ptr(ended(advert(mac(1), 0, nil)))},
		{"nothing", Advertisement{}, ptr(ended(advert(mac(1), 0, list{p1, p2}, d1, d2)))},
	} {
		got, needed := before.Farewell(c.next)
		if needed != (c.want != nil) || needed && !reflect.DeepEqual(got, *c.want) {
			t.Errorf("%s: %v %+v\nwant %+v", c.name, needed, got, c.want)
		}
	}
}
