package calico

import (
	"slices"
	"strings"

	"heddle/calico/selector"
)

func readProfileRules(r *reader) *ProfileRules {
	p := &ProfileRules{}
	r.members(p, nil)
	return p
}

func (p *ProfileRules) member(r *reader, name string) bool {
	switch name {
	case "inbound_rules":
		p.InboundRules = readRules(r)
	case "outbound_rules":
		p.OutboundRules = readRules(r)
	default:
		return false
	}
	return true
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (p *ProfileRules) Validate() error { return p.check(true, nil).of(string(KindProfileRules)) }

func (p *ProfileRules) check(selectors bool, options []selector.Option) *Error {
	return first(
		checkRules("inbound_rules", p.InboundRules, selectors, options),
		checkRules("outbound_rules", p.OutboundRules, selectors, options),
	)
}

func (p *ProfileRules) write(w *writer, options []selector.Option) {
	w.open('{')
	w.rules("inbound_rules", p.InboundRules, options)
	w.rules("outbound_rules", p.OutboundRules, options)
	w.end('}')
}

// checkLegacy refuses what seed 000 has no member or word for.
func (p *ProfileRules) checkLegacy() *Error {
	for i := range p.InboundRules {
		if err := p.InboundRules[i].checkLegacy(); err != nil {
			return err.in(index("inbound_rules", i))
		}
	}
	for i := range p.OutboundRules {
		if err := p.OutboundRules[i].checkLegacy(); err != nil {
			return err.in(index("outbound_rules", i))
		}
	}
	return nil
}

func (rule *Rule) checkLegacy() *Error {
	switch rule.Protocol {
	case 0, ProtocolTCP, ProtocolUDP, ProtocolICMP, ProtocolICMPv6:
	default:
		return refuse("protocol", rule.Protocol, "the legacy model has tcp, udp, icmp and icmpv6 alone")
	}
	if rule.Action == Log || rule.Action == NextTier {
		return refuse("action", rule.Action, "the legacy model has allow and deny alone")
	}
	for _, m := range []struct {
		name  string
		given bool
	}{
		{"ip_version", rule.IPVersion != 0}, {"!protocol", rule.NotProtocol != 0},
		{"src_nets", len(rule.SrcNets) > 1}, {"dst_nets", len(rule.DstNets) > 1},
		{"!src_net", len(rule.NotSrcNets) > 0}, {"!dst_net", len(rule.NotDstNets) > 0},
		{"!src_tag", rule.NotSrcTag != ""}, {"!dst_tag", rule.NotDstTag != ""},
		{"src_selector", rule.SrcSelector != ""}, {"dst_selector", rule.DstSelector != ""},
		{"!src_selector", rule.NotSrcSelector != ""}, {"!dst_selector", rule.NotDstSelector != ""},
		{"!src_ports", len(rule.NotSrcPorts) > 0}, {"!dst_ports", len(rule.NotDstPorts) > 0},
		{"icmp_code", rule.ICMPCode != nil}, {"!icmp_type", rule.NotICMPType != nil}, {"log_prefix", rule.LogPrefix != ""},
	} {
		if m.given {
			return refuse(m.name, nil, "the legacy model has no such member")
		}
	}
	return nil
}

func readProfileTags(r *reader) *ProfileTags {
	tags := ProfileTags{}
	if r.peek() == 'n' {
		r.wrong("want a list of tags")
	}
	r.list(func(int) { tags = append(tags, strings.Clone(r.text())) })
	return &tags
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (tags ProfileTags) Validate() error { return tags.check().of(string(KindProfileTags)) }

func (tags ProfileTags) check() *Error {
	for i, tag := range tags {
		if !isTag(tag) {
			return refuse(index("", i), tag, wantTag)
		}
	}
	return nil
}

func (tags ProfileTags) write(w *writer) {
	w.open('[')
	for _, tag := range tags {
		w.comma()
		w.text = appendText(w.text, tag)
	}
	w.end(']')
}

func readProfileLabels(r *reader) *ProfileLabels {
	labels := ProfileLabels{}
	if r.peek() != '{' {
		r.wrong("want an object")
	}
	if m := r.stringMap(); m != nil {
		labels = m
	}
	return &labels
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (l ProfileLabels) Validate() error { return l.check().of(string(KindProfileLabels)) }

func (l ProfileLabels) check() *Error { return checkLabels("", l) }

func (l ProfileLabels) write(w *writer) { w.stringMap(l) }

// policy is a policy while it is read.
type policy struct {
	Policy
	selected bool // has a selector
}

func readPolicy(r *reader) *Policy {
	p := &policy{}
	r.members(p, nil)
	if !p.selected && r.failed == nil {
		r.failed = refuse("selector", nil, wantSelector)
	}
	return &p.Policy
}

const wantSelector = `is missing; "all()" selects everything`

func (p *policy) member(r *reader, name string) bool {
	switch name {
	case "selector":
		if p.selected = !r.null(); p.selected {
			p.Selector = r.selector()
		}
	case "order":
		p.Order = r.order()
	case "inbound_rules":
		p.InboundRules = readRules(r)
	case "outbound_rules":
		p.OutboundRules = readRules(r)
	case "untracked":
		p.Untracked = r.boolean()
	case "pre_dnat":
		p.PreDNAT = r.boolean()
	case "types":
		p.Types = inOrder(r.texts())
	case "annotations":
		p.Annotations = r.stringMap()
	default:
		return false
	}
	return true
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error]. A selector must be given, so that
// one that was forgotten does not select everything.
func (p *Policy) Validate() error { return p.check(true, nil).of(string(KindPolicy)) }

func (p *Policy) check(selectors bool, options []selector.Option) *Error {
	if p.Selector == "" {
		return refuse("selector", nil, wantSelector)
	}
	if selectors {
		if err := checkSelector("selector", p.Selector, options); err != nil {
			return err
		}
	}
	return first(
		checkOrder(p.Order),
		checkRules("inbound_rules", p.InboundRules, selectors, options),
		checkRules("outbound_rules", p.OutboundRules, selectors, options),
		p.checkStage(),
		checkTypes(p.Types),
		checkMap("annotations", p.Annotations),
	)
}

func (p *Policy) checkStage() *Error {
	switch {
	case p.PreDNAT && p.Untracked:
		return refuse("pre_dnat", true, "a policy is untracked or before DNAT, not both")
	case p.PreDNAT && len(p.OutboundRules) > 0:
		return refuse("outbound_rules", nil, "a policy before DNAT is about incoming packets and has none")
	}
	return nil
}

func checkTypes(types []string) *Error {
	for i, t := range types {
		if t != TypeIngress && t != TypeEgress {
			return refuse(index("types", i), t, "want ingress or egress")
		}
		for _, before := range types[:i] {
			if before == t {
				return refuse(index("types", i), t, "is there twice")
			}
		}
	}
	return nil
}

// inOrder puts ingress before egress.
func inOrder(types []string) []string {
	if slices.Equal(types, []string{TypeEgress, TypeIngress}) {
		return []string{TypeIngress, TypeEgress}
	}
	return types
}

func (p *Policy) write(w *writer, options []selector.Option) {
	w.open('{')
	w.stringMember("selector", canonical(p.Selector, options))
	w.order(p.Order)
	w.rules("inbound_rules", p.InboundRules, options)
	w.rules("outbound_rules", p.OutboundRules, options)
	for _, m := range []named[bool]{{"untracked", p.Untracked}, {"pre_dnat", p.PreDNAT}} {
		if m.value {
			w.boolMember(m.name, true)
		}
	}
	w.optionalTexts("types", inOrder(p.Types))
	if len(p.Annotations) > 0 {
		w.name("annotations")
		w.stringMap(p.Annotations)
	}
	w.end('}')
}

func readTier(r *reader) *Tier {
	t := &Tier{}
	r.members(t, &t.Unknown)
	return t
}

func (t *Tier) member(r *reader, name string) bool {
	if name != "order" {
		return false
	}
	t.Order = r.order()
	return true
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (t *Tier) Validate() error { return t.check().of(string(KindTier)) }

func (t *Tier) check() *Error { return first(checkOrder(t.Order), checkUnknown[Tier](t.Unknown)) }

func (t *Tier) write(w *writer) {
	w.open('{')
	w.order(t.Order)
	w.unknown(t.Unknown)
	w.end('}')
}

func checkOrder(order *float64) *Error {
	if order != nil && *order-*order != 0 { // infinite, or not a number
		return refuse("order", *order, "want a finite number; leave it out for an infinite one")
	}
	return nil
}
