package overlay

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
)

// localIP makes the address of a machine a local IP, and returns it.
func (m *machine) localIP(mode string) *neutron.LocalIP {
	m.lab.t.Helper()
	l := &neutron.LocalIP{Standard: neutron.Standard{ID: uuid.NewString()}, LocalPortID: m.port.ID, NetworkID: m.port.NetworkID, Address: m.v4, Mode: mode}
	b := translate.Port(&m.port, &m.net.net, m.groups)
	b.LocalIPs = append(b.LocalIPs, translate.LocalIPHome(l, &m.port))
	m.lab.put(m.owner(), &b)
	return l
}

// standFor associates local IPs with the machine, and none else.
func (m *machine) standFor(ls ...*neutron.LocalIP) {
	m.lab.t.Helper()
	b := translate.Port(&m.port, &m.net.net, m.groups)
	for _, l := range ls {
		a := &neutron.LocalIPAssociation{LocalIPID: l.ID, FixedPortID: m.port.ID, FixedIP: m.v4}
		b.LocalIPs = append(b.LocalIPs, translate.LocalIP(l, a, &m.port))
	}
	m.lab.put(m.owner(), &b)
}

// awaitNeighbour waits until the machine asks for an address and gets a MAC address.
func (m *machine) awaitNeighbour(ip netip.Addr, of *machine) {
	m.lab.t.Helper()
	m.lab.wait("the neighbour "+ip.String(), func() bool {
		m.forgetNeighbours()
		_ = m.ping(ip, 1) // asks
		out, err := m.Output(m.lab.t.Context(), "ip", "neigh", "show", ip.String())
		return err == nil && strings.Contains(string(out), of.port.MACAddress.String())
	})
}

// TestLocalIPs: the machines of two hosts reach each their own host's machine by one address, by
// TCP, UDP and echo, with answers that bear it; without an association, and with what the machine
// still has in its neighbour table, they reach the machine that has the address.
func TestLocalIPs(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	owner := n.machine(l.hosts[2], g)
	var clients, backends []*machine
	var served []chan netip.Addr
	local := owner.localIP(neutron.LocalIPTranslate)
	for _, h := range l.hosts[:2] {
		client, backend := n.machine(h, g), n.machine(h, g)
		backend.standFor(local)
		backend.echoUDP(9)
		clients, backends, served = append(clients, client), append(backends, backend), append(served, backend.serve(80))
	}
	atOwner := owner.serve(80)
	for i, c := range clients {
		c.awaitNeighbour(owner.v4, backends[i])
		_ = c.connect(owner.v4, served[i], c.v4)
		_ = c.connect(backends[i].v4, served[i], c.v4) // by its own address as well
		u := c.dialUDP(owner.v4, 9)                    // takes answers from there alone
		exchangeDatagrams(t, u, make([]byte, 500), 40)
		if err := c.ping(owner.v4, 20); err != nil {
			t.Errorf("echo to the local IP on %s: %v", c.host.name, err)
		}
	}
	_ = backends[0].connect(owner.v4, atOwner, backends[0].v4) // itself one of them

	// The client keeps the MAC address that it has.
	clients[0].MustIP(t, "neigh replace "+owner.v4.String()+" lladdr "+backends[0].port.MACAddress.String()+" dev eth0 nud permanent")
	backends[0].standFor()
	// reached returns a condition: that a connection to the local IP comes in at the owner, or else
	// at the backend.
	reached := func(wantOwner bool) func() bool {
		return func() bool {
			c, err := clients[0].dial(owner.v4, 80, short)
			if err != nil {
				return false
			}
			defer c.Close()
			select {
			case <-atOwner:
				return wantOwner
			case <-served[0]:
				return !wantOwner
			}
		}
	}
	l.wait("the owner to be reached", reached(true))
	backends[0].standFor(local)
	l.wait("the backend to be reached again", reached(false))
	u := clients[1].dialUDP(owner.v4, 9)
	exchangeDatagrams(t, u, make([]byte, 500), 5) // the other host's stayed
}

// TestPassedLocalIP: in mode passthrough the machines of a host have the address themselves.
func TestPassedLocalIP(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	owner, client, backend := n.machine(l.hosts[1], g), n.machine(l.hosts[0], g), n.machine(l.hosts[0], g)
	far := n.machine(l.hosts[1], g)
	local := owner.localIP(neutron.LocalIPPassthrough)
	backend.MustIP(t, "addr add "+local.Address.String()+"/32 dev eth0")
	backend.port.AllowedAddressPairs = []neutron.AddressPair{{IPAddress: local.Address.String(), MACAddress: backend.port.MACAddress}}
	backend.standFor(local)
	here, there := backend.serve(80), owner.serve(80)
	client.awaitNeighbour(owner.v4, backend)
	_ = client.connect(owner.v4, here, client.v4)
	_ = far.connect(owner.v4, there, far.v4)
}
