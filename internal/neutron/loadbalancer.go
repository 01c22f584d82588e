package neutron

import (
	"net/netip"
	"slices"
	"strings"
)

// LoadBalancer is an address at which listeners take connections (Octavia, LBaaS v2).
type LoadBalancer struct {
	Standard
	AdminStateUp   bool       `json:"admin_state_up"`
	VIPAddress     netip.Addr `json:"vip_address"`
	VIPPortID      string     `json:"vip_port_id"`
	VIPSubnetID    string     `json:"vip_subnet_id"`
	VIPNetworkID   string     `json:"vip_network_id"`
	VIPQoSPolicyID string     `json:"vip_qos_policy_id,omitempty"`
	// GivenPort holds what a client's port was before the balancer took it; nil if the server made
	// the port, which then goes with the balancer.
	GivenPort *GivenPort `json:"heddle:given_port,omitempty"`
}

// GivenPort holds the attributes that a port gets back when its load balancer is deleted.
type GivenPort struct {
	DeviceID    string `json:"device_id"`
	DeviceOwner string `json:"device_owner"`
}

// Protocols of listeners and pools.
const (
	LBTCP             = "TCP"
	LBUDP             = "UDP"
	LBHTTP            = "HTTP"
	LBHTTPS           = "HTTPS"
	LBTerminatedHTTPS = "TERMINATED_HTTPS"
	LBSCTP            = "SCTP"
	LBPrometheus      = "PROMETHEUS"
	LBProxy           = "PROXY"
	LBProxyV2         = "PROXYV2"
)

// Listener takes the connections to a port of a load balancer.
type Listener struct {
	Standard
	AdminStateUp   bool           `json:"admin_state_up"`
	LoadBalancerID string         `json:"loadbalancer_id"`
	Protocol       string         `json:"protocol"`
	ProtocolPort   int            `json:"protocol_port"`
	DefaultPoolID  string         `json:"default_pool_id,omitempty"`
	ConnLimit      int            `json:"connection_limit"` // -1 = none
	AllowedCIDRs   []netip.Prefix `json:"allowed_cidrs,omitempty"`
	Timeouts       Timeouts       `json:"timeouts"`
}

// Timeouts are those of a listener, in milliseconds. They are kept for clients: connections that
// are balanced at layer 4 have none of them.
type Timeouts struct {
	ClientData    int `json:"timeout_client_data"`
	MemberConnect int `json:"timeout_member_connect"`
	MemberData    int `json:"timeout_member_data"`
	TCPInspect    int `json:"timeout_tcp_inspect"`
}

// Algorithms by which a pool chooses members.
const (
	LBRoundRobin       = "ROUND_ROBIN"
	LBLeastConnections = "LEAST_CONNECTIONS"
	LBSourceIP         = "SOURCE_IP"
	LBSourceIPPort     = "SOURCE_IP_PORT"
)

// Types of session persistence.
const (
	PersistSourceIP   = "SOURCE_IP"
	PersistHTTPCookie = "HTTP_COOKIE"
	PersistAppCookie  = "APP_COOKIE"
)

// SessionPersistence keeps the connections of a client with one member.
type SessionPersistence struct {
	Type        string     `json:"type"`
	CookieName  string     `json:"cookie_name,omitempty"`
	Timeout     *int       `json:"persistence_timeout,omitempty"` // seconds
	Granularity netip.Addr `json:"persistence_granularity,omitzero"`
}

// LBPool is a set of members that share the connections of its listeners or, of LBaaS v1, of its
// VIP.
type LBPool struct {
	Standard
	AdminStateUp    bool                `json:"admin_state_up"`
	LoadBalancerID  string              `json:"loadbalancer_id,omitempty"`
	Protocol        string              `json:"protocol"`
	Algorithm       string              `json:"lb_algorithm"`
	Persistence     *SessionPersistence `json:"session_persistence,omitempty"`
	HealthMonitorID string              `json:"healthmonitor_id,omitempty"`

	// Of LBaaS v1, in place of LoadBalancerID: the router that balances, and the subnet by which it
	// was found.
	RouterID string `json:"heddle:router_id,omitempty"`
	SubnetID string `json:"subnet_id,omitempty"`
}

