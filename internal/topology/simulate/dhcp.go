package simulate

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// responderMAC is the source address of the virtual network's DHCP answers (midonet-simulation §10).
var responderMAC = packet.MAC{0x02, 0xa8, 0x9c, 0xde, 0x39, 0x27}

// leaseSeconds is the lease that the responder gives. It remembers none: an address is the port's as long as the port
// has it.
const leaseSeconds = 86400

// dhcp answers a machine's DHCP request in place of a server (midonet-simulation §10), before any filter sees it, and
// says whether it is done with the packet. A machine that no enabled subnet has an entry for is left to the simulation:
// its request may reach a server of the tenant's own.
func (s *Simulator) dhcp(p *port) (done bool) {
	f := &s.frame
	if f.EtherType != packet.TypeIPv4 || f.Proto != packet.ProtoUDP || !f.HasTp ||
		f.TpSrc != packet.DHCPClientPort || f.TpDst != packet.DHCPServerPort {
		return false
	}
	s.unkeyed = true // what becomes of it rests on the subnets
	n := p.network
	if f.VLANs > 0 || f.Frag != packet.FragNone || !p.def.AdminStateUp || n.def == nil || !n.def.AdminStateUp {
		return false
	}
	entry, net := n.dhcpHost(p, f.Src)
	if net == nil {
		return false
	}
	const udpHeader = 8
	start, end := f.L4+udpHeader, min(f.End, len(s.in.Frame))
	if start > end {
		return false
	}
	request, err := packet.ParseDHCP(s.in.Frame[start:end])
	if err != nil || request.Op != packet.BootRequest {
		return false
	}
	s.respond(p, request, entry, net)
	return true
}

// dhcpHost finds the host entry for a source MAC among the enabled subnets of the network: that of the ingress port
// rather than of another, and of several its first fixed IP.
func (n *network) dhcpHost(p *port, mac packet.MAC) (best *topology.DhcpHost, of *topology.Dhcp) {
	var chosen dhcpHost
	for _, s := range n.subnets {
		if !s.def.Enabled {
			continue
		}
		for _, h := range s.hosts[mac] {
			if h.IPAddress.Is4() && (of == nil || h.before(chosen, p)) {
				chosen, of = h, s.def
			}
		}
	}
	return chosen.DhcpHost, of
}

// before says whether h serves port p rather than o does.
func (h dhcpHost) before(o dhcpHost, p *port) bool {
	if own := h.PortID == p.id; own != (o.PortID == p.id) {
		return own
	}
	if c := compareOwners(h.owner, o.owner); c != 0 {
		return c < 0
	}
	return h.index < o.index
}

func (s *Simulator) respond(p *port, request *packet.DHCP, entry *topology.DhcpHost, net *topology.Dhcp) {
	server := serverAddress(net, entry.IPAddress)
	reply := &packet.DHCP{
		Op: packet.BootReply, XID: request.XID, Flags: request.Flags, GIAddr: request.GIAddr, CHAddr: request.CHAddr,
		YIAddr: entry.IPAddress, SIAddr: server,
	}
	var typ uint8
	switch request.Type() {
	case packet.DHCPDiscover:
		typ = packet.DHCPOffer
	case packet.DHCPRequest:
		typ = packet.DHCPAck
		if wanted := requestedAddr(request); !wanted.IsUnspecified() && wanted != entry.IPAddress {
			s.explainDHCP(net.ID, "refuses %v to %v, whose address is %v", wanted, entry.MAC, entry.IPAddress)
			s.nak(p, reply, server)
			return
		}
		reply.CIAddr = request.CIAddr
	case packet.DHCPInform:
		typ = packet.DHCPAck
		reply.YIAddr, reply.CIAddr = netip.IPv4Unspecified(), request.CIAddr
	default:
		reason := "DHCP message of type " + packet.DHCPTypeName(request.Type()) + " needs no answer"
		s.warn(reason + " on port " + p.id)
		s.drop(net.ID, reason)
		return
	}
	reply.Set(packet.OptMessageType, []byte{typ})
	reply.Set(packet.OptServerID, server.AsSlice())
	if request.Type() != packet.DHCPInform {
		reply.Set(packet.OptLeaseTime, binary.BigEndian.AppendUint32(nil, leaseSeconds))
	}
	s.subnetOptions(reply, net)
	if entry.Name != "" {
		reply.Set(packet.OptHostName, []byte(entry.Name))
	}
	s.extraOptions(p, reply, entry.ExtraDhcpOpts)
	s.classlessRoutes(p, request, reply, net)
	s.explainDHCP(net.ID, "answers the %s of %v with %s %v", packet.DHCPTypeName(request.Type()), entry.MAC, packet.DHCPTypeName(typ), reply.YIAddr)
	s.sendDHCP(p, reply, server)
}

