package neutron

import (
	"strconv"
	"strings"
)

func routerTable() *Table[*RouterView] {
	std := func(o *RouterView) *Standard { return &o.Standard }
	cols := []column[*RouterView]{
		idColumn(std),
		nameColumn(std),
		row(Attribute{Name: "admin_state_up", Create: true, Update: true, Default: true, Filter: true, Sort: true,
			Type: "boolean", Doc: "false stops all traffic through the router", parse: flag},
			flagValue(func(o *RouterView) bool { return o.AdminStateUp })),
		row(Attribute{Name: "status", Filter: true, Sort: true, Type: "string", Doc: "ACTIVE"},
			textValue(func(o *RouterView) string { return o.Status })),
	}
	cols = append(cols, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "external_gateway_info", Create: true, Update: true, Policed: true, Computed: true,
			Type: "object {network_id, enable_snat, external_fixed_ips, qos_policy_id}",
			Doc:  "null = no gateway; only admins set enable_snat and external_fixed_ips", parse: orNull(gatewayInfo)},
			jsonValue(appendGateway)),
		row(Attribute{Name: attrGateways, Computed: true, Type: "list of objects {network_id, enable_snat, external_fixed_ips, qos_policy_id}",
			Doc: "the first is external_gateway_info; set by add_, update_ and remove_external_gateways"}, jsonValue(appendGateways)),
		row(Attribute{Name: "routes", Update: true, Default: unset{}, Type: "list of {destination, nexthop}",
			Doc: "at most 30; nexthop is on a subnet of the router", parse: nullAs([]any{}, hostRoutes)},
			jsonValue(func(b []byte, o *RouterView) []byte { return appendList(b, o.Routes, appendRoute) })),
		routerFlag("distributed", func(o *RouterView) bool { return o.Distributed }),
		routerFlag("ha", func(o *RouterView) bool { return o.HA }),
		row(Attribute{Name: "flavor_id", Create: true, Filter: true, Type: "uuid", Doc: "chooses distributed and ha", parse: orNull(uuid)},
			textOrNullValue(func(o *RouterView) string { return o.FlavorID })),
		row(Attribute{Name: "conntrack_helpers", Type: "list"}, constant[*RouterView]("[]")),
		row(Attribute{Name: "enable_ndp_proxy", Create: true, Update: true, Default: unset{}, Filter: true, Type: "boolean",
			Doc: "the gateway answers for the addresses of ndp_proxies, and lets in nothing to others of its IPv6 address scope", parse: orNull(flag)},
			flagValue(func(o *RouterView) bool { return o.EnableNDPProxy })),
		row(Attribute{Name: "gw_port_id", Hidden: true, Type: "uuid", Doc: "only in answers to add_extraroutes and remove_extraroutes"},
			textOrNullValue(gatewayPort)),
		row(Attribute{Name: "ha_vr_id", Hidden: true, Type: "integer", Doc: "likewise"}, constant[*RouterView]("0")),
		descriptionColumn(std),
	)
	cols = append(cols, zoneColumns(true, func(o *RouterView) []string { return o.ZoneHints }, func(o *RouterView) []string { return o.Zones })...)
	cols = append(cols, lastColumns(std)...)
	cols = append(cols, tagColumns(Attribute{Doc: "set through the tags sub-resource"}, std)...)
	return newTable(Routers, cols)
}

// routerFlag returns a flag that asks for an implementation. Every router of this server is
// distributed and depends on no single host, so that it is answered as given and changes nothing.
func routerFlag(name string, get func(o *RouterView) bool) column[*RouterView] {
	return row(Attribute{Name: name, Create: true, Update: true, Default: unset{}, Filter: true, Policed: true,
		CreateBy: AdminOnly, UpdateBy: AdminOnly, See: AdminOnly, Type: "boolean",
		Doc: "changes nothing: each host routes for its own machines", parse: orNull(flag)}, flagValue(get))
}

func gatewayPort(o *RouterView) string {
	if len(o.Gateways) == 0 {
		return ""
	}
	return o.Gateways[0].PortID
}

func appendGateway(b []byte, o *RouterView) []byte {
	if len(o.Gateways) == 0 {
		return append(b, "null"...)
	}
	return appendGatewayInfo(b, o, 0, o.ExternalFixedIPs)
}

func appendGateways(b []byte, o *RouterView) []byte {
	b = append(b, '[')
	for i := range o.Gateways {
		ips := o.ExternalFixedIPs
		if i > 0 {
			b = append(b, ',')
			ips = nil
			if i <= len(o.OtherFixedIPs) {
				ips = o.OtherFixedIPs[i-1]
			}
		}
		b = appendGatewayInfo(b, o, i, ips)
	}
	return append(b, ']')
}

