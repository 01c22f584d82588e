package calico

import (
	"net/netip"
	"strconv"
	"strings"
)

// nodeMesh is the name of the configuration that seed 001 shows at two places.
const nodeMesh = "node_mesh"

// ParseKey reads a path of etcd, with or without a slash in front. Paths of no known shape, with an empty part or with
// a malformed address are no keys. An alias (spec 2.3) gives the key whose alias it is. The parts of the key are parts
// of the path's own memory unless they had escapes.
func ParseKey(path string) (Key, bool) {
	var p parts
	if _, ok := p.find(path); !ok {
		return nil, false
	}
	return p.key(), true
}

// ParseAs reads the path of one type of key, as [ParseKey] does. It allocates nothing unless a name has escapes.
//
//	key, ok := calico.ParseAs[calico.WorkloadEndpointKey](path)
func ParseAs[K Key](path string) (key K, ok bool) {
	var p parts
	if _, ok = p.find(path); !ok {
		return key, false
	}
	if !p.fill(&key) {
		var none K
		return none, false
	}
	return key, true
}

// KindOf is the kind of the key at a path, "" for none. It allocates nothing unless a name has escapes.
func KindOf(path string) Kind {
	var p parts
	if _, ok := p.find(path); !ok {
		return ""
	}
	return p.kind
}

// segments walks the parts of a path.
type segments struct{ rest string }

// next takes the first part off. It is empty at the end.
func (s *segments) next() string {
	part, rest, _ := strings.Cut(s.rest, "/")
	s.rest = rest
	return part
}

// last is the next part if it is the last one, else "".
func (s *segments) last() string {
	part := s.next()
	if s.rest != "" {
		return ""
	}
	return part
}

// only says whether what is left is one part with that text.
func (s *segments) only(text string) bool { return s.rest == text }

func emptySegment(path string) bool {
	return path == "" || path[0] == '/' || path[len(path)-1] == '/' || strings.Contains(path, "//")
}

// find sets the parts that a path has; it is the other half of write.
func (p *parts) find(path string) (alias, ok bool) {
	path = strings.TrimPrefix(path, "/")
	if emptySegment(path) {
		return false, false
	}
	s := segments{path}
	if s.next() != "calico" {
		return false, false
	}
	switch s.next() {
	case "v1":
		return p.findV1(&s)
	case "host":
		p.legacy, p.host = true, s.next()
		return false, s.next() == "workload" && p.workloadEndpoint(KindWorkloadEndpoint, &s)
	case "policy":
		p.legacy = true
		return false, s.next() == "profile" && p.profile(&s)
	case "ipam":
		return p.findIPAM(&s)
	case "bgp":
		return false, s.next() == "v1" && p.findBGP(&s)
	case "felix":
		return false, s.next() == "v1" && s.next() == "host" && p.findStatus(&s)
	case "dhcp":
		return false, s.next() == "v1" && s.next() == "subnet" && p.is(KindDHCPSubnet, &p.name, s.last())
	case "openstack":
		p.kind = KindNeutronElection
		return false, s.next() == "v1" && s.only("neutron_election")
	}
	return false, false
}

// is sets the kind and one name, which must not be empty.
func (p *parts) is(kind Kind, part *string, name string) bool {
	p.kind, *part = kind, name
	return name != ""
}

func (p *parts) workloadEndpoint(kind Kind, s *segments) bool {
	p.orchestrator, p.workload = unescape(s.next()), unescape(s.next())
	return s.next() == "endpoint" && p.is(kind, &p.name, unescape(s.last()))
}

func (p *parts) profile(s *segments) bool {
	p.name = unescape(s.next())
	switch s.last() {
	case "rules":
		p.kind = KindProfileRules
	case "tags":
		p.kind = KindProfileTags
	case "labels":
		p.kind = KindProfileLabels
		return !p.legacy
	case "refcount":
		p.kind = KindProfileRefcount
		return p.legacy
	default:
		return false
	}
	return true
}

func (p *parts) findV1(s *segments) (alias, ok bool) {
	switch s.next() {
	case "Ready":
		p.kind = KindReady
		return false, s.rest == ""
	case "config":
		return p.globalConfig(s)
	case "host":
		return p.findHost(s)
	case "policy":
		switch s.next() {
		case "profile":
			return false, p.profile(s)
		case "tier":
			return false, p.findTier(s)
		}
	case "ipam":
		p.kind = KindIPPool
		family := s.next()
		return false, s.next() == "pool" && p.prefix("v", family, s.last())
	}
	return false, false
}

func (p *parts) findTier(s *segments) bool {
	p.tier = s.next()
	switch s.next() {
	case "metadata":
		p.kind = KindTier
		return s.rest == ""
	case "policy":
		return p.is(KindPolicy, &p.name, unescape(s.last()))
	}
	return false
}

// globalConfig recognises the aliases of BGP before any name is taken for a setting.
func (p *parts) globalConfig(s *segments) (alias, ok bool) {
	name := s.rest
	if name == "bgp_node_mesh" {
		return true, p.is(KindBGPGlobalConfig, &p.name, nodeMesh)
	}
	if family, found := strings.CutPrefix(s.next(), "bgp_peer_v"); found {
		return true, p.peer(KindBGPGlobalPeer, family, s)
	}
	p.kind, p.name = KindGlobalConfig, name
	return false, isConfigName(p.kind, name)
}

