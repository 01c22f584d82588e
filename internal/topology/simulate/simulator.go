package simulate

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// State holds the traces of earlier packets on this host. A decision contains what to add to it.
type State interface {
	// Conn reports whether the key is that of a live connection.
	Conn(key flow.ConnKey) bool
	// Frag returns the ports of a datagram whose first fragment passed lately.
	Frag(key flow.FragKey) (ports [2]uint16, ok bool)
	// NAT returns the translation of a live connection.
	NAT(key flow.NATKey) (flow.NATBinding, bool)
	// NATSource chooses a source for a new connection. The choice is held until the decision's
	// NewNATs are stored, or for a moment.
	NATSource(r flow.NATRequest) (flow.NATBinding, flow.NATAnswer)
	// Seed returns the number from which the choices of load balancers are made.
	Seed() uint64
	// OwnConns returns the number of live connections to a VIP that this host has let in.
	OwnConns(vip flow.Endpoint) int
	// MemberConns returns the number of live connections to a member that this host knows.
	MemberConns(member flow.Endpoint) int
	// MetadataSource returns the host's own address that stands for a client of its metadata
	// service, of the same IP version, or why there is none.
	MetadataSource(c flow.MetadataClient) (source netip.Addr, why string)
	// MetadataClient returns the client for which an address of the host's own stands.
	MetadataClient(source netip.Addr) (flow.MetadataClient, bool)
}

// Input is a packet to simulate.
type Input struct {
	PortID  string // where it came in: a port bound to an interface, or a localnet port
	HostID  string // of a localnet port the host at which it came in; else the port's own
	Frame   []byte // Ethernet frame, or the head of one
	WireLen int    // length of the whole frame when Frame is its head only; 0 = len(Frame)
	State   State  // nil = nothing is known
	Explain bool   // fill Decision.Walk, and Drops of every copy
	// Overdue: the packet has waited for too long for a neighbour. While that is not known it is
	// dropped, and its sender gets an error.
	Overdue bool
	// LANMAC, if not zero, is taken for the address of each neighbour that is not known and may be
	// on a LAN.
	LANMAC packet.MAC
	Reads  *Reads // nil = nobody wants to know what the decision rests on
}

// Simulator walks packets through a World. Its buffers are for one goroutine.
type Simulator struct {
	world *World
	in    Input
	dec   record

	frames
	ingress *port
	here    *host // of the ingress port
	arrival arrival
	filters filters
	tracker tracker
	nat     translator
	way     way

	unkeyed bool // it rests on more than flow keys and touched ports
	asking  bool // CanAsk is running: every neighbour but the asker is known

	learn          flow.Learned
	learnNeighbour flow.LearnedNeighbour
	asker          flow.Asker
	rewrite        flow.Rewrite
	quote          flow.Quote
}

// frames holds a packet with the headers that it has in places.
type frames struct {
	frame   packet.Frame  // as it came in
	routed  packet.Frame  // the same with the headers that routers gave it
	own     packet.Frame  // the virtual network's own, in answer
	carried packet.Frame  // the frame inside a VXLAN packet, as that came in
	outer   packet.Frame  // the VXLAN packet around the frame, made by a router
	origin  *packet.Frame // that by which the decision is keyed: frame, or carried
	exits   []string      // ids of the devices by which the packet has left for good
}

// way is the state of one packet on its way.
type way struct {
	raw     []byte       // the packet before any change
	quote   packet.Quote // what that quotes
	devices int          // entered
	hops    uint8        // routers that took one off its time to live
	routed  bool         // a router may have changed its headers
	came    flow.Rewrite // its headers when it came into the router that it is in
	turned  bool         // it comes into the router by the port by which it has left it
	entry   *port        // the port by which it came from a router into the network that it is in
	wrap    wrapping
}

// maxDevices is the number of devices at which a packet is taken to go round in circles.
const maxDevices = 12

// NewSimulator makes a simulator over w.
func NewSimulator(w *World) *Simulator {
	s := &Simulator{world: w}
	s.filters.dec, s.filters.tracker, s.filters.nat = &s.dec, &s.tracker, &s.nat
	s.tracker.dec, s.tracker.frame, s.nat.dec = &s.dec, &s.frame, &s.dec
	s.nat.world, s.filters.loggers, s.filters.ruleLoggers = w, &w.loggers, &w.ruleLoggers
	return s
}

