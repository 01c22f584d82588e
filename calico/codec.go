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

type options struct{ selector []selector.Option }

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

// Decode reads the object at a key as it is stored, checks it (spec 3) and brings it into its canonical form. It gives a
// pointer to the type of that kind: *WorkloadEndpoint, *ProfileTags and so on; for what is stored as raw text
//
//	Ready                          bool: exactly "true"
//	HostIP                         netip.Addr
//	ProfileRefcount                uint64
//	GlobalConfig, HostConfig       string
//	BGPGlobalConfig, BGPNodeConfig uint32 for as_num, *NodeMesh for node_mesh, netip.Addr for ip_addr_v4 and _v6 (the zero
//	                               one when empty), netip.Prefix for network_v4 and _v6, string for others
//	NeutronElection                string
//
// An error is an [Error] and says which member is wrong and why. What Decode gives, [Encode] takes.
func Decode(key Key, value []byte, opts ...Option) (any, error) {
	o := optionsOf(opts)
	p := key.parts()
	object, err := o.decode(string(p.kind), p.name, value)
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

// DecodeAs reads a value without a key: as one of a [Kind], a BGPPeer or a NodeMesh. What depends on the key, such as
// the family of a peer, is not checked; raw configuration is text.
func DecodeAs(kind string, value []byte, opts ...Option) (any, error) {
	o := optionsOf(opts)
	object, err := o.decode(kind, "", value)
	if err != nil {
		return nil, err.of(kind)
	}
	return object, nil
}

// checked is an object that knows its rules.
type checked interface{ check() *Error }

func (o options) decode(kind, name string, value []byte) (any, *Error) {
	switch Kind(kind) {
	case KindWorkloadEndpoint:
		return decode(value, readWorkloadEndpoint)
	case KindHostEndpoint:
		return decode(value, readHostEndpoint)
	case KindWorkloadEndpointStatus, KindHostEndpointStatus:
		return decode(value, readEndpointStatus)
	case KindProfileRules:
		return o.decodeRules(value)
	case KindProfileTags:
		return decode(value, readProfileTags)
	case KindProfileLabels:
		return decode(value, readProfileLabels)
	case KindPolicy:
		return o.decodePolicy(value)
	case KindTier:
		return decode(value, readTier)
	case KindHostMetadata:
		return decode(value, readHostMetadata)
	case KindOrchRefs:
		return decode(value, readOrchRefs)
	case KindAgentStatus, KindAgentLastStatus:
		return decode(value, readAgentStatus)
	case KindIPPool:
		return decode(value, readPool)
	case KindIPAMBlock:
		return decode(value, readBlock)
	case KindIPAMHandle:
		return decode(value, readHandle)
	case KindIPAMConfig:
		return decode(value, readIPAMConfig)
	case KindBGPGlobalPeer, KindBGPNodePeer, "BGPPeer":
		return decode(value, readBGPPeer)
	case "NodeMesh":
		return decode(value, readNodeMesh)
	case KindBGPGlobalConfig:
		if name == nodeMesh {
			return decode(value, readNodeMesh)
		}
	case KindDHCPSubnet:
		return decode(value, readDHCPSubnet)
	case KindIPAMBlockAffinity:
		return &BlockAffinity{}, nil // peers write {} or nothing
	case KindIPAMHost:
		return &IPAMHost{}, nil
	}
	return decodeRaw(Kind(kind), name, value)
}

func decode[T checked](value []byte, f func(*reader) T) (any, *Error) {
	var object T
	err := read(value, nil, func(r *reader) { object = f(r) })
	if err == nil {
		err = object.check()
	}
	return object, err
}

func (o options) decodeRules(value []byte) (any, *Error) {
	var p *ProfileRules
	err := read(value, o.selector, func(r *reader) { p = readProfileRules(r) })
	if err == nil {
		err = p.check(false, nil)
	}
	return p, err
}

func (o options) decodePolicy(value []byte) (any, *Error) {
	var p *Policy
	err := read(value, o.selector, func(r *reader) { p = readPolicy(r) })
	if err == nil {
		err = p.check(false, nil)
	}
	return p, err
}

// decodeRaw reads what is stored without JSON.
func decodeRaw(kind Kind, name string, value []byte) (any, *Error) {
	text := string(value)
	if !utf8.ValidString(text) {
		return nil, &Error{Reason: "is not UTF-8 text"}
	}
	switch kind {
	case KindReady:
		return text == ready, nil
	case KindGlobalConfig, KindHostConfig:
		return text, nil
	case KindHostIP:
		return decodeAddress(text, 4, false)
	case KindProfileRefcount:
		n, ok := decimal(text, 64)
		if !ok {
			return nil, refuse("", text, "want an unsigned decimal number")
		}
		return n, nil
	case KindBGPGlobalConfig, KindBGPNodeConfig:
		return decodeBGPConfig(kind, name, text)
	case KindNeutronElection:
		return text, checkElection(text)
	}
	return nil, &Error{Reason: "there is no such kind"}
}

const ready = "true"

func checkElection(text string) *Error {
	server, pid, ok := cutLast(text, ":")
	if _, digits := decimal(pid, 32); !ok || server == "" || !digits {
		return refuse("", text, "want SERVER:PID")
	}
	return nil
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// agrees refuses an object that says something else than its key.
func (p *parts) agrees(object any) *Error {
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

// Encode writes an object in its canonical form, as [Decode] gives it for that key. An invalid object is refused with
// an [Error] that names the member.
func Encode(key Key, object any, opts ...Option) ([]byte, error) {
	o := optionsOf(opts)
	p := key.parts()
	text, err := o.encode(&p, object)
	if err != nil {
		return nil, err.of(string(p.kind))
	}
	return text, nil
}

// written is an object that writes itself.
type written interface {
	checked
	write(w *writer)
}

func (o options) encode(p *parts, object any) ([]byte, *Error) {
	if want := reflect.TypeOf(p.sample()); want != reflect.TypeOf(object) {
		return nil, &Error{Reason: fmt.Sprintf("want an object of type %v, not %T", want, object)}
	}
	if v := reflect.ValueOf(object); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &Error{Reason: "the object is nil"}
	}
	if err := p.agrees(object); err != nil {
		return nil, err
	}
	w := &writer{text: make([]byte, 0, 512)}
	var err *Error
	switch v := object.(type) {
	case *WorkloadEndpoint:
		if err = v.check(); err == nil && p.legacy {
			err = v.checkLegacy()
			v.writeLegacy(w)
		} else {
			v.write(w)
		}
	case *ProfileRules:
		if err = v.check(true, o.selector); err == nil && p.legacy {
			err = v.checkLegacy()
		}
		v.write(w, o.selector)
	case *Policy:
		err = v.check(true, o.selector)
		v.write(w, o.selector)
	case *Handle:
		err = v.check()
		named := *v
		named.ID = p.name
		named.write(w)
	case written:
		err = v.check()
		v.write(w)
	case *BlockAffinity:
		return []byte("{}"), nil
	case *IPAMHost:
		return nil, &Error{Reason: "nothing is stored at this key, only below it"}
	default:
		text := fmt.Sprint(object)
		if a, ok := object.(netip.Addr); ok && !a.IsValid() {
			text = ""
		}
		_, err = decodeRaw(p.kind, p.name, []byte(text))
		w.text = []byte(text)
	}
	if err != nil {
		return nil, err
	}
	return w.text, nil
}

// sample is a value of the type that Decode gives for a key.
func (p *parts) sample() any {
	switch p.kind {
	case KindWorkloadEndpoint:
		return (*WorkloadEndpoint)(nil)
	case KindHostEndpoint:
		return (*HostEndpoint)(nil)
	case KindWorkloadEndpointStatus, KindHostEndpointStatus:
		return (*EndpointStatus)(nil)
	case KindProfileRules:
		return (*ProfileRules)(nil)
	case KindProfileTags:
		return (*ProfileTags)(nil)
	case KindProfileLabels:
		return (*ProfileLabels)(nil)
	case KindProfileRefcount:
		return uint64(0)
	case KindPolicy:
		return (*Policy)(nil)
	case KindTier:
		return (*Tier)(nil)
	case KindHostIP:
		return netip.Addr{}
	case KindHostMetadata:
		return (*HostMetadata)(nil)
	case KindOrchRefs:
		return (*OrchRefs)(nil)
	case KindAgentStatus, KindAgentLastStatus:
		return (*AgentStatus)(nil)
	case KindIPPool:
		return (*Pool)(nil)
	case KindIPAMBlock:
		return (*Block)(nil)
	case KindIPAMBlockAffinity:
		return (*BlockAffinity)(nil)
	case KindIPAMHost:
		return (*IPAMHost)(nil)
	case KindIPAMHandle:
		return (*Handle)(nil)
	case KindIPAMConfig:
		return (*IPAMConfig)(nil)
	case KindBGPGlobalPeer, KindBGPNodePeer:
		return (*BGPPeer)(nil)
	case KindBGPGlobalConfig, KindBGPNodeConfig:
		return sampleBGPConfig(p.kind, p.name)
	case KindDHCPSubnet:
		return (*DHCPSubnet)(nil)
	case KindReady:
		return false
	}
	return "" // configuration, NeutronElection
}

func sampleBGPConfig(kind Kind, name string) any {
	switch {
	case name == bgpASNumber:
		return uint32(0)
	case kind == KindBGPGlobalConfig && name == nodeMesh:
		return (*NodeMesh)(nil)
	case kind == KindBGPNodeConfig && bgpFamily(bgpAddress, name) != 0:
		return netip.Addr{}
	case kind == KindBGPNodeConfig && bgpFamily(bgpNetwork, name) != 0:
		return netip.Prefix{}
	}
	return ""
}
