package nft

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// elementRoom bounds the bytes of elements in one message: a netlink attribute holds 64 KiB.
const elementRoom = 60000

// verdictData is the type of a map's values that are verdicts.
const verdictData = 0xffffff00

// Types of user data in the kernel: nft's own, and the rule's sum, which nft ignores.
const (
	userComment      = 0
	userKeyByteOrder = 0
	userDataOrder    = 1
	userSum          = 0x48
)

// buffer encodes a batch for netlink: headers in native endian, attributes in big endian.
type buffer struct {
	bytes    []byte
	messages int
	anon     uint32 // the last number given to a nameless set
}

// message begins a message, numbered by its position, and returns its place for end.
func (b *buffer) message(kind uint16, flags uint16, table family) int {
	at := len(b.bytes)
	b.messages++
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, 0)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, kind)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, unix.NLM_F_REQUEST|flags)
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, uint32(b.messages))
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, 0)
	b.bytes = append(b.bytes, byte(table), unix.NFNETLINK_V0, 0, 0)
	return at
}

func (b *buffer) table(kind uint16, flags uint16, table family) int {
	return b.message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, table)
}

func (b *buffer) end(at int) {
	binary.NativeEndian.PutUint32(b.bytes[at:], uint32(len(b.bytes)-at))
}

func (b *buffer) bracket(kind uint16, flags uint16) {
	at := b.message(kind, flags, unix.NFPROTO_UNSPEC)
	binary.BigEndian.PutUint16(b.bytes[len(b.bytes)-2:], unix.NFNL_SUBSYS_NFTABLES)
	b.end(at)
}

func (b *buffer) attr(kind uint16, data []byte) {
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, uint16(4+len(data)))
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, kind)
	b.bytes = append(b.bytes, data...)
	b.pad()
}

func (b *buffer) pad() {
	for len(b.bytes)%4 != 0 {
		b.bytes = append(b.bytes, 0)
	}
}

func (b *buffer) text(kind uint16, s string) {
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, uint16(5+len(s)))
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, kind)
	b.bytes = append(append(b.bytes, s...), 0)
	b.pad()
}

func (b *buffer) number(kind uint16, v uint32) {
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, 8)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, kind)
	b.bytes = binary.BigEndian.AppendUint32(b.bytes, v)
}

