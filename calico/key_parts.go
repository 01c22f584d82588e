package calico

import "net/netip"

// parts are those of any key; each kind has some of them. Parsing, writing and matching work on parts alone.
type parts struct {
	kind                                     Kind
	legacy                                   bool
	host, orchestrator, workload, tier, name string
	cidr                                     netip.Prefix
	ip                                       netip.Addr
}

// key is the key that has these parts.
func (p *parts) key() Key {
	switch p.kind {
	case KindWorkloadEndpoint:
		return WorkloadEndpointKey{Host: p.host, Orchestrator: p.orchestrator, Workload: p.workload, Endpoint: p.name, Legacy: p.legacy}
	case KindWorkloadEndpointStatus:
		return WorkloadEndpointStatusKey{Host: p.host, Orchestrator: p.orchestrator, Workload: p.workload, Endpoint: p.name}
	case KindHostEndpoint:
		return HostEndpointKey{Host: p.host, Endpoint: p.name}
	case KindHostEndpointStatus:
		return HostEndpointStatusKey{Host: p.host, Endpoint: p.name}
	case KindProfileRules:
		return ProfileRulesKey{Profile: p.name, Legacy: p.legacy}
	case KindProfileTags:
		return ProfileTagsKey{Profile: p.name, Legacy: p.legacy}
	case KindProfileLabels:
		return ProfileLabelsKey{Profile: p.name}
	case KindProfileRefcount:
		return ProfileRefcountKey{Profile: p.name}
	case KindPolicy:
		return PolicyKey{Tier: p.tier, Policy: p.name}
	case KindTier:
		return TierKey{Tier: p.tier}
	case KindHostIP:
		return HostIPKey{Host: p.host}
	case KindHostMetadata:
		return HostMetadataKey{Host: p.host}
	case KindOrchRefs:
		return OrchRefsKey{Host: p.host}
	case KindAgentStatus:
		return AgentStatusKey{Host: p.host}
	case KindAgentLastStatus:
		return AgentLastStatusKey{Host: p.host}
	case KindGlobalConfig:
		return GlobalConfigKey{Name: p.name}
	case KindHostConfig:
		return HostConfigKey{Host: p.host, Name: p.name}
	case KindReady:
		return ReadyKey{}
	case KindDHCPSubnet:
		return DHCPSubnetKey{Subnet: p.name}
	case KindNeutronElection:
		return NeutronElectionKey{}
	case KindIPPool:
		return PoolKey{CIDR: p.cidr}
	case KindIPAMBlock:
		return BlockKey{CIDR: p.cidr}
	case KindIPAMBlockAffinity:
		return BlockAffinityKey{Host: p.host, CIDR: p.cidr}
	case KindIPAMHandle:
		return HandleKey{Handle: p.name}
	case KindIPAMHost:
		return IPAMHostKey{Host: p.host}
	case KindIPAMConfig:
		return IPAMConfigKey{}
	case KindBGPGlobalConfig:
		return BGPGlobalConfigKey{Name: p.name}
	case KindBGPNodeConfig:
		return BGPNodeConfigKey{Host: p.host, Name: p.name}
	case KindBGPGlobalPeer:
		return BGPGlobalPeerKey{IP: p.ip}
	case KindBGPNodePeer:
		return BGPNodePeerKey{Host: p.host, IP: p.ip}
	}
	return nil
}

