package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/topology"
	"heddle/internal/topology/routerbgp"
)

// Speaker is the work of a container that speaks BGP for a router.
type Speaker struct {
	RouterID string
	// Plan lacks only what depends on the process: Restarting and LingerSeconds.
	Plan routerbgp.Plan
	// Peers has the ids of Plan's neighbours, by address.
	Peers map[netip.Addr]string
	// Unusable are the peers that have no session, by id.
	Unusable []UnusablePeer
	links    []speakerLink
}

// UnusablePeer is a peer that the speaker cannot have a session with.
type UnusablePeer struct {
	topology.BgpPeer
	Reason string
}

// speakerLink is a subnet of a router, with the port that leads to it.
type speakerLink struct {
	subnet netip.Prefix
	port   string
}

// PortTo returns the router's port on whose subnet a next hop is, "" for none. Of several subnets
// the smallest counts.
func (s *Speaker) PortTo(gateway netip.Addr) string {
	best := speakerLink{}
	for _, l := range s.links {
		if l.subnet.Contains(gateway) && (best.port == "" || l.subnet.Bits() > best.subnet.Bits()) {
			best = l
		}
	}
	return best.port
}

// SamePorts reports whether PortTo is the same for both.
func (s *Speaker) SamePorts(other *Speaker) bool { return slices.Equal(s.links, other.links) }

// HasPort reports whether the router has a port.
func (s *Speaker) HasPort(id string) bool {
	return slices.ContainsFunc(s.links, func(l speakerLink) bool { return l.port == id })
}

// newSpeaker returns the work of a router's speaker, from the bundle that has it and the router's
// floating addresses.
func newSpeaker(s *topology.BgpSpeaker, peers []topology.BgpPeer, floating []netip.Addr) *Speaker {
	x := &Speaker{RouterID: s.RouterID, Peers: map[netip.Addr]string{}}
	x.Plan = routerbgp.Plan{Version: routerbgp.Version, ASNumber: s.ASNumber, Networks: slices.Clone(s.Announced)}
	if s.AnnouncesFloating {
		for _, a := range floating {
			x.Plan.Networks = append(x.Plan.Networks, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	slices.SortFunc(x.Plan.Networks, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	x.Plan.Networks = slices.Compact(x.Plan.Networks)
	for _, l := range s.Links {
		for _, subnet := range l.Subnets {
			x.Plan.Links = append(x.Plan.Links, routerbgp.Link{Subnet: subnet, Tenant: l.Tenant})
			x.links = append(x.links, speakerLink{subnet, l.PortID})
		}
	}
	x.Plan.Own = ownAddresses(s)
	for i := range s.Sessions {
		x.addSession(&s.Sessions[i], peers)
	}
	slices.SortFunc(x.Plan.Neighbours, func(a, b routerbgp.Neighbour) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(x.Unusable, func(a, b UnusablePeer) int { return cmp.Compare(a.ID, b.ID) })
	return x
}

func (s *Speaker) addSession(session *topology.BgpSession, peers []topology.BgpPeer) {
	i := slices.IndexFunc(peers, func(p topology.BgpPeer) bool { return p.ID == session.PeerID })
	if i < 0 {
		return
	}
	p := peers[i]
	if !session.LocalAddress.IsValid() {
		s.Unusable = append(s.Unusable, UnusablePeer{p, fmt.Sprintf("the router has no route to %s: give it an interface or gateway on the peer's network", p.Address)})
		return
	}
	if slices.Contains(s.Plan.Own, p.Address) {
		s.Unusable = append(s.Unusable, UnusablePeer{p, fmt.Sprintf("%s is an address of the router itself: make the peer again with its own", p.Address)})
		return
	}
	n := routerbgp.Neighbour{Address: p.Address, Local: session.LocalAddress, ASNumber: p.ASNumber,
		Password: p.Password, KeepAlive: p.KeepAlive, HoldTime: p.HoldTime, ConnectRetry: p.ConnectRetry}
	if err := n.Check(); err != nil { // in the plan it would end the sessions of all peers
		s.Unusable = append(s.Unusable, UnusablePeer{p, "the peer cannot be set up: " + err.Error()})
		return
	}
	s.Peers[p.Address] = p.ID
	s.Plan.Neighbours = append(s.Plan.Neighbours, n)
}

// ownAddresses returns the router's IPv4 addresses, in order: those of its links and sessions.
func ownAddresses(s *topology.BgpSpeaker) (all []netip.Addr) {
	for _, session := range s.Sessions {
		if session.LocalAddress.Is4() {
			all = append(all, session.LocalAddress)
		}
	}
	for _, l := range s.Links {
		for _, a := range l.Addresses {
			if a.Is4() {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// localAddresses returns the router's addresses that sessions are bound to, in order.
func (s *Speaker) localAddresses() []netip.Addr {
	var all []netip.Addr
	for _, n := range s.Plan.Neighbours {
		all = append(all, n.Local)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// State returns what is reported of the router's sessions. A speaker that does not run has no
// peers, and why says so.
func (s *Speaker) State(hostID, portID string, peers []routerbgp.Peer, why string) *topology.BgpState {
	state := &topology.BgpState{HostID: hostID, PortID: portID, RouterID: s.RouterID}
	known := map[string]bool{}
	for i := range peers {
		p := &peers[i]
		id := s.Peers[p.Address]
		if id == "" || known[id] {
			continue
		}
		known[id] = true
		state.Peers = append(state.Peers, topology.BgpPeerState{PeerID: id, Address: p.Address, State: p.State, Since: p.Since,
			Received: max(p.Received-p.Refused.Sum(), 0), Refused: p.Refused.Sum(), Advertised: p.Advertised,
			LastError: cmp.Or(p.LastError, refusedText(p.Refused))})
	}
	for _, n := range s.Plan.Neighbours {
		if id := s.Peers[n.Address]; !known[id] {
			state.Peers = append(state.Peers, topology.BgpPeerState{PeerID: id, Address: n.Address, State: topology.BgpIdle, LastError: why})
		}
	}
	for _, p := range s.Unusable {
		state.Peers = append(state.Peers, topology.BgpPeerState{PeerID: p.ID, Address: p.Address, State: topology.BgpIdle, LastError: p.Reason})
	}
	slices.SortFunc(state.Peers, func(a, b topology.BgpPeerState) int { return cmp.Compare(a.PeerID, b.PeerID) })
	return state
}

// refusedText returns the numbers and reasons of the received destinations that are not
// used, "" for none.
func refusedText(r routerbgp.Refused) string {
	var reasons []string
	add := func(n int, why string) {
		if n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s", n, why))
		}
	}
	add(r.NextHop, "with a next hop on no subnet of the router")
	add(r.Tenant, "in a subnet of the router itself")
	add(r.Invalid, "that are no destinations")
	add(r.Limit, fmt.Sprintf("beyond %d of a peer", routerbgp.MaxPrefixes))
	if reasons == nil {
		return ""
	}
	return "refused routes: " + strings.Join(reasons, ", ")
}