func (p *parts) findHost(s *segments) (alias, ok bool) {
	p.host = s.next()
	switch part := s.next(); part {
	case "workload":
		return false, p.workloadEndpoint(KindWorkloadEndpoint, s)
	case "endpoint":
		return false, p.is(KindHostEndpoint, &p.name, unescape(s.last()))
	case "config":
		p.kind, p.name = KindHostConfig, s.rest
		return false, isConfigName(p.kind, p.name)
	case "metadata":
		p.kind = KindHostMetadata
	case "bird_ip":
		p.kind = KindHostIP
	case "orchestrator_refs":
		p.kind = KindOrchRefs
	default:
		family, found := strings.CutPrefix(part, "bgp_peer_v")
		return true, found && p.peer(KindBGPNodePeer, family, s)
	}
	return false, s.rest == ""
}

func (p *parts) findStatus(s *segments) bool {
	p.host = s.next()
	switch s.next() {
	case "status":
		p.kind = KindAgentStatus
		return s.rest == ""
	case "last_reported_status":
		p.kind = KindAgentLastStatus
		return s.rest == ""
	case "workload":
		return p.workloadEndpoint(KindWorkloadEndpointStatus, s)
	case "endpoint":
		return p.is(KindHostEndpointStatus, &p.name, unescape(s.last()))
	}
	return false
}

func (p *parts) findIPAM(s *segments) (alias, ok bool) {
	if s.next() != "v2" {
		return false, false
	}
	switch s.next() {
	case "config":
		p.kind = KindIPAMConfig
		return false, s.rest == ""
	case "handle":
		return false, p.is(KindIPAMHandle, &p.name, s.last())
	case "assignment":
		family := s.next()
		if family == "handle" {
			return true, p.is(KindIPAMHandle, &p.name, s.last())
		}
		p.kind = KindIPAMBlock
		return false, s.next() == "block" && p.prefix("ipv", family, s.last())
	case "host":
		p.kind, p.host = KindIPAMHost, s.next()
		if s.rest == "" {
			return false, p.host != ""
		}
		p.kind = KindIPAMBlockAffinity
		family := s.next()
		return false, s.next() == "block" && p.prefix("ipv", family, s.last())
	}
	return false, false
}

func (p *parts) findBGP(s *segments) bool {
	config, peer := KindBGPGlobalConfig, KindBGPGlobalPeer
	switch s.next() {
	case "global":
	case "host":
		p.host = s.next()
		config, peer = KindBGPNodeConfig, KindBGPNodePeer
	default:
		return false
	}
	name := s.rest
	if family, found := strings.CutPrefix(s.next(), "peer_v"); found && s.rest != "" {
		return p.peer(peer, family, s)
	}
	p.kind, p.name = config, name
	return isConfigName(config, name)
}

// isConfigName says whether a name is one of a configuration of that kind. What begins like a peer's key, or is the
// mark that old start-up code left, is none.
func isConfigName(kind Kind, name string) bool {
	if emptySegment(name) {
		return false
	}
	first, rest, more := strings.Cut(name, "/")
	switch kind {
	case KindGlobalConfig:
		return name != "bgp_node_mesh" && !strings.HasPrefix(first, "bgp_peer_v")
	case KindHostConfig:
		return name != "marker"
	}
	if strings.HasPrefix(first, "peer_v") {
		return false
	}
	if !more {
		return true
	}
	family, filter, found := strings.Cut(rest, "/")
	return first == "custom_filters" && (family == "v4" || family == "v6") && found && !strings.Contains(filter, "/")
}

// peer reads the address of a peer whose family, 4 or 6, has been read.
func (p *parts) peer(kind Kind, family string, s *segments) bool {
	ip, err := netip.ParseAddr(s.last())
	if err != nil || ip.Zone() != "" {
		return false
	}
	p.kind, p.ip = kind, ip
	return isFamily(family, ip)
}

// prefix reads a CIDR that has a dash instead of its slash.
func (p *parts) prefix(before, family, text string) bool {
	digit, ok := strings.CutPrefix(family, before)
	address, length, dash := strings.Cut(text, "-")
	if !ok || !dash || length == "" || len(length) > 3 || length[0] == '+' || length[0] == '-' || length[0] == '0' && length != "0" {
		return false
	}
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.Zone() != "" || !isFamily(digit, ip) {
		return false
	}
	bits, err := strconv.Atoi(length)
	if err != nil {
		return false
	}
	p.cidr = netip.PrefixFrom(ip, bits)
	return p.cidr.IsValid() && p.cidr == p.cidr.Masked()
}

func isFamily(digit string, ip netip.Addr) bool {
	family := familyOf(ip)
	return digit == "4" && family == 4 || digit == "6" && family == 6
}

// unescape undoes the escapes of names. Other uses of % are text: peers before the escapes wrote them.
func unescape(name string) string {
	if strings.IndexByte(name, '%') < 0 {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "%2f", "/"), "%25", "%")
}
