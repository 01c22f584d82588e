package calc

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"

	"heddle/calico"
)

// endpoint is what is kept of an endpoint, whatever its host: its class and the addresses that it adds to sets.
type endpoint struct {
	class     *class // nil: this place is free
	pos       uint32 // in class.members
	addresses []address
}

// endpointID is a place in endpoints.all. 0 stands for none.
type endpointID uint32

// address is an IP address in 16 bytes. An IPv4 address has its IPv6-mapped form, which no endpoint can have otherwise.
type address [16]byte

// family is 0 for IPv4 and 1 for IPv6.
func (a address) family() int {
	if a.addr().Is4() {
		return 0
	}
	return 1
}

func (a address) addr() netip.Addr { return netip.AddrFrom16(a).Unmap() }

// endpoints are all endpoints of all hosts, in a compact form.
type endpoints struct {
	byKey map[keyHash]endpointID
	all   []endpoint // the first is unused
	free  []endpointID
	// holder is the endpoint that holds an address. Where there are several it is 0 and they are in holders.
	holder  map[address]endpointID
	holders map[address][]endpointID
	room    []byte // for text to hash
}

// keyHash is the beginning of the SHA-256 of an endpoint's key. Nobody finds two keys with the same, and the keys
// themselves would take most of what is kept of an endpoint.
type keyHash [16]byte

func newEndpoints() endpoints {
	return endpoints{
		byKey: map[keyHash]endpointID{}, all: make([]endpoint, 1),
		holder: map[address]endpointID{}, holders: map[address][]endpointID{},
	}
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
		e.enter(id, k)
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
	from, before := e.all[id].class, e.all[id].addresses
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
			e.unhold(a, id)
		}
	}
	if from != k {
		c.leave(id)
		e.enter(id, k)
	}
	e.all[id].addresses = addresses
	for _, a := range addresses {
		if slices.Contains(before, a) {
			c.include(a, id, gained)
		} else {
			c.include(a, id, k.sets)
			e.hold(a, id)
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

// hold notes that an endpoint holds an address.
func (e *endpoints) hold(a address, id endpointID) {
	other, held := e.holder[a]
	switch {
	case !held:
		e.holder[a] = id
	case other == 0:
		e.holders[a] = append(e.holders[a], id)
	default:
		e.holder[a] = 0
		e.holders[a] = []endpointID{other, id}
	}
}

// unhold notes that an endpoint no longer holds an address.
func (e *endpoints) unhold(a address, id endpointID) {
	if e.holder[a] != 0 {
		delete(e.holder, a)
		return
	}
	left := slices.DeleteFunc(e.holders[a], func(other endpointID) bool { return other == id })
	if len(left) > 1 {
		e.holders[a] = left
		return
	}
	delete(e.holders, a)
	e.holder[a] = left[0]
}

// include adds an address to sets that another endpoint does not give it to already.
func (c *Calc) include(a address, id endpointID, sets []*set) {
	others := c.endpoints.holders[a]
	if other := c.endpoints.holder[a]; other != 0 && other != id {
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
	others := c.endpoints.holders[a]
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

// addressesOf collects distinct addresses.
func addressesOf(lists ...[]netip.Addr) []address {
	n := 0
	for _, l := range lists {
		n += len(l)
	}
	if n == 0 {
		return nil
	}
	all := make([]address, 0, n)
	for _, l := range lists {
		for _, ip := range l {
			if a := address(ip.As16()); !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}
