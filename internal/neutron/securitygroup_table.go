package neutron

import (
	"strconv"
	"strings"
)

func securityGroupTable() *Table[*SecurityGroupView] {
	std := func(o *SecurityGroupView) *Standard { return &o.Standard }
	rule := newTable(SecurityGroupRules, append(ruleColumns(), row(Attribute{Name: "tags"},
		constant[*SecurityGroupRule]("[]")))).Encoder(false, nil)
	name := nameColumn(std)
	name.parse = nameNotDefault
	name.Doc = "default is the server's own"
	cols := []column[*SecurityGroupView]{idColumn(std), name}
	cols = append(cols, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "security_group_rules", Type: "list of rules"},
			jsonValue(func(b []byte, o *SecurityGroupView) []byte {
				b = append(b, '[')
				for i := range o.Rules {
					if i > 0 {
						b = append(b, ',')
					}
					b = rule.Append(b, &o.Rules[i])
				}
				return append(b, ']')
			})),
		row(Attribute{Name: "stateful", Create: true, Update: true, Default: true, Filter: true, Type: "boolean",
			Doc: "answers of allowed connections pass", parse: flag},
			flagValue(func(o *SecurityGroupView) bool { return o.Stateful })),
		row(Attribute{Name: "shared", Filter: true, Computed: true, Type: "boolean", Doc: "with the caller's project, by an RBAC policy"},
			flagValue(func(o *SecurityGroupView) bool { return o.Shared })),
		descriptionColumn(std),
	)
	cols = append(cols, lastColumns(std)...)
	cols = append(cols, tagColumns(Attribute{Doc: "set through the tags sub-resource"}, std)...)
	return newTable(SecurityGroups, cols)
}

// nameNotDefault takes any name but that of the group every project has.
func nameNotDefault(v any) (any, error) {
	s, err := text(maxName)(v)
	if err == nil && strings.EqualFold(s.(string), "default") {
		return nil, Errorf(Conflict, "SecurityGroupDefaultAlreadyExists", "Default security group already exists.")
	}
	return s, err
}

func securityGroupRuleTable() *Table[*SecurityGroupRule] {
	return newTable(SecurityGroupRules, ruleColumns())
}

// ruleColumns returns the rows of a rule. A rule has no tags, but its group shows an empty list.
func ruleColumns() []column[*SecurityGroupRule] {
	type rule = *SecurityGroupRule
	std := func(o rule) *Standard { return &o.Standard }
	itself := func(o rule) rule { return o }
	cols := []column[rule]{
		idColumn(std),
		row(ruleAttribute("security_group_id", "uuid", "", required{}, text(36)), textValue(func(o rule) string { return o.SecurityGroupID })),
		row(ruleAttribute("remote_group_id", "uuid", "peers are the ports of this group", nil, orNull(text(36))),
			textOrNullValue(func(o rule) string { return o.RemoteGroupID })),
	}
	cols = append(cols, trafficColumns(itself)...)
	cols = append(cols,
		row(Attribute{Name: "normalized_cidr", Filter: true, Sort: true, Type: "cidr", Doc: "remote_ip_prefix without host bits"},
			textOrNullValue(normalizedCIDR)),
		remoteAddressesColumn(itself),
	)
	cols = append(cols, projectColumns(std)...)
	description := descriptionColumn(std)
	description.append = func(b []byte, o rule) []byte {
		if o.Implicit && o.Description == "" {
			return append(b, "null"...)
		}
		return appendString(b, o.Description)
	}
	cols = append(cols, description)
	return append(cols, lastColumns(std)...)
}

// ruleAttribute returns an attribute that a rule is made with.
func ruleAttribute(name, typ, doc string, def any, p parser) Attribute {
	return Attribute{Name: name, Create: true, Default: def, Filter: true, Sort: true, Type: typ, Doc: doc, parse: p}
}

// trafficColumns returns the rows that say which traffic the rule in an object is about.
func trafficColumns[T any](rule func(o T) *SecurityGroupRule) []column[T] {
	return []column[T]{
		row(ruleAttribute("direction", "string", "ingress or egress, as the port's machine sees it", required{}, oneOf("ingress", "egress")),
			textValue(func(o T) string { return rule(o).Direction })),
		row(ruleAttribute("protocol", "string", "name or number 0 to 255; null = any", nil, protocol),
			textOrNullValue(func(o T) string { return rule(o).Protocol })),
		row(ruleAttribute("port_range_min", "integer", "or ICMP type", nil, portNumber), numberOrNullValue(func(o T) *int { return rule(o).PortRangeMin })),
		row(ruleAttribute("port_range_max", "integer", "or ICMP code", nil, portNumber), numberOrNullValue(func(o T) *int { return rule(o).PortRangeMax })),
		row(ruleAttribute("ethertype", "string", "IPv4 or IPv6", "IPv4", ethertype), textValue(func(o T) string { return rule(o).Ethertype })),
		row(ruleAttribute("remote_ip_prefix", "cidr", "peers have an address in it; host bits stay as given", nil, remotePrefix),
			textOrNullValue(func(o T) string { return rule(o).RemoteIPPrefix })),
	}
}

