package calico

import (
	"net/netip"

	"heddle/calico/selector"
)

func checkRules(list string, rules []Rule, o options) *Error {
	for i := range rules {
		if err := rules[i].check(o); err != nil {
			return err.in(index(list, i))
		}
	}
	return nil
}

// check refuses what the model forbids (spec 3.5).
func (rule *Rule) check(o options) *Error {
	switch rule.Action {
	case "", Allow, Deny, Log, NextTier:
	default:
		return refuse("action", rule.Action, wantAction)
	}
	if rule.IPVersion != 0 && rule.IPVersion != 4 && rule.IPVersion != 6 {
		return refuse("ip_version", rule.IPVersion, "want 4 or 6")
	}
	for _, s := range ruleSelectors {
		if err := checkSelector(s.name, *s.field(rule), o); err != nil {
			return err
		}
	}
	return first(rule.checkFamily(), rule.checkTags(), rule.checkPorts(), rule.checkICMP())
}

func checkSelector(field, text string, o options) *Error {
	if text == "" || o.parsed {
		return nil
	}
	if err := checkText(field, text); err != nil {
		return err
	}
	if _, err := selector.Parse(text, o.selector...); err != nil {
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
	for _, c := range ruleNets {
		nets := *c.field(rule)
		for i, p := range nets {
			if err := rule.checkNet(p); err != nil {
				if len(nets) == 1 {
					return err.in(c.name)
				}
				return err.in(index(c.name+"s", i))
			}
		}
	}
	return nil
}

func (rule *Rule) checkNet(p netip.Prefix) *Error {
	switch {
	case !p.IsValid():
		return refuse("", nil, "is missing")
	case familyOf(p.Addr()) == 0:
		return refuse("", p, wantPlain)
	case rule.IPVersion != 0 && familyOf(p.Addr()) != rule.IPVersion:
		return refuse("", p, "with ip_version %d, want a CIDR of that family", rule.IPVersion)
	}
	return nil
}

func (rule *Rule) checkTags() *Error {
	for _, c := range ruleTags {
		if tag := *c.field(rule); tag != "" && !isTag(tag) {
			return refuse(c.name, tag, wantTag)
		}
	}
	return nil
}

func (rule *Rule) checkPorts() *Error {
	for _, c := range rulePorts {
		ports := *c.field(rule)
		for i, p := range ports {
			if p.Low == 0 || p.Low > p.High {
				return refuse(index(c.name, i), p, wantPorts)
			}
		}
		if len(ports) > 0 && rule.Protocol != ProtocolTCP && rule.Protocol != ProtocolUDP {
			return refuse(c.name, nil, "only some protocols have ports; want protocol tcp or udp beside it")
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
		case *m.messageType > maxICMPType:
			return refuse(field, *m.messageType, "want a number from 0 to 254")
		case rule.Protocol != ProtocolICMP && rule.Protocol != ProtocolICMPv6:
			return refuse(field, *m.messageType, "want protocol icmp or icmpv6 beside it")
		}
	}
	return nil
}
