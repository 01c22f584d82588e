package control_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// bgpSpeaker makes a speaker with gateway networks.
func (w *world) bgpSpeaker(networks ...string) *neutron.BGPSpeaker {
	w.t.Helper()
	b := must[*neutron.BGPSpeaker](w, w.admin, neutron.BGPSpeakers, `{"local_as":4200000000,"ip_version":4}`)
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

// speaker makes the speaker of a router.
func (w *world) speaker(router string) *neutron.BGPSpeaker {
	w.t.Helper()
	return must[*neutron.BGPSpeaker](w, w.admin, neutron.BGPSpeakers, `{"local_as":64512,"ip_version":4,"logical_router":"`+router+`"}`)
}

// bgpPeer makes a peer, with a password unless that is "", and gives it to a speaker.
func (w *world) bgpPeer(speaker, ip, password string) string {
	w.t.Helper()
	auth := `"auth_type":"none"`
	if password != "" {
		auth = `"auth_type":"md5","password":"` + password + `"`
	}
	id := must[*neutron.BGPPeer](w, w.admin, neutron.BGPPeers, `{"peer_ip":"`+ip+`","remote_as":65001,`+auth+`}`).ID
	if err := w.BGPSpeakers().AddPeer(w.t.Context(), w.admin, speaker, id); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// describeBGP returns what a router's speaker has to do, each object of it in a line.
func (w *world) describeBGP(router string) []string {
	w.t.Helper()
	b := w.bundle(topology.RouterBGPOwner, router)
	s := b.BgpSpeakers[0]
	lines := []string{fmt.Sprintf("AS %d as %s, floating %t", s.ASNumber, s.Identifier, s.AnnouncesFloating), fmt.Sprintf("announces %v", s.Announced)}
	for _, p := range b.BgpPeers {
		i := slices.IndexFunc(s.Sessions, func(x topology.BgpSession) bool { return x.PeerID == p.ID })
		lines = append(lines, fmt.Sprintf("peer %s AS %d from %s", p.Address, p.ASNumber, s.Sessions[i].LocalAddress))
	}
	for _, r := range b.Routes {
		lines = append(lines, fmt.Sprintf("route %s", r.DstSubnet))
	}
	for _, r := range b.Chains[0].Rules {
		port := w.bundle(topology.ContainerOwner, translate.BGPContainer(router)).Ports[0].ID
		lines = append(lines, "rule "+strings.ReplaceAll(r.String(), "port "+port, "the BGP speaker"))
	}
	var networks []string
	for _, n := range b.BgpNetworks {
		networks = append(networks, "network "+n.Subnet.String())
	}
	slices.Sort(networks)
	return append(lines, networks...)
}

func (w *world) checkBGP(what, router string, want ...string) {
	w.t.Helper()
	if d := cmp.Diff(want, w.describeBGP(router)); d != "" {
		w.t.Errorf("%s: -want +got\n%s", what, d)
	}
}

// TestBGPFollowsRouter: what a speaker has to do follows the router, its ports and its routes, the
// speaker and its peers, and nothing is left of it.
func TestBGPFollowsRouter(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	changeRouter := func(text string) {
		t.Helper()
		if _, err := w.change(w.admin, neutron.Routers, w.routerID, text); err != nil {
			t.Fatal(err)
		}
	}
	by := w.gatewayOf(w.routerID, 0, 4)
	s := w.speaker(w.routerID)
	if _, there := schema.Bundles.Peek(must2(w.db.View(t.Context())), topology.RouterBGPOwner+"/"+w.routerID); there {
		t.Error("a speaker without peers means something to packets")
	}
	peer := w.bgpPeer(s.ID, "203.0.113.200", "secret")
	common := []string{
		"peer 203.0.113.200 AS 65001 from " + by,
		"route 203.0.113.200/32",
		"rule redirect to the BGP speaker TCP, from 203.0.113.200, to port 179, unfragmented",
		"rule redirect to the BGP speaker TCP, from 203.0.113.200, from port 179, unfragmented",
	}
	want := func(announces string, networks ...string) []string {
		return slices.Concat([]string{"AS 64512 as " + by + ", floating false", "announces [" + announces + "]"}, common, networks)
	}
	w.checkBGP("with a peer", w.routerID, want("10.0.0.0/24", "network 10.0.0.0/24")...)

	port := w.addInterface(w.routerID, w.subnet(w.network(`{}`).ID, `"ip_version":4,"cidr":"10.1.0.0/24"`).ID)
	w.checkBGP("with another interface", w.routerID, want("10.0.0.0/24 10.1.0.0/24", "network 10.0.0.0/24", "network 10.1.0.0/24")...)
	changeRouter(`{"routes":[{"destination":"172.16.0.0/16","nexthop":"10.1.0.9"}]}`)
	all := []string{"network 10.0.0.0/24", "network 10.1.0.0/24", "network 172.16.0.0/16"}
	w.checkBGP("with an extra route", w.routerID, want("10.0.0.0/24 10.1.0.0/24 172.16.0.0/16", all...)...)
	if _, err := w.change(w.admin, neutron.Ports, port, `{"admin_state_up":false}`); err != nil {
		t.Fatal(err)
	}
	w.checkBGP("with an interface that is down", w.routerID, want("10.0.0.0/24", all...)...)
	if _, err := w.change(w.admin, neutron.BGPSpeakers, s.ID, `{"advertise_tenant_networks":false}`); err != nil {
		t.Fatal(err)
	}
	w.checkBGP("without networks", w.routerID, want("", all...)...)
	if _, err := w.change(w.admin, neutron.BGPSpeakers, s.ID, `{"advertise_tenant_networks":true}`); err != nil {
		t.Fatal(err)
	}
	changeRouter(`{"admin_state_up":false}`)
	w.checkBGP("with a router that is down", w.routerID, want("", all...)...)
	changeRouter(`{"admin_state_up":true}`)
	w.edit(func(tx *records.Tx) error {
		return schema.ContainerBindings.Put(tx, &topology.ContainerBinding{ContainerID: translate.BGPContainer(w.routerID), HostID: "h1"})
	})
	if _, err := w.change(w.admin, neutron.BGPPeers, peer, `{"password":"other"}`); err != nil {
		t.Fatal(err)
	}
	given := slices.Collect(schema.BGPPasswords.All(must2(w.db.View(t.Context()))))
	if d := cmp.Diff([]*topology.BgpPasswords{{HostID: "h1", RouterID: w.routerID, Passwords: map[string]string{peer: "other"}}}, given); d != "" {
		t.Errorf("with another password: -want +got\n%s", d)
	}
	for _, kv := range w.dump() {
		if strings.HasPrefix(kv, schema.TopologyPrefix) && strings.Contains(kv, `"password"`) {
			t.Errorf("all hosts may read a password: %s", kv)
		}
	}
	changeRouter(`{"routes":[]}`)
	if _, err := w.Routers().RemoveInterface(t.Context(), w.admin, w.routerID, neutron.InterfaceRequest{PortID: port}); err != nil {
		t.Fatal(err)
	}
	w.checkBGP("as it was", w.routerID, want("10.0.0.0/24", "network 10.0.0.0/24")...)
	changeRouter(`{"external_gateway_info":null}`)
	common = append([]string{"peer 203.0.113.200 AS 65001 from invalid IP"}, common[2:]...)
	w.checkBGP("without a way to the peer", w.routerID,
		slices.Concat([]string{"AS 64512 as invalid IP, floating false", "announces [10.0.0.0/24]"}, common, []string{"network 10.0.0.0/24"})...)

	changeRouter(`{"external_gateway_info":{"network_id":"` + w.external + `","external_fixed_ips":[{"ip_address":"` + by + `"}]}}`)
	if err := w.remove(w.admin, neutron.BGPSpeakers, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.admin, neutron.BGPPeers, peer); err != nil {
		t.Fatal(err)
	}
	w.edit(func(tx *records.Tx) error { // as the scheduler does, once the sessions have ended
		return errors.Join(schema.Bundles.Delete(tx, schema.ContainerBundleID(translate.BGPContainer(w.routerID))), schema.Bundles.Delete(tx, schema.RouterBGPBundleID(w.routerID)))
	})
	for _, kv := range w.dump() {
		if strings.Contains(kv, "bgp") || strings.Contains(kv, topology.ContainerBGP) {
			t.Errorf("left: %s", kv)
		}
	}
	w.verifyStore()
}

// TestBGPAgentsSpeakers: the agent of the host to which a speaker's container is bound has the
// speaker, and counts what that host reports of it.
func TestBGPAgentsSpeakers(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	s := w.speaker(w.routerID)
	w.bgpPeer(s.ID, "203.0.113.200", "")
	const h1, h2 = "44444444-0000-4000-8000-000000000001", "44444444-0000-4000-8000-000000000002"
	w.edit(func(tx *records.Tx) error {
		for i, id := range []string{h1, h2} {
			err := errors.Join(schema.Hosts.Put(tx, &topology.Host{ID: id, Name: fmt.Sprint("h", i+1)}),
				schema.ContainerHosts.Put(tx, &topology.ContainerHost{HostID: id, Kinds: []string{topology.ContainerBGP}}),
				schema.BGPStates.Put(tx, &topology.BgpState{HostID: id, PortID: "p", RouterID: w.routerID, Peers: []topology.BgpPeerState{{PeerID: "x", Advertised: i + 1}}}))
			if err != nil {
				return err
			}
		}
		return schema.ContainerBindings.Put(tx, &topology.ContainerBinding{ContainerID: translate.BGPContainer(w.routerID), HostID: h2})
	})
	for host, want := range map[string]map[string]any{h1: {"bgp_speakers": 0, "bgp_peers": 0, "advertise_routes": 0}, h2: {"bgp_speakers": 1, "bgp_peers": 1, "advertise_routes": 2}} {
		id := schema.AgentID(host, schema.BGPAgent)
		speakers, err := w.BGPSchedule().List(t.Context(), w.admin, id)
		if err != nil || len(speakers) != want["bgp_speakers"] {
			t.Errorf("host %s has speakers %v, %v", host, speakers, err)
		}
		a, err := w.Agents().Show(t.Context(), w.admin, id)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, a.Configurations); d != "" {
			t.Errorf("host %s: -want +got\n%s", host, d)
		}
	}
}

// TestBGPContainer: the container of a router's speaker runs where the router's uplinks are. Its
// link is apart from that of the container for health checks, whichever comes first.
func TestBGPContainer(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"speaker", "monitor"} {
		w := behindRouter(inMemory(t))
		b := &balanced{w, nil}
		steps := map[string]func(){
			"speaker": func() { w.bgpPeer(w.speaker(w.routerID).ID, "203.0.113.200", "") },
			"monitor": func() {
				h := b.make(neutron.V1HealthMonitors, `{"type":"TCP","delay":3,"timeout":2,"max_retries":2}`).(*neutron.HealthMonitorView)
				b.make(neutron.V1Pools, `{"subnet_id":"`+w.subnetID+`","protocol":"TCP","lb_method":"ROUND_ROBIN","health_monitors":["`+h.ID+`"]}`)
			},
		}
		steps[first]()
		delete(steps, first)
		for _, rest := range steps {
			rest()
		}
		link := func(container string) netip.Prefix {
			return w.bundle(topology.ContainerOwner, container).Ports[0].PortSubnet[0].Masked()
		}
		bgp, lb := link(translate.BGPContainer(w.routerID)), link(translate.LBContainer(w.routerID))
		if bgp.Overlaps(lb) {
			t.Errorf("%s first: links %s and %s", first, bgp, lb)
		}
		if _, err := w.change(w.admin, neutron.Routers, w.routerID, `{"name":"other"}`); err != nil {
			t.Fatal(err)
		}
		if b, l := link(translate.BGPContainer(w.routerID)), link(translate.LBContainer(w.routerID)); b != bgp || l != lb {
			t.Errorf("%s first: links %s and %s have become %s and %s", first, bgp, lb, b, l)
		}
		c := w.bundle(topology.ContainerOwner, translate.BGPContainer(w.routerID))
		sc := c.ServiceContainers[0]
		if sc.ServiceType != topology.ContainerBGP || sc.ConfigurationID != w.routerID || sc.PortID != c.Ports[0].ID || c.Ports[0].TunnelKey == 0 || len(c.Routes) > 0 {
			t.Errorf("container %+v with port %+v and routes %v", sc, c.Ports[0], c.Routes)
		}
		if g := c.ServiceContainerGroups[0]; g.ID != sc.ServiceGroupID || g.PortGroupID != w.bundle("router", w.routerID).PortGroups[0].ID {
			t.Errorf("group %+v", g)
		}
		w.verifyStore()
	}
}

