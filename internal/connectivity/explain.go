package connectivity

import (
	"context"
	"fmt"
	"net/netip"

	"heddle/internal/cloud"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// explain adds to legs that failed what the agents' simulation says of them, and where to look.
func (t *Test) explain(ctx context.Context, legs []Leg) []Leg {
	i := 0
	for _, e := range t.ends {
		for _, to := range e.targets {
			t.explainPair(ctx, e, to, legs[i:i+len(pairProbes)])
			i += len(pairProbes)
		}
	}
	return legs
}

// explainPair explains the legs from one workload to another, in the order of pairProbes.
func (t *Test) explainPair(ctx context.Context, from, to *end, legs []Leg) {
	passed := map[pairProbe]bool{}
	for i, leg := range legs {
		passed[pairProbes[i]] = leg.Result == Passed
	}
	for i := range legs {
		leg, p := &legs[i], pairProbes[i]
		switch {
		case p.kind == topology.ProbeBlocked && leg.Result == Passed && !passed[pairProbe{topology.ProbeTCP, p.ipv6}]:
			leg.Result, leg.Found = Untried, "nothing passes by TCP"
		case leg.Result != Failed:
		case p.kind == topology.ProbeBlocked:
			leg.Next = fmt.Sprintf("heddle trace of such a packet names the rule that lets it in; the log of the agent on %s", to.host.Name)
		case p.kind == topology.ProbeARP || p.kind == topology.ProbeNDP:
			leg.Next = fmt.Sprintf("the log of the agent on %s: it answers for all ports of its networks", from.host.Name)
		case p.kind == topology.ProbeMTU && passed[pairProbe{topology.ProbeICMP, p.ipv6}]:
			leg.Next = fmt.Sprintf("smaller packets pass: on %s heddle doctor --peer %s; raise the MTU of the way, or lower --underlay-mtu of the servers", from.host.Name, to.host.TunnelIP)
		default:
			t.explainLoss(ctx, from, to, p, leg)
		}
	}
}

// explainLoss explains a packet without an answer: by a drop that the agent of its host decides, or
// by a loss between hosts.
func (t *Test) explainLoss(ctx context.Context, from, to *end, p pairProbe, leg *Leg) {
	if reason := t.drop(ctx, from, to, p); reason != "" {
		leg.Found += fmt.Sprintf("; %s drops the packet: %s", from.host.Name, reason)
		leg.Next = "the rule or setting that the reason names; heddle trace shows each step of such a packet"
		return
	}
	if reason := t.drop(ctx, to, from, p); p.kind == topology.ProbeICMP && reason != "" {
		leg.Found += fmt.Sprintf("; %s drops the answer: %s", to.host.Name, reason)
		leg.Next = "the rule or setting that the reason names; heddle trace shows each step of such a packet"
		return
	}
	lost, receiver := from, to
	switch {
	case to.received == nil:
	case to.received[from.addressBy(p.ipv6).String()] > 0:
		leg.Found += fmt.Sprintf("; %s received UDP datagrams of %s", to.host.Name, from.host.Name)
		lost, receiver = to, from
	default:
		leg.Found += fmt.Sprintf("; %s received none of the UDP datagrams", to.host.Name)
	}
	if from.host.Name == to.host.Name {
		leg.Next = fmt.Sprintf("the log of the agent on %s", from.host.Name)
		return
	}
	leg.Next = fmt.Sprintf("no rule drops it: a firewall, route or MTU between hosts. UDP 6677 from %s to %s has to pass: heddle status --host %s; on %[3]s heddle doctor --peer %[2]s; on both tcpdump -n udp port 6677",
		lost.host.TunnelIP, receiver.host.TunnelIP, lost.host.Name)
}

// drop returns why the agent of a workload's host drops a packet to another one; "" if it does not,
// or does not say.
func (t *Test) drop(ctx context.Context, from, to *end, p pairProbe) string {
	answer, err := t.session.Trace(ctx, cloud.TraceRequest{Port: from.port, Frame: example(from, to, p)})
	if err != nil || answer.Verdict == "forward" {
		return ""
	}
	return answer.Reason
}

// clientPort is the source port of examples.
const clientPort = 40000

// example returns a packet as a probe sends it.
func example(from, to *end, p pairProbe) []byte {
	src, dst := from.addressBy(p.ipv6), to.addressBy(p.ipv6)
	payload, proto := transport(p, src, dst)
	if p.ipv6 {
		frame := packet.Ethernet{Dst: to.mac, Src: from.mac, Type: packet.TypeIPv6}.Append(nil)
		frame = packet.IPv6{HopLimit: 64, Next: proto, Src: src, Dst: dst}.Append(frame, len(payload))
		return append(frame, payload...)
	}
	frame := packet.Ethernet{Dst: to.mac, Src: from.mac, Type: packet.TypeIPv4}.Append(nil)
	frame = packet.IPv4{TTL: 64, Proto: proto, Src: src, Dst: dst}.Append(frame, len(payload))
	return append(frame, payload...)
}

func transport(p pairProbe, from, to netip.Addr) (payload []byte, proto uint8) {
	rest := packet.EchoRest(1, 1)
	switch {
	case p.kind == topology.ProbeTCP:
		return packet.TCP{SrcPort: clientPort, DstPort: topology.WorkloadOpenPort, Flags: packet.TCPSyn}.Append(nil, from, to, nil), packet.ProtoTCP
	case p.kind == topology.ProbeUDP:
		return packet.UDP{SrcPort: clientPort, DstPort: topology.WorkloadOpenPort}.Append(nil, from, to, nil), packet.ProtoUDP
	case p.ipv6:
		return packet.ICMP{Type: packet.ICMPv6EchoRequest, Rest: rest}.AppendV6(nil, from, to, nil), packet.ProtoICMPv6
	}
	return packet.ICMP{Type: packet.ICMPEchoRequest, Rest: rest}.Append(nil, nil), packet.ProtoICMP
}
