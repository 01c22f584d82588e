package neutron

import "strings"

func networkTable() *Table[*NetworkView] {
	std := func(o *NetworkView) *Standard { return &o.Standard }
	cols := []column[*NetworkView]{
		idColumn(std),
		nameColumn(std),
		row(Attribute{Name: "subnets", Computed: true, Type: "list of uuids", Doc: "the subnets on the network"},
			textsValue(func(o *NetworkView) []string { return o.Subnets })),
		row(Attribute{Name: "admin_state_up", Create: true, Update: true, Default: true, Filter: true, Sort: true,
			Type: "boolean", Doc: "false stops all traffic of the network", parse: flag},
			flagValue(func(o *NetworkView) bool { return o.AdminStateUp })),
		row(Attribute{Name: "status", Filter: true, Sort: true, Computed: true, Type: "string", Doc: "ACTIVE or DOWN"},
			textValue(func(o *NetworkView) string { return o.Status })),
	}
	cols = append(cols, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "shared", Create: true, Update: true, Default: false, Filter: true, Policed: true, Computed: true,
			CreateBy: AdminOnly, UpdateBy: AdminOnly, Type: "boolean", Doc: "the caller's project may attach to it; set for every project",
			parse: flag},
			flagValue(func(o *NetworkView) bool { return o.Shared })),
		row(Attribute{Name: "router:external", Create: true, Update: true, Default: false, Filter: true, Policed: true,
			CreateBy: AdminOnly, UpdateBy: AdminOnly, Type: "boolean", Doc: "projects see it and have gateways there; set for every project", parse: flag},
			flagValue(func(o *NetworkView) bool { return o.External })),
		row(Attribute{Name: "mtu", Create: true, Update: true, Default: 0, Filter: true, Sort: true,
			Type: "integer", Doc: "bytes; 0 = the most the underlay carries", parse: nonNegative},
			numberValue(func(o *NetworkView) int64 { return int64(o.MTU) })),
		row(Attribute{Name: "port_security_enabled", Create: true, Update: true, Default: true, Policed: true,
			Type: "boolean", Doc: "what new ports get", parse: flag},
			flagValue(func(o *NetworkView) bool { return o.PortSecurityEnabled })),
	)
	cols = append(cols, providerColumns()...)
	cols = append(cols, defaultColumn())
	cols = append(cols, row(Attribute{Name: "dns_domain", Create: true, Update: true, Default: "", Type: "string",
		Doc: "of its ports without one; ends with a dot", parse: dnsDomain},
		textValue(func(o *NetworkView) string { return o.DNSDomain })))
	cols = append(cols, qosPolicyColumn("of its machines' ports without one; the project's default policy unless given",
		func(o *NetworkView) string { return o.QoSPolicyID }))
	cols = append(cols, zoneColumns(false, func(o *NetworkView) []string { return o.ZoneHints }, func(o *NetworkView) []string { return o.Zones })...)
	cols = append(cols, networkLaterColumns()...)
	cols = append(cols,
		row(Attribute{Name: "ipv4_address_scope", Computed: true, Type: "uuid", Doc: "that of its subnets' pool"},
			textOrNullValue(func(o *NetworkView) string { return o.AddressScopes.IPv4 })),
		row(Attribute{Name: "ipv6_address_scope", Computed: true, Type: "uuid", Doc: "that of its subnets' pool"},
			textOrNullValue(func(o *NetworkView) string { return o.AddressScopes.IPv6 })))
	cols = append(cols, descriptionColumn(std))
	cols = append(cols, lastColumns(std)...)
	cols = append(cols, tagColumns(Attribute{Doc: "set through the tags sub-resource"}, std)...)
	return newTable(Networks, cols)
}

// Attributes of a network's place in the underlay.
const (
	attrNetworkType     = "provider:network_type"
	attrPhysicalNetwork = "provider:physical_network"
	attrSegmentationID  = "provider:segmentation_id"
	attrSegments        = "segments"
)

