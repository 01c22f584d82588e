package explain

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"heddle/internal/policy"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// World is the virtual network as the store has it, kept from question to question: each applies
// what has changed since the last one. Connections are not in the store, and so not known here. Its
// methods may be called from any goroutine.
type World struct {
	mu       sync.Mutex
	world    *simulate.World
	roster   *roster            // of the last question about reachability
	at       *records.Snap      // that the world was brought to last
	fleet    *policy.Fleet      // routed hosts; nil: no question has been about them
	fleetAt  *snapshot.Snapshot // that fleet was brought to last
	exemptAt *records.Snap      // that the interfaces which policy leaves alone are of
	// affected has the ids of what changes may have affected, while a comparison notes them.
	affected map[string]bool

	bundles   applied[schema.Bundle]
	hosts     applied[topology.Host]
	underlays applied[topology.HostUnderlay]
	states    applied[topology.HostState]
	healths   applied[topology.MemberHealth]
	routes    applied[topology.LearnedRoutes]
	remotes   applied[topology.LearnedRemote]

	// What hosts have seen counts while they have ports where they have seen it.
	places     map[place]int
	moved      bool // places, or hosts, have changed since this was applied
	macs       applied[topology.LearnedMAC]
	neighbours applied[topology.LearnedNeighbour]
}

// place is that a host has ports in a network.
type place struct{ host, network string }

// NewWorld returns a World that builds the virtual network with the first question.
func NewWorld() *World {
	return &World{world: simulate.NewWorld(simulate.Options{}), places: map[place]int{}}
}

// applied has the records of a table that the world has, by id.
type applied[T any] map[string]*T

// sync calls change for each record of the table that is other than the one applied: old or now is
// nil for one that is new or gone. Snapshots share records that have not changed. Only those for
// which good reports true count.
func (a *applied[T]) sync(d *difference, table *records.Table[T], good func(*T) bool, change func(old, now *T)) {
	if *a == nil {
		*a = applied[T]{}
	}
	for _, id := range a.candidates(d, table) {
		old := (*a)[id]
		now, _ := table.Peek(d.to, id)
		if now != nil && !good(now) {
			now = nil
		}
		switch {
		case now == old:
			continue
		case now == nil:
			delete(*a, id)
		default:
			(*a)[id] = now
		}
		change(old, now)
	}
}

