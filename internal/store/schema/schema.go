// Package schema is every Heddle table on one page: prefix, type, unique keys, references and
// indexes. Identity and the XenAPI declare their own tables below the prefixes given here.
//
//	/heddle/schema                                     the format in use
//	/heddle/servers/<id>                               servers that are alive, under a lease
//	/heddle/neutron/…                                  objects that clients have made
//	/heddle/topology/<kind>/<id>                       its topology
//	/heddle/hosts/ /heddle/tunnel-zones/               where packets travel
//	/heddle/underlay/<host>                            how other hosts reach a host, by itself
//	/heddle/state/<host>/                              what a host reports, under its lease
//	/heddle/trace/requests/<host>/                     requests to a host, under a lease
//	/heddle/secrets/<host>/                            what servers give to that host alone
//	/heddle/identity/ /heddle/join/                    users, and join tokens: secret from agents
//	/heddle/xen/…                                      a pool of the XenAPI
//	/heddle/containers/<container>                     hosts of service containers
//	/heddle/scheduler                                  held by the server that chooses them
//	/heddle/gateways                                   held by the server that drives switches
//	/heddle/dns/…                                      names published on a DNS server
//	/heddle/audit/<request>                            who requested a change, until journalled
//	/heddle/unique/ /heddle/idx/ /heddle/guard/        kept by records
package schema

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// Prefixes of the store.
const (
	Root                = "/heddle/"
	NeutronPrefix       = "/heddle/neutron/"
	TopologyPrefix      = "/heddle/topology/"
	HostsPrefix         = "/heddle/hosts/"
	UnderlayPrefix      = "/heddle/underlay/"
	TunnelZonesPrefix   = "/heddle/tunnel-zones/"
	StatePrefix         = "/heddle/state/"
	TraceRequestsPrefix = "/heddle/trace/requests/"
	SecretsPrefix       = "/heddle/secrets/"
	ServersPrefix       = "/heddle/servers/"
	IdentityPrefix      = "/heddle/identity/"
	JoinPrefix          = "/heddle/join/"
	XenPrefix           = "/heddle/xen/"
	ContainersPrefix    = "/heddle/containers/"
	DNSPrefix           = "/heddle/dns/"
	NovaPrefix          = "/heddle/nova/"
	CalicoPrefix        = "/calico/"
)

// Networks have unique segments; a physical network carries one flat network. At most one network
// is the default.
var Networks = records.NewTable("network", NeutronPrefix+"networks/", func(n *neutron.Network) string { return n.ID },
	records.Unique("segment", func(n *neutron.Network) []string {
		switch {
		case n.SegmentationID != nil:
			return []string{Segment(n.NetworkType, n.PhysicalNetwork, *n.SegmentationID)}
		case n.PhysicalNetwork != "":
			return []string{Segment(n.NetworkType, n.PhysicalNetwork, 0)}
		}
		return nil
	}),
	records.Unique("tunnel_key", func(n *neutron.Network) []string {
		if n.TunnelKey == 0 {
			return nil
		}
		return []string{TunnelKey(n.TunnelKey)}
	}),
	records.Unique("default", func(n *neutron.Network) []string {
		if !n.Default {
			return nil
		}
		return []string{"true"}
	}),
	records.Index("segment_id", func(n *neutron.Network) []string { return []string{SegmentID(n.ID)} }),
	records.Ref("qos_policy", QoSPolicies, func(n *neutron.Network) []string { return []string{n.QoSPolicyID} }, records.Refuse()),
	records.Index("project", func(n *neutron.Network) []string { return []string{n.ProjectID} }),
	records.Index("name", func(n *neutron.Network) []string { return []string{n.Name} }),
	records.Index("external", func(n *neutron.Network) []string { return []string{fmt.Sprint(n.External)} }),
	records.Index("routed", func(n *neutron.Network) []string { return []string{fmt.Sprint(n.Routed())} }),
)

// Segment returns the unique key of a network's segment; id is 0 if the type has none.
func Segment(networkType, physicalNetwork string, id int) string {
	return fmt.Sprintf("%s/%s/%d", networkType, physicalNetwork, id)
}

