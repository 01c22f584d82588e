package simulate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"

	"pgregory.net/rapid"
)

// everything is the condition of a tap service's mirror.
func everything() []topology.Condition {
	return []topology.Condition{{FragmentPolicy: topology.FragAny}}
}

// mirror adds a mirror of everything to a port.
func (l *lab) mirror(id, to string) []string {
	return l.Apply(owner("tap-service", id), &topology.Bundle{Mirrors: []topology.Mirror{{ID: id, ToPortID: to, Conditions: everything()}}})
}

// tap attaches a mirror to a port: IN before its filter, OUT after it, or both.
func (l *lab) tap(id, mirror, port, direction string, vlans ...topology.VLANRange) []string {
	b := &topology.Bundle{}
	for position, other := range map[topology.MirrorPosition]string{topology.PreOutFilter: "OUT", topology.PostInFilter: "IN"} {
		if direction != other {
			b.MirrorEntries = append(b.MirrorEntries, topology.MirrorEntry{PortID: port, MirrorID: mirror, Position: position, VLANs: vlans})
		}
	}
	return l.Apply(owner("tap-flow", id), b)
}

// tapped has p1 and p2 in group web, which lets in TCP to 80, and monitors p8 and p9, of which the
// last is on another network.
func tapped() *lab {
	l := newLab()
	l.network("net")
	l.network("other")
	l.group("web", allowPort("web/80", packet.ProtoTCP, 80))
	l.port(machine(1, "web"))
	l.port(machine(2, "web"))
	for i := 8; i <= 9; i++ {
		p := open(i)
		if i == 9 {
			p.network = "other"
		}
		l.port(p)
		l.mirror(fmt.Sprint("m", i), p.id)
	}
	return l
}

// copies are the ports that get copies.
func copies(d *flow.Decision) string {
	var ids []string
	for _, c := range d.Copies {
		ids = append(ids, c.PortID)
	}
	return strings.Join(ids, " ")
}

// TestMirrorPositions: IN copies what comes to a port before its filter, OUT what its filter has
// let through; neither is on the way of the original.
func TestMirrorPositions(t *testing.T) {
	t.Parallel()
	forged := tcp(1, 2, 4000, 80)
	copy(forged[26:], []byte{10, 0, 0, 7})
	for _, tt := range []struct {
		name, port, direction string
		frame                 []byte
		verdict               flow.Verdict
		want                  string
	}{
		{"IN of what arrives", "p2", "IN", tcp(1, 2, 4000, 80), flow.Forward, "p9"},
		{"IN of what the group drops", "p2", "IN", tcp(1, 2, 4000, 81), flow.Drop, "p9"},
		{"OUT of the receiver", "p2", "OUT", tcp(1, 2, 4000, 80), flow.Forward, ""},
		{"OUT of what was sent", "p1", "OUT", tcp(1, 2, 4000, 80), flow.Forward, "p9"},
		{"OUT of what another group drops", "p1", "OUT", tcp(1, 2, 4000, 81), flow.Drop, "p9"},
		{"OUT of a forged source", "p1", "OUT", forged, flow.Drop, ""},
		{"IN of the sender", "p1", "IN", tcp(1, 2, 4000, 80), flow.Forward, ""},
		{"BOTH of the sender", "p1", "BOTH", tcp(1, 2, 4000, 80), flow.Forward, "p9"},
	} {
		l := tapped()
		plain := withoutCopies(l.sim.Run(Input{PortID: "p1", Frame: tt.frame, State: l.mem}))
		l.tap("f", "m9", tt.port, tt.direction)
		d := l.send("p1", tt.frame)
		if d.Verdict != tt.verdict || copies(d) != tt.want || !d.Cacheable || withoutCopies(d) != plain {
			t.Errorf("%s: %v copied to %q, want %v to %q\nwithout tap: %s\n%s", tt.name, d.Verdict, copies(d), tt.verdict, tt.want, plain, walk(d))
		}
		if text := walk(d); (tt.want != "") != strings.Contains(text, "copied by mirror m9") {
			t.Errorf("%s: the walk\n%s", tt.name, text)
		}
	}
}

