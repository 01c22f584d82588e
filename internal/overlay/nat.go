package overlay

import (
	"net/netip"
	"slices"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
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

// portsArrived has packets simulated again that wait for ports of an address.
func (e *engine) portsArrived(device string, address netip.Addr) {
	e.waiting.wake(func(w flow.Wait) bool { return w.Device == device && w.NATAddr.IsValid() })
	e.log.Debug("NAT ports leased, or all are in use", "router", device, "address", address)
}

// rememberNATs stores the translations that a packet made, and notes the use of others. It returns
// those to be sent, by host. If one has gone while the packet was simulated, the next packet has to
// be decided again.
func (e *engine) rememberNATs(port *localPort, p *plan, hosts []string) map[string][]flow.NATEntry {
	d := p.decision
	if len(d.NewNATs)+len(d.NATs) == 0 {
		return nil
	}
	now, unsent := e.clock(), map[string][]flow.NATEntry{}
	e.natsArrived(e.nats.Add(d.NewNATs, port.id, hosts, now))
	for _, entry := range d.NewNATs {
		if entry.IsForward() {
			for _, h := range hosts {
				unsent[h] = append(unsent[h], entry)
			}
		}
	}
	for _, key := range d.NATs {
		if !key.IsForward() {
			p.cached = e.nats.Touch(key, now) && p.cached
			continue
		}
		entry, to, ok := e.nats.Use(key, port.id, hosts, now)
		p.cached = ok && p.cached
		for _, h := range to {
			unsent[h] = append(unsent[h], entry)
		}
	}
	// A full table has evicted some: nothing may use their ports when this packet leaves.
	e.forgetNATs(e.nats.TakeGone())
	return unsent
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
			e.memory.forget([]*installed{f})
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
