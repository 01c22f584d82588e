package simulate

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// responderMAC is the source of the virtual network's DHCP answers (midonet-simulation §10).
var responderMAC = packet.MAC{0x02, 0xa8, 0x9c, 0xde, 0x39, 0x27}

// leaseSeconds is the length of leases. The responder keeps none: a port's address is its own.
const leaseSeconds = 86400

// dhcp answers a machine's DHCP request (midonet-simulation §10) before any filter, and reports
// whether it is done with the packet. A request without an entry in an enabled subnet may be for a
// server of the tenant's own.
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
	r := responder{world: s.world, dec: &s.dec, port: p, client: f.Src, request: request, net: net, server: serverAddress(net, entry.IPAddress)}
	r.respond(entry)
	return true
}

// dhcpHost finds the host entry for a source MAC among the enabled subnets: that of the ingress
// port before others', and of several its first fixed IP.
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

func (h dhcpHost) before(o dhcpHost, p *port) bool {
	if own := h.PortID == p.id; own != (o.PortID == p.id) {
		return own
	}
	if c := compareOwners(h.owner, o.owner); c != 0 {
		return c < 0
	}
	return h.index < o.index
}

// responder answers one DHCP request.
type responder struct {
	world   *World
	dec     *record
	port    *port      // at which the request came in
	client  packet.MAC // that sent it
	request *packet.DHCP
	reply   packet.DHCP
	net     *topology.Dhcp
	server  netip.Addr
}

func (r *responder) respond(entry *topology.DhcpHost) {
	kind := packet.DHCPTypeName(r.request.Type())
	r.reply = packet.DHCP{
		Op: packet.BootReply, XID: r.request.XID, Flags: r.request.Flags, GIAddr: r.request.GIAddr, CHAddr: r.request.CHAddr,
		YIAddr: entry.IPAddress, SIAddr: r.server,
	}
	var typ uint8
	switch r.request.Type() {
	case packet.DHCPDiscover:
		typ = packet.DHCPOffer
	case packet.DHCPRequest:
		typ = packet.DHCPAck
		if wanted := requestedAddr(r.request); !wanted.IsUnspecified() && wanted != entry.IPAddress {
			r.explain("refuses %v to %v, whose address is %v", wanted, entry.MAC, entry.IPAddress)
			r.reply.YIAddr, r.reply.SIAddr = netip.IPv4Unspecified(), netip.IPv4Unspecified()
			r.identify(packet.DHCPNak)
			r.send()
			return
		}
		r.reply.CIAddr = r.request.CIAddr
	case packet.DHCPInform:
		typ = packet.DHCPAck
		r.reply.YIAddr, r.reply.CIAddr = netip.IPv4Unspecified(), r.request.CIAddr
	default:
		reason := "DHCP message of type " + kind + " needs no answer"
		r.dec.warn(reason + " on port " + r.port.id)
		r.dec.drop(r.net.ID, flow.CodeDHCP, reason)
		return
	}
	r.identify(typ)
	if r.request.Type() != packet.DHCPInform {
		r.reply.Set(packet.OptLeaseTime, binary.BigEndian.AppendUint32(nil, leaseSeconds))
	}
	r.subnetOptions()
	r.names(entry)
	r.extraOptions(entry.ExtraDhcpOpts)
	r.classlessRoutes()
	r.explain("answers the %s of %v with %s %v", kind, entry.MAC, packet.DHCPTypeName(typ), r.reply.YIAddr)
	r.send()
}

func (r *responder) identify(typ uint8) {
	r.reply.Set(packet.OptMessageType, []byte{typ})
	r.reply.Set(packet.OptServerID, r.server.AsSlice())
}

// serverAddress returns the address by which the responder names itself to a client: the subnet's
// server, or else the first address of the range other than the client's, since some clients ignore
// a server called 0.0.0.0. The address is not reserved: a machine may have it too, and a renewal
// sent to it is answered on its way.
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

