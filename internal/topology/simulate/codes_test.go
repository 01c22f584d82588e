package simulate

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// TestMain runs the tests of this package, which together must reach every code and every kind of
// step: of one that no test reaches it is not known that it is right.
func TestMain(m *testing.M) {
	result := m.Run()
	all := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" &&
		flag.Lookup("test.list").Value.String() == "" && flag.Lookup("test.fuzz").Value.String() == ""
	if all && result == 0 {
		for _, c := range flow.Codes() {
			if _, ok := reached.Load(c); !ok && !c.OfPolicy() {
				fmt.Fprintf(os.Stderr, "no test has a packet dropped with the code %s\n", c)
				result = 1
			}
		}
		for _, k := range flow.StepKinds() {
			if _, ok := reached.Load(k); !ok {
				fmt.Fprintf(os.Stderr, "no test has a step of the kind %s\n", k)
				result = 1
			}
		}
	}
	os.Exit(result)
}

// reached has the codes of drops and the kinds of steps that tests have seen.
var reached sync.Map

// watched is a simulator whose drops are noted.
type watched struct{ *Simulator }

// Run is [Simulator.Run], and notes the codes. Each drop must have one.
func (w watched) Run(in Input) *flow.Decision {
	d := w.Simulator.Run(in)
	for _, end := range d.Drops {
		if end.Code == 0 {
			panic("a drop without a code: " + end.Reason)
		}
		reached.Store(end.Code, true)
	}
	for _, step := range d.Walk {
		reached.Store(step.Kind, true)
	}
	return d
}

// TestCodes: drops that no other test provokes.
func TestCodes(t *testing.T) {
	t.Parallel()
	scoped := func(l *lab, k link, scope string) {
		b := k.bundle()
		b.Ports[0].AddressScope4 = scope
		l.Apply(k.owner(), b)
	}
	toY := frameSpec{n: 1, to: 1, src: ipX, dst: ipY}.udp(1, 2)
	for _, c := range []struct {
		code  flow.Code
		world func() *lab
		in    Input
	}{
		{flow.CodeFirewall, func() *lab {
			l := example()
			l.Apply(owner("firewall", "f"), &topology.Bundle{
				Chains: []topology.Chain{{ID: "f", Name: "OS_FW_FORWARD_f", Purpose: topology.PurposeFirewall, Rules: []topology.Rule{
					literal("f/no", topology.Drop, topology.Condition{NwProto: ptr(uint8(packet.ProtoUDP))}), literal("f/yes", topology.Accept, topology.Condition{})}}},
				Rules: []topology.RuleEntry{{ChainID: "r/fwd", Place: 10, Rule: jumpTo("fw", "f")}},
			})
			return l
		}, Input{PortID: "p-x", Frame: toY}},
		{flow.CodeNoNeighbour, example, Input{PortID: "p-x", Frame: frameSpec{n: 1, to: 1, src: ipX, dst: ip("10.2.0.99")}.udp(1, 2), Overdue: true}},
		{flow.CodeAddressScope, func() *lab {
			l := example()
			scoped(l, r1, "one")
			scoped(l, r2, "two")
			return l
		}, Input{PortID: "p-x", Frame: toY}},
		{flow.CodeNoCarrier, func() *lab {
			l := onLAN()
			l.LearnMAC(topology.LearnedMAC{HostID: "h1", NetworkID: "net", MAC: mac(outsider), PortID: "lan-net"}, 1)
			l.host("h1")
			l.host("h2")
			return l
		}, Input{PortID: "p3", Frame: udp(3, outsider, 1, 2)}},
		{flow.CodeMetadataAway, metadataLab, Input{PortID: "p1", Frame: toAddress(1, addr(1), ip("169.254.169.254"), 80), State: noState{}}},
	} {
		l := c.world()
		c.in.Explain = true
		if c.in.State == nil {
			c.in.State = l.mem
		}
		d := l.sim.Run(c.in)
		if d.Code != c.code || !slices.ContainsFunc(d.Walk, func(s flow.Step) bool { return s.Code == c.code }) {
			t.Errorf("got %s, want %s\n%s", d.Code, c.code, walk(d))
		}
	}
}

// TestCodeOfReplies: the reply of a member whose balancer is down by now.
func TestCodeOfReplies(t *testing.T) {
	t.Parallel()
	l := balanced1(service{at: vipOutside, members: []backend{memberX}})
	got := l.expectAt(t, "p-up", fromUp(vipOutside.Addr()).tcp(4000, 80), "p-w", "198.51.100.7:4000→10.1.0.6:8080")
	l.Apply(owner("load-balancer", "lb-r"), &topology.Bundle{LoadBalancers: []topology.LoadBalancer{{ID: "lb-r", RouterID: "r"}}})
	if d := l.send("p-w", tcpReply(got)); d.Code != flow.CodeLBDown {
		t.Errorf("got %s, want %s\n%s", d.Code, flow.CodeLBDown, walk(d))
	}
}
