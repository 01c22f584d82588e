package overlay

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"heddle/internal/spans"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology"
	"heddle/internal/topology/simulate"
)

// tables lists the tables that an agent reads, no more than its role allows (store.AllowHost).
func tables(host string) []snapshot.Table {
	requests := schema.TraceRequests.Source()
	requests.Prefix = schema.TraceRequestsPrefix + host + "/"
	passwords := schema.BGPPasswords.Source()
	passwords.Prefix = schema.SecretsPrefix + host + "/"
	return []snapshot.Table{schema.Bundles, schema.Hosts, schema.Underlays, schema.TunnelZones, schema.HostStates, schema.TunnelKeys,
		schema.LearnedMACs, schema.LearnedNeighbours, schema.LearnedRemotes, schema.NATBlocks, schema.MemberHealths, schema.LearnedRoutes, requests, passwords}
}

// feed brings the agent's parts to each new snapshot of the store.
type feed struct {
	opts        *Options
	engine      *engine
	attachments *attachments
	arrivals    *arrivals
	registrar   *registrar
	place       *displacement
	traces      *traces
	loaded      chan struct{} // closed when the first snapshot is applied
	// faults has the faults in the hosts' records, as logged, by their keys.
	faults atomic.Pointer[map[string]string]
}

// changes holds the parts of an update that are not applied to the world at once.
type changes struct {
	traces, blocks []*snapshot.Changed
	learned        []*snapshot.Changed // by other hosts: judged by all ports of the snapshot
	keyed          []string            // hosts whose keys or liveness have changed
	rebound        map[binding]bool
	hosts          bool
	place          bool // what tells which agent has this host's place
	mtu            bool // the MTU of a network or of the underlay has changed
}

// changed applies a snapshot. All its changes are applied under one lock: no packet is decided in
// between. The first snapshot stops no flow: those of an earlier agent go on until they are
// adopted. It is called from one goroutine.
func (f *feed) changed(u snapshot.Update) {
	net := f.engine.net
	var moved []*sighting
	first := u.Prev.Revision == 0
	defer f.record(&u, first)()
	net.mu.Lock()
	net.adopting = first
	net.revision = u.Next.Version()
	x := f.applyTopology(&u)
	for _, c := range x.learned {
		if s := f.applyLearned(c, u.Next); s != nil {
			// Should the address come back to this host, that is news.
			moved = append(moved, f.engine.memory.takeSeen(s)...)
		}
	}
	if !first {
		f.judgeLearned(x.rebound, u.Next)
	}
	net.homes.settleAddresses()
	net.adopting = false
	net.mu.Unlock()
	f.engine.unlearn(moved)
	f.blocksChanged(x.blocks, u.Next, first)
	if first {
		f.engine.keys.begin(u.Next, f.registered(u.Next))
	}
	if u.Diverged() {
		f.place.restored()
		f.engine.reports.RewriteAll() // the store may have lost what this host has written
	}
	if x.place || first || u.Diverged() {
		f.place.follow(u.Next)
	}
	if x.hosts || first || u.Diverged() {
		f.hostsChanged(u.Next)
	}
	if x.mtu && !first {
		f.attachments.reconciler.KickAll() // taps have the MTU of their networks
	}
	if len(x.keyed) > 0 && !first {
		f.keysChanged(u.Next, x.keyed)
	}
	for _, c := range x.traces {
		f.traces.changed(c)
	}
	if first {
		f.attachments.reconciler.Complete()
		f.arrivals.reconciler.Complete()
		close(f.loaded)
	}
}

// record starts the spans of the application of bundles, one for each revision that changed some,
// and returns what ends them.
func (f *feed) record(u *snapshot.Update, first bool) (end func()) {
	if f.opts.Spans == nil || first {
		return func() {}
	}
	bundles := map[int64]int64{}
	for i := range u.Changed {
		if c := &u.Changed[i]; c.Source == schema.Bundles.Name() {
			bundles[revisionOf(u.Next, c.ID)]++
		}
	}
	stopped := f.engine.count.invalidations.Load()
	var all []spans.Span
	for revision, n := range bundles {
		if _, span := f.opts.Spans.Apply(context.Background(), "apply", revision); span.Recorded() {
			span.SetInt("heddle.bundles", n)
			all = append(all, span)
		}
	}
	return func() {
		for _, span := range all {
			span.SetInt("heddle.invalidations", int64(f.engine.count.invalidations.Load()-stopped))
			span.End(nil)
		}
	}
}