// subnetOptions adds the options of all the subnet's hosts.
func (r *responder) subnetOptions() {
	if p := r.net.SubnetAddress; p.Addr().Is4() {
		mask := packet.PrefixMask(p.Bits())
		base := p.Masked().Addr().As4()
		broadcast := binary.BigEndian.Uint32(base[:]) | ^mask
		r.reply.Set(packet.OptSubnetMask, binary.BigEndian.AppendUint32(nil, mask))
		r.reply.Set(packet.OptBroadcast, binary.BigEndian.AppendUint32(nil, broadcast))
	}
	r.reply.Set(packet.OptInterfaceMTU, binary.BigEndian.AppendUint16(nil, uint16(r.world.mtuOn(r.net.NetworkID, r.net.InterfaceMTU))))
	gateway := r.net.DefaultGateway
	if gateway != nil && !gateway.Is4() {
		gateway = nil
	}
	if gateway != nil {
		r.reply.Set(packet.OptRouter, gateway.AsSlice())
	}
	var servers []byte
	for _, a := range r.net.DNSServerAddress {
		if a.Is4() {
			servers = append(servers, a.AsSlice()...)
		}
	}
	if len(servers) > 0 {
		r.reply.Set(packet.OptDNSServer, servers)
	}
}

// names adds the machine's host name and domain.
func (r *responder) names(entry *topology.DhcpHost) {
	hostname, domain := entry.Names(r.net.DomainName)
	if hostname != "" {
		r.reply.Set(packet.OptHostName, []byte(hostname))
	}
	if domain != "" {
		r.reply.Set(packet.OptDomainName, []byte(domain))
	}
}

// classlessRoutes adds a route to the metadata service, unless the subnet has one, and the routes
// of the subnet, unless the host has its own. The service is on the link, which 0.0.0.0 says: it is
// reached where nothing has the gateway's address, too, and while routers come and go. Routes that
// do not fit are left out, with a warning, but never the default route: clients that read option
// 121 ignore option 3 (RFC 3442).
func (r *responder) classlessRoutes() {
	option := r.routesOption()
	if _, own := r.reply.Option(option); own {
		return
	}
	var all []topology.Opt121Route
	for _, route := range r.net.Opt121Routes {
		if route.DstSubnet.Addr().Is4() && route.Gateway.Is4() {
			all = append(all, route)
		}
	}
	var routes, last []byte
	service := netip.PrefixFrom(flow.MetadataIPv4, flow.MetadataIPv4.BitLen())
	if !slices.ContainsFunc(all, func(route topology.Opt121Route) bool { return route.DstSubnet == service }) {
		routes = packet.AppendClasslessRoute(routes, service, netip.IPv4Unspecified())
	}
	if routers, _ := r.reply.Option(packet.OptRouter); len(routers) >= 4 {
		last = packet.AppendClasslessRoute(nil, netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.AddrFrom4([4]byte(routers)))
	}
	most := r.mostMessage() - r.reply.OptionsEnd()
	for i, route := range all {
		longer := packet.AppendClasslessRoute(routes, route.DstSubnet, route.Gateway)
		if packet.OptionLen(len(longer)+len(last)) > most {
			r.dec.warn(fmt.Sprintf("port %s: %d of %d routes of subnet %s do not fit into a DHCP message of its machine and are left out, from %s on", r.port.id, len(all)-i, len(all), r.net.ID, route.DstSubnet))
			break
		}
		routes = longer
	}
	if len(routes) > 0 {
		r.reply.Set(option, append(routes, last...))
	}
}

// routesOption returns the code by which the client asks for routes: some of Microsoft's know
// option 249 alone, which is the same.
func (r *responder) routesOption() uint8 {
	asks, _ := r.request.Option(packet.OptParameterList)
	if slices.Contains(asks, packet.OptMicrosoftRoutes) && !slices.Contains(asks, packet.OptClasslessRoutes) {
		return packet.OptMicrosoftRoutes
	}
	return packet.OptClasslessRoutes
}

