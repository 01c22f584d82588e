package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"

	"heddle/internal/store"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// Hosts carry the frames of a scenario that is played: agents that follow the store, with machines
// at their ports.
type Hosts interface {
	// Place returns the registered host of a port, and the port's interface there.
	Place(port string) (host topology.Host, iface string)
	// Follow waits until the agents have applied the store's revision. The first call brings the
	// machines of all ports up.
	Follow(revision int64, ports []PlayedPort) error
	// Carry has the machine of a port send a frame, and returns what becomes of it, given what the
	// simulator predicts. ErrNotCarried: such a frame is none that these hosts carry.
	Carry(port string, frame []byte, predicted Passage) (Passage, error)
}

// ErrNotCarried is returned by Hosts for frames that they do not carry.
var ErrNotCarried = errors.New("not carried")

// PlayedPort is a port of a scenario that is played.
type PlayedPort struct{ Name, ID, MAC string }

// Passage is the fate of one frame.
type Passage struct {
	Frames []PortFrame // that came out of ports
	Drops  []flow.Dropped
	Waits  bool // the frame waits for its next hop, or came after one that did
	// Answered: one machine gets the frame, and its answer comes back to the sender from where the
	// sender sent it, so that the two can have a connection.
	Answered bool
}

// PortFrame is a frame that came out of a port.
type PortFrame struct {
	Port  string // name
	Frame []byte // Ethernet
}

// Play runs the scenarios of a file, as Trace does, between real hosts: each topology is made in
// the store by the server's operations, and each frame has to meet the file's expectations there
// and to fare as in the simulator. It returns how many sends the hosts have carried, and the first
// difference of each scenario.
func Play(ctx context.Context, in io.Reader, st store.Store, hosts Hosts) (carried int, err error) {
	file, err := readScenarioFile(in)
	if err != nil {
		return 0, err
	}
	var all []error
	for _, n := range file.scenarios {
		k, err := playScenario(ctx, n, st, hosts)
		carried += k
		all = append(all, err)
	}
	return carried, errors.Join(all...)
}

// play is a scenario that is simulated and carried by hosts at the same time.
type play struct {
	hosts     Hosts
	ports     []PlayedPort
	predicted []Passage // of the frames of a step that the hosts have not carried yet
	sim, live *run
	skipped   bool // the hosts did not carry a frame, so what it would capture is not known
}

func playScenario(ctx context.Context, n node, st store.Store, hosts Hosts) (carried int, err error) {
	o, err := n.anyObject()
	if err != nil {
		return 0, err
	}
	w, end, err := openWorld(ctx, st)
	if err != nil {
		return 0, err
	}
	defer end()
	system, err := startScenario(w, o, placement{play: uuid.NewString(), place: hosts.Place})
	if err != nil {
		return 0, err
	}
	p := &play{hosts: hosts}
	if p.sim, err = newRun(system, o, p.simulate); err != nil {
		return 0, err
	}
	if p.live, err = newRun(system, o, p.send); err != nil {
		return 0, err
	}
	for name, id := range system.ports.ids {
		if !system.remote[name] {
			p.ports = append(p.ports, PlayedPort{name, id, system.macs[name]})
		}
	}
	if err := p.follow(); err != nil {
		return 0, err
	}
	steps, err := o.get("steps").list()
	if err != nil {
		return 0, err
	}
	for i, n := range steps {
		done, err := p.step(n)
		if err != nil {
			return carried, fmt.Errorf("step %d: %w", i+1, err) // later ones rest on it
		}
		if done {
			carried++
		}
	}
	return carried, nil
}

// follow has the hosts follow the store to where it is.
func (p *play) follow() error {
	w := p.sim.world
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return err
	}
	return p.hosts.Follow(snap.Revision(), p.ports)
}

// simulate carries a frame in the simulator, and notes what becomes of it.
func (p *play) simulate(port string, frame []byte) (passage, error) {
	waited := len(p.sim.postponed) > 0
	done, err := p.sim.system.carry(port, frame)
	predicted := Passage{Drops: done.ends, Waits: waited || len(p.sim.postponed) > 0}
	for _, d := range done.deliveries {
		predicted.Frames = append(predicted.Frames, PortFrame{d.Port, d.raw})
	}
	predicted.Answered = len(predicted.Frames) == 1 && !predicted.Waits && p.answers(port, frame, predicted.Frames[0])
	p.predicted = append(p.predicted, predicted)
	return done, err
}

// answers reports whether the answer to a frame, as its receiver gets it, reaches the sender as the
// frame's reverse.
func (p *play) answers(port string, frame []byte, got PortFrame) bool {
	answer, ok := reversed(got.Frame)
	if !ok {
		return false
	}
	s := p.sim.system
	d := s.simulator.Run(simulate.Input{PortID: s.ports.ids[got.Port], Frame: answer, State: s.memory})
	if len(d.Outputs) != 1 || d.Outputs[0].PortID != s.ports.ids[port] {
		return false
	}
	arrived, err := leaving(answer, d, &d.Outputs[0], d.Rewrite)
	if err != nil {
		return false
	}
	var sent, back packet.Frame
	if decodeInside(frame, &sent) != nil || decodeInside(arrived, &back) != nil {
		return false
	}
	return sent.SrcIP == back.DstIP && sent.DstIP == back.SrcIP && sent.TpSrc == back.TpDst && sent.TpDst == back.TpSrc
}

