package verdicts

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

var (
	client = netip.MustParseAddr("10.0.0.1")
	server = netip.MustParseAddr("10.0.0.2")
)

// newTestLog returns a log whose clock stands still.
func newTestLog() *Log {
	l := NewLog("h")
	l.now = func() time.Time { return time.Unix(1_000_000, 0) }
	return l
}

func denied() *flow.Decision {
	return &flow.Decision{Verdict: flow.Drop, Code: flow.CodeNoRule, Drops: []flow.Dropped{{Device: "q", Code: flow.CodeNoRule, Chain: "c", Rule: "last"}}}
}

func accepted() *flow.Decision {
	return &flow.Decision{Verdict: flow.Forward, Outputs: []flow.Output{{PortID: "q"}}, Rulings: []flow.Ruling{{PortID: "p", Chain: "c", Rule: "out"}, {PortID: "q", Ingress: true, Chain: "d", Rule: "in"}}}
}

func from(sport, dport uint16, d *flow.Decision) *Packet {
	return &Packet{Port: "p", Network: "n", Project: "t", DroppedAt: "q", Src: client, Dst: server, Proto: packet.ProtoTCP, SrcPort: sport, DstPort: dport, Length: 60, Decision: d}
}

// read flushes a log and returns its records.
func read(t *testing.T, l *Log) []flow.FlowRecord {
	t.Helper()
	r, _ := l.Reader(false)
	l.Flush()
	records, lost, _ := r.Next(mostRecords)
	if lost > 0 {
		t.Errorf("%d records lost", lost)
	}
	return records
}

// TestAggregated: connections to one service are one record whatever their source ports, with what
// their flows carry, also after its window.
func TestAggregated(t *testing.T) {
	t.Parallel()
	l := newTestLog()
	var key FlowKey
	for sport := range uint16(100) {
		key = l.Decided(from(40000+sport, 80, accepted()))
	}
	l.Carried(key, 7, 700)
	all := read(t, l)
	if len(all) != 1 {
		t.Fatalf("got %+v, want one record", all)
	}
	r := all[0]
	if r.Flows != 100 || r.Packets != 107 || r.Bytes != 6700 || r.PeerPort != "q" || r.SourcePort != 40000 || r.DestinationPort != 80 || fmt.Sprint(r.Rules) != "[out in]" || r.Verdict != "forward" || r.Project != "t" {
		t.Errorf("got %+v", r)
	}
	l.Carried(key, 1, 60)
	if all = read(t, l); len(all) != 2 || all[1].Flows != 0 || all[1].Packets != 1 || all[1].Project != "t" || all[1].Network != "n" {
		t.Errorf("a flow that goes on: %+v", all)
	}
}

// TestFirsts: dropped packets have records of their own, up to a rate, with an exact count of those
// left out.
func TestFirsts(t *testing.T) {
	t.Parallel()
	l := newTestLog()
	for sport := range uint16(250) {
		l.Decided(from(sport, 22, denied()))
	}
	all := read(t, l)
	if len(all) != firstsPerSecond+1 {
		t.Fatalf("got %d records", len(all))
	}
	for i, r := range all[:firstsPerSecond] {
		if !r.First || r.SourcePort != uint16(i) || r.Packets != 1 || r.PeerPort != "q" || r.Code != flow.CodeNoRule {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if r := all[firstsPerSecond]; r.First || r.Left != 150 || r.Packets != 250 || r.Flows != 250 {
		t.Errorf("their sum: %+v", r)
	}
}

// TestScan: dropped packets to many ports of a peer share one record, which counts the ports.
func TestScan(t *testing.T) {
	t.Parallel()
	l := newTestLog()
	for range 2 {
		for port := range uint16(1000) {
			l.Decided(from(40000, port+1, denied()))
		}
	}
	sums, packets := 0, uint64(0)
	for _, r := range read(t, l) {
		if r.First {
			continue
		}
		sums++
		packets += r.Packets
		if r.Ports > 0 && (r.Ports != 1000-fewPorts || r.DestinationPort != 0) || r.Ports == 0 && r.DestinationPort > fewPorts {
			t.Errorf("got %+v", r)
		}
	}
	if sums != fewPorts+1 || packets != 2000 {
		t.Errorf("%d records of %d packets", sums, packets)
	}
}

// TestSlowReader: a reader that falls behind is told how many records it has lost, and the log goes
// on.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	l := newTestLog()
	r, _ := l.Reader(true)
	for i := range mostRecords + 10 {
		l.append(flow.FlowRecord{Packets: uint64(i)})
	}
	records, lost, _ := r.Next(1)
	if lost != 10 || len(records) != 1 || records[0].Packets != 10 {
		t.Errorf("got %+v after %d lost", records, lost)
	}
	if records, lost, _ = r.Next(mostRecords); lost != 0 || len(records) != mostRecords-1 {
		t.Errorf("got %d more after %d lost", len(records), lost)
	}
}

// TestFullWindow: records for which there is no room are counted.
func TestFullWindow(t *testing.T) {
	t.Parallel()
	l := newTestLog()
	for i := range mostOpen + 5 {
		x := from(1, 80, accepted())
		x.Dst = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		l.Decided(x)
	}
	all := read(t, l)
	if last := all[len(all)-1]; last.Lost != 5 {
		t.Errorf("the last record is %+v", last)
	}
}