// leastMessage is the size, with IP and UDP headers, that every client takes (RFC 2131 §2).
const leastMessage = 576

// mostMessage returns the size that the client and the link take.
func (r *responder) mostMessage() int {
	const headers = 20 + 8
	most := leastMessage
	if v, ok := r.request.Option(packet.OptMaxMessageSize); ok && len(v) == 2 {
		most = max(most, min(int(binary.BigEndian.Uint16(v)), r.world.mtuOn(r.net.NetworkID, r.net.InterfaceMTU)))
	}
	return most - headers
}

// mtu returns the MTU for the hosts of a subnet, given its own or 0: no more than the underlay
// carries.
func (w *World) mtu(mtu int) int {
	if mtu <= 0 {
		mtu = w.defaultMTU
	}
	if w.underlayMTU > 0 {
		mtu = min(mtu, w.underlayMTU)
	}
	return min(mtu, 0xffff)
}

// mtuOn is mtu in a network, where frames may leave by a gateway.
func (w *World) mtuOn(networkID string, mtu int) int {
	mtu = w.mtu(mtu)
	added := w.addedByGateway(networkID)
	if added == 0 {
		return mtu
	}
	most := w.defaultMTU - packet.VXLANOverheadV4
	if w.underlayMTU > 0 {
		most = w.underlayMTU
	}
	return min(mtu, most-added)
}

// InterfaceMTU returns the MTU that the machines of a network are given, in bytes; 0 if it has no
// subnet.
func (w *World) InterfaceMTU(networkID string) (mtu int) {
	n := w.networks[networkID]
	if n == nil {
		return 0
	}
	consider := func(of int) {
		if of = w.mtuOn(networkID, of); mtu == 0 || of < mtu {
			mtu = of
		}
	}
	for _, s := range n.subnets {
		consider(s.def.InterfaceMTU)
	}
	for _, s := range n.subnets6 {
		consider(s.def.InterfaceMTU)
	}
	return mtu
}

// addedByGateway returns how many bytes longer a network's frames become, inside the tunnels
// between hosts, on their way out by its gateway: by a tag, or by the headers of a VXLAN packet.
func (w *World) addedByGateway(networkID string) int {
	n := w.networks[networkID]
	if n == nil {
		return 0
	}
	switch _, g := n.joint(); {
	case g == nil:
		return 0
	case g.def.VTEP():
		return packet.VXLANOverheadV4
	default:
		return packet.VLANTagLen
	}
}

// extraOptions adds the options of one host, which override all others.
func (r *responder) extraOptions(extra []topology.DhcpOpt) {
	for _, x := range extra {
		if x.Name == "server-ip-address" { // a field of the header
			if a, err := netip.ParseAddr(x.Value); err == nil && a.Is4() {
				r.reply.SIAddr = a
				continue
			}
		}
		o, err := packet.NewDHCPOption(x.Name, x.Value)
		if err != nil {
			r.dec.warn("port " + r.port.id + ": left out of the DHCP answer: " + err.Error())
			continue
		}
		r.reply.Set(o.Code, o.Value)
	}
}

func (r *responder) send() {
	everyone := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	message := packet.UDP{SrcPort: packet.DHCPServerPort, DstPort: packet.DHCPClientPort}.Append(nil, r.server, everyone, r.reply.Append(nil))
	b := packet.Ethernet{Dst: r.client, Src: responderMAC, Type: packet.TypeIPv4}.Append(make([]byte, 0, 34+len(message)))
	b = packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: r.server, Dst: everyone}.Append(b, len(message))
	r.dec.Emit = append(r.dec.Emit, flow.Emission{Output: flow.Output{PortID: r.port.id, HostID: r.port.server().id}, Frame: append(b, message...)})
}

func (r *responder) explain(format string, args ...any) {
	if r.dec.explain {
		r.dec.say(r.net.ID, flow.StepAnswer, "DHCP: "+fmt.Sprintf(format, args...))
	}
}
