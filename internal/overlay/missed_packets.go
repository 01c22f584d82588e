package overlay

import (
	"errors"
	"maps"
	"slices"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/overlay/verdicts"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// handler decides the frames that the datapath could not, one at a time.
type handler struct {
	*engine
	missed *decider // of the frames
	reply  *decider // of the replies to them

	batch   []datapath.Flow // being installed
	records []*installed    // the same, as they are remembered

	counted []verdicts.Key // of the packet

	room []byte // for a rewritten frame

	warned map[string]time.Duration // when a fault was logged
}

func (e *engine) newHandler() *handler {
	return &handler{engine: e, missed: e.newDecider(), reply: e.newTrial(), warned: map[string]time.Duration{}}
}

// handle decides one frame. What it keeps of it it copies.
func (h *handler) handle(u *datapath.Upcall) {
	h.count.upcalls[u.Reason].Add(1)
	if u.Reason == datapath.State {
		h.receive(u)
		return
	}
	port := h.net.port(u.Port)
	if port == nil {
		h.count.drop(dropNoPort)
		return
	}
	h.upcalls.add(u.Port)
	switch u.Reason {
	case datapath.Malformed:
		h.count.drop(dropMalformed)
	case datapath.TooBigTunnel, datapath.TooBigPort:
		h.tooBig(port, u)
	default:
		h.miss(port, u, h.clock())
	}
}

// miss simulates a frame that came in at some time and does what the decision says.
func (h *handler) miss(port *localPort, u *datapath.Upcall, came time.Duration) {
	key, keyed := u.Key()
	// A flow goes on for the others when a packet is over its hop limit, or has IP options.
	keyed = keyed && u.Reason != datapath.Expired && u.Reason != datapath.HasOptions
	// Frames to many from a LAN all go up.
	keyed = keyed && (port.localnet == "" || !packet.MAC(u.Frame).IsMulticast())
	seen := h.waiting.wakes()
	p := h.missed.decide(port, key, keyed, simulate.Input{Frame: u.Frame, WireLen: u.Length})
	d := p.decision
	h.count.decisions[d.Verdict].Add(1)
	h.count.conflicts.Add(uint64(len(d.Conflicts)))
	h.net.homes.defend(d.Conflicts)
	if d.Verdict == flow.Postponed {
		h.learnFrom(port, d)
		h.postpone(port, u, came, seen, d)
		return
	}
	h.answerLive(port, u, d)
	h.recordLogged(d)
	h.countPacket(port, p, u)
	h.logPacket(port, p, u)
	h.remember(port, p, u)
	s := h.learnFrom(port, d)
	if p.entered && len(p.copies)+p.copiesLost == 0 {
		h.installEntry(p)
	}
	if p.cached {
		h.install(p, s)
	}
	h.sendCopies(port, p, u)
	h.sendAll(port, p, u)
	h.emit(port, d.Emit)
	if d.Asker != nil {
		h.answers.missed(port.id, d.Asker)
	}
	for _, w := range d.Warnings {
		h.warn(w)
	}
}

// recordLogged gives away the records that logs ask for of a decision that stands.
func (e *engine) recordLogged(d *flow.Decision) {
	if len(d.Logged) > 0 {
		e.filterLogs.Add(d.Logged)
	}
}

// forgetLoggers closes the files of an owner's loggers and logging resources that are gone or not
// enabled.
func (e *engine) forgetLoggers(before, after *topology.Bundle) {
	for _, l := range before.Loggers {
		if !slices.ContainsFunc(after.Loggers, func(x topology.Logger) bool { return x.ID == l.ID }) {
			e.filterLogs.Forget(l.ID)
		}
	}
	for _, l := range before.RuleLoggers {
		if !slices.ContainsFunc(after.RuleLoggers, func(x topology.RuleLogger) bool { return x.ID == l.ID }) {
			e.filterLogs.Forget(l.ID)
		}
	}
	for _, r := range before.LoggingResources {
		if !slices.ContainsFunc(after.LoggingResources, func(x topology.LoggingResource) bool { return x.ID == r.ID && x.Enabled }) {
			e.filterLogs.ForgetResource(r.ID)
		}
	}
}

// sendAll sends a frame to all outputs of its decision.
func (h *handler) sendAll(port *localPort, p *plan, u *datapath.Upcall) {
	if p.lost > 0 {
		h.count.add(dropUnreached, uint64(p.lost))
	}
	if len(p.outputs) == 0 {
		return
	}
	u = unpacked(p.decision, u)
	frame, err := h.rewritten(p.decision.Rewrite, u)
	if err != nil {
		h.count.drop(dropMalformed)
		return
	}
	if p.decision.Decap != nil {
		port = nil
	}
	if len(p.limits) > 0 && !h.dp.Admit(p.limits, frame, u.Offload) {
		h.count.drop(dropLimit)
		return
	}
	h.meters.pass(p.decision.Meters, u.Length)
	for _, out := range p.outputs {
		h.send(port, out, frame, u)
	}
}

const (
	warnEvery = time.Minute // the same fault is logged
	warnMax   = 256         // different ones in that time
)

// warn logs a fault of the configuration that packets keep meeting, now and then.
func (h *handler) warn(fault string) {
	now := h.clock()
	if at, told := h.warned[fault]; told && now < at+warnEvery {
		return
	}
	maps.DeleteFunc(h.warned, func(_ string, at time.Duration) bool { return now >= at+warnEvery })
	if len(h.warned) < warnMax {
		h.warned[fault] = now
		h.log.Warn("fault in the virtual network", "fault", fault)
	}
}

// send sends the frame that came as u on, or answers its sender that it is too big, unless that is
// behind a VTEP: from is nil.
func (e *engine) send(from *localPort, out datapath.Output, frame []byte, u *datapath.Upcall) {
	err := e.dp.Send(out, frame, u.Offload)
	var big *datapath.TooBigError
	switch {
	case errors.As(err, &big) && from == nil:
		e.count.drop(dropTooBig)
	case errors.As(err, &big):
		e.answerTooBig(from, u, big.MTU)
	case err != nil:
		e.count.drop(dropSend)
	}
}

// remember stores what the packet that came as u leaves behind, and sends it ahead of the packet.
func (e *engine) remember(port *localPort, p *plan, u *datapath.Upcall) {
	d := p.decision
	now := e.clock()
	e.deleteNATs(d.GoneNATs)
	if d.FirstFrag != nil && len(p.outputs) > 0 {
		e.conns.AddFrag(*d.FirstFrag, d.FragPorts, now)
	}
	if d.Tracked && d.Return && !e.conns.Touch(d.Lookup, now) {
		p.cached = false // it went while the packet was simulated; the next packet will see
	}
	if len(p.outputs) == 0 || !leavesState(d) {
		return
	}
	hosts := p.hosts()
	unsent := map[string]flowstate.State{}
	e.rememberNATs(port, p, unpacked(d, u).TCPFlags(), hosts, unsent)
	e.meters.open(d.Opened)
	if len(d.NewConns) > 0 {
		e.answerChanged(e.conns.Add(d.NewConns, port.id, hosts, now))
	}
	for i := range p.peers {
		if to := &p.peers[i]; to.tunnel != 0 {
			s := unsent[to.host]
			s.Conns = d.NewConns
			e.sendState(to.tunnel, to.host, s)
		}
	}
}

// sendState sends connections, translations or a hello to another host.
func (e *engine) sendState(t datapath.Tunnel, host string, s flowstate.State) {
	if len(s.Conns)+len(s.NATs)+len(s.Ends)+len(s.Ports) == 0 && s.Hello == nil {
		return
	}
	messages, err := e.keys.seal(host, s)
	if err != nil {
		e.log.Error("cannot send state to another host", "err", err)
	}
	for _, m := range messages {
		if err := e.dp.SendState(t, m); err != nil {
			e.count.drop(dropSend)
		}
	}
}

// answerChanged removes the flows that asked for connections of which the answer has changed.
func (e *engine) answerChanged(asked []flow.ConnKey) { e.remove(e.memory.take(asked, asks)) }

// forgetConns removes the flows that rest on connections that are gone. Those that open them go
// first: a packet that passed by one of them would open nothing, and its reply would be dropped.
func (e *engine) forgetConns(gone []flow.ConnKey) { e.remove(e.memory.take(gone, opens, asks)) }

func (e *engine) remove(keys []datapath.Key) {
	if len(keys) == 0 {
		return
	}
	if err := e.dp.Delete(keys...); err != nil {
		e.log.Error("cannot remove flows", "flows", len(keys), "err", err)
	}
}

// learnFrom notes the source address of a packet, and what it says about others.
func (e *engine) learnFrom(port *localPort, d *flow.Decision) *sighting {
	if d.Learn == nil && d.LearnNeighbour == nil {
		return nil
	}
	now := e.clock()
	var fresh []*sighting
	var source *sighting
	e.memory.mu.Lock()
	if d.Learn != nil {
		s, isNew := e.memory.seen.mac(*d.Learn, now, port.sightings())
		if source = s; isNew {
			fresh = append(fresh, s)
		}
	}
	if d.LearnNeighbour != nil {
		if s, isNew := e.memory.seen.neighbour(port.id, *d.LearnNeighbour, now, port.sightings()); isNew {
			fresh = append(fresh, s)
		}
	}
	e.memory.mu.Unlock()
	for _, s := range fresh {
		e.net.learn(s)
		e.reports.seen(s)
	}
	return source
}

// install caches the decision, and between two ports of this host that of the replies as well.
func (h *handler) install(p *plan, s *sighting) {
	records := append(h.records[:0], h.record(p, s))
	h.batch = append(h.batch[:0], p.flow)
	if back := h.replies(p); back != nil {
		records = append(records, h.record(back, nil))
		h.batch = append(h.batch, back.flow)
		records[1].counts = h.verdicts.Of(nil, h.net.port(back.flow.Port).id, back.decision)
	}
	h.records = records
	h.memory.put(records)
	for i := range h.batch {
		h.batch[i].Cookie = records[i].cookie
	}
	if err := h.dp.Install(h.batch); err != nil {
		h.memory.forget(records)
		h.count.refused.Add(1)
		h.log.Error("cannot install flows", "err", err)
		return
	}
	h.count.installed.Add(uint64(len(h.batch)))
	for _, f := range records {
		h.meters.enter(f, traffic{})
	}
	h.recheckMissing(records)
}

// installEntry has the datapath unpack later packets like the one of the plan.
func (h *handler) installEntry(p *plan) {
	f := &installed{key: p.entry.Key, at: h.clock()}
	h.memory.put([]*installed{f})
	p.entry.Cookie = f.cookie
	if err := h.dp.Install([]datapath.Flow{p.entry}); err != nil {
		h.memory.forget([]*installed{f})
		h.count.refused.Add(1)
		h.log.Error("cannot install flows", "err", err)
		return
	}
	h.count.installed.Add(1)
}

// replies decides about a reply to the packet of p: nil if that is uncertain yet.
func (h *handler) replies(p *plan) *plan {
	if p.flow.Out.Port == 0 || p.flow.Out.Framing != (datapath.Framing{}) || p.flow.Frag != datapath.Whole || !hasReplies(p.flow.Proto) {
		return nil
	}
	from := h.net.port(p.flow.Out.Port)
	if from == nil {
		return nil
	}
	key, turned := p.flow.Key.ReverseRewritten(from.number, p.flow.Rewrite)
	h.reply.room = exampleFrame(h.reply.room[:0], key)
	back := h.reply.decide(from, key, true, simulate.Input{Frame: h.reply.room})
	// A packet that was never sent opens no connection, shows no address and is not logged.
	d := back.decision
	if !back.cached || back.brief || back.flow.Out != (datapath.Output{Port: p.flow.Port}) || len(d.NewConns)+len(d.NewNATs)+len(d.Logged) > 0 || d.Learn != nil {
		return nil
	}
	if !sameRewrite(back.flow.Rewrite, turned) {
		return nil // the replies of this connection take another way
	}
	return back
}

// sameRewrite compares all that flows carry.
func sameRewrite(a, b *flow.Rewrite) bool { return a == b || a != nil && b != nil && *a == *b }

func hasReplies(proto uint8) bool {
	switch proto {
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMP, packet.ProtoICMPv6:
		return true
	}
	return false
}

// record returns what to remember of a plan's flow.
func (e *engine) record(p *plan, s *sighting) *installed {
	d := p.decision
	now := e.clock()
	f := &installed{key: p.flow.Key, at: now, tracked: d.Tracked, reply: d.Return, lookup: d.Lookup, learn: s, counts: p.counts, logged: loggedFlow{key: p.logKey, at: now}}
	if p.brief {
		f.until = now + errorKept
	} else if len(p.outputs) > 0 {
		f.conns = append([]flow.ConnKey(nil), d.NewConns...)
		f.usesNATs(d.NATs, d.NewNATs, d.MissingNATs)
		f.meters = slices.Clone(d.Meters)
	} else {
		f.usesNATs(nil, nil, d.MissingNATs)
	}
	return f
}

// emit sends the virtual network's own frames, in answer to a packet of a port.
func (e *engine) emit(from *localPort, frames []flow.Emission) {
	for i := range frames {
		m := &frames[i]
		if isICMPError(m.Frame) && !e.errors.allow(from.id, e.clock()) {
			e.count.drop(dropErrorLimit)
			continue
		}
		e.emitOne(m)
	}
}

func (e *engine) emitOne(m *flow.Emission) {
	out, ok := e.reachNow(&m.Output)
	if !ok {
		e.count.drop(dropUnreached)
		return
	}
	if err := e.dp.Send(out, m.Frame, datapath.Offload{}); err != nil {
		e.count.drop(dropSend)
		return
	}
	e.count.emitted.Add(1)
}

// tooBig answers a packet whose flow does not carry it.
func (e *engine) tooBig(port *localPort, u *datapath.Upcall) {
	if key, ok := u.Key(); ok && !isVTEP(port.vtep) {
		if mtu, ok := e.fits(key); ok {
			e.answerTooBig(port, u, mtu)
			return
		}
	}
	e.count.drop(dropTooBig)
}

// answerTooBig reports the MTU to the sender of a packet, in the name of the router that it was
// sent to, or else of its destination.
func (e *engine) answerTooBig(port *localPort, u *datapath.Upcall, mtu int) {
	e.count.drop(dropTooBig)
	var f packet.Frame
	if packet.DecodeHead(u.Frame, u.Length, &f) != nil {
		return
	}
	answer, err := packet.TooBig(u.Frame, mtu, e.net.answersFor(port, &f), f.Dst)
	if err != nil {
		return // such a packet is not answered
	}
	// Without a limit: connections depend on these errors, and there is one for each segment lost.
	e.emitOne(&flow.Emission{Output: flow.Output{PortID: port.id, HostID: e.host}, Frame: answer})
}

// fits is the largest IP packet, in bytes, that passes where the flow of key leads.
func (e *engine) fits(key datapath.Key) (mtu int, ok bool) {
	f, found, err := e.dp.Lookup(key)
	if err != nil || !found {
		return 0, false
	}
	if f.Out.Tunnel != 0 {
		mtu, ok = e.under.fits(f.Out.Tunnel)
		return mtu - f.Out.RoomOf(key), ok
	}
	p := e.net.port(f.Out.Port)
	if p == nil || p.mtu == 0 {
		return 0, false
	}
	return p.mtu - f.Out.RoomOf(key), true
}

// receive enters the connections and translations that another host of this virtual network sends.
func (e *engine) receive(u *datapath.Upcall) {
	host, known := e.net.hostAt(u.From)
	if !known {
		e.count.drop(dropStranger)
		return
	}
	state, reason, err := e.keys.open(host, u.Frame)
	if err != nil {
		e.count.drop(reason)
		e.log.Debug("rejected state message", "host", e.keys.hostName(host), "id", host, "from", u.From, "err", err)
		return
	}
	now := e.clock()
	if len(state.NATs)+len(state.Ends) > 0 {
		fresh := append(e.nats.Import(state.NATs, host, now), e.nats.ImportEnds(state.Ends, host, now)...)
		e.forgetNATs(e.nats.TakeGone())
		e.natsArrived(fresh)
	}
	e.answerChanged(e.conns.Import(state.Conns, host, now))
	e.moves.received(host, state.Ports)
	if state.Hello != nil {
		e.hellos.received(host, state.Hello, time.Now())
	}
}
