package services

import (
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/services/plan"
	"heddle/internal/topology"
	"heddle/internal/topology/routerbgp"
)

// speakerOn returns the work of a speaker of a router with ports on subnets, by port.
func speakerOn(ports map[string]string) *plan.Speaker {
	m := plan.NewModel()
	s := topology.BgpSpeaker{RouterID: "r", ASNumber: 1}
	for port, subnet := range ports {
		s.Links = append(s.Links, topology.BgpLink{PortID: port, Subnets: []netip.Prefix{netip.MustParsePrefix(subnet)}})
	}
	m.Apply(topology.Owner{Kind: topology.RouterBGPOwner, ID: "r"}, &topology.Bundle{BgpSpeakers: []topology.BgpSpeaker{s}})
	m.Apply(topology.Owner{Kind: topology.ContainerOwner, ID: "container-id"}, &topology.Bundle{
		ServiceContainers: []topology.ServiceContainer{{ID: "container-id", ServiceType: topology.ContainerBGP, PortID: "p", ConfigurationID: "r"}},
		Ports:             []topology.Port{{ID: "p", HostID: "h", InterfaceName: "hctp"}}})
	return m.Containers("h")[0].Speaker
}

// published are routes by port, as changes has them written.
type published map[string]map[topology.LearnedRoute]bool

// apply applies the changes to what is published.
func (p published) apply(l *learnedRoutes, written map[string][]topology.LearnedRoute) {
	for _, r := range l.changes() {
		key := r.PortID + "/" + string(rune('0'+r.Block))
		for _, old := range written[key] {
			delete(p[r.PortID], old)
		}
		written[key] = r.Routes
		for _, x := range r.Routes {
			if p[r.PortID] == nil {
				p[r.PortID] = map[topology.LearnedRoute]bool{}
			}
			p[r.PortID][x] = true
		}
	}
}

func TestLearnedRoutes(t *testing.T) {
	route := func(dst string, gateways ...string) routerbgp.Route {
		r := routerbgp.Route{Dst: netip.MustParsePrefix(dst)}
		for _, g := range gateways {
			r.Gateways = append(r.Gateways, netip.MustParseAddr(g))
		}
		return r
	}
	l := newLearnedRoutes("h", speakerOn(map[string]string{"a": "192.0.2.0/25", "b": "192.0.2.128/25"}))
	got, written := published{}, map[string][]topology.LearnedRoute{}
	want := func(when string, ports map[string][]string) {
		t.Helper()
		got.apply(l, written)
		for _, port := range []string{"a", "b"} {
			var have []string
			for x := range got[port] {
				have = append(have, x.Dst.String()+" "+x.Gateway.String())
			}
			slices.Sort(have)
			if !slices.Equal(have, ports[port]) {
				t.Errorf("%s: routes by %s are %q, want %q", when, port, have, ports[port])
			}
		}
	}
	l.load([]*topology.LearnedRoutes{{PortID: "a", Routes: []topology.LearnedRoute{{Dst: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("192.0.2.1")}}}})
	want("of an earlier agent", map[string][]string{"a": {"10.1.0.0/16 192.0.2.1"}})
	l.take(&routerbgp.Report{Full: true, Routes: []routerbgp.Route{route("0.0.0.0/0", "192.0.2.1", "192.0.2.129")}})
	want("while the speaker is not settled", map[string][]string{"a": {"0.0.0.0/0 192.0.2.1", "10.1.0.0/16 192.0.2.1"}, "b": {"0.0.0.0/0 192.0.2.129"}})
	l.take(&routerbgp.Report{Complete: true, Settled: true})
	want("settled", map[string][]string{"a": {"0.0.0.0/0 192.0.2.1"}, "b": {"0.0.0.0/0 192.0.2.129"}})
	l.take(&routerbgp.Report{Routes: []routerbgp.Route{route("0.0.0.0/0", "192.0.2.129")}})
	want("with one gateway less", map[string][]string{"b": {"0.0.0.0/0 192.0.2.129"}})
	l.setRouter(speakerOn(map[string]string{"a": "192.0.2.0/24"}))
	want("by another port", map[string][]string{"a": {"0.0.0.0/0 192.0.2.129"}})
	l.abandon()
	want("of a speaker that has ended", map[string][]string{"a": {"0.0.0.0/0 192.0.2.129"}})
	l.take(&routerbgp.Report{Full: true, Complete: true, Routes: []routerbgp.Route{route("10.2.0.0/16", "192.0.2.2")}})
	want("of the next one", map[string][]string{"a": {"0.0.0.0/0 192.0.2.129", "10.2.0.0/16 192.0.2.2"}})
	l.dropStale()
	want("after the restart time", map[string][]string{"a": {"10.2.0.0/16 192.0.2.2"}})
	l.withdraw()
	want("without a speaker", nil)
	if len(l.blocks) > 0 {
		t.Errorf("%d blocks are kept", len(l.blocks))
	}
}
