package neutron

import (
	"math"
	"strings"
)

// lbPorts takes the ports of listeners and members.
func lbPorts(v any) (any, error) { return wholeBetween(1, math.MaxUint16)(v) }

// adminStateColumn returns the row of an object's switch.
func adminStateColumn[T any](get func(o T) bool) column[T] {
	return row(Attribute{Name: "admin_state_up", Create: true, Update: true, Default: true, Filter: true, Sort: true, Type: "boolean",
		Doc: "false takes it out", parse: flag}, flagValue(get))
}

// idsColumn returns the row of references to other objects, [{"id"}].
func idsColumn[T any](name string, get func(o T) []string) column[T] {
	return row(Attribute{Name: name, Type: "list of {id}", Doc: "made by the server"}, jsonValue(func(b []byte, o T) []byte {
		return appendList(b, get(o), func(b []byte, id string) []byte { return append(appendString(append(b, `{"id":`...), id), '}') })
	}))
}

// writtenOnly returns the row of an attribute that no answer has.
func writtenOnly[T any](name, typ, doc string, def any, p parser) column[T] {
	return row(Attribute{Name: name, Create: true, Default: def, Hidden: true, Type: typ, Doc: doc, parse: p}, value[T]{})
}

// statusColumns returns the rows of the two statuses of LBaaS v2.
func statusColumns[T any](operating func(o T) string) []column[T] {
	return []column[T]{
		row(Attribute{Name: "provisioning_status", Filter: true, Type: "string", Doc: "ACTIVE: changes are there when they are answered"}, constant[T](`"ACTIVE"`)),
		row(Attribute{Name: "operating_status", Filter: true, Sort: true, Computed: true, Type: "string", Doc: "ONLINE, OFFLINE, DEGRADED, ERROR; of members also DRAINING, NO_MONITOR"},
			textValue(operating)),
	}
}

