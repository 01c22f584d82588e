package console

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"

	"heddle/internal/api/operator"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// noSpeakerHost says why a router's speaker runs nowhere.
const noSpeakerHost = "no host runs the speaker: it needs a live one that has an uplink of the router, if the router has any"

// bgpAnswer is a list of all routers that speak BGP, by name.
type bgpAnswer struct {
	Routers []operator.BGPRouter `json:"routers"`
}

// bgp answers with all routers that speak BGP, by name.
func (c *console) bgp(r *http.Request) (*bgpAnswer, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	return &bgpAnswer{bgpRouters(snap)}, nil
}

func bgpRouters(r records.Reader) []operator.BGPRouter {
	routers := []operator.BGPRouter{}
	for b := range schema.Bundles.All(r) {
		if b.Owner.Kind == topology.RouterBGPOwner {
			for i := range b.Bundle.BgpSpeakers {
				routers = append(routers, bgpRouterOf(r, &b.Bundle.BgpSpeakers[i], b.Bundle.BgpPeers))
			}
		}
	}
	slices.SortFunc(routers, func(a, b operator.BGPRouter) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return routers
}

func bgpRouterOf(r records.Reader, s *topology.BgpSpeaker, peers []topology.BgpPeer) operator.BGPRouter {
	x := operator.BGPRouter{ID: s.RouterID, AS: s.ASNumber, Identifier: s.Identifier, Announced: s.Announced, Status: "DOWN", Message: noSpeakerHost}
	if router, ok := schema.Routers.Peek(r, s.RouterID); ok {
		x.Name = router.Name
	}
	states, learned := map[string]topology.BgpPeerState{}, map[netip.Prefix]bool{}
	if binding, ok := schema.ContainerBindings.Peek(r, s.ContainerID); ok {
		if host, ok := schema.Hosts.Peek(r, binding.HostID); ok {
			x.Host = host.Name
		}
		x.Status, x.Message = topology.ContainerStarting, ""
		if state, ok := schema.ContainerStates.Peek(r, binding.HostID+"/"+s.ContainerID); ok {
			x.Status, x.Message = state.Status, state.Message
		}
		for state := range schema.BGPStates.By(r, "router", s.RouterID) {
			if state.HostID == binding.HostID {
				for _, p := range state.Peers {
					states[p.PeerID] = p
				}
			}
		}
		for _, l := range s.Links {
			addLearned(learned, r, l.PortID, binding.HostID)
		}
	}
	x.Learned = len(learned)
	for i := range peers {
		x.Peers = append(x.Peers, bgpPeerOf(r, &peers[i], states[peers[i].ID]))
	}
	slices.SortFunc(x.Peers, func(a, b operator.BGPPeer) int { return a.Address.Compare(b.Address) })
	return x
}

// addLearned adds the destinations that a host has learned by a port.
func addLearned(all map[netip.Prefix]bool, r records.Reader, port, host string) {
	for routes := range schema.LearnedRoutes.By(r, "port", port) {
		for _, route := range routes.Routes {
			if routes.HostID == host {
				all[route.Dst] = true
			}
		}
	}
}

func bgpPeerOf(r records.Reader, p *topology.BgpPeer, state topology.BgpPeerState) operator.BGPPeer {
	x := operator.BGPPeer{ID: p.ID, Address: p.Address, AS: p.ASNumber, State: cmp.Or(state.State, topology.BgpIdle), Since: state.Since,
		Received: state.Received, Refused: state.Refused, Advertised: state.Advertised, LastError: state.LastError}
	if peer, ok := schema.BGPPeers.Peek(r, p.ID); ok {
		x.Name = peer.Name
	}
	return x
}
