package bgp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	api "github.com/osrg/gobgp/v4/api"

	"heddle/internal/topology/routerbgp"
)

// routerFilter decides on what a router learns and announces: it learns what refusal does not
// refuse, and announces nothing but its own networks, of which no neighbour receives one that
// contains the router's address of the session. gobgp excludes what is not learned before it
// chooses best paths.
type routerFilter struct {
	links    []routerbgp.Link
	own      []netip.Addr
	withheld map[netip.Addr][]netip.Prefix // networks, by neighbour
}

func newRouterFilter(p *routerbgp.Plan) routerFilter {
	f := routerFilter{links: p.Links, own: p.Own, withheld: map[netip.Addr][]netip.Prefix{}}
	for _, n := range p.Neighbours {
		for _, network := range p.Networks {
			if network.Contains(n.Local) {
				f.withheld[n.Address] = append(f.withheld[n.Address], network)
			}
		}
	}
	return f
}

// filterObjects are a filter as gobgp has it. Their names end in a number, so that another filter
// can be made beside one that is in use.
type filterObjects struct {
	sets                []*api.DefinedSet
	imported, announced *api.Policy
}

var (
	accept = &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT}
	reject = &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT}
	// ofRouter matches the router's own networks.
	ofRouter = &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL}
)

func (f *routerFilter) objects(number int) filterObjects {
	name := func(what string) string { return fmt.Sprintf("%s-%d", what, number) }
	o := filterObjects{imported: &api.Policy{Name: name("import")}, announced: &api.Policy{Name: name("announce")}}
	add := func(to *api.Policy, conditions *api.Conditions, action *api.Actions) {
		to.Statements = append(to.Statements, &api.Statement{Name: fmt.Sprintf("%s-%d", to.Name, len(to.Statements)), Conditions: conditions, Actions: action})
	}
	prefixes := func(set string, all []netip.Prefix, longest uint32) *api.MatchSet {
		d := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_PREFIX, Name: set}
		for _, p := range all {
			d.Prefixes = append(d.Prefixes, &api.Prefix{IpPrefix: p.String(), MaskLengthMin: uint32(p.Bits()), MaskLengthMax: max(longest, uint32(p.Bits()))})
		}
		o.sets = append(o.sets, d)
		return &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: set}
	}
	excluded := slices.Clone(noUnicast)
	var own, connected []string
	for _, a := range f.own {
		own = append(own, a.String())
	}
	for _, l := range f.links {
		connected = append(connected, l.Subnet.String())
		if l.Tenant {
			excluded = append(excluded, l.Subnet)
		}
	}
	add(o.imported, ofRouter, accept)
	add(o.imported, &api.Conditions{PrefixSet: prefixes(name("excluded"), excluded, 32)}, reject)
	if len(own) > 0 { // gobgp takes an empty list for any next hop
		add(o.imported, &api.Conditions{NextHopInList: own}, reject)
	}
	if len(connected) > 0 {
		add(o.imported, &api.Conditions{NextHopInList: connected}, accept)
	}
	for _, neighbour := range slices.SortedFunc(maps.Keys(f.withheld), netip.Addr.Compare) {
		of := name("neighbour-" + neighbour.String())
		o.sets = append(o.sets, &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: of, List: []string{neighbour.String() + "/32"}})
		add(o.announced, &api.Conditions{NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: of},
			PrefixSet: prefixes(name("withheld-"+neighbour.String()), f.withheld[neighbour], 0)}, reject)
	}
	add(o.announced, ofRouter, accept)
	return o
}

// assignments have the filter decide on all that comes and leaves.
func (o *filterObjects) assignments() []*api.SetPolicyAssignmentRequest {
	assign := func(d api.PolicyDirection, p *api.Policy) *api.SetPolicyAssignmentRequest {
		return &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{Name: globalTable, Direction: d,
			DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT, Policies: []*api.Policy{{Name: p.Name}}}}
	}
	return []*api.SetPolicyAssignmentRequest{assign(api.PolicyDirection_POLICY_DIRECTION_IMPORT, o.imported),
		assign(api.PolicyDirection_POLICY_DIRECTION_EXPORT, o.announced)}
}

// routerPeer returns a neighbour as gobgp takes it. Packets are sent with TTL 255, which neighbours
// with the TTL security mechanism (RFC 5082) ask for and others ignore, and which reaches those
// behind other routers.
func routerPeer(n routerbgp.Neighbour, restarting bool) *api.Peer {
	seconds := func(n int, byDefault uint64) uint64 {
		if n == 0 {
			return byDefault
		}
		return uint64(n)
	}
	family := &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	return &api.Peer{
		Conf:        &api.PeerConf{NeighborAddress: n.Address.String(), PeerAsn: n.ASNumber, AuthPassword: n.Password},
		Transport:   &api.Transport{LocalAddress: n.Local.String()},
		TtlSecurity: &api.TtlSecurity{Enabled: true, TtlMin: 1},
		Timers: &api.Timers{Config: &api.TimersConfig{KeepaliveInterval: seconds(n.KeepAlive, uint64(routerbgp.KeepAlive.Seconds())),
			HoldTime: seconds(n.HoldTime, uint64(routerbgp.HoldTime.Seconds())), ConnectRetry: seconds(n.ConnectRetry, uint64(routerbgp.ConnectRetry.Seconds())),
			IdleHoldTimeAfterReset: 1}},
		GracefulRestart: &api.GracefulRestart{Enabled: true, RestartTime: uint32(routerbgp.RestartTime.Seconds()),
			DeferralTime: uint32(deferral.Seconds()), LocalRestarting: restarting},
		AfiSafis: []*api.AfiSafi{{
			Config:            &api.AfiSafiConfig{Family: family, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
		}},
	}
}

// maxReceived is the number of destinations of a neighbour beyond which its session is ended for
// heldOff, so that the speaker's memory is bounded: each takes about two kilobytes. gobgp has such
// a limit too, but walks through all that a neighbour has announced with each message.
const maxReceived = 250_000

const heldOff = 10 * time.Minute

var errTooMany = fmt.Sprintf("the neighbour announces more than %d destinations; have it announce fewer, say a default route", maxReceived)
