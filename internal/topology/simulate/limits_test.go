package simulate

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// limitNAT gives the NAT rules of an owner limits.
func limitNAT(l *lab, o topology.Owner, b *topology.Bundle) []string {
	for i := range b.Rules {
		if b.Rules[i].Rule.Type == topology.NAT {
			b.Rules[i].Rule.Limits = &topology.RuleLimits{LimitsID: "policy", LimitedID: o.ID}
		}
	}
	return l.Apply(o, b)
}

// TestLimitsOfTranslations: a packet is subject to the limits of the floating IPs and gateways that
// translate it, in its direction as the machines see it.
func TestLimitsOfTranslations(t *testing.T) {
	t.Parallel()
	l := example()
	if affected := limitNAT(l, gw.owner(), gw.bundle()); !slices.Contains(affected, "r") {
		t.Errorf("limits of a gateway affect %v: want its router", affected)
	}
	f := floating{"A", gw, fipA, ipX}
	limitNAT(l, owner("floating-ip", "A"), f.bundle())
	dscp := uint8(10)
	if affected := l.Apply(owner("qos-policy", "policy"), &topology.Bundle{Limits: []topology.Limits{
		{ID: "policy", Egress: topology.Limit{Rate: 1000}, Ingress: topology.Limit{Packets: 5}, DSCP: &dscp}}}); len(affected) > 0 {
		t.Errorf("figures affect the decisions of %v: want of none", affected)
	}
	egress := func(id string) flow.Limited { return flow.Limited{ID: id, LimitsID: "policy"} }
	ingress := func(id string) flow.Limited { return flow.Limited{ID: id, LimitsID: "policy", Ingress: true} }
	expect := func(name, from string, frame []byte, says string, want ...flow.Limited) {
		t.Helper()
		d := l.send(from, frame)
		if len(d.Outputs) != 1 || !slices.Equal(d.Limits, want) || !strings.Contains(walk(d), says) {
			t.Errorf("%s: %v: want %v, and %q in\n%s", name, d.Limits, want, says, walk(d))
		}
	}
	out := frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.udp(4000, 53)
	answer := func(s frameSpec, f *packet.Frame) []byte { return s.udp(53, f.TpSrc) }
	expect("by the gateway", "p-y", out, "limit of "+gw.owner().ID+": egress 1000 bit/s", egress(gw.owner().ID))
	back := l.expectAt(t, "p-y", out, "p-up", "172.16.0.2:1024→198.51.100.7:53")
	expect("reply to the gateway", "p-up", replyTo(back, answer), "ingress 5 packets/s", ingress(gw.owner().ID))
	expect("from the floating IP", "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ipOut}.udp(4000, 53), "limit of A: egress", egress("A"))
	expect("to the floating IP", "p-up", frameSpec{n: 4, to: 4, src: ipOut, dst: fipA}.udp(4000, 53), "limit of A: ingress", ingress("A"))
	expect("to the floating IP from behind the gateway", "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: fipA}.udp(4000, 53), "", ingress("A"), egress(gw.owner().ID))
	expect("between networks of the router", "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: ipZ}.udp(4000, 53), "")
	l.Apply(owner("qos-policy", "policy"), nil)
	expect("of limits that are gone", "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ipOut}.udp(4000, 53), "limit of A: egress unlimited", egress("A"))
}

// TestLimitsOfPortsExplained: a walk says the limits and the mark of the ports at both ends.
func TestLimitsOfPortsExplained(t *testing.T) {
	t.Parallel()
	l := newLab()
	l.network("n")
	for i, id := range []string{"a", "b"} {
		p := portSpec{id: id, network: "n", host: "h1", mac: mac(i + 1), open: true}
		b := p.bundle()
		b.Ports[0].LimitsID = "policy"
		l.Apply(p.owner(), b)
	}
	dscp := uint8(46)
	l.Apply(owner("qos-policy", "policy"), &topology.Bundle{Limits: []topology.Limits{
		{ID: "policy", Egress: topology.Limit{Rate: 1000}, Ingress: topology.Limit{Rate: 2000}, DSCP: &dscp}}})
	frame := append(packet.Ethernet{Dst: mac(2), Src: mac(1), Type: packet.TypeIPv4}.Append(nil), packet.IPv4{Src: addr(1), Dst: addr(2), TTL: 64}.Append(nil, 0)...)
	d := l.send("a", bytes.Clone(frame))
	text := walk(d)
	for _, want := range []string{"limit egress 1000 bit/s (burst 800 bit)", "limit ingress 2000 bit/s (burst 1600 bit)", "DSCP 46"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("want %q once in\n%s", want, text)
		}
	}
	if len(d.Limits) > 0 {
		t.Errorf("the decision carries %v: those of ports count at their interfaces", d.Limits)
	}
}
