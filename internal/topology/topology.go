// Package topology holds the virtual devices that Neutron objects are translated into: networks
// (bridges), ports, chains of rules, address groups, DHCP subnets, and the hosts and tunnel zones
// they live on. It is the model of midonet-topology.md as plain data.
//
// Everything that one Neutron object owns is in one [Bundle], stored under one key and replaced
// whole, so that two ports made at once on one network never touch the same record. Lists that grow
// with other owners' objects (ports of a network, hosts of a subnet, members of a group) are
// therefore entries in those owners' bundles; [Link] joins bundles into a view with
// back-references.
package topology

import (
	"cmp"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"heddle/internal/topology/packet"
)

// Network is a virtual bridge (midonet-topology §2.1).
type Network struct {
	ID               string `json:"id"`
	TenantID         string `json:"tenantId,omitempty"`
	Name             string `json:"name,omitempty"`
	AdminStateUp     bool   `json:"adminStateUp"`
	InboundFilterID  string `json:"inboundFilterId,omitempty"`
	OutboundFilterID string `json:"outboundFilterId,omitempty"`

	// Back-references, filled by Link only.
	PortIDs   []string `json:"portIds,omitempty"`
	DhcpIDs   []string `json:"dhcpIds,omitempty"`
	DhcpV6IDs []string `json:"dhcpv6Ids,omitempty"`
}

// Router is a virtual router (midonet-topology §2.2). The inbound filter is applied before routing,
// the forward chain and then the outbound filter after it.
type Router struct {
	ID               string `json:"id"`
	TenantID         string `json:"tenantId,omitempty"`
	Name             string `json:"name,omitempty"`
	AdminStateUp     bool   `json:"adminStateUp"`
	InboundFilterID  string `json:"inboundFilterId,omitempty"`
	OutboundFilterID string `json:"outboundFilterId,omitempty"`
	ForwardChainID   string `json:"forwardChainId,omitempty"`

	// ExcludedHostIDs are hosts at which its ports on physical networks have no home.
	ExcludedHostIDs []string `json:"excludedHostIds,omitempty"`

	// Back-references, filled by Link only.
	PortIDs        []string `json:"portIds,omitempty"`
	RouteIDs       []string `json:"routeIds,omitempty"` // blackholes and rejections
	LoadBalancerID string   `json:"loadBalancerId,omitempty"`
	BgpPeerIDs     []string `json:"bgpPeerIds,omitempty"`
	BgpNetworkIDs  []string `json:"bgpNetworkIds,omitempty"`

	// Of the router's BgpSpeaker, filled by Link only. The redirect chain is applied ahead of the
	// inbound filter.
	ASNumber             uint32 `json:"asNumber,omitempty"`
	LocalRedirectChainID string `json:"localRedirectChainId,omitempty"`
}