// TestMirrorsTwice: two services make two copies; one that is listed twice makes one.
func TestMirrorsTwice(t *testing.T) {
	t.Parallel()
	l := tapped()
	l.tap("f1", "m9", "p2", "IN")
	l.tap("f2", "m9", "p2", "IN")
	l.tap("f3", "m8", "p2", "BOTH")
	if got := copies(l.send("p1", tcp(1, 2, 4000, 80))); got != "p8 p9" {
		t.Errorf("copied to %s, want p8 and p9 once each", got)
	}
	l.Apply(owner("tap-flow", "f1"), nil)
	if got := copies(l.send("p1", tcp(1, 2, 4000, 80))); got != "p8 p9" {
		t.Errorf("after one of the two flows went: copied to %s", got)
	}
	l.Apply(owner("tap-flow", "f2"), nil)
	if got := copies(l.send("p1", tcp(1, 2, 4000, 80))); got != "p8" {
		t.Errorf("after both went: copied to %s", got)
	}
}

// TestMirrorVLANs: a filter lets through copies by their outermost tag.
func TestMirrorVLANs(t *testing.T) {
	t.Parallel()
	tagged := func(id byte) []byte {
		f := tcp(1, 2, 4000, 80)
		return append(append(bytes.Clone(f[:12]), 0x81, 0, 0, id), f[12:]...)
	}
	for _, tt := range []struct {
		vlans []topology.VLANRange
		want  string // of frames untagged, with VLAN 7 and 9
	}{
		{nil, "p9|p9|p9"},
		{[]topology.VLANRange{{First: 7, Last: 8}}, "|p9|"},
		{[]topology.VLANRange{{First: 0, Last: 0}, {First: 9, Last: 9}}, "p9||p9"},
	} {
		l := tapped()
		l.port(open(1))
		l.tap("f", "m9", "p1", "OUT", tt.vlans...)
		var got []string
		for _, frame := range [][]byte{tcp(1, 2, 4000, 80), tagged(7), tagged(9)} {
			got = append(got, copies(l.send("p1", frame)))
		}
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%v: copied %q, want %s", tt.vlans, got, tt.want)
		}
	}
}

// TestMirrorTargets: a copy leaves by the target's own egress, and what is wrong there touches
// nothing else.
func TestMirrorTargets(t *testing.T) {
	t.Parallel()
	down, unbound, guarded := open(9), open(9), machine(9)
	down.down, unbound.unbound = true, true
	remote := open(9)
	remote.host = "h2"
	for name, p := range map[string]portSpec{
		"the mirror's port is administratively down": down, "not bound to an interface": unbound, "security group denies": guarded,
		"on host h2": remote,
	} {
		l := tapped()
		l.tap("f", "m9", "p2", "IN")
		l.port(p)
		d := l.send("p1", tcp(1, 2, 4000, 80))
		expect(t, d, flow.Forward, "p2")
		if sent := name == "on host h2"; !strings.Contains(walk(d), name) || (copies(d) != "") != sent || len(d.Drops) > 0 || !slices.Contains(d.Touched, "p9") {
			t.Errorf("%s: copied to %q, drops %v, touched %v\n%s", name, copies(d), d.Drops, d.Touched, walk(d))
		}
	}
	l := tapped()
	l.tap("f", "m9", "p2", "IN")
	l.Apply(owner("port", "p9"), nil)
	d := l.send("p1", tcp(1, 2, 4000, 80))
	expect(t, d, flow.Forward, "p2")
	if !strings.Contains(walk(d), "the mirror's port is not known") {
		t.Errorf("without its port:\n%s", walk(d))
	}
}

// TestMirrorStatelessly: a copy whose filter asks for the connection opens none, and the decision
// rests on the answer.
func TestMirrorStatelessly(t *testing.T) {
	t.Parallel()
	l := newLab()
	l.network("net")
	l.port(open(1))
	l.port(open(2))
	l.port(machine(9))
	l.mirror("m", "p9")
	l.tap("f", "m", "p2", "IN")
	d := l.send("p1", tcp(1, 2, 4000, 80))
	expect(t, d, flow.Forward, "p2")
	if len(d.NewConns) > 0 || !d.Tracked || copies(d) != "" {
		t.Errorf("opens %v, tracked %t, copied to %q\n%s", d.NewConns, d.Tracked, copies(d), walk(d))
	}
	// What the original asks for itself it remembers.
	l.port(machine(2, "web"))
	l.group("web", allowPort("web/80", packet.ProtoTCP, 80))
	if d := l.send("p1", tcp(1, 2, 4000, 80)); len(d.NewConns) == 0 {
		t.Errorf("opens nothing\n%s", walk(d))
	}
}