// Run decides what happens to a packet (midonet-simulation §1). The decision is good until the next
// Run. While Run works nothing may be applied to the world.
func (s *Simulator) Run(in Input) *flow.Decision {
	s.reset(in)
	s.walk()
	return &s.dec.Decision
}

func (s *Simulator) walk() {
	in := &s.in
	p := s.world.ports[in.PortID]
	s.dec.Touched = append(s.dec.Touched, in.PortID)
	switch {
	case in.PortID == flow.MetadataPort:
		s.fromMetadata()
	case p == nil || p.def == nil:
		s.dec.errorDrop(in.PortID, flow.CodeBadObject, "there is no port with this id")
	case p.def.VTEP():
		s.comeInside(p)
	case !p.def.Exterior() && !p.isLocalnet():
		s.dec.errorDrop(p.id, flow.CodeNotBound, "the port is not bound to an interface of a host")
	case !s.locate(p):
		s.unkeyed = true
		s.dec.errorDrop(p.id, flow.CodeBadObject, "host "+in.HostID+" is not known")
	default:
		s.ingress, s.tracker.device = p, p.deviceID()
		if err := packet.DecodeHead(in.Frame, in.WireLen, &s.frame); err != nil {
			s.unkeyed = true
			s.dec.drop(p.id, flow.CodeMalformed, err.Error())
			break
		}
		if s.dec.explain {
			s.dec.say(p.id, flow.StepIn, "in: "+Describe(&s.frame))
		}
		s.explainLimits(p, false)
		s.filters.reset(&s.frame, p)
		s.way.quote, s.tracker.device = s.frame.Quote, s.scopeAt(p)
		if p.network == nil || p.isLocalnet() || !s.metadata(p) && !s.dhcp(p) && !s.dhcp6(p) && !s.routerSolicitation(p) {
			s.enter(p)
		}
	}
	s.conclude()
}

// locate finds the host at which the packet came in by port p. One that does not carry the physical
// network is no port's home, so that nothing comes in there.
func (s *Simulator) locate(p *port) bool {
	s.here = p.server()
	if p.isLocalnet() {
		s.here = s.world.hosts[s.in.HostID]
	}
	return s.here != nil || !p.isLocalnet()
}

func (s *Simulator) reset(in Input) {
	s.in = in
	s.dec.reset(in.Explain)
	s.frame.EtherType = 0
	s.ingress, s.here, s.unkeyed, s.asking = nil, nil, false, false
	s.way, s.exits = way{raw: in.Frame}, s.exits[:0]
	s.origin, s.tracker.frame = &s.frame, &s.frame
	s.filters.usedPorts, s.filters.usedTOS, s.filters.reads = false, false, in.Reads
	s.tracker.reset(in.State)
	s.nat.state, s.nat.device, s.nat.unsure, s.nat.reads = in.State, "", false, in.Reads
}

// conclude draws verdict and consequences. Any delivery beats drops (midonet-simulation §2).
func (s *Simulator) conclude() {
	d := &s.dec
	switch {
	case len(d.Outputs) > 0:
		d.Verdict, d.Code, d.Reason, d.Device = flow.Forward, 0, "", ""
		now, _ := s.content()
		s.tracker.remember(now, s.exits)
		if s.way.routed {
			s.rewrite = s.headers()
			d.Rewrite = &s.rewrite
		}
	case len(d.Emit) > 0 && d.Verdict == 0:
		d.Verdict = flow.Consumed
		if d.Learn != nil {
			d.Asker = nil
		}
	}
	if d.Verdict != flow.Forward {
		for _, m := range d.Opened { // not bound to the member: another may be chosen
			d.touch(m.Vip, nil)
		}
		d.NewNATs, d.Opened = d.NewNATs[:0], d.Opened[:0]
	}
	if d.Verdict != flow.Consumed || s.dec.copied {
		d.Asker = nil
	}
	if d.Verdict == flow.ErrorDrop {
		d.Learn, d.LearnNeighbour = nil, nil
	}
	for _, a := range d.lookups {
		d.Touched = append(d.Touched, a.String())
	}
	if d.Decap != nil {
		d.Decap.InnerTouched = slices.Clone(d.Touched)
		d.Touched = append(d.Touched[:0], d.Decap.Touched...)
		for _, id := range d.Decap.InnerTouched {
			d.touch(id, nil)
		}
	}
	d.Cacheable = s.cacheable()
	if d.explain {
		s.nameOwners()
	}
}

