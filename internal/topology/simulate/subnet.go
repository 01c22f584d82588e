package simulate

import (
	"cmp"
	"reflect"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// subnet is an IPv4 subnet of a network, as the DHCP responder sees it.
type subnet struct {
	object
	claims  claims[topology.Dhcp]
	def     *topology.Dhcp // nil while it is only referred to
	network *network
	hosts   map[packet.MAC][]dhcpHost
}

// dhcpHost is a host entry. index orders those of one owner, as the port's fixed IPs.
type dhcpHost struct {
	owner topology.Owner
	index int
	*topology.DhcpHost
}

// linkSubnet follows a definition. No cacheable decision rests on a subnet.
func (w *World) linkSubnet(s *subnet) {
	def := s.claims.top()
	if def == s.def {
		return
	}
	old := s.network
	if old != nil {
		old.subnets = slices.DeleteFunc(old.subnets, func(x *subnet) bool { return x == s })
	}
	s.def, s.network = def, nil
	if def != nil {
		s.network = hold(w.networks, def.NetworkID)
		i, _ := slices.BinarySearchFunc(s.network.subnets, s.id, compareSubnet)
		s.network.subnets = slices.Insert(s.network.subnets, i, s)
	}
	if old != nil {
		release(w.networks, old)
	}
}

func compareSubnet(s *subnet, id string) int { return cmp.Compare(s.id, id) }

func (w *World) setDhcpHosts(owner topology.Owner, before, after []topology.DhcpHost) {
	if len(before) == len(after) && reflect.DeepEqual(before, after) {
		return
	}
	for i := range before {
		s := w.subnets[before[i].SubnetID]
		mac := before[i].MAC
		s.hosts[mac] = slices.DeleteFunc(s.hosts[mac], func(h dhcpHost) bool { return h.owner == owner && h.index == i })
		if len(s.hosts[mac]) == 0 {
			delete(s.hosts, mac)
		}
		release(w.subnets, s)
	}
	for i := range after {
		s := hold(w.subnets, after[i].SubnetID)
		if s.hosts == nil {
			s.hosts = map[packet.MAC][]dhcpHost{}
		}
		s.hosts[after[i].MAC] = append(s.hosts[after[i].MAC], dhcpHost{owner, i, &after[i]})
	}
}