// Port is a port of a network or of a router (midonet-topology §2.3). Inbound filters see what
// enters the device by it, outbound filters what leaves. A port with a host and an interface is
// exterior; one with a peer leads to another device. Of two peers one names the other: PeerID; Link
// fills in the other's.
type Port struct {
	ID               string `json:"id"`
	NetworkID        string `json:"networkId,omitempty"` // or RouterID
	RouterID         string `json:"routerId,omitempty"`
	AdminStateUp     bool   `json:"adminStateUp"`
	TunnelKey        uint32 `json:"tunnelKey,omitempty"` // 24 bits; names it to other hosts
	InboundFilterID  string `json:"inboundFilterId,omitempty"`
	OutboundFilterID string `json:"outboundFilterId,omitempty"`
	HostID           string `json:"hostId,omitempty"` // exterior: with InterfaceName
	PreviousHostID   string `json:"previousHostId,omitempty"`
	InterfaceName    string `json:"interfaceName,omitempty"`
	// PreviousInterface is the port's interface on the previous host, which serves the port until
	// it is up on its host; then "".
	PreviousInterface string `json:"previousInterface,omitempty"`
	// Standbys are the interfaces on other hosts that the port may move to, those of its inactive
	// bindings: see PortArrival.
	Standbys []Standby `json:"standbys,omitempty"`
	PeerID   string    `json:"peerId,omitempty"`
	// PhysicalNetwork makes it the network's localnet port: it is on every live host that carries
	// that physical network, there with the tag VlanID, 0 for none (decision 0016).
	PhysicalNetwork string `json:"physicalNetwork,omitempty"`
	// VlanID makes an exterior port a subport: its frames have this tag on the interface, which is
	// that of a port with Trunk. A port with a peer it makes that of a VLAN: see InVLAN.
	VlanID uint16 `json:"vlanId,omitempty"`
	// Trunk reports whether frames with a tag on the interface are those of subports alone.
	Trunk bool `json:"trunk,omitempty"`

	// Of router ports.
	PortAddress netip.Addr     `json:"portAddress,omitzero"`
	PortSubnet  []netip.Prefix `json:"portSubnet,omitempty"` // each of its addresses, not masked
	PortMAC     packet.MAC     `json:"portMac,omitzero"`
	DhcpID      string         `json:"dhcpId,omitempty"` // subnet whose gateway address it has
	// Guest reports whether the port is on a network of another project than its router. There the
	// router is no default router of the machines, unless it has the gateway address of a subnet.
	Guest bool `json:"guest,omitempty"`
	// AddressScope4 and AddressScope6 are the address scopes of what is behind a router's port, ""
	// for none. Packets go on to another scope only if their addresses are translated.
	AddressScope4 string `json:"addressScope4,omitempty"`
	AddressScope6 string `json:"addressScope6,omitempty"`
	// ServiceContainerID is the container that the port leads to, "" for none.
	ServiceContainerID string `json:"serviceContainerId,omitempty"`
	// VNI makes it the end of VXLAN tunnels with that network identifier, 24 bits, whose outer
	// packets come from TunnelIP (IPv4): see VTEP.
	VNI      uint32     `json:"vni,omitempty"`
	TunnelIP netip.Addr `json:"tunnelIp,omitzero"`

	PortGroupIDs []string `json:"portGroupIds,omitempty"`
	// LimitsID names the Limits of what an exterior port's machine sends and receives, "" for none.
	LimitsID string `json:"limitsId,omitempty"`

	// Back-references, filled by Link only.
	RouteIDs      []string `json:"routeIds,omitempty"`
	FipNatRuleIDs []string `json:"fipNatRuleIds,omitempty"`
	MirrorIDs     []string `json:"mirrorIds,omitempty"` // that send copies out of it
	// PostInFilterMirrorIDs and PreOutFilterMirrorIDs have a mirror once for each of its entries.
	PostInFilterMirrorIDs []string `json:"postInFilterMirrorIds,omitempty"`
	PreOutFilterMirrorIDs []string `json:"preOutFilterMirrorIds,omitempty"`
	RemoteMacEntryIDs     []string `json:"remoteMacEntryIds,omitempty"` // in its peering table
}

// PortGroup is a set of ports, named by rules. Hosts with ports of a stateful one hear of each
// other's connections (midonet-topology §2.4).
type PortGroup struct {
	ID       string `json:"id"`
	Name     string `json:"name,omitempty"`
	TenantID string `json:"tenantId,omitempty"`
	Stateful bool   `json:"stateful"`

	// Back-references, filled by Link only.
	PortIDs         []string `json:"portIds,omitempty"`
	ServiceGroupIDs []string `json:"serviceGroupIds,omitempty"`
}

// Next hops of a route.
const (
	HopPort      = "PORT"      // by NextHopPortID, to NextHopGateway or else to the destination itself
	HopLocal     = "LOCAL"     // an address of the router itself, of NextHopPortID
	HopBlackhole = "BLACKHOLE" // drop
	HopReject    = "REJECT"    // drop, and say so to the sender
)

// Route is a route of a router (midonet-topology §2.5). One with a port counts while that is up.
type Route struct {
	ID             string       `json:"id"`
	RouterID       string       `json:"routerId,omitempty"` // of a blackhole or rejection; else NextHopPortID
	SrcSubnet      netip.Prefix `json:"srcSubnet"`
	DstSubnet      netip.Prefix `json:"dstSubnet"`
	NextHop        string       `json:"nextHop"`
	NextHopPortID  string       `json:"nextHopPortId,omitempty"`
	NextHopGateway netip.Addr   `json:"nextHopGateway,omitzero"`
	Weight         int          `json:"weight"`                  // the lowest wins
	GatewayDhcpID  string       `json:"gatewayDhcpId,omitempty"` // subnet whose gateway it leads to
	// BySource binds SrcSubnet, one address, to the port NextHopPortID, a gateway: packets from it
	// that other routes send out by another gateway take the routes of this port.
	BySource bool `json:"bySource,omitempty"`
}

