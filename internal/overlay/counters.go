package overlay

import (
	"sync/atomic"

	"heddle/internal/overlay/datapath"
	"heddle/internal/telemetry"
	"heddle/internal/topology/flow"
)

// dropReason says why the agent let a frame go that no decision of the topology dropped.
type dropReason int

const (
	dropNoPort dropReason = iota
	dropMalformed
	dropUnreached
	dropSend
	dropTooBig
	dropStranger
	dropStateMessage
	dropForged
	dropReplayed
	dropReasons
)

func (r dropReason) String() string {
	return [dropReasons]string{"port not attached", "malformed", "destination not reached", "not sent", "too big",
		"state message of an unknown host", "bad state message", "forged state message", "repeated state message"}[r]
}

// counters of the agent; those of the programs in the kernel are the datapath's.
type counters struct {
	upcalls       [datapath.State + 1]atomic.Uint64 // by reason
	decisions     [flow.Consumed + 1]atomic.Uint64  // by verdict
	drops         [dropReasons]atomic.Uint64
	installed     atomic.Uint64
	refused       atomic.Uint64
	emitted       atomic.Uint64
	invalidations atomic.Uint64 // ports whose flows a change of the topology stopped
	expired       atomic.Uint64 // flows taken away because they were idle
	adopted       atomic.Uint64 // flows of an earlier agent that are as they should be
	unadopted     atomic.Uint64 // and those that were taken away
	verified      atomic.Uint64
	different     atomic.Uint64 // verified and found to be other than they should be
	traces        atomic.Uint64
}

func (c *counters) drop(r dropReason)          { c.drops[r].Add(1) }
func (c *counters) add(r dropReason, n uint64) { c.drops[r].Add(n) }

// figures lists the counters for the metrics page.
func (c *counters) figures() []telemetry.Value {
	var all []telemetry.Value
	count := func(name, help, label, value string, n uint64) {
		v := telemetry.Value{Name: name, Help: help, Kind: telemetry.Counter, Value: float64(n)}
		if label != "" {
			v.Labels = map[string]string{label: value}
		}
		all = append(all, v)
	}
	for r := datapath.Miss; r <= datapath.State; r++ {
		count("heddle_overlay_upcalls_total", "Frames that the kernel gave to the agent.", "reason", r.String(), c.upcalls[r].Load())
	}
	for v := flow.Forward; v <= flow.Consumed; v++ {
		count("heddle_overlay_decisions_total", "Simulated packets.", "verdict", v.String(), c.decisions[v].Load())
	}
	for r := range dropReasons {
		count("heddle_overlay_drops_total", "Frames that the agent dropped without a decision of the topology.", "reason", r.String(), c.drops[r].Load())
	}
	for _, x := range []struct {
		name, help string
		n          uint64
	}{
		{"heddle_overlay_flows_installed_total", "Flows cached in the kernel.", c.installed.Load()},
		{"heddle_overlay_flows_refused_total", "Flows that the kernel did not take.", c.refused.Load()},
		{"heddle_overlay_flows_expired_total", "Flows taken away because they were idle.", c.expired.Load()},
		{"heddle_overlay_flows_adopted_total", "Flows of an earlier agent that were kept.", c.adopted.Load()},
		{"heddle_overlay_flows_unadopted_total", "Flows of an earlier agent that were taken away: they would be decided otherwise now.", c.unadopted.Load()},
		{"heddle_overlay_flows_verified_total", "Flows decided again to see that they are as they should be.", c.verified.Load()},
		{"heddle_overlay_flows_different_total", "Flows found to be other than they should be.", c.different.Load()},
		{"heddle_overlay_invalidations_total", "Ports whose flows a change of the topology stopped.", c.invalidations.Load()},
		{"heddle_overlay_emitted_total", "Frames of the virtual network's own: ARP, ND and DHCP answers, ICMP errors.", c.emitted.Load()},
		{"heddle_overlay_traces_total", "Trace requests answered.", c.traces.Load()},
	} {
		count(x.name, x.help, "", "", x.n)
	}
	return all
}

