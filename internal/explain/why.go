package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// Probe is the first packet of a question, and where it comes in: for the agent there, which knows
// connections.
type Probe struct {
	PortID, HostID string
	Frame          []byte
}

// Why answers whether a new connection would pass, and why. The probe is the packet that decides
// it, nil if none can be sent. An error is a [Fault].
func (w *World) Why(snap *records.Snap, q *operator.WhyRequest) (*operator.WhyAnswer, *Probe, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(snap)
	x, err := newInquiry(w.world, snap, q)
	if err != nil {
		return nil, nil, err
	}
	there, back := x.legs()
	a := x.answer(there, back)
	if failed := firstDenied(there, back); failed != nil {
		a.Remedies = append(a.Remedies, x.remedies(failed)...)
	}
	if there.at.Frame == nil {
		return a, nil, nil
	}
	return a, &there.at, nil
}

// inquiry is a question with what it is about.
type inquiry struct {
	world    *simulate.World
	snap     *records.Snap
	from, to end
	service  service
}

func newInquiry(world *simulate.World, snap *records.Snap, q *operator.WhyRequest) (*inquiry, error) {
	s, err := readService(q)
	if err != nil {
		return nil, err
	}
	x := &inquiry{world: world, snap: snap}
	if x.from, err = findEnd(snap, "from", q.From); err != nil {
		return nil, err
	}
	if x.to, err = findEnd(snap, "to", q.To); err != nil {
		return nil, err
	}
	if x.from.port == nil && x.to.port == nil {
		return nil, fault("to", Unfit, "neither %s nor %s is an address of a port: at least one end has to be in the virtual network", q.From, q.To)
	}
	if err := settle(&x.from, &x.to); err != nil {
		return nil, err
	}
	for field, e := range map[string]end{"from": x.from, "to": x.to} {
		if err := checkEnd(snap, field, e); err != nil {
			return nil, err
		}
	}
	x.service = s.ofVersion(x.to.address)
	return x, nil
}

// checkEnd refuses ports about which the virtual network says nothing.
func checkEnd(snap *records.Snap, field string, e end) error {
	if e.port == nil {
		return nil
	}
	if n, ok := schema.Networks.Peek(snap, e.port.NetworkID); ok && n.Routed() {
		return fault(field, Unfit, "port %s is on a routed network, which has no virtual topology: ask heddle calico check", e.port.ID)
	}
	if field == "from" && e.port.BoundHostID == "" {
		return fault(field, Unfit, "port %s is not bound to a host: no packet can enter by it; set its binding:host_id", e.port.ID)
	}
	return nil
}

// leg is one direction as it was simulated.
type leg struct {
	operator.WhyLeg
	at      Probe
	sent    headers
	arrived headers // as they arrive
	output  flow.Output
	device  string // that dropped it
	code    flow.Code
	reply   bool
}

// answer puts both directions into words.
func (x *inquiry) answer(there, back *leg) *operator.WhyAnswer {
	a := &operator.WhyAnswer{
		Verdict: operator.Denied, Revision: x.snap.Revision(), From: describeEnd(x.snap, x.from), To: describeEnd(x.snap, x.to), Service: x.service.String(),
		There: there.WhyLeg, Remedies: []operator.Remedy{},
	}
	switch {
	case !there.Allowed:
	case back == nil:
		a.Verdict = operator.Allowed
	default:
		a.Back, a.Verdict = &back.WhyLeg, operator.OneWay
		if back.Allowed {
			a.Verdict = operator.Allowed
		}
	}
	return a
}

func describeEnd(snap *records.Snap, e end) operator.WhyEnd {
	d := operator.WhyEnd{Address: e.address}
	if e.port != nil {
		d.Port, d.Name = e.port.ID, e.port.Name
		if host := e.port.ServedBy(); host != "" {
			d.Host = schema.HostName(snap, host)
		}
	}
	return d
}

