package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"heddle/calico"
)

// register is the one that statements use; further words of a concatenation follow it.
const register = 1

// implied is a statement that nft does not write, because the next one implies it.
type implied struct{ statement }

func (implied) text() string { return "" }

func negation(not bool) string {
	if not {
		return " != "
	}
	return " "
}

func equality(not bool) expr.CmpOp {
	if not {
		return expr.CmpOpNeq
	}
	return expr.CmpOpEq
}

// compare compares a field with one value.
type compare struct {
	f     field
	not   bool
	value []byte
	shown string // the value as text; empty: as its type shows it
}

func (c compare) text() string {
	shown := c.shown
	if shown == "" {
		shown = c.f.key.show(c.value)
	}
	return c.f.name + negation(c.not) + shown
}

func (c compare) encode(e *ruleEncoder) {
	e.add(c.f.load(register), &expr.Cmp{Op: equality(c.not), Register: register, Data: c.value})
}

func version(v int) compare {
	if v == 4 {
		return compare{f: nfproto(), value: []byte{unix.NFPROTO_IPV4}, shown: "ipv4"}
	}
	return compare{f: nfproto(), value: []byte{unix.NFPROTO_IPV6}, shown: "ipv6"}
}

func protocol(p calico.Protocol, not bool) compare {
	return compare{f: l4proto(), not: not, value: []byte{byte(p)}}
}

// named matches one interface or, with a star at the end, those whose name begins so.
func named(f field, name string) compare {
	if prefix, ok := strings.CutSuffix(name, "*"); ok {
		return compare{f: f, value: []byte(prefix), shown: `"` + name + `"`}
	}
	return compare{f: f, value: nameKey(name)}
}

// within matches addresses of a prefix.
type within struct {
	f      field
	not    bool
	prefix netip.Prefix
}

func (w within) text() string { return w.f.name + negation(w.not) + prefixText(w.prefix) }

func (w within) encode(e *ruleEncoder) {
	e.add(w.f.load(register))
	if !w.prefix.IsSingleIP() {
		e.add(&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(w.f.key.length),
			Mask: maskOf(w.prefix), Xor: make([]byte, w.f.key.length)})
	}
	e.add(&expr.Cmp{Op: equality(w.not), Register: register, Data: w.prefix.Masked().Addr().AsSlice()})
}

func maskOf(p netip.Prefix) []byte {
	mask := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return mask
}

// inSet matches fields, concatenated, in a named set.
type inSet struct {
	fields []field
	not    bool
	set    string
}

func (s inSet) text() string { return fieldNames(s.fields) + negation(s.not) + "@" + s.set }

func (s inSet) encode(e *ruleEncoder) {
	e.load(s.fields)
	e.add(&expr.Lookup{SourceRegister: register, SetName: s.set, Invert: s.not})
}

func fieldNames(fields []field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return strings.Join(names, " . ")
}

// span is a range of values, both ends included.
type span struct{ low, high string } // bytes

// inList matches a field in an anonymous set of ranges, which are in order and do not touch.
type inList struct {
	f     field
	not   bool
	spans []span
	shown []string // the spans as text
}

func (l inList) text() string {
	return l.f.name + negation(l.not) + "{ " + strings.Join(l.shown, ", ") + " }"
}

func (l inList) encode(e *ruleEncoder) {
	e.load([]field{l.f})
	name, id := e.anonymous(anonymousSet{keys: []keyType{l.f.key}, spans: l.spans})
	e.add(&expr.Lookup{SourceRegister: register, SetName: name, SetID: id, Invert: l.not})
}

// ranged matches a field in one range.
type ranged struct {
	f     field
	not   bool
	span  span
	shown string
}

func (r ranged) text() string { return r.f.name + negation(r.not) + r.shown }

func (r ranged) encode(e *ruleEncoder) {
	e.add(r.f.load(register), &expr.Range{Op: equality(r.not), Register: register, FromData: []byte(r.span.low), ToData: []byte(r.span.high)})
}

// oneOf matches fields, concatenated, in an anonymous set of exact values.
type oneOf struct {
	fields []field
	values []string // bytes
}

