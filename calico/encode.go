package calico

import (
	"fmt"
	"net/netip"
	"reflect"

	"heddle/calico/selector"
)

// Encode writes an object in its canonical form, as [Decode] gives it for that key. An invalid object is refused with
// an [Error] that names the member.
func Encode(key Key, object any, opts ...Option) ([]byte, error) {
	o := optionsOf(opts)
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
	text, err := o.encode(&p, object)
	if err != nil {
		return nil, err.of(string(p.kind))
	}
	return text, nil
}

// EncodeAs writes an object without its key, as [DecodeAs] reads it.
func EncodeAs(kind Kind, object any, opts ...Option) ([]byte, error) {
	o := optionsOf(opts)
	text, err := o.encode(&parts{kind: kind}, object)
	if err != nil {
		return nil, err.of(string(kind))
	}
	return text, nil
}

func (o options) encode(p *parts, object any) ([]byte, *Error) {
	if want := reflect.TypeOf(p.sample()); want != reflect.TypeOf(object) {
		return nil, &Error{Reason: fmt.Sprintf("want an object of type %v, not %T", want, object)}
	}
	if v := reflect.ValueOf(object); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &Error{Reason: "the object is nil"}
	}
	if err := o.check(p, object); err != nil {
		return nil, err
	}
	w := &writer{text: make([]byte, 0, 512)}
	switch v := object.(type) {
	case *WorkloadEndpoint:
		if p.legacy {
			v.writeLegacy(w)
		} else {
			v.write(w)
		}
	case selecting:
		v.write(w, o.selector)
	case written:
		v.write(w)
	case *BlockAffinity:
		w.text = append(w.text, "{}"...)
	default:
		w.text = append(w.text, rawText(object)...)
	}
	return w.text, nil
}

// written is an object that writes itself.
type written interface {
	checked
	write(w *writer)
}

// selecting is an object that has selectors.
type selecting interface {
	check(selectors bool, options []selector.Option) *Error
	write(w *writer, options []selector.Option)
}

// legacy is an object that the legacy tree has too.
type legacy interface{ checkLegacy() *Error }

func (o options) check(p *parts, object any) *Error {
	var err *Error
	switch v := object.(type) {
	case selecting:
		err = v.check(true, o.selector)
	case checked:
		err = v.check()
	case *IPAMHost:
		return errIPAMHost()
	case *BlockAffinity:
		return nil
	default:
		_, err = decodeRaw(p.kind, p.name, []byte(rawText(object)))
	}
	if v, ok := object.(legacy); ok && p.legacy && err == nil {
		return v.checkLegacy()
	}
	return err
}

// rawText is what is stored without JSON.
func rawText(object any) string {
	if a, ok := object.(netip.Addr); ok && !a.IsValid() {
		return ""
	}
	return fmt.Sprint(object)
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
	case KindBGPGlobalPeer, KindBGPNodePeer, KindBGPPeer:
		return (*BGPPeer)(nil)
	case KindBGPGlobalConfig, KindBGPNodeConfig:
		return sampleBGPConfig(p.kind, p.name)
	case KindNodeMesh:
		return (*NodeMesh)(nil)
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
