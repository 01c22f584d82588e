package offline

import (
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
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
		return nil
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
	if err := readMatch(o, r); err != nil {
		return nil, err
	}
	if r.RemoteGroupID != "" && r.RemoteGroupID != in.ID && w.groups[r.RemoteGroupID] == nil {
		return nil, notFound("security group", r.RemoteGroupID)
	}
	return r, nil
}

// readMatch reads what the rule is about.
func readMatch(o object, r *neutron.SecurityGroupRule) (err error) {
	if r.Direction, err = o.get("direction").oneOf("ingress", "egress"); err != nil {
		return err
	}
	if r.Direction == "" {
		return refuse(neutron.Invalid, "%s is missing", o.under("direction"))
	}
	if r.Ethertype, err = o.get("ethertype").oneOf("IPv4", "IPv6"); err != nil {
		return err
	}
	if r.Ethertype == "" {
		r.Ethertype = "IPv4"
	}
	if r.Protocol, err = readProtocol(o.get("protocol")); err != nil {
		return err
	}
	if r.PortRangeMin, err = readBound(o.get("port_range_min")); err != nil {
		return err
	}
	if r.PortRangeMax, err = readBound(o.get("port_range_max")); err != nil {
		return err
	}
	if r.RemoteGroupID, err = optionalID(o.get("remote_group_id")); err != nil {
		return err
	}
	prefix, err := o.get("remote_ip_prefix").prefix()
	if err != nil {
		return err
	}
	if !prefix.IsValid() {
		return nil
	}
	if prefix.Addr().Is4() != (r.Ethertype == "IPv4") {
		return refuse(neutron.Invalid, "%s: %s is not %s", o.under("remote_ip_prefix"), prefix, r.Ethertype)
	}
	if r.RemoteGroupID != "" {
		return refuse(neutron.Invalid, "%s: only remote_ip_prefix or remote_group_id may be given", o.place)
	}
	r.RemoteIPPrefix = prefix.String()
	return nil
}

func readProtocol(n node) (string, error) {
	text, err := n.text()
	if err != nil || text == "" {
		return "", err
	}
	if _, ok := translate.ProtocolNumber(text); !ok {
		return "", n.wants("a protocol name or a number from 0 to 255")
	}
	return text, nil
}

func readBound(n node) (*int, error) {
	v, ok, err := n.number(0, 65535)
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
	member := first(w.ports, func(p *neutron.Port) bool { return slices.Contains(p.SecurityGroups, g.ID) })
	if member != nil {
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
