package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

const seconds = 1_000_000_000

// byteASecond is so slow a rate that the time that a test takes does not count: a byte's tokens are
// a second. Its bucket holds 1000 bytes.
var byteASecond = topology.Limit{Rate: 8, Burst: 8000}

// metadata is the part of struct __sk_buff up to gso_size.
type metadata struct {
	_           [38]uint32
	Tstamp      uint64
	WireLen     uint32
	Segments    uint32
	_           uint64
	SegmentSize uint32
	_           [3]uint32
}

// limitedLab is a lab whose port in has these limits.
func limitedLab(t testing.TB, limits PortLimits) *lab {
	l := newLab(t, PortOptions{})
	p := l.ports["in"]
	p.Limits = limits
	var entry bpfLimited
	var err error
	if entry.Egress, err = l.setPortLimit(p, limitEgress, limits.Egress, 0); err != nil {
		t.Fatal(err)
	}
	if entry.Ingress, err = l.setPortLimit(p, limitIngress, limits.Ingress, 0); err != nil {
		t.Fatal(err)
	}
	entry.Dscp = limits.DSCP
	if limits.Marks {
		entry.Marks = 1
	}
	if err := l.maps.Limited.Put(lanKey(1, 0), entry); err != nil {
		t.Fatal(err)
	}
	return l
}

// bucketOf returns the bucket of the port's limit.
func (l *lab) bucketOf(direction int) *bpfLimit {
	l.t.Helper()
	e := l.limitSet.byName[portLimitName("in", direction)]
	if e == nil {
		l.t.Fatalf("no limit %s", portLimitName("in", direction))
	}
	return &l.buckets[e.number]
}

// pass gives a frame to a program and returns its verdict and the time of departure it set.
func (l *lab) pass(p *ebpf.Program, frame []byte, segmentSize uint32) (verdict int, departure uint64) {
	l.t.Helper()
	out := metadata{}
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: metadata{SegmentSize: segmentSize}, ContextOut: &out}
	ret, err := p.Run(&opts)
	if err != nil {
		l.t.Fatalf("run %s: %v", p, err)
	}
	return int(int32(ret)), out.Tstamp
}

// TestBucket follows one bucket: it starts full, lets pass while it has any token, holds back what
// follows, and holds no more than its depth.
func TestBucket(t *testing.T) {
	t.Parallel()
	l := limitedLab(t, PortLimits{Egress: byteASecond, Ingress: topology.Limit{Packets: 1, PacketBurst: 3}})
	for _, c := range []struct {
		name      string
		program   *ebpf.Program
		direction int
		frame     []byte
		pass      int   // frames at once, of a full bucket
		overdrawn int64 // by the last of them, seconds
	}{
		{"bytes", l.programs.LimitFromWorkload, limitEgress, udp4(make([]byte, 372)), 3, 200},
		{"packets", l.programs.LimitToWorkload, limitIngress, udp4(nil), 4, 1},
	} {
		limit := l.bucketOf(c.direction)
		b := &limit.Bits
		if c.direction == limitIngress {
			b = &limit.Packets
		}
		for i := range c.pass {
			if verdict, departure := l.pass(c.program, c.frame, 0); verdict != tcxNext || departure != 0 {
				t.Errorf("%s: frame %d of %d: verdict %d at %d: want to pass at once", c.name, i, c.pass, verdict, departure)
			}
		}
		due := b.Due
		if verdict, _ := l.pass(c.program, c.frame, 0); verdict != tcxDrop || b.Due != due || limit.Dropped != 1 {
			t.Errorf("%s: verdict %d, due %d after %d, %d dropped: want a drop that takes nothing", c.name, verdict, b.Due, due, limit.Dropped)
		}
		if ahead := b.Due - monotonicNow(); ahead > c.overdrawn*seconds {
			t.Errorf("%s: overdrawn by %d ns: want at most %d s", c.name, ahead, c.overdrawn)
		}
		// After a long time the bucket is full, and no more than that.
		b.Due = monotonicNow() - 1<<50
		for i := range c.pass + 1 {
			want := tcxNext
			if i == c.pass {
				want = tcxDrop
			}
			if verdict, _ := l.pass(c.program, c.frame, 0); verdict != want {
				t.Errorf("%s: full again, frame %d: verdict %d: want %d", c.name, i, verdict, want)
			}
		}
		b.Due = monotonicNow() + seconds<<10
		if verdict, _ := l.pass(c.program, c.frame, 0); verdict != tcxDrop {
			t.Errorf("%s: overdrawn: verdict %d: want a drop", c.name, verdict)
		}
	}
	if drops := l.counters().Drops["over its limit of rate"]; drops != 6 {
		t.Errorf("%d drops are counted: want 6", drops)
	}
}