// figures are the counters, and what is there now.
func (a *Agent) figures() []telemetry.Value {
	all := a.engine.count.figures()
	gauge := func(name, help string, n int) {
		all = append(all, telemetry.Value{Name: name, Help: help, Kind: telemetry.Gauge, Value: float64(n)})
	}
	a.engine.state.Lock()
	flows, sightings, over := len(a.engine.flows.byCookie), a.engine.seen.order.Len(), a.engine.seen.over
	a.engine.state.Unlock()
	c, at := a.engine.conns.Stats(), a.attaching.Status()
	gauge("heddle_overlay_flows", "Flows cached in the kernel.", flows)
	gauge("heddle_overlay_flows_max", "Flows that fit.", a.opts.MaxFlows)
	gauge("heddle_overlay_connections", "Connections remembered.", c.Connections)
	gauge("heddle_overlay_connections_max", "Connections that fit.", c.Max)
	gauge("heddle_overlay_connections_imported", "Connections that other hosts told.", c.Imported)
	gauge("heddle_overlay_fragments", "Datagrams whose first fragment is remembered.", c.Frags)
	gauge("heddle_overlay_sightings", "Addresses that this host has seen and tells.", sightings)
	gauge("heddle_overlay_ports_wanted", "Ports bound to this host.", at.Wanted)
	gauge("heddle_overlay_ports_attached", "Of these, attached to their interface.", at.InPlace)
	gauge("heddle_overlay_ports_failing", "Of these, failing.", at.Failing)
	following := 0
	if a.replica.Following() {
		following = 1
	}
	gauge("heddle_overlay_store_followed", "1 while changes of the store are heard of.", following)
	gauge("heddle_overlay_store_revision", "Revision of the store that this host has applied.", int(a.replica.Snapshot().Revision))
	gauge("heddle_overlay_hosts_without_secret", "Other hosts whose tunnelled frames are accepted without a secret: they are being upgraded, or are to be.", a.keys.plainHosts())
	if a.keys.crypt != nil {
		gauge("heddle_overlay_hosts_encrypted", "Other hosts to which all tunnelled frames are encrypted.", a.keys.crypt.count())
	}
	gauge("heddle_overlay_tunnels", "Other hosts that are reached.", a.underlay.count())
	for name, n := range map[string]uint64{
		"heddle_overlay_flows_evicted_total":       a.dp.Evicted(),
		"heddle_overlay_connections_evicted_total": c.Evicted,
		"heddle_overlay_fragments_evicted_total":   c.EvictedFrags,
		"heddle_overlay_sightings_refused_total":   over,
	} {
		all = append(all, telemetry.Value{Name: name, Help: "Thrown out or not taken because the table was full.", Kind: telemetry.Counter, Value: float64(n)})
	}
	kernel, err := a.dp.Counters()
	if err != nil {
		a.log.Error("cannot read the kernel's counters", "err", err)
	}
	all = append(all, telemetry.Value{Name: "heddle_overlay_kernel_upcalls_total", Help: "Frames that the kernel gave to the agent, state messages not counted.",
		Kind: telemetry.Counter, Value: float64(kernel.Upcalls)},
		telemetry.Value{Name: "heddle_overlay_kernel_answered_total", Help: "ARP requests and neighbour solicitations that the kernel answered.",
			Kind: telemetry.Counter, Value: float64(kernel.Answered)},
		telemetry.Value{Name: "heddle_overlay_kernel_tunnelled_in_total", Help: "Frames from other hosts for a port here.", Kind: telemetry.Counter, Value: float64(kernel.TunnelledIn)})
	for reason, n := range kernel.Drops {
		all = append(all, telemetry.Value{Name: "heddle_overlay_kernel_drops_total", Help: "Frames that the kernel dropped.", Kind: telemetry.Counter,
			Labels: map[string]string{"reason": reason}, Value: float64(n)})
	}
	return all
}
