package overlay

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/control/translate"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// audience is a server that knows who is connected to it.
type audience struct {
	mu    sync.Mutex
	live  map[netip.AddrPort]bool
	twice []netip.AddrPort // clients that came while another had their address and port
}

// audience echoes what comes in on a TCP port of the machine.
func (m *machine) audience(port int) *audience {
	t := m.lab.t
	t.Helper()
	var l net.Listener
	if err := m.Do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprint(":", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a := &audience{live: map[netip.AddrPort]bool{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			client := c.RemoteAddr().(*net.TCPAddr).AddrPort()
			a.enter(client)
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // the client sees what is missing
				a.leave(client)
			}()
		}
	}()
	return a
}

func (a *audience) enter(client netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.live[client] {
		a.twice = append(a.twice, client)
	}
	a.live[client] = true
}

func (a *audience) leave(client netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.live, client)
}

// check fails unless n clients are connected, each with a port of its own of one address.
func (a *audience) check(l *lab, n int, address netip.Addr) {
	l.t.Helper()
	l.wait(fmt.Sprintf("%d clients to be connected", n), func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.live) == n
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.twice) > 0 {
		l.t.Errorf("given to two connections at once: %v", a.twice)
	}
	for client := range a.live {
		if client.Addr() != address {
			l.t.Errorf("a client comes from %v, want %v", client, address)
		}
	}
}

// streams are connections that must go on.
type streams struct {
	l   *lab
	all []net.Conn
}

// open opens n connections at once from each machine.
func (s *streams) open(to netip.Addr, n int, from ...*machine) {
	t := s.l.t
	t.Helper()
	type result struct {
		c   net.Conn
		err error
	}
	results := make(chan result)
	for _, m := range from {
		for range n {
			go func() {
				c, err := m.dial(to, 80, 30*time.Second) // an agent may have to start first
				results <- result{c, err}
			}()
		}
	}
	for range n * len(from) {
		r := <-results
		if r.err != nil {
			s.l.logs()
			t.Fatal(r.err)
		}
		t.Cleanup(func() { r.c.Close() })
		s.all = append(s.all, r.c)
	}
}

// goOn has bytes go both ways over all connections.
func (s *streams) goOn(when string) {
	s.l.t.Helper()
	for i, c := range s.all {
		if err := exchange(c, 2000, 10*time.Second); err != nil {
			s.l.logs()
			s.l.t.Fatalf("connection %d %s: %v", i, when, err)
		}
	}
}

// TestNATFaults: connections by one gateway's address from two hosts, opened at once, never share a
// port, and go on with those by a floating IP while the store is away and while an agent is killed
// and started; ports leased before serve new connections without the store, and none that is in use
// is given to another.
func TestNATFaults(t *testing.T) {
	t.Parallel()
	l := newRemoteLab(t, 3)
	r := l.routed()
	l.start()
	h := l.hosts[0]
	one, two, web, outside := r.machine(h), r.machine(l.hosts[1]), r.machine(h), r.external.machine(l.hosts[2])
	floating := r.float(web, "192.0.2.20")
	clients, visitors := outside.audience(80), web.audience(80)

	s := &streams{l: l}
	s.open(outside.v4, 50, one, two)
	s.open(floating, 2, outside)
	s.goOn("at first")
	clients.check(l, 100, r.gatewayIP)
	visitors.check(l, 2, outside.v4)

	l.server.stop()
	s.goOn("without the store")
	s.open(outside.v4, 2, one, two) // of the blocks that their hosts hold
	s.goOn("without the store, the later ones too")
	l.server.start()
	clients.check(l, 104, r.gatewayIP)

	blocks := h.agent.engine.ports.Held()
	h.stop()
	for round := range 2 {
		kill := h.startProcess()
		s.open(outside.v4, 5, one)
		s.goOn(fmt.Sprintf("with agent process %d", round))
		kill()
		s.goOn(fmt.Sprintf("after agent process %d was killed", round))
	}
	h.start()
	s.goOn("after the last start")
	clients.check(l, 114, r.gatewayIP)
	visitors.check(l, 2, outside.v4)
	e := h.agent.engine
	if got := e.ports.Held(); got < blocks {
		t.Errorf("the host holds %d blocks of ports, before it was killed %d", got, blocks)
	}
	if n := e.count.different.Load(); n != 0 {
		t.Errorf("%d flows are not as they should be", n)
	}
}

// TestNATExhausted: when all ports of a gateway are in use for a destination, half of them by one
// machine, packets to it are dropped with the reason and counted, live connections keep their
// ports, and other destinations are reached.
func TestNATExhausted(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	r := l.routed()
	b := translate.RouterGateway(&r.router, r.gateway, true)
	const first, ports = 2048, 64
	narrowed := 0
	for i := range b.Rules {
		targets := b.Rules[i].Rule.NatTargets
		for j := range targets {
			targets[j].TpStart, targets[j].TpEnd = first, first+ports-1
			narrowed++
		}
	}
	if narrowed == 0 {
		t.Fatal("the gateway has no rule with ports")
	}
	l.put(topology.Owner{Kind: "router-gateway", ID: r.gateway.Port.ID}, &b)
	l.start()
	one, two, three := r.machine(l.hosts[0]), r.machine(l.hosts[0]), r.machine(l.hosts[0])
	outside, other := r.external.machine(l.hosts[0]), r.external.machine(l.hosts[0])
	clients, others := outside.audience(80), other.audience(80)
	e := l.hosts[0].agent.engine
	s := &streams{l: l}
	refused := func(m *machine, count *atomic.Uint64, reason string) {
		t.Helper()
		before := count.Load()
		if c, err := m.dial(outside.v4, 80, short); err == nil {
			c.Close()
			t.Errorf("one connection more of %s", m.Name)
		}
		if count.Load() == before {
			t.Errorf("a packet of %s without a port was not counted", m.Name)
		}
		body := tcpSyn(5000, 80)
		frame := packet.Ethernet{Dst: r.inside.Port.MACAddress, Src: m.port.MACAddress, Type: packet.TypeIPv4}.Append(nil)
		frame = packet.IPv4{TTL: 64, Proto: packet.ProtoTCP, Src: m.v4, Dst: outside.v4}.Append(frame, len(body))
		answer := (&traces{engine: e, sim: simulate.NewSimulator(e.net.world)}).answer(&flow.TraceRequest{PortID: m.port.ID, Frame: append(frame, body...)})
		if answer.Reason != reason {
			t.Errorf("the reason is %q, want %q", answer.Reason, reason)
		}
	}
	s.open(outside.v4, ports/2, one)
	refused(one, &e.count.shareUsed, one.v4.String()+" uses half of the NAT ports of 192.0.2.5 for this destination: its share")
	s.open(outside.v4, ports/2, two)
	clients.check(l, ports, r.gatewayIP)
	refused(three, &e.count.exhausted, "all NAT ports of 192.0.2.5 are in use for this destination")
	s.open(other.v4, 1, one, three)
	others.check(l, 2, r.gatewayIP)
	s.goOn("when the ports were exhausted")
	clients.check(l, ports, r.gatewayIP)
}

// tcpSyn is a TCP header without options whose checksum nobody reads.
func tcpSyn(from, to uint16) []byte {
	b := make([]byte, 20)
	b[0], b[1], b[2], b[3] = byte(from>>8), byte(from), byte(to>>8), byte(to)
	b[12], b[13] = 5<<4, 2
	return b
}
