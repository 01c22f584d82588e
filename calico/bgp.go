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

var bgpPeerTable = table[BGPPeer]{
	columns: []column[BGPPeer]{
		member("ip", func(p *BGPPeer) *netip.Addr { return &p.IP }, asAddress),
		member("as_num", func(p *BGPPeer) *uint32 { return &p.ASNumber }, format[uint32]{(*reader).as, (*writer).as, nil}),
	},
	unknown: func(p *BGPPeer) *Unknown { return &p.Unknown },
}

// as reads an AS number that is a number or a string.
func (r *reader) as() uint32 {
	start := r.next()
	if r.peek() != '"' {
		return uint32(r.integer(1, 1<<32-1, wantAS))
	}
	n, ok := ParseAS(r.text())
	if !ok {
		r.fail(start, wantAS)
	}
	return n
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (p *BGPPeer) Validate() error { return p.check(options{}).of("BGPPeer") }

func (p *BGPPeer) check(options) *Error {
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
	return bgpPeerTable.checkUnknown(p)
}

func (p *BGPPeer) write(w *writer) { bgpPeerTable.write(w, p) }

func (w *writer) as(n uint32) { w.string(strconv.FormatUint(uint64(n), 10)) }

var nodeMeshTable = table[NodeMesh]{
	columns: []column[NodeMesh]{member("enabled", func(m *NodeMesh) *bool { return &m.Enabled }, asBoolean)},
	unknown: func(m *NodeMesh) *Unknown { return &m.Unknown },
}

func readNodeMesh(r *reader) *NodeMesh {
	m := &NodeMesh{}
	if found := nodeMeshTable.read(r, m); !nodeMeshTable.has(found, "enabled") && r.failed == nil {
		r.failed = refuse("enabled", nil, "is missing; want true or false")
	}
	return m
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (m *NodeMesh) Validate() error { return m.check(options{}).of("NodeMesh") }

func (m *NodeMesh) check(options) *Error { return nodeMeshTable.checkUnknown(m) }

func (m *NodeMesh) write(w *writer) { nodeMeshTable.write(w, m) }

// The names of BGP configuration that have a type of their own. Others are text.
const (
	bgpASNumber = "as_num"
	bgpLogLevel = "loglevel"
	bgpAddress  = "ip_addr_v"
	bgpNetwork  = "network_v"
)

// bgpFamily returns the family, 4 or 6, that a name says after a prefix; 0 if it is another name.
func bgpFamily(prefix, name string) int {
	switch digit, ok := strings.CutPrefix(name, prefix); {
	case ok && digit == "4":
		return 4
	case ok && digit == "6":
		return 6
	}
	return 0
}

func bgpConfigCodec(kind Kind, name string) codec {
	switch {
	case name == bgpASNumber:
		return textCodec(parseASNumber)
	case name == bgpLogLevel:
		return textCodec(parseLogLevel)
	case kind == KindBGPGlobalConfig && name == nodeMesh:
		return jsonCodec(readNodeMesh)
	case kind != KindBGPNodeConfig:
	case bgpFamily(bgpAddress, name) != 0:
		return textCodec(func(text string) (netip.Addr, *Error) {
			if text == "" { // the host has no address of this family
				return netip.Addr{}, nil
			}
			return parseAddress(text, bgpFamily(bgpAddress, name))
		})
	case bgpFamily(bgpNetwork, name) != 0:
		return textCodec(func(text string) (netip.Prefix, *Error) {
			p, err := netip.ParsePrefix(text)
			if family := bgpFamily(bgpNetwork, name); err != nil || familyOf(p.Addr()) != family {
				return p, refuse("", text, "want the CIDR of an IPv%d network", family)
			}
			return p.Masked(), nil
		})
	}
	return textCodec(parseText)
}

func parseASNumber(text string) (uint32, *Error) {
	n, ok := ParseAS(text)
	if !ok {
		return 0, refuse("", text, wantAS)
	}
	return n, nil
}

func parseLogLevel(text string) (string, *Error) {
	switch text {
	case "none", "debug", "info":
		return text, nil
	}
	return "", refuse("", text, "want none, debug or info")
}