// V1 reports whether the pool is one of LBaaS v1.
func (p *LBPool) V1() bool { return p.RouterID != "" }

// LBMember is an address and a port that a pool sends connections to.
type LBMember struct {
	Standard
	AdminStateUp   bool       `json:"admin_state_up"`
	PoolID         string     `json:"pool_id,omitempty"` // "" once the pool of LBaaS v1 is deleted
	Address        netip.Addr `json:"address"`
	ProtocolPort   int        `json:"protocol_port"`
	Weight         int        `json:"weight"`
	Backup         bool       `json:"backup,omitempty"`
	SubnetID       string     `json:"subnet_id,omitempty"`
	MonitorAddress netip.Addr `json:"monitor_address,omitzero"`
	MonitorPort    int        `json:"monitor_port,omitempty"`
	// V1 reports whether it is a member of LBaaS v1, which may be without a pool.
	V1 bool `json:"heddle:v1,omitempty"`
}

// Types of health monitors.
const (
	MonitorPing       = "PING"
	MonitorTCP        = "TCP"
	MonitorHTTP       = "HTTP"
	MonitorHTTPS      = "HTTPS"
	MonitorTLSHello   = "TLS-HELLO"
	MonitorUDPConnect = "UDP-CONNECT"
	MonitorSCTP       = "SCTP"
)

// HealthMonitor is a way to check the members of a pool. One of LBaaS v1 may be of several pools
// or of none.
type HealthMonitor struct {
	Standard
	AdminStateUp   bool   `json:"admin_state_up"`
	Type           string `json:"type"`
	Delay          int    `json:"delay"`   // seconds
	Timeout        int    `json:"timeout"` // seconds
	MaxRetries     int    `json:"max_retries"`
	MaxRetriesDown int    `json:"max_retries_down"`
	HTTPMethod     string `json:"http_method,omitempty"`
	URLPath        string `json:"url_path,omitempty"`
	ExpectedCodes  string `json:"expected_codes,omitempty"`
	HTTPVersion    string `json:"http_version,omitempty"` // 1.0, 1.1
	DomainName     string `json:"domain_name,omitempty"`

	V1 bool `json:"heddle:v1,omitempty"`
	// ByFailures is set if MaxRetries counts failures, as in LBaaS: MaxRetriesDown is not used, and
	// two successes bring a member back.
	ByFailures bool `json:"heddle:by_failures,omitempty"`
}

// HTTP reports whether the monitor sends HTTP requests.
func (m *HealthMonitor) HTTP() bool { return m.Type == MonitorHTTP || m.Type == MonitorHTTPS }

// VIP is an address and a port of LBaaS v1, at which a pool takes connections.
type VIP struct {
	Standard
	AdminStateUp bool                `json:"admin_state_up"`
	SubnetID     string              `json:"subnet_id"`
	Address      netip.Addr          `json:"address"`
	PortID       string              `json:"port_id"`
	Protocol     string              `json:"protocol"`
	ProtocolPort int                 `json:"protocol_port"`
	PoolID       string              `json:"pool_id,omitempty"`
	Persistence  *SessionPersistence `json:"session_persistence,omitempty"`
	ConnLimit    int                 `json:"connection_limit"` // -1 = none
	// GivenPort is set if the server has not made the port, which then stays when the VIP goes.
	GivenPort bool `json:"heddle:given_port,omitempty"`
}

// Operating statuses of what is balanced.
const (
	LBOnline    = "ONLINE"
	LBOffline   = "OFFLINE"
	LBDegraded  = "DEGRADED"
	LBFailed    = "ERROR"
	LBDraining  = "DRAINING"
	LBNoMonitor = "NO_MONITOR"
)

