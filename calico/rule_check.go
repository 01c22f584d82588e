package calico

import (
	"net/netip"

	"heddle/calico/selector"
)

// criteria names the members of a rule's two sides, for what holds of all of them alike.
func (rule *Rule) nets() [4]named[[]netip.Prefix] {
	return [4]named[[]netip.Prefix]{{"src_net", rule.SrcNets}, {"dst_net", rule.DstNets}, {"!src_net", rule.NotSrcNets}, {"!dst_net", rule.NotDstNets}}
}

func (rule *Rule) tags() [4]named[string] {
	return [4]named[string]{{"src_tag", rule.SrcTag}, {"dst_tag", rule.DstTag}, {"!src_tag", rule.NotSrcTag}, {"!dst_tag", rule.NotDstTag}}
}

func (rule *Rule) selectors() [4]named[string] {
	return [4]named[string]{{"src_selector", rule.SrcSelector}, {"dst_selector", rule.DstSelector},
		{"!src_selector", rule.NotSrcSelector}, {"!dst_selector", rule.NotDstSelector}}
}

func (rule *Rule) ports() [4]named[[]Ports] {
	return [4]named[[]Ports]{{"src_ports", rule.SrcPorts}, {"dst_ports", rule.DstPorts}, {"!src_ports", rule.NotSrcPorts}, {"!dst_ports", rule.NotDstPorts}}
}

// named is a member with its value.
type named[V any] struct {
	name  string
	value V
}

func checkRules(list string, rules []Rule, selectors bool, options []selector.Option) *Error {
	for i := range rules {
		if err := rules[i].check(selectors, options); err != nil {
			return err.in(index(list, i))
		}
	}
	return nil
}

// check refuses what the model forbids (spec 3.5). Selectors are left out where Decode has just read them.
func (rule *Rule) check(selectors bool, options []selector.Option) *Error {
	switch rule.Action {
	case "", Allow, Deny, Log, NextTier:
	default:
		return refuse("action", rule.Action, wantAction)
	}
	if rule.IPVersion != 0 && rule.IPVersion != 4 && rule.IPVersion != 6 {
		return refuse("ip_version", rule.IPVersion, "want 4 or 6")
	}
	if selectors {
		if err := rule.checkSelectors(options); err != nil {
			return err
		}
	}
	return first(rule.checkFamily(), rule.checkTags(), rule.checkPorts(), rule.checkICMP())
}

func (rule *Rule) checkSelectors(options []selector.Option) *Error {
	for _, s := range rule.selectors() {
		if err := checkSelector(s.name, s.value, options); err != nil {
			return err
		}
	}
	return nil
}

func checkSelector(field, text string, options []selector.Option) *Error {
	if text == "" {
		return nil
	}
	if err := checkText(field, text); err != nil {
		return err
	}
	if _, err := selector.Parse(text, options...); err != nil {
		return refuse(field, text, "%v", err)
	}
	return nil
}

// checkFamily refuses criteria that no packet of the rule's own family can meet.
func (rule *Rule) checkFamily() *Error {
	switch {
	case rule.IPVersion == 6 && rule.Protocol == ProtocolICMP:
		return refuse("protocol", rule.Protocol, "with ip_version 6, want icmpv6")
	case rule.IPVersion == 4 && rule.Protocol == ProtocolICMPv6:
		return refuse("protocol", rule.Protocol, "with ip_version 4, want icmp")
	}
	for _, nets := range rule.nets() {
		for i, p := range nets.value {
			if !p.IsValid() {
				return refuse(netField(nets, i), nil, "is missing")
			}
			if familyOf(p.Addr()) == 0 {
				return refuse(netField(nets, i), p, wantPlain)
			}
			if rule.IPVersion != 0 && familyOf(p.Addr()) != rule.IPVersion {
				return refuse(netField(nets, i), p, "with ip_version %d, want a CIDR of that family", rule.IPVersion)
			}
		}
	}
	return nil
}

// netField is the member that holds a CIDR in the canonical form.
func netField(nets named[[]netip.Prefix], i int) string {
	if len(nets.value) == 1 {
		return nets.name
	}
	return index(nets.name+"s", i)
}