// revisionOf returns the revision of a bundle's last change; of one that has gone, that of the
// snapshot.
func revisionOf(s *snapshot.Snapshot, bundle string) int64 {
	if e := s.Get(schema.Bundles.Name(), bundle); e != nil {
		return e.Mod
	}
	return s.Revision
}

// applyTopology applies what the world is made of, and collects the rest. It needs the network's
// write lock.
func (f *feed) applyTopology(u *snapshot.Update) changes {
	net, x := f.engine.net, changes{rebound: map[binding]bool{}}
	underlayMTU := net.world.UnderlayMTU()
	for i := range u.Changed {
		c := &u.Changed[i]
		switch c.Source {
		case schema.Bundles.Name():
			net.bump(f.applyBundle(net.world, c))
			bindings(c, x.rebound)
			x.mtu = x.mtu || mtuChanged(c)
		case schema.Hosts.Name(), schema.Underlays.Name():
			x.hosts = true
			x.place = x.place || c.ID == f.opts.HostID
			net.bump(f.applyHost(c.ID, u.Next, x.rebound))
		case schema.HostStates.Name():
			st, _ := c.New.(*topology.HostState)
			net.bump(net.world.ApplyHostState(c.ID, st))
			x.place = x.place || c.ID == f.opts.HostID
			x.keyed = append(x.keyed, c.ID)
		case schema.MemberHealths.Name():
			net.bump(applyHealth(net.world, c))
		case schema.LearnedRoutes.Name():
			before, _ := c.Old.(*topology.LearnedRoutes)
			after, _ := c.New.(*topology.LearnedRoutes)
			net.bump(net.world.ApplyLearnedRoutes(before, after))
		case schema.LearnedRemotes.Name():
			net.bump(applyRemote(net.world, c, versionOf(u.Next, c.Source, c.ID)))
		case schema.TunnelKeys.Name():
			x.keyed = append(x.keyed, c.ID)
		case schema.LearnedMACs.Name(), schema.LearnedNeighbours.Name():
			x.learned = append(x.learned, c)
		case schema.NATBlocks.Name():
			x.blocks = append(x.blocks, c)
		case schema.TraceRequests.Name():
			x.traces = append(x.traces, c)
		}
	}
	x.mtu = x.mtu || net.world.UnderlayMTU() != underlayMTU
	return x
}

// mtuChanged reports whether a change of a bundle gives a network another MTU.
func mtuChanged(c *snapshot.Changed) bool {
	return !slices.Equal(interfaceMTUs(c.Old), interfaceMTUs(c.New))
}

func interfaceMTUs(record any) (all []int) {
	b, ok := record.(*schema.Bundle)
	if !ok || b == nil {
		return nil
	}
	for i := range b.Bundle.Dhcps {
		all = append(all, b.Bundle.Dhcps[i].InterfaceMTU)
	}
	for i := range b.Bundle.DhcpV6s {
		all = append(all, b.Bundle.DhcpV6s[i].InterfaceMTU)
	}
	return all
}

// applyRemote applies what servers have read in another VTEP's database. Records below another key
// than theirs are a host's, and count for nothing.
func applyRemote(w *simulate.World, c *snapshot.Changed, version uint64) (affected []string) {
	if !strings.HasPrefix(c.ID, topology.RemoteHolder+"/") {
		return nil
	}
	if old, ok := c.Old.(*topology.LearnedRemote); ok && old != nil {
		affected = w.ForgetRemote(*old)
	}
	if l, ok := c.New.(*topology.LearnedRemote); ok && l != nil {
		affected = append(affected, w.LearnRemote(*l, version)...)
	}
	return affected
}