// TestDeparture: where the interface has a queue that waits, frames over the limit are given their
// time of departure, and dropped only if that is too far.
func TestDeparture(t *testing.T) {
	t.Parallel()
	l := limitedLab(t, PortLimits{Ingress: byteASecond})
	frame := udp4(make([]byte, 72)) // 100 bytes of IP
	if _, err := l.SetLimit(portLimitName("in", limitIngress), byteASecond, 1000*seconds); err != nil {
		t.Fatal(err)
	}
	b := l.bucketOf(limitIngress)
	start := monotonicNow() + 450*seconds
	b.Bits.Due = start
	for i := range int64(6) { // at 450, 550, … 950 s
		due := start + i*100*seconds
		if verdict, departure := l.pass(l.programs.LimitToWorkload, frame, 0); verdict != tcxNext || departure != uint64(due) {
			t.Errorf("frame %d: verdict %d at %d: want to leave at %d", i, verdict, departure, due)
		}
	}
	if verdict, _ := l.pass(l.programs.LimitToWorkload, frame, 0); verdict != tcxDrop || b.Dropped != 1 || b.Delayed != 6 {
		t.Errorf("a frame for later: verdict %d, %d dropped, %d delayed: want a drop, 1 and 6", verdict, b.Dropped, b.Delayed)
	}
}

// TestWireBytes: program and agent count the same, and for offload frames what is on the wire.
func TestWireBytes(t *testing.T) {
	t.Parallel()
	l := limitedLab(t, PortLimits{Egress: topology.Limit{Rate: 8, Burst: 1 << 40, Packets: 1, PacketBurst: 1 << 20}})
	mine, err := l.SetLimit("agent", topology.Limit{Rate: 8, Burst: 1 << 40, Packets: 1, PacketBurst: 1 << 20}, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := ipv4(packet.IPv4{Proto: protoTCP}, append([]byte{3, 232, 7, 208, 0, 0, 0, 1, 0, 0, 0, 0, 0x80, 2, 0, 1, 1, 1, 0, 0}, make([]byte, 12+2500)...))
	arp := append(packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeARP}.Append(nil), make([]byte, 46)...)
	for _, c := range []struct {
		name           string
		frame          []byte
		piece          uint16
		bytes, packets int64
	}{
		{"udp", udp4(make([]byte, 72)), 0, 100, 1},
		{"udp6", udp6(make([]byte, 72)), 0, 120, 1},
		{"arp", arp, 0, 46, 1},
		{"tcp in 3 pieces", tcp4(make([]byte, 3000)), 1000, 3000 + 3*40, 3},
		{"tcp in 3 pieces, the last shorter", tcp4(make([]byte, 2001)), 1000, 2001 + 3*40, 3},
		{"tcp with options in 3 pieces", options, 1000, 2500 + 3*52, 3},
		{"tcp6 in 2 pieces", tcp6(make([]byte, 2000)), 1000, 2000 + 2*60, 2},
		{"udp in 4 pieces", udp4(make([]byte, 2000)), 500, 2000 + 4*28, 4},
	} {
		limits := []*bpfLimit{l.bucketOf(limitEgress), &l.buckets[mine]}
		start := monotonicNow() - 1_000_000*seconds // with tokens, not full
		for _, b := range limits {
			b.Bits.Due, b.Packets.Due = start, start
		}
		if verdict, _ := l.pass(l.programs.LimitFromWorkload, c.frame, uint32(c.piece)); verdict != tcxNext {
			t.Errorf("%s: verdict %d: want to pass", c.name, verdict)
		}
		off := Offload{}
		if c.piece != 0 {
			off.vnet = vnetHeader{gsoType: 1, segmentSize: c.piece}
		}
		if !l.Admit([]Limit{mine}, c.frame, off) {
			t.Errorf("%s: the agent does not admit it", c.name)
		}
		for i, who := range []string{"program", "agent"} {
			bytes, packets := (limits[i].Bits.Due-start)/seconds, (limits[i].Packets.Due-start)/seconds
			if bytes != c.bytes || packets != c.packets {
				t.Errorf("%s: the %s counts %d bytes in %d packets: want %d in %d", c.name, who, bytes, packets, c.bytes, c.packets)
			}
		}
	}
}