// LoadBalancerView is a load balancer with what is below it. The LoadBalancer is not to be
// modified.
type LoadBalancerView struct {
	*LoadBalancer
	Listeners, Pools []string // ids
	OperatingStatus  string
	StatusReason     string // why it is not ONLINE, if members are not checked
	// Made holds the objects that were created with it, in the order of the request.
	Made *LBTree
}

// LBTree holds objects below a load balancer.
type LBTree struct {
	Listeners []*ListenerView
	Pools     []*LBPoolTree
}

// LBPoolTree is a pool with its members and its health monitor.
type LBPoolTree struct {
	*LBPoolView
	Members []*LBMemberView
	Monitor *HealthMonitorView // nil = none
}

// ListenerView is a listener with its status. The Listener is not to be modified.
type ListenerView struct {
	*Listener
	OperatingStatus string
	StatusReason    string // why it is not ONLINE, if members are not checked
}

// LBPoolView is a pool with what belongs to it. The LBPool is not to be modified.
type LBPoolView struct {
	*LBPool
	Listeners, Members []string // ids
	OperatingStatus    string
	VIPID              string // of LBaaS v1
	ChecksFail         string // of LBaaS v1: why its health monitor checks nothing, "" if it does
}

// LBMemberView is a member with its status. The LBMember is not to be modified.
type LBMemberView struct {
	*LBMember
	OperatingStatus string
	Since           string // when the status was reported; "" = it was not
}

// VIPView is a VIP of LBaaS v1. The VIP is not to be modified.
type VIPView struct {
	*VIP
	Serves bool // it has a pool
}

// HealthMonitorView is a health monitor with its pools. The HealthMonitor is not to be modified.
type HealthMonitorView struct {
	*HealthMonitor
	Pools           []string // ids
	OperatingStatus string
}

// LBStats counts what was balanced.
type LBStats struct {
	ActiveConnections int64 `json:"active_connections"`
	BytesIn           int64 `json:"bytes_in"`
	BytesOut          int64 `json:"bytes_out"`
	RequestErrors     int64 `json:"request_errors"` // always 0: requests are not seen at layer 4
	TotalConnections  int64 `json:"total_connections"`
}

// LBPoolsOf returns the protocols of pools that a listener of a protocol may have.
func LBPoolsOf(listener string) []string {
	switch listener {
	case LBTCP:
		return []string{LBTCP, LBHTTP, LBHTTPS}
	case LBHTTP:
		return []string{LBHTTP}
	case LBHTTPS:
		return []string{LBHTTPS, LBTCP}
	case LBUDP:
		return []string{LBUDP}
	}
	return nil
}

// CheckLBProtocols refuses a pool of one protocol for a listener of another that cannot have it.
func CheckLBProtocols(listener, pool string) error {
	if slices.Contains(LBPoolsOf(listener), pool) {
		return nil
	}
	if listener != LBUDP && (pool == "PROXY" || pool == "PROXYV2") { // they would fit together
		return LBUnsupported("pools of protocol %s", pool)
	}
	return lbError(
		Errorf(Conflict, "ListenerPoolProtocolMismatch", "Listener protocol %s and pool protocol %s are not compatible.", listener, pool),
		validation("The pool protocol '%s' is invalid while the listener protocol is '%s'.", pool, listener))
}

// CheckListenerProtocol refuses protocols that are known and not balanced.
func CheckListenerProtocol(protocol string) error {
	switch protocol {
	case LBTCP, LBUDP, LBHTTP, LBHTTPS:
		return nil
	}
	return LBUnsupported("listeners of protocol %s", protocol)
}

// CheckLBPool refuses what pools of a protocol cannot have: protocols and kinds of session
// persistence that are known and not balanced, and those that do not fit together.
func CheckLBPool(protocol string, s *SessionPersistence) error {
	if s != nil {
		if err := s.check(protocol); err != nil {
			return err
		}
	}
	switch protocol {
	case LBTCP, LBUDP, LBHTTP, LBHTTPS:
	default:
		return LBUnsupported("pools of protocol %s", protocol)
	}
	if s != nil && s.Type != PersistSourceIP {
		return LBUnsupported("session persistence of type %s", s.Type)
	}
	return nil
}

