package calico

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"unicode/utf8"

	"heddle/calico/selector"
)

// Option changes what Decode and Encode take.
type Option func(*options)

type options struct {
	selector []selector.Option
	parsed   bool // selectors need no check: they have just been parsed
}

// SelectorExtensions lets selectors have the operators of later versions.
func SelectorExtensions() Option {
	return func(o *options) { o.selector = append(o.selector, selector.Extensions()) }
}

func optionsOf(list []Option) (o options) {
	for _, option := range list {
		option(&o)
	}
	return o
}

// stored is an object that is stored as JSON.
type stored interface {
	check(o options) *Error
	write(w *writer)
}

// legacy is an object that the legacy tree has too.
type legacy interface {
	stored
	checkLegacy() *Error
	writeLegacy(w *writer)
}

// codec reads and checks the values of a kind.
type codec struct {
	object reflect.Type // of what decode returns
	decode func(value []byte, o options) (any, *Error)
}

// codecs lists all kinds but BGP configuration, for which [parts.codec] looks at the name too.
var codecs = map[Kind]codec{
	KindWorkloadEndpoint:       jsonCodec(readWorkloadEndpoint),
	KindHostEndpoint:           jsonCodec(readHostEndpoint),
	KindWorkloadEndpointStatus: jsonCodec(endpointStatusTable.object),
	KindHostEndpointStatus:     jsonCodec(endpointStatusTable.object),
	KindProfileRules:           jsonCodec(profileRulesTable.object),
	KindProfileTags:            jsonCodec(readProfileTags),
	KindProfileLabels:          jsonCodec(readProfileLabels),
	KindProfileRefcount:        textCodec(parseRefcount),
	KindPolicy:                 jsonCodec(policyTable.object),
	KindTier:                   jsonCodec(tierTable.object),
	KindHostIP:                 textCodec(func(text string) (netip.Addr, *Error) { return parseAddress(text, 4) }),
	KindHostMetadata:           jsonCodec(hostMetadataTable.object),
	KindOrchRefs:               jsonCodec(readOrchRefs),
	KindIPAMHost:               {reflect.TypeFor[*IPAMHost](), decodeIPAMHost},
	KindAgentStatus:            jsonCodec(agentStatusTable.object),
	KindAgentLastStatus:        jsonCodec(agentStatusTable.object),
	KindGlobalConfig:           textCodec(parseText),
	KindHostConfig:             textCodec(parseText),
	KindIPPool:                 jsonCodec(poolTable.object),
	KindIPAMBlock:              jsonCodec(readBlock),
	KindIPAMBlockAffinity:      {reflect.TypeFor[*BlockAffinity](), decodeBlockAffinity},
	KindIPAMHandle:             jsonCodec(handleTable.object),
	KindIPAMConfig:             jsonCodec(ipamConfigTable.object),
	KindBGPGlobalPeer:          jsonCodec(bgpPeerTable.object),
	KindBGPNodePeer:            jsonCodec(bgpPeerTable.object),
	KindBGPPeer:                jsonCodec(bgpPeerTable.object),
	KindNodeMesh:               jsonCodec(readNodeMesh),
	KindDHCPSubnet:             jsonCodec(dhcpSubnetTable.object),
	KindReady:                  textCodec(func(text string) (bool, *Error) { return text == ready, nil }),
	KindNeutronElection:        textCodec(parseElection),
}

func (p *parts) codec() (codec, *Error) {
	if p.kind == KindBGPGlobalConfig || p.kind == KindBGPNodeConfig {
		return bgpConfigCodec(p.kind, p.name), nil
	}
	c, ok := codecs[p.kind]
	if !ok {
		return c, &Error{Reason: "there is no such kind"}
	}
	return c, nil
}

func jsonCodec[T stored](read func(r *reader) T) codec {
	return codec{reflect.TypeFor[T](), func(value []byte, o options) (any, *Error) {
		var object T
		err := readAll(value, o.selector, func(r *reader) { object = read(r) })
		if err == nil {
			o.parsed = true
			err = object.check(o)
		}
		return object, err
	}}
}

// textCodec returns the codec of what is stored without JSON.
func textCodec[T any](parse func(text string) (T, *Error)) codec {
	return codec{reflect.TypeFor[T](), func(value []byte, _ options) (any, *Error) {
		text := string(value)
		if !utf8.ValidString(text) {
			return nil, &Error{Reason: "is not UTF-8 text"}
		}
		return parse(text)
	}}
}

// Decode reads the object stored at a key, checks it (spec 3) and brings it into canonical form. It
// returns a pointer to the type of that kind, such as *WorkloadEndpoint or *ProfileTags; for raw
// text
//
//	Ready             bool: exactly "true"
//	HostIP            netip.Addr
//	ProfileRefcount   uint64
//	GlobalConfig      string
//	HostConfig        string
//	NeutronElection   string
//	BGPGlobalConfig,  uint32 for as_num, *NodeMesh for node_mesh, netip.Addr for ip_addr_v4
//	BGPNodeConfig     and _v6 (zero if empty), netip.Prefix for network_v4 and _v6, else string
//
// An [Error] names the member that is wrong. [Encode] takes whatever Decode returns.
func Decode(key Key, value []byte, opts ...Option) (any, error) {
	p := partsOf(key)
	object, err := p.decode(value, optionsOf(opts))
	if err == nil {
		err = p.agrees(object)
	}
	if err != nil {
		return nil, err.of(string(p.kind))
	}
	if h, ok := object.(*Handle); ok {
		h.ID = p.name
	}
	return object, nil
}

