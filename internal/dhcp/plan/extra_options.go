package plan

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// extraMember is the member of an endpoint with its own DHCP options, in the form of Neutron's
// ports: a list of {opt_name, opt_value, ip_version}.
const extraMember = "extra_dhcp_opts"

// extraOption is one of them. Name is a name of dnsmasq's, or a number.
type extraOption struct {
	Name    string      `json:"opt_name"`
	Value   string      `json:"opt_value"`
	Version json.Number `json:"ip_version"` // 4 or 6; "" means 4
}

// PortTag returns the tag of a machine with its own options, by its interface.
func PortTag(iface string) string { return "port-" + iface }

// readExtras returns an endpoint's own options. A malformed one is reported and left out.
func (c *candidate) readExtras() []extraOption {
	raw, ok := c.Unknown[extraMember]
	if !ok || string(raw) == "null" {
		return nil
	}
	var all, good []extraOption
	if err := json.Unmarshal(raw, &all); err != nil {
		c.problem(extraMember + ": want a list of {opt_name, opt_value, ip_version}")
		return nil
	}
	for i, o := range all {
		reason := o.bad()
		if reason == "" && c.home(o.isIPv6()) == nil {
			reason = "the machine has no address by DHCP of this version"
		}
		if reason != "" {
			c.problem(fmt.Sprintf("%s[%d]: %s", extraMember, i, reason))
			continue
		}
		good = append(good, o)
	}
	return good
}

// bad returns why an option cannot be given to dnsmasq, "" if it can.
func (o extraOption) bad() string {
	switch {
	case !isOptionName(o.Name, o.isIPv6()):
		return fmt.Sprintf("opt_name %q: want a name of [a-z0-9-], or a number", o.Name)
	case o.Version != "" && o.Version != "4" && o.Version != "6":
		return fmt.Sprintf("ip_version %s: want 4 or 6", o.Version)
	case o.Value == "" && (o.Name != "router" || o.isIPv6()):
		return "opt_value is missing: only router may have none" // dnsmasq 2.90 falls over some others without a value
	case len(o.Value) > mostOptionBytes:
		return fmt.Sprintf("opt_value is longer than %d characters", mostOptionBytes)
	case strings.TrimSpace(o.Value) != o.Value:
		return fmt.Sprintf("opt_value %q begins or ends with a space", o.Value)
	case strings.ContainsFunc(o.Value, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\#`, r) }):
		return fmt.Sprintf("opt_value %q: want printable ASCII without quotes, backslashes and #", o.Value)
	}
	return ""
}

func (o extraOption) isIPv6() bool { return o.Version == "6" }

// line returns the option's line for the machine with a tag. For dnsmasq the rest of the line is
// the value, with its commas.
func (o extraOption) line(tag string) string {
	name := o.Name
	switch _, notNumber := strconv.Atoi(name); {
	case o.isIPv6():
		name = "option6:" + name
	case notNumber != nil:
		name = "option:" + name
	}
	line := "tag:" + tag + "," + name
	if o.Value != "" {
		line += "," + o.Value
	}
	return line + "\n"
}

// isOptionName reports whether name is a name, or a number that an option can have: one byte in
// DHCPv4, two in DHCPv6.
func isOptionName(name string, v6 bool) bool {
	if n, err := strconv.Atoi(name); err == nil {
		return name == strconv.Itoa(n) && n > 0 && (n < 255 || v6 && n < 1<<16)
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && !isDigit(c) && c != '-' {
			return false
		}
	}
	return name != "" && len(name) <= longestID && !isDigit(name[0])
}

// extraLines returns the lines of machines at home in a subnet, in key order. They follow those of
// the subnet in the same file, as the last line of an option counts.
func (p *planner) extraLines(s *subnet) string {
	var lines strings.Builder
	v6 := s.CIDR.Addr().Is6()
	for _, c := range p.served {
		if len(c.extras) == 0 || c.home(v6) != s {
			continue
		}
		for _, o := range c.extras {
			if o.isIPv6() == v6 {
				lines.WriteString(o.line(PortTag(c.Name)))
			}
		}
	}
	return lines.String()
}

// home returns the subnet of the first address of a family that an endpoint gets by DHCP, or nil.
func (c *candidate) home(v6 bool) *subnet {
	for _, a := range c.addresses {
		if a.ip.Is6() == v6 && a.subnet.mode == static {
			return a.subnet
		}
	}
	return nil
}