// fill sets *key, a pointer to a key type, if it is the one for these parts. Unlike key it allocates nothing.
func (p *parts) fill(key any) bool {
	switch k := key.(type) {
	case *WorkloadEndpointKey:
		*k = WorkloadEndpointKey{Host: p.host, Orchestrator: p.orchestrator, Workload: p.workload, Endpoint: p.name, Legacy: p.legacy}
		return p.kind == KindWorkloadEndpoint
	case *WorkloadEndpointStatusKey:
		*k = WorkloadEndpointStatusKey{Host: p.host, Orchestrator: p.orchestrator, Workload: p.workload, Endpoint: p.name}
		return p.kind == KindWorkloadEndpointStatus
	case *HostEndpointKey:
		*k = HostEndpointKey{Host: p.host, Endpoint: p.name}
		return p.kind == KindHostEndpoint
	case *HostEndpointStatusKey:
		*k = HostEndpointStatusKey{Host: p.host, Endpoint: p.name}
		return p.kind == KindHostEndpointStatus
	case *ProfileRulesKey:
		*k = ProfileRulesKey{Profile: p.name, Legacy: p.legacy}
		return p.kind == KindProfileRules
	case *ProfileTagsKey:
		*k = ProfileTagsKey{Profile: p.name, Legacy: p.legacy}
		return p.kind == KindProfileTags
	case *ProfileLabelsKey:
		*k = ProfileLabelsKey{Profile: p.name}
		return p.kind == KindProfileLabels
	case *ProfileRefcountKey:
		*k = ProfileRefcountKey{Profile: p.name}
		return p.kind == KindProfileRefcount
	case *PolicyKey:
		*k = PolicyKey{Tier: p.tier, Policy: p.name}
		return p.kind == KindPolicy
	case *TierKey:
		*k = TierKey{Tier: p.tier}
		return p.kind == KindTier
	case *HostIPKey:
		*k = HostIPKey{Host: p.host}
		return p.kind == KindHostIP
	case *HostMetadataKey:
		*k = HostMetadataKey{Host: p.host}
		return p.kind == KindHostMetadata
	case *OrchRefsKey:
		*k = OrchRefsKey{Host: p.host}
		return p.kind == KindOrchRefs
	case *AgentStatusKey:
		*k = AgentStatusKey{Host: p.host}
		return p.kind == KindAgentStatus
	case *AgentLastStatusKey:
		*k = AgentLastStatusKey{Host: p.host}
		return p.kind == KindAgentLastStatus
	case *GlobalConfigKey:
		*k = GlobalConfigKey{Name: p.name}
		return p.kind == KindGlobalConfig
	case *HostConfigKey:
		*k = HostConfigKey{Host: p.host, Name: p.name}
		return p.kind == KindHostConfig
	case *ReadyKey:
		return p.kind == KindReady
	case *DHCPSubnetKey:
		*k = DHCPSubnetKey{Subnet: p.name}
		return p.kind == KindDHCPSubnet
	case *NeutronElectionKey:
		return p.kind == KindNeutronElection
	case *PoolKey:
		*k = PoolKey{CIDR: p.cidr}
		return p.kind == KindIPPool
	case *BlockKey:
		*k = BlockKey{CIDR: p.cidr}
		return p.kind == KindIPAMBlock
	case *BlockAffinityKey:
		*k = BlockAffinityKey{Host: p.host, CIDR: p.cidr}
		return p.kind == KindIPAMBlockAffinity
	case *HandleKey:
		*k = HandleKey{Handle: p.name}
		return p.kind == KindIPAMHandle
	case *IPAMHostKey:
		*k = IPAMHostKey{Host: p.host}
		return p.kind == KindIPAMHost
	case *IPAMConfigKey:
		return p.kind == KindIPAMConfig
	case *BGPGlobalConfigKey:
		*k = BGPGlobalConfigKey{Name: p.name}
		return p.kind == KindBGPGlobalConfig
	case *BGPNodeConfigKey:
		*k = BGPNodeConfigKey{Host: p.host, Name: p.name}
		return p.kind == KindBGPNodeConfig
	case *BGPGlobalPeerKey:
		*k = BGPGlobalPeerKey{IP: p.ip}
		return p.kind == KindBGPGlobalPeer
	case *BGPNodePeerKey:
		*k = BGPNodePeerKey{Host: p.host, IP: p.ip}
		return p.kind == KindBGPNodePeer
	}
	return false
}

func (k WorkloadEndpointKey) parts() parts {
	return parts{kind: KindWorkloadEndpoint, host: k.Host, orchestrator: k.Orchestrator, workload: k.Workload, name: k.Endpoint, legacy: k.Legacy}
}