// serverAddress is the address by which the responder names itself to a client: the subnet's server, or without one, as on
// a subnet without gateway, the first host address of the range other than the client's. Clients such as systemd-networkd
// ignore a server called 0.0.0.0. The address is not reserved: it stands in DHCP messages alone, so a machine may have it
// too, and a renewal sent to it is answered on its way like any other.
func serverAddress(net *topology.Dhcp, client netip.Addr) netip.Addr {
	if net.ServerAddress != nil && net.ServerAddress.Is4() {
		return *net.ServerAddress
	}
	r := net.SubnetAddress.Masked()
	if !r.IsValid() || !r.Addr().Is4() {
		return netip.IPv4Unspecified()
	}
	first := r.Addr()
	if r.Bits() < 31 { // else there is no network address
		first = first.Next()
	}
	if second := first.Next(); first == client && r.Contains(second) {
		return second
	}
	return first
}

// requestedAddr is the address that a client asks to have or to keep.
func requestedAddr(request *packet.DHCP) netip.Addr {
	if a, ok := request.Addr(packet.OptRequestedIP); ok {
		return a
	}
	return request.CIAddr
}

func (s *Simulator) nak(p *port, reply *packet.DHCP, server netip.Addr) {
	reply.YIAddr, reply.SIAddr = netip.IPv4Unspecified(), netip.IPv4Unspecified()
	reply.Set(packet.OptMessageType, []byte{packet.DHCPNak})
	reply.Set(packet.OptServerID, server.AsSlice())
	s.sendDHCP(p, reply, server)
}

// subnetOptions adds what the subnet tells all its hosts.
func (s *Simulator) subnetOptions(reply *packet.DHCP, net *topology.Dhcp) {
	if p := net.SubnetAddress; p.Addr().Is4() {
		mask := packet.PrefixMask(p.Bits())
		base := p.Masked().Addr().As4()
		broadcast := binary.BigEndian.Uint32(base[:]) | ^mask
		reply.Set(packet.OptSubnetMask, binary.BigEndian.AppendUint32(nil, mask))
		reply.Set(packet.OptBroadcast, binary.BigEndian.AppendUint32(nil, broadcast))
	}
	reply.Set(packet.OptInterfaceMTU, binary.BigEndian.AppendUint16(nil, uint16(s.world.mtu(net))))
	gateway := net.DefaultGateway
	if gateway != nil && !gateway.Is4() {
		gateway = nil
	}
	if gateway != nil {
		reply.Set(packet.OptRouter, gateway.AsSlice())
	}
	var servers []byte
	for _, a := range net.DNSServerAddress {
		if a.Is4() {
			servers = append(servers, a.AsSlice()...)
		}
	}
	if len(servers) > 0 {
		reply.Set(packet.OptDNSServer, servers)
	}
}

