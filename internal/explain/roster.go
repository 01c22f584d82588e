package explain

import (
	"maps"

	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/simulate"
)

// roster has the ends of connections of a snapshot, and which of them are alike. It follows from
// snapshot to snapshot.
type roster struct {
	snap      *records.Snap
	ends      map[string]*reach.End    // of all ports, by id
	machines  map[string]*neutron.Port // those of machines that are on a host
	partition *reach.Partition         // of the machines
	byVersion [2][][]*reach.End        // its classes, of IPv4 and IPv6
}

func newRoster(w *simulate.World) *roster {
	return &roster{ends: map[string]*reach.End{}, machines: map[string]*neutron.Port{}, partition: reach.NewPartition(w)}
}

// rosterOf returns the roster of the snapshot that the world has.
func (w *World) rosterOf(snap *records.Snap) *roster {
	if w.roster == nil {
		w.roster = newRoster(w.world)
	}
	w.roster.apply(snap)
	return w.roster
}

// apply brings the roster to a snapshot, that of its world.
func (r *roster) apply(snap *records.Snap) {
	if r.snap != nil && r.snap.Same(snap) {
		return
	}
	for _, id := range r.stale(newDifference(r.snap, snap)) {
		r.set(snap, id)
	}
	r.snap = snap
	r.byVersion = [2][][]*reach.End{r.partition.Classes(true), r.partition.Classes(false)}
}

// clone returns a roster that stays as this one is, without its classes.
func (r *roster) clone() *roster {
	return &roster{snap: r.snap, ends: maps.Clone(r.ends), machines: maps.Clone(r.machines)}
}

// stale returns the ids of the ports that may be other ends, or machines, than they were. Ids may
// come several times.
func (r *roster) stale(d *difference) (ids []string) {
	if !d.known {
		for id := range r.ends {
			ids = append(ids, id)
		}
		for p := range schema.Ports.All(d.to) {
			ids = append(ids, p.ID)
		}
		return ids
	}
	ids = d.ids[schema.Ports.Name()]
	for _, of := range []string{schema.Subnets.Name(), schema.Networks.Name()} {
		for _, id := range d.ids[of] {
			for p := range schema.Ports.By(d.to, of, id) {
				ids = append(ids, p.ID)
			}
		}
	}
	return ids
}

// set brings one port to what it is in a snapshot.
func (r *roster) set(snap *records.Snap, id string) {
	p, ok := schema.Ports.Peek(snap, id)
	if !ok {
		delete(r.ends, id)
	} else {
		r.ends[id] = endOfPort(snap, p)
	}
	if !ok || !isMachine(snap, p) {
		delete(r.machines, id)
		r.partition.Remove(id)
		return
	}
	r.machines[id] = p
	r.partition.Set(r.ends[id])
}

// end returns a port as an end, nil for none.
func (r *roster) end(id string) *reach.End { return r.ends[id] }

// classes returns the machines with a version of IP, by class.
func (r *roster) classes(is4 bool) [][]*reach.End {
	if is4 {
		return r.byVersion[0]
	}
	return r.byVersion[1]
}
