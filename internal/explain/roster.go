package explain

import (
	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// roster has the ends of connections of a snapshot, and which of them are alike.
type roster struct {
	snap     *records.Snap
	ends     map[string]*reach.End    // of all ports, by id
	machines map[string]*neutron.Port // those of machines that are on a host
	classes4 [][]*reach.End           // machines with IPv4, by class
	classes6 [][]*reach.End
}

// rosterOf returns the roster of the snapshot that the world has. It is made once for a snapshot.
func (w *World) rosterOf(snap *records.Snap) *roster {
	if w.roster != nil && w.roster.snap.Same(snap) {
		return w.roster
	}
	r := &roster{snap: snap, ends: map[string]*reach.End{}, machines: map[string]*neutron.Port{}}
	var machines []*reach.End
	for p := range schema.Ports.All(snap) {
		e := endOf(snap, p.ID)
		r.ends[p.ID] = e
		if isMachine(snap, p) {
			r.machines[p.ID] = p
			machines = append(machines, e)
		}
	}
	r.classes4 = reach.Classes(w.world, machines, true)
	r.classes6 = reach.Classes(w.world, machines, false)
	w.roster = r
	return r
}

// end returns a port as an end, nil for none.
func (r *roster) end(id string) *reach.End { return r.ends[id] }

// classes returns the machines with a version of IP, by class.
func (r *roster) classes(is4 bool) [][]*reach.End {
	if is4 {
		return r.classes4
	}
	return r.classes6
}
