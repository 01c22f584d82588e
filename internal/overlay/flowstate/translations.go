package flowstate

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// BlockSize is the number of ports in a block of NAT ports.
const BlockSize = 64

// Block names a block of ports of a translated address: ports Number*BlockSize and on.
type Block struct {
	Device string // id of the router
	Addr   netip.Addr
	Number uint16
}

// BlockUse is the ports of a block that connections to one destination use: bit i is port i of it.
type BlockUse struct {
	Number uint16
	Ports  uint64
}

// TranslationOptions bound Translations.
type TranslationOptions struct {
	Max int // connections with a translation; default 262144
	// HostID is that of this host: of two hosts that send the connections of a client to different
	// members of a pool, the one with the lower id counts.
	HostID string
	// Keeper keeps what must survive a restart of the agent; nil: nothing does.
	Keeper Keeper[flow.NATEntry]
}

// Translations holds the translations of connections. A record is the entry of a Forward kind; it
// is also found by the key of its Reverse. It may be used from any goroutine.
type Translations struct {
	*table[flow.NATKey, flow.NATEntry]

	// Of dynamic SNAT, guarded by mu: the ports in use toward each destination, and how many
	// connections use each block.
	toward map[destination]portUse
	blocks map[Block]int
	// Of connections by a translated destination: how many this host let in by each, and how many
	// there are to each target.
	letIn, targets map[flow.Endpoint]int
	ends           map[string][]pendingEnd // to be sent, by host; guarded by mu
}

// portUse is the ports in use toward a destination.
type portUse struct {
	blocks  []BlockUse  // in order of their numbers
	sources []sourceUse // in order of their addresses
}

// sourceUse counts the ports that the connections of an address use, which is the one before the
// translation.
type sourceUse struct {
	addr  netip.Addr
	ports int
}

// destination groups the connections that must differ in their source port.
type destination struct {
	device string
	source netip.Addr // translated
	addr   netip.Addr
	port   uint16 // 0 for ICMP echo, whose replies have the id alone
	proto  uint8
}

// NewTranslations makes an empty table.
func NewTranslations(o TranslationOptions) *Translations {
	keys := func(e flow.NATEntry) (flow.NATKey, flow.NATKey) { return e.NATKey, e.Reverse().NATKey }
	h := newHasher()
	t := &Translations{table: newTable(cmp.Or(o.Max, 262144), keys, h.ofNAT, o.Keeper), toward: map[destination]portUse{}, blocks: map[Block]int{},
		letIn: map[flow.Endpoint]int{}, targets: map[flow.Endpoint]int{}, ends: map[string][]pendingEnd{}}
	t.entered, t.left = t.enter, t.leave
	t.returned = true // the host that opened it must not give the port to another connection
	t.life = func(e flow.NATEntry) time.Duration { return time.Duration(e.Life) * time.Second }
	t.hostID = o.HostID
	return t
}

// Get returns the translation with this key at a time. That is no use of it; see Touch.
func (t *Translations) Get(key flow.NATKey, now time.Duration) (flow.NATBinding, bool) {
	e, ok := t.get(key, now)
	switch {
	case !ok:
		return flow.NATBinding{}, false
	case e.NATKey != key:
		e = e.Reverse()
	}
	return e.NATBinding, true
}

// Add is like Table's Add. Entries of Reverse kinds are implied by the others.
func (t *Translations) Add(entries []flow.NATEntry, port string, hosts []string, now time.Duration) (fresh []flow.NATEntry) {
	return t.table.Add(forward(entries), port, hosts, now)
}

// Import is like Table's Import. Entries of Reverse kinds are implied by the others.
func (t *Translations) Import(entries []flow.NATEntry, from string, now time.Duration) (fresh []flow.NATEntry) {
	return t.table.Import(forward(entries), from, now)
}

func forward(entries []flow.NATEntry) []flow.NATEntry {
	isReverse := func(e flow.NATEntry) bool { return !e.IsForward() }
	if !slices.ContainsFunc(entries, isReverse) {
		return entries
	}
	return slices.DeleteFunc(slices.Clone(entries), isReverse)
}

// Use notes that a packet of port used a translation of a Forward kind on its way to hosts. It
// returns the entry and those of the hosts that it was not sent to before; not ok if it is gone.
func (t *Translations) Use(key flow.NATKey, port string, hosts []string, now time.Duration) (e flow.NATEntry, unsent []string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.entries.get(key)
	if c == nil {
		return e, nil, false
	}
	t.adopt(c, port)
	t.use(c, now)
	if to := newHostSet(hosts); to != c.hosts {
		known := c.hosts.ids()
		for _, h := range hosts {
			if !slices.Contains(known, h) {
				unsent = append(unsent, h)
			}
		}
		c.hosts = to
	}
	return c.record, unsent, true
}

