package octaviav2

import (
	"encoding/json"
	"math"
	"net/netip"

	"heddle/internal/neutron"
)

// column joins an attribute with its value in an object V.
type column[V any] struct {
	attribute
	get    func(V) any // nil: no answer has it
	filter bool        // lists can be filtered by it
	hidden bool        // it is a filter and no attribute
}

// attributes returns the rows that requests may have.
func attributes[V any](columns []column[V]) []*attribute {
	var rows []*attribute
	for i := range columns {
		if a := &columns[i].attribute; a.create || a.update {
			rows = append(rows, a)
		}
	}
	return rows
}

// answered returns a column that the server fills in.
func answered[V any](name string, get func(V) any) column[V] {
	return column[V]{attribute: attribute{name: name}, get: get}
}

// filtered is answered, by which lists can be filtered.
func filtered[V any](name string, get func(V) any) column[V] {
	return column[V]{attribute: attribute{name: name}, get: get, filter: true}
}

// settable returns a column of an attribute that requests may set, by which lists can be filtered.
func settable[V any](a attribute, get func(V) any) column[V] {
	return column[V]{attribute: a, get: get, filter: get != nil}
}

// plain keeps lists from being filtered by a column.
func (c column[V]) plain() column[V] { c.filter = false; return c }

func at(name string, def any, p parser) attribute {
	return attribute{name: name, create: true, update: true, def: def, parse: p}
}

func atCreate(name string, def any, p parser) attribute {
	return attribute{name: name, create: true, def: def, parse: p}
}

func required(name string, p parser) attribute {
	return attribute{name: name, create: true, mandatory: true, def: none{}, parse: p}
}

// timeFormat is Octavia's.
const timeFormat = "2006-01-02T15:04:05"

// common returns the columns that all objects have.
func common[V any](std func(V) *neutron.Standard, operating func(V) string) []column[V] {
	project := func(v V) any { return std(v).ProjectID }
	return []column[V]{
		filtered("id", func(v V) any { return std(v).ID }),
		settable(at("name", "", text(maxText255)), func(v V) any { return std(v).Name }),
		settable(atCreate("project_id", none{}, text(maxText255)), project),
		settable(atCreate("tenant_id", none{}, text(maxText255)), project).plain(),
		settable(at("tags", []string{}, tags), func(v V) any { return orEmpty(std(v).Tags) }).plain(),
		filtered("created_at", func(v V) any { return std(v).CreatedAt.UTC().Format(timeFormat) }),
		filtered("updated_at", func(v V) any { return std(v).UpdatedAt.UTC().Format(timeFormat) }),
		filtered("provisioning_status", func(V) any { return "ACTIVE" }),
		filtered("operating_status", func(v V) any { return operating(v) }),
	}
}

func described[V any](std func(V) *neutron.Standard) column[V] {
	return settable(at("description", "", text(maxText255)), func(v V) any { return std(v).Description })
}

