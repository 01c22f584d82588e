package simulate

import (
	"cmp"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// physicalNetwork is a LAN with an interface on every host that carries it (decision 0016).
type physicalNetwork struct {
	object
	hosts []*host // live ones that carry it, by id
	lans  []*lan
}

// lan is the part of a network with a localnet port that leads to the LAN.
type lan struct {
	network  *network
	port     *port // the localnet port
	physical *physicalNetwork
	leaders                            // of exterior ports on other hosts; nil while none carries it
	macs     map[*port]map[macKey]bool // the addresses in the network's table, by their port
}

// leaders are the hosts that rank first and second for a port or a network: the one that is its
// home, and the one that becomes its home when that is gone. Either may be nil.
type leaders struct{ home, standby *host }

// isLocalnet reports whether p is the localnet port of its network.
func (p *port) isLocalnet() bool {
	return p.network != nil && p.network.lan != nil && p.network.lan.port == p
}

// Home returns the home of the port behind a MAC address of a network with a localnet port: the
// host at which frames to the address come in from the LAN, and frames from it leave on the LAN.
// False if the network has no such port, the address is behind none of its other ports, or no live
// host carries the physical network.
func (w *World) Home(networkID string, m packet.MAC) (hostID string, ok bool) {
	n := w.networks[networkID]
	if n == nil || n.lan == nil {
		return "", false
	}
	p := n.behind(m)
	if p == nil || p.network != n || p.home == nil {
		return "", false
	}
	return p.home.id, true
}

// LocalnetPorts returns the localnet ports that lead to a physical network: those that each host
// which carries it attaches to its interface there. They belong to the world.
func (w *World) LocalnetPorts(physicalNetwork string) (ports []*topology.Port) {
	if x := w.physicals[physicalNetwork]; x != nil {
		for _, l := range x.lans {
			ports = append(ports, l.port.def)
		}
	}
	slices.SortFunc(ports, func(a, b *topology.Port) int { return cmp.Compare(a.ID, b.ID) })
	return ports
}

// linkLAN follows a change of the localnet ports of n. Of several the one with the lowest id
// counts.
func (w *World) linkLAN(n *network) {
	var to *port
	if len(n.localnets) > 0 {
		to = n.localnets[0]
	}
	switch l := n.lan; {
	case l == nil && to == nil, l != nil && l.port == to && l.physical == to.physical:
		return
	case l != nil:
		w.takeLAN(n)
	}
	if to != nil {
		w.giveLAN(n, to)
	}
}

// giveLAN makes p the localnet port of n.
func (w *World) giveLAN(n *network, p *port) {
	l := &lan{network: n, port: p, physical: p.physical, macs: map[*port]map[macKey]bool{}}
	l.physical.lans = append(l.physical.lans, l)
	l.leaders = l.physical.choose(n.id, nil)
	n.lan = l
	for key, e := range n.macs {
		l.place(key, nil, e.top)
	}
	w.resettle(n)
	for _, p := range n.ports {
		w.rehome(p)
	}
}

// takeLAN leaves n without a localnet port.
func (w *World) takeLAN(n *network) {
	l := n.lan
	for _, p := range n.ports {
		w.setHome(p, leaders{})
	}
	n.lan = nil
	w.resettle(n)
	l.physical.lans = slices.DeleteFunc(l.physical.lans, func(x *lan) bool { return x == l })
}

// resettle has the entries of n's MAC table follow a change of its localnet port.
func (w *World) resettle(n *network) {
	for key := range n.macs {
		w.changeMAC(n.id, key, func(*macEntry) (had *port, sources int) { return nil, 0 })
	}
}

// place notes that an address is behind another port; nil for none.
func (l *lan) place(key macKey, from, to *port) {
	if !key.untagged() {
		return
	}
	if from != nil {
		delete(l.macs[from], key)
		if len(l.macs[from]) == 0 {
			delete(l.macs, from)
		}
	}
	if to != nil {
		if l.macs[to] == nil {
			l.macs[to] = map[macKey]bool{}
		}
		l.macs[to][key] = true
	}
}

// homeOf returns the home of a port of the network. A port at home on its own host has no standby:
// when that host dies its machine does.
func (l *lan) homeOf(p *port) leaders {
	switch {
	case p == l.port:
		return leaders{}
	case p.def.Exterior() && p.server().carries(l.physical):
		return leaders{home: p.server()}
	case p.def.Exterior():
		return l.leaders
	case p.listed.port != nil:
		return l.physical.choose(p.id, p.listed.port.router.excluded())
	}
	return leaders{}
}

// rehome follows a change of p that may give it another home.
func (w *World) rehome(p *port) {
	switch {
	case p.network == nil:
	case p.network.lan == nil:
		w.setHome(p, leaders{})
	default:
		w.setHome(p, p.network.lan.homeOf(p))
	}
}

// setHome has decisions made again when another standby has to know of connections, too.
func (w *World) setHome(p *port, now leaders) {
	before := p.leaders
	if now == before {
		return
	}
	p.leaders = now
	w.touch(p)
	if now.home != before.home {
		w.homesBehind(p)
	}
}

// homesBehind reports that the homes of all addresses behind p may have changed.
func (w *World) homesBehind(p *port) {
	n := p.network
	if w.homeChanged == nil || n == nil || n.lan == nil {
		return
	}
	for key := range n.lan.macs[p] {
		w.homeMayChange(n, key.mac())
	}
	if q := p.listed.port; q != nil {
		w.homeMayChange(n, q.def.PortMAC)
	}
}

func (w *World) homeMayChange(n *network, m packet.MAC) {
	if w.homeChanged != nil && n.lan != nil {
		w.homeChanged(n.id, m)
	}
}

// carries reports whether h is alive and carries a physical network.
func (h *host) carries(x *physicalNetwork) bool { return slices.Contains(h.carried, x) }

// carry follows a change of h or its state that may concern the physical networks it carries.
func (w *World) carry(h *host) {
	before := h.carried
	h.carried = nil
	if h.def != nil && h.state != nil {
		for _, name := range h.def.PhysicalNetworks {
			if x := hold(w.physicals, name); !h.carries(x) {
				h.carried = append(h.carried, x)
			} else {
				release(w.physicals, x)
			}
		}
	}
	h.hash = hashID(h.id)
	for _, x := range h.carried {
		if !slices.Contains(before, x) {
			i, _ := slices.BinarySearchFunc(x.hosts, h.id, compareHost)
			x.hosts = slices.Insert(x.hosts, i, h)
			w.carrierChanged(x, h)
		}
	}
	for _, x := range before {
		if !h.carries(x) {
			x.hosts = slices.DeleteFunc(x.hosts, func(o *host) bool { return o == h })
			w.carrierChanged(x, h)
		}
		release(w.physicals, x)
	}
}

func compareHost(h *host, id string) int { return cmp.Compare(h.id, id) }

// carrierChanged gives new homes to the ports that had or get theirs because of h, which has become
// a carrier of x or ceased to be one.
func (w *World) carrierChanged(x *physicalNetwork, h *host) {
	for _, l := range x.lans {
		for _, q := range l.network.routers.all {
			b := q.peer()
			if b == l.port {
				continue
			}
			w.setHome(b, x.rechoose(b.id, b.leaders, h, q.router.excluded()))
		}
		if now := x.rechoose(l.network.id, l.leaders, h, nil); now != l.leaders {
			l.leaders = now
			for _, p := range l.network.ports {
				if p.def.Exterior() {
					w.rehome(p)
				}
			}
		}
	}
	for p := range h.ports {
		if p.network != nil && p.network.lan != nil && p.network.lan.physical == x {
			w.rehome(p)
		}
	}
}

// touchLANs touches the localnet ports by which decisions lead to h.
func (w *World) touchLANs(h *host) {
	for _, x := range h.carried {
		for _, l := range x.lans {
			w.touch(l.port)
		}
	}
}

// choose returns the hosts that stand for the port or network with that id, none of which is
// excluded.
func (x *physicalNetwork) choose(id string, excluded []string) (best leaders) {
	key := hashID(id)
	for _, h := range x.hosts {
		switch {
		case slices.Contains(excluded, h.id):
		case best.home == nil || h.beats(best.home, key):
			best = leaders{home: h, standby: best.home}
		case best.standby == nil || h.beats(best.standby, key):
			best.standby = h
		}
	}
	return best
}

// rechoose is choose when h alone has come or gone since it returned before.
func (x *physicalNetwork) rechoose(id string, before leaders, h *host, excluded []string) leaders {
	if before.standby != nil && before.standby != h && before.home != h && !(h.carries(x) && h.beats(before.standby, hashID(id))) {
		return before
	}
	return x.choose(id, excluded)
}

// beats compares the ranks of two hosts for a key: rendezvous hashing. All hosts must choose alike,
// whatever their version: the hash is never to change.
func (h *host) beats(other *host, key uint64) bool {
	a, b := mix(key^h.hash), mix(key^other.hash)
	return a > b || a == b && h.id < other.id
}

// hashID is FNV-1a, 64 bits.
func hashID(id string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 0x100000001b3
	}
	return h
}

// mix is the finalizer of SplitMix64.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