// legs simulates the first packet, and the reply with the state that this one leaves; the reply is
// nil if there is nothing to answer or the virtual network does itself.
func (x *inquiry) legs() (there, back *leg) {
	state := simulate.NewMemory()
	if there = x.there(state); there.Allowed && there.output.PortID != "" {
		back = x.back(there, state)
	}
	return there, back
}

// there simulates the first packet of the connection.
func (x *inquiry) there(state *simulate.Memory) *leg {
	l := &leg{sent: headers{src: x.from.source(), dst: x.to.address, service: x.service, srcPort: clientPort, dstPort: x.service.port}}
	if x.service.isEcho() {
		l.sent.dstPort = clientPort // both are the echo's id
	}
	if x.from.port != nil {
		l.at.PortID, l.at.HostID = x.from.port.ID, x.from.port.ServedBy()
		l.sent.srcMAC = x.from.port.MACAddress
	}
	if !x.address(l, x.from.port, x.to.port) {
		return l
	}
	x.run(l, state, func(port string) bool { return x.to.port == nil || x.to.isVIP() || port == x.to.port.ID })
	return l
}

// back simulates the reply to a packet that has arrived.
func (x *inquiry) back(there *leg, state *simulate.Memory) *leg {
	in := &there.arrived
	l := &leg{reply: true, sent: headers{src: in.dst, dst: in.src, service: in.service, srcPort: in.dstPort, dstPort: in.srcPort, reply: true}}
	l.at.PortID, l.at.HostID = there.output.PortID, there.output.HostID
	p, _ := schema.Ports.Peek(x.snap, there.output.PortID)
	if p == nil { // it has left by a LAN, whose router sends the reply to where it came from
		l.sent.srcMAC, l.sent.dstMAC = in.dstMAC, in.srcMAC
		l.at.Frame = l.sent.frame()
	} else {
		l.sent.srcMAC = p.MACAddress
		if !x.address(l, p, x.from.port) {
			return l
		}
	}
	x.run(l, state, func(port string) bool { return port == there.at.PortID })
	return l
}

// address finds the MAC address of the leg's next hop, and where it comes in if that is a LAN. It
// reports false if the packet cannot be sent.
func (x *inquiry) address(l *leg, from, to *neutron.Port) bool {
	if from == nil {
		return x.addressFromLAN(l, to)
	}
	hop, why := nextHop(x.snap, from, l.sent.src, l.sent.dst)
	if why != "" {
		l.refuse(from.ID, flow.CodeNoRoute, why)
		return false
	}
	mac, _, ok := x.world.Neighbour(from.NetworkID, hop)
	if !ok {
		l.refuse(from.ID, flow.CodeNoNeighbour, fmt.Sprintf("nothing in network %s answers for %s", from.NetworkID, hop))
		return false
	}
	l.sent.dstMAC = mac
	l.at.Frame = l.sent.frame()
	return true
}

// addressFromLAN finds the network by whose LAN a packet from outside comes in, and the host.
func (x *inquiry) addressFromLAN(l *leg, to *neutron.Port) bool {
	for s := range schema.Subnets.All(x.snap) {
		if !s.CIDR.Contains(l.sent.dst) {
			continue
		}
		mac, _, known := x.world.Neighbour(s.NetworkID, l.sent.dst)
		lan := LANPort(x.snap, s.NetworkID)
		if !known || lan == "" {
			continue
		}
		host, ok := x.world.Home(s.NetworkID, mac)
		if !ok {
			l.refuse(lan, flow.CodeNoCarrier, fmt.Sprintf("no live host carries the physical network of network %s", s.NetworkID))
			return false
		}
		l.at.PortID, l.at.HostID, l.sent.srcMAC, l.sent.dstMAC = lan, host, outsideMAC, mac
		l.at.Frame = l.sent.frame()
		return true
	}
	l.refuse(to.ID, flow.CodeNoRoute, fmt.Sprintf("nothing outside leads to %s: it is no address on a physical network; a floating address is", l.sent.dst))
	return false
}

