package explain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// Probe is a packet of a question, where it comes in, and what packets before it would have left
// there: for the agent there, which knows connections.
type Probe struct {
	PortID, HostID string
	Frame          []byte
	State          *flow.State // nil: nothing
	// Live is the frame to wait for in place of Frame; nil: none.
	Live *flow.LiveFrames
}

// Ask has the agent of a host say what becomes of a probe; nil if none answers.
type Ask func(context.Context, *Probe) (*flow.TraceAnswer, error)

// Why answers whether a new connection would pass, and why. The agents of the hosts where its first
// packet and the reply come in are asked for what they know; where none answers, the server's
// simulation counts. An error is a [Fault], or one of ask.
//
// Callers who are no administrators may ask about ports of their project, and learn nothing about
// objects of others. Endpoints on routed hosts are found by Calico's objects, out of src.
func (w *World) Why(ctx context.Context, snap *records.Snap, caller neutron.Caller, q *operator.WhyRequest, src Sources) (*operator.WhyAnswer, error) {
	r, err := w.findSites(ctx, snap, caller, q, src)
	switch {
	case err != nil:
		return nil, err
	case r != nil && r.crosses():
		return w.whyAcross(ctx, r, src.Ask)
	case r != nil:
		return w.whyRouted(r), nil
	}
	x, there, err := w.inquire(snap, caller, q)
	if err != nil {
		return nil, err
	}
	if q.Live || q.Dropped {
		err = x.await(ctx, src.Ask, there, q)
	} else {
		err = x.consult(ctx, src.Ask, there)
	}
	if err != nil {
		return nil, err
	}
	back := w.answerTo(x, there)
	if back != nil {
		if err := x.consult(ctx, src.Ask, back); err != nil {
			return nil, err
		}
	}
	nameLegs(snap, there, back)
	a := x.answer(there, back)
	if failed := firstDenied(there, back); failed != nil && !failed.overruled && !x.reply {
		a.Remedies = append(a.Remedies, w.remedies(x, failed)...)
	}
	if !caller.Admin() {
		x.conceal(a)
	}
	return a, nil
}

// nameLegs names the objects of what directions there are.
func nameLegs(snap *records.Snap, legs ...*leg) {
	for _, l := range legs {
		if l != nil {
			l.nameObjects(snap)
		}
	}
}

// inquire simulates the first packet of a question.
func (w *World) inquire(snap *records.Snap, caller neutron.Caller, q *operator.WhyRequest) (*inquiry, *leg, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(snap)
	x, err := newInquiry(w.world, snap, caller, q)
	if err != nil {
		return nil, nil, err
	}
	return x, x.there(), nil
}

// answerTo simulates the reply to a packet; nil if there is none.
func (w *World) answerTo(x *inquiry, there *leg) *leg {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(x.snap)
	return x.back(there)
}

// remedies returns what would let a direction pass.
func (w *World) remedies(x *inquiry, failed *leg) []operator.Remedy {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(x.snap)
	return x.remedies(failed)
}

// inquiry is a question with what it is about.
type inquiry struct {
	world    *simulate.World
	snap     *records.Snap
	caller   neutron.Caller
	from, to end
	service  service
	reply    bool       // about the answer within a connection that is there
	gateway  *gatewayOf // of a subnet, in place of its own; nil: all have their own
}

func newInquiry(world *simulate.World, snap *records.Snap, caller neutron.Caller, q *operator.WhyRequest) (*inquiry, error) {
	s, err := readService(q)
	if err != nil {
		return nil, err
	}
	x := &inquiry{world: world, snap: snap, caller: caller, reply: q.Reply}
	find := finder{snap, caller}
	if x.from, err = find.findEnd("from", q.From); err != nil {
		return nil, err
	}
	if x.to, err = find.findEnd("to", q.To); err != nil {
		return nil, err
	}
	if x.from.port == nil && x.to.port == nil {
		return nil, fault("to", Unfit, "neither %s nor %s is a port that you may ask about: at least one end has to be", q.From, q.To)
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
		return fault(field, Unfit, "port %s is on a routed network, which has no virtual topology: ask heddle why without since", e.port.ID)
	}
	if field == "from" && e.port.BoundHostID == "" {
		return fault(field, Unfit, "port %s is not bound to a host: no packet can enter by it; set its binding:host_id", e.port.ID)
	}
	return nil
}

