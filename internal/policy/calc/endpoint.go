package calc

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"heddle/calico"
)

// endpoint is a compact endpoint of any host: its class and the addresses that it adds to sets.
type endpoint struct {
	class *class     // nil: this place is free
	pos   uint32     // in class.members
	ip    [4]byte    // the only address, where more is nil
	more  *[]address // nil: there is just ip, which nearly all have
}

// addresses returns the endpoint's addresses, in room if they are not a list already.
func (e *endpoint) addresses(room []address) []address {
	if e.more != nil {
		return *e.more
	}
	return append(room, addressOf4(e.ip))
}

func (e *endpoint) setAddresses(all []address) {
	if len(all) == 1 {
		if ip, ok := all[0].as4(); ok {
			e.ip, e.more = ip, nil
			return
		}
	}
	list := all // so that only this case allocates
	e.more = &list
}

// endpointID is an index in endpoints.all; 0 stands for none.
type endpointID uint32

// endpoints are all endpoints of all hosts, in a compact form.
type endpoints struct {
	byKey   map[keyHash]endpointID
	all     []endpoint // the first is unused
	free    []endpointID
	holders holders
	room    []byte // for text to hash
}

// keyHash is a prefix of the SHA-256 of an endpoint's key. It saves the memory of the keys
// themselves; collisions are infeasible.
type keyHash [16]byte

func newEndpoints() *endpoints {
	return &endpoints{byKey: map[keyHash]endpointID{}, all: make([]endpoint, 1), holders: newHolders()}
}

func (e *endpoints) hash(parts ...string) keyHash {
	b := e.room[:0]
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	e.room = b
	sum := sha256.Sum256(b)
	return keyHash(sum[:16])
}

func (e *endpoints) hashWorkload(k calico.WorkloadEndpointKey) keyHash {
	return e.hash(k.Host, k.Orchestrator, k.Workload, k.Endpoint)
}

func (e *endpoints) hashHost(k calico.HostEndpointKey) keyHash { return e.hash(k.Host, k.Endpoint) }

// put gives a new or known endpoint its class and addresses, and updates the members of sets.
func (c *Calc) put(key keyHash, k *class, addresses []address) {
	e := c.endpoints
	id, known := e.byKey[key]
	if !known {
		id = e.take()
		e.byKey[key] = id
		e.all[id].setAddresses(addresses)
		e.enter(id, k)
		for _, a := range addresses {
			c.sets.include(a, id, k.sets)
			e.holders.hold(a, id)
		}
		return
	}
	c.settle(id, k, addresses)
}

func (c *Calc) remove(key keyHash) {
	e := c.endpoints
	id, known := e.byKey[key]
	if !known {
		return
	}
	c.settle(id, e.all[id].class, nil)
	delete(e.byKey, key)
	c.leave(id)
	e.all[id] = endpoint{}
	e.free = append(e.free, id)
}

// settle changes an endpoint's class and addresses. Sets with an address before and after stay.
func (c *Calc) settle(id endpointID, k *class, addresses []address) {
	e := c.endpoints
	from, before := e.all[id].class, e.all[id].addresses(make([]address, 0, 1))
	if from == k && slices.Equal(before, addresses) {
		return
	}
	var lost, gained []*set // for addresses that stay
	if from != k {
		lost, gained = without(from.sets, k.sets), without(k.sets, from.sets)
	}
	for _, a := range before {
		if slices.Contains(addresses, a) {
			c.sets.exclude(a, id, lost)
		} else {
			c.sets.exclude(a, id, from.sets)
			e.holders.unhold(a, id)
		}
	}
	if from != k {
		c.leave(id)
		e.enter(id, k)
	}
	e.all[id].setAddresses(addresses)
	for _, a := range addresses {
		if slices.Contains(before, a) {
			c.sets.include(a, id, gained)
		} else {
			c.sets.include(a, id, k.sets)
			e.holders.hold(a, id)
		}
	}
}

func (e *endpoints) enter(id endpointID, k *class) {
	e.all[id].class, e.all[id].pos = k, uint32(len(k.members))
	k.members = append(k.members, id)
}

// leave removes an endpoint from its class, and drops the class with its last member.
func (c *Calc) leave(id endpointID) {
	all := c.endpoints.all
	k, pos := all[id].class, all[id].pos
	last := len(k.members) - 1
	k.members[pos] = k.members[last]
	all[k.members[pos]].pos = pos
	k.members = k.members[:last]
	if last == 0 {
		c.classes.drop(k)
	}
}

// include adds an address to those sets to which no other endpoint has added it already.
func (ss *addressSets) include(a address, id endpointID, sets []*set) {
	h := &ss.endpoints.holders
	others := h.several(a)
	if other := h.only(a); other != 0 && other != id {
		others = []endpointID{other}
	}
	for _, s := range sets {
		if !ss.anyIn(s, others, id) {
			ss.change(s, a, true)
		}
	}
}

// exclude removes an address from those sets to which no other endpoint adds it.
func (ss *addressSets) exclude(a address, id endpointID, sets []*set) {
	others := ss.endpoints.holders.several(a)
	for _, s := range sets {
		if !ss.anyIn(s, others, id) {
			ss.change(s, a, false)
		}
	}
}

// anyIn reports whether a set holds one of some endpoints, except for one.
func (ss *addressSets) anyIn(s *set, some []endpointID, but endpointID) bool {
	for _, id := range some {
		if id != but && ss.endpoints.all[id].class.has(s) {
			return true
		}
	}
	return false
}

func (e *endpoints) take() endpointID {
	if n := len(e.free); n > 0 {
		id := e.free[n-1]
		e.free = e.free[:n-1]
		return id
	}
	e.all = append(e.all, endpoint{})
	return endpointID(len(e.all) - 1)
}
