package simulate

import (
	"fmt"
	"net/netip"

	tr "heddle/internal/control/translate"
	"heddle/internal/neutron"
)

// translated is the topology of example made by the translation of Neutron's objects.
func translated() *lab {
	l := newLab()
	var nets []*neutron.Network
	var subnets []*neutron.Subnet
	for i, cidr := range []string{"10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24", "172.16.0.0/24"} {
		n := &neutron.Network{Standard: neutron.Standard{ID: fmt.Sprint("net", i+1)}, AdminStateUp: true}
		gateway := prefix(cidr).Addr().Next()
		s := &neutron.Subnet{Standard: neutron.Standard{ID: fmt.Sprint("sub", i+1)}, NetworkID: n.ID, IPVersion: 4, CIDR: prefix(cidr), GatewayIP: &gateway}
		nets, subnets = append(nets, n), append(subnets, s)
		l.Apply(owner("network", n.ID), ptr(tr.Network(n)))
		l.Apply(owner("subnet", s.ID), ptr(tr.Subnet(s, n, nil, "")))
	}
	port := func(id, class string, net int, a netip.Addr) *neutron.Port {
		p := &neutron.Port{Standard: neutron.Standard{ID: id}, NetworkID: nets[net-1].ID, AdminStateUp: true, DeviceOwner: class, TunnelKey: 7,
			FixedIPs: []neutron.FixedIP{{SubnetID: subnets[net-1].ID, IPAddress: a}}}
		return p
	}
	for i, id := range []string{"p-x", "p-y", "p-z", "p-up"} {
		p := port(id, "compute:nova", i+1, []netip.Addr{ipX, ipY, ipZ, ipUp}[i])
		p.MACAddress, p.BoundHostID, p.InterfaceName = mac(i+1), "h1", "tap"+id
		l.Apply(owner("port", id), ptr(tr.Port(p, nets[i], nil)))
	}
	r := &neutron.Router{Standard: neutron.Standard{ID: "r"}, AdminStateUp: true, Gateways: []neutron.RouterGateway{{NetworkID: "net4", PortID: "gw", EnableSNAT: true}}}
	var links []tr.RouterLink
	for i, a := range []netip.Addr{r1.at.Addr(), r2.at.Addr(), r3.at.Addr(), ipGW} {
		id, class, kind := fmt.Sprint("rif", i+1), "network:router_interface", "router-interface"
		if a == ipGW {
			id, class, kind = "gw", "network:router_gateway", "router-gateway"
		}
		p := port(id, class, i+1, a)
		p.MACAddress = routerMAC(i + 1)
		link := tr.RouterLink{Port: p, Network: nets[i], Subnets: subnets[i : i+1]}
		links = append(links, link)
		l.Apply(owner("port", id), ptr(tr.Port(p, nets[i], nil)))
		if a == ipGW {
			l.Apply(owner(kind, id), ptr(tr.RouterGateway(r, link, true)))
		} else {
			l.Apply(owner(kind, id), ptr(tr.RouterInterface(r, link)))
		}
	}
	l.Apply(owner("router", "r"), ptr(tr.Router(r, links)))
	float := func(id string, a netip.Addr, by tr.RouterLink) {
		f := &neutron.FloatingIP{Standard: neutron.Standard{ID: id}, FloatingIPAddress: a, PortID: "p-x", FixedIPAddress: ipX, RouterID: "r"}
		l.Apply(owner("floating-ip", id), ptr(tr.FloatingIP(f, r, by)))
	}
	float("A", fipA, links[3])
	float("B", fipB, links[2])
	return l
}