// TestBGPEnds: without peers a router has nothing of BGP. If a host runs its container, that is
// left with a speaker without sessions, which a new peer revives and which goes with the router.
func TestBGPEnds(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	out := w.externalNetwork("203.0.113.0/24")
	router := w.routerTo(w.admin, out)
	s := w.speaker(router)
	left := func() string {
		r := must2(w.db.View(t.Context()))
		_, container := schema.Bundles.Peek(r, schema.ContainerBundleID(translate.BGPContainer(router)))
		b, there := schema.Bundles.Peek(r, schema.RouterBGPBundleID(router))
		if !there {
			return fmt.Sprintf("container %t", container)
		}
		return fmt.Sprintf("container %t, %d sessions, %d peers, %d networks, %d rules, %d routes", container, len(b.Bundle.BgpSpeakers[0].Sessions), len(b.Bundle.BgpPeers),
			len(b.Bundle.BgpSpeakers[0].Announced), len(b.Bundle.Chains[0].Rules), len(b.Bundle.Routes))
	}
	want := func(what, want string) {
		t.Helper()
		if got := left(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	take := func(peer string) {
		t.Helper()
		if err := w.BGPSpeakers().RemovePeer(t.Context(), w.admin, s.ID, peer); err != nil {
			t.Fatal(err)
		}
	}
	peer := w.bgpPeer(s.ID, "203.0.113.200", "")
	take(peer)
	want("a container without a host", "container false")

	peer = w.bgpPeer(s.ID, "203.0.113.201", "")
	if _, err := w.db.Update(t.Context(), func(tx *records.Tx) error {
		return schema.ContainerBindings.Put(tx, &topology.ContainerBinding{ContainerID: translate.BGPContainer(router), HostID: "h1"})
	}); err != nil {
		t.Fatal(err)
	}
	take(peer)
	const ended = "container true, 0 sessions, 0 peers, 0 networks, 2 rules, 1 routes"
	want("the last peer is taken away", ended)
	w.bgpPeer(s.ID, "203.0.113.202", "")
	want("another peer", "container true, 1 sessions, 1 peers, 0 networks, 2 rules, 1 routes")
	if err := w.remove(w.admin, neutron.BGPSpeakers, s.ID); err != nil {
		t.Fatal(err)
	}
	want("the speaker is deleted", ended)
	if err := w.remove(w.admin, neutron.Routers, router); err != nil {
		t.Fatal(err)
	}
	want("the router is deleted", "container false")
	w.verifyStore()
}

// TestGatewayNetworks: a gateway network gives a speaker the router with the gateway address of its
// subnet, else the only one with a gateway there.
func TestGatewayNetworks(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	add := func(s *neutron.BGPSpeaker, network string) error {
		return w.BGPSpeakers().AddNetwork(t.Context(), w.admin, s.ID, network)
	}
	routerOf := func(s *neutron.BGPSpeaker) string {
		return must2(w.BGPSpeakers().Show(t.Context(), w.admin, s.ID)).RouterID
	}
	a, b := w.bgpSpeaker(), w.bgpSpeaker()
	out := w.externalNetwork("203.0.113.0/24")
	waiting := w.bgpPeer(a.ID, "203.0.113.76", "")
	if err := add(a, out); err != nil || routerOf(a) != "" {
		t.Errorf("a network without routers: %v, router %q", err, routerOf(a))
	}
	one := w.routerTo(w.admin, out)
	if got := routerOf(a); got != one {
		t.Errorf("a speaker that waits for a router has %q, want %q", got, one)
	}
	if got := w.bundle(topology.RouterBGPOwner, one).BgpPeers; len(got) != 1 || got[0].ID != waiting {
		t.Errorf("the router's peers are %v, want %s", got, waiting)
	}
	if err := w.BGPSpeakers().RemovePeer(t.Context(), w.admin, a.ID, waiting); err != nil {
		t.Fatal(err)
	}
	w.expect(add(a, out), "BgpSpeakerNetworkBindingError: Network "+out+" is already bound to BgpSpeaker "+a.ID+".")
	w.expect(add(b, out), "RouterInUse: Router "+one+" is already associated with bgp speaker "+a.ID+".")
	w.routerTo(w.admin, out)
	if err := add(b, out); err != nil || routerOf(b) != "" {
		t.Errorf("a network with two routers: %v, router %q", err, routerOf(b))
	}
	owner := w.routerTo(w.admin, "")
	subnet := slices.Collect(schema.Subnets.By(must2(w.db.View(t.Context())), "network", out))[0].ID
	w.addInterface(owner, subnet)
	if got := routerOf(b); got != owner {
		t.Errorf("a network whose gateway address a router has: router %q, want %q", got, owner)
	}
	w.bgpPeer(b.ID, "203.0.113.77", "")
	w.expect(w.BGPSpeakers().RemoveNetwork(t.Context(), w.admin, b.ID, out), "BgpSpeakerInUse: BGP Speaker "+b.ID+" is still associated with bgp peers.")
	if err := w.BGPSpeakers().RemoveNetwork(t.Context(), w.admin, a.ID, out); err != nil || routerOf(a) != "" {
		t.Errorf("a network that is taken away: %v", err)
	}
	c, unserved, served := w.bgpSpeaker(), w.externalNetwork("198.18.0.0/24"), w.externalNetwork("198.18.1.0/24")
	leading := w.routerTo(w.admin, served)
	for _, n := range []string{unserved, served} {
		if err := add(c, n); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct{ removed, want string }{{unserved, leading}, {served, ""}} {
		if err := w.BGPSpeakers().RemoveNetwork(t.Context(), w.admin, c.ID, x.removed); err != nil || routerOf(c) != x.want {
			t.Errorf("one of two networks is taken away: %v, router %q, want %q", err, routerOf(c), x.want)
		}
	}
	emptied := w.externalNetwork("198.18.2.0/24")
	for _, n := range []string{emptied, unserved, served} {
		if err := add(a, n); err != nil {
			t.Fatal(err)
		}
	}
	last := slices.Collect(schema.Subnets.By(must2(w.db.View(t.Context())), "network", emptied))[0].ID
	if err := w.remove(w.admin, neutron.Subnets, last); err != nil {
		t.Fatal(err)
	}
	if err := w.BGPSpeakers().RemoveNetwork(t.Context(), w.admin, a.ID, unserved); err != nil || routerOf(a) != leading {
		t.Errorf("a network is taken away, another has no subnet: %v, router %q, want %q", err, routerOf(a), leading)
	}
	bare := w.adminNetwork(`{"router:external":true}`)
	d := w.bgpSpeaker()
	w.expect(add(d, bare), "NoSubnetInNetwork: No subnets in the network: "+bare+".")
	w.expect(add(d, w.adminNetwork(`{}`)), "NetworkTypeInvalid: Only external network can be specified.")
	without := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+bare+`","ip_version":4,"cidr":"198.51.100.0/24","gateway_ip":null}`).ID
	w.expect(add(d, bare), "NoGatewayIpOnSubnet: No gateway IP on subnet: "+without+".")
	w.verifyStore()
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

// TestAdvertisedFloatingIPs: speakers with a gateway network announce the floating IPs of their
// router.
func TestAdvertisedFloatingIPs(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	b := w.bgpSpeaker(w.external)
	elsewhere := w.externalNetwork("198.51.100.0/24")
	w.routerTo(w.member, elsewhere)
	other := w.bgpSpeaker(elsewhere)
	w.announces("without floating IPs", b)
	p := w.port(w.tenant, "")
	f, unused := w.floatingIP(""), w.floatingIP("")
	w.announces("not associated", b)
	w.update(f.ID, `{"port_id":"`+p.ID+`"}`)
	route := f.FloatingIPAddress.String() + "/32 via " + w.gatewayOf(w.routerID, 0, 4)
	w.announces("associated", b, route)
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

// TestAdvertisedNetworks: a speaker with peers announces its router's networks and extra routes by
// each address that peers see, and no network by an address in it.
func TestAdvertisedNetworks(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	second := w.subnet(w.network(`{}`).ID, `"ip_version":4,"cidr":"10.1.0.0/24"`).ID
	w.addInterface(w.routerID, second)
	w.addInterface(w.routerID, w.subnet(w.network(`{}`).ID, `"ip_version":6,"cidr":"2001:db8::/64"`).ID)
	if _, err := w.change(w.admin, neutron.Routers, w.routerID, `{"routes":[{"destination":"172.16.0.0/16","nexthop":"10.0.0.9"}]}`); err != nil {
		t.Fatal(err)
	}
	s, by := w.speaker(w.routerID), w.gatewayOf(w.routerID, 0, 4)
	w.announces("without peers", s)
	w.bgpPeer(s.ID, "203.0.113.200", "")
	w.announces("with one", s, "10.0.0.0/24 via "+by, "10.1.0.0/24 via "+by, "172.16.0.0/16 via "+by)
	w.bgpPeer(s.ID, "10.1.0.50", "")
	w.announces("with one inside too", s, "10.0.0.0/24 via 10.1.0.1", "10.0.0.0/24 via "+by, "10.1.0.0/24 via "+by, "172.16.0.0/16 via 10.1.0.1", "172.16.0.0/16 via "+by)
	w.floatingIP(`"port_id":"` + w.port(w.tenant, "").ID + `"`)
	w.announces("with a floating IP but no gateway network", s, "10.0.0.0/24 via 10.1.0.1", "10.0.0.0/24 via "+by, "10.1.0.0/24 via "+by, "172.16.0.0/16 via 10.1.0.1", "172.16.0.0/16 via "+by)
}

// TestBGPSpeakersLosePeersAndNetworks: what is deleted is the speaker's no more. A speaker with
// peers keeps the router that its network has given it.
func TestBGPSpeakersLosePeersAndNetworks(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	out := w.externalNetwork("203.0.113.0/24")
	router := w.routerTo(w.admin, out)
	s := w.bgpSpeaker(out)
	kept, dropped := w.bgpPeer(s.ID, "203.0.113.200", ""), w.bgpPeer(s.ID, "203.0.113.201", "")
	if err := w.remove(w.admin, neutron.BGPPeers, dropped); err != nil {
		t.Fatal(err)
	}
	if got := w.bundle(topology.RouterBGPOwner, router).BgpPeers; len(got) != 1 || got[0].ID != kept {
		t.Errorf("peers %+v, want %s alone", got, kept)
	}
	if !w.bundle(topology.RouterBGPOwner, router).BgpSpeakers[0].AnnouncesFloating {
		t.Error("floating IPs are not announced")
	}
	if _, err := w.change(w.admin, neutron.Routers, router, `{"external_gateway_info":null}`); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.admin, neutron.Networks, out); err != nil {
		t.Fatal(err)
	}
	got := must2(w.BGPSpeakers().Show(t.Context(), w.admin, s.ID))
	if len(got.NetworkIDs) > 0 || got.RouterID != router || len(got.PeerIDs) != 1 {
		t.Errorf("speaker %+v, want router %s, a peer and no networks", got, router)
	}
	if w.bundle(topology.RouterBGPOwner, router).BgpSpeakers[0].AnnouncesFloating {
		t.Error("floating IPs are announced without a gateway network")
	}
	if err := w.remove(w.admin, neutron.BGPPeers, kept); err != nil {
		t.Fatal(err)
	}
	w.expect(w.remove(w.admin, neutron.Routers, router), "RouterInUse: Router "+router+" is associated with bgp speaker "+s.ID+".")
	if err := w.remove(w.admin, neutron.BGPSpeakers, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.admin, neutron.Routers, router); err != nil {
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
			s := w.bgpSpeaker(r.external)
			for b.Loop() {
				if n := len(w.announced(s)); n != 100 {
					b.Fatalf("%d routes, want 100", n)
				}
			}
		})
	}
}