// cacheable reports whether the headers of flow keys alone decide.
func (s *Simulator) cacheable() bool {
	f := s.origin
	if s.unkeyed || s.nat.unsure || s.filters.usedTOS || s.dec.Verdict == flow.Consumed || s.dec.Verdict == flow.Postponed || !f.IsIP() {
		return false
	}
	switch f.Frag {
	case packet.FragFirst:
		return false // its ports are to be remembered
	case packet.FragLater:
		return !s.filters.usedPorts && !s.tracker.usedPorts
	}
	if f.Proto == packet.ProtoICMP && f.EtherType == packet.TypeIPv4 || f.Proto == packet.ProtoICMPv6 && f.EtherType == packet.TypeIPv6 {
		return f.Echo
	}
	return true
}

// headers are those with which the packet leaves.
func (s *Simulator) headers() flow.Rewrite {
	f, hops := s.content()
	w := flow.Rewrite{SrcMAC: f.Src, DstMAC: f.Dst, Src: f.SrcIP, Dst: f.DstIP, Hops: hops}
	w.SrcPort, w.DstPort = connPorts(f)
	if f.IsICMPError() && f.Quote != s.way.quote {
		q := &f.Quote
		s.quote = flow.Quote{Src: q.Src, Dst: q.Dst, SrcPort: q.SrcPort, DstPort: q.DstPort}
		w.Quote = &s.quote
	}
	return w
}

// enter is the ingress of a port (midonet-simulation §3).
func (s *Simulator) enter(p *port) {
	if s.way.devices++; s.way.devices >= maxDevices {
		s.dec.errorDrop(p.id, flow.CodeLoop, fmt.Sprintf("the packet has passed %d devices: it goes round in circles", maxDevices-1))
		return
	}
	s.filters.enter(p)
	if p.router != nil {
		s.router(p)
		return
	}
	n := p.network
	s.nat.device = ""
	if s.way.devices > 1 || s.filters.generated {
		s.way.entry = p
		s.dec.touch(p.id, nil)
	}
	switch {
	case !p.def.AdminStateUp:
		s.dec.drop(p.id, flow.CodePortDown, "the port is administratively down")
	case n.def == nil:
		s.dec.errorDrop(p.id, flow.CodeBadObject, "network "+n.id+" is not known")
	case s.mistagged(p):
	case s.filters.pass(p.id, "in", p.in):
		s.copyAt(p, topology.PostInFilter)
		if p.def.InVLAN() {
			s.pushTag(p)
		}
		s.bridge(n)
	}
}

// head turns the packet to an out port, on which the decision rests from now on. With it, it does
// not rest on the port by which a router sent the packet into the network.
func (s *Simulator) head(p *port) {
	t := s.dec.Touched
	if n := len(t) - 1; s.way.entry != nil && t[n] == s.way.entry.id && (p.def == nil || p.def.Exterior() || p.isLocalnet()) {
		s.dec.Touched = t[:n]
	}
	s.dec.Touched = append(s.dec.Touched, p.id)
	s.filters.outPort = p
}

// leave is the egress (midonet-simulation §3). It reports whether the packet went out.
func (s *Simulator) leave(n *network) bool {
	p := s.filters.outPort
	if p.def == nil || p.network != n {
		s.dec.errorDrop(p.id, flow.CodeBadObject, "network "+n.id+" has no such port")
		return false
	}
	s.copyAt(p, topology.PreOutFilter)
	switch {
	case !p.def.AdminStateUp:
		s.dec.drop(p.id, flow.CodePortDown, "the port is administratively down")
	case s.mistagged(p):
	case !s.filters.pass(p.id, "out", p.out):
	case p.isLocalnet():
		return s.emitLAN(n.lan)
	case p.def.Exterior():
		return s.emit(p)
	case p.peer() == nil || p.peer().def == nil:
		s.dec.errorDrop(p.id, flow.CodeNotBound, "the port is not bound to an interface of a host")
	case p.isLink():
		s.cross(p)
	case p.peer().router == nil:
		s.dec.errorDrop(p.id, flow.CodeBadObject, "the port is linked with one of another network")
	default:
		s.enter(p.peer())
	}
	return false
}

