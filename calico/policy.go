package calico

import "slices"

var profileRulesTable = table[ProfileRules]{columns: []column[ProfileRules]{
	member("inbound_rules", func(p *ProfileRules) *[]Rule { return &p.InboundRules }, asObjects(&ruleTable)),
	member("outbound_rules", func(p *ProfileRules) *[]Rule { return &p.OutboundRules }, asObjects(&ruleTable)),
}}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (p *ProfileRules) Validate() error { return p.check(options{}).of(string(KindProfileRules)) }

func (p *ProfileRules) check(o options) *Error {
	return first(checkRules("inbound_rules", p.InboundRules, o), checkRules("outbound_rules", p.OutboundRules, o))
}

func (p *ProfileRules) write(w *writer)       { profileRulesTable.write(w, p) }
func (p *ProfileRules) writeLegacy(w *writer) { p.write(w) }

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
	r.list(func(int) { tags = append(tags, r.kept()) })
	return &tags
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (tags ProfileTags) Validate() error { return tags.check(options{}).of(string(KindProfileTags)) }

func (tags ProfileTags) check(options) *Error {
	for i, tag := range tags {
		if !isTag(tag) {
			return refuse(index("", i), tag, wantTag)
		}
	}
	return nil
}

func (tags ProfileTags) write(w *writer) { writeList(w, tags, (*writer).string) }

func (tags ProfileTags) checkLegacy() *Error   { return nil }
func (tags ProfileTags) writeLegacy(w *writer) { tags.write(w) }

func readProfileLabels(r *reader) *ProfileLabels {
	labels := ProfileLabels{}
	if m := r.stringMap(); m != nil {
		labels = m
	}
	return &labels
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (l ProfileLabels) Validate() error { return l.check(options{}).of(string(KindProfileLabels)) }

func (l ProfileLabels) check(options) *Error { return checkLabels("", l) }

func (l ProfileLabels) write(w *writer) { w.stringMap(l) }

var policyTable = table[Policy]{columns: []column[Policy]{
	member("selector", func(p *Policy) *string { return &p.Selector }, asSelector),
	member("order", func(p *Policy) **float64 { return &p.Order }, asOrder),
	member("inbound_rules", func(p *Policy) *[]Rule { return &p.InboundRules }, asObjects(&ruleTable)),
	member("outbound_rules", func(p *Policy) *[]Rule { return &p.OutboundRules }, asObjects(&ruleTable)),
	member("untracked", func(p *Policy) *bool { return &p.Untracked }, asTrue),
	member("pre_dnat", func(p *Policy) *bool { return &p.PreDNAT }, asTrue),
	member("types", func(p *Policy) *[]string { return &p.Types }, asTypes),
	member("annotations", func(p *Policy) *map[string]string { return &p.Annotations },
		format[map[string]string]{asMap.read, asMap.write, func(m map[string]string) bool { return len(m) == 0 }}),
}}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error]. A selector must
// be given, so that one that was forgotten does not select everything.
func (p *Policy) Validate() error { return p.check(options{}).of(string(KindPolicy)) }

func (p *Policy) check(o options) *Error {
	if p.Selector == "" {
		return refuse("selector", nil, `is missing; "all()" selects everything`)
	}
	return first(
		checkSelector("selector", p.Selector, o),
		checkOrder(p.Order),
		checkRules("inbound_rules", p.InboundRules, o),
		checkRules("outbound_rules", p.OutboundRules, o),
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

var asTypes = omitEmpty(format[[]string]{
	read:  func(r *reader) []string { return inOrder(asTexts.read(r)) },
	write: func(w *writer, types []string) { asTexts.write(w, inOrder(types)) },
})

// inOrder puts ingress before egress.
func inOrder(types []string) []string {
	if slices.Equal(types, []string{TypeEgress, TypeIngress}) {
		return []string{TypeIngress, TypeEgress}
	}
	return types
}

func (p *Policy) write(w *writer) { policyTable.write(w, p) }

var tierTable = table[Tier]{
	columns: []column[Tier]{member("order", func(t *Tier) **float64 { return &t.Order }, asOrder)},
	unknown: func(t *Tier) *Unknown { return &t.Unknown },
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (t *Tier) Validate() error { return t.check(options{}).of(string(KindTier)) }

func (t *Tier) check(options) *Error { return first(checkOrder(t.Order), tierTable.checkUnknown(t)) }

func (t *Tier) write(w *writer) { tierTable.write(w, t) }

func checkOrder(order *float64) *Error {
	if order != nil && *order-*order != 0 { // infinite, or not a number
		return refuse("order", *order, "want a finite number; leave it out for an infinite one")
	}
	return nil
}
