package simulate

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// allDHCPServers is the address to which DHCPv6 clients send (RFC 8415 §7.1).
var allDHCPServers = netip.MustParseAddr("ff02::1:2")

// Address modes of IPv6 subnets.
const (
	modeStateful  = "dhcpv6-stateful"
	modeStateless = "dhcpv6-stateless"
)

// Bounds of what a client sends that comes back, so that answers fit into packets.
const (
	mostAssociations = 8   // identity associations
	mostForeign      = 16  // addresses that are not the port's
	longestDUID      = 130 // bytes of the client's identifier (RFC 8415 §11.1)
)

// dhcp6 answers a machine's DHCPv6 message (midonet-simulation §18) before any filter, and reports
// whether it is done with the packet. A machine hears of the addresses of its own port alone; a
// message from one without an address in a subnet with DHCPv6 may be for a server of the tenant's.
func (s *Simulator) dhcp6(p *port) (done bool) {
	f := &s.frame
	if f.EtherType != packet.TypeIPv6 || f.Proto != packet.ProtoUDP || !f.HasTp || f.DstIP != allDHCPServers ||
		f.TpSrc != packet.DHCPv6ClientPort || f.TpDst != packet.DHCPv6ServerPort {
		return false
	}
	s.unkeyed = true // what becomes of it rests on the subnets
	n := p.network
	if f.VLANs > 0 || f.Frag != packet.FragNone || !f.SrcIP.IsLinkLocalUnicast() || !p.def.AdminStateUp || n.def == nil || !n.def.AdminStateUp {
		return false
	}
	leases := n.leases6(p, f.Src)
	if len(leases) == 0 {
		return false
	}
	const udpHeader = 8
	start, end := f.L4+udpHeader, min(f.End, len(s.in.Frame))
	if start > end {
		return false
	}
	r := responder6{world: s.world, dec: &s.dec, port: p, client: f.Src, clientIP: f.SrcIP, leases: leases}
	request, err := packet.ParseDHCPv6(s.in.Frame[start:end])
	if err != nil {
		r.refuse(err.Error())
		return true
	}
	r.request = request
	r.respond()
	return true
}

// lease6 is an address of a port in a subnet with DHCPv6.
type lease6 struct {
	dhcpHost
	net *topology.DhcpV6
}

// leases6 returns the addresses of port p in enabled subnets with DHCPv6, for the machine with a
// MAC address: those that it gets by DHCPv6 first, then in the order of the port's fixed IPs.
func (n *network) leases6(p *port, mac packet.MAC) (all []lease6) {
	for _, s := range n.subnets6 {
		if !s.def.Enabled || s.def.AddressMode != modeStateful && s.def.AddressMode != modeStateless {
			continue
		}
		for _, h := range s.hosts[mac] {
			if h.PortID == p.id {
				all = append(all, lease6{h, s.def})
			}
		}
	}
	slices.SortFunc(all, func(a, b lease6) int {
		rank := map[bool]int{true: 0, false: 1}
		return cmp.Or(rank[a.stateful()]-rank[b.stateful()], compareOwners(a.owner, b.owner), cmp.Compare(a.index, b.index))
	})
	return all
}

func (l lease6) stateful() bool { return l.net.AddressMode == modeStateful }

// serverID returns the identifier by which the responder names itself for a subnet.
func (l lease6) serverID() []byte {
	if id := packet.DUIDUUID(l.net.ID); id != nil {
		return id
	}
	sum := sha256.Sum256([]byte(l.net.ID))
	return append([]byte{0, 4}, sum[:16]...)
}

// responder6 answers one DHCPv6 message.
type responder6 struct {
	world    *World
	dec      *record
	port     *port      // at which the message came in
	client   packet.MAC // that sent it
	clientIP netip.Addr
	leases   []lease6 // at least one; the first one's subnet names the server
	request  *packet.DHCPv6
	reply    packet.DHCPv6
	foreign  int // addresses in the reply that are not the port's
}

