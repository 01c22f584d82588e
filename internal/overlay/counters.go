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
	dropWaitingNeighbour
	dropWaitingNAT
	dropOverdueNeighbour
	dropOverdueNAT
	dropErrorLimit
	dropLimit
	dropReasons
)

func (r dropReason) String() string {
	return [dropReasons]string{"port not attached", "malformed", "destination not reached", "not sent", "too big",
		"state message of an unknown host", "bad state message", "forged state message", "repeated state message",
		"too many packets wait for neighbours", "too many packets wait for NAT ports",
		"waited too long for a neighbour", "waited too long for NAT ports", "too many ICMP errors", "over a limit of rate"}[r]
}

// counters of the agent; those of the programs in the kernel are the datapath's.
type counters struct {
	upcalls       [datapath.HasOptions + 1]atomic.Uint64 // by reason
	decisions     [flow.Postponed + 1]atomic.Uint64      // by verdict
	drops         [dropReasons]atomic.Uint64
	installed     atomic.Uint64
	refused       atomic.Uint64
	emitted       atomic.Uint64
	advertised    atomic.Uint64 // of the emitted: router advertisements that no machine has asked for
	invalidations atomic.Uint64 // ports and addresses whose flows a change of the topology stopped
	expired       atomic.Uint64 // flows taken away because they were idle
	adopted       atomic.Uint64 // flows of an earlier agent that are as they should be
	unadopted     atomic.Uint64 // and those that were taken away
	verified      atomic.Uint64
	different     atomic.Uint64 // verified and found to be other than they should be
	traces        atomic.Uint64
	conflicts     atomic.Uint64 // frames from LANs by others in the name of what is at home here
	exhausted     atomic.Uint64 // requests for NAT ports when all were in use
	shareUsed     atomic.Uint64 // requests for NAT ports by sources that used their share
	copies        atomic.Uint64 // copies for mirrors that the agent sent
	copiesLost    atomic.Uint64 // and those that it could not send
	copiesLimited atomic.Uint64 // packets over the limit of those that it copies
}

func (c *counters) drop(r dropReason)          { c.drops[r].Add(1) }
func (c *counters) add(r dropReason, n uint64) { c.drops[r].Add(n) }

func (c *counters) figures() (f []telemetry.Value) {
	for r := datapath.Miss; r <= datapath.HasOptions; r++ {
		f = append(f, telemetry.Counter.Of("heddle_overlay_upcalls_total", "Frames that the kernel gave to the agent.", int(c.upcalls[r].Load())).With("reason", r.String()))
	}
	for v := flow.Forward; v <= flow.Postponed; v++ {
		f = append(f, telemetry.Counter.Of("heddle_overlay_decisions_total", "Simulated packets.", int(c.decisions[v].Load())).With("verdict", v.String()))
	}
	for r := range dropReasons {
		f = append(f, telemetry.Counter.Of("heddle_overlay_drops_total", "Frames that the agent dropped without a decision of the topology.", int(c.drops[r].Load())).With("reason", r.String()))
	}
	f = append(f,
		telemetry.Counter.Of("heddle_overlay_flows_installed_total", "Flows cached in the kernel.", int(c.installed.Load())),
		telemetry.Counter.Of("heddle_overlay_flows_refused_total", "Flows that the kernel did not take.", int(c.refused.Load())),
		telemetry.Counter.Of("heddle_overlay_flows_expired_total", "Flows taken away because they were idle.", int(c.expired.Load())),
		telemetry.Counter.Of("heddle_overlay_flows_adopted_total", "Flows of an earlier agent that were kept.", int(c.adopted.Load())),
		telemetry.Counter.Of("heddle_overlay_flows_unadopted_total", "Flows of an earlier agent that were taken away: they would be decided otherwise now.", int(c.unadopted.Load())),
		telemetry.Counter.Of("heddle_overlay_flows_verified_total", "Flows decided again to see that they are as they should be.", int(c.verified.Load())),
		telemetry.Counter.Of("heddle_overlay_flows_different_total", "Flows found to be other than they should be.", int(c.different.Load())),
		telemetry.Counter.Of("heddle_overlay_invalidations_total", "Ports and addresses whose flows a change of the topology stopped.", int(c.invalidations.Load())),
		telemetry.Counter.Of("heddle_overlay_emitted_total", "Frames of the virtual network's own: ARP, ND and DHCP answers, ICMP errors.", int(c.emitted.Load())),
		telemetry.Counter.Of("heddle_overlay_advertisements_total", "Router advertisements sent unasked, one for each port.", int(c.advertised.Load())),
		telemetry.Counter.Of("heddle_overlay_lan_conflicts_total", "Frames from physical networks by which others use addresses that this host stands for. It announces them again.", int(c.conflicts.Load())),
		telemetry.Counter.Of("heddle_overlay_nat_exhausted_total", "Packets dropped because all NAT ports of their router were in use for their destination.", int(c.exhausted.Load())),
		telemetry.Counter.Of("heddle_overlay_nat_share_used_total", "Packets dropped because their source used its share, half, of the NAT ports of their router for their destination.", int(c.shareUsed.Load())),
		telemetry.Counter.Of("heddle_overlay_copies_total", "Copies for taps that the agent sent; flows in the kernel send the others.", int(c.copies.Load())),
		telemetry.Counter.Of("heddle_overlay_copies_lost_total", "Copies for taps that the agent could not send: their port was not reached, or does not take a frame so long.", int(c.copiesLost.Load())),
		telemetry.Counter.Of("heddle_overlay_copies_limited_total", "Packets without copies for taps, since no flow can make those and the port has had too many copied by the agent.", int(c.copiesLimited.Load())),
		telemetry.Counter.Of("heddle_overlay_traces_total", "Trace requests answered.", int(c.traces.Load())))
	return f
}

