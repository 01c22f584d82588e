package neutron

import (
	"net/netip"
	"time"
)

// NetworkView is a network as one caller sees it. The Network is shared: do not modify it.
type NetworkView struct {
	*Network
	Shared  bool     // as this caller sees it
	Status  string   // ACTIVE, DOWN
	Subnets []string // ids
	Zones   []string // of the hosts that answer DHCP on it
	// Segmented is set if its subnets name its segment.
	Segmented bool

	AddressScopes AddressScopeIDs
}

// AddressScopeIDs are the address scopes of what has addresses of both IP versions; "" is none.
type AddressScopeIDs struct{ IPv4, IPv6 string }

// SubnetPoolView is a subnet pool as one caller sees it. The SubnetPool is not to be modified.
type SubnetPoolView struct {
	*SubnetPool
	Shared bool // as this caller sees it
}

// AddressScopeView is an address scope as one caller sees it. The AddressScope is not to be
// modified.
type AddressScopeView struct {
	*AddressScope
	Shared bool // as this caller sees it
}

// SubnetView is a subnet as one caller sees it. The Subnet is not to be modified.
type SubnetView struct {
	*Subnet
	Shared bool // its network is, as this caller sees it
}

// PortView is a port with what its binding and its host make of it. The Port is not to be modified.
type PortView struct {
	*Port
	Status     string         // ACTIVE while a host serves its interface, else DOWN; ERROR on routed networks alone
	VIFType    string         // unbound, ovs, tap, binding_failed
	VIFDetails map[string]any // never modified
	Trunk      *TrunkDetails  // of the parent of a trunk; else nil
	// NetworkQoSPolicyID is the policy of the port's network.
	NetworkQoSPolicyID string
}

// PortBindingView is a binding of a port, active or not.
type PortBindingView struct {
	PortBinding
	Status     string         // ACTIVE, INACTIVE
	VIFType    string         // unbound, tap, binding_failed
	VIFDetails map[string]any // never modified
}

// SecurityGroupView is a group with its rules. The SecurityGroup is not to be modified.
type SecurityGroupView struct {
	*SecurityGroup
	Shared bool // as this caller sees it
}

// AddressGroupView is an address group with its members. The AddressGroup is not to be modified.
type AddressGroupView struct {
	*AddressGroup
	Shared    bool           // as this caller sees it
	Addresses []netip.Prefix // in order
}

// RouterView is a router with the addresses of its gateways. Its revision number counts its ports
// too, which come without a write to the router. The Router is not to be modified.
type RouterView struct {
	*Router
	Status           string
	ExternalFixedIPs []FixedIP   // of the first gateway
	OtherFixedIPs    [][]FixedIP // of each of the other gateways
	NetworkPolicies  []string    // the QoS policy of each gateway's network, or ""
	Zones            []string    // of the hosts that it is on
}

// InterfaceView is the answer to adding or removing an interface of a router.
type InterfaceView struct {
	RouterID  string   `json:"id"`
	ProjectID string   `json:"tenant_id"`
	PortID    string   `json:"port_id"`
	NetworkID string   `json:"network_id"`
	SubnetID  string   `json:"subnet_id"`
	SubnetIDs []string `json:"subnet_ids"`
}

// QuotaView maps a project's quotas (network, subnet, port, ...) to limits; -1 = no limit.
type QuotaView struct {
	ProjectID string
	Limits    map[string]int
}

// QuotaUse is one quota with what is used of it.
type QuotaUse struct {
	Limit    int `json:"limit"`
	Used     int `json:"used"`
	Reserved int `json:"reserved"`
}

// AgentView is a host's agent as Neutron's clients know it (neutron-api §8).
type AgentView struct {
	ID               string
	AgentType        string // such as "Open vSwitch agent"
	Binary           string
	Host             string
	Topic            string
	Alive            bool
	AdminStateUp     bool
	Description      string
	AvailabilityZone string
	Configurations   map[string]any
	ResourcesSynced  *bool
	CreatedAt        time.Time
	StartedAt        time.Time
	HeartbeatAt      time.Time
}

// Query narrows a list to what an index can find. A list that is not empty restricts to any of its
// values; several restrict together. Results may contain more than requested: the API filters
// again. Fields that a resource lacks are ignored.
type Query struct {
	IDs              []string
	ProjectIDs       []string
	Names            []string
	NetworkIDs       []string // subnets, ports
	SubnetIDs        []string // ports with an address of one of them
	IPAddresses      []string // ports with one of them, in canonical text
	MACAddresses     []string // ports; in canonical text
	DeviceIDs        []string // ports
	DeviceOwners     []string // ports
	HostIDs          []string // ports: binding:host_id
	SecurityGroupIDs []string // ports, security group rules
	RemoteGroupIDs   []string // security group rules
	PortIDs          []string // floating IPs, trunks
	RouterIDs        []string // floating IPs
	FloatingIPs      []string // floating IPs by their address, in canonical text
	// FloatingNetworkIDs are of floating IPs.
	FloatingNetworkIDs []string
	IPVersions         []string // IP availabilities
	ObjectIDs          []string // RBAC policies
	OnlyShared         bool     // networks, subnets, security groups
	OnlyExternal       bool     // networks
	// RemoteAddressGroupIDs are of security group rules.
	RemoteAddressGroupIDs []string
	WithoutComputed       bool   // the caller needs neither Status, VIF…, Subnets nor a subnet's Shared: they may be left empty
	After, Before         string // ids between which those of the objects are; "" = no bound
}

// InRange reports whether an object with this id lies between After and Before.
func (q *Query) InRange(id string) bool {
	return id > q.After && (q.Before == "" || id < q.Before)
}
