package neutron

import (
	"net/netip"
	"strings"
)

func meteringLabelTable() *Table[*MeteringLabel] {
	std := func(o *MeteringLabel) *Standard { return &o.Standard }
	cols := []column[*MeteringLabel]{
		idColumn(std),
		row(Attribute{Name: "name", Create: true, Default: "", Filter: true, Sort: true, Type: "string", Doc: "need not be unique", parse: text(maxName)},
			textValue(func(o *MeteringLabel) string { return o.Name })),
		row(Attribute{Name: "description", Create: true, Default: "", Filter: true, Sort: true, Type: "string", parse: text(maxLongDescription)},
			textValue(func(o *MeteringLabel) string { return o.Description })),
	}
	return newTable(MeteringLabels, append(append(cols, projectColumns(std)...),
		row(Attribute{Name: "shared", Create: true, Default: false, Filter: true, Sort: true, Type: "boolean",
			Doc: "counts on the routers of all projects, for each", parse: flag},
			flagValue(func(o *MeteringLabel) bool { return o.Shared })),
	))
}

func meteringLabelRuleTable() *Table[*MeteringLabelRule] {
	std := func(o *MeteringLabelRule) *Standard { return &o.Standard }
	prefix := func(name, doc string, p parser, get func(o *MeteringLabelRule) netip.Prefix) column[*MeteringLabelRule] {
		return row(Attribute{Name: name, Create: true, Filter: true, Sort: true, Type: "cidr", Doc: doc, parse: orNull(p)},
			textOrNullValue(func(o *MeteringLabelRule) string {
				if p := get(o); p.IsValid() {
					return p.String()
				}
				return ""
			}))
	}
	project := func(name, doc string) column[*MeteringLabelRule] {
		return row(Attribute{Name: name, Create: true, Default: unset{}, Hidden: true, Type: "string", Doc: doc, parse: text(maxProject)},
			value[*MeteringLabelRule]{})
	}
	return newTable(MeteringLabelRules, []column[*MeteringLabelRule]{
		idColumn(std),
		row(Attribute{Name: "metering_label_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid", parse: uuid},
			textValue(func(o *MeteringLabelRule) string { return o.LabelID })),
		row(Attribute{Name: "direction", Create: true, Default: required{}, Filter: true, Sort: true, Type: "string",
			Doc: "ingress comes in by the router's gateway, egress leaves by it", parse: oneOf(DirectionIngress, DirectionEgress)},
			textValue(func(o *MeteringLabelRule) string { return o.Direction })),
		row(Attribute{Name: "excluded", Create: true, Default: false, Filter: true, Sort: true, Type: "boolean",
			Doc: "what matches is not counted, whatever other rules say", parse: flag},
			flagValue(func(o *MeteringLabelRule) bool { return o.Excluded })),
		prefix("remote_ip_prefix", "of machines inside, as the reference has it; in place of the other two", ipSubnet,
			func(o *MeteringLabelRule) netip.Prefix { return o.Remote }),
		prefix("source_ip_prefix", "", meteredPrefix("source_ip_prefix"), func(o *MeteringLabelRule) netip.Prefix { return o.Source }),
		prefix("destination_ip_prefix", "", meteredPrefix("destination_ip_prefix"), func(o *MeteringLabelRule) netip.Prefix { return o.Destination }),
		project("tenant_id", "the older name of project_id"),
		project("project_id", "taken and ignored: it is the label's"),
	})
}

// ipSubnet takes a prefix or an address, with host bits.
func ipSubnet(v any) (any, error) {
	s := pyText(v)
	if err := subnetReason(s); err != nil {
		return nil, err
	}
	p, _ := parseCIDR(s)
	return p, nil
}

// meteredPrefix is ipSubnet with the refusal that the reference has for an attribute.
func meteredPrefix(name string) parser {
	return func(v any) (any, error) {
		if v == "" {
			return nil, nil
		}
		p, err := ipSubnet(v)
		if err != nil {
			s := pyText(v)
			return nil, Errorf(Invalid, "Invalid", "%s: %s is invalid ['%s' does not appear to be an IPv4 or IPv6 interface].", name, s, strings.TrimSpace(s))
		}
		return p, nil
	}
}

// NewMeteringLabelRule makes a rule of a request, and refuses prefixes that contradict each other.
func NewMeteringLabelRule(v Values) (*MeteringLabelRule, error) {
	prefix := func(name string) netip.Prefix { p, _ := v[name].(netip.Prefix); return p }
	r := &MeteringLabelRule{
		LabelID: v.Text("metering_label_id"), Direction: v.Text("direction"), Excluded: v.Flag("excluded"),
		Remote: prefix("remote_ip_prefix"), Source: prefix("source_ip_prefix"), Destination: prefix("destination_ip_prefix"),
	}
	others := r.Source.IsValid() || r.Destination.IsValid()
	switch {
	case r.Remote.IsValid() && others:
		return nil, Errorf(Invalid, "Invalid", "Cannot use 'remote-ip-prefix' in conjunction with 'source-ip-prefix' or 'destination-ip-prefix'.")
	case !r.Remote.IsValid() && !others:
		return nil, Errorf(Invalid, "Invalid", "You must define at least one of the following parameters 'remote_ip_prefix', or 'source_ip_prefix' or 'destination_ip_prefix'.")
	}
	return r, nil
}

// Overlaps reports whether two rules of a label count the same remote addresses.
func (r *MeteringLabelRule) Overlaps(o *MeteringLabelRule) bool {
	return r.Direction == o.Direction && r.Excluded == o.Excluded && r.Remote.IsValid() && o.Remote.IsValid() && r.Remote.Overlaps(o.Remote)
}
