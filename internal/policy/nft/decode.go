package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// headerLength is that of a netlink message with that of netfilter.
const headerLength = unix.NLMSG_HDRLEN + 4

// message is one of a datagram from the kernel.
type message struct {
	kind, flags uint16
	sequence    uint32
	family      family
	body        []byte // what follows the netlink header
}

// messages yields the messages of a datagram, as far as they are well-formed.
func messages(datagram []byte) iter.Seq[message] {
	return func(yield func(message) bool) {
		for len(datagram) >= unix.NLMSG_HDRLEN {
			length := int(binary.NativeEndian.Uint32(datagram))
			if length < unix.NLMSG_HDRLEN || length > len(datagram) {
				return
			}
			m := message{kind: binary.NativeEndian.Uint16(datagram[4:]), flags: binary.NativeEndian.Uint16(datagram[6:]),
				sequence: binary.NativeEndian.Uint32(datagram[8:]), body: datagram[unix.NLMSG_HDRLEN:length]}
			if len(m.body) > 0 {
				m.family = family(m.body[0])
			}
			if !yield(m) {
				return
			}
			datagram = datagram[min(padded(length), len(datagram)):]
		}
	}
}

// errno returns the error in the message, or 0.
func (m message) errno() unix.Errno {
	if m.kind != unix.NLMSG_ERROR && m.kind != unix.NLMSG_DONE || len(m.body) < 4 {
		return 0
	}
	if code := int32(binary.NativeEndian.Uint32(m.body)); code < 0 {
		return unix.Errno(-code)
	}
	return 0
}

func (m message) attributes() iter.Seq2[uint16, []byte] {
	if len(m.body) < headerLength-unix.NLMSG_HDRLEN {
		return attributes(nil)
	}
	return attributes(m.body[headerLength-unix.NLMSG_HDRLEN:])
}

func (m message) attribute(kind uint16) ([]byte, bool) { return find(m.attributes(), kind) }

func find(all iter.Seq2[uint16, []byte], kind uint16) ([]byte, bool) {
	for k, data := range all {
		if k == kind {
			return data, true
		}
	}
	return nil, false
}

func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.NLA_HDRLEN {
			length := int(binary.NativeEndian.Uint16(b))
			if length < unix.NLA_HDRLEN || length > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, b[unix.NLA_HDRLEN:length]) {
				return
			}
			b = b[min(padded(length), len(b)):]
		}
	}
}

// cString returns the text before the final zero.
func cString(b []byte) string {
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}

