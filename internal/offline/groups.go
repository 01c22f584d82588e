package offline

import (
	"slices"
	"strings"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
)

// Protocols whose port range is a type and a code.
const (
	protoICMP   = 1
	protoICMPv6 = 58
)

// ruleFields are the attributes of a security group rule, those without effect included.
func ruleFields() []string {
	return commonIgnored("id", "project_id", "name", "security_group_id", "direction", "ethertype", "protocol",
		"port_range_min", "port_range_max", "remote_ip_prefix", "remote_group_id", "remote_address_group_id", "normalized_cidr",
		"belongs_to_default_sg")
}

func groupResource() resource {
	type group = neutron.SecurityGroup
	return &table[group]{
		what: "security group",
		attributes: map[string]setter[group]{
			"name":     setText(func(g *group) *string { return &g.Name }),
			"stateful": setFlag(func(g *group) *bool { return &g.Stateful }, true),
		},
		ignored: commonIgnored("project_id", "shared", "security_group_rules"),
		nested:  map[string][]string{"security_group_rules": ruleFields()},
		objects: func(w *world) map[string]*group { return w.groups },
		fresh: func(_ *world, std neutron.Standard) *group {
			return &group{Standard: std, Stateful: true}
		},
		validate: validateGroup,
		remove:   removeGroup,
	}
}

// validateGroup reads the rules that a create brings along. An update changes rules only one by one.
func validateGroup(w *world, g, old *neutron.SecurityGroup, data object) error {
	if old != nil {
		return w.refuseStateChange(g, old)
	}
	nodes, err := data.get("security_group_rules").list()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		r, err := w.readRule(n, g)
		if err != nil {
			return err
		}
		g.Rules = append(g.Rules, *r)
	}
	return nil
}

// refuseStateChange: whether a group tracks connections is kept while ports are in it (neutron-api §6).
func (w *world) refuseStateChange(g, old *neutron.SecurityGroup) error {
	if g.Stateful == old.Stateful {
		return nil
	}
	if member := w.member(g); member != nil {
		return refuse(neutron.Conflict, "security group %s: stateful cannot change while port %s is in the group", g.ID, member.ID)
	}
	return nil
}

// member is a port in the group, nil if there is none.
func (w *world) member(g *neutron.SecurityGroup) *neutron.Port {
	return first(w.ports, func(p *neutron.Port) bool { return slices.Contains(p.SecurityGroups, g.ID) })
}

// readRule reads and checks a rule; in is the group that is being made with it, or nil.
func (w *world) readRule(n node, in *neutron.SecurityGroup) (*neutron.SecurityGroupRule, error) {
	o, err := n.object(ruleFields()...)
	if err != nil {
		return nil, err
	}
	r := &neutron.SecurityGroupRule{}
	if r.ID, err = idOf(o.get("id")); err != nil {
		return nil, err
	}
	if r.SecurityGroupID, err = optionalID(o.get("security_group_id")); err != nil {
		return nil, err
	}
	if in == nil && r.SecurityGroupID == "" {
		return nil, refuse(neutron.Invalid, "%s is missing", o.under("security_group_id"))
	}
	if in == nil {
		in = w.groups[r.SecurityGroupID]
		if in == nil {
			return nil, notFound("security group", r.SecurityGroupID)
		}
	}
	if r.SecurityGroupID != "" && r.SecurityGroupID != in.ID {
		return nil, refuse(neutron.Invalid, "%s is another group than the one that the rule is in", o.under("security_group_id"))
	}
	r.SecurityGroupID = in.ID
	if w.ruleExists(r.ID) || slices.ContainsFunc(in.Rules, func(x neutron.SecurityGroupRule) bool { return x.ID == r.ID }) {
		return nil, refuse(neutron.Conflict, "security group rule %s exists already", r.ID)
	}
	if err := readMatch(o, r, "port_range_min", "port_range_max"); err != nil {
		return nil, err
	}
	if !o.get("remote_address_group_id").null() {
		return nil, refuse(neutron.Unsupported, "%s: address groups are not translated", o.under("remote_address_group_id"))
	}
	if r.RemoteGroupID, err = optionalID(o.get("remote_group_id")); err != nil {
		return nil, err
	}
	if err := refuseTwoRemotes(o, r); err != nil {
		return nil, err
	}
	if r.RemoteGroupID != "" && r.RemoteGroupID != in.ID && w.groups[r.RemoteGroupID] == nil {
		return nil, notFound("security group", r.RemoteGroupID)
	}
	return r, nil
}

// readMatch reads what the rule is about. Ethertype and protocol are taken in any case, as Neutron takes them.
func readMatch(o object, r *neutron.SecurityGroupRule, low, high string) (err error) {
	if r.Direction, err = o.get("direction").oneOf("ingress", "egress"); err != nil {
		return err
	}
	if r.Direction == "" {
		return refuse(neutron.Invalid, "%s is missing", o.under("direction"))
	}
	if r.Ethertype, err = readEthertype(o.get("ethertype")); err != nil {
		return err
	}
	if r.Protocol, err = readProtocol(o.get("protocol")); err != nil {
		return err
	}
	if err := readBounds(o, r, low, high); err != nil {
		return err
	}
	return readRemotePrefix(o, r)
}

