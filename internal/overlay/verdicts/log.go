package verdicts

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

const (
	// window is the time over which decisions are aggregated.
	window = 10 * time.Second
	// mostRecords bounds the records of a log, and mostOpen those of one window.
	mostRecords = 65_536
	mostOpen    = mostRecords / 2
	// firstsPerSecond is the number of dropped packets of a port with a record of their own.
	firstsPerSecond = 100
	// fewPorts is the number of ports of one peer after which dropped packets to others share one
	// record.
	fewPorts = 32
)

// Packet is a packet that was decided about.
type Packet struct {
	Port             string // by which it came in
	Network, Project string // of the port
	DroppedAt        string // the other port that has dropped it, or ""
	Src, Dst         netip.Addr
	Proto            uint8
	SrcPort, DstPort uint16 // of ICMP type and code in the latter, as type<<8 | code
	Length           int
	Decision         *flow.Decision
}

// FlowKey names a record of the log: packets with the same are counted together.
type FlowKey struct {
	port    string
	peer    netip.Addr
	proto   uint8
	service uint16
	reply   bool
	many    bool // dropped packets to many ports
	verdict flow.Verdict
	code    flow.Code
	rule    string // the last that has decided
}

// place is the network and project of a port.
type place struct{ network, project string }

// Log holds the last records of a host, oldest first.
type Log struct {
	host  string
	now   func() time.Time
	begun time.Time

	mu      sync.Mutex
	places  map[string]place             // by port
	open    map[FlowKey]*flow.FlowRecord // of the present window
	scans   map[FlowKey]*scan            // by keys without a service
	firsts  map[string]*firsts           // by port
	dropped uint64                       // records of the present window that there was no room for
	records []flow.FlowRecord            // a ring
	next    uint64                       // number of the next record
	changed chan struct{}                // closed when there are more records
}

// firsts counts the records of single packets of a port in a second.
type firsts struct {
	second int64
	n      int
}

// scan holds the ports of a peer to which dropped packets were sent in a window.
type scan struct {
	few  []uint16
	many *[1 << 16 / 64]uint64
	n    int // of many
}

// add reports whether packets to a port share a record with others.
func (s *scan) add(port uint16) (shared bool) {
	if slices.Contains(s.few, port) {
		return false
	}
	if len(s.few) < fewPorts {
		s.few = append(s.few, port)
		return false
	}
	if s.many == nil {
		s.many = new([1 << 16 / 64]uint64)
	}
	if bit := uint64(1) << (port % 64); s.many[port/64]&bit == 0 {
		s.many[port/64] |= bit
		s.n++
	}
	return true
}

// NewLog returns the empty log of the host with a name.
func NewLog(host string) *Log {
	l := &Log{host: host, now: time.Now, changed: make(chan struct{}), firsts: map[string]*firsts{}, places: map[string]place{}}
	l.begun = l.now()
	l.begin()
	return l
}

// begin begins a window.
func (l *Log) begin() { l.open, l.scans = map[FlowKey]*flow.FlowRecord{}, map[FlowKey]*scan{} }