// AppendInUse appends the ports in use for connections like the requested one with a translated
// address, in order of their blocks.
func (t *Translations) AppendInUse(to []BlockUse, r *flow.NATRequest, source netip.Addr) []BlockUse {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(to, t.toward[destinationOf(r.Taken(flow.NATBinding{Addr: source}))].blocks...)
}

// UsedBySource returns how many ports of a translated address are in use for connections like the
// requested one by the same source.
func (t *Translations) UsedBySource(r *flow.NATRequest, translated netip.Addr) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	sources := t.toward[destinationOf(r.Taken(flow.NATBinding{Addr: translated}))].sources
	if i, found := slices.BinarySearchFunc(sources, r.Src, byAddress); found {
		return sources[i].ports
	}
	return 0
}

// Uses returns how many connections use ports of a block.
func (t *Translations) Uses(b Block) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.blocks[b]
}

// destinationOf returns the destination of the connection whose replies have this key.
func destinationOf(replies flow.NATKey) destination {
	d := destination{replies.Device, replies.Dst, replies.Src, replies.SrcPort, replies.Proto}
	if isICMP(d.proto) {
		d.port = 0
	}
	return d
}

func isICMP(proto uint8) bool { return proto == packet.ProtoICMP || proto == packet.ProtoICMPv6 }

func byAddress(s sourceUse, a netip.Addr) int { return s.addr.Compare(a) }

func byNumber(u BlockUse, number uint16) int { return cmp.Compare(u.Number, number) }

// LetIn returns how many connections by a translated destination this host has let in.
func (t *Translations) LetIn(destination flow.Endpoint) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.letIn[destination]
}

// To returns how many connections are known whose destination is translated to a target.
func (t *Translations) To(target flow.Endpoint) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.targets[target]
}

// enter counts a connection.
func (t *Translations) enter(e flow.NATEntry, imported bool) {
	switch e.Kind {
	case flow.ForwardSNAT:
		t.occupy(e)
	case flow.ForwardDNAT:
		t.count(e, imported, 1)
	}
}

// leave reverses enter.
func (t *Translations) leave(e flow.NATEntry, imported bool) {
	switch e.Kind {
	case flow.ForwardSNAT:
		t.vacate(e)
	case flow.ForwardDNAT:
		t.count(e, imported, -1)
	}
}

func (t *Translations) count(e flow.NATEntry, imported bool, by int) {
	add := func(to map[flow.Endpoint]int, k flow.Endpoint) {
		if to[k] += by; to[k] == 0 {
			delete(to, k)
		}
	}
	add(t.targets, flow.Endpoint{Device: e.Device, Addr: e.Addr, Port: e.Port, Proto: e.Proto})
	if !imported {
		add(t.letIn, flow.Endpoint{Device: e.Device, Addr: e.Dst, Port: e.DstPort, Proto: e.Proto})
	}
}

// occupy notes that a connection's source port is in use.
func (t *Translations) occupy(e flow.NATEntry) {
	d, number := destinationOf(e.Reverse().NATKey), e.Port/BlockSize
	use := t.toward[d]
	i, found := slices.BinarySearchFunc(use.blocks, number, byNumber)
	if !found {
		use.blocks = slices.Insert(use.blocks, i, BlockUse{Number: number})
	}
	use.blocks[i].Ports |= 1 << (e.Port % BlockSize)
	i, found = slices.BinarySearchFunc(use.sources, e.Src, byAddress)
	if !found {
		use.sources = slices.Insert(use.sources, i, sourceUse{addr: e.Src})
	}
	use.sources[i].ports++
	t.toward[d] = use
	t.blocks[Block{e.Device, e.Addr, number}]++
}

// vacate reverses occupy.
func (t *Translations) vacate(e flow.NATEntry) {
	d, number := destinationOf(e.Reverse().NATKey), e.Port/BlockSize
	use := t.toward[d]
	if i, found := slices.BinarySearchFunc(use.blocks, number, byNumber); found {
		if use.blocks[i].Ports &^= 1 << (e.Port % BlockSize); use.blocks[i].Ports == 0 {
			use.blocks = slices.Delete(use.blocks, i, i+1)
		}
	}
	if i, found := slices.BinarySearchFunc(use.sources, e.Src, byAddress); found {
		if use.sources[i].ports--; use.sources[i].ports == 0 {
			use.sources = slices.Delete(use.sources, i, i+1)
		}
	}
	if len(use.sources) == 0 {
		delete(t.toward, d)
	} else {
		t.toward[d] = use
	}
	b := Block{e.Device, e.Addr, number}
	if t.blocks[b]--; t.blocks[b] == 0 {
		delete(t.blocks, b)
	}
}