func (s *SessionPersistence) check(protocol string) error {
	udp := protocol == LBUDP || protocol == LBSCTP
	switch {
	case udp && s.Type != PersistSourceIP:
		return persistence("Session persistence of type %s is not supported for UDP/SCTP protocol pools.", s.Type)
	case udp && s.CookieName != "":
		return persistence("session_persistence SOURCE_IP type for UDP and SCTP protocols only accepts: type, persistence_timeout, persistence_granularity.")
	case s.Type == PersistAppCookie && s.CookieName == "":
		return persistence(`Field "cookie_name" must be specified when using the "APP_COOKIE" session persistence type.`)
	case s.Type != PersistAppCookie && s.CookieName != "":
		return persistence(`Field "cookie_name" can only be specified with session persistence of type "APP_COOKIE".`)
	case !udp && (s.Timeout != nil || s.Granularity.IsValid()):
		return persistence("persistence_timeout and persistence_granularity is only for UDP and SCTP protocol pools.")
	}
	return nil
}

// GranularityBits returns the length of the prefix that a netmask stands for; false if it is none.
func GranularityBits(mask netip.Addr) (bits int, ok bool) {
	if !mask.Is4() {
		return 0, false
	}
	b := mask.As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	for n&(1<<31) != 0 {
		bits, n = bits+1, n<<1
	}
	return bits, n == 0
}

// CheckMemberAddress refuses addresses that no member can have; vip is that of the balancer, or
// invalid.
func CheckMemberAddress(a, vip netip.Addr) error {
	switch {
	case a.Is6():
		return LBUnsupported("members with IPv6 addresses, such as %s", a)
	case a.IsUnspecified(), a.IsMulticast(), a.IsLoopback(), a.IsLinkLocalUnicast(), a == vip, a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return invalidOption(a.String(), "member address")
	}
	return nil
}

// CheckMonitorAddress refuses addresses that no member can be checked at.
func CheckMonitorAddress(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return nil
	case a.Is6():
		return LBUnsupported("IPv6 monitor addresses, such as %s", a)
	case a.IsUnspecified(), a.IsMulticast(), a.IsLoopback(), a.IsLinkLocalUnicast():
		return invalidOption(a.String(), "monitor address")
	}
	return nil
}

// leastUDPDelay is the least delay of UDP-CONNECT, seconds.
const leastUDPDelay = 3

// MaxMonitorSeconds bounds the delay and timeout of health monitors: a day. The largest time of
// haproxy, which sends the checks, is 24.8 days.
const MaxMonitorSeconds = 86_400

// HTTPMethods returns the methods that health monitors may send.
func HTTPMethods() []string {
	return []string{"HEAD", "GET", "DELETE", "CONNECT", "TRACE", "PATCH", "OPTIONS", "PUT", "POST"}
}

// FallingCodes reports whether expected codes are a range, such as 299-200, that ends below its
// first code.
func FallingCodes(codes string) bool {
	first, last, isRange := strings.Cut(codes, "-")
	return isRange && first > last
}

// CheckHealthMonitor refuses what a monitor of the pool's protocol cannot be. given are the
// attributes that the request names.
func CheckHealthMonitor(m *HealthMonitor, given Values, protocol string) error {
	for _, name := range []string{"http_method", "url_path", "expected_codes"} {
		if given[name] != nil && !m.HTTP() {
			return invalidOption(name, "health monitors of type "+m.Type)
		}
	}
	udp := protocol == LBUDP || protocol == LBSCTP
	switch {
	case m.DomainName != "" && m.HTTPVersion == "":
		return lbValidation("'http_version' must be specified when 'domain_name' is provided.")
	case m.DomainName != "" && m.HTTPVersion != "1.1":
		return invalidOption("http_version "+m.HTTPVersion, "health monitors HTTP 1.1 domain name health check")
	case m.Type == MonitorUDPConnect && protocol != "" && !udp:
		return lbValidation("The %s type is only supported for pools of type UDP/SCTP.", m.Type)
	case udp && !slices.Contains([]string{MonitorUDPConnect, MonitorSCTP, MonitorTCP, MonitorHTTP}, m.Type):
		return lbValidation("The associated pool protocol is %s, so only a UDP-CONNECT/SCTP/TCP/HTTP health monitor is supported.", protocol)
	case m.Type == MonitorUDPConnect && m.Delay < leastUDPDelay:
		return lbValidation("The request delay value %d should be larger than 3 for UDP-CONNECT health monitor type.", m.Delay)
	case m.Type == MonitorSCTP:
		return LBUnsupported("health monitors of type SCTP")
	}
	return nil
}

