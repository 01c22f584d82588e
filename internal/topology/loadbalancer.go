package topology

import (
	"net/netip"

	"heddle/internal/topology/packet"
)

// Protocols that pools balance.
const (
	BalanceTCP = "TCP"
	BalanceUDP = "UDP"
)

// Methods by which a pool chooses the member of a new connection (services §3.2).
const (
	MethodRoundRobin       = "ROUND_ROBIN"       // at random, by weight
	MethodLeastConnections = "LEAST_CONNECTIONS" // of those that the ingress host knows
	MethodSourceIP         = "SOURCE_IP"
	MethodSourceIPPort     = "SOURCE_IP_PORT"
)

// PersistSourceIP is the session persistence that keeps a client's address with one member.
const PersistSourceIP = "SOURCE_IP"

// LoadBalancer balances the connections that reach a router at the addresses of its VIPs
// (midonet-topology §5, services §3). A router has one at most.
type LoadBalancer struct {
	ID           string `json:"id"`
	RouterID     string `json:"routerId"`
	AdminStateUp bool   `json:"adminStateUp"`
	// ServiceContainerID is the container that checks its members' health, "" for none.
	ServiceContainerID string `json:"serviceContainerId,omitempty"`

	PoolIDs []string `json:"poolIds,omitempty"` // filled by Link only
	VipIDs  []string `json:"vipIds,omitempty"`  // filled by Link only
}

// Pool is a set of members that share the connections of its VIPs.
type Pool struct {
	ID             string `json:"id"`
	LoadBalancerID string `json:"loadBalancerId"`
	AdminStateUp   bool   `json:"adminStateUp"`
	Protocol       string `json:"protocol"` // BalanceTCP or BalanceUDP
	LBMethod       string `json:"lbMethod"`
	// SessionPersistence is PersistSourceIP, or "" for that of the VIP.
	SessionPersistence string `json:"sessionPersistence,omitempty"`
	// PersistenceTimeout is the number of seconds for which a client without packets keeps its
	// member; 0 = 300.
	PersistenceTimeout int `json:"persistenceTimeout,omitempty"`
	// PersistenceBits is the length of the prefix of a client's address that persistence looks at;
	// 0 = the whole address.
	PersistenceBits int    `json:"persistenceBits,omitempty"`
	HealthMonitorID string `json:"healthMonitorId,omitempty"`

	PoolMemberIDs []string `json:"poolMemberIds,omitempty"` // filled by Link only
	VipIDs        []string `json:"vipIds,omitempty"`        // filled by Link only
}

// Statuses of a pool's members.
const (
	MemberActive    = "ACTIVE"
	MemberInactive  = "INACTIVE"
	MemberMonitored = "MONITORED" // as MemberHealths say; active while there is none
)

// PoolMember is an address and a port that a pool sends connections to.
type PoolMember struct {
	ID           string `json:"id"`
	PoolID       string `json:"poolId,omitempty"`
	AdminStateUp bool   `json:"adminStateUp"`
	// Status counts only while the pool has a health monitor and there is no MemberHealth.
	Status       string     `json:"status"`
	Address      netip.Addr `json:"address"`
	ProtocolPort uint16     `json:"protocolPort"`
	Weight       int        `json:"weight"`           // 0 drains: it keeps the connections that it has
	Backup       bool       `json:"backup,omitempty"` // chosen only while no other member can be
	// MonitorAddress and MonitorPort, if set, are checked in place of Address and ProtocolPort.
	MonitorAddress netip.Addr `json:"monitorAddress,omitzero"`
	MonitorPort    uint16     `json:"monitorPort,omitempty"`
}

// Vip is an address and port of a load balancer that clients connect to.
type Vip struct {
	ID             string     `json:"id"`
	LoadBalancerID string     `json:"loadBalancerId,omitempty"` // of v1 "": its pool's
	PoolID         string     `json:"poolId,omitempty"`         // "": its packets are dropped
	AdminStateUp   bool       `json:"adminStateUp"`
	Address        netip.Addr `json:"address"`
	Protocol       string     `json:"protocol"` // BalanceTCP or BalanceUDP
	ProtocolPort   uint16     `json:"protocolPort"`
	// SessionPersistence is PersistSourceIP or "". That of the pool counts first.
	SessionPersistence string         `json:"sessionPersistence,omitempty"`
	AllowedSources     []netip.Prefix `json:"allowedSources,omitempty"` // of clients; none = all
	// ConnectionLimit is the number of connections that one host opens at most; 0 = no limit.
	ConnectionLimit int    `json:"connectionLimit,omitempty"`
	GatewayPortID   string `json:"gatewayPortId,omitempty"` // v1 on an external network
}