// remoteAddressesColumn returns the row of the address group that the rule in an object names.
func remoteAddressesColumn[T any](rule func(o T) *SecurityGroupRule) column[T] {
	return row(ruleAttribute("remote_address_group_id", "uuid", "peers have an address in this address group", nil, orNull(text(maxName))),
		textOrNullValue(func(o T) string { return rule(o).RemoteAddressGroupID }))
}

func normalizedCIDR(o *SecurityGroupRule) string {
	if p, ok := parseCIDR(o.RemoteIPPrefix); ok {
		return p.Masked().String()
	}
	return ""
}

// protocols are the names a rule may give and their numbers, in the order of the reference's error.
var protocols = []struct {
	name   string
	number int
}{
	{"ah", 51}, {"dccp", 33}, {"egp", 8}, {"esp", 50}, {"gre", 47}, {"hopopt", 0}, {"icmp", 1}, {"igmp", 2}, {"ip", 0},
	{"ipip", 4}, {"ipv6-encap", 41}, {"ipv6-frag", 44}, {"ipv6-icmp", 58}, {"icmpv6", 58}, {"ipv6-nonxt", 59},
	{"ipv6-opts", 60}, {"ipv6-route", 43}, {"ospf", 89}, {"pgm", 113}, {"rsvp", 46}, {"sctp", 132}, {"tcp", 6}, {"udp", 17},
	{"udplite", 136}, {"vrrp", 112},
}

// ProtocolNumber returns the IP protocol number of a rule's protocol, given by name or number; ok
// is false for "" (any) and what is neither.
func ProtocolNumber(s string) (number int, ok bool) {
	if n, err := strconv.Atoi(s); err == nil {
		return n, 0 <= n && n <= 255
	}
	for _, p := range protocols {
		if p.name == s {
			return p.number, true
		}
	}
	return 0, false
}

// ProtocolName returns the name of an IP protocol as rules have it, or its number.
func ProtocolName(number uint8) string {
	for _, p := range protocols {
		if p.number == int(number) && number != 0 {
			return p.name
		}
	}
	return strconv.Itoa(int(number))
}

// protocol takes a name in any case, a number or null.
func protocol(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	if n, ok := wholeNumber(v); ok {
		if 0 <= n && n <= 255 {
			return strconv.Itoa(n), nil
		}
	} else if s, isText := v.(string); isText {
		s = strings.ToLower(s)
		if _, ok := ProtocolNumber(s); ok {
			return s, nil
		}
	}
	names := make([]string, len(protocols))
	for i, p := range protocols {
		names[i] = p.name
	}
	return nil, Errorf(Invalid, "SecurityGroupRuleInvalidProtocol",
		"Security group rule protocol %s not supported. Only protocol values [None, %s] and integer representations [0 to 255] are supported.",
		pyText(v), join(names, pyQuote))
}

// portNumber takes 0 to 65535 or null; whether it is a port or an ICMP type is the rule's matter.
func portNumber(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	n, ok := toInt(v)
	if !ok || n < 0 || n > 65535 {
		return nil, Errorf(Invalid, "SecurityGroupInvalidPortValue", "Invalid value for port %s", pyText(v))
	}
	return n, nil
}

// ethertype takes IPv4 and IPv6 in any case.
func ethertype(v any) (any, error) {
	s, _ := v.(string)
	switch strings.ToLower(s) {
	case "ipv4":
		return "IPv4", nil
	case "ipv6":
		return "IPv6", nil
	}
	return nil, Errorf(Invalid, "SecurityGroupRuleInvalidEtherType",
		"Security group rule for ethertype '%s' not supported. Allowed values are ['IPv4', 'IPv6'].", pyText(v))
}

// remotePrefix takes a CIDR, an address, null or "". Host bits stay: the answer has them.
func remotePrefix(v any) (any, error) {
	s, isText := v.(string)
	if v == nil || isText && s == "" {
		return nil, nil
	}
	p, ok := parseCIDR(s)
	if !ok {
		return nil, Errorf(Invalid, "InvalidCIDR", "Invalid CIDR %s given as IP prefix.", pyText(v))
	}
	return p.String(), mappedReason(p)
}
