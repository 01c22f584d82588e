package overlay

import (
	"container/list"
	"net/netip"
	"time"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

const (
	// sightingTTL is how long an address that was seen is told after the last packet from it: as long as a flow lives
	// without packets, and 15 s more (midonet-simulation §7.2).
	sightingTTL = flowIdle + 15*time.Second
	// portSightings bounds the addresses told of one port. A machine that makes up more of them is flooded to as if
	// unknown, and does not fill the store.
	portSightings = 256
)

// sighting is an address that was seen behind a port of this host.
type sighting struct {
	mac  *topology.LearnedMAC       // one of the two
	ip   *topology.LearnedNeighbour // the other
	port string                     // behind which it was seen
	last time.Duration
	at   *list.Element
}

// sightings are the addresses that this host has seen, each once.
type sightings struct {
	macs   map[flow.Learned]*sighting // with PortID empty
	ips    map[sightedIP]*sighting
	order  *list.List // last seen first
	byPort map[string]int
	over   uint64 // addresses not learned because their port had too many
}

type sightedIP struct {
	network string
	ip      netip.Addr
}

func newSightings() *sightings {
	return &sightings{macs: map[flow.Learned]*sighting{}, ips: map[sightedIP]*sighting{}, order: list.New(), byPort: map[string]int{}}
}

// mac notes that a MAC was seen. fresh says that it is new or has moved here from another port of this host, and has to
// be told. s is nil when the port has too many.
func (x *sightings) mac(host string, l flow.Learned, now time.Duration) (s *sighting, fresh bool) {
	key := l
	key.PortID = ""
	s = x.macs[key]
	if s != nil && s.port == l.PortID {
		x.seen(s, now)
		return s, false
	}
	if s != nil {
		x.forget(s)
	}
	if !x.room(l.PortID) {
		return nil, false
	}
	s = &sighting{port: l.PortID, mac: &topology.LearnedMAC{HostID: host, NetworkID: l.NetworkID, VLAN: l.VLAN, MAC: l.MAC, PortID: l.PortID}}
	x.macs[key] = s
	x.add(s, now)
	return s, true
}

// neighbour notes that an IP address was seen with a MAC, by a packet from port.
func (x *sightings) neighbour(host, port string, l flow.LearnedNeighbour, now time.Duration) (s *sighting, fresh bool) {
	key := sightedIP{l.NetworkID, l.IP}
	s = x.ips[key]
	if s != nil && s.port == port && s.ip.MAC == l.MAC {
		x.seen(s, now)
		return s, false
	}
	if s != nil {
		x.forget(s)
	}
	if !x.room(port) {
		return nil, false
	}
	s = &sighting{port: port, ip: &topology.LearnedNeighbour{HostID: host, NetworkID: l.NetworkID, IP: l.IP, MAC: l.MAC}}
	x.ips[key] = s
	x.add(s, now)
	return s, true
}

func (x *sightings) room(port string) bool {
	if x.byPort[port] >= portSightings {
		x.over++
		return false
	}
	return true
}

func (x *sightings) add(s *sighting, now time.Duration) {
	s.last = now
	s.at = x.order.PushFront(s)
	x.byPort[s.port]++
}

// seen says that a packet from the address came at time at.
func (x *sightings) seen(s *sighting, at time.Duration) {
	if s.at != nil && at > s.last {
		s.last = at
		x.order.MoveToFront(s.at)
	}
}

func (x *sightings) forget(s *sighting) {
	if s.at == nil {
		return
	}
	x.order.Remove(s.at)
	s.at = nil
	if s.mac != nil {
		delete(x.macs, flow.Learned{NetworkID: s.mac.NetworkID, VLAN: s.mac.VLAN, MAC: s.mac.MAC})
	} else {
		delete(x.ips, sightedIP{s.ip.NetworkID, s.ip.IP})
	}
	if x.byPort[s.port]--; x.byPort[s.port] == 0 {
		delete(x.byPort, s.port)
	}
}

// takeOld forgets what has not been seen for long and returns it.
func (x *sightings) takeOld(now time.Duration) (old []*sighting) {
	for e := x.order.Back(); e != nil; e = x.order.Back() {
		s := e.Value.(*sighting)
		if now < s.last+sightingTTL {
			break
		}
		x.forget(s)
		old = append(old, s)
	}
	return old
}

// takePort forgets and returns all that was seen behind a port.
func (x *sightings) takePort(port string) (gone []*sighting) {
	if x.byPort[port] == 0 {
		return nil
	}
	for e := x.order.Front(); e != nil; {
		s := e.Value.(*sighting)
		e = e.Next()
		if s.port == port {
			x.forget(s)
			gone = append(gone, s)
		}
	}
	return gone
}
