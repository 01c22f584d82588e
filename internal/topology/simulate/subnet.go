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
	hosts   dhcpHosts
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
		if h := &before[i]; h.IPAddress.Is6() {
			s := w.subnets6[h.SubnetID]
			s.hosts.remove(h.MAC, owner, i)
			release(w.subnets6, s)
		} else {
			s := w.subnets[h.SubnetID]
			s.hosts.remove(h.MAC, owner, i)
			release(w.subnets, s)
		}
	}
	for i := range after {
		if h := &after[i]; h.IPAddress.Is6() {
			hold(w.subnets6, h.SubnetID).hosts.add(dhcpHost{owner, i, h})
		} else {
			hold(w.subnets, h.SubnetID).hosts.add(dhcpHost{owner, i, h})
		}
	}
}

// dhcpHosts are the host entries of a subnet by MAC address.
type dhcpHosts map[packet.MAC][]dhcpHost

func (hosts *dhcpHosts) add(h dhcpHost) {
	if *hosts == nil {
		*hosts = dhcpHosts{}
	}
	(*hosts)[h.MAC] = append((*hosts)[h.MAC], h)
}

// remove removes the entry of an owner with an index.
func (hosts dhcpHosts) remove(mac packet.MAC, owner topology.Owner, index int) {
	rest := slices.DeleteFunc(hosts[mac], func(h dhcpHost) bool { return h.owner == owner && h.index == index })
	if hosts[mac] = rest; len(rest) == 0 {
		delete(hosts, mac)
	}
}
