package simulate

import (
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// State is what packets before this one left behind on this host. It is only read; what a decision adds is in the
// decision, for the caller to store.
type State interface {
	// Conn says whether the key is that of a live connection.
	Conn(key flow.ConnKey) bool
	// Frag returns what the first fragment of a datagram told, if it passed lately (flow.Decision.FragPorts).
	Frag(key flow.FragKey) (ports [2]uint16, ok bool)
}

// Input is a packet to simulate.
type Input struct {
	PortID  string // where it came in: a port bound to an interface
	Frame   []byte // Ethernet frame, or the head of one
	WireLen int    // length of the whole frame when Frame is its head only; 0 = len(Frame)
	State   State  // nil = nothing is known
	Explain bool   // fill Decision.Walk, and Drops of every copy
}

// Simulator walks packets through a World. It keeps its buffers from packet to packet, so each goroutine has its own.
type Simulator struct {
	world *World
	in    Input
	dec   flow.Decision

	frame packet.Frame  // as it came in
	now   *packet.Frame // the one that filters look at: frame, or an answer of the virtual network
	reply packet.Frame

	ingress         *port
	inPort, outPort *port // of the device that the packet is in
	visited         []*chain

	generated bool   // now is an answer: it counts as return flow
	register  bool   // a tracked packet that opens or keeps up a connection
	answered  bool   // the question whether the packet is a reply has been asked
	usedPorts bool   // a decision rests on ports
	unkeyed   bool   // the decision rests on more than the headers that flows are keyed by, and the ports it touched
	read      clause // clauses on addresses that filters have evaluated, of the packet or, once there is one, of the answer
	asking    bool   // CanAsk is running: every neighbour but the asker is known

	recalled bool // the memory of first fragments has been asked
	recall   recollection

	learn          flow.Learned
	learnNeighbour flow.LearnedNeighbour
	firstFrag      flow.FragKey
	asker          flow.Asker
}

// NewSimulator makes a simulator over w.
func NewSimulator(w *World) *Simulator { return &Simulator{world: w} }

// Run decides what happens to a packet (midonet-simulation §1). The decision is the simulator's own and good until
// its next Run. While Run works nothing may be applied to the world.
func (s *Simulator) Run(in Input) *flow.Decision {
	s.reset(in)
	s.walk()
	return &s.dec
}

// walk decides what happens to the packet in s.in.
func (s *Simulator) walk() {
	in := &s.in
	p := s.world.ports[in.PortID]
	s.dec.Touched = append(s.dec.Touched, in.PortID)
	switch {
	case p == nil || p.def == nil:
		s.errorDrop(in.PortID, "there is no port with this id")
	case !p.def.Exterior():
		s.errorDrop(p.id, "the port is not bound to an interface of a host")
	default:
		s.ingress = p
		if err := packet.DecodeHead(in.Frame, in.WireLen, &s.frame); err != nil {
			s.unkeyed = true
			s.drop(p.id, err.Error())
			break
		}
		if s.in.Explain {
			s.say(p.id, "in: "+describe(&s.frame))
		}
		if !s.dhcp(p) {
			s.enter(p)
		}
	}
	s.conclude()
}

func (s *Simulator) reset(in Input) {
	d := &s.dec
	*d = flow.Decision{
		Outputs: d.Outputs[:0], Emit: d.Emit[:0], Drops: d.Drops[:0], Touched: d.Touched[:0], NewConns: d.NewConns[:0],
		Warnings: d.Warnings[:0], Walk: d.Walk[:0],
	}
	s.in = in
	s.now = &s.frame
	s.frame.EtherType = 0
	s.ingress, s.inPort, s.outPort = nil, nil, nil
	s.generated, s.register, s.answered, s.usedPorts, s.unkeyed, s.recalled = false, false, false, false, false, false
	s.read, s.asking = 0, false
}

// conclude draws verdict and consequences from what the walk collected. Any delivery beats drops (midonet-simulation §2).
func (s *Simulator) conclude() {
	d := &s.dec
	switch {
	case len(d.Outputs) > 0:
		d.Verdict, d.Reason, d.Device = flow.Forward, "", ""
		s.remember()
	case len(d.Emit) > 0:
		d.Verdict = flow.Consumed
		if d.Learn != nil {
			d.Asker = nil
		}
	}
	if d.Verdict != flow.Consumed {
		d.Asker = nil
	}
	if d.Verdict == flow.ErrorDrop {
		d.Learn, d.LearnNeighbour = nil, nil
	}
	d.Cacheable = s.cacheable()
}

// cacheable says whether the headers that flows are keyed by decide alone.
func (s *Simulator) cacheable() bool {
	f := &s.frame
	if s.unkeyed || s.dec.Verdict == flow.Consumed || !f.IsIP() {
		return false
	}
	switch f.Frag {
	case packet.FragFirst:
		return false // its ports are to be remembered
	case packet.FragLater:
		return !s.usedPorts
	}
	if f.Proto == packet.ProtoICMP && f.EtherType == packet.TypeIPv4 || f.Proto == packet.ProtoICMPv6 && f.EtherType == packet.TypeIPv6 {
		return f.Echo
	}
	return true
}

// enter is the ingress of a port (midonet-simulation §3).
func (s *Simulator) enter(p *port) {
	n := p.network
	s.inPort, s.outPort = p, nil
	switch {
	case !p.def.AdminStateUp:
		s.drop(p.id, "the port is administratively down")
	case n.def == nil:
		s.errorDrop(p.id, "network "+n.id+" is not known")
	case s.filter(p.id, "in", p.in):
		s.bridge(n)
	}
}

// head turns the packet to an out port, on which the decision rests from now on.
func (s *Simulator) head(p *port) {
	s.dec.Touched = append(s.dec.Touched, p.id)
	s.outPort = p
}

// leave is the egress of the out port, of network n (midonet-simulation §3). It says whether the packet went out.
func (s *Simulator) leave(n *network) bool {
	p := s.outPort
	switch {
	case p.def == nil || p.network != n:
		s.errorDrop(p.id, "network "+n.id+" has no such port")
	case !p.def.AdminStateUp:
		s.drop(p.id, "the port is administratively down")
	case !s.filter(p.id, "out", p.out):
	case !p.def.Exterior():
		s.errorDrop(p.id, "the port is not bound to an interface of a host")
	default:
		return s.emit(p)
	}
	return false
}

// emit delivers the packet to an exterior port, over a tunnel if it is bound to another host.
func (s *Simulator) emit(p *port) bool {
	out := flow.Output{PortID: p.id, HostID: p.def.HostID, TunnelKey: p.def.TunnelKey}
	from := s.ingress
	if p.host != from.host && p.host.def != nil && from.host.def != nil {
		local, remote, ok := tunnel(from.host, p.host)
		if !ok {
			s.errorDrop(p.id, "hosts "+hostName(from.host)+" and "+hostName(p.host)+" share no tunnel zone")
			return false
		}
		out.LocalIP, out.RemoteIP = local, remote
	}
	s.dec.Outputs = append(s.dec.Outputs, out)
	if s.in.Explain {
		s.say(p.id, "out to "+p.def.InterfaceName+" on host "+hostName(p.host))
	}
	return true
}

func hostName(h *host) string {
	if h.def != nil && h.def.Name != "" {
		return h.def.Name
	}
	return h.id
}

// answer sends a frame of the virtual network's own out of a port: it passes the port's out filters as return flow
// (midonet-simulation §1.6).
func (s *Simulator) answer(p *port, frame []byte) {
	if err := packet.Decode(frame, &s.reply); err != nil {
		s.errorDrop(p.id, "built a wrong answer: "+err.Error())
		return
	}
	s.now, s.generated, s.inPort, s.outPort, s.read = &s.reply, true, nil, p, 0
	passes := s.filter(p.id, "out", p.out)
	if s.read&(onSrcIP|onSrcGroup|onSrcMAC|onTarget|onTOS) != 0 {
		s.dec.Asker = nil
	}
	if passes {
		s.dec.Emit = append(s.dec.Emit, flow.Emission{PortID: p.id, Frame: frame})
	}
	s.now, s.generated = &s.frame, false
}
