package calico

import (
	"net/netip"
	"reflect"
	"strings"
)

// shapes lists all types of keys, each with its paths below /calico. The fields of a path, in
// braces, are those of the type, in its order:
//
//	{host}            a name that is never escaped
//	{workload%}       a name in which % and / are escaped
//	{name...}         the rest of the path: the name of a setting
//	{name=node_mesh}  a name that is always the same
//	{cidr}, {ip}      an address; a CIDR has a dash in place of its slash
//	{family}          4 or 6, the family of the address that follows; no field of the type
//
// No path fits two patterns: [isConfigName] keeps settings apart from their neighbours.
var shapes = []*shape{
	shapeOf[WorkloadEndpointKey]("v1/host/{host}/workload/{orchestrator%}/{workload%}/endpoint/{endpoint%}").
		legacy("host/{host}/workload/{orchestrator%}/{workload%}/endpoint/{endpoint%}"),
	shapeOf[WorkloadEndpointStatusKey]("felix/v1/host/{host}/workload/{orchestrator%}/{workload%}/endpoint/{endpoint%}"),
	shapeOf[HostEndpointKey]("v1/host/{host}/endpoint/{endpoint%}"),
	shapeOf[HostEndpointStatusKey]("felix/v1/host/{host}/endpoint/{endpoint%}"),
	shapeOf[ProfileRulesKey]("v1/policy/profile/{profile%}/rules").legacy("policy/profile/{profile%}/rules"),
	shapeOf[ProfileTagsKey]("v1/policy/profile/{profile%}/tags").legacy("policy/profile/{profile%}/tags"),
	shapeOf[ProfileLabelsKey]("v1/policy/profile/{profile%}/labels"),
	shapeOf[ProfileRefcountKey]("policy/profile/{profile%}/refcount"),
	shapeOf[PolicyKey]("v1/policy/tier/{tier}/policy/{policy%}"),
	shapeOf[TierKey]("v1/policy/tier/{tier}/metadata"),
	shapeOf[HostIPKey]("v1/host/{host}/bird_ip"),
	shapeOf[HostMetadataKey]("v1/host/{host}/metadata"),
	shapeOf[OrchRefsKey]("v1/host/{host}/orchestrator_refs"),
	shapeOf[IPAMHostKey]("ipam/v2/host/{host}"),
	shapeOf[AgentStatusKey]("felix/v1/host/{host}/status"),
	shapeOf[AgentLastStatusKey]("felix/v1/host/{host}/last_reported_status"),
	shapeOf[GlobalConfigKey]("v1/config/{name...}"),
	shapeOf[HostConfigKey]("v1/host/{host}/config/{name...}"),
	shapeOf[BGPGlobalConfigKey]("bgp/v1/global/{name...}").alias("v1/config/bgp_{name=node_mesh}"),
	shapeOf[BGPNodeConfigKey]("bgp/v1/host/{host}/{name...}"),
	shapeOf[PoolKey]("v1/ipam/v{family}/pool/{cidr}"),
	shapeOf[BlockKey]("ipam/v2/assignment/ipv{family}/block/{cidr}"),
	shapeOf[BlockAffinityKey]("ipam/v2/host/{host}/ipv{family}/block/{cidr}"),
	shapeOf[BGPGlobalPeerKey]("bgp/v1/global/peer_v{family}/{ip}").alias("v1/config/bgp_peer_v{family}/{ip}"),
	shapeOf[BGPNodePeerKey]("bgp/v1/host/{host}/peer_v{family}/{ip}").alias("v1/host/{host}/bgp_peer_v{family}/{ip}"),
	shapeOf[HandleKey]("ipam/v2/handle/{handle}").alias("ipam/v2/assignment/handle/{handle}"),
	shapeOf[DHCPSubnetKey]("dhcp/v1/subnet/{subnet}"),
	shapeOf[ReadyKey]("v1/Ready"),
	shapeOf[IPAMConfigKey]("ipam/v2/config"),
	shapeOf[NeutronElectionKey]("openstack/v1/neutron_election"),
}

var shapeByType = func() map[reflect.Type]*shape {
	byType := make(map[reflect.Type]*shape, len(shapes))
	for _, s := range shapes {
		byType[s.typ] = s
	}
	return byType
}()

// shape describes a type of key.
type shape struct {
	typ      reflect.Type
	kind     Kind
	key      func(parts) Key
	patterns []pattern
}

// pattern is a path of a shape. It may lie in the legacy tree or be an alias, not both.
type pattern struct {
	shape         *shape
	pieces        []piece
	legacy, alias bool
}

// node is a piece in the tree of all patterns. Patterns share their common first nodes.
type node struct {
	piece
	next    []*node
	pattern *pattern // the one that ends here, or nil
}

var tree = func() *node {
	top := &node{}
	for _, s := range shapes {
		for i := range s.patterns {
			at := top
			for _, p := range s.patterns[i].pieces {
				at = at.follow(p)
			}
			at.pattern = &s.patterns[i]
		}
	}
	return top
}()

