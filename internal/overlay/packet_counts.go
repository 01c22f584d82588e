package overlay

import (
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/verdicts"
	"heddle/internal/telemetry"
	"heddle/internal/topology/flow"
)

// isNetworkPort reports whether an id is that of a network's port.
func (e *engine) isNetworkPort(id string) bool {
	e.net.mu.RLock()
	defer e.net.mu.RUnlock()
	return e.net.world.IsNetworkPort(id)
}

// countPacket counts the packet of a plan by what was decided about it, and notes what counts those
// of its flow.
func (h *handler) countPacket(port *localPort, p *plan, u *datapath.Upcall) {
	h.counted = h.verdicts.Of(h.counted[:0], port.id, p.decision)
	h.verdicts.Decided(p.decision.Verdict, h.counted, u.Length)
	if p.cached && len(h.counted) > 0 {
		p.counts = append([]verdicts.Key(nil), h.counted...)
	}
}

// logPacket records the decision about a packet in the flow log.
func (h *handler) logPacket(port *localPort, p *plan, u *datapath.Upcall) {
	key, keyed := u.Key()
	if !keyed || port.network == "" {
		return
	}
	x := verdicts.Packet{Port: port.id, Network: port.network, Src: key.Src, Dst: key.Dst, Proto: key.Proto, SrcPort: key.SrcPort, DstPort: key.DstPort,
		Length: u.Length, Decision: p.decision}
	h.net.mu.RLock()
	x.Project = h.net.world.PortProject(port.id)
	if d := p.decision.Drops; len(d) > 0 && d[0].Device != port.id && h.net.world.IsNetworkPort(d[0].Device) {
		x.DroppedAt = d[0].Device
	}
	h.net.mu.RUnlock()
	p.logKey = h.flowLog.Decided(&x)
}

// renewLogged is the time after which the flow log has what a flow has carried meanwhile.
const renewLogged = time.Minute

// account counts what a flow has carried since it was read last, in the flow log too if what that
// has is older than a time. It needs the lock of the memory.
func (e *engine) account(f *installed, seen *datapath.FlowState, network string, older time.Duration) {
	l := &f.logged
	if more := f.grow(traffic{seen.Packets, seen.Bytes}); more.packets > 0 {
		e.sent.add(seen.Out.Tunnel, more)
		e.carried.add(network, more)
		e.verdicts.Add(f.counts, more.packets, more.bytes)
		l.pending = traffic{l.pending.packets + more.packets, l.pending.bytes + more.bytes}
	}
	if now := e.clock(); l.pending.packets > 0 && now >= l.at+older {
		e.flowLog.Carried(l.key, l.pending.packets, l.pending.bytes)
		l.at, l.pending = now, traffic{}
	}
}

// gone counts what a flow that leaves the kernel has carried since it was read last.
func (e *engine) gone(cookie, packets, bytes uint64) {
	e.meters.gone(cookie, packets, bytes)
	f, more := e.memory.settle(cookie, traffic{packets, bytes})
	if f == nil {
		return
	}
	e.verdicts.Add(f.counts, more.packets, more.bytes)
	e.flowLog.Carried(f.logged.key, f.logged.pending.packets+more.packets, f.logged.pending.bytes+more.bytes)
}

// countFlows counts what all flows have carried up to now, in the flow log too if what that has is
// older than a time.
func (e *engine) countFlows(older time.Duration) error {
	var batch []seenFlow
	count := func() {
		networks := e.net.networksOf(batch)
		e.memory.mu.Lock()
		defer e.memory.mu.Unlock()
		for i := range batch {
			if known := e.memory.flows.get(batch[i].Cookie); known != nil {
				e.account(known, &batch[i].FlowState, networks[i], older)
			}
		}
		batch = batch[:0]
	}
	err := e.dp.Dump(func(f datapath.FlowState) bool {
		if batch = append(batch, seenFlow{FlowState: f}); len(batch) == roundBatch {
			count()
		}
		return true
	})
	count()
	return err
}

// mostReported bounds the counters in one answer, which is a value of the store.
const mostReported = 2000

// counters answers a request for counters with those up to now.
func (e *engine) counters(q *flow.CountersRequest) (*flow.CountersAnswer, error) {
	if err := e.countFlows(renewLogged); err != nil {
		return nil, err
	}
	a := e.verdicts.Select(q, mostReported)
	e.net.mu.RLock()
	defer e.net.mu.RUnlock()
	for i := range a.Counters {
		if c := &a.Counters[i]; c.Chain != "" {
			c.Object = e.net.world.RuleOwner(c.Chain, c.Rule)
		} else if c.Device != "" {
			c.Object = e.net.world.DeviceOwner(c.Device)
		}
	}
	return a, nil
}

// verdictFigures returns the packets dropped by code, and the decisions by verdict.
func (e *engine) verdictFigures() (f []telemetry.Value) {
	dropped, decided := e.verdicts.Totals()
	for _, code := range flow.Codes() {
		if code.OfPolicy() {
			continue
		}
		f = append(f, telemetry.Counter.Of("heddle_dropped_packets_total",
			"Packets that decisions of the virtual network dropped, those of cached flows with them, or rules of a routed host, by docs/codes.md.", int(dropped[code])).
			With("plane", "overlay").With("code", code.String()))
	}
	for v := flow.Forward; v <= flow.Consumed; v++ {
		f = append(f, telemetry.Counter.Of("heddle_flow_verdicts_total", "Decisions about flows, and about packets without one.", int(decided[v])).
			With("plane", "overlay").With("verdict", v.String()))
	}
	return f
}
