package judge

import (
	"net/netip"
	"testing"

	"heddle/calico"
	"heddle/internal/policy/calc"
	"heddle/internal/topology/flow"
)

// TestCodes: each kind of denial has its code, and names what has decided.
func TestCodes(t *testing.T) {
	t.Parallel()
	web := calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: "web"}
	down := calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: "down"}
	endpoint := func(state string, address string) *calico.WorkloadEndpoint {
		return &calico.WorkloadEndpoint{State: state, Name: "cali1", IPv4Nets: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(address), 32)}}
	}
	list := func(tier, name string) calc.ListID { return calc.ListID{Tier: tier, Name: name} }
	lists := map[calc.ListID]*calc.List{
		list("default", "closed"): {Rules: []calc.Rule{{Action: calico.Deny, Index: 3, IPv4: true, Protocol: calico.ProtocolTCP}}},
		list("default", "broken"): {Missing: "it is broken"},
		list("", "empty"):         {},
	}
	for _, tt := range []struct {
		name     string
		lists    []calc.ListID // of the tier default
		profiles []string
		change   func(*Packet)
		want     flow.Code
		by       Decider
	}{
		{"a rule", []calc.ListID{list("default", "closed")}, nil, nil, flow.CodePolicy, Decider{Endpoint: AtWorkload(web), List: list("default", "closed"), Rule: 3}},
		{"the end of a tier", []calc.ListID{list("default", "closed")}, nil, func(p *Packet) { p.Protocol = calico.ProtocolUDP }, flow.CodeDefaultDeny, Decider{Endpoint: AtWorkload(web), Tier: "default"}},
		{"an invalid policy", []calc.ListID{list("default", "broken")}, nil, nil, flow.CodeBadObject, Decider{Endpoint: AtWorkload(web), List: list("default", "broken")}},
		{"the end of the profiles", nil, []string{"empty"}, nil, flow.CodeDefaultDeny, Decider{Endpoint: AtWorkload(web)}},
		{"a missing profile", nil, []string{"gone"}, nil, flow.CodeMissingProfile, Decider{Endpoint: AtWorkload(web), List: list("", "gone")}},
		{"no profile", nil, nil, nil, flow.CodeNoPolicyNoProfile, Decider{Endpoint: AtWorkload(web)}},
		{"not active", nil, nil, func(p *Packet) { p.To = AtWorkload(down) }, flow.CodePortDown, Decider{}},
		{"no endpoint", nil, nil, func(p *Packet) { p.To = AtWorkload(calico.WorkloadEndpointKey{Endpoint: "unknown"}) }, flow.CodeBadObject, Decider{}},
		{"a forged source", nil, nil, func(p *Packet) { p.From, p.To = AtWorkload(web), Place{} }, flow.CodeAntiSpoofing, Decider{}},
		{"to the host", nil, nil, func(p *Packet) { p.From, p.To, p.Src = AtWorkload(web), LocalHost(), netip.MustParseAddr("10.0.0.1") }, flow.CodeToHost, Decider{}},
		{"no connection", nil, nil, func(p *Packet) { p.State = Invalid }, flow.CodeInvalid, Decider{}},
	} {
		w := &calc.Workload{Key: web, Endpoint: endpoint(calico.Active, "10.0.0.1"), Profiles: tt.profiles}
		if tt.lists != nil {
			w.Tiers = []calc.Tier{{Name: "default", Inbound: tt.lists}}
		}
		var rules Rules
		rules.Apply(&calc.Changes{Lists: lists, Workloads: map[calico.WorkloadEndpointKey]*calc.Workload{
			web: w, down: {Key: down, Endpoint: endpoint(calico.Inactive, "10.0.0.2")}}})
		p := Packet{To: AtWorkload(web), Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: calico.ProtocolTCP, SrcPort: 4000, DstPort: 80}
		if tt.change != nil {
			tt.change(&p)
		}
		if v := Judge(&rules, Config{}, p); v.Allowed || v.Code != tt.want || v.Decider != tt.by {
			t.Errorf("%s: %s by %+v, want %s by %+v (%s)", tt.name, v.Code, v.Decider, tt.want, tt.by, v.By)
		}
	}
}