// refuse has the leg end before it has begun.
func (l *leg) refuse(device string, code flow.Code, why string) {
	l.device, l.code, l.Reason = device, code, why
	l.Trace = flow.TraceAnswer{Verdict: flow.Drop.String(), Device: device, Code: code, Reason: why, Walk: []flow.Step{{Device: device, Code: code, Text: why}}}
}

// run simulates the leg. arrives reports whether a port is the one that it should arrive at.
func (x *inquiry) run(l *leg, state *simulate.Memory, arrives func(port string) bool) {
	in := simulate.Input{PortID: l.at.PortID, HostID: l.at.HostID, Frame: l.at.Frame, State: state, Explain: true}
	s := simulate.NewSimulator(x.world)
	d := s.Run(in)
	if d.Verdict == flow.Postponed && LANPort(x.snap, d.Wait.Device) != "" {
		l.Trace, l.Allowed = flow.Answer(d), true
		l.Reason = fmt.Sprintf("goes to the LAN of network %s, if %s answers there", d.Wait.Device, d.Wait.Neighbour)
		return
	}
	if d.Verdict == flow.Postponed {
		in.Overdue = true
		d = s.Run(in)
	}
	state.Commit(d)
	l.Trace = flow.Answer(d)
	l.judge(d, arrives)
	if l.code == flow.CodeNoRule {
		l.Nearest = x.nearest(l)
	}
}

// judge finds out whether the packet has arrived.
func (l *leg) judge(d *flow.Decision, arrives func(port string) bool) {
	if i := slices.IndexFunc(d.Outputs, func(o flow.Output) bool { return arrives(o.PortID) }); i >= 0 {
		l.Allowed, l.output, l.Port = true, d.Outputs[i], d.Outputs[i].PortID
		l.Reason = "arrives at port " + l.Port
		l.arrived = l.sent.rewritten(d.Rewrite)
		return
	}
	switch {
	case d.Verdict == flow.Consumed && len(d.Emit) > 0:
		l.Allowed, l.Reason = true, "the virtual network answers itself"
	case len(d.Outputs) > 0:
		l.device, l.code = d.Outputs[0].PortID, flow.CodeNoPath
		l.Reason = "goes to port " + d.Outputs[0].PortID + " instead"
	default:
		l.device, l.code, l.Reason = d.Device, d.Code, d.Reason
	}
}

// rewritten returns the headers with what routers and translations have made of them.
func (h headers) rewritten(r *flow.Rewrite) headers {
	if r == nil {
		return h
	}
	set := func(a *netip.Addr, to netip.Addr) {
		if to.IsValid() {
			*a = to
		}
	}
	set(&h.src, r.Src)
	set(&h.dst, r.Dst)
	if r.SrcMAC != (packet.MAC{}) {
		h.srcMAC = r.SrcMAC
	}
	if r.DstMAC != (packet.MAC{}) {
		h.dstMAC = r.DstMAC
	}
	if r.SrcPort != 0 {
		h.srcPort = r.SrcPort
	}
	if r.DstPort != 0 {
		h.dstPort = r.DstPort
	}
	return h
}

// Settle puts into an answer what the agent of the host where the packet comes in has said of it:
// that knows the connections there are.
func Settle(a *operator.WhyAnswer, live *flow.TraceAnswer) {
	if live.Verdict == flow.Postponed.String() {
		return // the agent asks for a neighbour first; what the server found stands
	}
	a.There.Trace = *live
	outputs := slices.ContainsFunc(live.Outputs, func(o flow.TraceOutput) bool { return a.There.Allowed || o.PortID == a.To.Port })
	passes := outputs || live.Verdict == flow.Consumed.String() && len(live.Replies) > 0
	switch {
	case passes == a.There.Allowed:
	case passes:
		a.Verdict, a.There.Allowed, a.There.Nearest = operator.Allowed, true, nil
		a.There.Reason = "passes by a connection that host " + live.HostID + " knows"
		a.Remedies = []operator.Remedy{}
	default:
		a.Verdict, a.There.Allowed, a.There.Reason, a.Back = operator.Denied, false, live.Reason, nil
		a.Remedies = []operator.Remedy{}
	}
}