// Exterior reports whether the port is bound to an interface of a host.
func (p *Port) Exterior() bool { return p.HostID != "" && p.InterfaceName != "" }

// Standby is an interface on a host that a port may move to.
type Standby struct {
	HostID        string `json:"hostId"`
	InterfaceName string `json:"interfaceName"`
}

// StandbyOn returns the interface on a host that the port may move to, or "".
func (p *Port) StandbyOn(hostID string) string {
	for _, s := range p.Standbys {
		if s.HostID == hostID {
			return s.InterfaceName
		}
	}
	return ""
}

// MovedFrom returns the host that an exterior port has been moved from and whose part in that is
// not over, or "": it hands over the state of connections, and forwards frames (decision 0017).
func (p *Port) MovedFrom() string {
	if !p.Exterior() || p.PreviousHostID == p.HostID {
		return ""
	}
	return p.PreviousHostID
}

// InterfaceOn returns the port's interface on a host that serves it or is about to, or "".
func (p *Port) InterfaceOn(hostID string) string {
	switch {
	case hostID == "" || !p.Exterior():
		return ""
	case hostID == p.HostID:
		return p.InterfaceName
	case hostID == p.MovedFrom():
		return p.PreviousInterface
	}
	return ""
}

// HostIDs returns the hosts of an exterior port: the one it is bound to and, while it moves, the
// one it comes from.
func (p *Port) HostIDs() []string {
	switch from := p.MovedFrom(); {
	case !p.Exterior():
		return nil
	case from != "":
		return []string{p.HostID, from}
	}
	return []string{p.HostID}
}

// ChainPurpose is the purpose of a chain, by which explanations name what has decided (explain §2).
// It decides nothing itself; "" is a chain of a topology that was not translated. Views lack it.
type ChainPurpose string

// Purposes of chains.
const (
	PurposeAntiSpoof     ChainPurpose = "anti-spoof"     // that a machine sends from its own addresses
	PurposePortFilter    ChainPurpose = "port-filter"    // jumps to the groups of a port
	PurposeGroup         ChainPurpose = "security-group" // the rules of one group
	PurposeFirewall      ChainPurpose = "firewall"       // the rules of one firewall, or of one policy of a firewall group
	PurposePreRouting    ChainPurpose = "pre-routing"    // what a router does before it routes
	PurposeForward       ChainPurpose = "forward"        // jumps to the firewalls of a router
	PurposePostRouting   ChainPurpose = "post-routing"   // what a router does after it has routed
	PurposeSkipSNAT      ChainPurpose = "skip-snat"      // who keeps their source addresses
	PurposeFloatSNAT     ChainPurpose = "float-snat"     // floating addresses as sources
	PurposeNDPProxy      ChainPurpose = "ndp-proxy"      // which addresses a router stands for
	PurposeLocalRedirect ChainPurpose = "local-redirect" // what a router's BGP speaker takes
)

// Chain is an ordered list of rules (midonet-topology §3.1). A bundle holds the rules in place.
type Chain struct {
	ID       string       `json:"id"`
	Name     string       `json:"name,omitempty"`
	Purpose  ChainPurpose `json:"purpose,omitempty"`
	TenantID string       `json:"tenantId,omitempty"`
	Rules    []Rule       `json:"rules,omitempty"`

	// Back-references, filled by Link only; RuleIDs lists Rules in order.
	RuleIDs            []string   `json:"ruleIds,omitzero"` // there also when empty
	LoggerIDs          []string   `json:"loggerIds,omitempty"`
	Metadata           []Metadata `json:"metadata,omitempty"` // of its loggers
	JumpRuleIDs        []string   `json:"jumpRuleIds,omitempty"`
	PortInboundIDs     []string   `json:"portInboundIds,omitempty"`
	PortOutboundIDs    []string   `json:"portOutboundIds,omitempty"`
	NetworkInboundIDs  []string   `json:"networkInboundIds,omitempty"`
	NetworkOutboundIDs []string   `json:"networkOutboundIds,omitempty"`
	RouterInboundIDs   []string   `json:"routerInboundIds,omitempty"`
	RouterOutboundIDs  []string   `json:"routerOutboundIds,omitempty"`
	RouterForwardIDs   []string   `json:"routerForwardIds,omitempty"`
	RouterRedirectIDs  []string   `json:"routerRedirectIds,omitempty"`
}

