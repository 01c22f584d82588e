package explain

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/api/operator"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/policy/calc"
	"heddle/internal/store/schema"
)

// routedChange is a change of an object that may let a packet pass a host.
type routedChange struct {
	remedy operator.Remedy
	object schema.CalicoObject
}

// remedies returns changes after all of which packets pass in both directions, as judged with them;
// none if no change that it knows of is what is missing. The fleet is as before then.
func (r *routing) remedies(l *routedLeg) (all []operator.Remedy) {
	var made []schema.CalicoObject
	for range mostRemedies {
		improved := false
		for _, c := range r.changes(l, made) {
			tried := append(slices.Clone(made), c.object)
			var next *routedLeg
			r.fleet.Try(tried, func() { next = firstRefused(r.legs()) })
			if next != nil && next.failed.host == l.failed.host && next.verdict.Decider == l.verdict.Decider && next.verdict.Code == l.verdict.Code {
				continue
			}
			made, all, improved = tried, append(all, c.remedy), true
			if next == nil {
				return all
			}
			l = next
			break
		}
		if !improved {
			return nil
		}
	}
	return nil
}

// changes returns what may let the packet pass the host that denies it, with what has been made.
func (r *routing) changes(l *routedLeg, made []schema.CalicoObject) (all []routedChange) {
	r.fleet.Try(made, func() {
		if c, ok := r.change(l); ok {
			all = append(all, c)
		}
	})
	return all
}

// change returns the least change that would have what denies a packet allow it.
func (r *routing) change(l *routedLeg) (routedChange, bool) {
	d := l.verdict.Decider
	rule := r.narrowRule(l)
	switch {
	case d.List.Name != "" && d.List.Tier != "":
		return r.policyRule(calico.PolicyKey{Tier: d.List.Tier, Policy: d.List.Name}, d.Direction, d.Rule, rule)
	case d.List.Name != "":
		return r.profileRule(l, d.List.Name, d.Direction, d.Rule, rule)
	case d.Tier != "":
		if lists := r.fleet.Lists(l.failed.host, d.Endpoint, d.Tier, d.Direction); len(lists) > 0 {
			last := lists[len(lists)-1]
			return r.policyRule(calico.PolicyKey{Tier: last.Tier, Policy: last.Name}, d.Direction, 0, rule)
		}
	default:
		if profiles := r.fleet.Profiles(l.failed.host, d.Endpoint); len(profiles) > 0 {
			return r.profileRule(l, profiles[0], d.Direction, 0, rule)
		}
	}
	return routedChange{}, false
}

// narrowRule returns the rule that allows the packet of a leg from and to the other end alone.
func (r *routing) narrowRule(l *routedLeg) calico.Rule {
	p := l.failed.packet
	rule := calico.Rule{Action: calico.Allow, Protocol: p.Protocol}
	if l.verdict.Decider.Direction == calc.Inbound {
		rule.SrcNets = []netip.Prefix{netip.PrefixFrom(p.Src, p.Src.BitLen())}
	} else {
		dst := r.fleet.Translated(l.failed.host, p.Dst)
		rule.DstNets = []netip.Prefix{netip.PrefixFrom(dst, dst.BitLen())}
	}
	if p.DstPort != 0 {
		rule.DstPorts = []calico.Ports{{Low: p.DstPort, High: p.DstPort}}
	}
	return rule
}

// insertRule inserts a rule before the one with an index from 1; 0: as the last one.
func insertRule(rules []calico.Rule, before int, rule calico.Rule) []calico.Rule {
	if before == 0 {
		return append(slices.Clone(rules), rule)
	}
	return slices.Insert(slices.Clone(rules), before-1, rule)
}