func (r *responder6) respond() {
	if why := r.invalid(); why != "" {
		r.refuse(why)
		return
	}
	r.reply = packet.DHCPv6{Type: packet.DHCPv6Reply, XID: r.request.XID}
	if client, ok := r.request.Option(packet.Opt6ClientID); ok {
		r.reply.Add(packet.Opt6ClientID, client)
	}
	r.reply.Add(packet.Opt6ServerID, r.leases[0].serverID())
	switch r.request.Type {
	case packet.DHCPv6Solicit:
		if _, rapid := r.request.Option(packet.Opt6RapidCommit); rapid {
			r.reply.Add(packet.Opt6RapidCommit, nil)
		} else {
			r.reply.Type = packet.DHCPv6Advertise
			r.reply.Add(packet.Opt6Preference, []byte{255}) // the client need not wait for other servers
		}
		r.associations()
		r.configuration()
	case packet.DHCPv6Request, packet.DHCPv6Renew, packet.DHCPv6Rebind:
		r.associations()
		r.configuration()
	case packet.DHCPv6InformationRequest:
		r.configuration()
	case packet.DHCPv6Confirm:
		r.confirm()
	case packet.DHCPv6Decline:
		r.dec.warn("port " + r.port.id + ": its machine declines an address given by DHCPv6: another one uses it")
		r.status(packet.Status6Success, "noted")
	case packet.DHCPv6Release:
		r.status(packet.Status6Success, "the addresses remain the port's")
	}
	if r.dec.explain {
		r.dec.say(r.leases[0].net.ID, flow.StepAnswer, fmt.Sprintf("DHCPv6: answers the %s of %v with %s%s",
			packet.DHCPv6TypeName(r.request.Type), r.client, packet.DHCPv6TypeName(r.reply.Type), r.given()))
	}
	r.send()
}

// invalid returns why the message is not answered, "" if it is (RFC 8415 §16).
func (r *responder6) invalid() string {
	m := r.request
	client, hasClient := m.Option(packet.Opt6ClientID)
	server, hasServer := m.Option(packet.Opt6ServerID)
	kind := packet.DHCPv6TypeName(m.Type)
	switch m.Type {
	case packet.DHCPv6Solicit, packet.DHCPv6Confirm, packet.DHCPv6Rebind:
		if hasServer {
			return "DHCPv6 message " + kind + " names a server"
		}
	case packet.DHCPv6Request, packet.DHCPv6Renew, packet.DHCPv6Release, packet.DHCPv6Decline:
		if !hasServer {
			return "DHCPv6 message " + kind + " names no server"
		}
	case packet.DHCPv6InformationRequest:
		for _, code := range []uint16{packet.Opt6IANA, packet.Opt6IATA, packet.Opt6IAPD} {
			if _, ok := m.Option(code); ok {
				return "DHCPv6 message " + kind + " asks for addresses"
			}
		}
		hasClient = true // or anonymous
	default:
		return "DHCPv6 message of type " + kind + " needs no answer"
	}
	switch {
	case !hasClient:
		return "DHCPv6 message " + kind + " names no client"
	case len(client) > longestDUID:
		return "DHCPv6 message " + kind + " has too long a client identifier"
	case hasServer && !slices.ContainsFunc(r.leases, func(l lease6) bool { return string(l.serverID()) == string(server) }):
		return "DHCPv6 message " + kind + " is for another server"
	case m.Type == packet.DHCPv6Confirm && len(r.asked()) == 0:
		return "DHCPv6 message " + kind + " names no address"
	}
	return ""
}

// asked returns the addresses in the identity associations of the message.
func (r *responder6) asked() (all []netip.Addr) {
	for v := range r.request.All(packet.Opt6IANA) {
		if ia, err := packet.ParseIANA(v); err == nil {
			for _, a := range ia.Addrs {
				all = append(all, a.Addr)
			}
		}
	}
	return all
}

// associations answers the identity associations of the message in their order. The first one for
// addresses gets those of the port, all others get none.
func (r *responder6) associations() {
	bound, answered := false, 0
	for _, o := range r.request.Options {
		var v []byte
		switch o.Code {
		case packet.Opt6IANA:
			ia, err := packet.ParseIANA(o.Value)
			if err != nil {
				continue
			}
			r.association(ia, bound)
			bound, v = true, ia.Value()
		case packet.Opt6IATA:
			if len(o.Value) < 4 {
				continue
			}
			v = nested(o.Value[:4], packet.Status6NoAddrsAvail, "no temporary addresses")
		case packet.Opt6IAPD:
			if len(o.Value) < 12 {
				continue
			}
			v = nested(append(slices.Clone(o.Value[:4]), make([]byte, 8)...), packet.Status6NoPrefixAvail, "no prefixes are delegated")
		default:
			continue
		}
		r.reply.Add(o.Code, v)
		if answered++; answered == mostAssociations {
			return
		}
	}
}

// nested returns the value of an identity association that has nothing but a status.
func nested(header []byte, code uint16, why string) []byte {
	m := packet.DHCPv6{}
	m.Add(packet.Opt6StatusCode, packet.StatusValue(code, why))
	return append(slices.Clone(header), m.Append(nil)[4:]...)
}