// maxPhysicalName bounds the name of a physical network, bytes, as Neutron's API does.
const maxPhysicalName = 64

// IsPhysicalName reports whether a physical network can have a name: up to 64 bytes without spaces,
// slashes and what is not printed.
func IsPhysicalName(name string) bool {
	return name != "" && len(name) <= maxPhysicalName && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '/' || r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}

// Rule types and actions (midonet-topology §3.2).
const (
	Literal = "LITERAL"
	Jump    = "JUMP" // both a type and an action
	NAT     = "NAT"

	// L2Transform is the type of rules that hand packets to a port: Redirect.
	L2Transform = "L2TRANSFORM"

	Accept   = "ACCEPT"
	Continue = "CONTINUE"
	Drop     = "DROP"
	Redirect = "REDIRECT" // out of TargetPortID, without that port's filters
	Reject   = "REJECT"
	Return   = "RETURN"
)

// Rule is one rule of a chain.
type Rule struct {
	ID            string     `json:"id"`
	Type          string     `json:"type"`
	Action        string     `json:"action"`
	ChainID       string     `json:"chainId,omitempty"` // filled by Link
	JumpChainID   string     `json:"jumpChainId,omitempty"`
	JumpChainName string     `json:"jumpChainName,omitempty"`
	TargetPortID  string     `json:"targetPortId,omitempty"` // of Redirect
	Condition     *Condition `json:"condition,omitempty"`    // nil matches everything

	// Of NAT rules. The action is taken if a translation was made.
	Dnat       bool        `json:"dnat,omitempty"`    // of the destination, else of the source
	Reverse    bool        `json:"reverse,omitempty"` // undoes what a forward rule did; no targets
	NatTargets []NatTarget `json:"natTargets,omitempty"`
	FipPortID  string      `json:"fipPortId,omitempty"` // port whose floating IP, forwarding or NDP proxy the rule serves
	Limits     *RuleLimits `json:"limits,omitempty"`    // of what it translates; nil for none
}

// NatTarget is a range of addresses and ports, ends included. Without ports the translation is
// static: one address, ports as they are, no state.
type NatTarget struct {
	NwStart netip.Addr `json:"nwStart"`
	NwEnd   netip.Addr `json:"nwEnd"`
	TpStart uint16     `json:"tpStart,omitempty"`
	TpEnd   uint16     `json:"tpEnd,omitempty"`
	// TpFrom is the port that becomes TpStart, of destinations of which each port has its own in
	// the range; 0 = each connection gets any.
	TpFrom uint16 `json:"tpFrom,omitempty"`
}

// RuleEntry is a rule that an owner has in another owner's chain, at a place among its rules: those
// of the chain's own bundle are at place 0, in their order. Of one place the ids give the order.
type RuleEntry struct {
	ChainID string `json:"chainId"`
	Place   int    `json:"place"`
	Rule    Rule   `json:"rule"`
}

// Compare orders the entries of a chain: by place, then by id.
func (e RuleEntry) Compare(other RuleEntry) int {
	return cmp.Or(cmp.Compare(e.Place, other.Place), cmp.Compare(e.Rule.ID, other.Rule.ID))
}

// Fragment policies (midonet-topology §3.3). Every stored condition names its policy.
const (
	FragAny          = "ANY"
	FragHeader       = "HEADER"
	FragNonHeader    = "NONHEADER"
	FragUnfragmented = "UNFRAGMENTED"
)

// Range is an inclusive range of 16-bit numbers; nil ends are open. Its JSON form is [low, high].
type Range struct{ Low, High *uint16 }

