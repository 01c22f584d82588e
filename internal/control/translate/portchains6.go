package translate

import (
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// ICMPv6 types (RFC 2710, RFC 4861, RFC 3810) and DHCPv6 ports (RFC 8415).
const (
	mldQuery              = 130
	mldReport             = 131
	mldDone               = 132
	routerSolicitation    = 133
	routerAdvertisement   = 134
	neighborSolicitation  = 135
	neighborAdvertisement = 136
	mldReportV2           = 143

	dhcpv6Client = 546
	dhcpv6Server = 547
)

// sources6 returns the port's IPv6 sources, then the link-local address of each MAC address among
// them (simulation §18). None: the port's chains are those of IPv4 alone.
func sources6(p *neutron.Port) []source {
	ss := slices.DeleteFunc(sources(p), func(s source) bool { return s.ip.Addr().Is4() })
	var macs []packet.MAC
	for _, s := range ss {
		if !slices.Contains(macs, s.mac) {
			macs = append(macs, s.mac)
		}
	}
	for _, m := range macs {
		ss = append(ss, source{m, netip.PrefixFrom(packet.LinkLocal(m), 128)})
	}
	return ss
}

// antiSpoofRules6 prevent the machine from acting as router or DHCP server and from using addresses
// of others: it advertises its own, detects their duplicates, and sends from them, with the MAC
// address that belongs to them. That MAC is a clause of the returning rules, not a dropping rule of
// its own, so that agents of earlier versions, which ignore it, decide as before.
func antiSpoofRules6(v6 []source) []topology.Rule {
	rules := []topology.Rule{
		literal(topology.Drop, udp6(dhcpv6Server, dhcpv6Client)),
		literal(topology.Drop, icmp6(routerAdvertisement, routerAdvertisement)),
	}
	unspecified := netip.PrefixFrom(netip.IPv6Unspecified(), 128)
	linkMulticast := netip.PrefixFrom(netip.AddrFrom16([16]byte{0xff, 0x02}), 16)
	for _, kind := range []uint16{mldReport, mldReportV2} {
		c := icmp6(kind, kind)
		c.NwSrcIP, c.NwDstIP = &unspecified, &linkMulticast
		rules = append(rules, literal(topology.Return, c))
	}
	for _, s := range v6 {
		advert := icmp6(neighborAdvertisement, neighborAdvertisement)
		advert.DlSrc, advert.NdTargetIP, advert.NdLinkOwn = &s.mac, &s.ip, true
		duplicates := icmp6(neighborSolicitation, neighborSolicitation)
		duplicates.NwSrcIP, duplicates.NwDstIP = &unspecified, &linkMulticast
		duplicates.DlSrc, duplicates.NdTargetIP, duplicates.NdLinkOwn = &s.mac, &s.ip, true
		rules = append(rules, literal(topology.Return, advert), literal(topology.Return, duplicates))
	}
	rules = append(rules, literal(topology.Drop, icmp6(neighborAdvertisement, neighborAdvertisement)))
	for _, s := range v6 {
		c := anyFragment()
		c.DlType, c.NwSrcIP, c.DlSrc, c.NdLinkOwn = etherIPv6, &s.ip, &s.mac, true
		rules = append(rules, literal(topology.Return, c))
	}
	return rules
}

// machineHousekeeping6 returns the rules for packets that a machine must be able to send: listener
// reports, router and neighbour discovery, DHCPv6.
func machineHousekeeping6() []topology.Rule {
	return []topology.Rule{
		literal(topology.Accept, icmp6(mldReport, routerSolicitation)),
		literal(topology.Accept, icmp6(neighborSolicitation, neighborAdvertisement)),
		literal(topology.Accept, icmp6(mldReportV2, mldReportV2)),
		literal(topology.Accept, udp6(dhcpv6Client, dhcpv6Server)),
	}
}

// networkHousekeeping6 returns the rules for packets that a machine must receive.
func networkHousekeeping6() []topology.Rule {
	linkLocals := netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfe, 0x80}), 10)
	dhcp := udp6(dhcpv6Server, dhcpv6Client)
	dhcp.NwSrcIP = &linkLocals
	return []topology.Rule{
		literal(topology.Accept, icmp6(mldQuery, mldQuery)),
		literal(topology.Accept, icmp6(routerAdvertisement, neighborAdvertisement)),
		literal(topology.Accept, dhcp),
	}
}

// icmp6 matches the ICMPv6 types low to high.
func icmp6(low, high uint16) topology.Condition {
	c := anyFragment()
	c.DlType, c.NwProto, c.TpSrc = etherIPv6, protocol(protoICMPv6), ports(low, high)
	return c
}

// udp6 matches UDP over IPv6 from port src to port dst.
func udp6(src, dst uint16) topology.Condition {
	c := anyFragment()
	c.DlType, c.NwProto = etherIPv6, protocol(protoUDP)
	c.TpSrc, c.TpDst = ports(src, src), ports(dst, dst)
	return c
}