func (f *feed) blocksChanged(changed []*snapshot.Changed, s *snapshot.Snapshot, first bool) {
	if first {
		f.engine.ports.Load(s)
		return
	}
	for _, c := range changed {
		f.engine.ports.Changed(c, s)
	}
}

// applyBundle applies what one Neutron object owns, and which of its ports are bound to this host.
func (f *feed) applyBundle(w *simulate.World, c *snapshot.Changed) (affected []string) {
	var before, after topology.Bundle
	var owner topology.Owner
	old, _ := c.Old.(*schema.Bundle)
	if old != nil {
		owner, before = old.Owner, old.Bundle
	}
	if now, ok := c.New.(*schema.Bundle); ok {
		owner, after = now.Owner, now.Bundle
		affected = w.Apply(now.Owner, &now.Bundle)
	} else if old != nil {
		affected = w.Apply(old.Owner, nil)
	}
	f.engine.moves.rebind(&before, &after)
	f.engine.answers.rebind(&before, &after, f.opts.serves)
	f.engine.adverts.rebind(before.Ports, after.Ports, f.opts.serves)
	f.engine.meters.setLabels(before.Meters, after.Meters)
	f.engine.meters.setVips(before.Vips, after.Vips)
	f.engine.forgetLoggers(&before, &after)
	f.engine.keys.senders.change(owner, &before, &after, f.opts.serves)
	f.attachments.limitsChanged(before.Limits, after.Limits)
	f.attachments.rebind(before.Ports, after.Ports, f.opts)
	f.arrivals.rebind(before.Ports, after.Ports)
	for _, l := range slices.Concat(before.Limits, after.Limits) {
		f.engine.rates.changed(l.ID, w.Limits(l.ID))
	}
	return affected
}

// applyHealth applies what a host reports of a member of a pool.
func applyHealth(w *simulate.World, c *snapshot.Changed) (affected []string) {
	if now, ok := c.New.(*topology.MemberHealth); ok {
		return w.ApplyMemberHealth(now.HostID, now.MemberID, now)
	}
	if old, ok := c.Old.(*topology.MemberHealth); ok {
		return w.ApplyMemberHealth(old.HostID, old.MemberID, nil)
	}
	return nil
}

// applyHost applies a host's record, and notes the networks that it has a localnet port in now, or
// no more.
func (f *feed) applyHost(id string, s *snapshot.Snapshot, rebound map[binding]bool) (affected []string) {
	h, _ := schema.HostWithTunnels(records.Over(s), id)
	var carried []string
	if h != nil {
		carried = h.PhysicalNetworks
	}
	for _, network := range f.engine.keys.senders.carry(id, carried) {
		rebound[binding{id, network}] = true
	}
	return f.engine.net.world.ApplyHost(id, h)
}

// binding is that a host has ports in a network.
type binding struct{ host, network string }

// bindings adds what a change of a bundle may have made of hosts' ports.
func bindings(c *snapshot.Changed, all map[binding]bool) {
	for _, record := range []any{c.Old, c.New} {
		b, ok := record.(*schema.Bundle)
		if !ok {
			continue
		}
		for i := range b.Bundle.Ports {
			p := &b.Bundle.Ports[i]
			for _, host := range p.HostIDs() {
				all[binding{host, p.NetworkID}] = true
			}
		}
	}
}

// applyLearned enters what another host has seen, or removes it, and returns it if it counts. What
// this host has seen is entered already. It needs the network's write lock.
func (f *feed) applyLearned(c *snapshot.Changed, s *snapshot.Snapshot) (counts *sighting) {
	if now := sightingOf(c.New); now != nil {
		if f.judge(now, versionOf(s, c.Source, c.ID)) {
			return now
		}
	} else if old := sightingOf(c.Old); old != nil && old.host != f.opts.HostID {
		f.engine.net.remove(old)
	}
	return nil
}

