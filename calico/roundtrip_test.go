package calico

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// draw draws parts of objects in canonical form: what is empty is nil.
type draw struct{ *rapid.T }

func (d draw) yes(what string) bool { return rapid.Bool().Draw(d.T, what) }

func (d draw) text(what string) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune("ab\"\\\n\x00\x7fé\u2028😀<&>")), 0, 6, -1).Draw(d.T, what)
}

func (d draw) name(what string) string {
	return rapid.StringMatching(`[A-Za-z0-9_.-]{0,14}[a-z]`).Draw(d.T, what)
}

func (d draw) maybe(what string, f func() string) string {
	if !d.yes("has " + what) {
		return ""
	}
	return f()
}

func (d draw) count(what string) int { return rapid.IntRange(0, 3).Draw(d.T, what) }

// several returns a list of what f draws; nil for none.
func several[V any](d draw, what string, f func() V) (list []V) {
	for range d.count(what) {
		list = append(list, f())
	}
	return list
}

func (d draw) names(what string) []string {
	return several(d, what, func() string { return d.name(what) })
}

func (d draw) stringMap(what string) (m map[string]string) {
	for range d.count(what) {
		if m == nil {
			m = map[string]string{}
		}
		m[d.name(what)] = d.text(what)
	}
	return m
}

func (d draw) addr(v6 bool) netip.Addr { return genAddr(v6).Draw(d.T, "address") }

func (d draw) maybeAddr(v6 bool) netip.Addr {
	if !d.yes("has address") {
		return netip.Addr{}
	}
	return d.addr(v6)
}

func (d draw) host(v6 bool) netip.Prefix {
	a := d.addr(v6)
	return netip.PrefixFrom(a, a.BitLen())
}

// prefix may have bits beyond its length.
func (d draw) prefix(v6 bool) netip.Prefix {
	a := d.addr(v6)
	return netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(d.T, "bits"))
}

func (d draw) unknown() (u Unknown) {
	for range d.count("unknown members") {
		if u == nil {
			u = Unknown{}
		}
		u["x-"+d.text("unknown member")] = json.RawMessage(rapid.SampledFrom([]string{`null`, `1.50`, `" \""`, `[1,{"0":[]}]`, `{"0":{"1":true}}`}).Draw(d.T, "unknown value"))
	}
	return u
}

func (d draw) order() *float64 {
	if d.yes("infinite order") {
		return nil
	}
	f := rapid.Float64().Draw(d.T, "order")
	if f == 0 {
		f = 0 // never -0
	}
	return &f
}

func (d draw) selector() string {
	return rapid.SampledFrom([]string{"all()", `a == "b"`, `(has(a) && b in {"c", "d"})`, `!has(a)`, `a != '"'`}).Draw(d.T, "selector")
}

func (d draw) small(highest int) *uint8 {
	n := uint8(rapid.IntRange(0, highest).Draw(d.T, "number"))
	return &n
}

func (d draw) rule() Rule {
	r := Rule{
		Action:      rapid.SampledFrom([]string{Allow, Deny, Log, NextTier}).Draw(d.T, "action"),
		IPVersion:   rapid.SampledFrom([]int{0, 4, 6}).Draw(d.T, "version"),
		Protocol:    Protocol(rapid.Uint8().Draw(d.T, "protocol")),
		NotProtocol: Protocol(rapid.Uint8().Draw(d.T, "not protocol")),
		LogPrefix:   d.maybe("log prefix", func() string { return cleanLogPrefix(d.text("log prefix")) }),
	}
	switch rapid.IntRange(0, 3).Draw(d.T, "more") {
	case 0:
		r.Protocol = rapid.SampledFrom([]Protocol{ProtocolTCP, ProtocolUDP}).Draw(d.T, "protocol with ports")
		for _, list := range []*[]Ports{&r.SrcPorts, &r.DstPorts, &r.NotSrcPorts, &r.NotDstPorts} {
			*list = several(d, "ports", func() Ports {
				low := rapid.Uint16Range(1, 65535).Draw(d.T, "low")
				return Ports{low, rapid.Uint16Range(low, 65535).Draw(d.T, "high")}
			})
		}
	case 1:
		r.Protocol, r.IPVersion = ProtocolICMP, 0
		r.ICMPType, r.ICMPCode, r.NotICMPType, r.NotICMPCode = d.small(254), d.small(255), d.small(254), d.small(255)
	}
	if r.Protocol == ProtocolICMP || r.Protocol == ProtocolICMPv6 {
		r.IPVersion = 0
	}
	for _, list := range []*[]netip.Prefix{&r.SrcNets, &r.DstNets, &r.NotSrcNets, &r.NotDstNets} {
		*list = several(d, "nets", func() netip.Prefix { return d.prefix(r.IPVersion == 6 || r.IPVersion == 0 && d.yes("IPv6")) })
	}
	for _, tag := range []*string{&r.SrcTag, &r.DstTag, &r.NotSrcTag, &r.NotDstTag} {
		*tag = d.maybe("tag", func() string { return d.name("tag") })
	}
	for _, s := range []*string{&r.SrcSelector, &r.DstSelector, &r.NotSrcSelector, &r.NotDstSelector} {
		*s = d.maybe("selector", d.selector)
	}
	return r
}

