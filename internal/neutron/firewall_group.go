package neutron

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// DefaultFirewallGroup is the name of each project's default firewall group.
const DefaultFirewallGroup = "default"

// NewFirewallGroupRule makes the rule of FWaaS v2 that a create describes, without standard
// attributes, and checks what needs no other objects.
func NewFirewallGroupRule(v Values) (*FirewallRule, error) {
	r := &FirewallRule{IPVersion: 4, Action: FirewallDeny, Enabled: true}
	return r, r.ApplyToGroups(v)
}

// ApplyToGroups is Apply for a rule of FWaaS v2, which may be for IPv6.
func (r *FirewallRule) ApplyToGroups(v Values) error {
	r.set(v)
	if n := v.Number("ip_version"); n != nil {
		r.IPVersion = *n
	}
	ports := r.SourcePort != "" || r.DestinationPort != ""
	switch {
	case ports && r.Protocol == "":
		return Errorf(Invalid, "FirewallRuleWithPortWithoutProtocolInvalid", "Source/destination port requires a protocol.")
	case ports && r.Protocol != "tcp" && r.Protocol != "udp":
		return Errorf(Invalid, "FirewallRuleInvalidICMPParameter", "Source, destination port are not allowed when protocol is set to ICMP.")
	case !r.agrees(r.SourceIPAddress), !r.agrees(r.DestinationIPAddress):
		return Errorf(Invalid, "FirewallIpAddressConflict", "Invalid input - IP addresses do not agree with IP Version.")
	}
	return nil
}

// agrees reports whether an address or prefix is of the rule's IP version; "" is of any.
func (r *FirewallRule) agrees(text string) bool {
	address, _, _ := strings.Cut(text, "/")
	a, err := netip.ParseAddr(address)
	return text == "" || err == nil && a.Is4() == (r.IPVersion == 4)
}

// groupProtocol takes the names of protocols that FWaaS v2 knows, or null.
func groupProtocol(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	s, isText := v.(string)
	if !isText {
		return nil, invalidInput("Input value %s must be string type", pyText(v))
	}
	known := []string{"dccp", "icmp", "ipv6-icmp", "sctp", "tcp", "udp"}
	n, err := strconv.Atoi(s)
	if err == nil && 0 <= n && n <= 255 || slices.Contains(known, strings.ToLower(s)) {
		return oneOf(known...)(s)
	}
	return nil, invalidInput("IP protocol '%s' is not supported. Only protocol names and their integer representation (0 to 255) are supported", s)
}

// groupAction takes an action in any case.
func groupAction(v any) (any, error) {
	s, isText := v.(string)
	if !isText {
		return nil, invalidInput("Input value %s must be string type", pyText(v))
	}
	return oneOf(FirewallAllow, FirewallDeny, FirewallReject)(strings.ToLower(s))
}

// groupPorts takes a port or "low:high", also as a number, or null.
func groupPorts(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	text := pyText(v)
	ends := strings.Split(text, ":")
	if len(ends) > 2 {
		return nil, reasonf("Port range must be two integers separated by a colon")
	}
	var numbers []int
	for _, end := range ends {
		n, err := strconv.Atoi(end)
		switch {
		case end == "":
			return nil, reasonf("Port range must be two integers separated by a colon")
		case err != nil || n < 0 || n > 65535:
			return nil, reasonf("Invalid port: %s", end)
		}
		numbers = append(numbers, n)
	}
	if numbers[0] > numbers[len(numbers)-1] {
		return nil, reasonf("First port in a port range must be lower than the second port")
	}
	if len(ends) == 2 && numbers[0] == numbers[1] {
		return ends[0], nil // as the reference stores a range of one port
	}
	return text, nil
}

// groupAddress takes an address or a range in CIDR form, or null.
func groupAddress(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	text, _ := v.(string)
	if _, ok := parseCIDR(text); !ok {
		return nil, reasonf("'%s' is neither a valid IP address, nor is it a valid IP subnet", pyText(v))
	}
	return addressOrPrefix(v)
}
