package overlay

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// reports returns the writing of a host's underlay record, with addresses in the default zone.
func reports(t testing.TB, host string, addrs ...netip.Addr) store.Op {
	t.Helper()
	u := &topology.HostUnderlay{HostID: host}
	for _, a := range addrs {
		u.Tunnels = append(u.Tunnels, topology.HostTunnel{ZoneID: topology.DefaultTunnelZone, IP: a})
	}
	value, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	return store.Op{Key: schema.Underlays.KeyOf(u), Value: value}
}

func (h *testHost) knows(addr netip.Addr) bool {
	_, is := h.agent.dp.Peers()[addr]
	return is
}

// absent is an address to which no route leads.
func absent(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}) }

// One host's record takes the room of one address in others, however many it names, and the log
// names it once.
func TestHostReportsManyAddresses(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	h1.start()
	h2.start()
	l.wait("host 2 to be known", func() bool { return h1.knows(h2.ip) })
	h2.stop() // or it would correct its record
	all := []netip.Addr{absent(0)}
	for i := range 9000 {
		all = append(all, absent(i))
	}
	l.commit(reports(t, h2.id, all...))
	l.wait("the new address to be known", func() bool { return h1.knows(absent(0)) })
	if n := len(h1.agent.dp.Peers()); n != 1 {
		t.Errorf("%d peers by the record of one host", n)
	}
	h3.start()
	l.wait("a new host to be known", func() bool { return h1.knows(h3.ip) })
	if n := strings.Count(h1.log.String(), "ignoring tunnel addresses of a host"); n != 1 {
		t.Errorf("the log says so %d times", n)
	}
}

// A host for which there was no room is known once there is.
func TestRoomForHosts(t *testing.T) {
	t.Parallel()
	const most = 4096
	l := newLab(t, 2)
	h1, h2 := l.hosts[0], l.hosts[1]
	h1.start()
	ops := make([]store.Op, 0, 2*most)
	for i := range most {
		id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		value, err := json.Marshal(&topology.Host{ID: id, Name: fmt.Sprint("fake", i)})
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, store.Op{Key: schema.Hosts.Key(id), Value: value}, reports(t, id, absent(i)))
	}
	l.commit(ops...)
	l.wait("there to be no room", func() bool { return len(h1.agent.dp.Peers()) == most })
	h2.start()
	l.wait("the log to say that a host is left out", func() bool { return strings.Contains(h1.log.String(), "cannot enter a host") })
	if h1.knows(h2.ip) {
		t.Fatal("there is room still")
	}
	l.commit(store.Op{Key: ops[0].Key, Delete: true})
	l.wait("host 2 to be known", func() bool { return h1.knows(h2.ip) })
}

// A host cannot take another's tunnel address, even when that changes its record later; who is
// concerned says what to do.
func TestTakenTunnelAddress(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.start()
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	l.wait("the hosts to be known", func() bool { return h1.knows(h2.ip) && h1.knows(h3.ip) && h3.knows(h2.ip) })
	h2.stop()
	l.commit(reports(t, h2.id, h3.ip, h2.ip))
	l.wait("host 2 to lose its own address", func() bool { return !h1.knows(h2.ip) && !h3.knows(h2.ip) })
	if owner := h1.owner(h3.ip); owner != h3.id {
		t.Errorf("the address of host 3 is that of %s", owner)
	}
	h3.stop()
	l.commit(reports(t, h3.id, h3.ip, absent(1)))
	l.wait("the log to name host 3", func() bool { return strings.Contains(h1.log.String(), h3.id+" reported=2 counted=1") })
	if owner := h1.owner(h3.ip); owner != h3.id {
		t.Errorf("host 3 changed its record, and its address is that of %s", owner)
	}
	if !strings.Contains(h3.log.String(), "another host reports the tunnel address of this one") {
		t.Error("host 3 is not told")
	}
}

// owner returns the host whose address it is, as this host has it.
func (h *testHost) owner(a netip.Addr) string {
	e := h.agent.engine
	e.net.mu.RLock()
	defer e.net.mu.RUnlock()
	return e.net.hosts[a]
}

// What a host reports to have seen counts where it has a port: a MAC address behind that port
// alone, an IP address in the network of one. When ports come and go, it is judged again.
func TestLearnedWithoutPort(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	blue, red := l.network("blue"), l.network("red")
	mine, other := blue.port(h2), blue.port(h3)
	foreign := red.port(h2)
	mac, ip := packet.MAC{2, 0, 0, 0, 0, 0x77}, netip.MustParseAddr("10.0.0.77")
	sighting := func(behind *machine) []store.Op {
		m := &topology.LearnedMAC{HostID: h2.id, NetworkID: blue.net.ID, MAC: mac, PortID: behind.port.ID}
		n := &topology.LearnedNeighbour{HostID: h2.id, NetworkID: blue.net.ID, IP: ip, MAC: mac}
		var ops []store.Op
		for key, record := range map[string]any{schema.LearnedMACs.KeyOf(m): m, schema.LearnedNeighbours.KeyOf(n): n} {
			value, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, store.Op{Key: key, Value: value})
		}
		return ops
	}
	// at returns the port behind which host 1 has the address, and whether it knows whose the IP
	// address is.
	h1.start()
	at := func() (port string, known bool) {
		e := h1.agent.engine
		e.net.mu.RLock()
		defer e.net.mu.RUnlock()
		port, _ = e.net.world.MACPort(blue.net.ID, mac)
		_, _, known = e.net.world.Neighbour(blue.net.ID, ip)
		return port, known
	}
	seen := func(what, wantPort string, wantKnown bool) {
		t.Helper()
		// What comes later is applied later: once the mark is there, all before it has been judged.
		mark := red.port(h1)
		mark.bind()
		l.wait(what, func() bool {
			e := h1.agent.engine
			e.net.mu.RLock()
			defer e.net.mu.RUnlock()
			return e.net.world.Bound(mark.port.ID, red.net.ID, h1.id)
		})
		if port, known := at(); port != wantPort || known != wantKnown {
			t.Errorf("%s: the MAC is behind %q and the address known: %v; want %q, %v", what, port, known, wantPort, wantKnown)
		}
	}
	other.bind()
	foreign.bind()
	l.commit(sighting(other)...)
	seen("behind a port of another host, without one in the network", "", false)
	l.commit(sighting(foreign)...)
	seen("behind a port in another network", "", false)
	l.commit(sighting(mine)...)
	seen("behind a port that is not there yet", "", false)
	mine.bind()
	seen("behind a port that has come", mine.port.ID, true)
	l.commit(sighting(other)...)
	seen("behind a port of another host, with one in the network", "", true)
	l.commit(sighting(mine)...)
	seen("behind its own port again", mine.port.ID, true)
	l.put(mine.owner(), nil)
	seen("behind a port that has gone", "", false)
}
