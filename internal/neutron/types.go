// Package neutron holds the Neutron v2.0 resources as data: their types, the attribute table of
// each (what may be set when, defaults, validation, who may see it), the rules that need only one
// object, and the errors Neutron answers with. Rules that need other objects live in control.
package neutron

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/internal/topology/packet"
)

// Standard are the attributes that every resource carries. JSON names are the attribute names of
// the API, and the stored form is the same.
type Standard struct {
	ID             string    `json:"id"`
	ProjectID      string    `json:"project_id"` // also answered as tenant_id
	Name           string    `json:"name"`
	Description    string    `json:"description"`
	Tags           []string  `json:"tags"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	RevisionNumber int64     `json:"revision_number"`
}

// Network is a tenant's layer-2 network.
type Network struct {
	Standard
	AdminStateUp        bool `json:"admin_state_up"`
	MTU                 int  `json:"mtu"` // bytes
	PortSecurityEnabled bool `json:"port_security_enabled"`
	// External is set while there are policies for [AccessExternal].
	External        bool   `json:"router:external"`
	Default         bool   `json:"is_default,omitempty"` // the default external network: there is one at most
	DNSDomain       string `json:"dns_domain"`
	QoSPolicyID     string `json:"qos_policy_id,omitempty"` // of ports without one
	NetworkType     string `json:"provider:network_type"`
	PhysicalNetwork string `json:"provider:physical_network,omitempty"`
	SegmentationID  *int   `json:"provider:segmentation_id,omitempty"`
	// TunnelKey is that of the network's localnet port, 0 without one; the API does not show it.
	TunnelKey uint32 `json:"heddle:tunnel_key,omitempty"`
	// ZoneHints are availability zones that it was asked to be in.
	ZoneHints []string `json:"availability_zone_hints,omitempty"`
	// SharedBefore is "shared" in the record of a version without RBAC policies. With External it
	// stands for policies for every project, until those are made and it is nil.
	SharedBefore *bool `json:"shared,omitempty"`
}

// WithoutPolicies reports whether the network should have RBAC policies that are yet to be made.
func (n *Network) WithoutPolicies() bool {
	return n.SharedBefore != nil && (*n.SharedBefore || n.External)
}

// TypeRouted is the provider:network_type of a network without layer 2: hosts route each address.
const TypeRouted = "routed"

// Routed reports whether the network's ports are endpoints of Calico's data model.
func (n *Network) Routed() bool { return strings.EqualFold(n.NetworkType, TypeRouted) }

// Pool is an inclusive range of addresses to allocate from.
type Pool struct {
	Start netip.Addr `json:"start"`
	End   netip.Addr `json:"end"`
}

// HostRoute is a route that DHCP hands to the machines of a subnet.
type HostRoute struct {
	Destination netip.Prefix `json:"destination"`
	Nexthop     netip.Addr   `json:"nexthop"`
}

// Subnet is an address range of a network.
type Subnet struct {
	Standard
	NetworkID       string       `json:"network_id"`
	IPVersion       int          `json:"ip_version"`
	CIDR            netip.Prefix `json:"cidr"` // masked
	GatewayIP       *netip.Addr  `json:"gateway_ip"`
	AllocationPools []Pool       `json:"allocation_pools"`
	DNSNameservers  []netip.Addr `json:"dns_nameservers"`
	HostRoutes      []HostRoute  `json:"host_routes"`
	EnableDHCP      bool         `json:"enable_dhcp"`
	IPv6RAMode      string       `json:"ipv6_ra_mode,omitempty"`
	IPv6AddressMode string       `json:"ipv6_address_mode,omitempty"`
	ServiceTypes    []string     `json:"service_types"`
	SegmentID       string       `json:"segment_id,omitempty"`    // of its network's segment; "" = none
	SubnetPoolID    string       `json:"subnetpool_id,omitempty"` // that the range was allocated from
}

// SubnetPool is address space that ranges of subnets are allocated from.
type SubnetPool struct {
	Standard
	IPVersion        int            `json:"ip_version"`
	Prefixes         []netip.Prefix `json:"prefixes"` // as few as possible, in order
	MinPrefixLen     int            `json:"min_prefixlen"`
	MaxPrefixLen     int            `json:"max_prefixlen"`
	DefaultPrefixLen int            `json:"default_prefixlen"`
	// DefaultQuota limits the addresses, or for IPv6 the ranges of 64 bits, that a project has; nil
	// and 0 are no limit.
	DefaultQuota   *int   `json:"default_quota"`
	Default        bool   `json:"is_default"` // of its IP version, of which there is one at most
	AddressScopeID string `json:"address_scope_id,omitempty"`
}

// AddressScope is a space of addresses that do not overlap: the pools in it share no address, and
// routers forward between subnets of one scope without translating.
type AddressScope struct {
	Standard
	IPVersion int `json:"ip_version"`
}

// FixedIP is an address of a port on a subnet.
type FixedIP struct {
	SubnetID  string     `json:"subnet_id"`
	IPAddress netip.Addr `json:"ip_address"`
}

// AddressPair is another sender address (or prefix) of a port. IPAddress keeps the client's text.
type AddressPair struct {
	IPAddress  string     `json:"ip_address"`
	MACAddress packet.MAC `json:"mac_address"`
}

// DHCPOpt is an extra DHCP option of a port.
type DHCPOpt struct {
	OptName   string `json:"opt_name"`
	OptValue  string `json:"opt_value"`
	IPVersion int    `json:"ip_version"`
}

// Port is an attachment point on a network.
type Port struct {
	Standard
	NetworkID           string        `json:"network_id"`
	AdminStateUp        bool          `json:"admin_state_up"`
	MACAddress          packet.MAC    `json:"mac_address"`
	FixedIPs            []FixedIP     `json:"fixed_ips"`
	DeviceID            string        `json:"device_id"`
	DeviceOwner         string        `json:"device_owner"`
	SecurityGroups      []string      `json:"security_groups"`
	AllowedAddressPairs []AddressPair `json:"allowed_address_pairs"`
	ExtraDHCPOpts       []DHCPOpt     `json:"extra_dhcp_opts"`
	PortSecurityEnabled bool          `json:"port_security_enabled"`
	DNSName             string        `json:"dns_name"`
	DNSDomain           string        `json:"dns_domain"`
	DataPlaneStatus     string        `json:"data_plane_status,omitempty"` // ACTIVE or DOWN, as monitoring says, or ""
	QoSPolicyID         string        `json:"qos_policy_id,omitempty"`
	NamesMACLearning    bool          `json:"heddle:names_mac_learning,omitempty"` // answers do, since a request did
	VNICType            string        `json:"binding:vnic_type"`
	HostID              string        `json:"binding:host_id"` // a host's name, as Neutron's clients use it
	// Profile is nil, rather than empty, while a client wants the port unbound.
	Profile map[string]any `json:"binding:profile"`
	// BoundHostID is the id of the host that HostID named when the port was bound, or "".
	BoundHostID string `json:"heddle:bound_host_id,omitempty"`
	// PreviousHostID is the host that had the port before, which knows its connections. When the
	// port has been up on another host for a while, it is forgotten.
	PreviousHostID string `json:"heddle:previous_host_id,omitempty"`
	// PreviousInterface is the port's interface on the previous host, which serves the port until
	// it is up on the host that it is bound to now; then "".
	PreviousInterface string `json:"heddle:previous_interface_name,omitempty"`
	// OtherBindings are the port's bindings to other hosts than HostID: none is in effect.
	OtherBindings []PortBinding `json:"heddle:other_bindings,omitempty"`
	// BindingDeleted is set while the active binding is deleted: the next one made is active.
	BindingDeleted bool `json:"heddle:binding_deleted,omitempty"`
	// IPAllocation is none for a port that was asked to have no addresses, deferred for one that
	// gets them with its host; "" is immediate.
	IPAllocation string `json:"ip_allocation,omitempty"`
	// KeepsLinkUp is the opposite of propagate_uplink_status.
	KeepsLinkUp        bool   `json:"heddle:keeps_link_up,omitempty"`
	DeviceProfile      string `json:"device_profile,omitempty"`
	NUMAAffinityPolicy string `json:"numa_affinity_policy,omitempty"`
	// Hints are for the backends of other clouds, by their name.
	Hints   map[string]any `json:"hints,omitempty"`
	Trusted *bool          `json:"trusted,omitempty"` // nil: not said
	// InterfaceName is the interface of a bound port: the profile's, or "tap" and 11 characters of
	// the id.
	InterfaceName string `json:"heddle:interface_name,omitempty"`
	// TunnelKey is chosen at creation and kept for the port's life; the API does not show it.
	TunnelKey uint32 `json:"heddle:tunnel_key"`
	// TrunkID is the trunk whose parent the port is, or "".
	TrunkID string `json:"heddle:trunk_id,omitempty"`
	// SubportVLAN is the VLAN id of a subport on the interface of its trunk's parent, whose binding
	// it has; 0 for other ports.
	SubportVLAN uint16 `json:"heddle:subport_vlan,omitempty"`
}

// PortBinding is an inactive binding of a port to a host. The attributes of the active one are the
// port's own.
type PortBinding struct {
	HostID string `json:"host"` // the host's name
	// BoundHostID is the id of the host that HostID named when the binding was made.
	BoundHostID string         `json:"heddle:bound_host_id,omitempty"`
	VNICType    string         `json:"vnic_type"`
	Profile     map[string]any `json:"profile"`
	// Deactivated is set when another binding was activated in place of this one. Until a client
	// updates it, it is answered as unbound.
	Deactivated bool `json:"heddle:deactivated,omitempty"`
}

// ServedBy returns the id of the host that frames of the port enter by: the one it is bound to or,
// until it is up there, the one it moves from; "" if it is not bound.
func (p *Port) ServedBy() string {
	if p.BoundHostID != "" && p.PreviousInterface != "" {
		return p.PreviousHostID
	}
	return p.BoundHostID
}

// SecurityGroup is a named set of rules; its rules are stored with it, oldest first.
type SecurityGroup struct {
	Standard
	Stateful bool                `json:"stateful"`
	Rules    []SecurityGroupRule `json:"security_group_rules"`
}

// SecurityGroupRule allows one kind of traffic.
type SecurityGroupRule struct {
	Standard
	SecurityGroupID string `json:"security_group_id"`
	Direction       string `json:"direction"` // ingress, egress
	Ethertype       string `json:"ethertype"` // IPv4, IPv6
	Protocol        string `json:"protocol"`  // name or number as stored by Neutron; "" any
	PortRangeMin    *int   `json:"port_range_min"`
	PortRangeMax    *int   `json:"port_range_max"`
	RemoteIPPrefix  string `json:"remote_ip_prefix"` // as the client gave it; "" none
	RemoteGroupID   string `json:"remote_group_id"`
	// RemoteAddressGroupID names an address group whose members the remote side is among; "" none.
	RemoteAddressGroupID string `json:"remote_address_group_id,omitempty"`
	// Implicit marks a rule made with its group, which has null as its description.
	Implicit bool `json:"heddle:implicit,omitempty"`
}

// DefaultSecurityGroupRule is a template of rules that new security groups get.
type DefaultSecurityGroupRule struct {
	SecurityGroupRule       // of no group and no project; RemoteGroupID is ParentGroup or ""
	UsedInDefaultGroup bool `json:"used_in_default_sg"`
	UsedInOtherGroups  bool `json:"used_in_non_default_sg"`
	// Removed marks a record in place of an initial rule that was deleted.
	Removed bool `json:"heddle:removed,omitempty"`
}

// AddressGroup is a set of prefixes that rules of security groups name as their remote side. Its
// members lie in AddressBlocks.
type AddressGroup struct {
	Standard
	Size int `json:"heddle:size"` // members
}

// AddressBlock holds the members of an address group whose hash is Number.
type AddressBlock struct {
	GroupID   string         `json:"group_id"`
	Number    int            `json:"number"`
	Addresses []netip.Prefix `json:"addresses"` // masked, in order
}

// Router is a router of a project. Its ports are RouterPorts.
type Router struct {
	Standard
	AdminStateUp bool            `json:"admin_state_up"`
	Gateways     []RouterGateway `json:"gateways"` // the first is external_gateway_info
	Routes       []HostRoute     `json:"routes"`   // beside those to its own subnets
	Distributed  bool            `json:"distributed"`
	HA           bool            `json:"ha"`
	FlavorID     string          `json:"flavor_id,omitempty"`
	// ZoneHints are availability zones that it was asked to be in.
	ZoneHints []string `json:"availability_zone_hints,omitempty"`
	// EnableNDPProxy lets it answer for addresses inside at its first gateway; false without one.
	EnableNDPProxy bool `json:"enable_ndp_proxy,omitempty"`
	// ExcludedHostIDs are hosts from whose L3 agents it was taken, though it has ports.
	ExcludedHostIDs []string `json:"excluded_host_ids,omitempty"`
}

// RouterPort joins a router with a port by which it is on a network. A port that only names the
// router as its device is none.
type RouterPort struct {
	PortID    string   `json:"port_id"`
	RouterID  string   `json:"router_id"`
	Gateway   bool     `json:"gateway"`    // else an interface
	SubnetIDs []string `json:"subnet_ids"` // of the port's addresses
}

// RouterGateway is a router's link to an external network.
type RouterGateway struct {
	NetworkID  string `json:"network_id"`
	PortID     string `json:"port_id"` // owner network:router_gateway
	EnableSNAT bool   `json:"enable_snat"`
	// QoSPolicyID is for what is translated to the gateway's address.
	QoSPolicyID string `json:"qos_policy_id,omitempty"`
}

// FloatingIP is an address of an external network that stands for a port's fixed address. Without
// PortID it is not associated, and FixedIPAddress is empty; RouterID and ServedBy are, too, unless
// it has port forwardings.
type FloatingIP struct {
	Standard
	FloatingNetworkID string     `json:"floating_network_id"`
	FloatingIPAddress netip.Addr `json:"floating_ip_address"`
	FloatingPortID    string     `json:"floating_port_id"` // owner network:floatingip; holds the address
	PortID            string     `json:"port_id"`
	FixedIPAddress    netip.Addr `json:"fixed_ip_address,omitzero"`
	RouterID          string     `json:"router_id"`
	ServedBy          string     `json:"served_by"` // gateway or interface port of the router
	DNSName           string     `json:"dns_name,omitempty"`
	DNSDomain         string     `json:"dns_domain,omitempty"` // set with DNSName
	QoSPolicyID       string     `json:"qos_policy_id,omitempty"`
}

// Forwarded reports whether a router serves the address by port forwardings alone.
func (f *FloatingIP) Forwarded() bool { return f.PortID == "" && f.RouterID != "" }

// PortForwarding leads the ports of a floating IP from External to a port's fixed address: those of
// a range one by one, or all to one port. Its project is the floating IP's.
type PortForwarding struct {
	Standard
	FloatingIPID      string     `json:"floatingip_id"`
	Protocol          string     `json:"protocol"` // tcp or udp
	External          PortRange  `json:"external"`
	InternalPortID    string     `json:"internal_port_id"`
	InternalIPAddress netip.Addr `json:"internal_ip_address"`
	Internal          PortRange  `json:"internal"` // as many as External, or one
}

// Text returns the forwarding, one of f, in words: tcp 203.0.113.5:80 to 10.0.0.5:8080.
func (x *PortForwarding) Text(f *FloatingIP) string {
	side := func(a netip.Addr, r PortRange) string {
		if r.Single() {
			return fmt.Sprintf("%v:%d", a, r.First)
		}
		return fmt.Sprintf("%v:%d-%d", a, r.First, r.Last)
	}
	return x.Protocol + " " + side(f.FloatingIPAddress, x.External) + " to " + side(x.InternalIPAddress, x.Internal)
}

// NDPProxy makes a router answer, on the network of its first gateway, neighbour solicitations for
// an IPv6 address of a port inside.
type NDPProxy struct {
	Standard
	RouterID  string     `json:"router_id"`
	PortID    string     `json:"port_id"`
	IPAddress netip.Addr `json:"ip_address"`
}

// MeteringLabel counts what passes the gateways of its project's routers, or of all if it is
// shared.
type MeteringLabel struct {
	Standard
	Shared bool `json:"shared"`
}

// MeteringLabelRule is a rule about what a label counts. Its project is the label's.
type MeteringLabelRule struct {
	Standard
	LabelID     string       `json:"metering_label_id"`
	Direction   string       `json:"direction"` // ingress or egress
	Excluded    bool         `json:"excluded"`
	Remote      netip.Prefix `json:"remote_ip_prefix,omitzero"` // of the machines inside, in place of the other two
	Source      netip.Prefix `json:"source_ip_prefix,omitzero"`
	Destination netip.Prefix `json:"destination_ip_prefix,omitzero"`
}

// PortRange is a range of TCP or UDP ports, ends included.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// Overlaps reports whether two ranges have a port in common.
func (r PortRange) Overlaps(o PortRange) bool { return r.First <= o.Last && o.First <= r.Last }

// Single reports whether the range is one port.
func (r PortRange) Single() bool { return r.First == r.Last }

// String returns the range as the API writes it, such as 80:90.
func (r PortRange) String() string { return fmt.Sprintf("%d:%d", r.First, r.Last) }

// Firewall applies the rules of a policy to what passes its routers (FWaaS v1).
type Firewall struct {
	Standard
	AdminStateUp bool     `json:"admin_state_up"` // down: nothing passes
	PolicyID     string   `json:"firewall_policy_id"`
	RouterIDs    []string `json:"router_ids"`
	// SharesPolicy is set with PolicyID if another firewall has the policy then. Rules of the
	// topology have the ids of the policy's rules in one firewall alone.
	SharesPolicy bool `json:"heddle:shares_policy,omitempty"`
	// RoutersGone is set when its last router leaves, until it is updated: it has no topology then.
	RoutersGone bool `json:"heddle:routers_gone,omitempty"`
}

// FirewallPolicy is an ordered list of firewall rules, of FWaaS v1 or v2.
type FirewallPolicy struct {
	Standard
	Shared  bool     `json:"shared"`
	Audited bool     `json:"audited"`
	Rules   []string `json:"firewall_rules"` // ids
}

// FirewallGroup applies policies to what passes some interfaces of routers (FWaaS v2). Without a
// policy a direction passes nothing but replies; a group without both is not applied.
type FirewallGroup struct {
	Standard
	AdminStateUp    bool     `json:"admin_state_up"` // down: nothing passes
	Shared          bool     `json:"shared"`
	IngressPolicyID string   `json:"ingress_firewall_policy_id"` // for what leaves the router by the ports
	EgressPolicyID  string   `json:"egress_firewall_policy_id"`  // for what enters it there
	PortIDs         []string `json:"ports"`                      // each in no other group
}

// Policies returns the policies that the group has, each once.
func (g *FirewallGroup) Policies() []string {
	var ids []string
	for _, id := range []string{g.IngressPolicyID, g.EgressPolicyID} {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// FirewallRule matches packets by what is set and decides on them. At most one policy of FWaaS v1
// has it, or any number of v2's.
type FirewallRule struct {
	Standard
	Shared               bool   `json:"shared"`
	Protocol             string `json:"protocol"` // name or number; "" any
	IPVersion            int    `json:"ip_version"`
	SourceIPAddress      string `json:"source_ip_address"` // an address or a prefix; "" any
	DestinationIPAddress string `json:"destination_ip_address"`
	SourcePort           string `json:"source_port"` // "80" or "80:90"; "" any
	DestinationPort      string `json:"destination_port"`
	Action               string `json:"action"` // allow, deny, reject
	Enabled              bool   `json:"enabled"`
}