// leg is one direction as it was simulated.
type leg struct {
	operator.WhyLeg
	at        Probe
	sent      headers
	arrived   headers // as they arrive
	output    flow.TraceOutput
	answered  bool   // by the virtual network itself
	device    string // that dropped it
	code      flow.Code
	reply     bool
	left      *flow.State            // what the packet would leave
	arrives   func(port string) bool // whether a port is the one that it should arrive at
	overruled bool                   // an agent knows another outcome than the server's simulation
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

// legs simulates the first packet and the reply.
func (x *inquiry) legs() (there, back *leg) {
	there = x.there()
	return there, x.back(there)
}

// there simulates the first packet of the connection.
func (x *inquiry) there() *leg {
	l := &leg{sent: headers{src: x.from.source(), dst: x.to.address, service: x.service, srcPort: x.service.from, dstPort: x.service.port}}
	l.arrives = func(port string) bool { return x.to.port == nil || x.to.isVIP() || port == x.to.port.ID }
	if x.service.isEcho() {
		l.sent.dstPort = l.sent.srcPort // both are the echo's id
	}
	if x.from.port != nil {
		l.at.PortID, l.at.HostID = x.from.port.ID, x.from.port.ServedBy()
		l.sent.srcMAC = x.from.port.MACAddress
	}
	if !x.address(l, x.from.port, x.to.port) {
		return l
	}
	x.run(l)
	return l
}

// back simulates the reply to a packet that has arrived, with the state that this one leaves; nil
// if it has not arrived anywhere. The virtual network's own answer is no packet to simulate.
func (x *inquiry) back(there *leg) *leg {
	switch {
	case there.answered:
		return &leg{reply: true, WhyLeg: operator.WhyLeg{Allowed: true, Port: there.at.PortID, Reason: "the virtual network's own answer", Trace: flow.TraceAnswer{Walk: []flow.Step{}}}}
	case !there.Allowed || there.output.PortID == "":
		return nil
	}
	in := &there.arrived
	l := &leg{reply: true, sent: headers{src: in.dst, dst: in.src, service: in.service, srcPort: in.dstPort, dstPort: in.srcPort, reply: true}}
	l.arrives = func(port string) bool { return port == there.at.PortID }
	l.at.PortID, l.at.HostID = there.output.PortID, there.output.HostID
	if !x.reply {
		l.at.State = there.left
	}
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
	x.run(l)
	return l
}

// address finds the MAC address of the leg's next hop, and where it comes in if that is a LAN. It
// reports false if the packet cannot be sent.
func (x *inquiry) address(l *leg, from, to *neutron.Port) bool {
	if from == nil {
		return x.addressFromLAN(l, to)
	}
	hop, why := x.nextHop(from, l.sent.src, l.sent.dst)
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
		l.at.PortID, l.at.HostID, l.sent.srcMAC, l.sent.dstMAC = lan, host, reach.OutsideMAC, mac
		l.at.Frame = l.sent.frame()
		return true
	}
	l.refuse(to.ID, flow.CodeNoRoute, fmt.Sprintf("nothing outside leads to %s: it is no address on a physical network; a floating address is", l.sent.dst))
	return false
}

// refuse has the leg end before it has begun.
func (l *leg) refuse(device string, code flow.Code, why string) {
	l.device, l.code, l.Reason = device, code, why
	l.Trace = flow.TraceAnswer{Verdict: flow.Drop.String(), Device: device, Code: code, Reason: why, Walk: []flow.Step{
		{Device: device, Kind: flow.StepDrop, Code: code, Text: why, Object: &flow.Object{Kind: "port", ID: device}}}}
}