// Condition is a conjunction of the clauses that are set (midonet-topology §3.3).
type Condition struct {
	ConjunctionInv    bool          `json:"conjunctionInv,omitempty"`
	MatchForwardFlow  bool          `json:"matchForwardFlow,omitempty"`
	MatchReturnFlow   bool          `json:"matchReturnFlow,omitempty"`
	InPortIDs         []string      `json:"inPortIds,omitempty"`
	InPortInv         bool          `json:"inPortInv,omitempty"`
	OutPortIDs        []string      `json:"outPortIds,omitempty"`
	OutPortInv        bool          `json:"outPortInv,omitempty"`
	PortGroupID       string        `json:"portGroupId,omitempty"` // of the exterior port of entry
	InvPortGroup      bool          `json:"invPortGroup,omitempty"`
	InPortGroupID     string        `json:"inPortGroupId,omitempty"`
	InvInPortGroup    bool          `json:"invInPortGroup,omitempty"`
	OutPortGroupID    string        `json:"outPortGroupId,omitempty"`
	InvOutPortGroup   bool          `json:"invOutPortGroup,omitempty"`
	IPAddrGroupIDSrc  string        `json:"ipAddrGroupIdSrc,omitempty"`
	InvIPAddrGroupSrc bool          `json:"invIpAddrGroupIdSrc,omitempty"`
	IPAddrGroupIDDst  string        `json:"ipAddrGroupIdDst,omitempty"`
	InvIPAddrGroupDst bool          `json:"invIpAddrGroupIdDst,omitempty"`
	DlType            uint16        `json:"dlType,omitempty"`
	InvDlType         bool          `json:"invDlType,omitempty"`
	DlSrc             *packet.MAC   `json:"dlSrc,omitempty"`
	DlSrcMask         *packet.MAC   `json:"dlSrcMask,omitempty"`
	InvDlSrc          bool          `json:"invDlSrc,omitempty"`
	DlDst             *packet.MAC   `json:"dlDst,omitempty"`
	DlDstMask         *packet.MAC   `json:"dlDstMask,omitempty"`
	InvDlDst          bool          `json:"invDlDst,omitempty"`
	NwTos             *uint8        `json:"nwTos,omitempty"`
	NwTosInv          bool          `json:"nwTosInv,omitempty"`
	NwProto           *uint8        `json:"nwProto,omitempty"` // for ARP the opcode
	NwProtoInv        bool          `json:"nwProtoInv,omitempty"`
	NwSrcIP           *netip.Prefix `json:"nwSrcIp,omitempty"` // for ARP the SPA
	NwSrcInv          bool          `json:"nwSrcInv,omitempty"`
	NwDstIP           *netip.Prefix `json:"nwDstIp,omitempty"` // for ARP the TPA
	NwDstInv          bool          `json:"nwDstInv,omitempty"`
	TpSrc             *Range        `json:"tpSrc,omitempty"` // ICMP: type
	TpSrcInv          bool          `json:"tpSrcInv,omitempty"`
	TpDst             *Range        `json:"tpDst,omitempty"` // ICMP: code
	TpDstInv          bool          `json:"tpDstInv,omitempty"`
	NdTargetIP        *netip.Prefix `json:"ndTargetIp,omitempty"`
	NdTargetInv       bool          `json:"ndTargetInv,omitempty"`
	NdLinkOwn         bool          `json:"ndLinkOwn,omitempty"` // ND options name the source
	NoVlan            bool          `json:"noVlan,omitempty"`
	Vlan              uint16        `json:"vlan,omitempty"`
	FragmentPolicy    string        `json:"fragmentPolicy,omitempty"`
	// MatchNwDstRewritten: NAT on this device has changed the destination.
	MatchNwDstRewritten bool `json:"matchNwDstRewritten,omitempty"`
	// MatchSameAddressScope: the ports by which the packet enters a router and leaves it are of one
	// address scope.
	MatchSameAddressScope bool `json:"matchSameAddressScope,omitempty"`
}

// IPAddrGroup is a security group's set of addresses (midonet-topology §3.4).
type IPAddrGroup struct {
	ID              string `json:"id"`
	Name            string `json:"name,omitempty"`
	InboundChainID  string `json:"inboundChainId,omitempty"`
	OutboundChainID string `json:"outboundChainId,omitempty"`

	// Filled by Link only.
	IPAddrPorts []IPAddrPorts `json:"ipAddrPorts,omitempty"`
	RuleIDs     []string      `json:"ruleIds,omitempty"`
}

// IPAddrPorts is one address of a group with the ports that contribute it.
type IPAddrPorts struct {
	IPAddress string   `json:"ipAddress"` // an address, or a prefix from an allowed address pair
	PortIDs   []string `json:"portIds"`
}

// Opt121Route is a classless static route for DHCP.
type Opt121Route struct {
	DstSubnet netip.Prefix `json:"dstSubnet"`
	Gateway   netip.Addr   `json:"gateway"`
}