// reversed turns a TCP segment or UDP datagram round, and a VXLAN packet with one inside.
func reversed(frame []byte) (answer []byte, ok bool) {
	answer = slices.Clone(frame)
	inner, vni := Unwrap(answer)
	if !turn(inner, true) {
		return nil, false
	}
	return answer, vni == 0 || turn(answer, false) // VTEPs always send to the same port
}

// turn exchanges the addresses of a frame with ports in place, and with swapPorts its ports too.
func turn(frame []byte, swapPorts bool) bool {
	var f packet.Frame
	if packet.Decode(frame, &f) != nil || !f.IsIP() || !f.HasTp || !packet.HasPorts(f.Proto) {
		return false
	}
	w := flow.Rewrite{SrcMAC: f.Dst, DstMAC: f.Src, Src: f.DstIP, Dst: f.SrcIP, SrcPort: f.TpSrc, DstPort: f.TpDst}
	if swapPorts {
		w.SrcPort, w.DstPort = f.TpDst, f.TpSrc
	}
	return w.Apply(frame, false) == nil
}

// Unwrap returns the frame inside a VXLAN packet, as a part of it, with its VNI; of another frame
// the frame itself, and 0.
func Unwrap(frame []byte) (inner []byte, vni uint32) {
	var f packet.Frame
	if packet.Decode(frame, &f) != nil || f.EtherType != packet.TypeIPv4 || f.Proto != packet.ProtoUDP || !f.HasTp || f.TpDst != packet.VXLANPort || f.End < f.L4+8 {
		return frame, 0
	}
	vni, inner, err := packet.ParseVXLAN(frame[f.L4+8 : f.End])
	if err != nil {
		return frame, 0
	}
	return inner, vni
}

func decodeInside(frame []byte, f *packet.Frame) error {
	inner, _ := Unwrap(frame)
	return packet.Decode(inner, f)
}

// send has the hosts carry a frame that was simulated.
func (p *play) send(port string, frame []byte) (done passage, err error) {
	predicted := p.predicted[0]
	p.predicted = p.predicted[1:]
	got, err := p.hosts.Carry(port, frame, predicted)
	for _, f := range got.Frames {
		done.deliveries = append(done.deliveries, newDelivery(f.Port, f.Frame))
	}
	for _, d := range got.Drops {
		done.drops = append(done.drops, dropped{p.live.words(d.Device), p.live.words(d.Reason)})
	}
	return done, err
}

// step carries out one step, and reports whether the hosts carried its frames.
func (p *play) step(n node) (carried bool, err error) {
	p.live.turns = p.sim.turns // also where the hosts carried nothing
	want, err := p.sim.step(n)
	if err != nil {
		return false, err
	}
	o, err := p.live.readStep(n)
	if err != nil {
		return false, err
	}
	if o.has("update") {
		return false, p.follow()
	}
	got, _, err := p.live.sendStep(o)
	var unknown *FileError
	switch {
	case errors.Is(err, ErrNotCarried), p.skipped && errors.As(err, &unknown):
		p.skipped, p.predicted = true, nil
		return false, nil
	case err != nil:
		return false, err
	}
	_, unmet, err := p.live.compare(o, got.deliveries, want.Logs)
	if err == nil && len(unmet) > len(want.unmet) {
		err = fmt.Errorf("between hosts: got %v, dropped %v: %v", got.deliveries, got.drops, unmet)
	}
	return true, errors.Join(err, p.disagreement(want, got))
}

// disagreement returns an error if the hosts' passage differs from the simulated one in more than
// the values that each has captured.
func (p *play) disagreement(want tracedStep, got passage) error {
	if !slices.Equal(want.Drops, nonNil(got.drops)) {
		return fmt.Errorf("the simulator drops %v, the agent %v", want.Drops, got.drops)
	}
	same := func(a, b delivery) bool { return a.Port == b.Port && p.alike(a.Frame, b.Frame) }
	rest := slices.Clone(got.deliveries)
	for _, d := range want.Deliveries {
		i := slices.IndexFunc(rest, func(g delivery) bool { return same(d, g) })
		if i < 0 {
			return fmt.Errorf("the simulator delivers %v, the hosts %v", want.Deliveries, got.deliveries)
		}
		rest = slices.Delete(rest, i, i+1)
	}
	if len(rest) > 0 {
		return fmt.Errorf("the simulator delivers %v, the hosts also %v", want.Deliveries, rest)
	}
	return nil
}

// alike compares the fields of a simulated frame with those of a real one.
func (p *play) alike(want, got fields) bool {
	if len(want) != len(got) {
		return false
	}
	for name, a := range want {
		b, there := got[name]
		if !there {
			return false
		}
		inner, nested := a.(fields)
		if nested {
			other, ok := b.(fields)
			if !ok || !p.alike(inner, other) {
				return false
			}
			continue
		}
		if fmt.Sprint(a) != fmt.Sprint(b) && !p.captured(a, b) {
			return false
		}
	}
	return true
}

// captured reports whether two values were captured under one name.
func (p *play) captured(want, got any) bool {
	for name, value := range p.sim.captured {
		if value == want && p.live.captured[name] == got {
			return true
		}
	}
	return false
}