// policyRule adds a rule to a policy.
func (r *routing) policyRule(key calico.PolicyKey, d calc.Direction, before int, rule calico.Rule) (routedChange, bool) {
	p, ok := r.fleet.Object(key).(*calico.Policy)
	if !ok || !r.caller.Admin() {
		return routedChange{}, false
	}
	changed := *p
	if d == calc.Inbound {
		changed.InboundRules = insertRule(p.InboundRules, before, rule)
	} else {
		changed.OutboundRules = insertRule(p.OutboundRules, before, rule)
	}
	return storing(key, &changed, map[string]string{"tier": key.Tier, "policy": key.Policy},
		fmt.Sprintf("policy %s/%s has another %s rule", key.Tier, key.Policy, d))
}

// profileRule adds a rule to a profile, which may be missing. To that of a security group Neutron's
// API adds it.
func (r *routing) profileRule(l *routedLeg, name string, d calc.Direction, before int, rule calico.Rule) (routedChange, bool) {
	if group, of := strings.CutPrefix(name, translate.ProfilePrefix); of {
		return r.groupRule(l, group, d)
	}
	if !r.caller.Admin() {
		return routedChange{}, false
	}
	key := calico.ProfileRulesKey{Profile: name}
	changed := calico.ProfileRules{InboundRules: []calico.Rule{}, OutboundRules: []calico.Rule{}}
	if p, ok := r.fleet.Object(key).(*calico.ProfileRules); ok {
		changed = *p
	}
	if d == calc.Inbound {
		changed.InboundRules = insertRule(changed.InboundRules, before, rule)
	} else {
		changed.OutboundRules = insertRule(changed.OutboundRules, before, rule)
	}
	return storing(key, &changed, map[string]string{"profile": name}, fmt.Sprintf("profile %s has another %s rule", name, d))
}

// groupRule adds a rule to a security group.
func (r *routing) groupRule(l *routedLeg, id string, d calc.Direction) (routedChange, bool) {
	g, ok := schema.SecurityGroups.Peek(r.snap, id)
	if !ok || !r.caller.Owns(g.ProjectID) {
		return routedChange{}, false
	}
	f := filtered{direction: ingress, service: r.service, peer: l.failed.packet.Src}
	if d == calc.Outbound {
		f.direction, f.peer = egress, r.fleet.Translated(l.failed.host, l.failed.packet.Dst)
	}
	if f.service.port != 0 {
		f.service.port = l.failed.packet.DstPort
	}
	added := f.rule(true, len(g.Rules))
	key := calico.ProfileRulesKey{Profile: translate.ProfileID(id)}
	stored, ok := r.fleet.Object(key).(*calico.ProfileRules)
	alone, _ := translate.Profile(&neutron.SecurityGroup{Rules: []neutron.SecurityGroupRule{added}}, nil)
	if !ok {
		return routedChange{}, false
	}
	changed := calico.ProfileRules{InboundRules: slices.Concat(stored.InboundRules, alone.InboundRules), OutboundRules: slices.Concat(stored.OutboundRules, alone.OutboundRules)}
	c, ok := storing(key, &changed, nil, "")
	c.remedy = operator.Remedy{Text: fmt.Sprintf("security group %s allows %s", id, RuleText(&added)), Command: ruleCommand(id, &added)}
	return c, ok
}

// storing returns the change that stores an object, by the document that heddle calico apply reads.
func storing(key calico.Key, object any, ids map[string]string, text string) (routedChange, bool) {
	path, err := key.Path()
	if err != nil {
		return routedChange{}, false
	}
	value, err := calico.Encode(key, object)
	if err != nil {
		return routedChange{}, false
	}
	document, err := json.Marshal(struct {
		Kind     calico.Kind       `json:"kind"`
		Metadata map[string]string `json:"metadata"`
		Spec     json.RawMessage   `json:"spec"`
	}{key.Kind(), ids, value})
	if err != nil {
		return routedChange{}, false
	}
	return routedChange{object: schema.CalicoObject{Path: path, Value: value},
		remedy: operator.Remedy{Text: text, Command: []string{"heddle", "calico", "apply", "-f", "-"}, Input: string(document)}}, true
}