// Limits of their texts, in characters.
const (
	maxType     = 32
	maxPhysical = 64
)

// providerColumns say where the network lies in the underlay.
func providerColumns() []column[*NetworkView] {
	attr := Attribute{Create: true, Update: true, Default: unset{}, Filter: true, Policed: true,
		CreateBy: AdminOnly, UpdateBy: AdminOnly, See: AdminOnly}
	typ, physical, id := attr, attr, attr
	typ.Name, typ.Type, typ.parse, typ.Doc = attrNetworkType, "string", text(maxType), "vxlan, vlan, flat, uplink or routed"
	physical.Name, physical.Type, physical.parse, physical.Doc = attrPhysicalNetwork, "string", text(maxPhysical), "of vlan and flat"
	id.Name, id.Type, id.parse, id.Doc = attrSegmentationID, "integer", integer, "VNI or VLAN id"
	segments := attr
	segments.Name, segments.Filter, segments.Hidden, segments.parse = attrSegments, false, true, networkSegments
	segments.Type, segments.Doc = "list of {provider:network_type, provider:physical_network, provider:segmentation_id}", "one, in place of these three"
	return []column[*NetworkView]{
		row(typ, textOrNullValue(func(o *NetworkView) string { return o.NetworkType })),
		row(physical, textOrNullValue(func(o *NetworkView) string { return o.PhysicalNetwork })),
		row(id, numberOrNullValue(func(o *NetworkView) *int { return o.SegmentationID })),
		row(segments, value[*NetworkView]{}),
	}
}

// defaultColumn marks the default external network.
func defaultColumn() column[*NetworkView] {
	isDefault := flagValue(func(o *NetworkView) bool { return o.Default })
	isDefault.omit = func(o *NetworkView, created bool) bool { return !created && !o.External }
	return row(Attribute{Name: "is_default", Create: true, Update: true, Default: false, Filter: true, Policed: true,
		CreateBy: AdminOnly, UpdateBy: AdminOnly, Type: "boolean",
		Doc: "of one external network at most; answered at create and of external networks", parse: flag}, isDefault)
}

// networkLaterColumns belong to parts to come. Answers have the reference's default.
func networkLaterColumns() []column[*NetworkView] {
	return []column[*NetworkView]{
		row(Attribute{Name: "l2_adjacency", Computed: true, Type: "boolean", Doc: "false of routed networks, and of those whose subnets name their segment"},
			flagValue(func(o *NetworkView) bool { return !o.Routed() && !o.Segmented })),
	}
}

// networkSegments takes a list of at most one {provider:network_type, provider:physical_network,
// provider:segmentation_id}. Only the first of them must be there; null and no entry are nil.
func networkSegments(v any) (any, error) {
	list, ok := v.([]any)
	switch {
	case v == nil:
		return nil, nil
	case !ok:
		return nil, reasonf("'%s' is not a list", pyText(v))
	case len(list) > 1:
		return nil, reasonf("%d segments are not supported: a network is one LAN or one overlay, and so has one segment", len(list))
	case len(list) == 0:
		return nil, nil
	}
	return networkSegment(list[0])
}

func networkSegment(v any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, reasonf("'%s' is not a dictionary", pyText(v))
	}
	if other := otherKeys(m, attrNetworkType, attrPhysicalNetwork, attrSegmentationID); other != nil {
		return nil, badRequest("Unrecognized attribute(s) '%s'", strings.Join(other, ", "))
	}
	s := Values{}
	for _, key := range []struct {
		name  string
		parse parser
	}{{attrNetworkType, text(maxType)}, {attrPhysicalNetwork, text(maxPhysical)}, {attrSegmentationID, integer}} {
		raw := m[key.name]
		if raw == nil || raw == "" {
			continue
		}
		var err error
		if s[key.name], err = key.parse(raw); err != nil {
			return nil, err
		}
	}
	return s, nil
}
