package explain

import (
	"iter"
	"strings"
	"sync"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// World is the virtual network as the store has it, kept from question to question: each applies
// what has changed since the last one. Connections are not in the store, and so not known here. Its
// methods may be called from any goroutine.
type World struct {
	mu     sync.Mutex
	world  *simulate.World
	roster *roster       // of the last question about reachability
	at     *records.Snap // that the world was brought to last

	bundles   applied[schema.Bundle]
	hosts     applied[topology.Host]
	underlays applied[topology.HostUnderlay]
	states    applied[topology.HostState]
	healths   applied[topology.MemberHealth]
	routes    applied[topology.LearnedRoutes]
	remotes   applied[topology.LearnedRemote]

	// What hosts have seen counts while they have ports where they have seen it.
	places     map[place]int
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

// sync calls change for each record that is other than the one applied: old or now is nil for one
// that is new or gone. Snapshots share records that have not changed.
func (a *applied[T]) sync(all iter.Seq[*T], id func(*T) string, change func(old, now *T)) {
	before, after := *a, make(applied[T], len(*a))
	for now := range all {
		key := id(now)
		after[key] = now
		if old := before[key]; old != now {
			change(old, now)
		}
	}
	for key, old := range before {
		if after[key] == nil {
			change(old, nil)
		}
	}
	*a = after
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
	if w.at == snap {
		return
	}
	w.at = snap
	w.bundles.sync(schema.Bundles.All(snap), schema.Bundles.ID, w.applyBundle)
	moved := map[string]bool{}
	w.hosts.sync(schema.Hosts.All(snap), schema.Hosts.ID, func(old, now *topology.Host) { moved[one(old, now).ID] = true })
	w.underlays.sync(schema.Underlays.All(snap), schema.Underlays.ID, func(old, now *topology.HostUnderlay) { moved[one(old, now).HostID] = true })
	for id := range moved {
		h, _ := schema.HostWithTunnels(snap, id)
		w.world.ApplyHost(id, h)
	}
	w.states.sync(schema.HostStates.All(snap), schema.HostStates.ID, func(old, now *topology.HostState) {
		w.world.ApplyHostState(one(old, now).HostID, now)
	})
	w.healths.sync(schema.MemberHealths.All(snap), schema.MemberHealths.ID, func(old, now *topology.MemberHealth) {
		h := one(old, now)
		w.world.ApplyMemberHealth(h.HostID, h.MemberID, now)
	})
	w.routes.sync(schema.LearnedRoutes.All(snap), schema.LearnedRoutes.ID, func(old, now *topology.LearnedRoutes) { w.world.ApplyLearnedRoutes(old, now) })
	w.applyRemotes(snap)
	w.applySightings(snap)
}

// one returns the record that there is.
func one[T any](old, now *T) *T {
	if now != nil {
		return now
	}
	return old
}

func (w *World) applyBundle(old, now *schema.Bundle) {
	count := func(b *schema.Bundle, by int) {
		if b == nil {
			return
		}
		for i := range b.Bundle.Ports {
			p := &b.Bundle.Ports[i]
			for _, host := range p.HostIDs() {
				w.places[place{host, p.NetworkID}] += by
			}
		}
	}
	count(old, -1)
	count(now, 1)
	if now == nil {
		w.world.Apply(old.Owner, nil)
		return
	}
	w.world.Apply(now.Owner, &now.Bundle)
}

// applyRemotes applies what servers have read in other VTEPs' databases. Records below another key
// than theirs are a host's, and count for nothing.
func (w *World) applyRemotes(snap *records.Snap) {
	w.remotes.sync(schema.LearnedRemotes.All(snap), schema.LearnedRemotes.ID, func(old, now *topology.LearnedRemote) {
		id := schema.LearnedRemotes.ID(one(old, now))
		if !strings.HasPrefix(id, topology.RemoteHolder+"/") {
			return
		}
		if old != nil {
			w.world.ForgetRemote(*old)
		}
		if now != nil {
			w.world.LearnRemote(*now, schema.LearnedRemotes.Version(snap, id))
		}
	})
}

// applySightings applies what hosts have seen where they have ports.
func (w *World) applySightings(snap *records.Snap) {
	macs := where(schema.LearnedMACs.All(snap), func(m *topology.LearnedMAC) bool { return w.world.Bound(m.PortID, m.NetworkID, m.HostID) })
	w.macs.sync(macs, schema.LearnedMACs.ID, func(old, now *topology.LearnedMAC) {
		if old != nil {
			w.world.ForgetMAC(*old)
		}
		if now != nil {
			w.world.LearnMAC(*now, schema.LearnedMACs.Version(snap, schema.LearnedMACs.ID(now)))
		}
	})
	neighbours := where(schema.LearnedNeighbours.All(snap), func(n *topology.LearnedNeighbour) bool { return w.places[place{n.HostID, n.NetworkID}] > 0 })
	w.neighbours.sync(neighbours, schema.LearnedNeighbours.ID, func(old, now *topology.LearnedNeighbour) {
		if old != nil {
			w.world.ForgetNeighbour(*old)
		}
		if now != nil {
			w.world.LearnNeighbour(*now, schema.LearnedNeighbours.Version(snap, schema.LearnedNeighbours.ID(now)))
		}
	})
}

// where returns the records for which good reports true.
func where[T any](all iter.Seq[*T], good func(*T) bool) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for x := range all {
			if good(x) && !yield(x) {
				return
			}
		}
	}
}
