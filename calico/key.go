package calico

import "net/netip"

// Key is the key of one object in etcd. Each implementation is a comparable struct, so that keys serve in maps.
type Key interface {
	// Kind is the kind of object that lies there.
	Kind() Kind
	// Path is the key's text in etcd, with names escaped as the model wants it. It ends without a slash. An error
	// names the part that cannot be written.
	Path() (string, error)

	parts() parts
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

// Kinds are the kinds of keys.
func Kinds() []Kind {
	return []Kind{
		KindWorkloadEndpoint, KindWorkloadEndpointStatus, KindHostEndpoint, KindHostEndpointStatus,
		KindProfileRules, KindProfileTags, KindProfileLabels, KindProfileRefcount, KindPolicy, KindTier,
		KindHostIP, KindHostMetadata, KindOrchRefs, KindIPAMHost, KindAgentStatus, KindAgentLastStatus,
		KindGlobalConfig, KindHostConfig, KindBGPGlobalConfig, KindBGPNodeConfig,
		KindIPPool, KindIPAMBlock, KindIPAMBlockAffinity, KindBGPGlobalPeer, KindBGPNodePeer, KindIPAMHandle,
		KindDHCPSubnet, KindReady, KindIPAMConfig, KindNeutronElection,
	}
}

// EmptyKey is the key of a kind without any part, as [Prefixes] and [Matches] take it; nil for what is no kind of key.
func EmptyKey(kind Kind) Key {
	p := parts{kind: kind}
	return p.key()
}

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