// DhcpOpt is an extra option of one host, by number or symbolic name.
type DhcpOpt struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// DhcpHostEntry is one host of a DHCP subnet as the linked view shows it.
type DhcpHostEntry struct {
	MAC           packet.MAC `json:"mac"`
	IPAddress     netip.Addr `json:"ipAddress"`
	Name          string     `json:"name,omitempty"`
	ExtraDhcpOpts []DhcpOpt  `json:"extraDhcpOpts,omitempty"`
}

// Dhcp is an IPv4 subnet of a network (midonet-topology §4).
type Dhcp struct {
	ID               string        `json:"id"`
	NetworkID        string        `json:"networkId"`
	SubnetAddress    netip.Prefix  `json:"subnetAddress"`
	ServerAddress    *netip.Addr   `json:"serverAddress,omitempty"`
	DNSServerAddress []netip.Addr  `json:"dnsServerAddress,omitempty"`
	DefaultGateway   *netip.Addr   `json:"defaultGateway,omitempty"`
	InterfaceMTU     int           `json:"interfaceMtu,omitempty"` // bytes; 0 = the agent's own
	Opt121Routes     []Opt121Route `json:"opt121Routes,omitempty"`
	DomainName       string        `json:"domainName,omitempty"` // completes names of hosts
	Enabled          bool          `json:"enabled"`

	// Filled by Link only.
	Hosts           []DhcpHostEntry `json:"hosts,omitempty"`
	RouterIfPortID  string          `json:"routerIfPortId,omitempty"` // has the gateway address
	GatewayRouteIDs []string        `json:"gatewayRouteIds,omitempty"`
}

// DhcpV6 is an IPv6 subnet of a network (midonet-simulation §18).
type DhcpV6 struct {
	ID               string       `json:"id"`
	NetworkID        string       `json:"networkId"`
	SubnetAddress    netip.Prefix `json:"subnetAddress"`
	DefaultGateway   *netip.Addr  `json:"defaultGateway,omitempty"`
	DNSServerAddress []netip.Addr `json:"dnsServerAddress,omitempty"`
	RAMode           string       `json:"raMode,omitempty"`      // slaac or dhcpv6-…
	AddressMode      string       `json:"addressMode,omitempty"` // likewise
	InterfaceMTU     int          `json:"interfaceMtu,omitempty"`
	DomainName       string       `json:"domainName,omitempty"` // completes names of hosts
	Enabled          bool         `json:"enabled"`

	// Filled by Link only.
	Hosts           []DhcpHostEntry `json:"hosts,omitempty"`
	RouterIfPortID  string          `json:"routerIfPortId,omitempty"`
	GatewayRouteIDs []string        `json:"gatewayRouteIds,omitempty"`
}

// Host is a machine that runs an agent (midonet-topology §6).
type Host struct {
	ID      string       `json:"id"`
	Name    string       `json:"name"`              // unique; Neutron's binding:host_id
	Tunnels []HostTunnel `json:"tunnels,omitempty"` // from the host's HostUnderlay
	// PhysicalNetworks are the names of those that it carries, likewise, in order.
	PhysicalNetworks []string `json:"physicalNetworks,omitempty"`
	// Key is the fingerprint of the public key with which the host joined last; "" = it did not
	// join, or under an earlier version.
	Key string `json:"key,omitempty"`

	PortIDs       []string `json:"portIds,omitempty"`       // filled by Link only
	TunnelZoneIDs []string `json:"tunnelZoneIds,omitempty"` // filled by Link only
}

// HostTunnel is the address by which a host is reached in a tunnel zone.
type HostTunnel struct {
	ZoneID string     `json:"zoneId"`
	IP     netip.Addr `json:"ip"`
}

// HostUnderlay holds the addresses of a host, the physical networks that it carries, and where it
// is. Its own agent writes it.
type HostUnderlay struct {
	HostID  string       `json:"hostId"`
	Tunnels []HostTunnel `json:"tunnels,omitempty"`
	// PhysicalNetworks has, by the name of each, the host's interface on it.
	PhysicalNetworks map[string]string `json:"physicalNetworks,omitempty"`
	// AvailabilityZone is the name of Neutron's zone that the host is in; "" = the default one.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
}