// mistagged reports whether the packet has a tag that is for subports of port p alone, and drops it
// then. Else machines in the parent's network could send into those of the subports. Linux takes a
// tag of VLAN 0 off and obeys the one behind it.
func (s *Simulator) mistagged(p *port) bool {
	f := s.filters.now
	switch {
	case !p.def.Trunk || f.VLANs == 0 || f.VLANs == 1 && f.VLAN == 0:
		return false
	case f.VLAN == 0:
		s.dec.drop(p.id, flow.CodeVLAN, "the port is the parent of a trunk, and there is a tag behind that of VLAN 0")
	default:
		s.dec.drop(p.id, flow.CodeVLAN, fmt.Sprintf("the port is the parent of a trunk, and VLAN %d is no subport's", f.VLAN))
	}
	return true
}

// emit delivers the packet to an exterior port, over a tunnel if it is bound to another host.
func (s *Simulator) emit(p *port) bool {
	at, text := p.server(), ""
	if s.dec.explain {
		text = "to " + p.def.InterfaceOn(at.id)
		if p.def.VlanID != 0 {
			text += fmt.Sprintf(" in VLAN %d", p.def.VlanID)
		}
		text += " on host " + hostName(at)
	}
	return s.deliver(flow.Output{PortID: p.id, HostID: at.id, TunnelKey: p.def.TunnelKey}, p, at, text)
}

// deliver sends the packet out of port p at a host; text says where to.
func (s *Simulator) deliver(out flow.Output, p *port, at *host, text string) bool {
	if from := s.here; at != from && at.def != nil && from.def != nil {
		local, remote, ok := tunnel(from, at)
		if !ok {
			s.dec.errorDrop(p.id, flow.CodeNoTunnelZone, "hosts "+hostName(from)+" and "+hostName(at)+" share no tunnel zone")
			return false
		}
		out.LocalIP, out.RemoteIP = local, remote
	}
	switch {
	case s.filters.generated:
		s.dec.Emit = append(s.dec.Emit, flow.Emission{Output: out, Frame: s.rewritten(s.headers())})
	case s.dec.copying:
		out.Framing = s.framing()
		s.dec.addCopy(out, s.ownHeaders())
	default:
		out.Framing = s.framing()
		s.dec.Outputs = append(s.dec.Outputs, out)
		s.noteExit(p)
	}
	if s.dec.explain {
		if s.way.routed || s.way.wrap != (wrapping{}) {
			text += ": " + Describe(s.filters.now)
		}
		s.dec.say(p.id, flow.StepOut, "out "+text)
	}
	s.explainLimits(p, true)
	return true
}

// noteExit notes the device by which the packet leaves for good.
func (s *Simulator) noteExit(p *port) {
	exit := p.deviceID()
	if scope := s.way.wrap.scope; scope != "" {
		exit = scope
	}
	if !slices.Contains(s.exits, exit) {
		s.exits = append(s.exits, exit)
	}
}

func hostName(h *host) string {
	if h.def != nil && h.def.Name != "" {
		return h.def.Name
	}
	return h.id
}

// answer sends an own frame through a port's out filters, as return flow (midonet-simulation §1.6).
func (s *Simulator) answer(p *port, frame []byte) {
	if err := packet.Decode(frame, &s.own); err != nil {
		s.dec.errorDrop(p.id, flow.CodeMalformed, "built a wrong answer: "+err.Error())
		return
	}
	f := &s.filters
	f.reset(&s.own, nil)
	f.outPort = p
	s.copyAnswer(p, frame)
	passes := f.pass(p.id, "out", p.out)
	if f.read&(onSrcIP|onSrcGroup|onSrcMAC|onTarget|onTOS) != 0 {
		s.dec.Asker = nil
	}
	if passes {
		s.dec.Emit = append(s.dec.Emit, flow.Emission{Output: flow.Output{PortID: p.id, HostID: s.here.id}, Frame: frame})
	}
}

// copyAnswer copies an own frame to port p for the mirrors there.
func (s *Simulator) copyAnswer(p *port, frame []byte) {
	before := s.way
	s.way = way{raw: frame}
	s.copyAt(p, topology.PreOutFilter)
	s.way = before
}

// rewritten returns the packet, which is whole, with other headers.
func (s *Simulator) rewritten(w flow.Rewrite) []byte {
	frame := s.way.raw
	if s.way.routed {
		frame = bytes.Clone(frame)
		if err := w.Apply(frame, false); err != nil {
			s.dec.warn("cannot rewrite a packet: " + err.Error())
		}
	}
	how := s.framing()
	return how.Wrap(frame)
}
