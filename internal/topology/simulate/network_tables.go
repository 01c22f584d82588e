package simulate

import (
	"maps"
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// entry is a line of a table: seeds beat what was learned, the newest counts (midonet-topology §6).
type entry[V any] struct {
	seeds   claims[V]
	learned []learned[V]
	top     *V // what counts; nil in an entry about to go
}

type learned[V any] struct {
	host    string
	version uint64
	value   *V
}

// settle finds the value that counts, and returns the one before. What was learned to be last
// counts only if there is nothing else.
func (e *entry[V]) settle(last *V) (was *V) {
	was, e.top = e.top, e.seeds.top()
	if e.top != nil {
		return was
	}
	var best *learned[V]
	for i := range e.learned {
		if l := &e.learned[i]; best == nil || l.beats(best, last) {
			best = l
		}
	}
	if best != nil {
		e.top = best.value
	}
	return was
}

func (l *learned[V]) beats(other *learned[V], last *V) bool {
	if isLast := l.value == last; isLast != (other.value == last) {
		return !isLast
	}
	return l.version > other.version || l.version == other.version && l.host < other.host
}

// learn keeps what a host saw unless it saw something newer, and returns what it replaced.
func (e *entry[V]) learn(host string, version uint64, value *V) (had *V, kept bool) {
	i := e.indexOf(host)
	if i < 0 {
		e.learned = append(e.learned, learned[V]{host, version, value})
		return nil, true
	}
	if version < e.learned[i].version {
		return nil, false
	}
	had = e.learned[i].value
	e.learned[i] = learned[V]{host, version, value}
	return had, true
}

func (e *entry[V]) forget(host string) (had *V) {
	i := e.indexOf(host)
	if i < 0 {
		return nil
	}
	had = e.learned[i].value
	e.learned = slices.Delete(e.learned, i, i+1)
	return had
}

func (e *entry[V]) indexOf(host string) int {
	return slices.IndexFunc(e.learned, func(l learned[V]) bool { return l.host == host })
}

// macEntry says behind which port a MAC address is.
type macEntry = entry[port]

// neighbour is the MAC address of an IP address.
type neighbour = entry[packet.MAC]

// macKey is a MAC address in one VLAN.
type macKey uint64

func keyOf(vlan uint16, m packet.MAC) macKey { return macKey(uint64(vlan)<<48 | macBits(m)) }

func (k macKey) mac() packet.MAC {
	return packet.MAC{byte(k >> 40), byte(k >> 32), byte(k >> 24), byte(k >> 16), byte(k >> 8), byte(k)}
}

func (k macKey) untagged() bool { return k>>48 == 0 }

type macSeed struct {
	network string
	key     macKey
}

func macSeedKey(e *topology.MACEntry) macSeed { return macSeed{e.NetworkID, keyOf(e.VLAN, e.MAC)} }

func (w *World) setMACSeed(owner topology.Owner, before, after *topology.MACEntry) {
	of := after
	var to *port
	if after == nil {
		of = before
	} else {
		to = hold(w.ports, after.PortID)
	}
	w.changeMAC(of.NetworkID, keyOf(of.VLAN, of.MAC), func(e *macEntry) (had *port, change int) {
		had = e.seeds.set(owner, to)
		return had, presence(to) - presence(had)
	})
}

func presence[T any](v *T) int {
	if v == nil {
		return 0
	}
	return 1
}

// changeEntry changes one entry of a table of n, made or removed if need be, and returns it with
// what counted before; last as for settle. change returns the change in its number of sources, each
// of which holds n.
func changeEntry[K comparable, V any](n *network, table *map[K]*entry[V], key K, last *V, change func(*entry[V]) (sources int)) (e *entry[V], was *V) {
	e = (*table)[key]
	if e == nil {
		e = &entry[V]{}
	}
	n.refs += change(e)
	was = e.settle(last)
	if e.top == nil {
		delete(*table, key)
	} else if was == nil {
		if *table == nil {
			*table = map[K]*entry[V]{}
		}
		(*table)[key] = e
	}
	return e, was
}

// changeMAC changes one entry of a network's MAC table. change returns the port that the entry no
// longer names, and the change in its number of sources, each of which holds the network.
func (w *World) changeMAC(networkID string, key macKey, change func(*macEntry) (had *port, sources int)) {
	n := hold(w.networks, networkID)
	var had *port
	var seeded bool
	e, was := changeEntry(n, &n.macs, key, n.outside(), func(e *macEntry) (sources int) {
		seeded = len(e.seeds) > 0
		had, sources = change(e)
		return sources
	})
	// Packets went to this port until now; those to unknown addresses are flooded, and not cached.
	// Without a seed the port's own packets begin to take references.
	if was != nil && (was != e.top || seeded && len(e.seeds) == 0) {
		w.touch(was)
	}
	if was != e.top {
		w.reportKeys(was, e.top)
	}
	if n.lan != nil && was != e.top {
		n.lan.place(key, was, e.top)
		w.homeMayChange(n, key.mac())
	}
	if had != nil {
		release(w.ports, had)
	}
	release(w.networks, n)
}

// outside returns the localnet port of n. An address is learned to be behind it only if no other
// port has it: frames that left on the LAN are seen there too.
func (n *network) outside() *port {
	if n.lan == nil {
		return nil
	}
	return n.lan.port
}

// LearnMAC enters what a host saw behind a port, and returns the ports whose decisions may change.
// Of several sightings the highest version counts, in any order: that of the store, or for what was
// just seen here the next one.
func (w *World) LearnMAC(m topology.LearnedMAC, version uint64) (affected []string) {
	w.begin()
	p := hold(w.ports, m.PortID)
	w.changeMAC(m.NetworkID, keyOf(m.VLAN, m.MAC), func(e *macEntry) (had *port, sources int) {
		known := len(e.learned)
		had, kept := e.learn(m.HostID, version, p)
		if !kept {
			had = p // give back the reference taken for it
		}
		return had, len(e.learned) - known
	})
	return w.end()
}

// ForgetMAC takes away what the host m.HostID saw of an address, whichever port it was behind.
func (w *World) ForgetMAC(m topology.LearnedMAC) (affected []string) {
	w.begin()
	w.changeMAC(m.NetworkID, keyOf(m.VLAN, m.MAC), func(e *macEntry) (had *port, sources int) {
		known := len(e.learned)
		had = e.forget(m.HostID)
		return had, len(e.learned) - known
	})
	return w.end()
}

type neighbourSeed struct {
	network string
	ip      netip.Addr
}

func neighbourSeedKey(e *topology.NeighbourEntry) neighbourSeed {
	return neighbourSeed{e.NetworkID, e.IP}
}

func (w *World) setNeighbourSeed(owner topology.Owner, before, after *topology.NeighbourEntry) {
	of := after
	var to *packet.MAC
	if after == nil {
		of = before
	} else {
		to = &after.MAC
	}
	w.changeNeighbour(of.NetworkID, of.IP, func(e *neighbour) (sources int) {
		had := e.seeds.set(owner, to)
		return presence(to) - presence(had)
	})
}

// changeNeighbour changes one entry of a network's ARP or ND table. Answers that it decides are not
// cached, but routed packets go to its MAC address.
func (w *World) changeNeighbour(networkID string, ip netip.Addr, change func(*neighbour) (sources int)) {
	n := hold(w.networks, networkID)
	var before packet.MAC
	if e := n.neighbours[ip]; e != nil {
		before = *e.top
	}
	e, was := changeEntry(n, &n.neighbours, ip, nil, change)
	if (was == nil) != (e.top == nil) || was != nil && before != *e.top {
		w.reportNeighbour(ip)
		if was != nil {
			w.touchWayTo(n, ip, before)
		}
		if w.neighbourChanged != nil {
			defer w.neighbourChanged(networkID, ip)
		}
	}
	release(w.networks, n)
}

// touchWayTo touches the ports by which routers send packets to a neighbour: that of the network
// behind which its MAC address is, or the router's own.
func (w *World) touchWayTo(n *network, ip netip.Addr, m packet.MAC) {
	w.touchBehind(n, m)
	r := w.routers[n.id]
	if r == nil {
		return
	}
	for _, p := range r.ports {
		if p.def.Exterior() && p.onLink(ip) {
			w.touch(p)
		}
	}
}

// LearnNeighbour enters an address binding that a host saw, and returns the ports and routers whose
// decisions may change; version as for LearnMAC. What a router's exterior port sees belongs to the
// network with the router's id.
func (w *World) LearnNeighbour(l topology.LearnedNeighbour, version uint64) (affected []string) {
	w.begin()
	w.changeNeighbour(l.NetworkID, l.IP, func(e *neighbour) int {
		known := len(e.learned)
		e.learn(l.HostID, version, &l.MAC)
		return len(e.learned) - known
	})
	return w.end()
}

// ForgetNeighbour takes away what the host l.HostID saw of an address.
func (w *World) ForgetNeighbour(l topology.LearnedNeighbour) (affected []string) {
	w.begin()
	w.changeNeighbour(l.NetworkID, l.IP, func(e *neighbour) int {
		known := len(e.learned)
		e.forget(l.HostID)
		return len(e.learned) - known
	})
	return w.end()
}

// MACPort returns the port behind which a network's table has an untagged MAC address.
func (w *World) MACPort(networkID string, m packet.MAC) (portID string, ok bool) {
	n := w.networks[networkID]
	if n == nil || n.macs[keyOf(table, m)] == nil {
		return "", false
	}
	return n.macs[keyOf(table, m)].top.id, true
}

// Neighbour returns the MAC address that a network's table has for ip, and whether a router on the
// network has the address. It has none for a local IP: that depends on who asks.
func (w *World) Neighbour(networkID string, ip netip.Addr) (mac packet.MAC, router, ok bool) {
	n := w.networks[networkID]
	if n == nil || len(n.localIPs[ip]) > 0 {
		return packet.MAC{}, false, false
	}
	mac, ok = n.resolve(ip)
	return mac, n.routerAt(ip) != nil, ok
}

// NeighbourAddrs returns the addresses in a network's table and those of routers on it, in no
// order. An address may come twice.
func (w *World) NeighbourAddrs(networkID string) []netip.Addr {
	n := w.networks[networkID]
	if n == nil {
		return nil
	}
	all := slices.Collect(maps.Keys(n.neighbours))
	for _, q := range n.routers.all {
		all = append(all, q.addresses()...)
	}
	return all
}