// run simulates the leg.
func (x *inquiry) run(l *leg) {
	in := simulate.Input{PortID: l.at.PortID, HostID: l.at.HostID, Frame: l.at.Frame, State: simulate.NewMemory(), Explain: true}
	if l.at.State != nil {
		in.State = simulate.Assume(in.State, l.at.State)
	}
	s := simulate.NewSimulator(x.world)
	d := s.Run(in)
	if d.Verdict == flow.Postponed && LANPort(x.snap, d.Wait.Device) != "" {
		l.Trace = flow.Answer(d)
		l.Reason = fmt.Sprintf("goes to the LAN of network %s, if %s answers there", d.Wait.Device, d.Wait.Neighbour)
		if l.Allowed = l.arrives(LANPort(x.snap, d.Wait.Device)); !l.Allowed {
			l.strays()
		}
		return
	}
	if d.Verdict == flow.Postponed {
		in.Overdue = true
		d = s.Run(in)
	}
	l.Trace = flow.Answer(d)
	l.judge()
	x.explainNoRule(l)
}

// judge finds out by the trace whether the packet has arrived.
func (l *leg) judge() {
	t := &l.Trace
	l.Allowed, l.Port, l.output, l.answered, l.device, l.code = false, "", flow.TraceOutput{}, false, "", 0
	l.left = t.State
	if i := slices.IndexFunc(t.Outputs, func(o flow.TraceOutput) bool { return l.arrives(o.PortID) }); i >= 0 {
		l.Allowed, l.output, l.Port = true, t.Outputs[i], t.Outputs[i].PortID
		l.Reason = "arrives at port " + l.Port
		l.arrived = l.sent.rewritten(t.Rewrite)
		return
	}
	switch {
	case t.Verdict == flow.Consumed.String() && len(t.Replies) > 0:
		l.Allowed, l.answered, l.Reason = true, true, "the virtual network answers itself"
	case len(t.Outputs) > 0:
		l.Reason = "goes to port " + t.Outputs[0].PortID
		l.strays()
	default:
		l.device, l.code, l.Reason = t.Device, t.Code, t.Reason
	}
}

// strays has the leg end where the packet takes another way than to its receiver: at the last
// router, which has no route there but a wider one.
func (l *leg) strays() {
	l.code, l.Reason = flow.CodeNoPath, l.Reason+", in place of its receiver"
	if len(l.Trace.Outputs) > 0 {
		l.device = l.Trace.Outputs[0].PortID
	}
	for _, s := range l.Trace.Walk {
		if s.Kind == flow.StepRoute && len(s.Routes) > 0 {
			l.device, l.code = s.Device, flow.CodeNoRoute
		}
	}
	l.Trace.Code = l.code
}

// consult has the agent where the leg begins say what becomes of it. What it says counts: it knows
// the connections there are.
func (x *inquiry) consult(ctx context.Context, ask Ask, l *leg) error {
	if ask == nil || l.at.Frame == nil {
		return nil
	}
	live, err := ask(ctx, &l.at)
	if err != nil || live == nil || live.Error != "" || live.Verdict == flow.Postponed.String() {
		return err // an agent that asks for a neighbour first leaves what the server found
	}
	if live.State == nil { // an earlier version, which says and knows nothing of state in questions
		if l.at.State != nil {
			return nil
		}
		live.State, live.Rewrite = l.left, l.Trace.Rewrite
	}
	before := l.Allowed
	l.Trace = *live
	l.judge()
	l.overruled = before != l.Allowed
	if l.overruled && l.Allowed {
		l.Nearest, l.Reason = nil, l.Reason+", by a connection that host "+live.HostID+" knows"
	}
	x.explainNoRule(l)
	return nil
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
