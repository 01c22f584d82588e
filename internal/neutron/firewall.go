package neutron

import (
	"cmp"
	"strconv"
	"strings"
)

// Actions of firewall rules.
const (
	FirewallAllow  = "allow"
	FirewallDeny   = "deny"
	FirewallReject = "reject"
)

// NewFirewallRule makes the rule that a create describes, without standard attributes, and checks
// what needs no other objects.
func NewFirewallRule(v Values) (*FirewallRule, error) {
	r := &FirewallRule{IPVersion: 4, Action: FirewallDeny, Enabled: true}
	return r, r.Apply(v)
}

// Apply sets what a create or an update names, and checks the rule.
func (r *FirewallRule) Apply(v Values) error {
	r.set(v)
	return r.check()
}

func (r *FirewallRule) set(v Values) {
	for name, to := range map[string]*string{
		"protocol": &r.Protocol, "source_ip_address": &r.SourceIPAddress, "destination_ip_address": &r.DestinationIPAddress,
		"source_port": &r.SourcePort, "destination_port": &r.DestinationPort, "action": &r.Action,
	} {
		if v.Has(name) {
			*to = v.Text(name)
		}
	}
	if v.Has("shared") {
		r.Shared = v.Flag("shared")
	}
	if v.Has("enabled") {
		r.Enabled = v.Flag("enabled")
	}
}

// check holds ports against the protocol and addresses against the IP version, which is 4.
func (r *FirewallRule) check() error {
	ports := r.SourcePort != "" || r.DestinationPort != ""
	switch number, _ := ProtocolNumber(r.Protocol); {
	case ports && r.Protocol == "":
		return Errorf(Invalid, "FirewallRuleWithPortWithoutProtocolInvalid", "Source/destination port requires a protocol")
	case ports && number != 6 && number != 17:
		return Errorf(Invalid, "FirewallRuleInvalidICMPParameter", "Source, destination port are not allowed when protocol is set to ICMP.")
	case strings.Contains(r.SourceIPAddress, ":"), strings.Contains(r.DestinationIPAddress, ":"):
		return Errorf(Invalid, "FirewallIpAddressConflict", "Invalid input - IP addresses do not agree with IP Version")
	}
	return nil
}

// firewallProtocol takes tcp, udp and icmp in any case, a number, or null.
func firewallProtocol(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	if n, ok := wholeNumber(v); ok {
		if 0 <= n && n <= 255 {
			return strconv.Itoa(n), nil
		}
	} else if s, isText := v.(string); isText {
		switch s = strings.ToLower(s); s {
		case "tcp", "udp", "icmp":
			return s, nil
		}
	}
	return nil, Errorf(Invalid, "FirewallRuleInvalidProtocol", "Firewall Rule protocol %s is not supported. "+
		"Only protocol values [None, 'tcp', 'udp', 'icmp'] and their integer representation (0 to 255) are supported.", pyText(v))
}

// firewallAction takes an action in any case.
func firewallAction(v any) (any, error) {
	s, _ := v.(string)
	switch s = strings.ToLower(s); s {
	case FirewallAllow, FirewallDeny, FirewallReject:
		return s, nil
	}
	return nil, Errorf(Invalid, "FirewallRuleInvalidAction", "Firewall rule action %s is not supported. "+
		"Only action values ['allow', 'deny', 'reject'] are supported.", pyText(v))
}

// portRange takes a port or "low:high", also as a number, or null.
func portRange(v any) (any, error) {
	if v == nil || v == "" {
		return nil, nil
	}
	text := pyText(v)
	low, high, isRange := strings.Cut(text, ":")
	if !isRange {
		high = low
	}
	first, err := strconv.Atoi(low)
	last, err2 := strconv.Atoi(high)
	switch {
	case err != nil || err2 != nil || first < 0 || last > 65535:
		return nil, Errorf(Invalid, "FirewallRuleInvalidPortValue", "Invalid value for port %s.", text)
	case first > last:
		return nil, reasonf("'%s' is not a valid port range: its first port is larger than its last", text)
	case !isRange || first == last:
		return strconv.Itoa(first), nil
	}
	return strconv.Itoa(first) + ":" + strconv.Itoa(last), nil
}

// addressOrPrefix takes an address or a range in CIDR form, and gives its canonical text; host bits
// stay.
func addressOrPrefix(v any) (any, error) {
	s, _ := v.(string)
	p, ok := parseCIDR(s)
	switch {
	case !ok:
		return nil, reasonf("'%s' is not a valid IP address or a valid IP subnet", pyText(v))
	case !strings.Contains(s, "/"):
		return p.Addr().String(), mappedReason(p)
	}
	return p.String(), mappedReason(p)
}

// RuleInsertion puts a rule into a firewall policy.
type RuleInsertion struct {
	RuleID string
	Before string // the rule that it comes before; "" = none
	After  string // the rule that it comes after, unless Before is set; neither = it comes first
}

// Beside returns the rule that the new one comes before or after, or "".
func (in RuleInsertion) Beside() string { return cmp.Or(in.Before, in.After) }

// ParseRuleInsertion reads the body of a request to insert a rule into a policy, or to remove one.
func ParseRuleInsertion(body map[string]any) (RuleInsertion, error) {
	if _, given := body["firewall_rule_id"]; !given {
		return RuleInsertion{}, Errorf(Invalid, "FirewallRuleInfoMissing", "Missing rule info argument for insert/remove rule operation.")
	}
	text := func(name string) string {
		s, _ := body[name].(string)
		return s
	}
	return RuleInsertion{RuleID: text("firewall_rule_id"), Before: text("insert_before"), After: text("insert_after")}, nil
}