// Decided records a decision about a packet, and returns the key of its flow's later packets.
func (l *Log) Decided(p *Packet) FlowKey {
	d := p.Decision
	k := FlowKey{port: p.Port, peer: p.Dst, proto: p.Proto, service: p.DstPort, verdict: d.Verdict}
	if d.Tracked && d.Return && !isICMP(p.Proto) {
		k.reply, k.service = true, p.SrcPort
	}
	denied := d.Verdict == flow.Drop || d.Verdict == flow.ErrorDrop
	switch {
	case denied && len(d.Drops) > 0:
		k.code, k.rule = d.Code, d.Drops[0].Rule
	case len(d.Rulings) > 0:
		k.rule = d.Rulings[len(d.Rulings)-1].Rule
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var s *scan
	if denied {
		s, k = l.scanned(k)
	}
	r := l.record(k, p)
	if r == nil {
		return k
	}
	r.Flows++
	r.Packets++
	r.Bytes += uint64(p.Length)
	if k.many {
		r.Ports, r.DestinationPort = s.n, 0
	}
	if denied {
		l.recordFirst(r, p)
	}
	return k
}

func isICMP(proto uint8) bool { return proto == packet.ProtoICMP || proto == packet.ProtoICMPv6 }

// scanned notes the destination port of a dropped packet, and returns the key of its record: one
// for many ports if there were a few before it.
func (l *Log) scanned(k FlowKey) (*scan, FlowKey) {
	many := k
	many.service, many.many = 0, true
	s := l.scans[many]
	if s == nil {
		if len(l.scans) >= mostOpen {
			return nil, k
		}
		s = &scan{}
		l.scans[many] = s
	}
	if !isICMP(k.proto) && s.add(k.service) {
		return s, many
	}
	return s, k
}

// record returns the open record of a key, which begins with a packet; nil if there is no room.
func (l *Log) record(k FlowKey, p *Packet) *flow.FlowRecord {
	r := l.open[k]
	if r != nil {
		return r
	}
	if len(l.open) >= mostOpen {
		l.dropped++
		return nil
	}
	r = l.describe(k, p)
	l.open[k] = r
	return r
}

// describe begins a record. Without a packet it is of a flow that goes on.
func (l *Log) describe(k FlowKey, p *Packet) *flow.FlowRecord {
	r := &flow.FlowRecord{Time: l.now(), Host: l.host, Port: k.port, Peer: k.peer.String(), Protocol: k.proto, DestinationPort: k.service,
		Verdict: k.verdict.String(), Code: k.code, Reply: k.reply}
	if p != nil {
		if len(l.places) >= mostRecords {
			clear(l.places) // of ports that have come and gone
		}
		l.places[k.port] = place{p.Network, p.Project}
	}
	at := l.places[k.port]
	r.Network, r.Project = at.network, at.project
	if isICMP(k.proto) {
		kind, code := uint8(k.service>>8), uint8(k.service)
		r.ICMPType, r.ICMPCode, r.DestinationPort = &kind, &code, 0
	}
	if p == nil {
		if k.rule != "" {
			r.Rules = []string{k.rule}
		}
		return r
	}
	d := p.Decision
	r.Source = p.Src.String()
	if !isICMP(p.Proto) && !k.reply {
		r.SourcePort = p.SrcPort
	}
	for _, x := range d.Rulings {
		if x.Rule != "" {
			r.Rules = append(r.Rules, x.Rule)
		}
	}
	switch {
	case len(d.Outputs) == 1:
		r.PeerPort = d.Outputs[0].PortID
	case k.code != 0 && len(d.Drops) > 0:
		r.PeerPort = p.DroppedAt
		if k.rule != "" {
			r.Rules = append(r.Rules, k.rule)
		}
	}
	if w := d.Rewrite; w != nil && (w.Src != p.Src || w.Dst != p.Dst || w.SrcPort != p.SrcPort && !isICMP(p.Proto)) {
		r.NAT = &flow.FlowNAT{Source: netip.AddrPortFrom(w.Src, w.SrcPort), Destination: netip.AddrPortFrom(w.Dst, w.DstPort)}
	}
	return r
}

// recordFirst adds a record of a single dropped packet, or counts it as left out.
func (l *Log) recordFirst(r *flow.FlowRecord, p *Packet) {
	f := l.firsts[p.Port]
	if f == nil {
		f = &firsts{}
		l.firsts[p.Port] = f
	}
	if now := l.now().Unix(); f.second != now {
		f.second, f.n = now, 0
	}
	if f.n++; f.n > firstsPerSecond {
		r.Left++
		return
	}
	single := *r
	single.Time, single.First, single.Flows, single.Packets, single.Bytes, single.Left, single.Ports = l.now(), true, 1, 1, uint64(p.Length), 0, 0
	if !isICMP(p.Proto) {
		single.SourcePort, single.DestinationPort = p.SrcPort, p.DstPort
	}
	l.append(single)
	l.wake()
}

// Carried records what the flow of a key has carried.
func (l *Log) Carried(k FlowKey, packets, bytes uint64) {
	if k == (FlowKey{}) || packets == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.record(k, nil); r != nil {
		r.Packets += packets
		r.Bytes += bytes
	}
}

// append adds a record in the place of the oldest one.
func (l *Log) append(r flow.FlowRecord) {
	if len(l.records) < mostRecords {
		l.records = append(l.records, r)
	} else {
		l.records[l.next%mostRecords] = r
	}
	l.next++
}

func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Flush ends the present window.
func (l *Log) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) == 0 {
		return
	}
	ended := make([]*flow.FlowRecord, 0, len(l.open))
	for _, r := range l.open {
		ended = append(ended, r)
	}
	slices.SortFunc(ended, func(a, b *flow.FlowRecord) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Peer, b.Peer))
	})
	for _, r := range ended {
		l.append(*r)
	}
	if l.dropped > 0 {
		l.append(flow.FlowRecord{Lost: l.dropped})
		l.dropped = 0
	}
	l.begin()
	clear(l.firsts)
	l.wake()
}

// Run ends windows until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(window)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			l.Flush()
		}
	}
}

// Reader reads a log on. What it has not read in time is lost.
type Reader struct {
	log  *Log
	next uint64
}

// Reader returns a reader of all records that there are, or of those to come, and the time since
// which there are all.
func (l *Log) Reader(fromNow bool) (r *Reader, begins time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, begins = &Reader{log: l, next: l.next - uint64(len(l.records))}, l.begun
	if r.next > 0 {
		begins = l.records[r.next%mostRecords].Time
	}
	if fromNow {
		r.next = l.next
	}
	return r, begins
}

// Next returns at most so many records, with the number of those that were lost before them, and a
// channel that is closed when there are more.
func (r *Reader) Next(most int) (records []flow.FlowRecord, lost uint64, more <-chan struct{}) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if oldest := l.next - uint64(len(l.records)); r.next < oldest {
		lost = oldest - r.next
		r.next = oldest
	}
	for ; r.next < l.next && len(records) < most; r.next++ {
		records = append(records, l.records[r.next%mostRecords])
	}
	return records, lost, l.changed
}