// nest begins an attribute of attributes, and returns its place for unnest.
func (b *buffer) nest(kind uint16) int {
	at := len(b.bytes)
	b.bytes = append(b.bytes, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(b.bytes[at+2:], unix.NLA_F_NESTED|kind)
	return at
}

func (b *buffer) unnest(at int) {
	binary.NativeEndian.PutUint16(b.bytes[at:], uint16(len(b.bytes)-at))
}

// value appends data as elements and comparisons want it.
func (b *buffer) value(kind uint16, data string) {
	at := b.nest(kind)
	b.attr(unix.NFTA_DATA_VALUE, []byte(data))
	b.unnest(at)
}

func (b *buffer) newSet(s *set, flags uint32, id uint32) {
	m := b.object(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, s.ref, unix.NFTA_SET_NAME)
	var magic, length uint32
	for _, k := range s.keys {
		magic = magic<<6 | k.magic
		if len(s.keys) == 1 {
			length = uint32(k.length)
		} else {
			length += uint32(padded(k.length))
		}
	}
	user := []byte{userKeyByteOrder, 4, byteOrder(s.keys[0]), 0, 0, 0}
	b.number(unix.NFTA_SET_KEY_TYPE, magic)
	b.number(unix.NFTA_SET_KEY_LEN, length)
	switch {
	case s.verdicts:
		flags |= unix.NFT_SET_MAP
		b.number(unix.NFTA_SET_DATA_TYPE, verdictData)
		b.number(unix.NFTA_SET_DATA_LEN, 0)
	case s.data != nil:
		flags |= unix.NFT_SET_MAP
		b.number(unix.NFTA_SET_DATA_TYPE, s.data.magic)
		b.number(unix.NFTA_SET_DATA_LEN, uint32(s.data.length))
		user = append(user, userDataOrder, 4, byteOrder(*s.data), 0, 0, 0)
	}
	b.number(unix.NFTA_SET_FLAGS, flags)
	b.number(unix.NFTA_SET_ID, id)
	b.attr(unix.NFTA_SET_USERDATA, user)
	b.end(m)
}

// byteOrder returns nft's number for the order of a type's bytes.
func byteOrder(k keyType) byte {
	if k.host {
		return 1
	}
	return 2
}

// elements adds elements to a set or removes them, in as many messages as they need.
func (b *buffer) elements(kind, flags uint16, s *set, id uint32, all []element) {
	for len(all) > 0 {
		m := b.elementsHead(kind, flags, s, id)
		list := b.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for len(all) > 0 && len(b.bytes)-list < elementRoom {
			at := b.nest(unix.NFTA_LIST_ELEM)
			b.value(unix.NFTA_SET_ELEM_KEY, all[0].key)
			switch {
			case s.verdicts:
				b.verdict(all[0].verdict)
			case s.data != nil:
				b.value(unix.NFTA_SET_ELEM_DATA, all[0].data)
			}
			b.unnest(at)
			all = all[1:]
		}
		b.unnest(list)
		b.end(m)
	}
}

func (b *buffer) elementsHead(kind, flags uint16, s *set, id uint32) int {
	m := b.object(kind, flags, s.ref, unix.NFTA_SET_ELEM_LIST_SET)
	if id != 0 {
		b.number(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
	}
	return m
}

func (b *buffer) verdict(v verdict) {
	data := b.nest(unix.NFTA_SET_ELEM_DATA)
	at := b.nest(unix.NFTA_DATA_VERDICT)
	e := v.expression()
	b.number(unix.NFTA_VERDICT_CODE, uint32(e.Kind))
	if e.Chain != "" {
		b.text(unix.NFTA_VERDICT_CHAIN, e.Chain)
	}
	b.unnest(at)
	b.unnest(data)
}

// spans fills an anonymous set of ranges: the first value of each, and the one after its last.
func (b *buffer) spans(s *set, id uint32, spans []span) {
	for len(spans) > 0 {
		m := b.elementsHead(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s, id)
		list := b.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for len(spans) > 0 && len(b.bytes)-list < elementRoom {
			b.limit(spans[0].low, false)
			if after, ok := next(spans[0].high); ok { // else it goes to the end of all values
				b.limit(after, true)
			}
			spans = spans[1:]
		}
		b.unnest(list)
		b.end(m)
	}
}

func (b *buffer) limit(key string, end bool) {
	at := b.nest(unix.NFTA_LIST_ELEM)
	b.value(unix.NFTA_SET_ELEM_KEY, key)
	if end {
		b.number(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	b.unnest(at)
}

// next returns the value after v; ok is false where there is none.
func next(v string) (after string, ok bool) {
	b := []byte(v)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i]++; b[i] != 0 {
			return string(b), true
		}
	}
	return "", false
}

// rule appends a rule to a chain, after its anonymous sets.
func (b *buffer) rule(in ref, r *rule) error {
	e := ruleEncoder{buffer: b, table: in.table}
	for _, s := range r.statements {
		s.encode(&e)
	}
	m := b.object(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, in, unix.NFTA_RULE_CHAIN)
	list := b.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, x := range e.expressions {
		data, err := expr.Marshal(byte(in.table), x)
		if err != nil {
			return fmt.Errorf("encode rule of %s: %s: %w", in, r, err)
		}
		b.attr(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, data)
	}
	b.unnest(list)
	user := binary.BigEndian.AppendUint64([]byte{userSum, 8}, r.sum())
	if r.comment != "" {
		user = append(append(user, userComment, byte(len(r.comment)+1)), r.comment+"\x00"...)
	}
	b.attr(unix.NFTA_RULE_USERDATA, user)
	b.end(m)
	return nil
}

// ruleEncoder collects the expressions of a rule's statements.
type ruleEncoder struct {
	buffer      *buffer
	table       family
	expressions []expr.Any
}

func (e *ruleEncoder) add(all ...expr.Any) { e.expressions = append(e.expressions, all...) }

// load loads fields into registers, from the first on.
func (e *ruleEncoder) load(fields []field) {
	at := uint32(0) // in words of four bytes
	for _, f := range fields {
		r := uint32(unix.NFT_REG32_00) + at
		if at%4 == 0 {
			r = unix.NFT_REG_1 + at/4 // the older number for the same
		}
		e.add(f.load(r))
		at += uint32(padded(f.key.length) / 4)
	}
}

// anonymousSet is a set that belongs to one rule.
type anonymousSet struct {
	keys     []keyType
	verdicts bool
	elements []element
	spans    []span
}

// anonymous makes the set, and returns how the rule refers to it within the batch.
func (e *ruleEncoder) anonymous(a anonymousSet) (name string, id uint32) {
	b := e.buffer
	b.anon++
	s := &set{ref: ref{e.table, "__set%d"}, keys: a.keys, verdicts: a.verdicts}
	if a.verdicts {
		s.name = "__map%d"
	}
	flags := uint32(unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT)
	if a.spans != nil {
		flags |= unix.NFT_SET_INTERVAL
	}
	b.newSet(s, flags, b.anon)
	if a.spans != nil {
		b.spans(s, b.anon, a.spans)
	} else {
		b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s, b.anon, a.elements)
	}
	return s.name, b.anon
}

// policyAccept is the policy of all our base chains (NF_ACCEPT).
const policyAccept = 1
