package calico

import (
	"net/netip"
	"reflect"
	"strconv"
	"strings"
)

// root is the prefix of all paths.
const root = "/calico/"

// nodeMesh is the name of the configuration that seed 001 shows at two places.
const nodeMesh = "node_mesh"

// ParseKey reads a path of etcd, with or without a slash in front. Paths of no known shape, with an
// empty part or with a malformed address are no keys. An alias (spec 2.3) gives the key whose alias
// it is. The parts of the key are parts of the path's own memory unless they had escapes.
func ParseKey(path string) (Key, bool) {
	var p parts
	found := p.find(path)
	if found == nil {
		return nil, false
	}
	return found.shape.key(p), true
}

// ParseAs reads the path of one type of key. It allocates only if a name has escapes.
//
//	key, ok := calico.ParseAs[calico.WorkloadEndpointKey](path)
func ParseAs[K Key](path string) (key K, ok bool) {
	var p parts
	if found := p.find(path); found == nil || found.shape.typ != reflect.TypeFor[K]() {
		return key, false
	}
	return fill[K](&p), true
}

// KindOf returns the kind of the key at a path, or "". It allocates only if a name has escapes.
func KindOf(path string) Kind {
	var p parts
	if p.find(path) == nil {
		return ""
	}
	return p.kind
}

// IsAlias reports whether a path is the second one of its key.
func IsAlias(path string) bool {
	var p parts
	found := p.find(path)
	return found != nil && found.alias
}

// find reads the parts of a path and returns its pattern, or nil for no key. It inverts write.
func (p *parts) find(path string) *pattern {
	path = strings.TrimPrefix(path, "/")
	if emptySegment(path) {
		return nil
	}
	path, ok := strings.CutPrefix(path, root[1:])
	if !ok {
		return nil
	}
	found := p.walk(path, tree)
	if found != nil {
		p.kind, p.legacy = found.shape.kind, found.legacy
	}
	return found
}

// walk reads the rest of a path, in which no segment is empty, below a node.
func (p *parts) walk(path string, from *node) *pattern {
	if path == "" {
		return from.pattern
	}
	for _, next := range from.next {
		rest, ok := strings.CutPrefix(path, next.text)
		if !ok {
			continue
		}
		if rest, ok = p.read(rest, next); ok {
			if found := p.walk(rest, next); found != nil {
				return found
			}
		}
	}
	return nil
}

// read reads the field of a node at the beginning of a path and returns what follows it.
func (p *parts) read(path string, n *node) (rest string, ok bool) {
	part := path
	if slash := strings.IndexByte(path, '/'); slash >= 0 && n.form != formSetting {
		part = path[:slash]
	}
	name, ok := part, true
	switch n.form {
	case formEnd:
		return path, path == ""
	case formFamily:
		p.family = part
	case formCIDR:
		ok = p.readCIDR(part)
	case formIP:
		ok = p.readIP(part)
	case formFixed:
		ok = part == n.fixed
	case formSetting:
		ok = isConfigName(n.pattern.shape.kind, part)
	case formEscaped:
		name = unescape(part)
	}
	p.name, p.names[n.index] = name, name
	return path[len(part):], ok
}

func emptySegment(path string) bool {
	return path == "" || path[0] == '/' || path[len(path)-1] == '/' || strings.Contains(path, "//")
}

// isConfigName reports whether a name is one of a configuration of that kind. What begins like a
// peer's key, or is the mark that old start-up code left, is none.
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

// readIP reads the address of a peer.
func (p *parts) readIP(text string) bool {
	ip, err := netip.ParseAddr(text)
	p.ip = ip
	return err == nil && ip.Zone() == "" && isFamily(p.family, ip)
}

// readCIDR reads a CIDR that has a dash instead of its slash.
func (p *parts) readCIDR(text string) bool {
	address, length, dash := strings.Cut(text, "-")
	if !dash || length == "" || len(length) > 3 || length[0] == '+' || length[0] == '-' || length[0] == '0' && length != "0" {
		return false
	}
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.Zone() != "" || !isFamily(p.family, ip) {
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

// unescape decodes a name. Other uses of % are text: older writers did not escape.
func unescape(name string) string {
	if strings.IndexByte(name, '%') < 0 {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "%2f", "/"), "%25", "%")
}
