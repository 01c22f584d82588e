package calc

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"heddle/calico"
)

// endpoint is what is kept of an endpoint, whatever its host: its class and the addresses that it adds to sets.
type endpoint struct {
	class *class     // nil: this place is free
	pos   uint32     // in class.members
	ip    [4]byte    // the only address, where more is nil
	more  *[]address // nil: there is just ip, which nearly all have
}

// addresses are those that the endpoint holds. room is where they go if they are not a list already.
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

// endpointID is a place in endpoints.all. 0 stands for none.
type endpointID uint32

// endpoints are all endpoints of all hosts, in a compact form.
type endpoints struct {
	byKey   map[keyHash]endpointID
	all     []endpoint // the first is unused
	free    []endpointID
	holders holders
	room    []byte // for text to hash
}

// keyHash is the beginning of the SHA-256 of an endpoint's key. Nobody finds two keys with the same, and the keys
// themselves would take most of what is kept of an endpoint.
type keyHash [16]byte

func newEndpoints() endpoints {
	return endpoints{byKey: map[keyHash]endpointID{}, all: make([]endpoint, 1), holders: newHolders()}
}

// hash names a workload endpoint, or a host endpoint, by the parts of its key.
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

// put gives an endpoint its class and addresses, be it new or not, and changes the members of sets accordingly.
func (c *Calc) put(key keyHash, k *class, addresses []address) {
	e := &c.endpoints
	id, known := e.byKey[key]
	if !known {
		id = e.take()
		e.byKey[key] = id
		e.all[id].setAddresses(addresses)
		e.enter(id, k)
		for _, a := range addresses {
			c.include(a, id, k.sets)
			e.holders.hold(a, id)
		}
		return
	}
	c.settle(id, k, addresses)
}

// remove forgets an endpoint.
func (c *Calc) remove(key keyHash) {
	e := &c.endpoints
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

// settle changes an endpoint's class and addresses. A set that holds an address before and after sees nothing of it.
func (c *Calc) settle(id endpointID, k *class, addresses []address) {
	e := &c.endpoints
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
			c.exclude(a, id, lost)
		} else {
			c.exclude(a, id, from.sets)
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
			c.include(a, id, gained)
		} else {
			c.include(a, id, k.sets)
			e.holders.hold(a, id)
		}
	}
}

// enter makes an endpoint a member of a class.
func (e *endpoints) enter(id endpointID, k *class) {
	e.all[id].class, e.all[id].pos = k, uint32(len(k.members))
	k.members = append(k.members, id)
}

// leave ends an endpoint's membership of its class, and the class with its last member.
func (c *Calc) leave(id endpointID) {
	all := c.endpoints.all
	k, pos := all[id].class, all[id].pos
	last := len(k.members) - 1
	k.members[pos] = k.members[last]
	all[k.members[pos]].pos = pos
	k.members = k.members[:last]
	if last == 0 {
		c.dropClass(k)
	}
}

// include adds an address to sets that another endpoint does not give it to already.
func (c *Calc) include(a address, id endpointID, sets []*set) {
	h := &c.endpoints.holders
	others := h.several(a)
	if other := h.only(a); other != 0 && other != id {
		others = []endpointID{other}
	}
	for _, s := range sets {
		if !c.anyIn(s, others, id) {
			c.change(s, a, true)
		}
	}
}

// exclude removes an address from sets that no other endpoint gives it to.
func (c *Calc) exclude(a address, id endpointID, sets []*set) {
	others := c.endpoints.holders.several(a)
	for _, s := range sets {
		if !c.anyIn(s, others, id) {
			c.change(s, a, false)
		}
	}
}

// anyIn says whether a set holds any of some endpoints, but for one.
func (c *Calc) anyIn(s *set, some []endpointID, but endpointID) bool {
	for _, id := range some {
		if id != but && c.endpoints.all[id].class.has(s) {
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
