package overlay

import (
	"fmt"
	"net"
	"testing"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// moveTo binds the machine's port to another host, as a server does while the host before serves
// it.
func (m *machine) moveTo(h *testHost) {
	m.lab.t.Helper()
	m.port.PreviousHostID, m.port.PreviousInterface = m.host.id, m.port.InterfaceName
	m.port.BoundHostID, m.host = h.id, h
	m.bind()
}

// arrived has frames go to the host that the port is bound to now, as a server does when that host
// serves the port.
func (m *machine) arrived() {
	m.lab.t.Helper()
	m.served()
	m.port.PreviousInterface = ""
	m.bind()
}

// settled forgets the host before.
func (m *machine) settled() {
	m.lab.t.Helper()
	m.port.PreviousHostID = ""
	m.bind()
}

// follows waits until all hosts have read the port's binding.
func (m *machine) follows() {
	m.lab.t.Helper()
	m.lab.wait("all hosts to read the binding", func() bool {
		for _, h := range m.lab.hosts {
			b, ok := schema.Bundles.Peek(records.Over(h.agent.replica.Snapshot()), schema.BundleID(m.owner()))
			if !ok {
				return false
			}
			if p := b.Bundle.Ports[0]; p.HostID != m.port.BoundHostID || p.PreviousHostID != m.port.PreviousHostID || p.PreviousInterface != m.port.PreviousInterface {
				return false
			}
		}
		return true
	})
}

// TestMigration: a machine moves from host to host with its addresses. Connections from it by SNAT,
// and to its floating IP, go on: while it is not there yet, while frames still go to the host
// before, and when that has been forgotten. Connections opened meanwhile, and one that was silent,
// go on as well.
func TestMigration(t *testing.T) {
	t.Parallel()
	for name, grouped := range map[string]bool{"stateful groups": true, "no groups": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 3)
			r := l.routed()
			l.start()
			h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
			var groups []*neutron.SecurityGroup
			if grouped {
				// Replies pass because their connections are known, and for no other reason.
				groups = append(groups, l.group(allow("egress", "IPv4", "", 0), allow("ingress", "IPv4", "tcp", 80)))
			}
			m := r.private.machine(h1, groups...)
			m.MustIP(t, "route add default via 10.0.0.1")
			outside, neighbour := r.external.machine(h3), r.private.machine(h1)
			floating := r.float(m, "192.0.2.20")
			fromMachine, fromOutside := outside.serve(80), m.serve(80)
			streams := map[string]net.Conn{}
			open := func(when string) {
				t.Helper()
				streams["from the machine, opened "+when] = m.connect(outside.v4, fromMachine, floating)
				streams["to the floating IP, opened "+when] = outside.connect(floating, fromOutside, outside.v4)
				streams["of the network, opened "+when] = neighbour.connect(m.v4, fromOutside, neighbour.v4)
			}
			open("before")
			silent := m.connect(outside.v4, fromMachine, floating)
			through := func(when string) {
				t.Helper()
				for name, c := range streams {
					if err := exchange(c, 20000, 10*time.Second); err != nil {
						l.logs()
						t.Fatalf("connection %s, %s: %v", name, when, err)
					}
				}
			}
			m.moveTo(h2)
			m.follows()
			through("while it is bound to the next host and not there")
			open("while it is bound to the next host and not there")
			h1.ns.MustIP(t, fmt.Sprintf("link set %s netns %s", m.port.InterfaceName, h2.ns.Name))
			m.served()
			through("while frames go to the host before")
			m.arrived()
			m.follows()
			through("on the next host")
			if err := exchange(silent, 20000, 10*time.Second); err != nil {
				t.Errorf("the silent connection: %v", err)
			}
			open("on the next host")
			m.settled()
			m.follows()
			through("when the host before is forgotten")
			for _, h := range l.hosts {
				h.stop()
				h.start()
				through("after a restart of the agent of " + h.name)
			}
			if got := len(h1.agent.dp.Ports()); got != 1 {
				t.Errorf("the host before has %d ports, want the neighbour's", got)
			}
		})
	}
}

// TestMigrationBySNAT: a connection that left by ports of the host before keeps them, and that host
// does not give them away while the connection lasts.
func TestMigrationBySNAT(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	r := l.routed()
	l.start()
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	m, outside := r.machine(h1), r.external.machine(h3)
	c := m.connect(outside.v4, outside.serve(80), r.gatewayIP)
	m.moveTo(h2)
	m.follows()
	h1.ns.MustIP(t, fmt.Sprintf("link set %s netns %s", m.port.InterfaceName, h2.ns.Name))
	m.arrived()
	m.settled()
	m.follows()
	if err := exchange(c, 20000, 10*time.Second); err != nil {
		l.logs()
		t.Fatal(err)
	}
	source := c.LocalAddr().(*net.TCPAddr).AddrPort()
	e := h2.agent.engine
	entries := e.nats.Select(e.clock(), func(_ string, n flow.NATEntry) bool { return n.Src == source.Addr() && n.SrcPort == source.Port() })
	if len(entries) != 1 {
		t.Fatalf("%d translations of the connection on its host", len(entries))
	}
	if holder := e.ports.Holder(entries[0].Device, entries[0].Addr, entries[0].Port); holder != h1.id {
		t.Errorf("its port is of a block of %q, want %q", holder, h1.id)
	}
	e.nats.TakeDue()
	e.nats.Touch(entries[0].NATKey, e.clock()+flowstate.ResendAfter)
	if due := e.nats.TakeDue(); len(due[h1.id]) != 1 || len(due[h3.id]) != 1 {
		t.Errorf("in use, the translation is sent to %v; want the host of its block and that of its way out", due)
	}
}