// judge enters what another host has seen if it counts. A MAC address counts if the host has the
// port in front of it, else any host could attract the packets of any network; an IP address, if
// the host has a port in the network.
func (f *feed) judge(s *sighting, version uint64) (counts bool) {
	net := f.engine.net
	switch {
	case s.host == f.opts.HostID:
		return false
	case s.isMAC():
		counts = net.world.Bound(s.port, s.network, s.host)
	default:
		counts = f.engine.keys.senders.has(s.network, s.host)
	}
	if counts {
		net.enter(s, version)
	} else {
		net.remove(s)
	}
	return counts
}

// judgeLearned judges again other hosts' sightings in networks where their ports have changed.
func (f *feed) judgeLearned(rebound map[binding]bool, s *snapshot.Snapshot) {
	r := records.Over(s)
	for b := range rebound {
		for m := range schema.LearnedMACs.By(r, "host_network", b.host+"/"+b.network) {
			f.judge(sightingOf(m), versionOf(s, schema.LearnedMACs.Name(), schema.LearnedMACs.ID(m)))
		}
		for n := range schema.LearnedNeighbours.By(r, "host_network", b.host+"/"+b.network) {
			f.judge(sightingOf(n), versionOf(s, schema.LearnedNeighbours.Name(), schema.LearnedNeighbours.ID(n)))
		}
	}
}

// versionOf returns when a record was last written: the later of two sightings counts.
func versionOf(s *snapshot.Snapshot, table, id string) uint64 {
	if e := s.Get(table, id); e != nil {
		return snapshot.VersionAt(s.History, e.Mod)
	}
	return s.Version()
}

// hostsChanged finds the tunnel addresses of the hosts that share a zone with this one.
func (f *feed) hostsChanged(s *snapshot.Snapshot) {
	r := records.Over(s)
	var reports []hostReport
	for h := range schema.Hosts.All(r) {
		if all, _ := schema.ReportedTunnels(r, h.ID); h.ID != f.opts.HostID && len(all) > 0 {
			h, _ = schema.HostWithTunnels(r, h.ID)
			reports = append(reports, hostReport{h.ID, h.Name, h.Tunnels, len(all), reportedAt(s, h.ID)})
		}
	}
	// Only this function changes the hosts, so it reads them without the lock.
	hosts, faults := assignTunnels(f.opts.TunnelIP, f.opts.TunnelZones, f.engine.net.hosts, reports)
	f.logFaults(faults)
	desired, addrs := map[netip.Addr]bool{}, map[string][]netip.Addr{}
	for ip, host := range hosts {
		desired[ip] = true
		addrs[host] = append(addrs[host], ip)
	}
	for _, all := range addrs {
		slices.SortFunc(all, netip.Addr.Compare)
	}
	f.engine.net.setHosts(hosts)
	f.engine.keys.setHosts(s, addrs)
	f.engine.under.Want(desired)
	f.registrar.changed.Give() // this host's own record may be other than it should be
}

// logFaults logs the faults that are new.
func (f *feed) logFaults(faults []fault) {
	before, now := f.faults.Load(), map[string]string{}
	for _, x := range faults {
		if now[x.key] == "" && (before == nil || (*before)[x.key] == "") {
			f.opts.Log.Warn(x.message, x.args...)
		}
		now[x.key] = x.String()
	}
	f.faults.Store(&now)
}

// reportedAt returns the revision at which a host last changed its tunnel addresses.
func reportedAt(s *snapshot.Snapshot, host string) int64 {
	for _, table := range []string{schema.Underlays.Name(), schema.Hosts.Name()} {
		if e := s.Get(table, host); e != nil {
			return int64(e.Mod)
		}
	}
	return 0
}

func (f *feed) keysChanged(s *snapshot.Snapshot, hosts []string) {
	f.engine.keys.setRecords(s, hosts)
	if !slices.Contains(hosts, f.opts.HostID) || f.place.Reason() != "" {
		return
	}
	if !f.engine.keys.published(s) {
		// The store was restored, or has another writer.
		f.engine.reports.Rewrite(schema.TunnelKeys.Key(f.opts.HostID))
		return
	}
	f.registrar.changed.Give()
}

func (f *feed) registered(s *snapshot.Snapshot) bool {
	h, ok := schema.HostWithTunnels(records.Over(s), f.opts.HostID)
	return ok && len(h.Tunnels) > 0
}