// DecodeAs reads a value without its key. What depends on the rest of the key, such as the family
// of a peer, is not checked, and all configuration is text.
func DecodeAs(kind Kind, value []byte, opts ...Option) (any, error) {
	p := parts{kind: kind}
	object, err := p.decode(value, optionsOf(opts))
	if err != nil {
		return nil, err.of(string(kind))
	}
	return object, nil
}

func (p *parts) decode(value []byte, o options) (any, *Error) {
	c, err := p.codec()
	if err != nil {
		return nil, err
	}
	return c.decode(value, o)
}

// Encode writes an object in its canonical form, as [Decode] gives it for that key. An invalid
// object is refused with an [Error] that names the member.
func Encode(key Key, object any, opts ...Option) ([]byte, error) {
	p := partsOf(key)
	err := p.agrees(object)
	if err != nil {
		return nil, err.of(string(p.kind))
	}
	if h, ok := object.(*Handle); ok && h != nil {
		named := *h
		named.ID = p.name
		object = &named
	}
	return p.encode(object, optionsOf(opts))
}

// EncodeAs writes an object without its key, as [DecodeAs] reads it.
func EncodeAs(kind Kind, object any, opts ...Option) ([]byte, error) {
	p := parts{kind: kind}
	return p.encode(object, optionsOf(opts))
}

func (p *parts) encode(object any, o options) ([]byte, error) {
	c, err := p.codec()
	if err != nil {
		return nil, err.of(string(p.kind))
	}
	text, err := c.encode(object, o, p.legacy)
	if err != nil {
		return nil, err.of(string(p.kind))
	}
	return text, nil
}

func (c codec) encode(object any, o options, inLegacyTree bool) ([]byte, *Error) {
	if c.object != reflect.TypeOf(object) {
		return nil, &Error{Reason: fmt.Sprintf("want an object of type %v, not %T", c.object, object)}
	}
	if isNil(object) {
		return nil, &Error{Reason: "the object is nil"}
	}
	s, isJSON := object.(stored)
	if !isJSON {
		text := []byte(rawText(object))
		_, err := c.decode(text, o)
		return text, err
	}
	if err := s.check(o); err != nil {
		return nil, err
	}
	w := &writer{text: make([]byte, 0, 512), options: o.selector}
	if l, ok := object.(legacy); ok && inLegacyTree {
		if err := l.checkLegacy(); err != nil {
			return nil, err
		}
		l.writeLegacy(w)
	} else {
		s.write(w)
	}
	return w.text, nil
}

// rawText returns what is stored without JSON.
func rawText(object any) string {
	if a, ok := object.(netip.Addr); ok && !a.IsValid() {
		return ""
	}
	return fmt.Sprint(object)
}

func isNil(object any) bool {
	v := reflect.ValueOf(object)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// agrees refuses an object that says something else than its key.
func (p *parts) agrees(object any) *Error {
	if isNil(object) {
		return nil // encode refuses it
	}
	switch o := object.(type) {
	case *Pool:
		if o.CIDR != p.cidr {
			return refuse("cidr", o.CIDR, "the key is that of %s", p.cidr)
		}
	case *Block:
		if o.CIDR != p.cidr {
			return refuse("cidr", o.CIDR, "the key is that of %s", p.cidr)
		}
	case *BGPPeer:
		if o.IP != p.ip {
			return refuse("ip", o.IP, "the key is that of %s", p.ip)
		}
	case *Handle:
		if o.ID != "" && o.ID != p.name {
			return refuse("id", o.ID, "the key is that of %q", p.name)
		}
	}
	return nil
}

// ready is the one value of a [ReadyKey] that lets agents begin.
const ready = "true"

func parseText(text string) (string, *Error) { return text, nil }

func parseRefcount(text string) (uint64, *Error) {
	n, ok := decimal(text, 64)
	if !ok {
		return 0, refuse("", text, "want an unsigned decimal number")
	}
	return n, nil
}

func parseElection(text string) (string, *Error) {
	colon := strings.LastIndexByte(text, ':')
	if _, digits := decimal(text[colon+1:], 32); colon < 1 || !digits {
		return "", refuse("", text, "want SERVER:PID")
	}
	return text, nil
}

func parseAddress(text string, family int) (netip.Addr, *Error) {
	a, err := netip.ParseAddr(text)
	if err != nil || familyOf(a) != family || a.Zone() != "" {
		return netip.Addr{}, refuse("", text, "want an IPv%d address", family)
	}
	return a, nil
}
