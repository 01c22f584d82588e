// Package calico holds the Go bindings of Calico's etcd data model (seeds 000 and 001;
// docs/policy.md): a type with its rules for every object, and a comparable type for every key. It
// does no I/O; heddle/calico/client does.
//
//	path  ── ParseKey ──▶ key  ── Path ──▶ path
//	value ── Decode ──▶ object, checked and canonical ── Encode ──▶ value
//
// Objects with equal encodings are equal. An [Error] names the member, its value and what is
// allowed.
//
// Members that the package does not know are kept in an object's Unknown and written back. In rules
// and policies they are errors, because ignoring a criterion would widen a rule. Null counts as
// absent; in lists it is an error.
package calico

import (
	"encoding/json"
	"net/netip"
)

// Unknown holds the members of an object that this package does not know.
type Unknown map[string]json.RawMessage

// MAC is a 48-bit Ethernet address, written in lower case with colons.
type MAC [6]byte

// NAT is a floating address: traffic to ExtIP is translated to IntIP.
type NAT struct {
	IntIP, ExtIP netip.Addr
}

// The states of a workload endpoint. Traffic of one that is not active is dropped.
const (
	Active   = "active"
	Inactive = "inactive"
)

// WorkloadEndpoint is an interface of a workload on a host (seed 001, "Endpoints").
type WorkloadEndpoint struct {
	State            string            // Active or Inactive
	Name             string            // of the interface on the host, 1 to 15 characters
	ActiveInstanceID string            // written by peers, unused
	MAC              *MAC              // nil: not checked
	ProfileIDs       []string          // in the order in which they judge
	IPv4Nets         []netip.Prefix    // /32 each
	IPv6Nets         []netip.Prefix    // /128 each
	IPv4NAT          []NAT             // each IntIP is one of IPv4Nets
	IPv6NAT          []NAT             // each IntIP is one of IPv6Nets
	IPv4Gateway      netip.Addr        // the zero Addr: none
	IPv6Gateway      netip.Addr        // the zero Addr: none
	Labels           map[string]string // own labels
	IPv4SubnetIDs    []string          // by position, of IPv4Nets; for DHCP
	IPv6SubnetIDs    []string          // by position, of IPv6Nets; for DHCP
	FQDN             string            // for DHCP
	Unknown          Unknown
}

// HostEndpoint is an interface of a host itself, chosen by Name or, without one, by any of the
// expected addresses (seed 001, "Host endpoints").
type HostEndpoint struct {
	Name              string // of the interface; empty: by address
	ExpectedIPv4Addrs []netip.Addr
	ExpectedIPv6Addrs []netip.Addr
	ProfileIDs        []string
	Labels            map[string]string
	Unknown           Unknown
}

// ProfileRules are the rule lists of a profile. Inbound means towards the endpoint.
type ProfileRules struct {
	InboundRules, OutboundRules []Rule
}

// ProfileTags are the tags that a profile gives to its endpoints.
type ProfileTags []string

// ProfileLabels are the labels that a profile gives to its endpoints. An endpoint's own labels win.
type ProfileLabels map[string]string

// Policy is a part of a tier: rules for the endpoints that match its selector (seed 001).
type Policy struct {
	Selector      string   // canonical text; "all()" when stored empty
	Order         *float64 // nil: infinite
	InboundRules  []Rule
	OutboundRules []Rule
	Untracked     bool     // before connection tracking, host endpoints only
	PreDNAT       bool     // before destination NAT, inbound of host endpoints only (later version)
	Types         []string // TypeIngress, TypeEgress; none: both (later version)
	Annotations   map[string]string
}

// The directions that a policy's Types name.
const (
	TypeIngress = "ingress"
	TypeEgress  = "egress"
)

// Tier is the metadata of a tier.
type Tier struct {
	Order   *float64 // nil: infinite
	Unknown Unknown
}

// Pool is a range of addresses for workloads (seed 001, "IP pools").
type Pool struct {
	CIDR       netip.Prefix
	IPIP       string // device: "" none, tunl0 for IPIP, vxlan… for VXLAN
	IPIPMode   string // "", always or cross-subnet (later version)
	Masquerade bool
	IPAM       bool // true when absent
	Disabled   bool
	Unknown    Unknown
}

// BlockSize is the number of addresses of an allocation block: a /26 or a /122.
const BlockSize = 64

// Block is an allocation block. Ordinal i stands for the i-th address of CIDR.
type Block struct {
	CIDR           netip.Prefix
	Affinity       string // "host:NAME"; empty: none
	Allocations    []*int // by ordinal; nil: free; else an index into Attributes
	Unallocated    []int  // free ordinals in the order in which they are handed out
	Attributes     []Attribute
	StrictAffinity bool
	Unknown        Unknown
}

// Attribute names the holder of addresses of a block.
type Attribute struct {
	HandleID  *string
	Secondary map[string]string
	Unknown   Unknown
}

// Handle counts the addresses of each block that carry it.
type Handle struct {
	ID      string
	Block   map[netip.Prefix]int
	Unknown Unknown
}

// IPAMConfig is the address management's own configuration.
type IPAMConfig struct {
	StrictAffinity     bool
	AutoAllocateBlocks bool
	Unknown            Unknown
}

// BGPPeer is a BGP speaker to peer with.
type BGPPeer struct {
	IP       netip.Addr
	ASNumber uint32
	Unknown  Unknown
}

// NodeMesh reports whether all hosts peer with each other.
type NodeMesh struct {
	Enabled bool
	Unknown Unknown
}

// DHCPSubnet is a subnet served by the DHCP agent (seed 004).
type DHCPSubnet struct {
	CIDR            netip.Prefix
	GatewayIP       netip.Addr
	DNSServers      []netip.Addr
	HostRoutes      []HostRoute
	NetworkID       string
	IPv6AddressMode string
	IPv6RAMode      string
	MTU             int // bytes, 68 to 65535; 0: unknown (later version)
	Unknown         Unknown
}

// The values of DHCPSubnet.IPv6AddressMode and IPv6RAMode.
const (
	DHCPv6Stateful  = "dhcpv6-stateful"
	DHCPv6Stateless = "dhcpv6-stateless"
	SLAAC           = "slaac"
)

// HostRoute is a route that DHCP gives to a workload.
type HostRoute struct {
	Destination netip.Prefix
	NextHop     netip.Addr
}

// AgentStatus is the status that an agent reports of itself (spec, "Status reporting").
type AgentStatus struct {
	Time        string  // UTC, ISO 8601, trailing Z
	Uptime      float64 // seconds
	FirstUpdate bool    // until the first successful write of this life
	Unknown     Unknown
}

// EndpointStatus is the status that an agent reports of an endpoint.
type EndpointStatus struct {
	Status  string
	Unknown Unknown
}

// The values of EndpointStatus.Status.
const (
	StatusUp    = "up"
	StatusDown  = "down"
	StatusError = "error"
)

// HostMetadata marks that a host exists.
type HostMetadata struct {
	Unknown Unknown
}

// OrchRefs are the names that orchestrators have for a host (later version).
type OrchRefs []OrchRef

// OrchRef is the name that one orchestrator has for a host.
type OrchRef struct {
	Orchestrator, NodeName string
	Unknown                Unknown
}

// BlockAffinity exists while a block is affine to the key's host. The block decides (spec 11.2).
type BlockAffinity struct{}

// IPAMHost names a host's part of address management. Values lie only below its key.
type IPAMHost struct{}