func (d draw) rules() []Rule { return several(d, "rules", d.rule) }

func (d draw) nat(nets []netip.Prefix, v6 bool) (list []NAT) {
	if len(nets) == 0 {
		return nil
	}
	return several(d, "nat", func() NAT {
		return NAT{rapid.SampledFrom(nets).Draw(d.T, "net").Addr(), d.addr(v6)}
	})
}

func (d draw) workloadEndpoint() *WorkloadEndpoint {
	e := &WorkloadEndpoint{
		State: rapid.SampledFrom([]string{Active, Inactive}).Draw(d.T, "state"), Name: d.name("name"), ActiveInstanceID: d.text("instance"),
		ProfileIDs:  d.names("profiles"),
		IPv4Nets:    several(d, "IPv4 nets", func() netip.Prefix { return d.host(false) }),
		IPv6Nets:    several(d, "IPv6 nets", func() netip.Prefix { return d.host(true) }),
		IPv4Gateway: d.maybeAddr(false), IPv6Gateway: d.maybeAddr(true), Labels: d.stringMap("labels"),
		IPv4SubnetIDs: d.names("subnets"), IPv6SubnetIDs: d.names("subnets"), FQDN: d.text("fqdn"), Unknown: d.unknown(),
	}
	if d.yes("MAC") {
		mac := MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(d.T, "MAC"))
		e.MAC = &mac
	}
	e.IPv4NAT, e.IPv6NAT = d.nat(e.IPv4Nets, false), d.nat(e.IPv6Nets, true)
	return e
}

func (d draw) hostEndpoint() *HostEndpoint {
	return &HostEndpoint{
		Name: d.name("name"), ProfileIDs: d.names("profiles"), Labels: d.stringMap("labels"), Unknown: d.unknown(),
		ExpectedIPv4Addrs: several(d, "IPv4", func() netip.Addr { return d.addr(false) }),
		ExpectedIPv6Addrs: several(d, "IPv6", func() netip.Addr { return d.addr(true) }),
	}
}

func (d draw) policy() *Policy {
	p := &Policy{
		Selector: d.selector(), Order: d.order(), InboundRules: d.rules(), OutboundRules: d.rules(), Annotations: d.stringMap("annotations"),
		Types: rapid.SampledFrom([][]string{nil, {TypeIngress}, {TypeEgress}, {TypeIngress, TypeEgress}}).Draw(d.T, "types"),
	}
	switch rapid.IntRange(0, 2).Draw(d.T, "stage") {
	case 0:
		p.Untracked = true
	case 1:
		p.PreDNAT, p.OutboundRules = true, nil
	}
	return p
}

func (d draw) pool(key netip.Prefix) *Pool {
	p := &Pool{CIDR: key, Masquerade: d.yes("masquerade"), Disabled: d.yes("disabled"), Unknown: d.unknown()}
	p.IPAM = d.yes("ipam") && key.Addr().BitLen()-key.Bits() >= blockBits
	p.IPIPMode = rapid.SampledFrom([]string{"", IPIPAlways, IPIPCrossSubnet}).Draw(d.T, "mode")
	if key.Addr().Is4() {
		p.IPIP = d.maybe("ipip", func() string { return d.name("ipip") })
	}
	return p
}

func (d draw) block(key netip.Prefix) *Block {
	b := &Block{CIDR: key, StrictAffinity: d.yes("strict"), Allocations: make([]*int, BlockSize), Unknown: d.unknown()}
	b.Affinity = d.maybe("affinity", func() string { return HostAffinity(d.name("host")) })
	b.Attributes = several(d, "attributes", func() Attribute {
		a := Attribute{Unknown: d.unknown(), Secondary: d.stringMap("secondary")}
		if d.yes("handle") {
			handle := d.text("handle")
			a.HandleID = &handle
		}
		return a
	})
	for i := range b.Allocations {
		if len(b.Attributes) > 0 && d.yes("taken") {
			n := rapid.IntRange(0, len(b.Attributes)-1).Draw(d.T, "attribute")
			b.Allocations[i] = &n
		}
	}
	b.Unallocated = b.free()
	if len(b.Unallocated) > 0 {
		b.Unallocated = rapid.Permutation(b.Unallocated).Draw(d.T, "unallocated")
	}
	return b
}