// DefaultTunnelZone is the id of the zone that hosts are in when nothing else is said.
const DefaultTunnelZone = "5c6b1f0e-8d0a-5f0b-9a3e-00000068646c"

// TunnelZone is a set of hosts that reach each other over one underlay.
type TunnelZone struct {
	ID    string           `json:"id"`
	Name  string           `json:"name"`
	Type  string           `json:"type"`            // VXLAN
	Hosts []TunnelZoneHost `json:"hosts,omitempty"` // filled by Link only, from Host.Tunnels
}

// TunnelZoneHost is a host's tunnel address in a zone.
type TunnelZoneHost struct {
	HostID string     `json:"hostId"`
	IP     netip.Addr `json:"ip"`
}

// MACEntry seeds a network's MAC table: frames to MAC leave through PortID.
type MACEntry struct {
	NetworkID string     `json:"networkId"`
	VLAN      uint16     `json:"vlan,omitempty"`
	MAC       packet.MAC `json:"mac"`
	PortID    string     `json:"portId"`
}

// NeighbourEntry seeds a network's ARP table (IPv4) or ND table (IPv6).
type NeighbourEntry struct {
	NetworkID string     `json:"networkId"`
	IP        netip.Addr `json:"ip"`
	MAC       packet.MAC `json:"mac"`
}

// DhcpHost is a host entry that a port contributes to the Dhcp or DhcpV6 of subnet SubnetID.
type DhcpHost struct {
	SubnetID string `json:"subnetId"`
	PortID   string `json:"portId"`
	DhcpHostEntry
}

// Membership is an address that a port contributes to an address group.
type Membership struct {
	GroupID   string `json:"groupId"`
	PortID    string `json:"portId"`
	IPAddress string `json:"ipAddress"`
}

// MemberSet contributes prefixes to an address group. Its form is short, since each
// agent reads the whole of it when one of them changes.
type MemberSet struct {
	GroupID  string         `json:"groupId"`
	Prefixes []netip.Prefix `json:"prefixes"`
}

// Bundle is everything one Neutron object owns. Bundles share no object ids.
type Bundle struct {
	Networks     []Network        `json:"networks,omitempty"`
	Routers      []Router         `json:"routers,omitempty"`
	PortGroups   []PortGroup      `json:"portGroups,omitempty"`
	Limits       []Limits         `json:"limits,omitempty"`
	Routes       []Route          `json:"routes,omitempty"`
	Dhcps        []Dhcp           `json:"dhcps,omitempty"`
	DhcpV6s      []DhcpV6         `json:"dhcpv6s,omitempty"`
	Ports        []Port           `json:"ports,omitempty"`
	Chains       []Chain          `json:"chains,omitempty"`
	Rules        []RuleEntry      `json:"rules,omitempty"` // in other owners' chains
	IPAddrGroups []IPAddrGroup    `json:"ipAddrGroups,omitempty"`
	MACs         []MACEntry       `json:"macs,omitempty"`
	Neighbours   []NeighbourEntry `json:"neighbours,omitempty"`
	DhcpHosts    []DhcpHost       `json:"dhcpHosts,omitempty"`
	Memberships  []Membership     `json:"memberships,omitempty"`
	MemberSets   []MemberSet      `json:"memberSets,omitempty"`
	Meters       []Meter          `json:"meters,omitempty"`
	Loggers      []Logger         `json:"loggers,omitempty"`

	LoggingResources []LoggingResource `json:"loggingResources,omitempty"`
	RuleLoggers      []RuleLogger      `json:"ruleLoggers,omitempty"`

	LocalIPs []LocalIP `json:"localIPs,omitempty"`

	Mirrors       []Mirror      `json:"mirrors,omitempty"`
	MirrorEntries []MirrorEntry `json:"mirrorEntries,omitempty"` // at other owners' ports

	GatewayDevices   []GatewayDevice  `json:"gatewayDevices,omitempty"`
	RemoteMacEntries []RemoteMacEntry `json:"remoteMacEntries,omitempty"`

	LoadBalancers     []LoadBalancer     `json:"loadBalancers,omitempty"`
	Pools             []Pool             `json:"pools,omitempty"`
	PoolMembers       []PoolMember       `json:"poolMembers,omitempty"`
	Vips              []Vip              `json:"vips,omitempty"`
	HealthMonitors    []HealthMonitor    `json:"healthMonitors,omitempty"`
	ServiceContainers []ServiceContainer `json:"serviceContainers,omitempty"`

	ServiceContainerGroups []ServiceContainerGroup `json:"serviceContainerGroups,omitempty"`

	BgpSpeakers       []BgpSpeaker      `json:"bgpSpeakers,omitempty"`
	BgpPeers          []BgpPeer         `json:"bgpPeers,omitempty"`
	BgpNetworks       []BgpNetwork      `json:"bgpNetworks,omitempty"`
	FloatingAddresses []FloatingAddress `json:"floatingAddresses,omitempty"`
}

