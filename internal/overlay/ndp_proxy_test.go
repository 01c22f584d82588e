package overlay

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// proxiesOn gives the router a gateway with SNAT on an external network, by which it answers for
// proxied addresses of the networks that it is on, and returns the gateway.
func (r *router6) proxiesOn(ext *network, ip string) translate.RouterLink {
	r.lab.t.Helper()
	out := r.link(ext, netip.MustParseAddr(ip), "network:router_gateway")
	out.Port.FixedIPs = append(out.Port.FixedIPs, neutron.FixedIP{SubnetID: ext.v4.ID, IPAddress: ext.v4.GatewayIP.Next()})
	out.Subnets = append(out.Subnets, &ext.v4)
	b := translate.Port(out.Port, &ext.net, nil)
	r.lab.put(topology.Owner{Kind: "port", ID: out.Port.ID}, &b)
	r.router.Gateways = []neutron.RouterGateway{{NetworkID: ext.net.ID, PortID: out.Port.ID, EnableSNAT: true}}
	r.links = append(r.links, out)
	for i := range r.links {
		r.links[i].AddressScopes.IPv6 = "scope"
	}
	out = r.links[len(r.links)-1]
	r.enableProxies(true)
	b = translate.RouterGateway(&r.router, out, true)
	r.lab.put(topology.Owner{Kind: "router-gateway", ID: out.Port.ID}, &b)
	return out
}

// enableProxies enables or disables the proxies of the router, whose last link is its gateway.
func (r *router6) enableProxies(enabled bool) {
	r.lab.t.Helper()
	r.router.EnableNDPProxy = enabled
	r.put()
	for _, k := range r.links[:len(r.links)-1] {
		r.join(k)
	}
}

// proxy has the router answer for the address of a machine.
func (r *router6) proxy(m *machine, gateway translate.RouterLink) topology.Owner {
	r.lab.t.Helper()
	x := &neutron.NDPProxy{Standard: neutron.Standard{ID: uuid.NewString()}, RouterID: r.router.ID, PortID: m.port.ID, IPAddress: m.v6}
	b := translate.NDPProxy(x, &r.router, gateway)
	owner := topology.Owner{Kind: "ndp-proxy", ID: x.ID}
	r.lab.put(owner, &b)
	return owner
}

// TestNDPProxy: a machine on a router's external network, on another host, reaches the address
// inside that has a proxy as a neighbour of its own, and cannot take it. A machine without a proxy
// is not reached, and gets no replies, until proxies are disabled.
func TestNDPProxy(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	inside, ext := l.network6("in", "2001:db8:1::/64", "slaac"), l.network6("ext", "2001:db8:e::/64", "")
	r := l.router6(inside)
	gateway := r.proxiesOn(ext, "2001:db8:e::5")
	l.start()
	web, hidden := inside.machine6(l.hosts[0]), inside.machine6(l.hosts[0])
	for _, m := range []*machine{web, hidden} {
		m.usable()
		m.awaitShown("a default route", true, "default", "route")
	}
	outside := ext.machine6(l.hosts[1], asksNoRouter)
	outside.port.AllowedAddressPairs = []neutron.AddressPair{{IPAddress: web.v6.String(), MACAddress: outside.port.MACAddress}}
	outside.bind()
	outside.MustIP(t, "addr add "+outside.v6.String()+"/64 dev eth0 nodad", "route add 2001:db8:1::/64 dev eth0",
		"route add "+hidden.v6.String()+" via 2001:db8:e::5")
	owner := r.proxy(web, gateway)

	l.wait("an answer for the proxied address", func() bool { return outside.answers(web.v6) })
	if all := outside.shows("neigh", "show", web.v6.String()); !strings.Contains(all, "lladdr "+gateway.Port.MACAddress.String()) {
		t.Errorf("the neighbour outside is %q, want it at the gateway's %s", all, gateway.Port.MACAddress)
	}
	outside.exchanges6(web)
	if err := web.ping(outside.v6, 3); err != nil {
		t.Errorf("from the proxied address: %v", err)
	}
	if outside.answers(hidden.v6) {
		t.Error("an address without a proxy is reached")
	}
	if hidden.answers(outside.v6) {
		t.Error("an address without a proxy gets replies")
	}
	outside.MustIP(t, "addr add "+web.v6.String()+"/128 dev eth0")
	outside.awaitShown("the proxied address to be refused", true, "dadfailed", "addr", "show", "dev", "eth0")
	outside.MustIP(t, "addr del "+web.v6.String()+"/128 dev eth0")

	l.put(owner, nil)
	r.enableProxies(false)
	l.wait("the address that had no proxy", func() bool { return outside.answers(hidden.v6) })
	outside.forgetNeighbours()
	if outside.answers(web.v6) {
		t.Error("the router answers for an address without its proxy")
	}
}
