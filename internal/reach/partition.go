package reach

import (
	"hash/maphash"
	"net/netip"
	"slices"

	"heddle/internal/topology/simulate"
)

// Partition sorts ends into classes, for each version of IP those that have an address of it. The
// world treats the ends of one class alike if each speaks by its first address. Changes cost as
// much as there are ends for which they matter.
type Partition struct {
	keys    *simulate.Classes
	seed    [2]maphash.Seed
	members map[string]*member // by port
	stale   map[string]bool    // ports of members whose class is not known
	classes [2]map[classKey]*class
}

// families are the versions of IP, in the order in which partitions have them.
var families = [2]bool{true, false} // is4

type classKey [2]uint64

// member is an end with its place in a class of each version.
type member struct {
	end    *End
	in     [2]*class // nil: it has no address, or its class is not known
	places [2]int
}

type class struct {
	key  classKey
	ends []*End
}

// NewPartition makes a Partition of no ends.
func NewPartition(w *simulate.World) *Partition {
	p := &Partition{keys: w.NewClasses(), members: map[string]*member{}, stale: map[string]bool{}}
	for i := range families {
		p.seed[i], p.classes[i] = maphash.MakeSeed(), map[classKey]*class{}
	}
	return p
}

// Set puts an end in place of the one at its port.
func (p *Partition) Set(e *End) {
	p.Remove(e.PortID)
	p.members[e.PortID] = &member{end: e}
	p.stale[e.PortID] = true
	p.countRoutes(e, 1)
}

// Remove removes the end at a port, if there is one.
func (p *Partition) Remove(portID string) {
	m := p.members[portID]
	if m == nil {
		return
	}
	p.leave(m)
	p.countRoutes(m.end, -1)
	delete(p.members, portID)
	delete(p.stale, portID)
}

func (p *Partition) countRoutes(e *End, by int) {
	for prefix := range e.prefixes {
		p.keys.CountRoute(prefix, by)
	}
}

// Sender returns an end as a sender by a version of IP. Any number of goroutines may call it while
// nothing changes.
func (p *Partition) Sender(e *End, is4 bool) simulate.Sender {
	s := p.keys.Sender(e.PortID, e.MAC, e.Addresses, e.Address(is4))
	s.Key += string(e.appendRoutes(nil))
	return s
}

// Classes returns the ends with an address of a version of IP, by class, for the world as it is.
// They hold until the world or the partition changes.
func (p *Partition) Classes(is4 bool) (classes [][]*End) {
	p.refresh()
	for _, c := range p.classes[slices.Index(families[:], is4)] {
		classes = append(classes, c.ends)
	}
	return classes
}

// refresh finds the classes of ends anew that may be in another.
func (p *Partition) refresh() {
	changed := p.keys.Refresh()
	for id, m := range p.members {
		if changed.All || changed.Ports[id] || slices.ContainsFunc(m.end.Addresses, func(a netip.Addr) bool { return comparesWith(&changed, a) }) {
			p.stale[id] = true
		}
	}
	for id := range p.stale {
		m := p.members[id]
		p.leave(m)
		p.enter(m)
	}
	clear(p.stale)
}

// comparesWith reports whether the key of a port with an address may have changed.
func comparesWith(k *simulate.KeyChanges, a netip.Addr) bool {
	return k.Addresses[a] || slices.ContainsFunc(k.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// leave takes an end out of its classes.
func (p *Partition) leave(m *member) {
	for i, c := range m.in {
		if c == nil {
			continue
		}
		last := len(c.ends) - 1
		moved := p.members[c.ends[last].PortID]
		c.ends[m.places[i]], moved.places[i] = moved.end, m.places[i]
		if c.ends = c.ends[:last]; last == 0 {
			delete(p.classes[i], c.key)
		}
		m.in[i] = nil
	}
}

// enter puts an end into the classes that are its own.
func (p *Partition) enter(m *member) {
	for i, is4 := range families {
		address := m.end.Address(is4)
		if !address.IsValid() {
			continue
		}
		text := p.keys.Key(m.end.PortID, m.end.MAC, m.end.Addresses, address)
		text = m.end.appendRoutes(text)
		key := classKey{maphash.Bytes(p.seed[0], text), maphash.Bytes(p.seed[1], text)}
		c := p.classes[i][key]
		if c == nil {
			c = &class{key: key}
			p.classes[i][key] = c
		}
		m.in[i], m.places[i] = c, len(c.ends)
		c.ends = append(c.ends, m.end)
	}
}