// appendGatewayInfo appends the gateway at an index. As in the reference the QoS policy is null of
// a gateway that has its network's.
func appendGatewayInfo(b []byte, o *RouterView, i int, ips []FixedIP) []byte {
	g := o.Gateways[i]
	b = append(b, `{"network_id":`...)
	b = appendString(b, g.NetworkID)
	b = append(b, `,"external_fixed_ips":`...)
	b = appendList(b, ips, appendFixedIP)
	b = append(b, `,"enable_snat":`...)
	b = strconv.AppendBool(b, g.EnableSNAT)
	if g.QoSPolicyID != "" || i < len(o.NetworkPolicies) && o.NetworkPolicies[i] != "" {
		b = appendStringOrNull(append(b, `,"`+attrQoSPolicy+`":`...), g.QoSPolicyID)
	}
	return append(b, '}')
}

// gatewayInfo takes an object with a network_id; {} is no gateway, as null.
func gatewayInfo(v any) (any, error) {
	m, err := object(v)
	if err != nil {
		return nil, err
	}
	o := m.(map[string]any)
	if len(o) == 0 {
		return nil, nil
	}
	if _, given := o["network_id"]; !given {
		return nil, missingKeys(otherKeys(o))
	}
	if other := otherKeys(o, "network_id", "enable_snat", "external_fixed_ips", attrQoSPolicy); other != nil {
		return nil, reasonf("Unexpected keys supplied: %s", strings.Join(other, ", "))
	}
	return gatewayRequest(o)
}

// missingKeys refuses a gateway without a network.
func missingKeys(provided []string) error {
	return reasonf("Validation of dictionary's keys failed. Expected keys: {'network_id'} Provided keys: %s", pySet(provided))
}

func gatewayRequest(o map[string]any) (any, error) {
	g := &GatewayRequest{}
	network, err := uuid(o["network_id"])
	if err != nil {
		return nil, err
	}
	g.NetworkID = network.(string)
	if raw, given := o["enable_snat"]; given {
		snat, ok := parseBool(pyText(raw))
		if !ok {
			return nil, invalidInput("'%s' cannot be converted to boolean", pyText(raw))
		}
		g.EnableSNAT = &snat
	}
	if raw := o["external_fixed_ips"]; raw != nil {
		ips, err := fewer(fixedIPs)(raw)
		if err != nil {
			return nil, err
		}
		g.FixedIPs = ips.([]FixedIPRequest)
	}
	if raw, given := o[attrQoSPolicy]; given {
		id, err := orNull(uuid)(raw)
		if err != nil {
			return nil, err
		}
		policy, _ := id.(string)
		g.QoSPolicyID = &policy
	}
	return g, nil
}

// attrGateways is the attribute that has all gateways of a router.
const attrGateways = "external_gateways"

// ParseGateways reads the router of a request to add gateways to it, to replace them or to remove
// some. Null is an empty list.
func ParseGateways(router map[string]any) ([]*GatewayRequest, error) {
	if other := otherKeys(router, attrGateways); other != nil {
		return nil, badRequest("Unrecognized attribute(s) '%s'", strings.Join(other, ", "))
	}
	raw, given := router[attrGateways]
	if !given {
		return nil, badRequest("Failed to parse request. Required attribute '%s' not specified", attrGateways)
	}
	v, err := (&Attribute{Name: attrGateways, parse: fewer(nullAs([]any{}, gatewayInfos))}).read(raw)
	if err != nil {
		return nil, err
	}
	return v.([]*GatewayRequest), nil
}

func gatewayInfos(v any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, reasonf("'%s' is not a list", pyText(v))
	}
	gateways := make([]*GatewayRequest, len(list))
	for i, x := range list {
		v, err := gatewayInfo(x)
		if err != nil {
			return nil, err
		}
		if gateways[i], ok = v.(*GatewayRequest); !ok {
			return nil, missingKeys(nil)
		}
	}
	return gateways, nil
}

// InterfaceRequest names an interface of a router: by its port, a subnet of it, or both.
type InterfaceRequest struct {
	PortID   string
	SubnetID string
	// KeepPort leaves the port of a removed interface in place, without a device. Clients cannot
	// ask for that.
	KeepPort bool
}

// ParseInterface reads the body of a request to add an interface to a router, or to remove one.
func ParseInterface(body map[string]any, remove bool) (InterfaceRequest, error) {
	var q InterfaceRequest
	_, hasPort := body["port_id"]
	_, hasSubnet := body["subnet_id"]
	switch {
	case !hasPort && !hasSubnet:
		return q, BadRouter("Either subnet_id or port_id must be specified")
	case hasPort && hasSubnet && !remove:
		return q, BadRouter("Cannot specify both subnet-id and port-id")
	}
	for _, key := range []struct {
		name string
		to   *string
	}{{"port_id", &q.PortID}, {"subnet_id", &q.SubnetID}} {
		raw, given := body[key.name]
		if !given {
			continue
		}
		id, err := uuid(raw)
		if err != nil {
			return q, BadRouter("%s", err)
		}
		*key.to = id.(string)
	}
	return q, nil
}

// BadRouter returns the error of a request about a router that cannot be.
func BadRouter(format string, args ...any) *Error {
	return Errorf(Invalid, "BadRequest", "Bad router request: "+format+".", args...)
}
