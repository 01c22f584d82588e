package overlay

import (
	"net"
	"net/netip"
	"strconv"
	"testing"

	"heddle/internal/control/translate"
	"heddle/internal/topology/flow"
)

// counted returns what a host has counted about packets of one port, by rule or by code.
func (h *testHost) counted(q flow.CountersRequest) *flow.CountersAnswer {
	h.lab.t.Helper()
	a, err := h.agent.engine.counters(&q)
	if err != nil {
		h.lab.t.Fatal(err)
	}
	return a
}

// udp returns a socket connected to a port of another machine.
func (m *machine) udp(to *machine, port int) (c net.Conn) {
	m.lab.t.Helper()
	err := m.Do(func() (err error) {
		c, err = net.Dial("udp", netip.AddrPortFrom(to.v4, uint16(port)).String())
		return err
	})
	if err != nil {
		m.lab.t.Fatal(err)
	}
	m.lab.t.Cleanup(func() { c.Close() })
	return c
}

// sink takes in what comes to a UDP port of the machine.
func (m *machine) sink(port int) {
	m.lab.t.Helper()
	err := m.Do(func() error {
		c, err := net.ListenPacket("udp4", ":"+strconv.Itoa(port))
		if err == nil {
			m.lab.t.Cleanup(func() { c.Close() })
		}
		return err
	})
	if err != nil {
		m.lab.t.Fatal(err)
	}
}

// send sends so many datagrams.
func send(t *testing.T, c net.Conn, times int) {
	t.Helper()
	for range times {
		if _, err := c.Write([]byte("heddle")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDecisionsCounted: packets are counted to the last one by what was decided about them, those
// of cached flows with them; flows that are removed or replaced lose none, and an agent that starts
// counts from there.
func TestDecisionsCounted(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	client := l.group(allow("egress", "IPv4", "", 0))
	// What machines' kernels send by themselves is IPv6.
	server := l.group(allow("egress", "IPv4", "", 0), allow("ingress", "IPv4", "udp", 53), allow("ingress", "IPv6", "", 0))
	l.start()
	h := l.hosts[0]
	a, b := n.machine(h, client), n.machine(h, server)

	drops := func(want uint64) {
		t.Helper()
		var x flow.Counter
		l.wait("the dropped packets to be counted", func() bool {
			got := h.counted(flow.CountersRequest{PortID: b.port.ID}).Counters
			if len(got) == 1 {
				x = got[0]
			}
			return x.Packets >= want && len(got) <= 1
		})
		if want == 0 && x == (flow.Counter{}) {
			return
		}
		if x.Packets != want || x.Code != flow.CodeNoRule || x.Direction != flow.Ingress || x.Rule == "" || x.Device != "" {
			t.Errorf("%d packets dropped, counted %+v", want, x)
		}
	}
	passed := func(want uint64) {
		t.Helper()
		rule := func() (packets uint64) {
			for _, x := range h.counted(flow.CountersRequest{Rules: true}).Counters {
				if translate.IsOfGroupRule(&server.Rules[1], x.Rule) {
					packets += x.Packets
				}
			}
			return packets
		}
		l.wait("the packets that a rule lets pass to be counted", func() bool { return rule() >= want })
		if got := rule(); got != want {
			t.Errorf("%d packets passed by a rule, counted %d", want, got)
		}
	}
	b.sink(53)
	refused, accepted := a.udp(b, 80), a.udp(b, 53)
	send(t, refused, 100)
	drops(100)
	send(t, accepted, 50)
	passed(50)

	l.setRules(server, append(server.Rules, allow("ingress", "IPv4", "tcp", 22))...) // the flows are replaced
	send(t, refused, 10)
	drops(110)

	h.stop()
	send(t, refused, 7) // dropped by the flow, without an agent
	h.start()
	drops(0)
	send(t, refused, 5)
	drops(5)
}

// TestRemovedFlowsCounted: flows that make room for others, or are replaced, lose no packet.
func TestRemovedFlowsCounted(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	server := l.group(allow("ingress", "IPv6", "", 0))
	h := l.hosts[0]
	h.options.MaxFlows = 64
	l.start()
	a, b := n.machine(h, l.group(allow("egress", "IPv4", "", 0))), n.machine(h, server)
	const flows, packets = 300, 5
	for range packets {
		for port := range flows {
			send(t, a.udp(b, 1000+port), 1)
		}
	}
	counted := func() (packets uint64) {
		for _, x := range h.counted(flow.CountersRequest{PortID: b.port.ID}).Counters {
			packets += x.Packets
		}
		return packets
	}
	l.wait("the dropped packets to be counted", func() bool { return counted() >= flows*packets })
	if got := counted(); got != flows*packets {
		t.Errorf("%d packets dropped, counted %d", flows*packets, got)
	}
	if a := h.counted(flow.CountersRequest{}); a.Unsettled > 0 {
		t.Errorf("%d flows have gone uncounted", a.Unsettled)
	}
}