// classlessRoutes adds the routes of the subnet, unless the host has its own, as far as they fit into the message beside
// all else: the last of the list are left out, with a warning, and never the default route, as clients that know option 121
// ignore option 3 (RFC 3442).
func (s *Simulator) classlessRoutes(p *port, request, reply *packet.DHCP, net *topology.Dhcp) {
	if _, own := reply.Option(packet.OptClasslessRoutes); own {
		return
	}
	var all []topology.Opt121Route
	for _, r := range net.Opt121Routes {
		if r.DstSubnet.Addr().Is4() && r.Gateway.Is4() {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return
	}
	var last []byte
	if gateway := net.DefaultGateway; gateway != nil && gateway.Is4() {
		last = packet.AppendClasslessRoute(nil, netip.PrefixFrom(netip.IPv4Unspecified(), 0), *gateway)
	}
	most := s.mostMessage(request, net) - reply.OptionsEnd()
	var routes []byte
	for i, r := range all {
		longer := packet.AppendClasslessRoute(routes, r.DstSubnet, r.Gateway)
		if packet.OptionLen(len(longer)+len(last)) > most {
			s.warn(fmt.Sprintf("port %s: %d of %d routes of subnet %s do not fit into a DHCP message of its machine and are left out, from %s on", p.id, len(all)-i, len(all), net.ID, r.DstSubnet))
			break
		}
		routes = longer
	}
	if len(routes) > 0 {
		reply.Set(packet.OptClasslessRoutes, append(routes, last...))
	}
}

// leastMessage is the size of a message, with its IP and UDP headers, that every client takes (RFC 2131 §2).
const leastMessage = 576

// mostMessage is how long a message to a client may be: what the client says that it takes, but no more than the link does.
func (s *Simulator) mostMessage(request *packet.DHCP, net *topology.Dhcp) int {
	const headers = 20 + 8
	most := leastMessage
	if v, ok := request.Option(packet.OptMaxMessageSize); ok && len(v) == 2 {
		most = max(most, min(int(binary.BigEndian.Uint16(v)), s.world.mtu(net)))
	}
	return most - headers
}

// mtu is what a subnet's hosts are told: its own or the configured MTU, but no more than the underlay carries.
func (w *World) mtu(net *topology.Dhcp) int {
	mtu := net.InterfaceMTU
	if mtu <= 0 {
		mtu = w.defaultMTU
	}
	if w.underlayMTU > 0 {
		mtu = min(mtu, w.underlayMTU)
	}
	return min(mtu, 0xffff)
}

// extraOptions adds the options of one host, which override all others. What cannot be read is left out with a warning.
func (s *Simulator) extraOptions(p *port, reply *packet.DHCP, extra []topology.DhcpOpt) {
	for _, x := range extra {
		if x.Name == "server-ip-address" { // the one name that means a field of the header, not an option
			if a, err := netip.ParseAddr(x.Value); err == nil && a.Is4() {
				reply.SIAddr = a
				continue
			}
		}
		o, err := packet.NewDHCPOption(x.Name, x.Value)
		if err != nil {
			s.warn("port " + p.id + ": left out of the DHCP answer: " + err.Error())
			continue
		}
		reply.Set(o.Code, o.Value)
	}
}

func (s *Simulator) sendDHCP(p *port, reply *packet.DHCP, server netip.Addr) {
	everyone := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	message := packet.UDP{SrcPort: packet.DHCPServerPort, DstPort: packet.DHCPClientPort}.Append(nil, server, everyone, reply.Append(nil))
	b := packet.Ethernet{Dst: s.frame.Src, Src: responderMAC, Type: packet.TypeIPv4}.Append(make([]byte, 0, 34+len(message)))
	b = packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: server, Dst: everyone}.Append(b, len(message))
	s.dec.Emit = append(s.dec.Emit, flow.Emission{PortID: p.id, Frame: append(b, message...)})
}

func (s *Simulator) explainDHCP(device, format string, args ...any) {
	if s.in.Explain {
		s.say(device, "DHCP: "+fmt.Sprintf(format, args...))
	}
}

// warn notes a fault of the configuration, for the log.
func (s *Simulator) warn(text string) { s.dec.Warnings = append(s.dec.Warnings, text) }