func (o oneOf) set() set {
	s := set{}
	for _, f := range o.fields {
		s.keys = append(s.keys, f.key)
	}
	return s
}

func (o oneOf) text() string {
	s, shown := o.set(), make([]string, len(o.values))
	for i, v := range o.values {
		shown[i] = s.elementText(element{key: v})
	}
	return fieldNames(o.fields) + " { " + strings.Join(shown, ", ") + " }"
}

func (o oneOf) encode(e *ruleEncoder) {
	e.load(o.fields)
	a := anonymousSet{keys: o.set().keys}
	for _, v := range o.values {
		a.elements = append(a.elements, element{key: v})
	}
	name, id := e.anonymous(a)
	e.add(&expr.Lookup{SourceRegister: register, SetName: name, SetID: id})
}

// decide looks a field up in a named map of verdicts, and goes on if it is missing.
type decide struct {
	f   field
	set string
}

func (d decide) text() string { return d.f.name + " vmap @" + d.set }

func (d decide) encode(e *ruleEncoder) {
	e.add(d.f.load(register), &expr.Lookup{SourceRegister: register, SetName: d.set, IsDestRegSet: true, DestRegister: unix.NFT_REG_VERDICT})
}

// switchOn looks a field up in an anonymous map of verdicts.
type switchOn struct {
	f       field
	entries []element
}

func (s switchOn) text() string {
	shown, as := make([]string, len(s.entries)), set{keys: []keyType{s.f.key}, verdicts: true}
	for i, e := range s.entries {
		shown[i] = as.elementText(e)
	}
	return s.f.name + " vmap { " + strings.Join(shown, ", ") + " }"
}

func (s switchOn) encode(e *ruleEncoder) {
	e.add(s.f.load(register))
	name, id := e.anonymous(anonymousSet{keys: []keyType{s.f.key}, verdicts: true, elements: s.entries})
	e.add(&expr.Lookup{SourceRegister: register, SetName: name, SetID: id, IsDestRegSet: true, DestRegister: unix.NFT_REG_VERDICT})
}

// marked matches packets whose mark has a bit.
type marked struct{ bit uint32 }

func (m marked) text() string { return fmt.Sprintf("meta mark & 0x%08x != 0x00000000", m.bit) }

func (m marked) encode(e *ruleEncoder) {
	e.add(markOf().load(register),
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: native(m.bit), Xor: native(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: native(0)})
}

// setMark sets a bit of the packet's mark, or clears it.
type setMark struct {
	bit   uint32
	clear bool
}

func (m setMark) text() string {
	if m.clear {
		return fmt.Sprintf("meta mark set meta mark & 0x%08x", ^m.bit)
	}
	return fmt.Sprintf("meta mark set meta mark | 0x%08x", m.bit)
}

func (m setMark) encode(e *ruleEncoder) {
	xor := m.bit
	if m.clear {
		xor = 0
	}
	e.add(markOf().load(register),
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: native(^m.bit), Xor: native(xor)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register})
}

// logAs writes a record into the kernel's log.
type logAs struct{ prefix string }

func (l logAs) text() string { return `log prefix "` + l.prefix + `"` }

func (l logAs) encode(e *ruleEncoder) {
	e.add(&expr.Log{Key: 1 << unix.NFTA_LOG_PREFIX, Data: []byte(l.prefix)})
}

// count adds the packet to a named counter.
type count struct{ counter string }

func (c count) text() string { return `counter name "` + c.counter + `"` }

func (c count) encode(e *ruleEncoder) {
	e.add(&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: c.counter})
}

// fixed is a statement without parameters.
type fixed struct {
	name       string
	expression expr.Any
}

func (f fixed) text() string          { return f.name }
func (f fixed) encode(e *ruleEncoder) { e.add(f.expression) }

// untrack keeps the packet out of connection tracking; masquerade changes the source to the address
// of the outgoing interface.
var (
	untrack    = fixed{"notrack", &expr.Notrack{}}
	masquerade = fixed{"masquerade", &expr.Masq{}}
)

func (v verdict) text() string { return v.String() }

func (v verdict) encode(e *ruleEncoder) { e.add(v.expression()) }

func (v verdict) expression() *expr.Verdict {
	return &expr.Verdict{Kind: verdicts[v.kind].kind, Chain: v.chain}
}