// figures returns the counters, and what is there now.
func (a *Agent) figures() []telemetry.Value {
	f := a.engine.count.figures()
	m := a.engine.memory
	m.mu.Lock()
	flows, sightings, over := len(m.flows.byCookie), m.seen.order.Len(), m.seen.over
	m.mu.Unlock()
	carried := a.physical.carried()
	c, n, at := a.engine.conns.Stats(), a.engine.nats.Stats(), a.attachments.reconciler.Status()
	frags, evictedFrags := a.engine.conns.FragStats()
	kernel, err := a.dp.Counters()
	if err != nil {
		a.log.Error("cannot read the kernel's counters", "err", err)
	}
	const full = "Thrown out or not taken because the table was full."
	f = append(f,
		telemetry.Gauge.Of("heddle_overlay_flows", "Flows cached in the kernel.", flows),
		telemetry.Gauge.Of("heddle_overlay_flows_max", "Flows that fit.", a.opts.MaxFlows),
		telemetry.Gauge.Of("heddle_overlay_connections", "Connections remembered.", c.Entries),
		telemetry.Gauge.Of("heddle_overlay_connections_max", "Connections that fit.", c.Max),
		telemetry.Gauge.Of("heddle_overlay_connections_imported", "Connections that other hosts told.", c.Imported),
		telemetry.Gauge.Of("heddle_overlay_translations", "Connections with a translation by NAT remembered.", n.Entries),
		telemetry.Gauge.Of("heddle_overlay_translations_max", "Connections with a translation that fit.", n.Max),
		telemetry.Gauge.Of("heddle_overlay_translations_imported", "Connections with a translation that other hosts told.", n.Imported),
		telemetry.Gauge.Of("heddle_overlay_nat_blocks", "Blocks of 64 NAT ports that this host has leased.", a.engine.ports.Held()),
		telemetry.Gauge.Of("heddle_overlay_packets_waiting", "Packets that wait for a neighbour or NAT ports.", a.engine.waiting.count()),
		telemetry.Gauge.Of("heddle_overlay_fragments", "Datagrams whose first fragment is remembered.", frags),
		telemetry.Gauge.Of("heddle_overlay_sightings", "Addresses that this host has seen and tells.", sightings),
		telemetry.Gauge.Of("heddle_overlay_ports_wanted", "Ports bound to this host.", at.Wanted),
		telemetry.Gauge.Of("heddle_overlay_ports_attached", "Of these, attached to their interface.", at.InPlace),
		telemetry.Gauge.Of("heddle_overlay_ports_failing", "Of these, failing.", at.Failing),
		telemetry.Flag("heddle_overlay_displaced", "1 while another agent has this host's place in the store.", a.Displaced() != ""),
		telemetry.Flag("heddle_overlay_store_followed", "1 while changes of the store are heard of.", a.replica.Following()),
		telemetry.Gauge.Of("heddle_overlay_store_revision", "Revision of the store that this host has applied.", int(a.replica.Snapshot().Revision)),
		telemetry.Gauge.Of("heddle_overlay_hosts_without_secret", "Other hosts whose tunnelled frames are accepted without a secret: they are being upgraded, or are to be.", a.keys.plainHosts()),
		telemetry.Gauge.Of("heddle_overlay_tunnels", "Other hosts that are reached.", a.underlay.count()),
		telemetry.Counter.Of("heddle_overlay_flows_evicted_total", full, int(a.dp.Evicted())),
		telemetry.Counter.Of("heddle_overlay_connections_evicted_total", full, int(c.Evicted)),
		telemetry.Counter.Of("heddle_overlay_translations_evicted_total", full, int(n.Evicted)),
		telemetry.Counter.Of("heddle_overlay_fragments_evicted_total", full, int(evictedFrags)),
		telemetry.Counter.Of("heddle_overlay_sightings_refused_total", full, int(over)),
		telemetry.Counter.Of("heddle_overlay_kernel_upcalls_total", "Frames that the kernel gave to the agent, state messages not counted.", int(kernel.Upcalls)),
		telemetry.Counter.Of("heddle_overlay_kernel_answered_total", "ARP requests and neighbour solicitations that the kernel answered.", int(kernel.Answered)),
		telemetry.Counter.Of("heddle_overlay_kernel_copies_total", "Copies for taps that flows sent.", int(kernel.Copies)),
		telemetry.Gauge.Of("heddle_overlay_physical_networks", "Physical networks that this host carries.", len(carried)),
		telemetry.Gauge.Of("heddle_overlay_homes", "MAC addresses that this host stands for on physical networks.", a.engine.net.homeCount()),
		telemetry.Counter.Of("heddle_overlay_kernel_physical_in_total", "Frames from physical networks, to many or to addresses that this host stands for.", int(kernel.PhysicalIn)),
		telemetry.Counter.Of("heddle_overlay_kernel_vtep_in_total", "VXLAN packets for VTEPs of the virtual network, unpacked by flows.", int(kernel.VTEPIn)),
		telemetry.Counter.Of("heddle_overlay_kernel_vtep_out_total", "Frames that VTEPs of the virtual network have packed.", int(kernel.VTEPOut)),
		telemetry.Counter.Of("heddle_overlay_kernel_tunnelled_in_total", "Frames from other hosts for a port here.", int(kernel.TunnelledIn)))
	for network := range a.opts.Physical {
		f = append(f, telemetry.Flag("heddle_overlay_physical_network_carried", "1 while this host carries a physical network: its interface is there and has a carrier.", carried[network] != "").With("network", network))
	}
	if a.keys.crypt != nil {
		f = append(f, telemetry.Gauge.Of("heddle_overlay_hosts_encrypted", "Other hosts to which all tunnelled frames are encrypted.", a.keys.crypt.count()))
	}
	for _, l := range a.dp.Limits() {
		f = append(f,
			telemetry.Counter.Of("heddle_overlay_limit_drops_total", "Packets dropped because they were over a limit of a port, a floating IP or a gateway.", int(l.Dropped)).With("limit", l.Name),
			telemetry.Counter.Of("heddle_overlay_limit_delays_total", "Packets that had to wait because they were over a limit.", int(l.Delayed)).With("limit", l.Name))
	}
	f = append(f, tunnelFigures(a.tunnelReports())...)
	f = append(f, a.engine.meters.figures()...)
	f = append(f, a.engine.verdictFigures()...)
	f = append(f, a.engine.filterLogs.Figures()...)
	for reason, n := range kernel.Drops {
		f = append(f, telemetry.Counter.Of("heddle_overlay_kernel_drops_total", "Frames that the kernel dropped.", int(n)).With("reason", reason))
	}
	return f
}