// lbHead returns the first rows of a table of load balancing.
func lbHead[T any](std func(o T) *Standard, described bool) []column[T] {
	cols := append([]column[T]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	if described {
		cols = append(cols, descriptionColumn(std))
	}
	return cols
}

// lbProvider takes the name of the one provider.
func lbProvider(v any) (any, error) {
	if v != LBProvider && v != nil {
		return nil, Errorf(NotFound, "ProviderNotFound", "Provider '%s' could not be found.", pyText(v))
	}
	return LBProvider, nil
}

func optional(name, typ, doc string, p parser) Attribute {
	return Attribute{Name: name, Create: true, Default: unset{}, Filter: true, Sort: true, Type: typ, Doc: doc, parse: p}
}

func needed(name, typ, doc string, p parser) Attribute {
	a := optional(name, typ, doc, p)
	a.Default = required{}
	return a
}

// both makes an attribute one of updates too.
func (a Attribute) both() Attribute { a.Update = true; return a }

func loadBalancerTable() *Table[*LoadBalancerView] {
	type T = *LoadBalancerView
	cols := append(lbHead(func(o T) *Standard { return &o.Standard }, true), adminStateColumn(func(o T) bool { return o.AdminStateUp }))
	cols = append(cols,
		row(needed("vip_subnet_id", "uuid", "of IPv4", uuid), textValue(func(o T) string { return o.VIPSubnetID })),
		row(optional("vip_address", "ip address", "any of the subnet unless given", address), textValue(func(o T) string { return o.VIPAddress.String() })),
		row(Attribute{Name: "vip_port_id", Filter: true, Type: "uuid", Doc: "made by the server"}, textValue(func(o T) string { return o.VIPPortID })),
		row(optional("provider", "string", LBProvider, lbProvider), constant[T](`"`+LBProvider+`"`)),
		row(Attribute{Name: "flavor_id", Create: true, Default: nil, Type: "uuid", Later: "there are no flavors of load balancers", parse: orNull(text(maxName))}, constant[T]("null")),
		idsColumn("listeners", func(o T) []string { return o.Listeners }), idsColumn("pools", func(o T) []string { return o.Pools }))
	return newTable(LoadBalancers, append(cols, statusColumns(func(o T) string { return o.OperatingStatus })...))
}

func listenerTable() *Table[*ListenerView] {
	type T = *ListenerView
	cols := append(lbHead(func(o T) *Standard { return &o.Standard }, true), adminStateColumn(func(o T) bool { return o.AdminStateUp }))
	cols = append(cols,
		writtenOnly[T]("loadbalancer_id", "uuid", "", required{}, uuid),
		row(needed("protocol", "string", "TCP, UDP; HTTP and HTTPS as TCP", oneOf(LBTCP, LBUDP, LBHTTP, LBHTTPS, LBTerminatedHTTPS)), textValue(func(o T) string { return o.Protocol })),
		row(needed("protocol_port", "integer", "1 to 65535", lbPorts), numberValue(func(o T) int64 { return int64(o.ProtocolPort) })),
		row(connLimitAttribute(), numberValue(func(o T) int64 { return int64(o.ConnLimit) })),
		row(optional("default_pool_id", "uuid", "null = none", orNull(uuid)).both(), textOrNullValue(func(o T) string { return o.DefaultPoolID })),
		row(Attribute{Name: "default_tls_container_ref", Create: true, Update: true, Default: unset{}, Type: "string", Doc: "refused", parse: orNull(text(maxName))}, constant[T]("null")),
		row(Attribute{Name: "sni_container_refs", Create: true, Update: true, Default: unset{}, Type: "list of strings", Doc: "refused", parse: nullAs([]any{}, fewer(texts(maxName)))}, constant[T]("[]")),
		idsColumn("loadbalancers", func(o T) []string { return []string{o.LoadBalancerID} }))
	return newTable(Listeners, cols)
}

func connLimitAttribute() Attribute {
	return Attribute{Name: "connection_limit", Create: true, Update: true, Default: -1, Filter: true, Sort: true, Type: "integer",
		Doc: "connections that one host opens at most; -1 = no limit", parse: wholeBetween(-1, math.MaxInt32)}
}

func persistenceColumn[T any](get func(o T) *SessionPersistence) column[T] {
	return row(Attribute{Name: "session_persistence", Create: true, Update: true, Default: unset{}, Type: "object", Doc: "{type, cookie_name}; type SOURCE_IP; null or {} = none", parse: lbPersistence},
		jsonValue(func(b []byte, o T) []byte {
			s := get(o)
			if s == nil {
				return append(b, "null"...)
			}
			return append(appendString(append(b, `{"type":`...), s.Type), '}')
		}))
}

// lbPersistence takes the session persistence of LBaaS.
func lbPersistence(v any) (any, error) {
	m, ok := v.(map[string]any)
	if v == nil || ok && len(m) == 0 {
		return (*SessionPersistence)(nil), nil
	}
	if !ok {
		return nil, reasonf("'%s' is not a dictionary", pyText(v))
	}
	s := &SessionPersistence{}
	for name, x := range m {
		to := map[string]*string{"type": &s.Type, "cookie_name": &s.CookieName}[name]
		if to == nil {
			return nil, reasonf("Unexpected keys supplied: %s", name)
		}
		if x != nil {
			t, err := text(maxName)(x)
			if err != nil {
				return nil, err
			}
			*to = t.(string)
		}
	}
	if _, err := oneOf(PersistSourceIP, PersistHTTPCookie, PersistAppCookie)(s.Type); err != nil {
		return nil, err
	}
	return s, nil
}

func algorithmAttribute(name string) Attribute {
	return needed(name, "string", "ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP", oneOf(LBRoundRobin, LBLeastConnections, LBSourceIP)).both()
}

func lbPoolTable() *Table[*LBPoolView] {
	type T = *LBPoolView
	cols := append(lbHead(func(o T) *Standard { return &o.Standard }, true), adminStateColumn(func(o T) bool { return o.AdminStateUp }))
	cols = append(cols,
		writtenOnly[T]("listener_id", "uuid", "whose default pool it becomes", unset{}, uuid),
		writtenOnly[T]("loadbalancer_id", "uuid", "in place of listener_id", unset{}, uuid),
		row(needed("protocol", "string", "TCP, UDP; HTTP and HTTPS as TCP", oneOf(LBTCP, LBUDP, LBHTTP, LBHTTPS)), textValue(func(o T) string { return o.Protocol })),
		row(algorithmAttribute("lb_algorithm"), textValue(func(o T) string { return o.Algorithm })),
		persistenceColumn(func(o T) *SessionPersistence { return o.Persistence }),
		row(Attribute{Name: "healthmonitor_id", Filter: true, Type: "uuid", Doc: "null = none"}, textOrNullValue(func(o T) string { return o.HealthMonitorID })),
		idsColumn("members", func(o T) []string { return o.Members }), idsColumn("listeners", func(o T) []string { return o.Listeners }),
		idsColumn("loadbalancers", func(o T) []string { return []string{o.LoadBalancerID} }))
	return newTable(LBPools, cols)
}

func weightColumn() column[*LBMemberView] {
	return row(Attribute{Name: "weight", Create: true, Update: true, Default: 1, Filter: true, Sort: true, Type: "integer", Doc: "0 to 256; 0 drains", parse: wholeBetween(0, 256)},
		numberValue(func(o *LBMemberView) int64 { return int64(o.Weight) }))
}

func lbMemberTable() *Table[*LBMemberView] {
	type T = *LBMemberView
	cols := append(lbHead(func(o T) *Standard { return &o.Standard }, false), adminStateColumn(func(o T) bool { return o.AdminStateUp }))
	return newTable(LBMembers, append(cols,
		row(needed("address", "ip address", "of IPv4", address), textValue(func(o T) string { return o.Address.String() })),
		row(needed("protocol_port", "integer", "1 to 65535", lbPorts), numberValue(func(o T) int64 { return int64(o.ProtocolPort) })),
		weightColumn(),
		row(needed("subnet_id", "uuid", "", uuid), textOrNullValue(func(o T) string { return o.SubnetID })),
	))
}

// monitorColumns returns the rows that health monitors of both versions have.
func monitorColumns(types ...string) []column[*HealthMonitorView] {
	type T = *HealthMonitorView
	number := func(name, doc string, p parser, get func(o T) int) column[T] {
		return row(needed(name, "integer", doc, p).both(), numberValue(func(o T) int64 { return int64(get(o)) }))
	}
	http := func(name, doc string, p parser, get func(o T) string) column[T] {
		return row(optional(name, "string", doc, p).both(), textOrNullValue(get))
	}
	cols := append([]column[T]{idColumn(func(o T) *Standard { return &o.Standard })}, projectColumns(func(o T) *Standard { return &o.Standard })...)
	return append(cols, adminStateColumn(func(o T) bool { return o.AdminStateUp }),
		row(needed("type", "string", "", oneOf(types...)), textValue(func(o T) string { return o.Type })),
		number("delay", "seconds between checks, at least timeout, up to 86400", wholeBetween(0, MaxMonitorSeconds), func(o T) int { return o.Delay }),
		number("timeout", "seconds that a check may take, up to 86400", wholeBetween(0, MaxMonitorSeconds), func(o T) int { return o.Timeout }),
		number("max_retries", "failures before a member is down, 1 to 10", wholeBetween(1, 10), func(o T) int { return o.MaxRetries }),
		http("http_method", "of HTTP and HTTPS: "+strings.Join(HTTPMethods(), ", "), orNull(oneOf(HTTPMethods()...)), func(o T) string { return o.HTTPMethod }),
		http("url_path", "of HTTP and HTTPS", orNull(lbURLPath), func(o T) string { return o.URLPath }),
		http("expected_codes", "of HTTP and HTTPS; 200, 200,202 or 200-204", orNull(lbCodes), func(o T) string { return o.ExpectedCodes }),
		idsColumn("pools", func(o T) []string { return o.Pools }))
}

// lbURLPath takes the path of a URL.
func lbURLPath(v any) (any, error) {
	s, err := text(maxName)(v)
	if err != nil {
		return nil, err
	}
	path := s.(string)
	for i, r := range path {
		if i == 0 && r != '/' || r <= ' ' || r == 0x7f || r == '"' || r == '\\' {
			return nil, reasonf("'%s' is not a valid path of a URL", path)
		}
	}
	return path, nil
}

// lbCodes takes codes of HTTP: 200, 200,202 or 200-204.
func lbCodes(v any) (any, error) {
	s, err := text(maxName)(v)
	if err != nil {
		return nil, err
	}
	codes, comma := s.(string), byte(',')
	valid := len(codes)%4 == 3
	for i := range len(codes) {
		c := codes[i]
		switch {
		case i%4 != 3:
			valid = valid && c >= '0' && c <= '9'
		case len(codes) == 7 && c == '-':
		default:
			valid = valid && c == comma
		}
	}
	switch {
	case !valid:
		return nil, reasonf("'%s' is not 200, 200,202 or 200-204", codes)
	case FallingCodes(codes):
		return nil, reasonf("the range '%s' ends below its first code", codes)
	}
	return codes, nil
}

func healthMonitorTable() *Table[*HealthMonitorView] {
	cols := monitorColumns(MonitorPing, MonitorTCP, MonitorHTTP, MonitorHTTPS)
	return newTable(HealthMonitors, append(cols, nameColumn(func(o *HealthMonitorView) *Standard { return &o.Standard }),
		writtenOnly[*HealthMonitorView]("pool_id", "uuid", "", required{}, uuid)))
}

func vipTable() *Table[*VIPView] {
	type T = *VIPView
	cols := append(lbHead(func(o T) *Standard { return &o.Standard }, true), adminStateColumn(func(o T) bool { return o.AdminStateUp }))
	return newTable(VIPs, append(cols,
		row(needed("subnet_id", "uuid", "", uuid), textValue(func(o T) string { return o.SubnetID })),
		row(optional("address", "ip address", "any of the subnet unless given", orNull(address)), textValue(func(o T) string { return o.Address.String() })),
		row(Attribute{Name: "port_id", Filter: true, Type: "uuid", Doc: "made by the server"}, textValue(func(o T) string { return o.PortID })),
		row(needed("protocol", "string", "TCP, UDP; HTTP and HTTPS as TCP", oneOf(LBTCP, LBUDP, LBHTTP, LBHTTPS)), textValue(func(o T) string { return o.Protocol })),
		row(needed("protocol_port", "integer", "1 to 65535", lbPorts), numberValue(func(o T) int64 { return int64(o.ProtocolPort) })),
		row(needed("pool_id", "uuid", "one VIP a pool", uuid).both(), textOrNullValue(func(o T) string { return o.PoolID })),
		persistenceColumn(func(o T) *SessionPersistence { return o.Persistence }),
		row(connLimitAttribute(), numberValue(func(o T) int64 { return int64(o.ConnLimit) })),
		v1Status(func(o T) bool { return o.Serves }),
		row(Attribute{Name: "status_description", Type: "string"}, constant[T]("null")),
	))
}

func v1Status[T any](active func(o T) bool) column[T] {
	return row(Attribute{Name: "status", Filter: true, Computed: true, Type: "string", Doc: "ACTIVE or INACTIVE"}, textValue(func(o T) string {
		if active(o) {
			return "ACTIVE"
		}
		return "INACTIVE"
	}))
}

func v1PoolTable() *Table[*LBPoolView] {
	type T = *LBPoolView
	cols := append(lbHead(func(o T) *Standard { return &o.Standard }, true), adminStateColumn(func(o T) bool { return o.AdminStateUp }))
	monitors := func(o T) []string {
		if o.HealthMonitorID == "" {
			return nil
		}
		return []string{o.HealthMonitorID}
	}
	return newTable(V1Pools, append(cols,
		row(needed("subnet_id", "uuid", "the router with an interface on it balances", uuid), textValue(func(o T) string { return o.SubnetID })),
		row(needed("protocol", "string", "TCP, UDP; HTTP and HTTPS as TCP", oneOf(LBTCP, LBUDP, LBHTTP, LBHTTPS)), textValue(func(o T) string { return o.Protocol })),
		row(algorithmAttribute("lb_method"), textValue(func(o T) string { return o.Algorithm })),
		row(optional("provider", "string", LBProvider, lbProvider), constant[T](`"`+LBProvider+`"`)),
		row(Attribute{Name: "health_monitors", Create: true, Update: true, Default: []string{}, Type: "list of uuids", Doc: "one at most; changed by /lb/pools/{id}/health_monitors", parse: nullAs([]any{}, fewer(uuids))},
			textsValue(monitors)),
		row(Attribute{Name: "health_monitors_status", Type: "list of {monitor_id, status, status_description}", Doc: "made by the server"}, jsonValue(func(b []byte, o T) []byte {
			return appendList(b, monitors(o), func(b []byte, id string) []byte {
				b = appendString(append(b, `{"monitor_id":`...), id)
				if o.ChecksFail == "" {
					return append(b, `,"status":"ACTIVE","status_description":null}`...)
				}
				return append(appendString(append(b, `,"status":"ERROR","status_description":`...), o.ChecksFail), '}')
			})
		})),
		row(Attribute{Name: "vip_id", Filter: true, Type: "uuid", Doc: "null = none"}, textOrNullValue(func(o T) string { return o.VIPID })),
		row(Attribute{Name: "members", Type: "list of uuids", Doc: "made by the server"}, textsValue(func(o T) []string { return o.Members })),
		v1Status(func(T) bool { return true }),
		row(Attribute{Name: "status_description", Type: "string"}, constant[T]("null")),
	))
}

func v1MemberTable() *Table[*LBMemberView] {
	type T = *LBMemberView
	std := func(o T) *Standard { return &o.Standard }
	cols := append(append([]column[T]{idColumn(std)}, projectColumns(std)...), adminStateColumn(func(o T) bool { return o.AdminStateUp }))
	return newTable(V1Members, append(cols,
		row(needed("pool_id", "uuid", "null once the pool is deleted", uuid).both(), textOrNullValue(func(o T) string { return o.PoolID })),
		row(needed("address", "ip address", "of IPv4", address), textValue(func(o T) string { return o.Address.String() })),
		row(needed("protocol_port", "integer", "1 to 65535", lbPorts), numberValue(func(o T) int64 { return int64(o.ProtocolPort) })),
		weightColumn(),
		v1Status(func(o T) bool { return o.OperatingStatus != LBFailed }),
		row(Attribute{Name: "status_description", Computed: true, Type: "string", Doc: "since when its health is known"}, textOrNullValue(func(o T) string { return o.Since })),
	))
}

func v1HealthMonitorTable() *Table[*HealthMonitorView] {
	return newTable(V1HealthMonitors, monitorColumns(MonitorPing, MonitorTCP, MonitorHTTP, MonitorHTTPS))
}