func adminState[V any](get func(V) bool) column[V] {
	return settable(at("admin_state_up", true, flag), func(v V) any { return get(v) })
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// refs returns ids as answers refer to objects.
func refs(ids ...string) []map[string]string {
	all := make([]map[string]string, 0, len(ids))
	for _, id := range ids {
		if id != "" {
			all = append(all, map[string]string{"id": id})
		}
	}
	return all
}

// absent returns a column of a feature that is refused by another value than none, and is answered
// as null or empty.
func absent[V any](a attribute, answer any) column[V] {
	return settable(a, func(V) any { return answer }).plain()
}

func loadBalancerColumns(h *handler) []column[*neutron.LoadBalancerView] {
	type V = *neutron.LoadBalancerView
	std := func(v V) *neutron.Standard { return &v.LoadBalancer.Standard }
	return append(common(std, func(v V) string { return v.OperatingStatus }),
		described(std),
		adminState(func(v V) bool { return v.AdminStateUp }),
		settable(atCreate("vip_address", none{}, address), func(v V) any { return v.VIPAddress.String() }),
		settable(atCreate("vip_port_id", none{}, id), func(v V) any { return v.VIPPortID }),
		settable(atCreate("vip_subnet_id", none{}, id), func(v V) any { return v.VIPSubnetID }),
		settable(atCreate("vip_network_id", none{}, id), func(v V) any { return v.VIPNetworkID }),
		settable(at("vip_qos_policy_id", none{}, id), func(v V) any { return orNull(v.VIPQoSPolicyID) }),
		absent[V](atCreate("additional_vips", none{}, additionalVIPs), []any{}),
		settable(atCreate("provider", none{}, text(64)), func(V) any { return neutron.LBProvider }),
		settable(atCreate("flavor_id", none{}, id), func(V) any { return nil }),
		settable(atCreate("availability_zone", none{}, text(maxText255)), func(V) any { return nil }),
		column[V]{attribute: atCreate("listeners", none{}, h.nestedListeners), get: func(v V) any { return refs(v.Listeners...) }},
		column[V]{attribute: atCreate("pools", none{}, h.nestedPools), get: func(v V) any { return refs(v.Pools...) }},
	)
}

// maxTimeout is the highest of a listener's timeouts, milliseconds.
const maxTimeout = 2073600000

func listenerColumns(h *handler) []column[*neutron.ListenerView] {
	type V = *neutron.ListenerView
	std := func(v V) *neutron.Standard { return &v.Listener.Standard }
	timeout := func(name string, def int, get func(*neutron.Timeouts) int) column[V] {
		return settable(at(name, def, integer(0, maxTimeout)), func(v V) any { return get(&v.Timeouts) })
	}
	balancer := func(v V) any { return v.LoadBalancerID }
	return append(common(std, func(v V) string { return v.OperatingStatus }),
		described(std),
		adminState(func(v V) bool { return v.AdminStateUp }),
		column[V]{attribute: required("loadbalancer_id", id), get: balancer, filter: true, hidden: true},
		column[V]{attribute: attribute{name: "load_balancer_id"}, get: balancer, filter: true, hidden: true},
		settable(required("protocol", oneOf("UDP", "HTTP", "PROMETHEUS", "TERMINATED_HTTPS", "SCTP", "HTTPS", "TCP")), func(v V) any { return v.Protocol }),
		settable(required("protocol_port", integer(1, math.MaxUint16)), func(v V) any { return v.ProtocolPort }),
		settable(at("connection_limit", -1, integer(-1, math.MaxInt32)), func(v V) any { return v.ConnLimit }),
		settable(at("default_pool_id", none{}, id), func(v V) any { return orNull(v.DefaultPoolID) }),
		column[V]{attribute: atCreate("default_pool", none{}, h.nestedPool)},
		timeout("timeout_client_data", 50000, func(t *neutron.Timeouts) int { return t.ClientData }),
		timeout("timeout_member_connect", 5000, func(t *neutron.Timeouts) int { return t.MemberConnect }),
		timeout("timeout_member_data", 50000, func(t *neutron.Timeouts) int { return t.MemberData }),
		timeout("timeout_tcp_inspect", 0, func(t *neutron.Timeouts) int { return t.TCPInspect }),
		settable(at("allowed_cidrs", []netip.Prefix(nil), prefixes), func(v V) any {
			if len(v.AllowedCIDRs) == 0 {
				return nil
			}
			return v.AllowedCIDRs
		}).plain(),
		absent[V](at("insert_headers", none{}, dict), map[string]any{}),
		absent[V](at("default_tls_container_ref", none{}, text(maxText255)), nil),
		absent[V](at("sni_container_refs", none{}, textList), []any{}),
		absent[V](at("client_ca_tls_container_ref", none{}, text(maxText255)), nil),
		absent[V](at("client_crl_container_ref", none{}, text(maxText255)), nil),
		absent[V](at("client_authentication", none{}, oneOf("OPTIONAL", "NONE", "MANDATORY")), "NONE"),
		absent[V](at("tls_ciphers", none{}, text(2048)), nil),
		absent[V](at("tls_versions", none{}, textList), nil),
		absent[V](at("alpn_protocols", none{}, textList), nil),
		absent[V](atCreate("l7policies", none{}, anyList), []any{}),
		answered("loadbalancers", func(v V) any { return refs(v.LoadBalancerID) }),
	)
}

func poolColumns(h *handler) []column[*neutron.LBPoolView] {
	type V = *neutron.LBPoolView
	std := func(v V) *neutron.Standard { return &v.LBPool.Standard }
	algorithm := required("lb_algorithm", oneOf("SOURCE_IP_PORT", "ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP"))
	algorithm.update = true
	return append(common(std, func(v V) string { return v.OperatingStatus }),
		described(std),
		adminState(func(v V) bool { return v.AdminStateUp }),
		settable(required("protocol", oneOf("UDP", "PROXY", "PROXYV2", "HTTP", "SCTP", "HTTPS", "TCP")), func(v V) any { return v.Protocol }),
		settable(algorithm, func(v V) any { return v.Algorithm }),
		settable(at("session_persistence", none{}, persistence), func(v V) any { return persistenceAnswer(v.Persistence) }).plain(),
		column[V]{attribute: atCreate("loadbalancer_id", none{}, id), get: func(v V) any { return v.LoadBalancerID }, filter: true, hidden: true},
		column[V]{attribute: atCreate("listener_id", none{}, id)},
		column[V]{attribute: atCreate("members", none{}, h.nestedMembers), get: func(v V) any { return refs(v.Members...) }},
		column[V]{attribute: atCreate("healthmonitor", none{}, h.nestedMonitor)},
		answered("healthmonitor_id", func(v V) any {
			if v.HealthMonitorID == "" {
				return none{}
			}
			return v.HealthMonitorID
		}),
		answered("listeners", func(v V) any { return refs(v.Listeners...) }),
		answered("loadbalancers", func(v V) any { return refs(v.LoadBalancerID) }),
		absent[V](at("tls_container_ref", none{}, text(maxText255)), nil),
		absent[V](at("ca_tls_container_ref", none{}, text(maxText255)), nil),
		absent[V](at("crl_container_ref", none{}, text(maxText255)), nil),
		absent[V](at("tls_enabled", none{}, flag), false),
		absent[V](at("tls_ciphers", none{}, text(2048)), nil),
		absent[V](at("tls_versions", none{}, textList), nil),
		absent[V](at("alpn_protocols", none{}, textList), nil),
	)
}

func persistenceAnswer(s *neutron.SessionPersistence) any {
	if s == nil {
		return nil
	}
	a := map[string]any{"type": s.Type, "cookie_name": orNull(s.CookieName), "persistence_timeout": nil, "persistence_granularity": nil}
	if s.Timeout != nil {
		a["persistence_timeout"] = *s.Timeout
	}
	if s.Granularity.IsValid() {
		a["persistence_granularity"] = s.Granularity.String()
	}
	return a
}

func memberColumns() []column[*neutron.LBMemberView] {
	type V = *neutron.LBMemberView
	std := func(v V) *neutron.Standard { return &v.LBMember.Standard }
	return append(common(std, func(v V) string { return v.OperatingStatus }),
		adminState(func(v V) bool { return v.AdminStateUp }),
		settable(required("address", address), func(v V) any { return v.Address.String() }),
		settable(required("protocol_port", integer(1, math.MaxUint16)), func(v V) any { return v.ProtocolPort }),
		settable(at("weight", 1, integer(0, 256)), func(v V) any { return v.Weight }),
		settable(at("backup", false, flag), func(v V) any { return v.Backup }),
		settable(atCreate("subnet_id", none{}, id), func(v V) any { return orNull(v.SubnetID) }),
		settable(at("monitor_address", none{}, address), func(v V) any {
			if !v.MonitorAddress.IsValid() {
				return nil
			}
			return v.MonitorAddress.String()
		}),
		settable(at("monitor_port", none{}, integer(1, math.MaxUint16)), func(v V) any {
			if v.MonitorPort == 0 {
				return nil
			}
			return v.MonitorPort
		}),
	)
}

func monitorColumns() []column[*neutron.HealthMonitorView] {
	type V = *neutron.HealthMonitorView
	std := func(v V) *neutron.Standard { return &v.HealthMonitor.Standard }
	needed := func(name string, p parser) attribute {
		a := required(name, p)
		a.update = true
		return a
	}
	http := func(name string, p parser, get func(V) string) column[V] {
		return settable(at(name, none{}, p), func(v V) any { return orNull(get(v)) })
	}
	return append(common(std, func(v V) string { return v.OperatingStatus }),
		adminState(func(v V) bool { return v.AdminStateUp }),
		column[V]{attribute: required("pool_id", id), get: func(v V) any {
			if len(v.Pools) == 0 {
				return ""
			}
			return v.Pools[0]
		}, filter: true, hidden: true},
		settable(required("type", oneOf("PING", "HTTP", "TLS-HELLO", "SCTP", "HTTPS", "UDP-CONNECT", "TCP")), func(v V) any { return v.Type }),
		settable(needed("delay", integer(0, neutron.MaxMonitorSeconds)), func(v V) any { return v.Delay }),
		settable(needed("timeout", integer(0, neutron.MaxMonitorSeconds)), func(v V) any { return v.Timeout }),
		settable(at("max_retries_down", 3, integer(1, 10)), func(v V) any { return v.MaxRetriesDown }),
		settable(needed("max_retries", integer(1, 10)), func(v V) any { return v.MaxRetries }),
		http("http_method", oneOf(neutron.HTTPMethods()...), func(v V) string { return v.HTTPMethod }),
		http("url_path", urlPath, func(v V) string { return v.URLPath }),
		http("expected_codes", expectedCodes, func(v V) string { return v.ExpectedCodes }),
		settable(at("http_version", none{}, httpVersion), func(v V) any {
			if v.HTTPVersion == "" {
				return nil
			}
			return json.Number(v.HTTPVersion)
		}),
		http("domain_name", pattern(domainName, shownDomainName), func(v V) string { return v.DomainName }),
		answered("pools", func(v V) any { return refs(v.Pools...) }),
	)
}

// Octavia's expression for names of hosts, and what of it Go's expressions can say.
const (
	shownDomainName = `^(?=.{1,253}\.?$)(?:(?!-|[^.]+_)[A-Za-z0-9-_]{1,63}(?<!-)(?:\.|$))+$`
	domainName      = `^(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.?$`
)