// word decodes a number of four bytes; anything else is 0.
func word(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func quad(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// past is a time that makes a read end at once.
func past() time.Time { return time.Unix(1, 0) }

// get requests an object or, with NLM_F_DUMP, many, and calls f for each answer. The attributes 1,
// 2, … of the request are names.
func (k *Kernel) get(ctx context.Context, kind, flags uint16, table family, f func(message), names ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k.drain()
	var b buffer
	at := b.table(kind, flags|unix.NLM_F_ACK, table)
	for i, name := range names {
		b.text(uint16(i+1), name)
	}
	b.end(at)
	if err := k.send(b.bytes); err != nil {
		return err
	}
	for {
		answer, err := k.receive(0)
		if err != nil {
			return fmt.Errorf("read from the kernel: %w", err)
		}
		for m := range messages(answer) {
			if errno := m.errno(); errno != 0 {
				return errno
			}
			if m.kind == unix.NLMSG_DONE || m.kind == unix.NLMSG_ERROR {
				return nil
			}
			f(m)
		}
	}
}

func (k *Kernel) dump(ctx context.Context, kind uint16, table family, f func(message), names ...string) error {
	return k.get(ctx, kind, unix.NLM_F_DUMP, table, f, names...)
}

// dumpTable dumps the objects of a kind in our table of a family.
func (k *Kernel) dumpTable(ctx context.Context, kind uint16, table family, f func(message)) error {
	return k.dump(ctx, kind, table, func(m message) {
		if name, _ := m.attribute(1); m.family == table && cString(name) == tableName {
			f(m)
		}
	}, tableName)
}

func (k *Kernel) readGeneration(ctx context.Context) (generation uint32, err error) {
	err = k.get(ctx, unix.NFT_MSG_GETGEN, 0, unix.NFPROTO_UNSPEC, func(m message) {
		id, _ := m.attribute(unix.NFTA_GEN_ID)
		generation = word(id)
	})
	if err != nil {
		return 0, fmt.Errorf("nftables: generation: %w", err)
	}
	return generation, nil
}

// readTries bounds the attempts to read while other programs change nftables.
const readTries = 5

// read returns what is there at one moment. If other programs change their tables all the time, it
// may mix moments; the generation then shows that.
func (k *Kernel) read(ctx context.Context) (*found, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var last *found
	for range readTries {
		f, err := k.readOnce(ctx)
		if errors.Is(err, unix.ENOENT) {
			continue // a set went away while its elements were asked for
		}
		if err != nil {
			return nil, fmt.Errorf("nftables: read back: %w", err)
		}
		after, err := k.readGeneration(ctx)
		if err != nil {
			return nil, err
		}
		if last = f; after == f.generation {
			return f, nil
		}
	}
	if last == nil {
		return nil, fmt.Errorf("nftables: read back: our sets come and go all the time; tried %d times", readTries)
	}
	return last, nil
}

func (k *Kernel) readOnce(ctx context.Context) (*found, error) {
	f := newFound()
	hasARP, err := k.hasARP()
	if err != nil {
		return nil, err
	}
	f.withoutARP = !hasARP
	if f.generation, err = k.readGeneration(ctx); err != nil {
		return nil, err
	}
	for _, table := range []family{inet, arp} {
		err := k.dump(ctx, unix.NFT_MSG_GETTABLE, table, func(m message) {
			if name, _ := m.attribute(unix.NFTA_TABLE_NAME); m.family == table && cString(name) == tableName {
				f.tables[table] = true
			}
		})
		if err != nil {
			return nil, fmt.Errorf("tables: %w", err)
		}
		if f.tables[table] {
			if err := k.readTable(ctx, table, f); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

func (k *Kernel) readTable(ctx context.Context, table family, f *found) error {
	hooks, sums := map[ref]*hook{}, map[ref][]uint64{}
	err := k.dumpTable(ctx, unix.NFT_MSG_GETCHAIN, table, func(m message) {
		name, _ := m.attribute(unix.NFTA_CHAIN_NAME)
		r := ref{table, cString(name)}
		sums[r], hooks[r] = nil, hookOf(table, m)
	})
	if err != nil {
		return fmt.Errorf("chains: %w", err)
	}
	err = k.dumpTable(ctx, unix.NFT_MSG_GETRULE, table, func(m message) {
		name, _ := m.attribute(unix.NFTA_RULE_CHAIN)
		user, _ := m.attribute(unix.NFTA_RULE_USERDATA)
		r := ref{table, cString(name)}
		sums[r] = append(sums[r], sumIn(user))
	})
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	for r, all := range sums {
		f.chains[r] = sumOf(hooks[r], all)
	}
	err = k.dumpTable(ctx, unix.NFT_MSG_GETOBJ, table, func(m message) {
		name, _ := m.attribute(unix.NFTA_OBJ_NAME)
		f.counters[ref{table, cString(name)}] = true
	})
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	return k.readSets(ctx, table, f)
}

// sumIn finds a rule's sum in its user data; 0: the rule is not ours.
func sumIn(user []byte) uint64 {
	for len(user) >= 2 {
		length := int(user[1])
		if len(user) < 2+length {
			return 0
		}
		if user[0] == userSum {
			return quad(user[2 : 2+length])
		}
		user = user[2+length:]
	}
	return 0
}

func hookOf(table family, m message) *hook {
	nested, ok := m.attribute(unix.NFTA_CHAIN_HOOK)
	if !ok {
		return nil
	}
	kind, _ := m.attribute(unix.NFTA_CHAIN_TYPE)
	number, _ := find(attributes(nested), unix.NFTA_HOOK_HOOKNUM)
	priority, _ := find(attributes(nested), unix.NFTA_HOOK_PRIORITY)
	policy, _ := m.attribute(unix.NFTA_CHAIN_POLICY)
	h := hook{kind: cString(kind), priority: int32(word(priority))}
	if word(policy) != policyAccept {
		h.kind = "drop " + h.kind // none of ours
	}
	for _, at := range hookNames(table) {
		if (hook{at: at}).number(table) == word(number) {
			h.at = at
		}
	}
	return &h
}

func (k *Kernel) readSets(ctx context.Context, table family, f *found) error {
	var sets []*set
	err := k.dumpTable(ctx, unix.NFT_MSG_GETSET, table, func(m message) {
		if flags, _ := m.attribute(unix.NFTA_SET_FLAGS); word(flags)&unix.NFT_SET_ANONYMOUS == 0 {
			sets = append(sets, setOf(table, m))
		}
	})
	if err != nil {
		return fmt.Errorf("sets: %w", err)
	}
	for _, s := range sets {
		fs := foundSet{shape: s.shape(), elements: map[string]element{}}
		err := k.dump(ctx, unix.NFT_MSG_GETSETELEM, table, func(m message) {
			list, _ := m.attribute(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
			for _, nested := range attributes(list) {
				e := elementOf(nested)
				fs.elements[e.key] = e
			}
		}, tableName, s.name)
		if err != nil {
			return fmt.Errorf("elements of %s: %w", s.ref, err)
		}
		f.sets[s.ref] = fs
	}
	return nil
}

// setOf decodes a set. What we would never make gets a shape that none of ours has.
func setOf(table family, m message) *set {
	name, _ := m.attribute(unix.NFTA_SET_NAME)
	s := &set{ref: ref{table, cString(name)}}
	magic, _ := m.attribute(unix.NFTA_SET_KEY_TYPE)
	for rest := word(magic); rest != 0; rest >>= 6 {
		s.keys = append([]keyType{typeOf(rest & 63)}, s.keys...)
	}
	flags, _ := m.attribute(unix.NFTA_SET_FLAGS)
	data, isMap := m.attribute(unix.NFTA_SET_DATA_TYPE)
	switch {
	case word(flags)&^unix.NFT_SET_MAP != 0:
		s.keys = []keyType{{name: fmt.Sprintf("flags 0x%x", word(flags))}}
	case isMap && word(data) == verdictData:
		s.verdicts = true
	case isMap:
		kind := typeOf(word(data))
		s.data = &kind
	}
	return s
}

func typeOf(magic uint32) keyType {
	for _, k := range []keyType{typeIPv4, typeIPv6, typeIfname} {
		if k.magic == magic {
			return k
		}
	}
	return keyType{name: fmt.Sprintf("type %d", magic)}
}

func elementOf(nested []byte) element {
	var e element
	for kind, data := range attributes(nested) {
		value, _ := find(attributes(data), unix.NFTA_DATA_VALUE)
		switch kind {
		case unix.NFTA_SET_ELEM_KEY:
			e.key = string(value)
		case unix.NFTA_SET_ELEM_DATA:
			e.data = string(value)
			if v, ok := find(attributes(data), unix.NFTA_DATA_VERDICT); ok {
				e.verdict = verdictOf(v)
			}
		}
	}
	return e
}

func verdictOf(b []byte) verdict {
	code, _ := find(attributes(b), unix.NFTA_VERDICT_CODE)
	chain, _ := find(attributes(b), unix.NFTA_VERDICT_CHAIN)
	for kind, v := range verdicts {
		if v.kind == expr.VerdictKind(int32(word(code))) {
			return verdict{verdictKind(kind), cString(chain)}
		}
	}
	return verdict{}
}

func (k *Kernel) counters(ctx context.Context) (map[string]Counter, error) {
	return k.countersOf(ctx, tableName)
}

// countersOf returns the named counters of tables of this name.
func (k *Kernel) countersOf(ctx context.Context, name string) (map[string]Counter, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]Counter{}
	for _, table := range []family{inet, arp} {
		err := k.dump(ctx, unix.NFT_MSG_GETOBJ, table, func(m message) {
			if in, _ := m.attribute(unix.NFTA_OBJ_TABLE); cString(in) != name || m.family != table {
				return
			}
			name, _ := m.attribute(unix.NFTA_OBJ_NAME)
			data, _ := m.attribute(unix.NFTA_OBJ_DATA)
			packets, _ := find(attributes(data), unix.NFTA_COUNTER_PACKETS)
			bytes, _ := find(attributes(data), unix.NFTA_COUNTER_BYTES)
			all[cString(name)] = Counter{Packets: quad(packets), Bytes: quad(bytes)}
		}, name)
		if err != nil {
			return nil, fmt.Errorf("nftables: counters: %w", err)
		}
	}
	return all, nil
}
