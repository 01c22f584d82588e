package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// headers holds the headers of a packet that a question is about.
type headers struct {
	srcMAC, dstMAC   packet.MAC
	src, dst         netip.Addr
	service          service
	srcPort, dstPort uint16
	reply            bool
}

// frame returns the first packet of a connection, or of the replies to it.
func (h *headers) frame() []byte {
	var payload []byte
	switch h.service.proto {
	case packet.ProtoTCP:
		flags := packet.TCPSyn
		if h.reply {
			flags |= packet.TCPAck
		}
		payload = packet.TCP{SrcPort: h.srcPort, DstPort: h.dstPort, Flags: flags, Window: 64240}.Append(nil, h.src, h.dst, nil)
	case packet.ProtoUDP:
		payload = packet.UDP{SrcPort: h.srcPort, DstPort: h.dstPort}.Append(nil, h.src, h.dst, nil)
	case packet.ProtoICMP:
		kind := uint8(8)
		if h.reply {
			kind = 0
		}
		payload = packet.ICMP{Type: kind, Rest: packet.EchoRest(h.srcPort, 1)}.Append(nil, nil)
	case packet.ProtoICMPv6:
		kind := uint8(128)
		if h.reply {
			kind = 129
		}
		payload = packet.ICMP{Type: kind, Rest: packet.EchoRest(h.srcPort, 1)}.AppendV6(nil, h.src, h.dst, nil)
	default:
		payload = make([]byte, 8)
	}
	if h.src.Is4() {
		b := packet.Ethernet{Src: h.srcMAC, Dst: h.dstMAC, Type: packet.TypeIPv4}.Append(nil)
		b = packet.IPv4{TTL: 64, Proto: h.service.proto, DontFragment: true, Src: h.src, Dst: h.dst}.Append(b, len(payload))
		return append(b, payload...)
	}
	b := packet.Ethernet{Src: h.srcMAC, Dst: h.dstMAC, Type: packet.TypeIPv6}.Append(nil)
	b = packet.IPv6{HopLimit: 64, Next: h.service.proto, Src: h.src, Dst: h.dst}.Append(b, len(payload))
	return append(b, payload...)
}

// nextHop returns the address to which a machine at a port sends packets to dst, as DHCP or router
// advertisements tell it: dst itself on its own subnet, else by the longest of the subnet's routes,
// or its gateway. The second result says why there is none.
func nextHop(snap *records.Snap, p *neutron.Port, source, dst netip.Addr) (hop netip.Addr, why string) {
	if hop, ok := endOfPort(snap, p).NextHop(source, dst); ok {
		return hop, ""
	}
	for _, f := range p.FixedIPs {
		if s, ok := schema.Subnets.Peek(snap, f.SubnetID); ok && f.IPAddress == source {
			return netip.Addr{}, fmt.Sprintf("the machine has no route to %s: subnet %s has neither a gateway nor a host route for it", dst, s.CIDR)
		}
	}
	return netip.Addr{}, fmt.Sprintf("port %s has no subnet with %s", p.ID, source)
}

// nextHop is the function of that name, with the route that a remedy has given a subnet.
func (x *inquiry) nextHop(p *neutron.Port, source, dst netip.Addr) (hop netip.Addr, why string) {
	hop, why = nextHop(x.snap, p, source, dst)
	onSubnet := func(f neutron.FixedIP) bool { return f.SubnetID == x.gateway.subnet && f.IPAddress == source }
	if why != "" && x.gateway != nil && slices.ContainsFunc(p.FixedIPs, onSubnet) {
		return x.gateway.address, ""
	}
	return hop, why
}

// LANPort returns the port by which a network's LAN comes in, "" if it is on no physical network.
func LANPort(r records.Reader, network string) string {
	b, ok := schema.Bundles.Peek(r, schema.BundleID(topology.Owner{Kind: "network", ID: network}))
	if !ok {
		return ""
	}
	for _, p := range b.Bundle.Ports {
		if p.PhysicalNetwork != "" {
			return p.ID
		}
	}
	return ""
}