// candidates returns the ids of the records that may be other than those applied.
func (a *applied[T]) candidates(d *difference, table *records.Table[T]) []string {
	if d.known {
		return d.ids[table.Name()]
	}
	ids := slices.Collect(maps.Keys(*a))
	for x := range table.All(d.to) {
		if id := table.ID(x); (*a)[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func all[T any](*T) bool { return true }

// difference is the way from one snapshot to another.
type difference struct {
	to    *records.Snap
	ids   map[string][]string // of the records that may differ, by table
	known bool                // else all may
}

// newDifference returns the way between two snapshots in either direction; from may be nil.
func newDifference(from, to *records.Snap) *difference {
	d := &difference{to: to}
	if from == nil {
		return d
	}
	if d.ids, d.known = to.ChangedSince(from); !d.known {
		d.ids, d.known = from.ChangedSince(to)
	}
	return d
}

// Trace simulates a packet in the virtual network of the snapshot.
func (w *World) Trace(snap *records.Snap, in simulate.Input) flow.TraceAnswer {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(snap)
	return flow.Answer(simulate.NewSimulator(w.world).Run(in))
}

// apply brings the world to a snapshot.
func (w *World) apply(snap *records.Snap) {
	if w.at != nil && w.at.Same(snap) {
		return
	}
	d := newDifference(w.at, snap)
	w.at = snap
	moved := map[string]bool{}
	w.bundles.sync(d, schema.Bundles, all, w.applyBundle)
	w.hosts.sync(d, schema.Hosts, all, func(old, now *topology.Host) { moved[one(old, now).ID] = true })
	w.underlays.sync(d, schema.Underlays, all, func(old, now *topology.HostUnderlay) { moved[one(old, now).HostID] = true })
	for id := range moved {
		w.moved = true
		h, _ := schema.HostWithTunnels(snap, id)
		w.note(w.world.ApplyHost(id, h))
	}
	w.states.sync(d, schema.HostStates, all, func(old, now *topology.HostState) {
		w.note(w.world.ApplyHostState(one(old, now).HostID, now))
	})
	w.healths.sync(d, schema.MemberHealths, all, func(old, now *topology.MemberHealth) {
		h := one(old, now)
		w.note(w.world.ApplyMemberHealth(h.HostID, h.MemberID, now))
	})
	w.routes.sync(d, schema.LearnedRoutes, all, func(old, now *topology.LearnedRoutes) {
		w.note(w.world.ApplyLearnedRoutes(old, now))
	})
	w.applyRemotes(d)
	w.applySightings(d)
}

// note notes what a change may have affected, if a comparison wants to know.
func (w *World) note(affected []string) {
	if w.affected != nil {
		for _, id := range affected {
			w.affected[id] = true
		}
	}
}

// one returns the record that there is.
func one[T any](old, now *T) *T {
	if now != nil {
		return now
	}
	return old
}

func (w *World) applyBundle(old, now *schema.Bundle) {
	before, after := portsOf(old), portsOf(now)
	w.moved = w.moved || !reflect.DeepEqual(before, after)
	w.countPlaces(before, -1)
	w.countPlaces(after, 1)
	if now == nil {
		w.note(w.world.Apply(old.Owner, nil))
		return
	}
	w.note(w.world.Apply(now.Owner, &now.Bundle))
}

func portsOf(b *schema.Bundle) []topology.Port {
	if b == nil {
		return nil
	}
	return b.Bundle.Ports
}

func (w *World) countPlaces(ports []topology.Port, by int) {
	for i := range ports {
		for _, host := range ports[i].HostIDs() {
			w.places[place{host, ports[i].NetworkID}] += by
		}
	}
}

// applyRemotes applies what servers have read in other VTEPs' databases. Records below another key
// than theirs are a host's, and count for nothing.
func (w *World) applyRemotes(d *difference) {
	isRemote := func(r *topology.LearnedRemote) bool {
		return strings.HasPrefix(schema.LearnedRemotes.ID(r), topology.RemoteHolder+"/")
	}
	w.remotes.sync(d, schema.LearnedRemotes, isRemote, func(old, now *topology.LearnedRemote) {
		if old != nil {
			w.note(w.world.ForgetRemote(*old))
		}
		if now != nil {
			w.note(w.world.LearnRemote(*now, schema.LearnedRemotes.Version(d.to, schema.LearnedRemotes.ID(now))))
		}
	})
}

// applySightings applies what hosts have seen where they have ports. All of it may count now, or no
// more, after a host or the binding of a port has changed.
func (w *World) applySightings(d *difference) {
	if w.moved {
		d = &difference{to: d.to}
		w.moved = false
	}
	isBound := func(m *topology.LearnedMAC) bool { return w.world.Bound(m.PortID, m.NetworkID, m.HostID) }
	w.macs.sync(d, schema.LearnedMACs, isBound, func(old, now *topology.LearnedMAC) {
		if old != nil {
			w.note(w.world.ForgetMAC(*old))
		}
		if now != nil {
			w.note(w.world.LearnMAC(*now, schema.LearnedMACs.Version(d.to, schema.LearnedMACs.ID(now))))
		}
	})
	hasPorts := func(n *topology.LearnedNeighbour) bool { return w.places[place{n.HostID, n.NetworkID}] > 0 }
	w.neighbours.sync(d, schema.LearnedNeighbours, hasPorts, func(old, now *topology.LearnedNeighbour) {
		if old != nil {
			w.note(w.world.ForgetNeighbour(*old))
		}
		if now != nil {
			w.note(w.world.LearnNeighbour(*now, schema.LearnedNeighbours.Version(d.to, schema.LearnedNeighbours.ID(now))))
		}
	})
}