func (d draw) handle(key HandleKey) *Handle {
	h := &Handle{ID: key.Handle, Unknown: d.unknown()}
	for range d.count("blocks") {
		if h.Block == nil {
			h.Block = map[netip.Prefix]int{}
		}
		h.Block[d.prefix(d.yes("IPv6")).Masked()] = rapid.IntRange(1, 64).Draw(d.T, "count")
	}
	return h
}

func (d draw) subnet() *DHCPSubnet {
	v6 := d.yes("IPv6")
	s := &DHCPSubnet{
		CIDR: d.prefix(v6).Masked(), GatewayIP: d.addr(v6), NetworkID: d.text("network"), Unknown: d.unknown(),
		DNSServers: several(d, "servers", func() netip.Addr { return d.addr(v6) }),
		HostRoutes: several(d, "routes", func() HostRoute { return HostRoute{d.prefix(v6).Masked(), d.addr(v6)} }),
		MTU:        rapid.OneOf(rapid.Just(0), rapid.IntRange(minMTU, maxMTU)).Draw(d.T, "MTU"),
	}
	if v6 {
		modes := rapid.SampledFrom([]string{"", DHCPv6Stateful, DHCPv6Stateless, SLAAC})
		s.IPv6AddressMode, s.IPv6RAMode = modes.Draw(d.T, "mode"), modes.Draw(d.T, "mode")
	}
	return s
}

// object draws an object for a key.
func (d draw) object(key Key) any {
	switch k := key.(type) {
	case WorkloadEndpointKey:
		return d.workloadEndpoint()
	case HostEndpointKey:
		return d.hostEndpoint()
	case WorkloadEndpointStatusKey, HostEndpointStatusKey:
		return &EndpointStatus{rapid.SampledFrom([]string{StatusUp, StatusDown, StatusError}).Draw(d.T, "status"), d.unknown()}
	case ProfileRulesKey:
		return &ProfileRules{d.rules(), d.rules()}
	case ProfileTagsKey:
		tags := append(ProfileTags{}, d.names("tags")...)
		return &tags
	case ProfileLabelsKey:
		labels := ProfileLabels{}
		for k, v := range d.stringMap("labels") {
			labels[k] = v
		}
		return &labels
	case ProfileRefcountKey:
		return rapid.Uint64().Draw(d.T, "count")
	case PolicyKey:
		return d.policy()
	case TierKey:
		return &Tier{d.order(), d.unknown()}
	case HostIPKey:
		return d.addr(false)
	case HostMetadataKey:
		return &HostMetadata{d.unknown()}
	case OrchRefsKey:
		refs := append(OrchRefs{}, several(d, "refs", func() OrchRef { return OrchRef{d.name("orchestrator"), d.text("node"), d.unknown()} })...)
		return &refs
	case AgentStatusKey, AgentLastStatusKey:
		return &AgentStatus{"2015-08-14T10:37:54Z", rapid.Float64Range(0, 1e12).Draw(d.T, "uptime"), d.yes("first"), d.unknown()}
	case ReadyKey:
		return d.yes("ready")
	case DHCPSubnetKey:
		return d.subnet()
	case NeutronElectionKey:
		return fmt.Sprintf("%s:%d", d.name("server"), rapid.Uint32().Draw(d.T, "pid"))
	case PoolKey:
		return d.pool(k.CIDR)
	case BlockKey:
		return d.block(k.CIDR)
	case BlockAffinityKey:
		return &BlockAffinity{}
	case HandleKey:
		return d.handle(k)
	case IPAMConfigKey:
		strict := d.yes("strict")
		return &IPAMConfig{strict, !strict || d.yes("auto"), d.unknown()}
	case BGPGlobalPeerKey:
		return &BGPPeer{k.IP, rapid.Uint32Min(1).Draw(d.T, "AS"), d.unknown()}
	case BGPNodePeerKey:
		return &BGPPeer{k.IP, rapid.Uint32Min(1).Draw(d.T, "AS"), d.unknown()}
	}
	p := partsOf(key)
	c, _ := p.codec()
	switch reflect.Zero(c.object).Interface().(type) {
	case *NodeMesh:
		return &NodeMesh{d.yes("mesh"), d.unknown()}
	case uint32:
		return rapid.Uint32Min(1).Draw(d.T, "AS")
	case netip.Addr:
		return d.maybeAddr(p.name[len(p.name)-1] == '6')
	case netip.Prefix:
		return d.prefix(p.name[len(p.name)-1] == '6').Masked()
	}
	if p.name == bgpLogLevel {
		return "info"
	}
	return d.text("value")
}

