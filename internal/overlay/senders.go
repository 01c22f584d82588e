package overlay

import (
	"net/netip"
	"slices"
	"sync"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
)

// senders keeps the set of hosts that may send to each port of this host through tunnels: those
// with a port in its network. A host that enters a network costs one bit for each port of it here.
type senders struct {
	dp interface {
		AllowSender(port datapath.Port, remote netip.Addr, allowed bool)
		SetSenders(port datapath.Port, remotes map[netip.Addr]bool)
	}

	mu    sync.Mutex
	nets  map[string]*senderNet
	hosts map[string]*senderHost
	ports map[string]string        // local port → network
	live  map[string]datapath.Port // local ports that are attached
}

// senderNet is a network: how many ports each host has in it, and the ports that this host has.
type senderNet struct {
	hosts map[string]int
	local map[string]bool
}

type senderHost struct {
	addrs []netip.Addr
	nets  map[string]bool
}

func newSenders(dp *datapath.Datapath) *senders {
	return &senders{dp: dp, nets: map[string]*senderNet{}, hosts: map[string]*senderHost{}, ports: map[string]string{}, live: map[string]datapath.Port{}}
}

// change replaces the ports of one owner. own are those that are bound to this host.
func (s *senders) change(before, after []topology.Port, own func(*topology.Port) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Added before removed, so that no host is removed in between.
	for i := range after {
		if p := &after[i]; p.Exterior() {
			s.count(p.NetworkID, p.HostID, 1)
		}
	}
	was, is := portsByID(before, own), portsByID(after, own)
	for i := range before {
		if p := &before[i]; p.Exterior() {
			s.count(p.NetworkID, p.HostID, -1)
		}
	}
	for id := range was {
		if is[id] == nil {
			s.place(id, "")
		}
	}
	for id, p := range is {
		s.place(id, p.NetworkID)
	}
	for i := range before {
		s.tidy(before[i].NetworkID)
	}
}

// count notes that a host has more or fewer ports in a network.
func (s *senders) count(network, host string, by int) {
	n, h := s.net(network), s.host(host)
	was := n.hosts[host] > 0
	n.hosts[host] += by
	if n.hosts[host] <= 0 {
		delete(n.hosts, host)
		delete(h.nets, network)
		if len(h.nets) == 0 && len(h.addrs) == 0 {
			delete(s.hosts, host)
		}
	} else {
		h.nets[network] = true
	}
	if is := n.hosts[host] > 0; is != was {
		for _, a := range h.addrs {
			s.allow(n, a, is)
		}
	}
}

// has reports whether a host has ports in a network.
func (s *senders) has(network, host string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nets[network]
	return n != nil && n.hosts[host] > 0
}

// allow lets an address send to the ports of this host in a network, or no longer.
func (s *senders) allow(n *senderNet, a netip.Addr, allowed bool) {
	for id := range n.local {
		if p, there := s.live[id]; there {
			s.dp.AllowSender(p, a, allowed)
		}
	}
}

// place notes in which network a port of this host is, "" for none.
func (s *senders) place(id, network string) {
	was := s.ports[id]
	if was == network {
		return
	}
	if was != "" {
		delete(s.net(was).local, id)
		delete(s.ports, id)
	}
	if network != "" {
		s.net(network).local[id] = true
		s.ports[id] = network
	}
	s.renew(id)
}

// renew sets all who may send to a port.
func (s *senders) renew(id string) {
	p, there := s.live[id]
	if !there {
		return
	}
	remotes := map[netip.Addr]bool{}
	if network := s.ports[id]; network != "" {
		for host := range s.net(network).hosts {
			for _, a := range s.host(host).addrs {
				remotes[a] = true
			}
		}
	}
	s.dp.SetSenders(p, remotes)
}

// attached sets the number of a port of this host in the datapath; gone removes it.
func (s *senders) attached(id string, number datapath.Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[id] = number
	s.renew(id)
}

func (s *senders) gone(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, id)
}

// setHosts replaces the other hosts' addresses, which are peers of the datapath.
func (s *senders) setHosts(addrs map[string][]netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.hosts {
		s.readdress(h, addrs[id])
		if len(h.nets) == 0 && len(h.addrs) == 0 {
			delete(s.hosts, id)
		}
	}
	for id, now := range addrs {
		if s.hosts[id] == nil {
			s.host(id).addrs = now
		}
	}
}

func (s *senders) readdress(h *senderHost, now []netip.Addr) {
	before := h.addrs
	if slices.Equal(before, now) {
		return
	}
	h.addrs = now
	for network := range h.nets {
		n := s.net(network)
		for _, a := range before {
			if !slices.Contains(now, a) {
				s.allow(n, a, false)
			}
		}
		for _, a := range now {
			s.allow(n, a, true)
		}
	}
}

// entered notes that a host's addresses have become peers of the datapath again.
func (s *senders) entered(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hosts[host]; h != nil {
		for network := range h.nets {
			for _, a := range h.addrs {
				s.allow(s.net(network), a, true)
			}
		}
	}
}

func (s *senders) net(id string) *senderNet {
	n := s.nets[id]
	if n == nil {
		n = &senderNet{hosts: map[string]int{}, local: map[string]bool{}}
		s.nets[id] = n
	}
	return n
}

func (s *senders) host(id string) *senderHost {
	h := s.hosts[id]
	if h == nil {
		h = &senderHost{nets: map[string]bool{}}
		s.hosts[id] = h
	}
	return h
}

// tidy removes a network without ports.
func (s *senders) tidy(id string) {
	if n := s.nets[id]; n != nil && len(n.hosts) == 0 && len(n.local) == 0 {
		delete(s.nets, id)
	}
}