// insertHeaders are the headers that listeners of HTTP may be asked to insert.
var insertHeaders = []string{"X-Forwarded-For", "X-Forwarded-Port", "X-Forwarded-Proto", "X-SSL-Client-Verify", "X-SSL-Client-Has-Cert", "X-SSL-Client-DN", "X-SSL-Client-CN", "X-SSL-Issuer",
	"X-SSL-Client-SHA1", "X-SSL-Client-Not-Before", "X-SSL-Client-Not-After"}

// CheckListenerExtras refuses what a listener is asked to do with the contents of connections,
// which it does not look into.
func CheckListenerExtras(v Values, protocol string) error {
	if headers, _ := v["insert_headers"].(map[string]any); len(headers) > 0 {
		var unknown []string
		for name := range headers {
			if !slices.Contains(insertHeaders, name) {
				unknown = append(unknown, name)
			}
		}
		slices.Sort(unknown)
		switch {
		case protocol != LBHTTP && protocol != LBTerminatedHTTPS:
			return lbPlain("insert-headers is not a valid option for a %s protocol listener.", protocol)
		case unknown != nil:
			return invalidOption("dict_keys(["+join(unknown, pyQuote)+"])", "insert_headers")
		}
		return LBUnsupported("insert_headers")
	}
	certificates := v.Text("default_tls_container_ref") != "" || !emptyList(v["sni_container_refs"])
	switch {
	case certificates && protocol != LBTerminatedHTTPS:
		return lbValidation("Certificate container references are not allowed on %s protocol listeners.", protocol)
	case !certificates && protocol == LBTerminatedHTTPS:
		return lbValidation("An SNI or default certificate container reference must be provided for TERMINATED_HTTPS protocol listeners.")
	}
	for _, name := range []string{"client_ca_tls_container_ref", "client_crl_container_ref", "tls_ciphers"} {
		if v.Text(name) != "" {
			return LBUnsupported("%s", name)
		}
	}
	for _, name := range []string{"tls_versions", "alpn_protocols", "l7policies"} {
		if !emptyList(v[name]) {
			return LBUnsupported("%s", name)
		}
	}
	if auth := v.Text("client_authentication"); auth != "" && auth != "NONE" {
		return LBUnsupported("client_authentication %s", auth)
	}
	return nil
}

// CheckLBPoolExtras refuses TLS towards members.
func CheckLBPoolExtras(v Values) error {
	for _, name := range []string{"tls_container_ref", "ca_tls_container_ref", "crl_container_ref", "tls_ciphers"} {
		if v.Text(name) != "" {
			return LBUnsupported("%s", name)
		}
	}
	for _, name := range []string{"tls_versions", "alpn_protocols"} {
		if !emptyList(v[name]) {
			return LBUnsupported("%s", name)
		}
	}
	if v.Flag("tls_enabled") {
		return LBUnsupported("tls_enabled")
	}
	return nil
}

func emptyList(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) == 0
	case []string:
		return len(v) == 0
	}
	return v == nil
}

// LBTransport returns the transport protocol of a listener or pool: TCP or UDP.
func LBTransport(protocol string) string {
	if protocol == LBUDP {
		return LBUDP
	}
	return LBTCP
}

// lowerFirst returns the name of an object of an API as texts of LBaaS have it.
func lowerFirst(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "")) }