// TestMirrorHeaders: copies have the headers of the hop where they were made.
func TestMirrorHeaders(t *testing.T) {
	t.Parallel()
	l := example()
	l.station("m", "net4", 9, ip("198.51.100.9"))
	l.mirror("m", "p-m")
	l.tap("sent", "m", "p-x", "OUT")
	l.tap("received", "m", "p-y", "IN")
	frame := frameSpec{n: 1, to: 1, src: ipX, dst: ipY}.tcp(4000, 80)
	d := l.send("p-x", frame)
	expect(t, d, flow.Forward, "p-y")
	if copies(d) != "p-m p-m" || d.Copies[0].Rewrite != nil || d.Copies[1].Rewrite == nil || *d.Copies[1].Rewrite != *d.Rewrite || !d.Cacheable {
		t.Fatalf("copies %+v of a packet rewritten to %+v\n%s", d.Copies, d.Rewrite, walk(d))
	}
	if w := d.Copies[1].Rewrite; w.SrcMAC != routerMAC(2) || w.DstMAC != mac(2) || w.Hops != 1 {
		t.Errorf("the copy at the receiver has %+v", w)
	}
	// In between, at the router's own ports.
	l.tap("sent", "m", "b-r2", "OUT")
	l.tap("received", "m", "b-r1", "IN")
	d = l.send("p-x", frame)
	if copies(d) != "p-m p-m" || d.Copies[0].Rewrite != nil || d.Copies[1].Rewrite == nil || d.Copies[1].Rewrite.Hops != 1 {
		t.Errorf("at the router's ports: copies %+v\n%s", d.Copies, walk(d))
	}
}

// TestMirroredAnswers: an answer of the network's own to a tapped port is copied, and nobody else
// may answer in place of the simulation.
func TestMirroredAnswers(t *testing.T) {
	t.Parallel()
	l := tapped()
	if d := l.send("p1", request(1, addr(2))); d.Asker == nil || len(d.Emit) != 1 {
		t.Fatalf("without tap: asker %v, answers %d\n%s", d.Asker, len(d.Emit), walk(d))
	}
	l.tap("f", "m9", "p1", "BOTH")
	d := l.send("p1", request(1, addr(2)))
	if d.Verdict != flow.Consumed || copies(d) != "p9" || len(d.Emit) != 2 || d.Emit[0].PortID != "p9" || d.Emit[1].PortID != "p1" ||
		!bytes.Equal(d.Emit[0].Frame, d.Emit[1].Frame) || d.Asker != nil {
		t.Errorf("%v, copied to %q, answers %+v, asker %v\n%s", d.Verdict, copies(d), d.Emit, d.Asker, walk(d))
	}
	if _, ok := l.sim.CanAsk("p1", mac(1), addr(1)); ok {
		t.Error("others may answer the tapped port")
	}
}

// TestMirroredFlood: each tapped port that a flood goes to has its copy.
func TestMirroredFlood(t *testing.T) {
	t.Parallel()
	l := tapped()
	l.port(open(3))
	l.tap("f2", "m9", "p2", "IN")
	l.tap("f3", "m9", "p3", "IN")
	d := l.send("p1", toMAC(tcp(1, 2, 4000, 80), packet.Broadcast))
	if copies(d) != "p9 p9" {
		t.Errorf("copied to %s\n%s", copies(d), walk(d))
	}
}