// Logger asks for a record of each decision of ports' filters of security groups (services §9.2):
// of the filters in ChainIDs, of those that jump to GroupChainIDs, or of all of a tenant's ports.
// With both kinds of chains it is about decisions of these groups in these filters.
type Logger struct {
	ID            string   `json:"id"`
	Accepts       bool     `json:"accepts,omitempty"`       // packets that are let through
	Drops         bool     `json:"drops,omitempty"`         // packets that no group lets through
	ChainIDs      []string `json:"chainIds,omitempty"`      // of a port
	GroupChainIDs []string `json:"groupChainIds,omitempty"` // of a security group
	TenantID      string   `json:"tenantId,omitempty"`      // of all filters of ports, in place of chains
}

// Meter counts what passes the gateways of a tenant's routers, or of all routers: by its rules, of
// which one has to match that does not exclude, and none that does.
type Meter struct {
	ID       string      `json:"id"`
	TenantID string      `json:"tenantId,omitempty"`
	Shared   bool        `json:"shared,omitempty"` // it counts on all routers, for each tenant
	Rules    []MeterRule `json:"rules,omitempty"`
}

// MeterRule matches packets between a router's gateway and its other ports, by the addresses that
// they have inside: after the translation of destinations, and before that of sources.
type MeterRule struct {
	Ingress  bool          `json:"ingress,omitempty"` // those that come in by the gateway, else those that leave by it
	Excluded bool          `json:"excluded,omitempty"`
	Src      *netip.Prefix `json:"src,omitempty"`
	Dst      *netip.Prefix `json:"dst,omitempty"`
}

// Matches reports whether the rule is about a packet from src to dst in its direction.
func (r *MeterRule) Matches(ingress bool, src, dst netip.Addr) bool {
	return r.Ingress == ingress && (r.Src == nil || r.Src.Contains(src)) && (r.Dst == nil || r.Dst.Contains(dst))
}

// Counts reports whether a packet from src to dst is counted.
func (m *Meter) Counts(ingress bool, src, dst netip.Addr) bool {
	counts := false
	for i := range m.Rules {
		r := &m.Rules[i]
		if !r.Matches(ingress, src, dst) {
			continue
		}
		if r.Excluded {
			return false
		}
		counts = true
	}
	return counts
}

// LocalIP makes a port the one that an address of its network stands for on the host that serves
// the port: machines of the network there that send to Address reach the port.
type LocalIP struct {
	ID        string     `json:"id"` // of the association, scoping the translations of its connections
	NetworkID string     `json:"networkId"`
	Address   netip.Addr `json:"address"` // IPv4
	PortID    string     `json:"portId"`
	MAC       packet.MAC `json:"mac"` // of the port
	// FixedIP is the address of the port; invalid for the port that has Address itself, which is
	// reached from hosts without another.
	FixedIP netip.Addr `json:"fixedIp,omitzero"`
	// Passthrough leaves packets addressed to Address, which the machine has too. Else they are
	// translated to FixedIP, and the replies back.
	Passthrough bool `json:"passthrough,omitempty"`
}

// Owner names the Neutron object that a bundle belongs to.
type Owner struct {
	// Kind is network, subnet, port, security-group, router, router-gateway, router-interface,
	// floating-ip, port-forwarding, ndp-proxy, metering-label, log, logging-resource, firewall-log,
	// tap-service, tap-flow, firewall, qos-policy, load-balancer, listener, lb-pool, lb-member,
	// health-monitor, vip, router-lb, gateway-device, remote-mac-entry, l2-gateway-connection,
	// RouterBGPOwner or ContainerOwner. Gateways and interfaces have the id of their port,
	// router-lb and RouterBGPOwner that of the router.
	Kind string
	ID   string
}
