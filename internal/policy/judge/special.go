package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/internal/policy/calc"
	"heddle/internal/topology/flow"
)

// overlayPort is the UDP port of the overlay's tunnels, to which no workload may send.
const overlayPort = 6677

func active(s side) bool {
	return s.workload.Endpoint != nil && s.workload.Endpoint.State == calico.Active
}

// notActive returns why nothing passes a workload's interface.
func (j *judgement) notActive(s side) (flow.Code, string) {
	if s.workload.Endpoint == nil {
		j.note(workloadName(s), "is not a valid endpoint, so its interface is closed: deny")
		return flow.CodeBadObject, "no valid endpoint " + s.name
	}
	j.note(workloadName(s), "is not active: deny")
	return flow.CodePortDown, "endpoint is not active"
}

// source refuses packets of a workload with a foreign source (spec §7.5), or of an inactive one.
func (j *judgement) source(s side) decision {
	if j.p.Protocol == calico.ProtocolUDP && j.p.DstPort == overlayPort {
		j.note(workloadName(s), "udp port %d is for hosts among themselves: deny", overlayPort)
		return deny(flow.CodeToHost, fmt.Sprintf("udp port %d is for hosts among themselves", overlayPort))
	}
	if j.config.IPIP && j.p.Src.Is4() && j.p.Protocol == ipInIP {
		j.note(workloadName(s), "IPIP is for hosts among themselves: deny")
		return deny(flow.CodeToHost, "IPIP is for hosts among themselves")
	}
	if j.p.Dst.Is4() && j.p.Dst.IsLoopback() {
		j.note(workloadName(s), "the destination is the host's loopback: deny")
		return deny(flow.CodeToHost, "destination is the host's loopback")
	}
	if !active(s) {
		return j.drop(j.notActive(s))
	}
	e := s.workload.Endpoint
	if e.MAC != nil && j.p.SrcMAC != nil && *j.p.SrcMAC != *e.MAC {
		j.note(workloadName(s), "the source MAC is not the endpoint's: deny")
		return deny(flow.CodeAntiSpoofing, "source MAC is not the endpoint's")
	}
	if !j.ownSource(e) {
		j.note(workloadName(s), "the source address is not the endpoint's: deny")
		return deny(flow.CodeAntiSpoofing, "source address is not the endpoint's")
	}
	return decision{}
}

// ownSource reports whether the endpoint may send from the packet's source address. Link-local
// addresses serve neighbour discovery and DHCPv6, unspecified ones DHCP and probes for duplicates.
func (j *judgement) ownSource(e *calico.WorkloadEndpoint) bool {
	src := j.p.Src
	switch {
	case src == netip.IPv4Unspecified():
		return j.udp(68, 67)
	case src == netip.IPv6Unspecified():
		return j.neighbourDiscovery()
	case src.Is6() && src.IsLinkLocalUnicast():
		return true
	}
	return slices.ContainsFunc(slices.Concat(e.IPv4Nets, e.IPv6Nets), func(net netip.Prefix) bool { return net.Contains(src) })
}

func (j *judgement) udp(src, dst uint16) bool {
	return j.p.Protocol == calico.ProtocolUDP && j.p.SrcPort == src && j.p.DstPort == dst
}

// neighbourDiscovery reports whether the packet is of the ICMPv6 types that a workload needs for
// IPv6: multicast listener messages, router and neighbour solicitation, neighbour advertisement.
func (j *judgement) neighbourDiscovery() bool { return j.icmpv6(130, 131, 132, 133, 135, 136) }

func (j *judgement) icmpv6(types ...uint8) bool {
	return j.p.Src.Is6() && j.p.Protocol == calico.ProtocolICMPv6 && slices.Contains(types, j.p.ICMPType)
}

// metadataAddress returns the address of the metadata service, on port 80 (spec §7.3).
func metadataAddress() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 169, 254}) }

// translate gives the packet the destination that policy sees: that of a floating address, or of
// the metadata service. Invalid packets are not translated.
func (j *judgement) translate(in side) {
	if j.p.State == Invalid || j.untrackedAllowed {
		return
	}
	to := j.rules.Translated(j.p.Dst)
	switch {
	case to != j.p.Dst:
		j.note("floating address", "%s is %s", j.p.Dst, to)
		j.p.Dst = to
	case in.workload != nil && j.config.OpenStack && j.config.Metadata.IsValid() && j.p.Dst == metadataAddress() &&
		j.p.Protocol == calico.ProtocolTCP && j.p.DstPort == 80:
		j.note("metadata", "is served at %s", j.config.Metadata)
		j.p.Dst, j.p.DstPort = j.config.Metadata.Addr(), j.config.Metadata.Port()
	}
}

// toHost judges what a workload sends to its own host (spec §7.2).
func (j *judgement) toHost(s side) decision {
	if what := j.hostService(); what != "" {
		j.note(workloadName(s), "%s of its host: allow", what)
		return allow(what + " of the workload's host")
	}
	if d := j.connection(); d.final {
		return d
	}
	if j.config.ToHost == ToHostDrop {
		j.note(workloadName(s), "DefaultEndpointToHostAction is DROP: deny")
		return j.drop(flow.CodeToHost, "DefaultEndpointToHostAction DROP")
	}
	return j.policy(s, s.workload.Tiers, s.workload.Profiles, calc.Outbound)
}

// hostService names the service of its host that a workload may always use, or returns "".
func (j *judgement) hostService() string {
	tcp, udp := j.p.Protocol == calico.ProtocolTCP, j.p.Protocol == calico.ProtocolUDP
	switch {
	case j.neighbourDiscovery():
		return "neighbour discovery"
	case !j.config.OpenStack:
		return ""
	case j.p.Src.Is4() && j.udp(68, 67):
		return "DHCP"
	case j.p.Src.Is6() && j.udp(546, 547):
		return "DHCPv6"
	case udp && j.p.DstPort == 53:
		return "DNS"
	case tcp && j.config.Metadata.IsValid() && netip.AddrPortFrom(j.p.Dst, j.p.DstPort) == j.config.Metadata:
		return "metadata"
	}
	return ""
}

// early judges a packet from a host endpoint's interface before connection tracking and before its
// destination is translated (spec §6.6, §6.7).
func (j *judgement) early(s side) decision {
	if d := j.untracked(s, calc.Inbound); d.final {
		return d
	}
	if len(s.host.PreDNAT) == 0 || j.p.State == Established {
		return decision{}
	}
	if f := j.failsafe(calc.Inbound); f != "" {
		j.note(hostName(s)+" before DNAT", "%s: goes on", f)
		return decision{}
	}
	d := j.tiers(s, s.host.PreDNAT, calc.Inbound)
	if c := j.connection(); d.allowed && c.final {
		return c
	}
	return d
}

// untracked judges a packet before connection tracking. Fail-safe ports pass in both directions.
func (j *judgement) untracked(s side, dir calc.Direction) decision {
	if len(s.host.Untracked) == 0 {
		return decision{}
	}
	if f := j.failsafeEitherWay(dir); f != "" {
		j.note(hostName(s)+" untracked", "%s: goes on", f)
		return decision{}
	}
	d := j.tiers(s, s.host.Untracked, dir)
	if d.final && d.allowed {
		j.p.State, j.untrackedAllowed = New, true // connection tracking is past
	}
	return d
}

func (j *judgement) tiers(s side, tiers []calc.Tier, dir calc.Direction) decision {
	for _, t := range tiers {
		if d := j.tier(s, t, dir, false); d.final {
			return d
		}
	}
	return decision{}
}