// follow returns the node of a piece after n and adds it if n has none yet.
func (n *node) follow(p piece) *node {
	for _, next := range n.next {
		if next.piece == p {
			return next
		}
	}
	next := &node{piece: p}
	n.next = append(n.next, next)
	return next
}

// piece is a part of a pattern: text and the field that follows it.
type piece struct {
	text  string
	form  form
	name  string // of the field
	index int    // of the field among those of its key
	fixed string // the only value, for formFixed
}

// form is the way in which a field is written.
type form int

const (
	formEnd form = iota // no field: the pattern ends
	formPlain
	formEscaped
	formSetting
	formFixed
	formFamily
	formCIDR
	formIP
)

func shapeOf[K Key](path string) *shape {
	var none K
	s := &shape{typ: reflect.TypeFor[K](), kind: none.Kind(), key: keyOf[K]}
	return s.add(path, pattern{})
}

func (s *shape) legacy(path string) *shape { return s.add(path, pattern{legacy: true}) }

func (s *shape) alias(path string) *shape { return s.add(path, pattern{alias: true}) }

func (s *shape) add(path string, p pattern) *shape {
	p.shape = s
	for index := 0; path != ""; {
		next := piece{index: index}
		next.text, path, _ = strings.Cut(path, "{")
		next.name, path, _ = strings.Cut(path, "}")
		next.parse()
		if next.form != formFamily {
			index++
		}
		p.pieces = append(p.pieces, next)
	}
	s.patterns = append(s.patterns, p)
	return s
}

// parse reads the form of a field off its name.
func (p *piece) parse() {
	var escaped, rest, fixed bool
	p.name, escaped = strings.CutSuffix(p.name, "%")
	p.name, rest = strings.CutSuffix(p.name, "...")
	p.name, p.fixed, fixed = strings.Cut(p.name, "=")
	switch {
	case p.name == "":
		p.form = formEnd
	case p.name == "family":
		p.form = formFamily
	case p.name == "cidr":
		p.form = formCIDR
	case p.name == "ip":
		p.form = formIP
	case escaped:
		p.form = formEscaped
	case rest:
		p.form = formSetting
	case fixed:
		p.form = formFixed
	default:
		p.form = formPlain
	}
}

// piecesOf returns the pieces of one path of a key, nil if it has no such path.
func piecesOf(key Key, legacy, alias bool) []piece {
	for _, p := range shapeByType[valueOf(key).Type()].patterns {
		if p.legacy == legacy && p.alias == alias {
			return p.pieces
		}
	}
	return nil
}

// Kinds returns the kinds of keys.
func Kinds() []Kind {
	kinds := make([]Kind, len(shapes))
	for i, s := range shapes {
		kinds[i] = s.kind
	}
	return kinds
}

// EmptyKey returns the key of a kind without any part, as [Prefixes] and [Matches] take it, or nil
// if no key is of that kind.
func EmptyKey(kind Kind) Key {
	for _, s := range shapes {
		if s.kind == kind {
			return s.key(parts{})
		}
	}
	return nil
}

// parts holds the fields of any key. Fields that its type does not have mean nothing.
type parts struct {
	kind   Kind
	legacy bool
	names  [4]string // by their index among the fields
	name   string    // the last of names
	family string    // while a path is read: that of the address that follows
	cidr   netip.Prefix
	ip     netip.Addr
}

// valueOf returns the struct of a key, which may be given by a pointer.
func valueOf(key Key) reflect.Value { return reflect.Indirect(reflect.ValueOf(key)) }

func partsOf(key Key) (p parts) {
	p.kind = key.Kind()
	fields := valueOf(key)
	for i := range fields.NumField() {
		switch f := fields.Field(i); f.Kind() {
		case reflect.String:
			p.name = f.String()
			p.names[i] = p.name
		case reflect.Bool:
			p.legacy = f.Bool()
		default:
			switch a := f.Interface().(type) {
			case netip.Prefix:
				p.cidr = a
			case netip.Addr:
				p.ip = a
			}
		}
	}
	return p
}

func keyOf[K Key](p parts) Key { return fill[K](&p) }

// fill returns the key with these parts, as partsOf takes them. It allocates nothing.
func fill[K Key](p *parts) (key K) {
	fields := reflect.ValueOf(&key).Elem()
	for i := range fields.NumField() {
		switch f := fields.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(p.names[i])
		case reflect.Bool:
			f.SetBool(p.legacy)
		default:
			switch at := f.Addr().UnsafePointer(); f.Type() { // Interface would move the key to the heap
			case reflect.TypeFor[netip.Prefix]():
				*(*netip.Prefix)(at) = p.cidr
			case reflect.TypeFor[netip.Addr]():
				*(*netip.Addr)(at) = p.ip
			}
		}
	}
	return key
}
