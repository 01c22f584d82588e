package overlay

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// virtualNetwork is the virtual network as of the last snapshot applied, with its ports attached
// here.
//
// Simulations hold mu for reading, changes for writing. Epochs are read under the read lock of the
// simulation and bumped under the write lock of the change: no flow carries the epoch of a newer
// world than it was decided in.
type virtualNetwork struct {
	dp      *datapath.Datapath
	answers *answers
	homes   *homes
	bumped  *atomic.Uint64 // ports and addresses whose flows were stopped

	mu       sync.RWMutex
	world    *simulate.World
	ports    map[datapath.Port]*localPort
	portByID map[string]*localPort
	bySlot   map[datapath.Slot][]string // ids in portByID
	hosts    map[netip.Addr]string      // other hosts in a zone of this one, by tunnel address
	tunnelIP map[string]netip.Addr      // the reverse of hosts
	revision uint64                     // version of the snapshot
	adopting bool                       // the first snapshot is being applied
	usesRead time.Duration              // all uses of flows before have been read
}

// localPort is a port of this host whose interface is attached.
type localPort struct {
	id     string
	number datapath.Port
	mtu    int // of its interface, bytes
	// network is the id of its network; "" of one that is no workload's.
	network string
	// localnet is the network of a localnet port, "" of others.
	localnet string
	// vtep is the VTEP of a port at which the frames inside packets for it come in, and by which
	// nothing leaves.
	vtep datapath.VTEP
}

// apply changes the topology and stops the flows that it affects.
func (n *virtualNetwork) apply(change func(*simulate.World) (affected []string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bump(change(n.world))
}

// bump stops the flows of affected ports and addresses, once the kernel has the homes that the
// change moved. It needs the write lock.
func (n *virtualNetwork) bump(affected []string) {
	n.homes.settle()
	if n.adopting {
		return
	}
	for _, id := range affected {
		slot := datapath.SlotOf(id)
		n.dp.Bump(slot)
		// Other ports may share the slot. Their flows recover with the next packet, but the
		// kernel's answers must be renewed here, as the agent may be gone when they are needed.
		for _, local := range n.bySlot[slot] {
			n.answers.decideAgain(local)
		}
	}
	if len(affected) > 0 {
		n.dp.Bump(datapath.SlotAll)
		n.bumped.Add(uint64(len(affected)))
	}
}

func (n *virtualNetwork) attached(p localPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.portByID[p.id]; old != nil {
		delete(n.ports, old.number)
	} else {
		slot := datapath.SlotOf(p.id)
		n.bySlot[slot] = append(n.bySlot[slot], p.id)
	}
	n.ports[p.number], n.portByID[p.id] = &p, &p
	if p.localnet != "" {
		n.homes.attached(p.localnet, p.number)
	}
	n.dp.Bump(datapath.SlotAll)
	n.answers.decideAgain(p.id)
}

func (n *virtualNetwork) detached(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.portByID[id]
	if old == nil {
		return
	}
	delete(n.ports, old.number)
	delete(n.portByID, id)
	if old.localnet != "" {
		n.homes.detached(old.localnet)
	}
	slot := datapath.SlotOf(id)
	n.dp.Bump(slot, datapath.SlotAll) // flows to the port have no destination here any more
	if rest := slices.DeleteFunc(n.bySlot[slot], func(other string) bool { return other == id }); len(rest) > 0 {
		n.bySlot[slot] = rest
	} else {
		delete(n.bySlot, slot)
	}
	n.answers.decideAgain(id)
	for _, other := range n.bySlot[slot] {
		n.answers.decideAgain(other)
	}
}

func (n *virtualNetwork) port(number datapath.Port) *localPort {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.ports[number]
}

// destination names where a flow's frames go.
func (n *virtualNetwork) destination(to datapath.Output) string {
	switch {
	case to.Drops():
		return "dropped"
	case to.Inside:
		return "unpacked"
	case to.Tunnel != 0:
		return "to another host"
	}
	if p := n.port(to.Port); p != nil {
		return "to port " + p.id
	}
	return "to a port that is gone"
}

// networksOf returns the networks of the ports by which flows came in, in order.
func (n *virtualNetwork) networksOf(flows []seenFlow) []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := make([]string, len(flows))
	for i := range flows {
		if p := n.ports[flows[i].Key.Port]; p != nil {
			all[i] = p.network
		}
	}
	return all
}

// networks returns the networks of this host's ports.
func (n *virtualNetwork) networks() map[string]bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := map[string]bool{}
	for _, p := range n.ports {
		all[p.network] = true
	}
	return all
}

func (n *virtualNetwork) portWithID(id string) *localPort {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.portByID[id]
}

func (n *virtualNetwork) setHosts(hosts map[netip.Addr]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts = hosts
	n.tunnelIP = make(map[string]netip.Addr, len(hosts))
	for ip, host := range hosts {
		n.tunnelIP[host] = ip
	}
}

func (n *virtualNetwork) hostAt(ip netip.Addr) (id string, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	id, ok = n.hosts[ip]
	return id, ok
}

func (n *virtualNetwork) addressOf(host string) (ip netip.Addr, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	ip, ok = n.tunnelIP[host]
	return ip, ok
}

func (n *virtualNetwork) learn(s *sighting) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.enter(s, n.revision+1)
}

func (n *virtualNetwork) unlearn(s *sighting) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(s)
}

// enter enters a sighting as of a version of the store. It needs the write lock.
func (n *virtualNetwork) enter(s *sighting, version uint64) {
	if s.isMAC() {
		n.bump(n.world.LearnMAC(s.learnedMAC(), version))
	} else {
		n.bump(n.world.LearnNeighbour(s.learnedNeighbour(), version))
	}
}

// remove reverses enter.
func (n *virtualNetwork) remove(s *sighting) {
	if s.isMAC() {
		n.bump(n.world.ForgetMAC(s.learnedMAC()))
	} else {
		n.bump(n.world.ForgetNeighbour(s.learnedNeighbour()))
	}
}

// answersFor returns the address from which the sender of a packet gets errors about the way.
func (n *virtualNetwork) answersFor(port *localPort, f *packet.Frame) netip.Addr {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if router, ok := n.world.FirstHop(port.id, f.Dst, f.SrcIP); ok {
		return router
	}
	return f.DstIP
}
