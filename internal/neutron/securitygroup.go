package neutron

import (
	"strconv"
	"strings"
)

// IP protocol numbers that rules treat each in their own way.
const (
	protoICMP   = 1
	protoICMPv6 = 58
)

// NewSecurityGroupRule makes a rule from the values of a create and checks what needs no other
// object (neutron-api §6). Id, times, revision, and whether groups exist are left to the caller.
func NewSecurityGroupRule(v Values) (SecurityGroupRule, error) {
	r := SecurityGroupRule{
		Standard:        Standard{ProjectID: v.Text("project_id"), Description: v.Text("description")},
		SecurityGroupID: v.Text("security_group_id"),
		Direction:       v.Text("direction"),
		Ethertype:       v.Text("ethertype"),
		Protocol:        v.Text("protocol"),
		PortRangeMin:    v.Number("port_range_min"),
		PortRangeMax:    v.Number("port_range_max"),
		RemoteIPPrefix:  v.Text("remote_ip_prefix"),
		RemoteGroupID:   v.Text("remote_group_id"),

		RemoteAddressGroupID: v.Text("remote_address_group_id"),
	}
	r.canonicalise()
	if err := r.checkPorts(); err != nil {
		return r, err
	}
	if p, ok := parseCIDR(r.RemoteIPPrefix); ok && p.Addr().Is4() != (r.Ethertype == "IPv4") {
		return r, Errorf(Invalid, "SecurityGroupRuleParameterConflict",
			"Conflicting value ethertype %s for CIDR %s", r.Ethertype, r.RemoteIPPrefix)
	}
	if r.Ethertype == "IPv4" && forIPv6(r.Protocol) {
		return r, Errorf(Invalid, "SecurityGroupEthertypeConflictWithProtocol",
			"Invalid ethertype %s for protocol %s.", r.Ethertype, r.Protocol)
	}
	if moreThanOne(r.RemoteIPPrefix, r.RemoteGroupID, r.RemoteAddressGroupID) {
		return r, Errorf(Invalid, "SecurityGroupMultipleRemoteEntites",
			"Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided.")
	}
	return r, nil
}

// moreThanOne reports whether several of the texts are not empty.
func moreThanOne(texts ...string) bool {
	filled := 0
	for _, s := range texts {
		if s != "" {
			filled++
		}
	}
	return filled > 1
}

// canonicalise writes ICMP over IPv6 under its proper name, and all ports as no range.
func (r *SecurityGroupRule) canonicalise() {
	if r.Ethertype == "IPv6" {
		switch r.Protocol {
		case "icmp", "icmpv6":
			r.Protocol = "ipv6-icmp"
		case "1":
			r.Protocol = "58"
		}
	}
	if r.PortRangeMin != nil && r.PortRangeMax != nil && *r.PortRangeMin == 1 && *r.PortRangeMax == 65535 {
		r.PortRangeMin, r.PortRangeMax = nil, nil
	}
}

// checkPorts holds the range, or ICMP's type and code, against the protocol.
func (r *SecurityGroupRule) checkPorts() error {
	if r.PortRangeMin == nil && r.PortRangeMax == nil {
		return nil
	}
	if r.Protocol == "" {
		return Errorf(Invalid, "SecurityGroupProtocolRequiredWithPorts", "Must also specify protocol if port range is given.")
	}
	number, _ := ProtocolNumber(r.Protocol)
	switch {
	case hasPorts(number):
		return r.checkRange()
	case number == protoICMP || number == protoICMPv6:
		return r.checkICMP()
	}
	return Errorf(Invalid, "SecurityGroupInvalidProtocolForPort",
		"Ports cannot be specified for protocol %d. Ports are only supported for DCCP, SCTP, TCP, UDP, UDPLITE.", number)
}

func (r *SecurityGroupRule) checkRange() error {
	min, max := r.PortRangeMin, r.PortRangeMax
	switch {
	case min != nil && *min == 0, max != nil && *max == 0:
		return Errorf(Invalid, "SecurityGroupInvalidPortValue", "Invalid value for port 0")
	case min == nil || max == nil || *min > *max:
		return Errorf(Invalid, "SecurityGroupInvalidPortRange", "For TCP/UDP protocols, port_range_min must be <= port_range_max")
	}
	return nil
}

func (r *SecurityGroupRule) checkICMP() error {
	const text = "Invalid value for ICMP %s (%s) %d. It must be 0 to 255."
	switch min, max := r.PortRangeMin, r.PortRangeMax; {
	case min != nil && *min > 255:
		return Errorf(Invalid, "SecurityGroupInvalidIcmpValue", text, "type", "port_range_min", *min)
	case max != nil && *max > 255:
		return Errorf(Invalid, "SecurityGroupInvalidIcmpValue", text, "code", "port_range_max", *max)
	case min == nil:
		return Errorf(Invalid, "SecurityGroupMissingIcmpType",
			"ICMP code (port-range-max) %d is provided but ICMP type (port-range-min) is missing.", *max)
	}
	return nil
}

// hasPorts reports whether the protocol has ports: DCCP, SCTP, TCP, UDP, UDPLite.
func hasPorts(number int) bool {
	switch number {
	case 6, 17, 33, 132, 136:
		return true
	}
	return false
}

// forIPv6 reports whether the protocol is one of IPv6's own.
func forIPv6(protocol string) bool {
	switch protocol {
	case "ipv6-encap", "ipv6-frag", "ipv6-icmp", "icmpv6", "ipv6-nonxt", "ipv6-opts", "ipv6-route",
		"41", "43", "44", "58", "59", "60":
		return true
	}
	return false
}

// Meaning is equal for rules that allow the same traffic, as the reference compares them: tcp is 6,
// any prefix is none, but 10.0.0.7/8 is not 10.0.0.0/8. Owner and description do not count.
func (r *SecurityGroupRule) Meaning() string {
	prefix := r.RemoteIPPrefix
	if prefix == "0.0.0.0/0" || prefix == "::/0" {
		prefix = ""
	}
	protocol := r.Protocol
	if n, ok := ProtocolNumber(protocol); ok {
		protocol = strconv.Itoa(n)
	}
	return strings.Join([]string{r.SecurityGroupID, r.Direction, r.Ethertype, protocol,
		numberText(r.PortRangeMin), numberText(r.PortRangeMax), prefix, r.RemoteGroupID, r.RemoteAddressGroupID}, " ")
}

func numberText(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
