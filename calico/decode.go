package calico

import (
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
	p := partsOf(key)
	object, err := o.decode(p.kind, p.name, value)
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

// DecodeAs reads a value without its key. What depends on the rest of the key, such as the family of a peer, is not
// checked, and all configuration is text.
func DecodeAs(kind Kind, value []byte, opts ...Option) (any, error) {
	o := optionsOf(opts)
	object, err := o.decode(kind, "", value)
	if err != nil {
		return nil, err.of(string(kind))
	}
	return object, nil
}

// checked is an object that knows its rules.
type checked interface{ check() *Error }

func (o options) decode(kind Kind, name string, value []byte) (any, *Error) {
	switch kind {
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
	case KindBGPGlobalPeer, KindBGPNodePeer, KindBGPPeer:
		return decode(value, readBGPPeer)
	case KindNodeMesh:
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
		if len(value) > 0 {
			return nil, errIPAMHost()
		}
		return &IPAMHost{}, nil
	}
	return decodeRaw(kind, name, value)
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

func errIPAMHost() *Error { return &Error{Reason: "nothing is stored at this key, only below it"} }

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