// TestMark: a mark changes the DSCP and the checksum, and nothing else.
func TestMark(t *testing.T) {
	t.Parallel()
	l := limitedLab(t, PortLimits{Marks: true})
	rapid.Check(t, func(t *rapid.T) {
		dscp, was := rapid.ByteMax(63).Draw(t, "dscp"), rapid.Byte().Draw(t, "traffic class")
		label := rapid.Uint32Max(0xfffff).Draw(t, "flow label")
		if err := l.maps.Limited.Put(lanKey(1, 0), bpfLimited{Marks: 1, Dscp: dscp}); err != nil {
			t.Fatal(err)
		}
		is := dscp<<2 | was&3
		four := func(class byte) []byte {
			return ipv4(packet.IPv4{Proto: protoUDP, TOS: class}, udpBytes)
		}
		six := func(class byte) []byte {
			b := udp6([]byte("payload"))
			binary.BigEndian.PutUint32(b[14:], 6<<28|uint32(class)<<20|label)
			return b
		}
		for name, c := range map[string][2][]byte{"IPv4": {four(was), four(is)}, "IPv6": {six(was), six(is)}} {
			if verdict, after := l.run(l.programs.LimitFromWorkload, c[0]); verdict != tcxNext || !bytes.Equal(after, c[1]) {
				t.Errorf("%s: verdict %d:\n%x: want\n%x", name, verdict, after, c[1])
			}
		}
	})
	arp := append(packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeARP}.Append(nil), make([]byte, 28)...)
	if verdict, after := l.run(l.programs.LimitFromWorkload, arp); verdict != tcxNext || !bytes.Equal(after, arp) {
		t.Errorf("ARP: verdict %d, %x: want it as it was", verdict, after)
	}
}