// Subnets are deleted with their network.
var Subnets = records.NewTable("subnet", NeutronPrefix+"subnets/", func(s *neutron.Subnet) string { return s.ID },
	records.Ref("network", Networks, func(s *neutron.Subnet) []string { return []string{s.NetworkID} }, records.Cascade()),
	records.Ref("subnetpool", SubnetPools, func(s *neutron.Subnet) []string { return []string{s.SubnetPoolID} }, records.Refuse()),
	records.Index("pool_share", func(s *neutron.Subnet) []string {
		if s.SubnetPoolID == "" {
			return nil
		}
		return []string{PoolShare(s.SubnetPoolID, s.ProjectID, s.CIDR.Bits())}
	}),
	records.Index("project", func(s *neutron.Subnet) []string { return []string{s.ProjectID} }),
	records.Index("name", func(s *neutron.Subnet) []string { return []string{s.Name} }),
)

// SecurityGroups hold their rules. Deleting a group deletes the rules of other groups that allow
// its members. A project has one default group.
var SecurityGroups = records.NewTable("security-group", NeutronPrefix+"security-groups/", func(g *neutron.SecurityGroup) string { return g.ID },
	records.Ref("remote_group", records.Self(), remoteGroups, records.ClearWith(forgetRemoteGroup)),
	records.Ref("remote_address_group", AddressGroups, remoteAddressGroups, records.Refuse()),
	records.Unique("default", func(g *neutron.SecurityGroup) []string {
		if g.Name != DefaultGroup {
			return nil
		}
		return []string{g.ProjectID}
	}),
	records.Index("rule", func(g *neutron.SecurityGroup) []string {
		ids := make([]string, len(g.Rules))
		for i := range g.Rules {
			ids[i] = g.Rules[i].ID
		}
		return ids
	}),
	records.Index("project", func(g *neutron.SecurityGroup) []string { return []string{g.ProjectID} }),
	records.Index("name", func(g *neutron.SecurityGroup) []string { return []string{g.Name} }),
)

// DefaultGroup is the name of each project's default security group.
const DefaultGroup = "default"

func remoteGroups(g *neutron.SecurityGroup) []string {
	ids := make([]string, len(g.Rules))
	for i := range g.Rules {
		ids[i] = g.Rules[i].RemoteGroupID
	}
	return ids
}

