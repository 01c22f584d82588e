package translate

import (
	"net/netip"

	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// UDP ports of DHCP (RFC 2131).
const (
	dhcpServer = 67
	dhcpClient = 68
)

// source is an address range a port may send from, with the MAC address that must go with it.
type source struct {
	mac packet.MAC
	ip  netip.Prefix
}

// sources returns the fixed addresses of the port, then its allowed address pairs.
func sources(p *neutron.Port) []source {
	var ss []source
	for _, f := range p.FixedIPs {
		ss = append(ss, source{p.MACAddress, netip.PrefixFrom(f.IPAddress, f.IPAddress.BitLen())})
	}
	for _, pair := range p.AllowedAddressPairs {
		ip, ok := prefixOf(pair.IPAddress)
		if !ok {
			continue
		}
		mac := pair.MACAddress
		if mac.IsZero() {
			mac = p.MACAddress
		}
		ss = append(ss, source{mac, ip})
	}
	return ss
}

// portChains returns the three chains of an untrusted port (midonet-translations §3.1):
//
//	from the machine              to the machine
//	  inbound ── jump antispoof     outbound
//	     │ accept v6 housekeeping      │ accept v6 housekeeping
//	     │ accept replies              │ accept replies
//	     │ jump each group: egress     │ jump each group: ingress
//	     │ drop all but ARP            │ drop all but ARP
//
// With port security off they are empty and accept everything.
func portChains(p *neutron.Port, groups []*neutron.SecurityGroup) []topology.Chain {
	in := topology.Chain{ID: Derive(roleChainIn, p.ID), Name: "OS_PORT_" + p.ID + "_INBOUND", Purpose: topology.PurposePortFilter, TenantID: p.ProjectID}
	out := topology.Chain{ID: Derive(roleChainOut, p.ID), Name: "OS_PORT_" + p.ID + "_OUTBOUND", Purpose: topology.PurposePortFilter, TenantID: p.ProjectID}
	spoof := topology.Chain{
		ID: Derive(roleChainAntiSpoof, p.ID), Name: "OS_PORT_" + p.ID + "_ANTI_SPOOF", Purpose: topology.PurposeAntiSpoof, TenantID: p.ProjectID,
	}
	if p.PortSecurityEnabled {
		v6 := sources6(p)
		stateful := !allStateless(groups)
		in.Rules = inboundRules(p, spoof, len(v6) > 0, stateful)
		out.Rules = outboundRules(p, len(v6) > 0, stateful)
		spoof.Rules = antiSpoofRules(p, v6)
	}
	return []topology.Chain{in, out, spoof}
}

func inboundRules(p *neutron.Port, spoof topology.Chain, v6, stateful bool) []topology.Rule {
	rules := []topology.Rule{jump(Derive(roleJumpAntiSpoof, p.ID), spoof.ID, spoof.Name)}
	if v6 {
		rules = append(rules, machineHousekeeping6()...)
	}
	if stateful {
		rules = append(rules, acceptReplies())
	}
	for _, group := range groupIDs(p) {
		rules = append(rules, jump(Derive(roleInbound, p.ID, group), egressChain(group), egressChainName(group)))
	}
	return number(append(rules, dropAllButARP()), roleInbound, p.ID)
}

func outboundRules(p *neutron.Port, v6, stateful bool) []topology.Rule {
	var rules []topology.Rule
	if v6 {
		rules = append(rules, networkHousekeeping6()...)
	}
	if stateful {
		rules = append(rules, acceptReplies())
	}
	for _, group := range groupIDs(p) {
		rules = append(rules, jump(Derive(roleOutbound, p.ID, group), ingressChain(group), ingressChainName(group)))
	}
	return number(append(rules, dropAllButARP()), roleOutbound, p.ID)
}

// antiSpoofRules return the machine's legitimate packets to the inbound chain and drop the rest. A
// machine may be a DHCP client but no server. ARP may come from any MAC address: gratuitous ARP of
// a shared address often does.
func antiSpoofRules(p *neutron.Port, v6 []source) []topology.Rule {
	rules := []topology.Rule{literal(topology.Return, udp(dhcpClient, dhcpServer)), literal(topology.Drop, udp(dhcpServer, dhcpClient))}
	for _, s := range sources(p) {
		if s.ip.Addr().Is6() {
			continue
		}
		arp := anyFragment()
		arp.DlType, arp.NwSrcIP = etherARP, &s.ip
		ip := anyFragment()
		ip.NwSrcIP, ip.DlSrc = &s.ip, &s.mac
		rules = append(rules, literal(topology.Return, arp), literal(topology.Return, ip))
	}
	if len(v6) > 0 {
		rules = append(rules, antiSpoofRules6(v6)...)
	}
	return number(append(rules, literal(topology.Drop, anyFragment())), roleAntiSpoof, p.ID)
}

// udp matches UDP from port src to port dst, over either version of IP.
func udp(src, dst uint16) topology.Condition {
	c := anyFragment()
	c.NwProto = protocol(protoUDP)
	c.TpSrc, c.TpDst = ports(src, src), ports(dst, dst)
	return c
}

// acceptReplies passes the reply direction of tracked connections, and starts tracking the rest.
func acceptReplies() topology.Rule {
	c := anyFragment()
	c.MatchReturnFlow = true
	return literal(topology.Accept, c)
}

func dropAllButARP() topology.Rule {
	c := anyFragment()
	c.DlType, c.InvDlType = etherARP, true
	return literal(topology.Drop, c)
}

// allStateless reports whether there are groups and none tracks connections (§3.1).
func allStateless(groups []*neutron.SecurityGroup) bool {
	for _, g := range groups {
		if g.Stateful {
			return false
		}
	}
	return len(groups) > 0
}