// TestLimitedFlow: a flow passes while all its limits let it, and keeps its tags.
func TestLimitedFlow(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	var numbers []Limit
	for i, burst := range []uint64{1 << 30, 0} {
		n, err := l.SetLimit(fmt.Sprint("limit", i), topology.Limit{Rate: 8, Burst: burst}, 0)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	for name, frame := range map[string][]byte{"IPv4": tcp4(nil), "IPv6": tcp6(nil)} {
		f := Flow{Key: l.keyOf(frame), Out: Output{Port: l.out}, Tags: l.Tags(1, 2, 3, 4, 5), Limits: numbers}
		f.Rewrite = routed(f.Key)
		l.install(f)
		found, ok, err := l.Lookup(f.Key)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		compare(t, name, found.Flow, f)
		for i, want := range []int{tcxRedirect, tcxDrop} {
			b := &l.buckets[numbers[1]].Bits
			b.Due = monotonicNow() - 1 + int64(i)*100*seconds
			if verdict, _ := l.workload(frame); verdict != want {
				t.Errorf("%s: frame %d: verdict %d: want %d", name, i, verdict, want)
			}
		}
		f.Tags = l.Tags(1, 2, 3, 4, 5, 6)
		if err := l.Install([]Flow{f}); err == nil {
			t.Error("a flow with limits took six tags")
		}
		f.Tags, f.Limits = nil, []Limit{1, 2, 3}
		if err := l.Install([]Flow{f}); err == nil {
			t.Error("a flow took three limits")
		}
	}
	if err := l.RemoveLimit("limit1"); err != nil {
		t.Fatal(err)
	}
	frame := tcp4(nil)
	if verdict, _ := l.workload(frame); verdict != tcxRedirect {
		t.Errorf("without its second limit a frame gets %d: want it to pass", verdict)
	}
}

// TestSetLimit: numbers are not given twice, a changed rate holds at once, and what a limit counted
// and gave survives a restart.
func TestSetLimit(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	l := labOf(t, openWith(t, opts), PortOptions{})
	first, err := l.SetLimit("a", byteASecond, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := &l.buckets[first].Bits
	b.Due = monotonicNow() + 1000*seconds
	if _, err := l.SetLimit("a", byteASecond, 0); err != nil || b.Due < monotonicNow()+900*seconds {
		t.Errorf("set again, due in %d ns, %v: want it as it was", b.Due-monotonicNow(), err)
	}
	if _, err := l.SetLimit("a", topology.Limit{Rate: 80}, 0); err != nil || b.Due > monotonicNow() || b.Depth != 8*seconds/10 {
		t.Errorf("with another rate due in %d ns, depth %d, %v: want now, and 0.8 s", b.Due-monotonicNow(), b.Depth, err)
	}
	second, err := l.SetLimit("b", topology.Limit{Packets: 10, PacketBurst: 5}, 7)
	if err != nil || second == first {
		t.Errorf("the second limit is %d, %v: want another than %d", second, err, first)
	}
	l.buckets[second].Dropped = 3
	want := l.Limits()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	next := openWith(t, opts)
	compare(t, "after a restart", next.Limits(), want)
	if next.buckets[second].MaxWait != 7 {
		t.Errorf("frames wait for %d ns: want 7", next.buckets[second].MaxWait)
	}
	for _, name := range []string{"a", "b", "none"} {
		if err := next.RemoveLimit(name); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, "limits left", next.Limits(), []LimitState(nil))
	if third, err := next.SetLimit("c", byteASecond, 0); err != nil || third == 0 || next.buckets[third].Dropped != 0 {
		t.Errorf("the next limit is %d with %d drops, %v", third, next.buckets[third].Dropped, err)
	}
}

// TestLimitsFull: when all numbers are in use the next limit is refused, until one goes.
func TestLimitsFull(t *testing.T) {
	t.Parallel()
	l := open(t)
	for i := range maxLimits - 1 {
		l.byName[fmt.Sprint(i)] = &limitEntry{number: Limit(i + 1)}
		l.taken[i+1] = true
	}
	if n, err := l.SetLimit("one more", byteASecond, 0); err == nil {
		t.Errorf("one more limit got number %d", n)
	}
	if err := l.RemoveLimit("77"); err != nil {
		t.Fatal(err)
	}
	if n, err := l.SetLimit("one more", byteASecond, 0); n != 78 || err != nil {
		t.Errorf("the number %d, %v: want the free one, 78", n, err)
	}
}

// TestDepth: the time that a burst takes, without overflow.
func TestDepth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		burst, rate uint64
		want        int64
	}{
		{8000, 8, 1000 * seconds}, {1, 3, 333333333}, {0, 1, 0}, {1 << 63, 1, maxDepth}, {1 << 63, 1 << 63, seconds},
		{2_147_483_647_000, 1000, 2_147_483_647 * seconds}, {5, 0, maxDepth},
	} {
		if got := depthOf(c.burst, c.rate); got != c.want {
			t.Errorf("a burst of %d at %d takes %d ns: want %d", c.burst, c.rate, got, c.want)
		}
	}
}
