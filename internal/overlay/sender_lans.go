package overlay

import "heddle/internal/topology"

// senderLANs holds which hosts carry each physical network, and which networks are on it: such a
// host has the network's localnet port, and so a port in the network.
type senderLANs struct {
	carriers map[string]map[string]bool // host → physical networks
	networks map[string]map[string]int  // physical network → network → localnet ports
}

func newSenderLANs() senderLANs {
	return senderLANs{carriers: map[string]map[string]bool{}, networks: map[string]map[string]int{}}
}

// carry replaces the physical networks that a host carries, and returns the networks that it has
// more or fewer ports in.
func (s *senders) carry(host string, physical []string) (networks []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, now := s.lans.carriers[host], map[string]bool{}
	for _, name := range physical {
		now[name] = true
	}
	shift := func(name string, by int) {
		for network, n := range s.lans.networks[name] {
			s.count(network, host, by*n)
			s.tidy(network)
			networks = append(networks, network)
		}
	}
	for name := range now {
		if !before[name] {
			shift(name, 1)
		}
	}
	for name := range before {
		if !now[name] {
			shift(name, -1)
		}
	}
	if s.lans.carriers[host] = now; len(now) == 0 {
		delete(s.lans.carriers, host)
	}
	s.settle()
	return networks
}

// countLocalnet notes that there is one more or fewer of a localnet port.
func (s *senders) countLocalnet(p *topology.Port, by int) {
	all := s.lans.networks[p.PhysicalNetwork]
	if all == nil {
		all = map[string]int{}
		s.lans.networks[p.PhysicalNetwork] = all
	}
	if all[p.NetworkID] += by; all[p.NetworkID] == 0 {
		delete(all, p.NetworkID)
	}
	if len(all) == 0 {
		delete(s.lans.networks, p.PhysicalNetwork)
	}
	for host, physical := range s.lans.carriers {
		if physical[p.PhysicalNetwork] {
			s.count(p.NetworkID, host, by)
		}
	}
}

// countPort notes that hosts have one more or fewer of a port.
func (s *senders) countPort(p *topology.Port, by int) {
	switch {
	case p.PhysicalNetwork != "":
		s.countLocalnet(p, by)
	default:
		for _, host := range p.HostIDs() {
			s.count(deviceOf(p), host, by)
		}
	}
}
