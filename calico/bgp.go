package calico

import (
	"net/netip"
	"strconv"
	"strings"
)

const wantAS = "want an AS number from 1 to 4294967295, or high.low of two numbers to 65535"

// ParseAS reads an AS number: decimal, or two of 16 bits with a dot between.
func ParseAS(text string) (uint32, bool) {
	high, low, dotted := strings.Cut(text, ".")
	if !dotted {
		n, ok := decimal(text, 32)
		return uint32(n), ok && n > 0
	}
	h, ok1 := decimal(high, 16)
	l, ok2 := decimal(low, 16)
	return uint32(h<<16 | l), ok1 && ok2 && h+l > 0
}

func readBGPPeer(r *reader) *BGPPeer {
	p := &BGPPeer{}
	r.members(p, &p.Unknown)
	return p
}

func (p *BGPPeer) member(r *reader, name string) bool {
	switch name {
	case "ip":
		p.IP = r.address()
	case "as_num":
		p.ASNumber = r.as()
	default:
		return false
	}
	return true
}

// as reads an AS number that is a number or a string; 0 for null.
func (r *reader) as() uint32 {
	if r.null() {
		return 0
	}
	start := r.next()
	if r.peek() != '"' {
		return uint32(r.integerEntry(1, 1<<32-1, wantAS))
	}
	n, ok := ParseAS(r.text())
	if !ok {
		r.fail(start, wantAS)
	}
	return n
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (p *BGPPeer) Validate() error { return p.check().of("BGPPeer") }

func (p *BGPPeer) check() *Error {
	switch {
	case !p.IP.IsValid():
		return refuse("ip", nil, "is missing")
	case p.IP.Zone() != "":
		return refuse("ip", p.IP, "want an address without a zone")
	case familyOf(p.IP) == 0:
		return refuse("ip", p.IP, wantPlain)
	case p.ASNumber == 0:
		return refuse("as_num", nil, "is missing; %s", wantAS)
	}
	return checkUnknown[BGPPeer](p.Unknown)
}

func (p *BGPPeer) write(w *writer) {
	w.open('{')
	w.addressMember("ip", p.IP)
	w.stringMember("as_num", strconv.FormatUint(uint64(p.ASNumber), 10))
	w.unknown(p.Unknown)
	w.end('}')
}

// mesh is a NodeMesh while it is read.
type mesh struct {
	NodeMesh
	given bool
}

func readNodeMesh(r *reader) *NodeMesh {
	m := &mesh{}
	r.members(m, &m.Unknown)
	if !m.given && r.failed == nil {
		r.failed = refuse("enabled", nil, "is missing; want true or false")
	}
	return &m.NodeMesh
}

func (m *mesh) member(r *reader, name string) bool {
	if name != "enabled" {
		return false
	}
	m.given = r.peek() != 'n'
	m.Enabled = r.boolean()
	return true
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (m *NodeMesh) Validate() error { return m.check().of("NodeMesh") }

func (m *NodeMesh) check() *Error { return checkUnknown[mesh](m.Unknown) }

func (m *NodeMesh) write(w *writer) {
	w.open('{')
	w.boolMember("enabled", m.Enabled)
	w.unknown(m.Unknown)
	w.end('}')
}

// The names of BGP configuration that have a type of their own. Others are text.
const (
	bgpASNumber = "as_num"
	bgpLogLevel = "loglevel"
	bgpAddress  = "ip_addr_v"
	bgpNetwork  = "network_v"
)

// bgpFamily is the family, 4 or 6, that a name says after a prefix; 0 if it is another name.
func bgpFamily(prefix, name string) int {
	switch digit, ok := strings.CutPrefix(name, prefix); {
	case ok && digit == "4":
		return 4
	case ok && digit == "6":
		return 6
	}
	return 0
}

// decodeBGPConfig reads what is raw. An empty address means that the host has none of the family.
func decodeBGPConfig(kind Kind, name, text string) (any, *Error) {
	switch {
	case name == bgpASNumber:
		n, ok := ParseAS(text)
		if !ok {
			return nil, refuse("", text, wantAS)
		}
		return n, nil
	case name == bgpLogLevel:
		if text != "none" && text != "debug" && text != "info" {
			return nil, refuse("", text, "want none, debug or info")
		}
	case kind != KindBGPNodeConfig:
	case bgpFamily(bgpAddress, name) != 0:
		return decodeAddress(text, bgpFamily(bgpAddress, name), true)
	case bgpFamily(bgpNetwork, name) != 0:
		p, err := netip.ParsePrefix(text)
		if family := bgpFamily(bgpNetwork, name); err != nil || familyOf(p.Addr()) != family {
			return nil, refuse("", text, "want the CIDR of an IPv%d network", family)
		}
		return p.Masked(), nil
	}
	return text, nil
}

func decodeAddress(text string, family int, mayBeEmpty bool) (any, *Error) {
	if text == "" && mayBeEmpty {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || familyOf(a) != family || a.Zone() != "" {
		return nil, refuse("", text, "want an IPv%d address", family)
	}
	return a, nil
}