// TestMirrorsInCircles: mirrors that feed each other end at the bound of devices, and many that do
// at the bound of copies.
func TestMirrorsInCircles(t *testing.T) {
	t.Parallel()
	l := tapped()
	l.tap("start", "m8", "p2", "IN")
	l.tap("there", "m9", "p8", "IN")
	l.tap("back", "m8", "p9", "IN")
	d := l.send("p1", tcp(1, 2, 4000, 80))
	expect(t, d, flow.Forward, "p2")
	if len(d.Copies) != maxDevices-2 || !strings.Contains(walk(d), "round in circles") {
		t.Errorf("%d copies\n%s", len(d.Copies), walk(d))
	}
	for i := range 6 {
		p := open(20 + i)
		l.port(p)
		l.mirror(fmt.Sprint("x", i), p.id)
	}
	for i := range 6 {
		for j := range 6 {
			l.tap(fmt.Sprint(i, "-", j), fmt.Sprint("x", j), fmt.Sprint("p", 20+i), "IN")
		}
	}
	l.tap("in", "x0", "p2", "IN")
	d = l.send("p1", tcp(1, 2, 4000, 80))
	expect(t, d, flow.Forward, "p2")
	if len(d.Copies) > maxRecopies+2 || !strings.Contains(strings.Join(d.Warnings, "\n"), "mirrors feed each other") {
		t.Errorf("%d copies, warnings %v", len(d.Copies), d.Warnings)
	}
}

// TestMirrorsAffect: a change of a mirror stops the flows of the ports that it is attached to, and
// of no others.
func TestMirrorsAffect(t *testing.T) {
	t.Parallel()
	l := tapped()
	wantAffected(t, "a flow", l.tap("f", "m9", "p2", "BOTH"), "p2")
	wantAffected(t, "the same again", l.tap("f", "m9", "p2", "BOTH"))
	wantAffected(t, "another direction", l.tap("f", "m9", "p2", "IN"), "p2")
	wantAffected(t, "a VLAN filter", l.tap("f", "m9", "p2", "IN", topology.VLANRange{First: 1, Last: 2}), "p2")
	wantAffected(t, "a service without flows", l.mirror("m8", "p9"))
	wantAffected(t, "another target", l.mirror("m9", "p8"), "p2")
	wantAffected(t, "a flow of a service that is not there", l.tap("g", "m7", "p1", "IN"), "p1")
	wantAffected(t, "which comes", l.mirror("m7", "p8"), "p1")
	wantAffected(t, "a service goes", l.Apply(owner("tap-service", "m9"), nil), "p2")
	wantAffected(t, "a flow goes", l.Apply(owner("tap-flow", "g"), nil), "p1")
	r := example()
	r.mirror("m", "p-z")
	wantAffected(t, "a router's port", r.tap("f", "m", "b-r1", "IN"), "b-r1", "r")
}

// mirrored returns the playground of another one with mirrors at its ports.
func mirrored(p playground, ports []string) playground {
	bundle := genMirrored(p.bundle, ports)
	plain, owners := p.change, p.owners
	p.bundle = bundle
	p.change = rapid.Custom(func(t *rapid.T) change {
		if rapid.IntRange(0, 2).Draw(t, "plainly") == 0 {
			return plain.Draw(t, "plain")
		}
		o, b := rapid.SampledFrom(owners[1:]).Draw(t, "tap's"), bundle.Draw(t, "tapped")
		return change{fmt.Sprintf("%v %+v", o, *b), func(w *World) []string { return w.Apply(o, b) }}
	})
	return p
}

// genMirrored adds mirrors and their entries to bundles.
func genMirrored(plain *rapid.Generator[*topology.Bundle], ports []string) *rapid.Generator[*topology.Bundle] {
	port, id := rapid.SampledFrom(ports), rapid.SampledFrom([]string{"m1", "m2"})
	return rapid.Custom(func(t *rapid.T) *topology.Bundle {
		b := plain.Draw(t, "plain")
		for range rapid.IntRange(0, 2).Draw(t, "mirrors") {
			m := topology.Mirror{ID: id.Draw(t, "mirror"), ToPortID: port.Draw(t, "to"), Conditions: everything()}
			if rapid.IntRange(0, 3).Draw(t, "some") == 0 {
				m.Conditions = nil
				for range rapid.IntRange(0, 2).Draw(t, "conditions") {
					m.Conditions = append(m.Conditions, *genCondition().Draw(t, "condition"))
				}
			}
			b.Mirrors = append(b.Mirrors, m)
		}
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			e := topology.MirrorEntry{PortID: port.Draw(t, "at"), MirrorID: id.Draw(t, "of"),
				Position: rapid.SampledFrom([]topology.MirrorPosition{topology.PostInFilter, topology.PreOutFilter}).Draw(t, "position")}
			if rapid.IntRange(0, 3).Draw(t, "filtered") == 0 {
				e.VLANs = []topology.VLANRange{{First: 0, Last: uint16(rapid.IntRange(0, 9).Draw(t, "vlan"))}}
			}
			b.MirrorEntries = append(b.MirrorEntries, e)
		}
		return b
	})
}

