package overlay

import (
	"net/netip"
	"slices"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// NAT judges as Conn does.
func (s liveState) NAT(key flow.NATKey) (flow.NATBinding, bool) {
	return s.e.nats.Get(key, s.e.net.usesRead)
}

// Seed implements simulate.State.
func (s liveState) Seed() uint64 { return s.e.seed }

// OwnConns implements simulate.State.
func (s liveState) OwnConns(vip flow.Endpoint) int { return s.e.nats.LetIn(vip) }

// MemberConns implements simulate.State.
func (s liveState) MemberConns(member flow.Endpoint) int { return s.e.nats.To(member) }

func (s liveState) NATSource(r flow.NATRequest) (flow.NATBinding, flow.NATAnswer) {
	if s.trial {
		return s.e.ports.Peek(r)
	}
	b, answer := s.e.ports.Choose(r)
	switch answer {
	case flow.NATExhausted:
		s.e.count.exhausted.Add(1)
	case flow.NATShareUsed:
		s.e.count.shareUsed.Add(1)
	}
	return b, answer
}

// ConnIdle implements simulate.Witness.
func (s liveState) ConnIdle(key flow.ConnKey) (idle time.Duration, known bool) {
	return s.e.conns.Idle(key, s.e.net.usesRead)
}

// NATIdle implements simulate.Witness.
func (s liveState) NATIdle(key flow.NATKey) (idle time.Duration, known bool) {
	return s.e.nats.Idle(key, s.e.net.usesRead)
}

// NATHost implements simulate.Witness.
func (s liveState) NATHost(device string, address netip.Addr, port uint16) string {
	return s.e.ports.Owner(device, address, port)
}

// portsArrived has packets simulated again that wait for ports of an address.
func (e *engine) portsArrived(device string, address netip.Addr) {
	e.waiting.wake(func(w flow.Wait) bool { return w.Device == device && w.NATAddr.IsValid() })
	e.log.Debug("NAT ports leased, or all are in use", "router", device, "address", address)
}

// rememberNATs stores the translations that a packet with these TCP flags made, and notes the use
// of others. It adds those to be sent to the states, by host. If one has gone while the packet was
// simulated, the next packet has to be decided again.
func (e *engine) rememberNATs(port *localPort, p *plan, tcpFlags uint8, hosts []string, unsent map[string]flowstate.State) {
	d := p.decision
	if len(d.NewNATs)+len(d.NATs) == 0 {
		return
	}
	now := e.clock()
	e.natsArrived(e.nats.Add(d.NewNATs, port.id, hosts, now))
	if len(d.NewNATs) > 0 {
		// With another port the peer would take the connection for a new one: an agent may be
		// killed at any moment after the packet has left.
		e.keep(e.nats.Flush)
	}
	for _, entry := range d.NewNATs {
		if entry.IsForward() {
			addUnsent(unsent, hosts, func(s *flowstate.State) { s.NATs = append(s.NATs, entry) })
		}
	}
	for _, key := range d.NATs {
		if !e.useNAT(key, port, hosts, now, unsent) {
			p.cached = false
		}
		if tcpFlags&packet.TCPSyn != 0 {
			e.renewNAT(key, unsent)
		}
	}
	if signs := signsOf(false, tcpFlags&packet.TCPFin != 0, tcpFlags&packet.TCPRst != 0); signs != 0 {
		e.observeEnd(d, signs, now)
	}
	// A full table has evicted some: nothing may use their ports when this packet leaves.
	e.forgetNATs(e.nats.TakeGone())
}

// addUnsent changes the states to be sent to hosts.
func addUnsent(unsent map[string]flowstate.State, hosts []string, add func(*flowstate.State)) {
	for _, h := range hosts {
		s := unsent[h]
		add(&s)
		unsent[h] = s
	}
}

// useNAT notes that a packet of port used a stored translation on its way to hosts. It reports
// whether the translation is still there.
func (e *engine) useNAT(key flow.NATKey, port *localPort, hosts []string, now time.Duration, unsent map[string]flowstate.State) bool {
	if !key.IsForward() {
		return e.nats.Touch(key, now)
	}
	entry, to, ok := e.nats.Use(key, port.id, hosts, now)
	addUnsent(unsent, to, func(s *flowstate.State) { s.NATs = append(s.NATs, entry) })
	return ok
}

// renewNAT has a TCP connection begin by a translation that an earlier one may have ended.
func (e *engine) renewNAT(key flow.NATKey, unsent map[string]flowstate.State) {
	entry, hosts := e.nats.Renew(key)
	addUnsent(unsent, hosts, func(s *flowstate.State) {
		s.Ends = append(s.Ends, flowstate.End{NATEntry: entry, Ends: flowstate.Anew})
	})
}

// observeEnd notes what a packet has shown of its connection's end.
func (e *engine) observeEnd(d *flow.Decision, signs flowstate.Ends, now time.Duration) {
	for _, key := range d.NATs {
		e.nats.Observe(key, signs, now)
	}
	for i := range d.NewNATs {
		if n := &d.NewNATs[i]; n.IsForward() {
			e.nats.Observe(n.NATKey, signs, now)
		}
	}
}

// signsOf returns the signs of a connection's begin and end that packets of one direction have
// shown.
func signsOf(syn, fin, rst bool) (signs flowstate.Ends) {
	if syn {
		signs |= flowstate.Anew
	}
	if fin {
		signs |= flowstate.FIN
	}
	if rst {
		signs |= flowstate.RST
	}
	return signs
}

// sendEnds reports to other hosts which connections have ended.
func (e *engine) sendEnds() {
	for host, ends := range e.nats.TakeEnds(e.clock()) {
		if t, ok := e.tunnelTo(host); ok {
			e.sendState(t, host, flowstate.State{Ends: ends})
		}
	}
}

// deleteNATs deletes translations that a packet found to lead to members that have left.
func (e *engine) deleteNATs(keys []flow.NATKey) {
	if len(keys) > 0 {
		e.nats.Delete(keys)
		e.forgetNATs(e.nats.TakeGone())
	}
}

// forgetNATs removes the flows that use translations that are gone.
func (e *engine) forgetNATs(gone []flow.NATEntry) {
	if len(gone) > 0 {
		e.remove(e.memory.takeNATs(gone))
	}
}

// natsArrived removes the flows that have looked for translations in vain.
func (e *engine) natsArrived(fresh []flow.NATEntry) {
	if len(fresh) > 0 {
		e.remove(e.memory.takeWaiting(fresh))
	}
}

// recheckMissing removes those of new flows that found no translation, if it came before they were
// known.
func (e *engine) recheckMissing(records []*installed) {
	for _, f := range records {
		came := func(k flow.NATKey) bool {
			_, ok := e.nats.Get(k, e.clock())
			return ok
		}
		if slices.ContainsFunc(f.missing, came) {
			e.memory.leave(f)
			e.remove([]datapath.Key{f.key})
		}
	}
}

// rewritten returns a frame with other headers, or as it came for nil. It is valid until the next
// call.
func (h *handler) rewritten(w *flow.Rewrite, u *datapath.Upcall) ([]byte, error) {
	if w == nil {
		return u.Frame, nil
	}
	h.room = append(h.room[:0], u.Frame...)
	// The datapath finishes the checksums that were left to hardware.
	err := w.Apply(h.room, false)
	return h.room, err
}
