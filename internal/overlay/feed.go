package overlay

import (
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// tables are what an agent sees of the store: no more than its role allows (store.AllowHost).
func tables(host string) []replica.Table {
	requests := schema.TraceRequests.Source()
	requests.Prefix = schema.TraceRequestsPrefix + host + "/"
	return []replica.Table{schema.Bundles, schema.Hosts, schema.Underlays, schema.TunnelZones, schema.HostStates, schema.TunnelKeys,
		schema.LearnedMACs, schema.LearnedNeighbours, requests}
}

// changed brings the engine to a new snapshot. It is called for each in turn, from one goroutine. All changes of one
// snapshot are applied under one lock: no packet is decided in between. The first snapshot stops no flow: those that an
// earlier agent left go on until they are adopted.
func (a *Agent) changed(u replica.Update) {
	e := a.engine
	var traces []*topology.TraceRequest
	var moved []*sighting
	var keyed []string             // hosts whose keys or lives have changed
	var learned []*replica.Changed // by other hosts: judged by all ports of the snapshot
	rebound := map[binding]bool{}
	hosts, first := false, u.Prev.Revision == 0
	e.world.Lock()
	e.adopting = first
	e.revision = u.Next.Version()
	for i := range u.Changed {
		c := &u.Changed[i]
		switch c.Source {
		case schema.Bundles.Name():
			e.bump(a.applyBundle(e.topology, c))
			bindings(c, rebound)
		case schema.Hosts.Name(), schema.Underlays.Name():
			hosts = true
			e.bump(applyHost(e.topology, c.ID, u.Next))
		case schema.HostStates.Name():
			applyHostState(e.topology, c)
			keyed = append(keyed, c.ID)
		case schema.TunnelKeys.Name():
			keyed = append(keyed, c.ID)
		case schema.LearnedMACs.Name(), schema.LearnedNeighbours.Name():
			learned = append(learned, c)
		case schema.TraceRequests.Name():
			if r, ok := c.New.(*topology.TraceRequest); ok {
				traces = append(traces, r)
			} else if r, ok := c.Old.(*topology.TraceRequest); ok {
				a.presence.Delete(schema.TraceAnswers.KeyOf(&flow.TraceAnswer{ID: r.ID, HostID: r.HostID}))
			}
		}
	}
	for _, c := range learned {
		if a.applyLearned(c, u.Next) {
			moved = append(moved, a.movedAway(c)...)
		}
	}
	if !first {
		a.judgeLearned(rebound, u.Next)
	}
	e.adopting = false
	e.world.Unlock()
	e.unlearn(moved)
	if first {
		a.keys.begin(u.Next, a.registered(u.Next))
	}
	if u.Diverged() {
		// What this host has written may be gone.
		a.presence.Rewrite()
	}
	if hosts || first || u.Diverged() {
		a.hostsChanged(u.Next)
	}
	if len(keyed) > 0 && !first {
		a.keysChanged(u.Next, keyed)
	}
	for _, r := range traces {
		a.answerTrace(r)
	}
	if first {
		a.attaching.Complete()
		close(a.loaded)
	}
}

// applyBundle applies what one Neutron object owns, and notes which of its ports are bound to this host.
func (a *Agent) applyBundle(w *simulate.World, c *replica.Changed) (affected []string) {
	var before, after topology.Bundle
	var owner topology.Owner
	if old, ok := c.Old.(*schema.Bundle); ok {
		owner, before = old.Owner, old.Bundle
	}
	now, ok := c.New.(*schema.Bundle)
	if ok {
		owner, after = now.Owner, now.Bundle
		affected = w.Apply(owner, &now.Bundle)
	} else {
		affected = w.Apply(owner, nil)
	}
	a.engine.answers.rebind(&before, &after, a.bound)
	a.keys.senders.change(before.Ports, after.Ports, a.bound)
	for i := range before.Ports {
		p := &before.Ports[i]
		if a.bound(p) && !a.bindsIn(after.Ports, p.ID) {
			a.attachments.want(p.ID, p.InterfaceName, "")
			a.attaching.Unwant(p.ID)
		}
	}
	for i := range after.Ports {
		p := &after.Ports[i]
		if !a.bound(p) {
			continue
		}
		a.attachments.want(p.ID, interfaceIn(before.Ports, p.ID), p.InterfaceName)
		a.attaching.Want(p.ID, attachment{Interface: p.InterfaceName, TunnelKey: p.TunnelKey})
	}
	return affected
}

func (a *Agent) bound(p *topology.Port) bool { return p.HostID == a.opts.HostID && p.Exterior() }

func (a *Agent) bindsIn(ports []topology.Port, id string) bool {
	for i := range ports {
		if ports[i].ID == id {
			return a.bound(&ports[i])
		}
	}
	return false
}

func interfaceIn(ports []topology.Port, id string) string {
	for i := range ports {
		if ports[i].ID == id {
			return ports[i].InterfaceName
		}
	}
	return ""
}

// applyHost applies a host as the snapshot has it: its record and how it is reached.
func applyHost(w *simulate.World, id string, s *replica.Snapshot) (affected []string) {
	h, _ := schema.HostWithTunnels(records.Over(s), id)
	return w.ApplyHost(id, h)
}

func applyHostState(w *simulate.World, c *replica.Changed) {
	st, _ := c.New.(*topology.HostState)
	w.ApplyHostState(c.ID, st)
}

// binding is that a host has ports in a network.
type binding struct{ host, network string }

// bindings adds what a change of a bundle may have made of hosts' ports.
func bindings(c *replica.Changed, all map[binding]bool) {
	for _, record := range []any{c.Old, c.New} {
		b, ok := record.(*schema.Bundle)
		if !ok {
			continue
		}
		for i := range b.Bundle.Ports {
			if p := &b.Bundle.Ports[i]; p.Exterior() {
				all[binding{p.HostID, p.NetworkID}] = true
			}
		}
	}
}

// applyLearned enters what another host has seen, or takes it back, and reports whether it counts; what this host has seen
// it knows without the store. It needs the world's write lock.
func (a *Agent) applyLearned(c *replica.Changed, s *replica.Snapshot) (counts bool) {
	switch now := c.New.(type) {
	case *topology.LearnedMAC:
		return a.setMAC(now, versionOf(s, c.Source, c.ID))
	case *topology.LearnedNeighbour:
		return a.setNeighbour(now, versionOf(s, c.Source, c.ID))
	}
	switch old := c.Old.(type) {
	case *topology.LearnedMAC:
		if old.HostID != a.opts.HostID {
			a.engine.bump(a.engine.topology.ForgetMAC(*old))
		}
	case *topology.LearnedNeighbour:
		if old.HostID != a.opts.HostID {
			a.engine.topology.ForgetNeighbour(*old)
		}
	}
	return false
}

// setMAC enters a MAC address that another host has seen, if it has the port behind which that is: else any host could draw
// the packets of any network to itself.
func (a *Agent) setMAC(m *topology.LearnedMAC, version uint64) (counts bool) {
	w := a.engine.topology
	if m.HostID == a.opts.HostID {
		return false
	}
	if !w.Bound(m.PortID, m.NetworkID, m.HostID) {
		a.engine.bump(w.ForgetMAC(*m))
		return false
	}
	a.engine.bump(w.LearnMAC(*m, version))
	return true
}

// setNeighbour enters whose an address is as another host has seen it, if that has a port in the network.
func (a *Agent) setNeighbour(n *topology.LearnedNeighbour, version uint64) (counts bool) {
	w := a.engine.topology
	if n.HostID == a.opts.HostID {
		return false
	}
	if !a.keys.senders.has(n.NetworkID, n.HostID) {
		w.ForgetNeighbour(*n)
		return false
	}
	w.LearnNeighbour(*n, version)
	return true
}

// judgeLearned looks again at what other hosts report to have seen in networks where their ports have changed.
func (a *Agent) judgeLearned(rebound map[binding]bool, s *replica.Snapshot) {
	r := records.Over(s)
	for b := range rebound {
		for m := range schema.LearnedMACs.By(r, "host_network", b.host+"/"+b.network) {
			a.setMAC(m, versionOf(s, schema.LearnedMACs.Name(), schema.LearnedMACs.ID(m)))
		}
		for n := range schema.LearnedNeighbours.By(r, "host_network", b.host+"/"+b.network) {
			a.setNeighbour(n, versionOf(s, schema.LearnedNeighbours.Name(), schema.LearnedNeighbours.ID(n)))
		}
	}
}

// movedAway forgets what this host has seen of an address that another host has seen since: should it come back, that is
// news.
func (a *Agent) movedAway(c *replica.Changed) []*sighting {
	e := a.engine
	e.state.Lock()
	defer e.state.Unlock()
	var s *sighting
	switch now := c.New.(type) {
	case *topology.LearnedMAC:
		if now.HostID != a.opts.HostID {
			s = e.seen.macs[flow.Learned{NetworkID: now.NetworkID, VLAN: now.VLAN, MAC: now.MAC}]
		}
	case *topology.LearnedNeighbour:
		if now.HostID != a.opts.HostID {
			s = e.seen.ips[sightedIP{now.NetworkID, now.IP}]
		}
	}
	if s == nil {
		return nil
	}
	e.seen.forget(s)
	return []*sighting{s}
}

// versionOf returns the version at which a record was last written: of two sightings the later counts.
func versionOf(s *replica.Snapshot, table, id string) uint64 {
	if e := s.Get(table, id); e != nil {
		return replica.VersionAt(s.History, e.Mod)
	}
	return s.Version()
}

// hostsChanged finds the tunnel addresses of the hosts that share a zone with this one.
//
// An address that several hosts report stays with the one that has it: a host can take no address from another, nor does one
// lose its own by changing its record. An agent that begins goes by the records' revisions.
func (a *Agent) hostsChanged(s *replica.Snapshot) {
	zones := map[string]bool{}
	for _, t := range a.tunnels() {
		zones[t.ZoneID] = true
	}
	before := a.engine.hosts // changed by this function alone
	hosts, wanted, addrs, since := map[netip.Addr]string{}, map[netip.Addr]bool{}, map[string][]netip.Addr{}, map[netip.Addr]int64{}
	wrong := map[string]bool{}
	r := records.Over(s)
	for h := range schema.Hosts.All(r) {
		if h.ID == a.opts.HostID {
			continue
		}
		if all, _ := schema.ReportedTunnels(r, h.ID); len(all) > 0 {
			h, _ = schema.HostWithTunnels(r, h.ID)
			if len(h.Tunnels) < len(all) {
				a.complain(wrong, fmt.Sprint(h.ID, " reports many"), "ignoring tunnel addresses of a host: of each zone one counts, and four in all", "host", h.Name, "id", h.ID, "reported", len(all), "counted", len(h.Tunnels))
			}
		} else {
			continue
		}
		for _, t := range h.Tunnels {
			if !zones[t.ZoneID] {
				continue
			}
			if t.IP == a.opts.TunnelIP {
				a.complain(wrong, fmt.Sprint(h.ID, " reports mine"), "another host reports the tunnel address of this one: hosts that take it for the other's exchange no frames with this host; give one of the two another address, or remove the other", "address", t.IP, "host", h.Name, "id", h.ID)
				continue
			}
			at := reportedAt(s, h.ID)
			if other := hosts[t.IP]; other != "" && other != h.ID {
				a.complain(wrong, fmt.Sprint(t.IP, other, h.ID), "two hosts report one tunnel address; it counts as that of the host that reported it first", "address", t.IP, "hosts", []string{other, h.ID})
				if other == before[t.IP] || h.ID != before[t.IP] && since[t.IP] < at {
					continue
				}
			}
			hosts[t.IP], wanted[t.IP], since[t.IP] = h.ID, true, at
		}
	}
	for ip, host := range hosts {
		addrs[host] = append(addrs[host], ip)
	}
	for _, all := range addrs {
		slices.SortFunc(all, netip.Addr.Compare)
	}
	a.wrong = wrong
	a.engine.setHosts(hosts)
	a.keys.setHosts(s, addrs)
	a.underlay.Want(wanted)
	select {
	case a.registering <- struct{}{}: // this host's own record may be other than it should be
	default:
	}
}

// complain logs what is wrong with the hosts' records when it begins.
func (a *Agent) complain(wrong map[string]bool, what, message string, args ...any) {
	if !a.wrong[what] && !wrong[what] {
		a.log.Warn(message, args...)
	}
	wrong[what] = true
}

// reportedAt returns the revision at which a host last changed what it reports of its tunnel addresses.
func reportedAt(s *replica.Snapshot, host string) int64 {
	for _, table := range []string{schema.Underlays.Name(), schema.Hosts.Name()} {
		if e := s.Get(table, host); e != nil {
			return int64(e.Mod)
		}
	}
	return 0
}

// keysChanged takes in what hosts have published for their tunnels.
func (a *Agent) keysChanged(s *replica.Snapshot, hosts []string) {
	a.keys.setRecords(s, hosts)
	if !slices.Contains(hosts, a.opts.HostID) {
		return
	}
	if !a.keys.published(s) {
		a.presence.Again(schema.TunnelKeys.Key(a.opts.HostID)) // the store was restored, or another agent has written it
		return
	}
	a.registering.Give()
}

// registered reports whether the store has tunnel addresses of this host.
func (a *Agent) registered(s *replica.Snapshot) bool {
	h, ok := schema.HostWithTunnels(records.Over(s), a.opts.HostID)
	return ok && len(h.Tunnels) > 0
}