func (k WorkloadEndpointStatusKey) parts() parts {
	return parts{kind: KindWorkloadEndpointStatus, host: k.Host, orchestrator: k.Orchestrator, workload: k.Workload, name: k.Endpoint}
}

func (k HostEndpointKey) parts() parts {
	return parts{kind: KindHostEndpoint, host: k.Host, name: k.Endpoint}
}

func (k HostEndpointStatusKey) parts() parts {
	return parts{kind: KindHostEndpointStatus, host: k.Host, name: k.Endpoint}
}

func (k ProfileRulesKey) parts() parts {
	return parts{kind: KindProfileRules, name: k.Profile, legacy: k.Legacy}
}

func (k ProfileTagsKey) parts() parts {
	return parts{kind: KindProfileTags, name: k.Profile, legacy: k.Legacy}
}

func (k ProfileLabelsKey) parts() parts {
	return parts{kind: KindProfileLabels, name: k.Profile}
}

func (k ProfileRefcountKey) parts() parts {
	return parts{kind: KindProfileRefcount, name: k.Profile}
}

func (k PolicyKey) parts() parts {
	return parts{kind: KindPolicy, tier: k.Tier, name: k.Policy}
}

func (k TierKey) parts() parts {
	return parts{kind: KindTier, tier: k.Tier}
}

func (k HostIPKey) parts() parts {
	return parts{kind: KindHostIP, host: k.Host}
}

func (k HostMetadataKey) parts() parts {
	return parts{kind: KindHostMetadata, host: k.Host}
}

func (k OrchRefsKey) parts() parts {
	return parts{kind: KindOrchRefs, host: k.Host}
}

func (k AgentStatusKey) parts() parts {
	return parts{kind: KindAgentStatus, host: k.Host}
}

func (k AgentLastStatusKey) parts() parts {
	return parts{kind: KindAgentLastStatus, host: k.Host}
}

func (k GlobalConfigKey) parts() parts {
	return parts{kind: KindGlobalConfig, name: k.Name}
}

func (k HostConfigKey) parts() parts {
	return parts{kind: KindHostConfig, host: k.Host, name: k.Name}
}

func (ReadyKey) parts() parts {
	return parts{kind: KindReady}
}

func (k DHCPSubnetKey) parts() parts {
	return parts{kind: KindDHCPSubnet, name: k.Subnet}
}

func (NeutronElectionKey) parts() parts {
	return parts{kind: KindNeutronElection}
}

func (k PoolKey) parts() parts {
	return parts{kind: KindIPPool, cidr: k.CIDR}
}

func (k BlockKey) parts() parts {
	return parts{kind: KindIPAMBlock, cidr: k.CIDR}
}

func (k BlockAffinityKey) parts() parts {
	return parts{kind: KindIPAMBlockAffinity, host: k.Host, cidr: k.CIDR}
}

func (k HandleKey) parts() parts {
	return parts{kind: KindIPAMHandle, name: k.Handle}
}

func (k IPAMHostKey) parts() parts {
	return parts{kind: KindIPAMHost, host: k.Host}
}

func (IPAMConfigKey) parts() parts {
	return parts{kind: KindIPAMConfig}
}

func (k BGPGlobalConfigKey) parts() parts {
	return parts{kind: KindBGPGlobalConfig, name: k.Name}
}

func (k BGPNodeConfigKey) parts() parts {
	return parts{kind: KindBGPNodeConfig, host: k.Host, name: k.Name}
}

func (k BGPGlobalPeerKey) parts() parts {
	return parts{kind: KindBGPGlobalPeer, ip: k.IP}
}

func (k BGPNodePeerKey) parts() parts {
	return parts{kind: KindBGPNodePeer, host: k.Host, ip: k.IP}
}

// Kind is KindWorkloadEndpoint.
func (WorkloadEndpointKey) Kind() Kind { return KindWorkloadEndpoint }

// Kind is KindWorkloadEndpointStatus.
func (WorkloadEndpointStatusKey) Kind() Kind { return KindWorkloadEndpointStatus }

// Kind is KindHostEndpoint.
func (HostEndpointKey) Kind() Kind { return KindHostEndpoint }

