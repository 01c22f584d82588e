package overlay

import (
	"container/list"
	"net/netip"
	"time"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

const (
	// sightingTTL is 15 s more than the life of an idle flow (midonet-simulation §7.2).
	sightingTTL = flowIdle + 15*time.Second
	// portSightings bounds the addresses reported of one port. Packets to more of them are flooded,
	// and a machine that makes up addresses does not fill the store.
	portSightings = 256
	// lanSightings is the same of a localnet port, behind which there is a whole LAN.
	lanSightings = 4096
)

// sightings returns how many addresses behind the port are reported.
func (p *localPort) sightings() int {
	if p.localnet != "" {
		return lanSightings
	}
	return portSightings
}

// address names what was seen in a network: a MAC address in a VLAN, or an IP address.
type address struct {
	network string
	vlan    uint16
	mac     packet.MAC // zero for an IP address
	ip      netip.Addr // invalid for a MAC address
}

// sighting is an address that a host has seen, behind a port of its own.
type sighting struct {
	address
	host  string
	port  string
	owner packet.MAC // of an IP address
	last  time.Duration
	at    *list.Element
}

// sightingOf returns what a record of the store reports, or nil.
func sightingOf(record any) *sighting {
	switch r := record.(type) {
	case *topology.LearnedMAC:
		return &sighting{address: address{network: r.NetworkID, vlan: r.VLAN, mac: r.MAC}, host: r.HostID, port: r.PortID}
	case *topology.LearnedNeighbour:
		return &sighting{address: address{network: r.NetworkID, ip: r.IP}, host: r.HostID, owner: r.MAC}
	}
	return nil
}

func (s *sighting) isMAC() bool { return !s.ip.IsValid() }

func (s *sighting) learnedMAC() topology.LearnedMAC {
	return topology.LearnedMAC{HostID: s.host, NetworkID: s.network, VLAN: s.vlan, MAC: s.mac, PortID: s.port}
}

func (s *sighting) learnedNeighbour() topology.LearnedNeighbour {
	return topology.LearnedNeighbour{HostID: s.host, NetworkID: s.network, IP: s.ip, MAC: s.owner}
}

// sightings are the addresses that this host has seen, each once.
type sightings struct {
	host   string
	known  map[address]*sighting
	order  *list.List // last seen first
	byPort map[string]int
	over   uint64 // addresses not learned because their port had too many
}

func newSightings(host string) *sightings {
	return &sightings{host: host, known: map[address]*sighting{}, order: list.New(), byPort: map[string]int{}}
}

// mac notes that a MAC address was seen; see note.
func (x *sightings) mac(l flow.Learned, now time.Duration, most int) (s *sighting, fresh bool) {
	return x.note(address{network: l.NetworkID, vlan: l.VLAN, mac: l.MAC}, l.PortID, packet.MAC{}, now, most)
}

// neighbour notes that an IP address was seen with a MAC address, by a packet from port; see note.
func (x *sightings) neighbour(port string, l flow.LearnedNeighbour, now time.Duration, most int) (s *sighting, fresh bool) {
	return x.note(address{network: l.NetworkID, ip: l.IP}, port, l.MAC, now, most)
}

// note returns the sighting of an address, nil when its port has the most already. It reports
// whether that is new or has changed, and so has to be reported.
func (x *sightings) note(a address, port string, owner packet.MAC, now time.Duration, most int) (s *sighting, fresh bool) {
	if s = x.known[a]; s != nil {
		if s.port == port && s.owner == owner {
			x.seen(s, now)
			return s, false
		}
		x.forget(s)
	}
	if !x.room(port, most) {
		return nil, false
	}
	s = &sighting{address: a, host: x.host, port: port, owner: owner, last: now}
	s.at = x.order.PushFront(s)
	x.known[a] = s
	x.byPort[port]++
	return s, true
}

func (x *sightings) room(port string, most int) bool {
	if x.byPort[port] >= most {
		x.over++
		return false
	}
	return true
}

// seen notes a packet from the address at a time.
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
	delete(x.known, s.address)
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