func (rule *Rule) checkTags() *Error {
	for _, tag := range rule.tags() {
		if tag.value != "" && !isTag(tag.value) {
			return refuse(tag.name, tag.value, wantTag)
		}
	}
	return nil
}

func (rule *Rule) checkPorts() *Error {
	for _, ports := range rule.ports() {
		for i, p := range ports.value {
			if p.Low == 0 || p.Low > p.High {
				return refuse(index(ports.name, i), p, wantPorts)
			}
		}
		if len(ports.value) > 0 && rule.Protocol != ProtocolTCP && rule.Protocol != ProtocolUDP {
			return refuse(ports.name, nil, "only some protocols have ports; want protocol tcp or udp beside it")
		}
	}
	return nil
}

func (rule *Rule) checkICMP() *Error {
	for _, m := range []struct {
		negation           string
		messageType, value *uint8
	}{{"", rule.ICMPType, rule.ICMPCode}, {"!", rule.NotICMPType, rule.NotICMPCode}} {
		field := m.negation + "icmp_type"
		switch {
		case m.messageType == nil && m.value == nil:
			continue
		case m.messageType == nil:
			return refuse(m.negation+"icmp_code", *m.value, "want %s beside it", field)
		case *m.messageType == 255:
			return refuse(field, *m.messageType, "want a number from 0 to 254")
		case rule.Protocol != ProtocolICMP && rule.Protocol != ProtocolICMPv6:
			return refuse(field, *m.messageType, "want protocol icmp or icmpv6 beside it")
		}
	}
	return nil
}

func (w *writer) rules(name string, rules []Rule, options []selector.Option) {
	w.name(name)
	w.open('[')
	for i := range rules {
		w.comma()
		rules[i].write(w, options)
	}
	w.end(']')
}

func (rule *Rule) write(w *writer, options []selector.Option) {
	w.open('{')
	if rule.Action == "" {
		w.stringMember("action", Allow)
	} else {
		w.stringMember("action", rule.Action)
	}
	if rule.IPVersion != 0 {
		w.intMember("ip_version", rule.IPVersion)
	}
	w.protocol("protocol", rule.Protocol)
	w.protocol("!protocol", rule.NotProtocol)
	for _, nets := range rule.nets() {
		switch len(nets.value) {
		case 0:
		case 1:
			w.prefixMember(nets.name, nets.value[0])
		default:
			w.prefixes(nets.name+"s", nets.value)
		}
	}
	for _, tag := range rule.tags() {
		w.optional(tag.name, tag.value)
	}
	for _, s := range rule.selectors() {
		w.optional(s.name, canonical(s.value, options))
	}
	for _, ports := range rule.ports() {
		w.ports(ports.name, ports.value)
	}
	w.small("icmp_type", rule.ICMPType)
	w.small("icmp_code", rule.ICMPCode)
	w.small("!icmp_type", rule.NotICMPType)
	w.small("!icmp_code", rule.NotICMPCode)
	w.optional("log_prefix", cleanLogPrefix(rule.LogPrefix))
	w.end('}')
}

// canonical is the canonical text of a selector that has been checked.
func canonical(text string, options []selector.Option) string {
	if text == "" {
		return ""
	}
	s, err := selector.Parse(text, options...)
	if err != nil {
		return text
	}
	return s.String()
}

// protocol writes a name where the protocol has one, else the number.
func (w *writer) protocol(name string, p Protocol) {
	if p == 0 {
		return
	}
	if text := p.String(); isDigit(text[0]) {
		w.intMember(name, int(p))
	} else {
		w.stringMember(name, text)
	}
}

func (w *writer) ports(name string, list []Ports) {
	if len(list) == 0 {
		return
	}
	w.name(name)
	w.open('[')
	for _, p := range list {
		w.comma()
		if text := p.String(); p.Low == p.High {
			w.text = append(w.text, text...)
		} else {
			w.text = appendText(w.text, text)
		}
	}
	w.end(']')
}

func (w *writer) small(name string, n *uint8) {
	if n != nil {
		w.intMember(name, int(*n))
	}
}