// Kind is KindHostEndpointStatus.
func (HostEndpointStatusKey) Kind() Kind { return KindHostEndpointStatus }

// Kind is KindProfileRules.
func (ProfileRulesKey) Kind() Kind { return KindProfileRules }

// Kind is KindProfileTags.
func (ProfileTagsKey) Kind() Kind { return KindProfileTags }

// Kind is KindProfileLabels.
func (ProfileLabelsKey) Kind() Kind { return KindProfileLabels }

// Kind is KindProfileRefcount.
func (ProfileRefcountKey) Kind() Kind { return KindProfileRefcount }

// Kind is KindPolicy.
func (PolicyKey) Kind() Kind { return KindPolicy }

// Kind is KindTier.
func (TierKey) Kind() Kind { return KindTier }

// Kind is KindHostIP.
func (HostIPKey) Kind() Kind { return KindHostIP }

// Kind is KindHostMetadata.
func (HostMetadataKey) Kind() Kind { return KindHostMetadata }

// Kind is KindOrchRefs.
func (OrchRefsKey) Kind() Kind { return KindOrchRefs }

// Kind is KindAgentStatus.
func (AgentStatusKey) Kind() Kind { return KindAgentStatus }

// Kind is KindAgentLastStatus.
func (AgentLastStatusKey) Kind() Kind { return KindAgentLastStatus }

// Kind is KindGlobalConfig.
func (GlobalConfigKey) Kind() Kind { return KindGlobalConfig }

// Kind is KindHostConfig.
func (HostConfigKey) Kind() Kind { return KindHostConfig }

// Kind is KindReady.
func (ReadyKey) Kind() Kind { return KindReady }

// Kind is KindDHCPSubnet.
func (DHCPSubnetKey) Kind() Kind { return KindDHCPSubnet }

// Kind is KindNeutronElection.
func (NeutronElectionKey) Kind() Kind { return KindNeutronElection }

// Kind is KindIPPool.
func (PoolKey) Kind() Kind { return KindIPPool }

// Kind is KindIPAMBlock.
func (BlockKey) Kind() Kind { return KindIPAMBlock }

// Kind is KindIPAMBlockAffinity.
func (BlockAffinityKey) Kind() Kind { return KindIPAMBlockAffinity }

// Kind is KindIPAMHandle.
func (HandleKey) Kind() Kind { return KindIPAMHandle }

// Kind is KindIPAMHost.
func (IPAMHostKey) Kind() Kind { return KindIPAMHost }

// Kind is KindIPAMConfig.
func (IPAMConfigKey) Kind() Kind { return KindIPAMConfig }

// Kind is KindBGPGlobalConfig.
func (BGPGlobalConfigKey) Kind() Kind { return KindBGPGlobalConfig }

// Kind is KindBGPNodeConfig.
func (BGPNodeConfigKey) Kind() Kind { return KindBGPNodeConfig }

// Kind is KindBGPGlobalPeer.
func (BGPGlobalPeerKey) Kind() Kind { return KindBGPGlobalPeer }

// Kind is KindBGPNodePeer.
func (BGPNodePeerKey) Kind() Kind { return KindBGPNodePeer }

// Path is the key's text in etcd.
func (k WorkloadEndpointKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k WorkloadEndpointStatusKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k HostEndpointKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k HostEndpointStatusKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k ProfileRulesKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k ProfileTagsKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k ProfileLabelsKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k ProfileRefcountKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k PolicyKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k TierKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k HostIPKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k HostMetadataKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k OrchRefsKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k AgentStatusKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k AgentLastStatusKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k GlobalConfigKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k HostConfigKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k ReadyKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k DHCPSubnetKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k NeutronElectionKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k PoolKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k BlockKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k BlockAffinityKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k HandleKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k IPAMHostKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k IPAMConfigKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k BGPGlobalConfigKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k BGPNodeConfigKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k BGPGlobalPeerKey) Path() (string, error) { return path(k) }

// Path is the key's text in etcd.
func (k BGPNodePeerKey) Path() (string, error) { return path(k) }
