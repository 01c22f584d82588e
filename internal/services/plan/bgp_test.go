package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/routerbgp"
)

// TestSpeaker: a container of a router that speaks BGP has the addresses of its sessions, announces
// its networks and floating addresses, and says of a peer without a route that it has none. A peer
// that cannot be set up keeps no other from its session.
func TestSpeaker(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	own := addr("203.0.113.2")
	bundles := map[topology.Owner]*topology.Bundle{
		{Kind: topology.ContainerOwner, ID: "container-1"}: {
			ServiceContainers: []topology.ServiceContainer{{ID: "container-1", ServiceType: topology.ContainerBGP, PortID: "p", ConfigurationID: "r"}},
			Ports: []topology.Port{{ID: "p", HostID: "h", InterfaceName: "hctp", PortAddress: addr("169.254.0.1"),
				PortSubnet: []netip.Prefix{prefix("169.254.0.1/30")}}}},
		{Kind: topology.RouterBGPOwner, ID: "r"}: {
			BgpSpeakers: []topology.BgpSpeaker{{RouterID: "r", ContainerID: "container-1", ASNumber: 64512, AnnouncesFloating: true,
				Announced: []netip.Prefix{prefix("10.0.0.0/24")},
				Sessions:  []topology.BgpSession{{PeerID: "near", LocalAddress: own}, {PeerID: "far"}, {PeerID: "gone", LocalAddress: own}, {PeerID: "long", LocalAddress: own}, {PeerID: "self", LocalAddress: own}},
				Links: []topology.BgpLink{{PortID: "uplink", Subnets: []netip.Prefix{prefix("203.0.113.0/24")}},
					{PortID: "inner", Subnets: []netip.Prefix{prefix("203.0.113.128/25"), prefix("10.0.0.0/24")}, Addresses: []netip.Addr{addr("10.0.0.1")}, Tenant: true}}}},
			BgpPeers: []topology.BgpPeer{{ID: "near", Address: addr("203.0.113.1"), ASNumber: 65001}, {ID: "far", Address: addr("192.0.2.1"), ASNumber: 65002},
				{ID: "long", Address: addr("203.0.113.3"), ASNumber: 65003}, {ID: "self", Address: addr("10.0.0.1"), ASNumber: 65004}}},
		{Kind: "floating-ip", ID: "f"}: {FloatingAddresses: []topology.FloatingAddress{{RouterID: "r", Address: addr("203.0.113.7")}, {RouterID: "other", Address: addr("203.0.113.8")}}},
	}
	m := NewModel()
	for owner, b := range bundles {
		if !m.Apply(owner, b) {
			t.Errorf("%v does not concern containers", owner)
		}
	}
	m.SetPasswords("r", map[string]string{"near": "x", "long": strings.Repeat("x", 81)})
	all := m.Containers("h")
	if len(all) != 1 || all[0].Speaker == nil || !slices.Equal(all[0].Addresses, []netip.Addr{own}) {
		t.Fatalf("containers are %+v", all)
	}
	s := all[0].Speaker
	if want := []netip.Prefix{prefix("10.0.0.0/24"), prefix("203.0.113.7/32")}; !slices.Equal(s.Plan.Networks, want) {
		t.Errorf("announces %v, want %v", s.Plan.Networks, want)
	}
	if want := []netip.Addr{addr("10.0.0.1"), own}; !slices.Equal(s.Plan.Own, want) {
		t.Errorf("the router's own addresses are %v, want %v", s.Plan.Own, want)
	}
	p := s.Plan
	p.LingerSeconds = 1
	if err := p.Check(); err != nil || len(p.Neighbours) != 1 || p.Neighbours[0].Password != "x" || p.Neighbours[0].Local != own {
		t.Errorf("plan %+v: %v", p, err)
	}
	for gateway, want := range map[string]string{"203.0.113.1": "uplink", "203.0.113.129": "inner", "10.0.0.9": "inner", "192.0.2.1": ""} {
		if got := s.PortTo(addr(gateway)); got != want {
			t.Errorf("port to %s is %q, want %q", gateway, got, want)
		}
	}
	state := s.State("h", "p", []routerbgp.Peer{{Address: addr("203.0.113.1"), State: routerbgp.StateEstablished, Received: 5, Refused: routerbgp.Refused{Limit: 1, NextHop: 2}, Advertised: 2}}, "")
	if len(state.Peers) != 4 || state.RouterID != "r" {
		t.Fatalf("state is %+v", state)
	}
	far, long, near, self := state.Peers[0], state.Peers[1], state.Peers[2], state.Peers[3]
	if far.PeerID != "far" || far.State != topology.BgpIdle || !strings.Contains(far.LastError, "no route to 192.0.2.1") {
		t.Errorf("the peer without a route is %+v", far)
	}
	if long.PeerID != "long" || long.State != topology.BgpIdle || long.LastError != "the peer cannot be set up: a password of 81 bytes: TCP MD5 takes 80" {
		t.Errorf("the peer with too long a password is %+v", long)
	}
	if near.PeerID != "near" || near.Received != 2 || near.Refused != 3 || near.LastError != "refused routes: 2 with a next hop on no subnet of the router, 1 beyond 10000 of a peer" {
		t.Errorf("the peer with a session is %+v", near)
	}
	if self.PeerID != "self" || self.State != topology.BgpIdle || !strings.HasPrefix(self.LastError, "10.0.0.1 is an address of the router itself: ") {
		t.Errorf("the peer with an address of the router is %+v", self)
	}
	down := s.State("h", "p", nil, "the speaker has ended").Peers[2]
	if down.State != topology.BgpIdle || down.LastError != "the speaker has ended" {
		t.Errorf("without a speaker the peer is %+v", down)
	}
	m.Apply(topology.Owner{Kind: topology.RouterBGPOwner, ID: "r"}, nil)
	if c := m.Containers("h")[0]; c.Speaker != nil {
		t.Errorf("without its bundle the router speaks: %+v", c.Speaker)
	}
}
