package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"heddle/calico"
	"heddle/internal/policy/nft"
	"heddle/internal/topology/flow"
)

// codeOf has the codes of the reasons for which rules refuse packets, but for that of policy, and
// whether DropActionOverride lets such packets pass.
var codeOf = map[string]struct {
	code flow.Code
	soft bool
}{
	"missing-rules": {flow.CodeMissingProfile, true}, "unknown-interface": {flow.CodeBadObject, true}, "inactive-endpoint": {flow.CodePortDown, true},
	"invalid-packet": {flow.CodeInvalid, true}, "workload-to-host": {flow.CodeToHost, true}, "source": {flow.CodeAntiSpoofing, false},
	"arp-sender": {flow.CodeAntiSpoofing, false}, "tunnel-peer": {flow.CodeToHost, false}, "loopback": {flow.CodeToHost, false}, "tunnel-port": {flow.CodeToHost, false},
}

// droppedBy returns what rules have dropped, by code.
func droppedBy(c *nft.Counts) map[flow.Code]nft.Counter {
	dropped := map[flow.Code]nft.Counter{}
	for reason, counter := range c.Refused {
		if by, ok := codeOf[reason]; ok && !(by.soft && c.Accepted) {
			d := dropped[by.code]
			dropped[by.code] = nft.Counter{Packets: d.Packets + counter.Packets, Bytes: d.Bytes + counter.Bytes}
		}
	}
	if all := c.Refused["by-policy"]; !c.Accepted {
		dropped[flow.CodePolicy] = c.ByRule
		dropped[flow.CodeDefaultDeny] = nft.Counter{Packets: all.Packets - min(all.Packets, c.ByRule.Packets), Bytes: all.Bytes - min(all.Bytes, c.ByRule.Bytes)}
	}
	return dropped
}

// countersOf answers a request for counters: of drops by reason, those that rules deny each by its
// own, or of all rules that have matched a packet.
func countersOf(c *nft.Counts, q *flow.CountersRequest, most int) *flow.CountersAnswer {
	a := &flow.CountersAnswer{Counters: []flow.Counter{}}
	byRule := nft.Counter{}
	for _, r := range c.Rules {
		denies := r.Action == calico.Deny && !c.Accepted
		if r.Packets == 0 && !q.Rules || !q.Rules && !denies {
			continue
		}
		counter := flow.Counter{Packets: r.Packets, Bytes: r.Bytes, Direction: r.List.Direction.String(), Object: ruleObject(&r)}
		counter.Chain, counter.Rule = counter.Object.Group.Kind+" "+counter.Object.Group.ID, strconv.Itoa(r.Rule)
		if denies {
			counter.Code = flow.CodePolicy
			byRule.Packets, byRule.Bytes = byRule.Packets+r.Packets, byRule.Bytes+r.Bytes
		}
		a.Counters = append(a.Counters, counter)
	}
	if !q.Rules {
		for code, counter := range droppedBy(c) {
			if code == flow.CodePolicy { // of rules that are gone, or that have no counter
				counter.Packets -= min(counter.Packets, byRule.Packets)
				counter.Bytes -= min(counter.Bytes, byRule.Bytes)
			}
			if counter.Packets > 0 {
				a.Counters = append(a.Counters, flow.Counter{Code: code, Packets: counter.Packets, Bytes: counter.Bytes})
			}
		}
		a.Counters = slices.DeleteFunc(a.Counters, func(x flow.Counter) bool { return q.Code != 0 && x.Code != q.Code })
	}
	slices.SortFunc(a.Counters, func(x, y flow.Counter) int {
		return cmp.Or(-cmp.Compare(x.Packets, y.Packets), cmp.Compare(x.Code, y.Code), cmp.Compare(x.Chain, y.Chain), cmp.Compare(x.Direction, y.Direction), cmp.Compare(x.Rule, y.Rule))
	})
	if a.Left = len(a.Counters) - most; a.Left > 0 {
		a.Counters = a.Counters[:most]
	}
	a.Left = max(0, a.Left)
	return a
}

// ruleObject returns a rule as a user's object, a part of its policy or profile.
func ruleObject(r *nft.RuleCount) *flow.Object {
	whole := &flow.Object{Kind: "profile", ID: r.List.Name}
	if r.List.Tier != "" {
		whole = &flow.Object{Kind: "policy", ID: r.List.Tier + "/" + r.List.Name}
	}
	return &flow.Object{Kind: whole.Kind + "-rule", ID: fmt.Sprintf("%s/%d", r.List.Direction, r.Rule), Group: whole}
}