func remoteAddressGroups(g *neutron.SecurityGroup) []string {
	var ids []string
	for i := range g.Rules {
		if id := g.Rules[i].RemoteAddressGroupID; id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func forgetRemoteGroup(g *neutron.SecurityGroup, target string) {
	g.Rules = slices.DeleteFunc(g.Rules, func(r neutron.SecurityGroupRule) bool { return r.RemoteGroupID == target })
}

// Ports are unique by MAC on a network, address on a subnet, tunnel key, and by interface and VLAN
// on a host.
var Ports = records.NewTable("port", NeutronPrefix+"ports/", func(p *neutron.Port) string { return p.ID },
	records.Ref("network", Networks, func(p *neutron.Port) []string { return []string{p.NetworkID} }, records.Refuse()),
	records.Ref("subnet", Subnets, func(p *neutron.Port) []string {
		ids := make([]string, len(p.FixedIPs))
		for i, ip := range p.FixedIPs {
			ids[i] = ip.SubnetID
		}
		return ids
	}, records.Refuse()),
	records.Ref("security_group", SecurityGroups, func(p *neutron.Port) []string { return p.SecurityGroups }, records.Refuse()),
	records.Ref("qos_policy", QoSPolicies, func(p *neutron.Port) []string { return []string{p.QoSPolicyID} }, records.Refuse()),
	records.Unique("mac", func(p *neutron.Port) []string { return []string{PortMAC(p.NetworkID, p.MACAddress)} }),
	records.Unique("ip", func(p *neutron.Port) []string {
		keys := make([]string, len(p.FixedIPs))
		for i, ip := range p.FixedIPs {
			keys[i] = PortIP(ip.SubnetID, ip.IPAddress)
		}
		return keys
	}),
	records.Unique("tunnel_key", func(p *neutron.Port) []string {
		if p.TunnelKey == 0 {
			return nil
		}
		return []string{TunnelKey(p.TunnelKey)}
	}),
	records.Unique("interface", func(p *neutron.Port) []string {
		if p.BoundHostID == "" || p.InterfaceName == "" {
			return nil
		}
		vlan := ""
		if p.SubportVLAN != 0 {
			vlan = "/" + strconv.Itoa(int(p.SubportVLAN))
		}
		names := []string{PortInterface(p.BoundHostID, p.InterfaceName) + vlan}
		if p.PreviousInterface != "" {
			names = append(names, PortInterface(p.PreviousHostID, p.PreviousInterface)+vlan)
		}
		return names
	}),
	records.Index("project", func(p *neutron.Port) []string { return []string{p.ProjectID} }),
	records.Index("name", func(p *neutron.Port) []string { return []string{p.Name} }),
	records.Index("device_id", func(p *neutron.Port) []string { return []string{p.DeviceID} }),
	records.Index("device_owner", func(p *neutron.Port) []string { return []string{p.DeviceOwner} }),
	records.Index("dhcp_subnet", func(p *neutron.Port) []string {
		var ids []string
		for _, ip := range p.FixedIPs {
			if p.DeviceOwner == "network:dhcp" && !slices.Contains(ids, ip.SubnetID) {
				ids = append(ids, ip.SubnetID)
			}
		}
		return ids
	}),
	records.Index("host", func(p *neutron.Port) []string { return []string{p.HostID} }),
	records.Index("bound_host", func(p *neutron.Port) []string { return []string{p.BoundHostID} }),
	records.Index("named", func(p *neutron.Port) []string {
		if p.DNSName == "" {
			return nil
		}
		return []string{"true"}
	}),
	records.Index("mac_address", func(p *neutron.Port) []string { return []string{p.MACAddress.String()} }),
	records.Index("ip_address", func(p *neutron.Port) []string {
		ips := make([]string, len(p.FixedIPs))
		for i, ip := range p.FixedIPs {
			ips[i] = ip.IPAddress.String()
		}
		return ips
	}),
)

// Routers are deleted after their ports.
var Routers = records.NewTable("router", NeutronPrefix+"routers/", func(r *neutron.Router) string { return r.ID },
	records.Ref("flavor", Flavors, func(r *neutron.Router) []string { return []string{r.FlavorID} }, records.Refuse()),
	records.Ref("qos_policy", QoSPolicies, gatewayPolicies, records.Refuse()),
	records.Index("project", func(r *neutron.Router) []string { return []string{r.ProjectID} }),
	records.Index("name", func(r *neutron.Router) []string { return []string{r.Name} }),
)

func gatewayPolicies(r *neutron.Router) []string {
	var ids []string
	for _, g := range r.Gateways {
		if !slices.Contains(ids, g.QoSPolicyID) {
			ids = append(ids, g.QoSPolicyID)
		}
	}
	return ids
}

// RouterPorts have the ids of their ports.
var RouterPorts = records.NewTable("router-port", NeutronPrefix+"router-ports/", func(p *neutron.RouterPort) string { return p.PortID },
	records.Ref("router", Routers, func(p *neutron.RouterPort) []string { return []string{p.RouterID} }, records.Refuse()),
	records.Ref("port", Ports, func(p *neutron.RouterPort) []string { return []string{p.PortID} }, records.Refuse()),
	records.Ref("subnet", Subnets, func(p *neutron.RouterPort) []string { return p.SubnetIDs }, records.Refuse()),
)

// PortMAC returns the unique key "mac" of a port.
func PortMAC(networkID string, mac packet.MAC) string { return networkID + "/" + mac.String() }

// PortIP returns the unique key "ip" of a port's address.
func PortIP(subnetID string, ip netip.Addr) string { return subnetID + "/" + ip.String() }

// TunnelKey returns the unique key "tunnel_key" of a port, or of a network's localnet port.
func TunnelKey(key uint32) string { return strconv.FormatUint(uint64(key), 10) }

// PortInterface returns the unique key "interface" of a bound port.
func PortInterface(hostID, name string) string { return hostID + "/" + name }

// AutoTopology names what the server has made for a project that asked for a network.
type AutoTopology struct {
	ProjectID string `json:"project_id"`
	NetworkID string `json:"network_id"`
	RouterID  string `json:"router_id,omitempty"` // "" once it was deleted by itself
}

// AutoTopologies has auto-allocated topologies by project. One goes with its network.
var AutoTopologies = records.NewTable("auto-topology", NeutronPrefix+"auto-topologies/", func(t *AutoTopology) string { return t.ProjectID },
	records.Ref("network", Networks, func(t *AutoTopology) []string { return []string{t.NetworkID} }, records.Cascade()),
	records.Ref("router", Routers, func(t *AutoTopology) []string { return []string{t.RouterID} },
		records.ClearWith(func(t *AutoTopology, _ string) { t.RouterID = "" })),
)

// Quota has a project's limits that differ from the defaults, by quota name; -1 = no limit.
type Quota struct {
	ProjectID string         `json:"project_id"`
	Limits    map[string]int `json:"limits"`
}

// Quotas has quotas by project.
var Quotas = records.NewTable("quota", NeutronPrefix+"quotas/", func(q *Quota) string { return q.ProjectID })

// PendingWork is an operation that was accepted, and is carried out by later commits.
type PendingWork struct {
	Kind     string `json:"kind"`
	ObjectID string `json:"object_id"`
	Nonce    string `json:"nonce"` // differs each time the same work is decided on
}

// PendingWorks has the work that is not finished.
var PendingWorks = records.NewDerivedTable("pending-work", NeutronPrefix+"pending/", func(w *PendingWork) string { return PendingWorkID(w.Kind, w.ObjectID) })

// PendingWorkID returns the id of a pending work.
func PendingWorkID(kind, objectID string) string { return kind + "/" + objectID }

// Bundle is the topology of one Neutron object.
type Bundle struct {
	Owner  topology.Owner  `json:"owner"`
	Bundle topology.Bundle `json:"bundle"`
}

// Bundles has the topology that the overlay simulates. Ids are "<kind>/<id>" of the owner. The
// ports of service containers, which are no ports of Neutron, have unique tunnel keys here.
var Bundles = records.NewDerivedTable("topology", TopologyPrefix, func(b *Bundle) string { return BundleID(b.Owner) },
	records.Unique("container_key", containerKeys),
	records.Index("container_router", containerRouters),
)

// BundleID returns the id of an owner's bundle.
func BundleID(o topology.Owner) string { return o.Kind + "/" + o.ID }

// Hosts have unique names. Servers write these records when a host joins. Look them up with
// [HostByName] and [FindHost].
var Hosts = records.NewTable("host", HostsPrefix, func(h *topology.Host) string { return h.ID },
	records.Unique("name", func(h *topology.Host) []string { return []string{h.Name} }),
	records.Index("agent", agentsOf),
)

// TunnelZones have unique names.
var TunnelZones = records.NewTable("tunnel-zone", TunnelZonesPrefix, func(z *topology.TunnelZone) string { return z.ID },
	records.Unique("name", func(z *topology.TunnelZone) []string { return []string{z.Name} }),
)

// HostLease is the time for which a host counts as alive after the last word of its agent.
const HostLease = 15 * time.Second

// Reports of hosts, each below the host's key and, unless its table says otherwise, under its
// lease. Ids begin with the host's.
var (
	// HostStates has the hosts that are alive, by id.
	HostStates = records.NewDerivedTable("host-state", StatePrefix+"*/alive", func(s *topology.HostState) string { return s.HostID })

	// DisplacedAgents has the agents that yield to another one of the same host, each under a lease
	// of its own: "<host>/<instance>".
	DisplacedAgents = records.NewDerivedTable("displaced-agent", StatePrefix+"*"+DisplacedAgentsTail,
		func(d *topology.DisplacedAgent) string { return d.HostID + "/" + d.Instance })

	// TunnelKeys are under no lease: they count until the host publishes others or is removed.
	TunnelKeys = records.NewDerivedTable("tunnel-keys", StatePrefix+"*/tunnel-keys", func(k *topology.TunnelKeys) string { return k.HostID })

	// PoolHosts has the hosts that are alive in a XenAPI pool; the id is XenRef of the host's.
	PoolHosts = records.NewDerivedTable("pool-host", XenPrefix+"state/*/alive", func(m *topology.PoolHost) string { return m.Host })

	// PortStates has the ports that are served: "<host>/<port>".
	PortStates = records.NewDerivedTable("port-state", StatePrefix+"*/ports/",
		func(s *topology.PortState) string { return s.HostID + "/" + s.PortID },
		records.Index("port", func(s *topology.PortState) []string { return []string{s.PortID} }))

	// PortArrivals has the ports whose machines run on a host that they are to be bound to:
	// "<host>/<port>".
	PortArrivals = records.NewDerivedTable("port-arrival", StatePrefix+"*/arrivals/",
		func(a *topology.PortArrival) string { return a.HostID + "/" + a.PortID })

	// LearnedMACs are "<host>/<network>/<vlan>/<mac>".
	LearnedMACs = records.NewDerivedTable("learned-mac", StatePrefix+"*/macs/",
		func(m *topology.LearnedMAC) string {
			return fmt.Sprintf("%s/%s/%d/%s", m.HostID, m.NetworkID, m.VLAN, m.MAC)
		},
		records.Index("network", func(m *topology.LearnedMAC) []string { return []string{m.NetworkID} }),
		records.Index("host_network", func(m *topology.LearnedMAC) []string { return []string{m.HostID + "/" + m.NetworkID} }))

	// LearnedNeighbours are "<host>/<network>/<ip>".
	LearnedNeighbours = records.NewDerivedTable("learned-neighbour", StatePrefix+"*/neighbours/",
		func(n *topology.LearnedNeighbour) string { return n.HostID + "/" + n.NetworkID + "/" + n.IP.String() },
		records.Index("host_network", func(n *topology.LearnedNeighbour) []string { return []string{n.HostID + "/" + n.NetworkID} }))

	// NATBlocks has hosts' claims to blocks of NAT ports, as "<host>/<router>/<address>/<block>",
	// under a lease of their own. As no host can write below another's key, the key cannot make a
	// block exclusive: of several claims to one block that with the lowest create revision counts.
	NATBlocks = records.NewDerivedTable("nat-block", StatePrefix+"*"+NATPortsTail,
		func(b *topology.NATBlock) string {
			return fmt.Sprintf("%s/%s/%s/%d", b.HostID, b.DeviceID, b.Address, b.Block)
		},
		records.Index("address", func(b *topology.NATBlock) []string { return []string{NATAddress(b.DeviceID, b.Address)} }),
		records.Index("host", func(b *topology.NATBlock) []string { return []string{b.HostID} }))

	// MemberHealths are "<host>/<member>", under a lease of their own: the verdicts of a host that
	// is lost count until another host checks the members.
	MemberHealths = records.NewDerivedTable("member-health", StatePrefix+"*"+MemberHealthsTail,
		func(h *topology.MemberHealth) string { return h.HostID + "/" + h.MemberID },
		records.Index("member", func(h *topology.MemberHealth) []string { return []string{h.MemberID} }))

	// VipTraffics are "<host>/<VIP>".
	VipTraffics = records.NewDerivedTable("vip-traffic", StatePrefix+"*/vips/",
		func(v *topology.VipTraffic) string { return v.HostID + "/" + v.VipID },
		records.Index("vip", func(v *topology.VipTraffic) []string { return []string{v.VipID} }))

	// ContainerHosts has the hosts that run service containers, by id.
	ContainerHosts = records.NewDerivedTable("container-host", StatePrefix+"*/container-host", func(h *topology.ContainerHost) string { return h.HostID })

	// ContainerStates are "<host>/<container>".
	ContainerStates = records.NewDerivedTable("container-state", StatePrefix+"*/container/",
		func(s *topology.ContainerState) string { return s.HostID + "/" + s.ContainerID },
		records.Index("container", func(s *topology.ContainerState) []string { return []string{s.ContainerID} }))

	// LearnedRoutes are "<host>/<port>/<block>".
	LearnedRoutes = records.NewDerivedTable("learned-routes", StatePrefix+"*/routes/",
		func(l *topology.LearnedRoutes) string { return fmt.Sprintf("%s/%s/%d", l.HostID, l.PortID, l.Block) },
		records.Index("port", func(l *topology.LearnedRoutes) []string { return []string{l.PortID} }))

	// BGPStates are "<host>/<port>", of the port that leads to the speaker's container.
	BGPStates = records.NewDerivedTable("bgp-state", StatePrefix+"*/bgp/",
		func(s *topology.BgpState) string { return s.HostID + "/" + s.PortID },
		records.Index("router", func(s *topology.BgpState) []string { return []string{s.RouterID} }))

	// TraceAnswers are "<host>/<request>".
	TraceAnswers = records.NewDerivedTable("trace-answer", StatePrefix+"*/traces/",
		func(a *flow.TraceAnswer) string { return a.HostID + "/" + a.ID })
)

// PolicyAnswers has the policy agents' answers to trace requests, as "<host>/<request>", each under
// a lease of its own.
var PolicyAnswers = records.NewDerivedTable("policy-answer", StatePrefix+"*"+PolicyAnswersTail,
	func(a *flow.TraceAnswer) string { return a.HostID + "/" + a.ID })

// PolicyAnswersTail follows the host's id in the keys of PolicyAnswers.
const PolicyAnswersTail = "/policy-answers/"

// NATPortsTail follows the host's id in the keys of NATBlocks.
const NATPortsTail = "/nat-ports/"

// MemberHealthsTail likewise in those of MemberHealths.
const MemberHealthsTail = "/pool-members/"

// DisplacedAgentsTail likewise in those of DisplacedAgents.
const DisplacedAgentsTail = "/displaced/"

// MetadataKeyTail likewise in those of MetadataKeys.
const MetadataKeyTail = "/metadata-key"

// NATAddress returns the value of the index "address" of a router's translated address.
func NATAddress(deviceID string, address netip.Addr) string { return deviceID + "/" + address.String() }

// TraceRequests are "<host>/<request>", under the client's lease.
var TraceRequests = records.NewDerivedTable("trace-request", TraceRequestsPrefix+"*/",
	func(r *flow.TraceRequest) string { return r.HostID + "/" + r.ID })

// AliveHosts returns how many hosts have an agent that reports, including that of a XenAPI pool.
func AliveHosts(r records.Reader) int {
	alive := 0
	for h := range Hosts.All(r) {
		_, virtual := HostStates.Peek(r, h.ID)
		_, pool := PoolHosts.Peek(r, XenRef(h.ID))
		if virtual || pool {
			alive++
		}
	}
	return alive
}

// XenRef returns the XenAPI's reference to the host with this id.
func XenRef(hostID string) string { return "OpaqueRef:" + hostID }

// All returns the tables of a server's replica.
func All() []snapshot.Table {
	return []snapshot.Table{
		Networks, Subnets, SecurityGroups, Ports, Routers, RouterPorts, FloatingIPs, PortForwardings, NDPProxies, MeteringLabels, MeteringLabelRules, Logs, FirewallRules, FirewallPolicies, Firewalls,
		LoggingResources, FirewallLogs,
		FirewallGroupRules, FirewallGroupPolicies, FirewallGroups,
		RBACPolicies,
		Trunks, Subports,
		ScheduledNetworks, ScheduledRouters, Flavors, ServiceProfiles, Segments, SegmentRanges,
		QoSPolicies,
		AddressGroups, AddressBlocks, DefaultRules,
		LocalIPs, LocalIPAssociations,
		AddressScopes, SubnetPools, FreeRanges,
		AutoTopologies,
		BGPSpeakers, BGPPeers, BGPPasswords,
		PortMetadatas, Instances,
		TapServices, TapFlows,
		GatewayDevices, RemoteMACEntries, L2Gateways, L2GatewayConnections, LearnedRemotes, GatewayStates,
		LoadBalancers, Listeners, LBPools, LBMembers, HealthMonitors, VIPs, LBQuotas,
		Quotas, PendingWorks, Bundles, ContainerBindings, Servers, Hosts, Underlays, Agents, TunnelZones,
		HostStates, DisplacedAgents, PoolHosts, TunnelKeys, MetadataKeys, PortStates, PortArrivals, LearnedMACs, LearnedNeighbours, MemberHealths, VipTraffics, ContainerHosts, ContainerStates, LearnedRoutes, BGPStates, TraceAnswers, TraceRequests,
	}
}
