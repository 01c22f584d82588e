package overlay

import (
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// sendersBench is many tenants' routers on one external network, each with three machines on two
// hosts and a floating IP. Of the machines 20 are this host's, whatever the number of routers.
type sendersBench struct {
	s       *senders
	bundles map[topology.Owner]*topology.Bundle
	addrs   map[string][]netip.Addr
}

// benchAddr returns an address of the external network: of a gateway or, from 1, a floating IP.
func benchAddr(from, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, byte(from), byte(i >> 8), byte(i)})
}

func newSendersBench(routers int) *sendersBench {
	x := &sendersBench{s: newSenders(nil), bundles: map[topology.Owner]*topology.Bundle{}, addrs: map[string][]netip.Addr{}}
	x.s.dp = bits{}
	for i := range 1000 {
		x.addrs[fmt.Sprint("h", i+1)] = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})}
	}
	x.s.setHosts(x.addrs)
	for i := range routers {
		x.put("external", i, &topology.Bundle{Ports: []topology.Port{{ID: fmt.Sprint("e", i), NetworkID: "ext"}}})
		x.put("inside", i, &topology.Bundle{Ports: []topology.Port{{ID: fmt.Sprint("i", i), NetworkID: fmt.Sprint("n", i)}}})
		x.put("router-interface", i, x.interfaceOf(i))
		x.put("router-gateway", i, x.gateway(i))
		x.put("floating-ip", i, x.floating(i))
		x.put("first", i, x.machine("first", i, 1+i))
		x.put("second", i, x.machine("second", i, max(0, i-19)))
		x.put("third", i, x.machine("third", i, 1+i))
	}
	for i := range 20 {
		x.s.attached(fmt.Sprint("second", i), datapath.Port(i+1))
	}
	return x
}

func (x *sendersBench) put(kind string, i int, after *topology.Bundle) {
	owner := topology.Owner{Kind: kind, ID: fmt.Sprint(i)}
	before := x.bundles[owner]
	if before == nil {
		before = &topology.Bundle{}
	}
	x.s.change(owner, before, after, func(p *topology.Port) bool { return p.HostID == "h0" })
	x.bundles[owner] = after
}

func (x *sendersBench) machine(name string, i, on int) *topology.Bundle {
	b := &topology.Bundle{Ports: []topology.Port{{ID: fmt.Sprint(name, i), NetworkID: fmt.Sprint("n", i), HostID: fmt.Sprint("h", on), InterfaceName: "tap"}}}
	seed(b, b.Ports[0].ID)
	return b
}

func (x *sendersBench) interfaceOf(i int) *topology.Bundle {
	return &topology.Bundle{Ports: []topology.Port{{ID: fmt.Sprint("j", i), RouterID: fmt.Sprint("r", i), PeerID: fmt.Sprint("i", i)}}}
}

func (x *sendersBench) gateway(i int) *topology.Bundle {
	q := topology.Port{ID: fmt.Sprint("q", i), RouterID: fmt.Sprint("r", i), PeerID: fmt.Sprint("e", i), PortMAC: packet.MAC{2, 0, byte(i >> 8), byte(i)},
		PortSubnet: []netip.Prefix{netip.PrefixFrom(benchAddr(0, i), 16)}}
	return &topology.Bundle{Ports: []topology.Port{q}, Rules: []topology.RuleEntry{{Rule: topology.Rule{Type: topology.NAT}}},
		Routes: []topology.Route{{NextHopPortID: q.ID, NextHopGateway: netip.MustParseAddr("192.0.255.1")}}}
}

func (x *sendersBench) floating(i int) *topology.Bundle {
	b := floatBundle(0, fmt.Sprint("q", i), fmt.Sprint("r", i), "ext", fmt.Sprint("first", i))
	b.Neighbours[0].IP = benchAddr(1, i)
	return &b
}

// extraRoute returns a router's route to a place behind a machine of another tenant's network, or
// to its gateway.
func (x *sendersBench) extraRoute(i int, hop netip.Addr) *topology.Bundle {
	return &topology.Bundle{Routers: []topology.Router{{InboundFilterID: fmt.Sprint("in r", i)}},
		Routes: []topology.Route{{NextHopPortID: fmt.Sprint("q", i), NextHopGateway: hop, DstSubnet: netip.MustParsePrefix("203.0.113.0/24")}}}
}

// BenchmarkSenders measures changes, each made and taken back. What they cost must not depend on
// the number of routers, of which each has three machines.
func BenchmarkSenders(b *testing.B) {
	none := &topology.Bundle{}
	for _, routers := range []int{100, 1000} {
		b.Run(fmt.Sprint("routers=", routers), func(b *testing.B) {
			x := newSendersBench(routers)
			step := func(name string, change func(i int)) {
				b.Run(name, func(b *testing.B) {
					for n := range b.N {
						change(n % routers)
					}
				})
			}
			alternate := func(kind string, there func(i int) *topology.Bundle, to func(i int) *topology.Bundle) func(i int) {
				return func(i int) {
					x.put(kind, i, to(i))
					x.put(kind, i, there(i))
				}
			}
			gone := func(int) *topology.Bundle { return none }
			first := func(i int) *topology.Bundle { return x.machine("first", i, 1+i) }
			step("machine moves", alternate("first", first, func(i int) *topology.Bundle { return x.machine("first", i, 1+(i+7)%1000) }))
			step("port without change", alternate("first", first, first))
			step("floating IP", alternate("floating-ip", x.floating, gone))
			step("gateway", alternate("router-gateway", x.gateway, gone))
			step("interface", alternate("router-interface", x.interfaceOf, gone))
			step("extra route", alternate("router", gone, func(i int) *topology.Bundle { return x.extraRoute(i, benchAddr(0, (i+1)%routers)) }))
			step("LAN of a tenant", func(i int) {
				lan := topology.Port{ID: fmt.Sprint("l", i), NetworkID: fmt.Sprint("n", i), PhysicalNetwork: "lan"}
				x.put("network", i, &topology.Bundle{Ports: []topology.Port{lan}})
				x.put("network", i, none)
			})
			step("host's address", func(i int) {
				host := fmt.Sprint("h", 1+i)
				was := x.addrs[host]
				x.addrs[host] = []netip.Addr{netip.AddrFrom4([4]byte{198, 52, byte(i >> 8), byte(i)})}
				x.s.setHosts(x.addrs)
				x.addrs[host] = was
				x.s.setHosts(x.addrs)
			})
			step("host's LANs", func(i int) {
				x.s.carry(fmt.Sprint("h", 1+i), []string{"lan"})
				x.s.carry(fmt.Sprint("h", 1+i), nil)
			})
		})
	}
}