// Types of health monitors (services §5). PING and UDP-CONNECT are checked by the agent itself, the
// others by haproxy.
const (
	MonitorPing       = "PING"
	MonitorTCP        = "TCP"
	MonitorHTTP       = "HTTP"
	MonitorHTTPS      = "HTTPS"
	MonitorTLSHello   = "TLS-HELLO"
	MonitorUDPConnect = "UDP-CONNECT"
)

// HealthMonitor is a way to check the members of pools. One that is down, or without a delay or
// timeout, checks nothing.
type HealthMonitor struct {
	ID           string `json:"id"`
	AdminStateUp bool   `json:"adminStateUp"`
	Type         string `json:"type"`
	Delay        int    `json:"delay"`      // seconds between checks
	Timeout      int    `json:"timeout"`    // seconds that a check may take
	MaxRetries   int    `json:"maxRetries"` // checks that succeed before a member is up again
	// FailRetries is the number of checks that fail before a member is down; 0 = MaxRetries of
	// them, as in LBaaS, and two that succeed bring it up again.
	FailRetries int `json:"maxRetriesDown,omitempty"`
	// Of HTTP and HTTPS.
	HTTPMethod    string `json:"httpMethod,omitempty"`
	URLPath       string `json:"urlPath,omitempty"`
	ExpectedCodes string `json:"expectedCodes,omitempty"` // 200, 200,202 or 200-204
	HTTPVersion   string `json:"httpVersion,omitempty"`   // 1.0 or 1.1
	DomainName    string `json:"domainName,omitempty"`    // of the Host header

	PoolIDs []string `json:"poolIds,omitempty"` // filled by Link only
}

// Checks reports whether the monitor has members checked.
func (m *HealthMonitor) Checks() bool { return m.AdminStateUp && m.Delay > 0 && m.Timeout > 0 }

// Kinds of service containers.
const (
	ContainerHAProxy = "HAPROXY" // checks of the members of a load balancer
	ContainerBGP     = "QUAGGA"  // the BGP speaker of a router; the name is that of the model
)

// ServiceContainer is a network namespace on an elected host, with a program in it, that is joined
// to a router by one of its ports (midonet-topology §6, services §2). The scheduler chooses the
// host, which is in the ContainerBinding of its id.
type ServiceContainer struct {
	ID          string `json:"id"`
	ServiceType string `json:"serviceType"`
	PortID      string `json:"portId"`
	// ConfigurationID is the LoadBalancer of a ContainerHAProxy, the Router of a ContainerBGP.
	ConfigurationID string `json:"configurationId"`
	// ServiceGroupID is the ServiceContainerGroup in the same bundle that restricts its hosts, ""
	// for none.
	ServiceGroupID string `json:"serviceGroupId,omitempty"`
	// FormerHostIDs are the hosts that it was bound to before, the last one first, at most
	// MaxFormerHosts. Their reports count until its host has reported.
	FormerHostIDs []string `json:"formerHostIds,omitempty"`
}

// MaxFormerHosts bounds the former hosts of a service container that count.
const MaxFormerHosts = 4

// ServiceContainerGroup is a group of containers that the same hosts may run.
type ServiceContainerGroup struct {
	ID string `json:"id"`
	// PortGroupID restricts the hosts to those of the group's bound ports while there are any;
	// "" = any live host.
	PortGroupID string `json:"portGroupId,omitempty"`

	ServiceContainerIDs []string `json:"serviceContainerIds,omitempty"` // filled by Link only
}

// ContainerOwner is the kind of the owner of a bundle with a service container, its port and
// routes. The owner's id is the container's.
const ContainerOwner = "container"

// RouterBGPOwner is the kind of the owner of what BGP means to a router: the BgpSpeaker, its peers
// and networks, the redirect chain and routes to peers. The owner's id is the router's.
const RouterBGPOwner = "router-bgp"

// ContainerBinding is the host that the scheduler has chosen for a service container. The
// container's port is bound to it in the same transaction, and whoever derives the container's
// bundle again binds the port to it.
type ContainerBinding struct {
	ContainerID   string `json:"containerId"`
	HostID        string `json:"hostId"`
	InterfaceName string `json:"interfaceName"`
}

// ContainerMAC returns the MAC address of the container behind a router's port, which the router
// knows without asking.
func ContainerMAC(port packet.MAC) packet.MAC {
	port[5] ^= 1
	return port
}

// ContainerInterface returns the name of the interface that a container's port is bound to.
func ContainerInterface(portID string) string { return "hct" + portID[:min(len(portID), 11)] }
