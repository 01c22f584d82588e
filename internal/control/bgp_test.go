package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
)

func (w *world) bgpSpeaker(version int, networks ...string) *neutron.BGPSpeaker {
	w.t.Helper()
	b := must[*neutron.BGPSpeaker](w, w.admin, neutron.BGPSpeakers, fmt.Sprintf(`{"local_as":4200000000,"ip_version":%d}`, version))
	for _, n := range networks {
		if err := w.BGPSpeakers().AddNetwork(w.t.Context(), w.admin, b.ID, n); err != nil {
			w.t.Fatal(err)
		}
	}
	return b
}

// announced returns the routes of a speaker, such as "10.0.0.0/24 via 203.0.113.5".
func (w *world) announced(speaker *neutron.BGPSpeaker) []string {
	w.t.Helper()
	routes, err := w.BGPSpeakers().AdvertisedRoutes(w.t.Context(), w.admin, speaker.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	texts := make([]string, len(routes))
	for i, r := range routes {
		texts[i] = fmt.Sprintf("%s via %s", r.Destination, r.NextHop)
	}
	return texts
}

func (w *world) announces(what string, speaker *neutron.BGPSpeaker, want ...string) {
	w.t.Helper()
	if d := cmp.Diff(append([]string{}, want...), w.announced(speaker)); d != "" {
		w.t.Errorf("%s: -want +got\n%s", what, d)
	}
}

// bgpPool makes a pool in an address scope: that given or, if it is "", a new one.
func (w *world) bgpPool(version int, prefix, scope string) (pool, in string) {
	w.t.Helper()
	if scope == "" {
		scope = must[*neutron.AddressScopeView](w, w.admin, neutron.AddressScopes, fmt.Sprintf(`{"ip_version":%d}`, version)).ID
	}
	return w.pool(w.admin, `"prefixes":["`+prefix+`"],"address_scope_id":"`+scope+`"`).ID, scope
}

func (w *world) pooledSubnet(network, pool string, version int, cidr string) string {
	w.t.Helper()
	return must[*neutron.SubnetView](w, w.admin, neutron.Subnets,
		fmt.Sprintf(`{"network_id":%q,"ip_version":%d,"cidr":%q,"subnetpool_id":%q}`, network, version, cidr, pool)).ID
}

func (w *world) adminNetwork(text string) string {
	w.t.Helper()
	return must[*neutron.NetworkView](w, w.admin, neutron.Networks, text).ID
}

// gatewayOf returns the address of a router's gateway, of an IP version.
func (w *world) gatewayOf(router string, gateway, version int) string {
	w.t.Helper()
	for _, a := range w.showPort(w.showRouter(router).Gateways[gateway].PortID).FixedIPs {
		if a.IPAddress.Is4() == (version == 4) {
			return a.IPAddress.String()
		}
	}
	w.t.Fatalf("router %s has no gateway address of IPv%d", router, version)
	return ""
}

// TestAdvertisedFloatingIPs: floating IPs are announced by the gateway of the router that serves
// them, while it does, on gateway networks of speakers of IPv4 alone.
func TestAdvertisedFloatingIPs(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	b, six, other := w.bgpSpeaker(4, w.external), w.bgpSpeaker(6, w.external), w.bgpSpeaker(4, w.externalNetwork("198.51.100.0/24"))
	w.announces("without floating IPs", b)
	p := w.port(w.tenant, "")
	f, unused := w.floatingIP(""), w.floatingIP("")
	w.announces("not associated", b)
	w.update(f.ID, `{"port_id":"`+p.ID+`"}`)
	route := f.FloatingIPAddress.String() + "/32 via " + w.gatewayOf(w.routerID, 0, 4)
	w.announces("associated", b, route)
	w.announces("by a speaker of IPv6", six)
	w.announces("by a speaker of another network", other)

	forwarded, q := w.floatingIP(""), w.port(w.tenant, "")
	text := fmt.Sprintf(`{"protocol":"tcp","external_port":80,"internal_port":80,"internal_port_id":%q,"internal_ip_address":%q}`, q.ID, q.FixedIPs[0].IPAddress)
	v, err := parse(w.member, neutron.PortForwardings, neutron.Create, text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.PortForwardings(forwarded.ID).Create(t.Context(), w.member, []neutron.Values{v}); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(w.announced(b), "\n")
	for _, want := range []string{route, forwarded.FloatingIPAddress.String() + "/32 via " + w.gatewayOf(w.routerID, 0, 4)} {
		if !strings.Contains(got, want) {
			t.Errorf("with port forwardings: %s; want %s among them", got, want)
		}
	}
	if strings.Contains(got, unused.FloatingIPAddress.String()+"/") {
		t.Errorf("%s has that of no port", got)
	}
	if _, err := w.change(w.admin, neutron.BGPSpeakers, b.ID, `{"advertise_floating_ip_host_routes":false}`); err != nil {
		t.Fatal(err)
	}
	w.announces("switched off", b)
	if _, err := w.change(w.admin, neutron.BGPSpeakers, b.ID, `{"advertise_floating_ip_host_routes":true}`); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.member, neutron.Ports, p.ID); err != nil {
		t.Fatal(err)
	}
	w.announces("without the port", b, forwarded.FloatingIPAddress.String()+"/32 via "+w.gatewayOf(w.routerID, 0, 4))
}

// TestAdvertisedNetworks: subnets behind routers are announced where their address scope is that of
// the gateway's, each IP version by its own speakers.
func TestAdvertisedNetworks(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	outside4, scope4 := w.bgpPool(4, "203.0.112.0/20", "")
	outside6, scope6 := w.bgpPool(6, "2001:db8::/48", "")
	inside4, _ := w.bgpPool(4, "10.0.0.0/16", scope4)
	inside6, _ := w.bgpPool(6, "2001:db8:1::/48", scope6)
	foreign4, foreign := w.bgpPool(4, "10.1.0.0/16", "")
	ext := w.adminNetwork(`{"router:external":true}`)
	w.pooledSubnet(ext, outside4, 4, "203.0.113.0/24")
	w.pooledSubnet(ext, outside6, 6, "2001:db8:0:1::/64")
	router := w.routerTo(w.admin, ext)
	lan := w.adminNetwork(`{}`)
	subnet4, subnet6 := w.pooledSubnet(lan, inside4, 4, "10.0.5.0/24"), w.pooledSubnet(lan, inside6, 6, "2001:db8:1:5::/64")
	w.addInterface(router, w.pooledSubnet(w.adminNetwork(`{}`), foreign4, 4, "10.1.5.0/24"))
	w.addInterface(router, w.subnet(w.network(`{}`).ID, `"ip_version":4,"cidr":"10.2.0.0/24"`).ID)

	four, six := w.bgpSpeaker(4, ext), w.bgpSpeaker(6, ext)
	w.announces("subnets of another scope and of none", four)
	w.addInterface(router, subnet4)
	w.addInterface(router, subnet6)
	by4, by6 := w.gatewayOf(router, 0, 4), w.gatewayOf(router, 0, 6)
	w.announces("of the scope", four, "10.0.5.0/24 via "+by4)
	w.announces("of IPv6", six, "2001:db8:1:5::/64 via "+by6)

	inner := w.routerTo(w.admin, "")
	w.addInterface(inner, w.pooledSubnet(lan, inside4, 4, "10.0.6.0/24"))
	w.announces("behind a router without a gateway", four, "10.0.5.0/24 via "+by4)
	second := w.routerTo(w.admin, ext)
	w.addInterface(second, w.pooledSubnet(w.adminNetwork(`{}`), inside4, 4, "10.0.4.0/24"))
	w.announces("of two routers", four, "10.0.4.0/24 via "+w.gatewayOf(second, 0, 4), "10.0.5.0/24 via "+by4)
	if err := w.remove(w.admin, neutron.Routers, second); err == nil {
		t.Error("a router with an interface was deleted")
	}

	if _, err := w.change(w.admin, neutron.BGPSpeakers, six.ID, `{"advertise_tenant_networks":false}`); err != nil {
		t.Fatal(err)
	}
	w.announces("switched off", six)
	w.announces("by a speaker whose flag is another's", four, "10.0.4.0/24 via "+w.gatewayOf(second, 0, 4), "10.0.5.0/24 via "+by4)
	if err := w.BGPSpeakers().RemoveNetwork(t.Context(), w.admin, four.ID, ext); err != nil {
		t.Fatal(err)
	}
	w.announces("without gateway networks", four)

	// A second gateway of the first router, in the other scope.
	out := w.adminNetwork(`{"router:external":true}`)
	otherPool, _ := w.bgpPool(4, "198.51.100.0/24", foreign)
	w.pooledSubnet(out, otherPool, 4, "198.51.100.0/25")
	if _, err := w.Routers().AddGateways(t.Context(), w.admin, router, []*neutron.GatewayRequest{{NetworkID: out}}); err != nil {
		t.Fatal(err)
	}
	both := w.bgpSpeaker(4, ext, out)
	w.announces("of two scopes", both, "10.0.4.0/24 via "+w.gatewayOf(second, 0, 4), "10.0.5.0/24 via "+by4, "10.1.5.0/24 via "+w.gatewayOf(router, 1, 4))
}

// TestBGPSpeakersLosePeersAndNetworks: what is deleted is no speaker's any more.
func TestBGPSpeakersLosePeersAndNetworks(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	kept, dropped := w.adminNetwork(`{}`), w.adminNetwork(`{}`)
	a, b := w.bgpSpeaker(4, kept, dropped), w.bgpSpeaker(6, dropped)
	peer := must[*neutron.BGPPeer](w, w.admin, neutron.BGPPeers, `{"peer_ip":"192.0.2.1","remote_as":65000,"auth_type":"none"}`)
	for _, s := range []*neutron.BGPSpeaker{a, b} {
		if err := w.BGPSpeakers().AddPeer(t.Context(), w.admin, s.ID, peer.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.remove(w.admin, neutron.BGPPeers, peer.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.admin, neutron.Networks, dropped); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string][]string{a.ID: {kept}, b.ID: nil} {
		s, err := w.BGPSpeakers().Show(t.Context(), w.admin, id)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(s.NetworkIDs, " ") != strings.Join(want, " ") || len(s.PeerIDs) > 0 {
			t.Errorf("speaker of networks %v and peers %v, want %v and none", s.NetworkIDs, s.PeerIDs, want)
		}
	}
	if err := w.remove(w.admin, neutron.BGPSpeakers, a.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.admin, neutron.Networks, kept); err != nil {
		t.Fatal(err)
	}
	w.verifyStore()
}

// BenchmarkAdvertisedRoutes asks for the routes of a speaker with 100 floating IPs of its network,
// beside as many networks as are given.
func BenchmarkAdvertisedRoutes(b *testing.B) {
	for _, others := range []int{1, 300} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			quotas := control.DefaultQuotas()
			for name := range quotas {
				quotas[name] = -1
			}
			w := open(b, store.NewMemory(), control.Options{Quotas: quotas})
			r := behindRouter(w)
			for range 100 {
				r.floatingIP(`"port_id":"` + w.port(r.tenant, "").ID + `"`)
			}
			for i := range others {
				out := w.externalNetwork(fmt.Sprintf("198.18.%d.0/28", i%256))
				router := w.routerTo(w.member, out)
				w.addInterface(router, w.subnet(w.network(`{}`).ID, `"ip_version":4,"cidr":"10.0.0.0/24"`).ID)
			}
			s := w.bgpSpeaker(4, r.external)
			for b.Loop() {
				if n := len(w.announced(s)); n != 100 {
					b.Fatalf("%d routes, want 100", n)
				}
			}
		})
	}
}