var equal = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

// TestRoundTrip writes objects of all kinds and reads them again: nothing is lost, nothing is
// added, and what was read is written as it was. It fails when no object drawn has had some member:
// one that a new version forgot to draw here.
func TestRoundTrip(t *testing.T) {
	seen := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		for _, like := range everyKey {
			if p := partsOf(like.key); p.kind != KindIPAMHost && !p.legacy { // where nothing is stored, and what is not whole
				object := roundTrip(t, drawKey(t, like.key))
				mark(seen, reflect.ValueOf(object))
			}
		}
	})
	for _, key := range everyKey {
		p := partsOf(key.key)
		if c, _ := p.codec(); c.object.Kind() == reflect.Pointer {
			checkSeen(t, seen, c.object.Elem())
		}
	}
}

func roundTrip(t *rapid.T, key Key) any {
	if pool, ok := key.(PoolKey); ok && overlapsLinkLocal(pool.CIDR) {
		return nil
	}
	object := draw{t}.object(key)
	text, err := Encode(key, object)
	if err != nil {
		t.Fatalf("%v\n%+v", err, object)
	}
	if v, ok := object.(interface{ Validate() error }); ok && v.Validate() != nil {
		t.Fatalf("%s is written, and Validate says %v", text, v.Validate())
	}
	again, err := Decode(key, text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(object, again, equal); diff != "" {
		t.Fatalf("%s (-written +read):\n%s\n%s", key.Kind(), diff, text)
	}
	if twice, err := Encode(key, again); err != nil || string(twice) != string(text) {
		t.Fatalf("written again: %s, %v; want %s", twice, err, text)
	}
	if reflect.TypeOf(object).Kind() != reflect.Pointer {
		return object // raw
	}
	other := respell(t, text)
	if again, err := Decode(key, other); err != nil || !cmp.Equal(object, again, equal) {
		t.Fatalf("%s reads as another object than %s: %v", other, text, err)
	}
	return object
}

// respell writes the same JSON in another way: members in another order, space between tokens,
// letters at the front of strings as escapes. (The values of unknown members above have none: they
// stay as they are spelled.)
func respell(t *rapid.T, text []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json does not read %s: %v", text, err)
	}
	return appendRespelled(t, nil, v)
}

func appendRespelled(t *rapid.T, text []byte, v any) []byte {
	space := rapid.SampledFrom([]string{"", " ", "\n\t", "\r"}).Draw(t, "space")
	text = append(text, space...)
	switch v := v.(type) {
	case map[string]any:
		text = append(text, '{')
		names := sortedNames(v)
		if len(names) > 1 {
			names = rapid.Permutation(names).Draw(t, "members")
		}
		for i, name := range names {
			if i > 0 {
				text = append(text, ',')
			}
			text = append(appendRespelled(t, text, name), ':')
			text = appendRespelled(t, text, v[name])
		}
		text = append(text, '}')
	case []any:
		text = append(text, '[')
		for i, entry := range v {
			if i > 0 {
				text = append(text, ',')
			}
			text = appendRespelled(t, text, entry)
		}
		text = append(text, ']')
	case string:
		quoted, _ := json.Marshal(v)
		if v != "" && isLetter(v[0]) && space != "" {
			quoted = fmt.Appendf(nil, `"\u%04x%s`, v[0], quoted[2:])
		}
		text = append(text, quoted...)
	default:
		other, _ := json.Marshal(v)
		text = append(text, other...)
	}
	return append(text, space...)
}

// mark notes which fields of the structs within v are not zero.
func mark(seen map[string]bool, v reflect.Value) {
	if !v.IsValid() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			mark(seen, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			mark(seen, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().PkgPath() == "heddle/calico" && !v.Field(i).IsZero() {
				seen[v.Type().Name()+"."+v.Type().Field(i).Name] = true
				mark(seen, v.Field(i))
			}
		}
	}
}

func checkSeen(t *testing.T, seen map[string]bool, typ reflect.Type) {
	switch {
	case typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice:
		checkSeen(t, seen, typ.Elem())
	case typ.Kind() == reflect.Struct && typ.PkgPath() == "heddle/calico":
		for i := range typ.NumField() {
			if name := typ.Name() + "." + typ.Field(i).Name; !seen[name] {
				t.Errorf("no object drawn has a %s", name)
			}
			checkSeen(t, seen, typ.Field(i).Type)
		}
	}
}

