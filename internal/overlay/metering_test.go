package overlay

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/simulate"
)

// forward leads a port of a floating address to one of a machine.
func (r *routed) forward(m *machine, f *neutron.FloatingIP, protocol string, external, internal neutron.PortRange) {
	r.lab.t.Helper()
	x := &neutron.PortForwarding{Standard: neutron.Standard{ID: uuid.NewString()}, FloatingIPID: f.ID, Protocol: protocol, External: external,
		InternalPortID: m.port.ID, InternalIPAddress: m.v4, Internal: internal}
	b := translate.PortForwarding(x, f, &r.router, r.gateway)
	r.lab.put(topology.Owner{Kind: "port-forwarding", ID: x.ID}, &b)
}

// meter counts what passes the router in one direction.
func (r *routed) meter(rules ...*neutron.MeteringLabelRule) string {
	r.lab.t.Helper()
	l := &neutron.MeteringLabel{Standard: neutron.Standard{ID: uuid.NewString(), ProjectID: r.router.ProjectID}}
	b := translate.MeteringLabel(l, rules)
	r.lab.put(topology.Owner{Kind: "metering-label", ID: l.ID}, &b)
	return l.ID
}

// metered returns what all hosts have counted for a label.
func (l *lab) metered(label string) (packets, bytes int) {
	for _, h := range l.hosts {
		for _, v := range h.agent.engine.meters.figures() {
			switch {
			case v.Label("label") != label:
			case v.Name == "heddle_metering_packets_total":
				packets += int(v.Value)
			default:
				bytes += int(v.Value)
			}
		}
	}
	return packets, bytes
}

// exchangeDatagrams sends datagrams to an echo and waits for each answer.
func exchangeDatagrams(t *testing.T, c net.Conn, payload []byte, times int) {
	t.Helper()
	room := make([]byte, 2*len(payload))
	for range times {
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(payload); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(room); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForwardedAndMetered: a floating IP's ports lead to machines on two hosts, by TCP and UDP,
// also for machines behind the router; labels count what passes the gateway to the last byte, and
// go on when flows are removed.
func TestForwardedAndMetered(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	r := l.routed()
	l.start()
	web, other := r.machine(l.hosts[0]), r.machine(l.hosts[1])
	client := r.external.machine(l.hosts[1])
	f := &neutron.FloatingIP{Standard: neutron.Standard{ID: uuid.NewString()}, FloatingNetworkID: r.external.net.ID,
		FloatingIPAddress: netip.MustParseAddr("192.0.2.9"), RouterID: r.router.ID, ServedBy: r.gateway.Port.ID}
	one := func(p uint16) neutron.PortRange { return neutron.PortRange{First: p, Last: p} }
	r.forward(web, f, "tcp", one(80), one(8080))
	r.forward(other, f, "udp", neutron.PortRange{First: 5000, Last: 5001}, neutron.PortRange{First: 6000, Last: 6001})
	inside := netip.PrefixFrom(other.v4, 32)
	ingress := r.meter(&neutron.MeteringLabelRule{Direction: neutron.DirectionIngress, Remote: inside})
	egress := r.meter(&neutron.MeteringLabelRule{Direction: neutron.DirectionEgress, Source: inside})
	excluded := r.meter(&neutron.MeteringLabelRule{Direction: neutron.DirectionIngress, Destination: netip.MustParsePrefix("10.0.0.0/8")},
		&neutron.MeteringLabelRule{Direction: neutron.DirectionIngress, Destination: inside, Excluded: true})

	from := web.serve(8080)
	c := client.connect(f.FloatingIPAddress, from, client.v4)
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	_ = other.connect(f.FloatingIPAddress, from, r.gatewayIP) // from behind the router

	other.echoUDP(6001)
	u := client.dialUDP(f.FloatingIPAddress, 5001)
	defer u.Close()
	const size, times = 500, 40
	sent := 0
	check := func(what string) {
		t.Helper()
		sent += times
		for label, name := range map[string]string{ingress: "ingress", egress: "egress"} {
			if packets, bytes := l.metered(label); packets != sent || bytes != sent*(size+28) {
				t.Errorf("%s, %s: %d packets of %d bytes, want %d of %d", what, name, packets, bytes, sent, sent*(size+28))
			}
		}
	}
	exchangeDatagrams(t, u, make([]byte, size), times)
	check("at first")
	for _, h := range l.hosts { // all flows go: their counters must not
		h.agent.engine.net.apply(func(*simulate.World) []string { return []string{r.router.ID} })
	}
	exchangeDatagrams(t, u, make([]byte, size), times)
	check("after a change of the router")
	if packets, _ := l.metered(excluded); packets == 0 || packets >= sent { // the web server's alone
		t.Errorf("without the excluded address: %d packets", packets)
	}
}