// translate changes an address by a map from fields; what is missing stays.
type translate struct {
	version int
	end     end // which address
	fields  []field
	set     string
}

func natName(v int, of end) string {
	name := map[end]string{source: "snat", destination: "dnat"}[of]
	return name + map[int]string{4: " ip to", 6: " ip6 to"}[v]
}

func (t translate) text() string {
	return natName(t.version, t.end) + " " + fieldNames(t.fields) + " map @" + t.set
}

func (t translate) encode(e *ruleEncoder) {
	e.load(t.fields)
	e.add(&expr.Lookup{SourceRegister: register, SetName: t.set, IsDestRegSet: true, DestRegister: register})
	nat := &expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: register}
	if t.version == 6 {
		nat.Family = unix.NFPROTO_IPV6
	}
	if t.end == destination {
		nat.Type = expr.NATTypeDestNAT
	}
	e.add(nat)
}

// redirect changes the destination to a fixed one.
type redirect struct{ to netip.AddrPort }

func (r redirect) text() string { return "dnat ip to " + r.to.String() }

func (r redirect) encode(e *ruleEncoder) {
	e.add(&expr.Immediate{Register: register, Data: r.to.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, r.to.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: register, RegProtoMin: 2, Specified: true})
}

// uses calls f for each chain, set and counter that a rule names.
func (r *rule) uses(table family, f func(kind objectKind, name ref)) {
	for _, s := range r.statements {
		if i, ok := s.(implied); ok {
			s = i.statement
		}
		switch s := s.(type) {
		case inSet:
			f(aSet, ref{table, s.set})
		case decide:
			f(aSet, ref{table, s.set})
		case translate:
			f(aSet, ref{table, s.set})
		case count:
			f(aCounter, ref{table, s.counter})
		case verdict:
			if s.chain != "" {
				f(aChain, ref{table, s.chain})
			}
		case switchOn:
			for _, e := range s.entries {
				if e.verdict.chain != "" {
					f(aChain, ref{table, e.verdict.chain})
				}
			}
		}
	}
}

// objectKind is a kind of named object, with a name space of its own.
type objectKind uint8

const (
	aChain objectKind = iota
	aSet
	aCounter
)

func (k objectKind) String() string { return [...]string{"chain", "set", "counter"}[k] }

// merge sorts prefixes, without those that are within others.
func merge(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		if c := a.Masked().Addr().Compare(b.Masked().Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var merged []netip.Prefix
	for _, p := range sorted {
		if n := len(merged); n > 0 && merged[n-1].Overlaps(p) {
			continue // of two prefixes that overlap one is within the other, and the wider comes first
		}
		merged = append(merged, p.Masked())
	}
	return merged
}

func spansOf(merged []netip.Prefix) (spans []span, shown []string) {
	for _, p := range merged {
		low := p.Addr().AsSlice()
		high := slices.Clone(low)
		for i, m := range maskOf(p) {
			high[i] |= ^m
		}
		spans = append(spans, span{string(low), string(high)})
		shown = append(shown, prefixText(p))
	}
	return spans, shown
}

// prefixText returns a prefix as nft writes it.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// portSpans returns the ports as ranges, merged, with their texts.
func portSpans(ports []calico.Ports) (spans []span, shown []string) {
	sorted := slices.Clone(ports)
	slices.SortFunc(sorted, func(a, b calico.Ports) int { return int(a.Low) - int(b.Low) })
	var merged []calico.Ports
	for _, p := range sorted {
		if n := len(merged); n > 0 && int(p.Low) <= int(merged[n-1].High)+1 {
			merged[n-1].High = max(merged[n-1].High, p.High)
			continue
		}
		merged = append(merged, p)
	}
	for _, p := range merged {
		spans = append(spans, span{string(binary.BigEndian.AppendUint16(nil, p.Low)), string(binary.BigEndian.AppendUint16(nil, p.High))})
		text := fmt.Sprint(p.Low)
		if p.High != p.Low {
			text = fmt.Sprintf("%d-%d", p.Low, p.High)
		}
		shown = append(shown, text)
	}
	return spans, shown
}

func sortedUnique(values []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(values)))
}