// readBounds reads the ends of the port range, for ICMP type and code; each may be left open.
func readBounds(o object, r *neutron.SecurityGroupRule, low, high string) (err error) {
	number, _ := translate.ProtocolNumber(r.Protocol)
	icmp := number == protoICMP || number == protoICMPv6
	most := 65535
	if icmp {
		most = 255
	}
	if r.PortRangeMin, err = readBound(o.get(low), most); err != nil {
		return err
	}
	if r.PortRangeMax, err = readBound(o.get(high), most); err != nil {
		return err
	}
	if !icmp && r.PortRangeMin != nil && r.PortRangeMax != nil && *r.PortRangeMin > *r.PortRangeMax {
		return refuse(neutron.Invalid, "%s: %d is above %s, %d", o.under(low), *r.PortRangeMin, high, *r.PortRangeMax)
	}
	return nil
}

func readRemotePrefix(o object, r *neutron.SecurityGroupRule) error {
	prefix, err := o.get("remote_ip_prefix").prefix()
	if err != nil || !prefix.IsValid() {
		return err
	}
	if prefix.Addr().Is4() != (r.Ethertype == "IPv4") {
		return refuse(neutron.Invalid, "%s: %s is not %s", o.under("remote_ip_prefix"), prefix, r.Ethertype)
	}
	r.RemoteIPPrefix = prefix.String()
	return nil
}

// refuseTwoRemotes: a rule has one remote side at most.
func refuseTwoRemotes(o object, r *neutron.SecurityGroupRule) error {
	if r.RemoteIPPrefix == "" || r.RemoteGroupID == "" {
		return nil
	}
	return refuse(neutron.Invalid, "%s: a remote prefix and a remote group exclude each other", o.place)
}

func readEthertype(n node) (string, error) {
	text, err := n.text()
	switch {
	case err != nil:
		return "", err
	case n.null(), strings.EqualFold(text, "IPv4"):
		return "IPv4", nil
	case strings.EqualFold(text, "IPv6"):
		return "IPv6", nil
	}
	return "", n.wants("one of IPv4, IPv6")
}

func readProtocol(n node) (string, error) {
	text, err := n.text()
	if err != nil || text == "" {
		return "", err
	}
	text = strings.ToLower(text)
	if _, ok := translate.ProtocolNumber(text); !ok {
		return "", n.wants("a protocol name or a number from 0 to 255")
	}
	return text, nil
}

func readBound(n node, most int) (*int, error) {
	v, ok, err := n.number(0, most)
	if err != nil || !ok {
		return nil, err
	}
	return &v, nil
}

func (w *world) ruleExists(id string) bool {
	for _, g := range w.groups {
		if slices.ContainsFunc(g.Rules, func(r neutron.SecurityGroupRule) bool { return r.ID == id }) {
			return true
		}
	}
	return false
}

// removeGroup refuses while a port is in the group. Rules elsewhere that name it as the remote side go with it: they
// could never match again.
func removeGroup(w *world, g *neutron.SecurityGroup) error {
	if member := w.member(g); member != nil {
		return refuse(neutron.Conflict, "security group %s is in use by port %s", g.ID, member.ID)
	}
	for id := range w.groups {
		w.dropRules(id, func(r neutron.SecurityGroupRule) bool { return r.RemoteGroupID == g.ID })
	}
	return nil
}

// dropRules replaces a group by one without the rules that drop names.
func (w *world) dropRules(group string, drop func(neutron.SecurityGroupRule) bool) {
	g := *w.groups[group]
	if slices.ContainsFunc(g.Rules, drop) {
		g.Rules = slices.DeleteFunc(slices.Clone(g.Rules), drop)
		w.groups[group] = &g
	}
}

// groupRules is the security_group_rule type: a group's rules one by one.
type groupRules struct{}

func ruleResource() resource { return groupRules{} }

func (groupRules) check(data object) error {
	_, err := data.object(ruleFields()...)
	return err
}

func (groupRules) apply(w *world, s *step) error {
	switch s.op {
	case "create":
		r, err := w.readRule(s.data.node, nil)
		if err != nil {
			return err
		}
		g := *w.groups[r.SecurityGroupID]
		g.Rules = append(slices.Clone(g.Rules), *r)
		w.groups[g.ID] = &g
		return nil
	case "update":
		return refuse(neutron.Unsupported, "security_group_rule cannot be updated; delete it and create another")
	}
	id, err := idOf(s.data.get("id"))
	if err != nil {
		return err
	}
	for group := range w.groups {
		w.dropRules(group, func(r neutron.SecurityGroupRule) bool { return r.ID == id })
	}
	return nil
}