// association makes an identity association of the message one of the answer: with the addresses of
// the port, unless another association of the client has them. Others that the client believes to
// have end (RFC 8415 §18.3.4).
func (r *responder6) association(ia *packet.IANA, bound bool) {
	asked := ia.Addrs
	ia.T1, ia.T2, ia.Addrs, ia.Status = 0, 0, nil, nil
	if !bound {
		for _, l := range r.leases {
			if l.stateful() {
				ia.Addrs = append(ia.Addrs, packet.IAAddr{Addr: l.IPAddress, Preferred: leaseSeconds, Valid: leaseSeconds})
			}
		}
	}
	if len(ia.Addrs) == 0 {
		ia.Status = packet.StatusValue(packet.Status6NoAddrsAvail, "no more addresses")
	} else {
		ia.T1, ia.T2 = leaseSeconds/2, leaseSeconds/5*4
	}
	if r.request.Type == packet.DHCPv6Solicit {
		return
	}
	for _, a := range asked {
		own := slices.ContainsFunc(ia.Addrs, func(x packet.IAAddr) bool { return x.Addr == a.Addr })
		if !own && r.foreign < mostForeign {
			ia.Addrs = append(ia.Addrs, packet.IAAddr{Addr: a.Addr})
			r.foreign++
		}
	}
}

// confirm answers whether the client is still on the link of its addresses (RFC 8415 §18.3.3).
func (r *responder6) confirm() {
	for _, a := range r.asked() {
		if !slices.ContainsFunc(r.leases, func(l lease6) bool { return l.net.SubnetAddress.Contains(a) }) {
			r.status(packet.Status6NotOnLink, a.String()+" is not of this link")
			return
		}
	}
	r.status(packet.Status6Success, "on this link")
}

func (r *responder6) status(code uint16, message string) {
	r.reply.Add(packet.Opt6StatusCode, packet.StatusValue(code, message))
}

// configuration adds what the machine is to know besides its addresses: the options of its port
// override those of its subnets. One that does not fit is left out, with a warning.
func (r *responder6) configuration() {
	var servers []byte
	var seen []netip.Addr
	for _, l := range r.leases {
		for _, a := range l.net.DNSServerAddress {
			if a.Is6() && !slices.Contains(seen, a) {
				seen, servers = append(seen, a), append(servers, a.AsSlice()...)
			}
		}
	}
	if len(servers) > 0 {
		r.reply.Add(packet.Opt6DNSServer, servers)
	}
	if _, domain := r.leases[0].Names(r.leases[0].net.DomainName); domain != "" {
		r.option("domain-search", domain)
	}
	for _, x := range r.leases[0].ExtraDhcpOpts {
		r.option(x.Name, x.Value)
	}
}

// option sets one option, unless it does not fit.
func (r *responder6) option(name, value string) {
	o, err := packet.NewDHCPv6Option(name, value)
	if err == nil && r.reply.Len()+4+len(o.Value) > r.mostMessage() {
		err = fmt.Errorf("DHCPv6 option %s does not fit into a packet", name)
	}
	if err != nil {
		r.dec.warn("port " + r.port.id + ": left out of the DHCPv6 answer: " + err.Error())
		return
	}
	r.reply.Set(o.Code, o.Value)
}

// mostMessage returns the size of the largest message that the link takes whole.
func (r *responder6) mostMessage() int {
	const headers = 40 + 8
	return max(minMTU6, r.world.mtuOn(r.leases[0].net.NetworkID, r.leases[0].net.InterfaceMTU)) - headers
}

// minMTU6 is the least MTU of a link with IPv6 (RFC 8200 §5).
const minMTU6 = 1280

func (r *responder6) send() {
	src := packet.LinkLocal(responderMAC)
	message := packet.UDP{SrcPort: packet.DHCPv6ServerPort, DstPort: packet.DHCPv6ClientPort}.Append(nil, src, r.clientIP, r.reply.Append(nil))
	b := packet.Ethernet{Dst: r.client, Src: responderMAC, Type: packet.TypeIPv6}.Append(make([]byte, 0, 54+len(message)))
	b = packet.IPv6{HopLimit: 64, Next: packet.ProtoUDP, Src: src, Dst: r.clientIP}.Append(b, len(message))
	r.dec.Emit = append(r.dec.Emit, flow.Emission{Output: flow.Output{PortID: r.port.id, HostID: r.port.server().id}, Frame: append(b, message...)})
}

// refuse drops the message.
func (r *responder6) refuse(why string) { r.dec.drop(r.leases[0].net.ID, flow.CodeDHCP, why) }

// given lists the addresses of the answer, for explanations.
func (r *responder6) given() (text string) {
	for v := range r.reply.All(packet.Opt6IANA) {
		if ia, err := packet.ParseIANA(v); err == nil {
			for _, a := range ia.Addrs {
				if a.Valid > 0 {
					text += " " + a.Addr.String()
				}
			}
		}
	}
	return text
}