// copyText describes the copies of a decision.
func copyText(d *flow.Decision) string {
	var b strings.Builder
	for _, c := range d.Copies {
		fmt.Fprintf(&b, " copy %+v", c.Output)
		if c.Rewrite != nil {
			fmt.Fprintf(&b, " as %+v", *c.Rewrite)
		}
	}
	return b.String()
}

// withoutCopies describes what a decision makes of the packet itself.
func withoutCopies(d *flow.Decision) string {
	text := fmt.Sprintf("%v %s %q out %v drops %v conns %v nats %v new %v", d.Verdict, d.Device, d.Reason, d.Outputs, d.Drops, d.NewConns, d.NATs, d.NewNATs)
	if d.Rewrite != nil {
		text += fmt.Sprintf(" rewrite %+v", *d.Rewrite)
	}
	if d.Learn != nil {
		text += fmt.Sprintf(" learn %+v", *d.Learn)
	}
	return text
}

// TestMirrorsLeaveTheRest: whatever is mirrored, packets fare as without mirrors, leave the same
// state behind and teach the same addresses.
func TestMirrorsLeaveTheRest(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]playground{"bridged": playgrounds()["bridged"], "routed": playgrounds()["routed"]} {
		ports := map[string][]string{"bridged": someIDs, "routed": routedPorts}[name]
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := p.world(t)
				for range rapid.IntRange(0, 4).Draw(t, "changes") {
					p.change.Draw(t, "change").apply(w)
				}
				s := NewSimulator(w)
				run := func() map[string]string {
					all := map[string]string{}
					for name, frame := range p.probes {
						for _, port := range p.ports {
							all[name+" at "+port] = withoutCopies(s.Run(Input{PortID: port, Frame: frame, State: NewMemory()}))
						}
					}
					return all
				}
				before := run()
				w.Apply(owner("tap", "1"), genMirrored(rapid.Just(&topology.Bundle{}), ports).Draw(t, "taps"))
				for name, is := range run() {
					if is != before[name] {
						t.Fatalf("%s\nwithout mirrors %s\nwith           %s", name, before[name], is)
					}
				}
			})
		})
	}
}

// FuzzMirrored: no frame fares otherwise because it is mirrored, and each copy can be rewritten as
// the decision says.
func FuzzMirrored(f *testing.F) {
	for _, frame := range probes() {
		f.Add(frame)
	}
	y := frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}
	for _, frame := range [][]byte{y.udp(4000, 53), y.echo(8, 7), frameSpec{n: 2, to: 2, src: ipY, dst: ipX}.icmpError(3, 3, y.tcp(1, 2)), frameSpec{n: 2, to: 2, src: ipY, dst: fipA}.tcp(1, 2)} {
		f.Add(frame)
	}
	plain, taps := example6(), example6()
	taps.mirror("m", "p-z")
	taps.mirror("n", "p-up")
	for i, port := range []string{"p-x", "p-y", "p-up", "b-r1", "b-r2"} {
		taps.tap(fmt.Sprint("m", i), "m", port, "BOTH")
		taps.tap(fmt.Sprint("n", i), "n", port, "BOTH")
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, port := range []string{"p-y", "p-up"} {
			want := withoutCopies(plain.send(port, frame))
			d := taps.send(port, frame)
			if got := withoutCopies(d); got != want {
				t.Fatalf("at %s: %s\nwithout mirrors %s\n%s", port, got, want, walk(d))
			}
			for _, c := range d.Copies {
				if c.Rewrite == nil {
					continue
				}
				if err := c.Rewrite.Apply(bytes.Clone(frame), false); err != nil {
					t.Fatalf("copy %+v: %v\n%s", c, err, walk(d))
				}
			}
		}
	})
}
