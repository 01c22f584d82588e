package plug

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"

	"heddle/internal/cloud"
	"heddle/internal/hostnet"
)

// leastIPv6MTU is the least MTU of a link with IPv6 (RFC 8200 §5), bytes.
const leastIPv6MTU = 1280

type fixedIP struct {
	SubnetID  string     `json:"subnet_id"`
	IPAddress netip.Addr `json:"ip_address"`
}

type network struct {
	MTU int `json:"mtu"`
}

type subnet struct {
	ID         string       `json:"id"`
	CIDR       netip.Prefix `json:"cidr"`
	GatewayIP  *netip.Addr  `json:"gateway_ip"` // nil: none
	HostRoutes []hostRoute  `json:"host_routes"`
	DNS        []string     `json:"dns_nameservers"`
}

type hostRoute struct {
	Destination netip.Prefix `json:"destination"`
	NextHop     netip.Addr   `json:"nexthop"`
}

// wiring holds the settings of a port's interface.
type wiring struct {
	mac         hostnet.MAC
	mtu         int
	addresses   []netip.Prefix
	routes      []hostnet.Route // without Link
	nameservers []string
}

// wiring reads what the interface of a port needs from its network and subnets.
func (p *Plugger) wiring(ctx context.Context, port *port) (*wiring, error) {
	var n network
	if err := p.API.Get(ctx, cloud.Network, port.NetworkID, &n, "mtu"); err != nil {
		return nil, err
	}
	var subnets []subnet
	if err := p.API.List(ctx, cloud.Subnet, url.Values{"network_id": {port.NetworkID}}, &subnets); err != nil {
		return nil, err
	}
	return newWiring(port, n, subnets)
}

// newWiring computes the settings of a port's interface.
func newWiring(port *port, n network, subnets []subnet) (*wiring, error) {
	mac, err := net.ParseMAC(port.MACAddress)
	if err != nil || len(mac) != len(hostnet.MAC{}) {
		return nil, fmt.Errorf("port %s has the MAC address %q, which is none of Ethernet", port, port.MACAddress)
	}
	w := &wiring{mac: hostnet.MAC(mac), mtu: n.MTU}
	for _, f := range port.FixedIPs {
		i := slices.IndexFunc(subnets, func(s subnet) bool { return s.ID == f.SubnetID })
		if i < 0 {
			return nil, fmt.Errorf("port %s has an address of subnet %s, which its network does not have", port, f.SubnetID)
		}
		s := subnets[i]
		w.addresses = append(w.addresses, netip.PrefixFrom(f.IPAddress, s.CIDR.Bits()))
		for _, address := range s.DNS {
			if !slices.Contains(w.nameservers, address) {
				w.nameservers = append(w.nameservers, address)
			}
		}
		if f.IPAddress.Is6() && n.MTU < leastIPv6MTU {
			return nil, fmt.Errorf("port %s: its network's MTU is %d, and an interface with IPv6 needs %d: `heddle net set %s --mtu %[3]d`", port, n.MTU, leastIPv6MTU, port.NetworkID)
		}
	}
	for _, f := range port.FixedIPs {
		i := slices.IndexFunc(subnets, func(s subnet) bool { return s.ID == f.SubnetID })
		w.addRoutes(subnets[i], f.IPAddress)
	}
	return w, nil
}

// addRoutes adds the routes of a subnet. As for DHCP clients (RFC 3442), a host route to everything
// takes the place of the gateway; the first route to a destination stands.
func (w *wiring) addRoutes(s subnet, own netip.Addr) {
	for _, r := range s.HostRoutes {
		w.addRoute(r.Destination, r.NextHop, own)
	}
	if s.GatewayIP != nil && s.GatewayIP.IsValid() {
		w.addRoute(netip.PrefixFrom(unspecified(*s.GatewayIP), 0), *s.GatewayIP, own)
	}
}

// addRoute adds a route, unless it would lead to the port itself.
func (w *wiring) addRoute(dst netip.Prefix, by, own netip.Addr) {
	if by == own || slices.ContainsFunc(w.routes, func(r hostnet.Route) bool { return r.Dst == dst.Masked() }) {
		return
	}
	r := hostnet.Route{Dst: dst.Masked()}
	if !by.IsUnspecified() {
		r.Gateway = by
		r.OnLink = !by.IsLinkLocalUnicast() && !slices.ContainsFunc(w.addresses, func(a netip.Prefix) bool { return a.Contains(by) })
	}
	w.routes = append(w.routes, r)
}

func unspecified(like netip.Addr) netip.Addr {
	if like.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