// FuzzDecode reads any value as any kind. What is taken is written and reads as the same.
func FuzzDecode(f *testing.F) {
	kinds := append(Kinds(), KindBGPPeer, KindNodeMesh)
	for i, kind := range kinds {
		for _, value := range samples[kind] {
			f.Add(byte(i), []byte(value))
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, value []byte) {
		k := kinds[int(kind)%len(kinds)]
		object, err := DecodeAs(k, value)
		if _, nothing := object.(*IPAMHost); err != nil || nothing {
			return
		}
		text, err := EncodeAs(k, object)
		if err != nil {
			t.Fatalf("%s reads, and cannot be written: %v", value, err)
		}
		again, err := DecodeAs(k, text)
		if err != nil {
			t.Fatalf("%s is written as %s, which does not read: %v", value, text, err)
		}
		if diff := cmp.Diff(object, again, equal); diff != "" {
			t.Fatalf("%s is written as %s and reads as another (-first +second):\n%s", value, text, diff)
		}
		if b, ok := object.(*Block); ok {
			_ = b.Check() // whatever it says, it must not panic
		}
		if reflect.TypeOf(object).Kind() == reflect.Pointer && k != KindIPAMBlockAffinity && !json.Valid(value) {
			t.Fatalf("%q is taken, and is no JSON for encoding/json", value)
		}
	})
}

// samples are values as they may be stored, from which fuzzing starts.
var samples = map[Kind][]string{
	KindWorkloadEndpoint: {benchEndpoint,
		`{"state":"active","name":"tap1","profile_id":"p","ipv4_nets":["10.0.0.1"],"ipv4_nat":[{"int_ip":"10.0.0.1","ext_ip":"192.0.2.1"}],"mac":null,"x":{"a":[1.5e3,"\u00e9"]}}`},
	KindWorkloadEndpointStatus: {`{"status":"up"}`},
	KindHostEndpoint:           {`{"name":"eth0","expected_ipv4_addrs":["192.0.2.1"],"expected_ipv6_addrs":["2001:db8::1"],"profile_ids":["p"],"labels":{"a":"b"}}`},
	KindProfileRules:           {`{"inbound_rules":[{"action":"pass","ip_version":4,"!protocol":6,"src_nets":["10.0.0.0/8"],"!dst_net":"11.0.0.0/8","log_prefix":"a b"}],"outbound_rules":[{"protocol":"icmp","icmp_type":8,"icmp_code":0,"!icmp_type":1}]}`},
	KindProfileTags:            {`["a","b"]`},
	KindProfileLabels:          {`{"a":"b"}`},
	KindProfileRefcount:        {`3`},
	KindPolicy:                 {benchPolicy, `{"selector":"","order":"default","untracked":true,"types":["egress"],"annotations":{"a":"b"}}`},
	KindTier:                   {`{"order":-1.5}`},
	KindHostIP:                 {`192.0.2.1`},
	KindHostMetadata:           {`{}`},
	KindOrchRefs:               {`[{"orchestrator":"k8s","nodeName":"n"}]`},
	KindAgentStatus:            {`{"time":"2015-08-14T10:37:54Z","uptime":12.5,"first_update":true}`},
	KindIPPool:                 {`{"cidr":"10.0.0.0/16","ipip":"tunl0","ipip_mode":"always","masquerade":true,"ipam":false,"disabled":true}`},
	KindIPAMBlock: {`{"cidr":"10.0.0.0/26","affinity":"host:h","allocations":[0,null,1],"unallocated":[1],"attributes":[{"handle_id":"a","secondary":{"k":"v"}},{"primary":"b"}],"strict_affinity":true}`,
		`{"cidr":"fd80::/122","hostAffinity":"h","allocations":[null]}`},
	KindIPAMHandle:      {`{"id":"x","block":{"10.0.0.0/26":4}}`},
	KindIPAMConfig:      {`{"strict_affinity":true}`},
	KindBGPPeer:         {`{"ip":"192.0.2.1","as_num":"1.10"}`},
	KindNodeMesh:        {`{"enabled":true}`},
	KindDHCPSubnet:      {`{"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.1","dns_servers":["10.0.0.2"],"host_routes":[{"destination":"0.0.0.0/0","nexthop":"10.0.0.3"}],"network_id":"n","mtu":1400}`},
	KindNeutronElection: {`server:1`},
}
