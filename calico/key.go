package calico

import "net/netip"

// Key is the key of one object in etcd. Implementations are comparable structs.
type Key interface {
	// Kind is the kind of object that lies there.
	Kind() Kind
	// Path is the key's text in etcd, with names escaped as the model wants it. It ends without a
	// slash. An error names the part that cannot be written.
	Path() (string, error)

	isKey() // only the types of this package are keys
}

// Kind names a kind of object, as `heddle calico key` prints it.
type Kind string

// The kinds.
const (
	KindWorkloadEndpoint       Kind = "WorkloadEndpoint"
	KindWorkloadEndpointStatus Kind = "WorkloadEndpointStatus"
	KindHostEndpoint           Kind = "HostEndpoint"
	KindHostEndpointStatus     Kind = "HostEndpointStatus"
	KindProfileRules           Kind = "ProfileRules"
	KindProfileTags            Kind = "ProfileTags"
	KindProfileLabels          Kind = "ProfileLabels"
	KindProfileRefcount        Kind = "ProfileRefcount"
	KindPolicy                 Kind = "Policy"
	KindTier                   Kind = "Tier"
	KindHostIP                 Kind = "HostIP"
	KindHostMetadata           Kind = "HostMetadata"
	KindOrchRefs               Kind = "OrchRefs"
	KindIPAMHost               Kind = "IPAMHost"
	KindAgentStatus            Kind = "AgentStatus"
	KindAgentLastStatus        Kind = "AgentLastStatus"
	KindGlobalConfig           Kind = "GlobalConfig"
	KindHostConfig             Kind = "HostConfig"
	KindBGPGlobalConfig        Kind = "BGPGlobalConfig"
	KindBGPNodeConfig          Kind = "BGPNodeConfig"
	KindIPPool                 Kind = "IPPool"
	KindIPAMBlock              Kind = "IPAMBlock"
	KindIPAMBlockAffinity      Kind = "IPAMBlockAffinity"
	KindBGPGlobalPeer          Kind = "BGPGlobalPeer"
	KindBGPNodePeer            Kind = "BGPNodePeer"
	KindIPAMHandle             Kind = "IPAMHandle"
	KindDHCPSubnet             Kind = "DHCPSubnet"
	KindReady                  Kind = "Ready"
	KindIPAMConfig             Kind = "IPAMConfig"
	KindNeutronElection        Kind = "NeutronElection"
)

// The kinds of two values that lie at keys of several kinds. No key is of such a kind.
const (
	KindBGPPeer  Kind = "BGPPeer"
	KindNodeMesh Kind = "NodeMesh"
)

// OpenStack is the orchestrator of the endpoints that Neutron makes of its ports. Their workload is
// the machine, or the port if that has none, and their endpoint the port.
const OpenStack = "openstack"

// The keys of endpoints and of what agents say about them. Legacy keys lie in the tree of seed 000.
type (
	WorkloadEndpointKey struct {
		Host, Orchestrator, Workload, Endpoint string
		Legacy                                 bool
	}
	WorkloadEndpointStatusKey struct{ Host, Orchestrator, Workload, Endpoint string }
	HostEndpointKey           struct{ Host, Endpoint string }
	HostEndpointStatusKey     struct{ Host, Endpoint string }
)

// The keys of policy.
type (
	ProfileRulesKey struct {
		Profile string
		Legacy  bool
	}
	ProfileTagsKey struct {
		Profile string
		Legacy  bool
	}
	ProfileLabelsKey   struct{ Profile string }
	ProfileRefcountKey struct{ Profile string } // of the legacy tree only
	PolicyKey          struct{ Tier, Policy string }
	TierKey            struct{ Tier string }
)

// The keys of hosts and of configuration. A config's Name is the rest of its path.
type (
	HostIPKey          struct{ Host string }
	HostMetadataKey    struct{ Host string }
	OrchRefsKey        struct{ Host string }
	AgentStatusKey     struct{ Host string }
	AgentLastStatusKey struct{ Host string }
	GlobalConfigKey    struct{ Name string }
	HostConfigKey      struct{ Host, Name string }
	ReadyKey           struct{}
	DHCPSubnetKey      struct{ Subnet string }
	NeutronElectionKey struct{}
)

// The keys of address management.
type (
	PoolKey          struct{ CIDR netip.Prefix }
	BlockKey         struct{ CIDR netip.Prefix }
	BlockAffinityKey struct {
		Host string
		CIDR netip.Prefix
	}
	HandleKey     struct{ Handle string }
	IPAMHostKey   struct{ Host string }
	IPAMConfigKey struct{}
)

// The keys of BGP.
type (
	BGPGlobalConfigKey struct{ Name string }
	BGPNodeConfigKey   struct{ Host, Name string }
	BGPGlobalPeerKey   struct{ IP netip.Addr }
	BGPNodePeerKey     struct {
		Host string
		IP   netip.Addr
	}
)

// The methods of [Key], which the table of shapes implements.

