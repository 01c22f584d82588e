package simulate

import (
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// Sender is a machine as decisions about its connections rest on it. Those of two senders with one
// Key are the same, as long as the first's say so: see [Comparisons].
type Sender struct {
	Key     string
	numbers []uint32 // of what the world compares its address with and in
	filter  *chain   // of packets to it
	head    int      // the first rules of filter that Key has
}

// Sender returns a machine as a sender from one of its addresses; the arguments are those of
// [Classes.Key]. Any number of goroutines may call it.
func (c *Classes) Sender(portID string, mac packet.MAC, addresses []netip.Addr, one netip.Addr) Sender {
	p := c.world.ports[portID]
	if p == nil || c.isUnique(p, mac, one) {
		return Sender{Key: portID}
	}
	k := c.newKey(p, mac, addresses, []byte{0})
	k.number(uint32(one.BitLen()))
	k.deep = []*chain{}
	k.chain(p.in)
	head := k.head(p.out)
	return Sender{numbers: c.numbers(one), filter: p.out, head: head, Key: string(k.text)}
}

// head adds the first rules of a filter, up to the first that jumps elsewhere than to a filter
// against spoofing, and returns their number.
func (k *classKey) head(c *chain) (n int) {
	if c == nil {
		return 0
	}
	k.flags(c.def != nil)
	for _, r := range c.rules {
		if r.target != nil && r.target.purpose() != topology.PurposeAntiSpoof {
			break
		}
		k.rule(r)
		n++
	}
	k.number(0)
	return n
}

// Comparisons is a list of what decisions have compared the address of a sender with. It belongs to
// one goroutine, and to a world that does not change.
type Comparisons struct {
	classes *Classes
	known   map[any]numberSet // of chains, routers and prefixes

	sets  []numberSet // of those that were noted
	noted map[any]bool
	read  map[*chain]int // rules of chains that were read
}

type numberSet map[uint32]bool

// NewComparisons makes an empty list.
func (c *Classes) NewComparisons() *Comparisons {
	return &Comparisons{classes: c, known: map[any]numberSet{}, noted: map[any]bool{}, read: map[*chain]int{}}
}

// Reset forgets what was noted.
func (c *Comparisons) Reset() {
	c.sets = nil
	clear(c.noted)
	clear(c.read)
}

// Note notes what decisions rest on.
func (c *Comparisons) Note(r *Reads) {
	for i := range r.chains {
		x := &r.chains[i]
		c.read[x.chain] = max(c.read[x.chain], x.rules())
		c.add(x.chain, func(add func(*comparison)) {
			of := c.classes.of[x.chain]
			for _, p := range of.prefixes {
				add(c.classes.prefixes[p])
			}
			for _, g := range of.groups {
				add(c.classes.groups[g])
				for _, p := range c.classes.listed[g] {
					add(c.classes.prefixes[p])
				}
			}
		})
	}
	for _, at := range r.routers {
		c.add(at, func(add func(*comparison)) {
			at.prefixes(func(p netip.Prefix) { add(c.classes.prefixes[p]) })
		})
	}
}

// NotePrefix notes that a machine has compared the address with a prefix of its routes.
func (c *Comparisons) NotePrefix(p netip.Prefix) {
	c.add(p, func(add func(*comparison)) { add(c.classes.prefixes[p]) })
}

// add adds the numbers of what something compares addresses with.
func (c *Comparisons) add(of any, each func(add func(*comparison))) {
	if c.noted[of] {
		return
	}
	c.noted[of] = true
	set, known := c.known[of]
	if !known {
		set = numberSet{}
		each(func(x *comparison) {
			if x != nil {
				set[x.number] = true
			}
		})
		c.known[of] = set
	}
	if len(set) > 0 {
		c.sets = append(c.sets, set)
	}
}

// Finding is a note about one sender, to find others for which the decisions are the same.
type Finding struct {
	sets    []numberSet
	numbers []uint32 // those of the sender in sets
}

// Finding returns what was noted about a sender. It reports false if the decisions may be other
// ones for another sender with the same Key.
func (c *Comparisons) Finding(s *Sender) (*Finding, bool) {
	if s.filter != nil && c.read[s.filter] > s.head {
		return nil, false
	}
	f := &Finding{sets: c.sets}
	f.numbers = f.of(s)
	return f, true
}

// HoldsFor reports whether the decisions are the same for another sender with the same Key.
func (f *Finding) HoldsFor(s *Sender) bool { return slices.Equal(f.of(s), f.numbers) }

// of returns the sender's numbers in the sets.
func (f *Finding) of(s *Sender) (all []uint32) {
	for _, n := range s.numbers {
		if slices.ContainsFunc(f.sets, func(set numberSet) bool { return set[n] }) {
			all = append(all, n)
		}
	}
	return all
}