func (WorkloadEndpointKey) isKey()       {}
func (WorkloadEndpointStatusKey) isKey() {}
func (HostEndpointKey) isKey()           {}
func (HostEndpointStatusKey) isKey()     {}
func (ProfileRulesKey) isKey()           {}
func (ProfileTagsKey) isKey()            {}
func (ProfileLabelsKey) isKey()          {}
func (ProfileRefcountKey) isKey()        {}
func (PolicyKey) isKey()                 {}
func (TierKey) isKey()                   {}
func (HostIPKey) isKey()                 {}
func (HostMetadataKey) isKey()           {}
func (OrchRefsKey) isKey()               {}
func (IPAMHostKey) isKey()               {}
func (AgentStatusKey) isKey()            {}
func (AgentLastStatusKey) isKey()        {}
func (GlobalConfigKey) isKey()           {}
func (HostConfigKey) isKey()             {}
func (BGPGlobalConfigKey) isKey()        {}
func (BGPNodeConfigKey) isKey()          {}
func (PoolKey) isKey()                   {}
func (BlockKey) isKey()                  {}
func (BlockAffinityKey) isKey()          {}
func (BGPGlobalPeerKey) isKey()          {}
func (BGPNodePeerKey) isKey()            {}
func (HandleKey) isKey()                 {}
func (DHCPSubnetKey) isKey()             {}
func (ReadyKey) isKey()                  {}
func (IPAMConfigKey) isKey()             {}
func (NeutronElectionKey) isKey()        {}

func (WorkloadEndpointKey) Kind() Kind       { return KindWorkloadEndpoint }
func (WorkloadEndpointStatusKey) Kind() Kind { return KindWorkloadEndpointStatus }
func (HostEndpointKey) Kind() Kind           { return KindHostEndpoint }
func (HostEndpointStatusKey) Kind() Kind     { return KindHostEndpointStatus }
func (ProfileRulesKey) Kind() Kind           { return KindProfileRules }
func (ProfileTagsKey) Kind() Kind            { return KindProfileTags }
func (ProfileLabelsKey) Kind() Kind          { return KindProfileLabels }
func (ProfileRefcountKey) Kind() Kind        { return KindProfileRefcount }
func (PolicyKey) Kind() Kind                 { return KindPolicy }
func (TierKey) Kind() Kind                   { return KindTier }
func (HostIPKey) Kind() Kind                 { return KindHostIP }
func (HostMetadataKey) Kind() Kind           { return KindHostMetadata }
func (OrchRefsKey) Kind() Kind               { return KindOrchRefs }
func (IPAMHostKey) Kind() Kind               { return KindIPAMHost }
func (AgentStatusKey) Kind() Kind            { return KindAgentStatus }
func (AgentLastStatusKey) Kind() Kind        { return KindAgentLastStatus }
func (GlobalConfigKey) Kind() Kind           { return KindGlobalConfig }
func (HostConfigKey) Kind() Kind             { return KindHostConfig }
func (BGPGlobalConfigKey) Kind() Kind        { return KindBGPGlobalConfig }
func (BGPNodeConfigKey) Kind() Kind          { return KindBGPNodeConfig }
func (PoolKey) Kind() Kind                   { return KindIPPool }
func (BlockKey) Kind() Kind                  { return KindIPAMBlock }
func (BlockAffinityKey) Kind() Kind          { return KindIPAMBlockAffinity }
func (BGPGlobalPeerKey) Kind() Kind          { return KindBGPGlobalPeer }
func (BGPNodePeerKey) Kind() Kind            { return KindBGPNodePeer }
func (HandleKey) Kind() Kind                 { return KindIPAMHandle }
func (DHCPSubnetKey) Kind() Kind             { return KindDHCPSubnet }
func (ReadyKey) Kind() Kind                  { return KindReady }
func (IPAMConfigKey) Kind() Kind             { return KindIPAMConfig }
func (NeutronElectionKey) Kind() Kind        { return KindNeutronElection }

func (k WorkloadEndpointKey) Path() (string, error)       { return path(k) }
func (k WorkloadEndpointStatusKey) Path() (string, error) { return path(k) }
func (k HostEndpointKey) Path() (string, error)           { return path(k) }
func (k HostEndpointStatusKey) Path() (string, error)     { return path(k) }
func (k ProfileRulesKey) Path() (string, error)           { return path(k) }
func (k ProfileTagsKey) Path() (string, error)            { return path(k) }
func (k ProfileLabelsKey) Path() (string, error)          { return path(k) }
func (k ProfileRefcountKey) Path() (string, error)        { return path(k) }
func (k PolicyKey) Path() (string, error)                 { return path(k) }
func (k TierKey) Path() (string, error)                   { return path(k) }
func (k HostIPKey) Path() (string, error)                 { return path(k) }
func (k HostMetadataKey) Path() (string, error)           { return path(k) }
func (k OrchRefsKey) Path() (string, error)               { return path(k) }
func (k IPAMHostKey) Path() (string, error)               { return path(k) }
func (k AgentStatusKey) Path() (string, error)            { return path(k) }
func (k AgentLastStatusKey) Path() (string, error)        { return path(k) }
func (k GlobalConfigKey) Path() (string, error)           { return path(k) }
func (k HostConfigKey) Path() (string, error)             { return path(k) }
func (k BGPGlobalConfigKey) Path() (string, error)        { return path(k) }
func (k BGPNodeConfigKey) Path() (string, error)          { return path(k) }
func (k PoolKey) Path() (string, error)                   { return path(k) }
func (k BlockKey) Path() (string, error)                  { return path(k) }
func (k BlockAffinityKey) Path() (string, error)          { return path(k) }
func (k BGPGlobalPeerKey) Path() (string, error)          { return path(k) }
func (k BGPNodePeerKey) Path() (string, error)            { return path(k) }
func (k HandleKey) Path() (string, error)                 { return path(k) }
func (k DHCPSubnetKey) Path() (string, error)             { return path(k) }
func (k ReadyKey) Path() (string, error)                  { return path(k) }
func (k IPAMConfigKey) Path() (string, error)             { return path(k) }
func (k NeutronElectionKey) Path() (string, error)        { return path(k) }
