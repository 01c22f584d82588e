package overlay

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// What a client asks an obedient server to do, by a byte.
const (
	echoOne   = 'e' // send it back
	closeHalf = 'h' // send no more, but go on reading
	keepOn    = 'k' // send on and on, whatever the client closes
	resetAll  = 'r' // reset the connection
)

// sendOn sends to a client until it cannot.
func sendOn(c *net.TCPConn) {
	for range time.Tick(20 * time.Millisecond) {
		if _, err := c.Write([]byte{keepOn}); err != nil {
			return
		}
	}
}

// obey serves one connection as the client asks until that closes it.
func obey(c *net.TCPConn) {
	for b := make([]byte, 1); ; {
		if _, err := c.Read(b); err != nil {
			return
		}
		var err error
		switch b[0] {
		case echoOne:
			_, err = c.Write(b)
		case closeHalf:
			err = c.CloseWrite()
		case keepOn:
			sendOn(c)
			return
		case resetAll:
			_ = c.SetLinger(0)
			return
		}
		if err != nil {
			return
		}
	}
}

// obeyed is a client's connection to a VIP with obedient members.
type obeyed struct {
	*net.TCPConn
	t    testing.TB
	from netip.AddrPort
}

// ask opens a connection by a VIP, from a port of the client's or any.
func (m *machine) ask(vip netip.AddrPort, from uint16) *obeyed {
	t := m.lab.t
	t.Helper()
	var c net.Conn
	var err error
	m.lab.wait("the port to be free", func() bool { // the one before may not have its last ACK yet
		err = m.Do(func() (err error) {
			d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: m.v4.AsSlice(), Port: int(from)}}
			c, err = d.Dial("tcp4", vip.String())
			return err
		})
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	if err != nil {
		m.lab.logs()
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	o := &obeyed{c.(*net.TCPConn), t, c.LocalAddr().(*net.TCPAddr).AddrPort()}
	o.echoes()
	return o
}

func (c *obeyed) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("connection from %s: %v", c.from, err)
	}
}

// send asks the server for something.
func (c *obeyed) send(what byte) {
	c.t.Helper()
	_, err := c.Write([]byte{what})
	c.must(err)
}

// echoes checks that the connection works both ways.
func (c *obeyed) echoes() {
	c.t.Helper()
	c.send(echoOne)
	c.receives()
}

// receives checks that something comes from the server.
func (c *obeyed) receives() {
	c.t.Helper()
	c.must(c.SetReadDeadline(time.Now().Add(10 * time.Second)))
	_, err := c.Read(make([]byte, 1))
	c.must(err)
}

// ends checks how the server's direction ends.
func (c *obeyed) ends(want error) {
	c.t.Helper()
	c.must(c.SetReadDeadline(time.Now().Add(10 * time.Second)))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, want) {
		c.t.Fatalf("the connection from %s ends with %v, want %v", c.from, err, want)
	}
}

// closeAfterServer has the server close the connection first.
func (c *obeyed) closeAfterServer() {
	c.t.Helper()
	c.send(closeHalf)
	c.ends(io.EOF)
	c.must(c.Close())
}

// reset closes the connection with a RST.
func (c *obeyed) reset() {
	c.t.Helper()
	c.must(c.SetLinger(0))
	c.must(c.Close())
}

// translations returns how many translations of the connection hosts have.
func (c *obeyed) translations(hosts ...*testHost) (n int) {
	for _, h := range hosts {
		e := h.agent.engine
		n += len(e.nats.Select(e.clock(), func(_ string, x flow.NATEntry) bool { return x.Src == c.from.Addr() && x.SrcPort == c.from.Port() }))
	}
	return n
}

// balancerObeyed makes a balancer of version 2 whose only member, a machine, obeys.
func (n *network) balancerObeyed(vip string, m *machine) *balanced {
	m.serveEach("tcp4", 9000, obey)
	b := n.balancer2(vip)
	b.members = []*poolMember{{machine: m, record: topology.PoolMember{ID: uuid.NewString(), PoolID: b.pool.ID, AdminStateUp: true,
		Status: topology.MemberMonitored, Address: m.v4, ProtocolPort: 9000, Weight: 1}}}
	b.put()
	return b
}

// forgeReset sends RSTs in a client's name that its server ignores, since they are outside of the
// window, until the client's host has noted one: an acknowledgement that follows hides it.
func (n *network) forgeReset(client *machine, gateway packet.MAC, c *obeyed, vip netip.AddrPort) {
	t := n.lab.t
	t.Helper()
	wire, err := client.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	body := packet.TCP{SrcPort: c.from.Port(), DstPort: vip.Port(), Flags: packet.TCPRst}.Append(nil, c.from.Addr(), vip.Addr(), nil)
	frame := packet.Ethernet{Dst: gateway, Src: client.port.MACAddress, Type: packet.TypeIPv4}.Append(nil)
	frame = packet.IPv4{TTL: 64, Proto: packet.ProtoTCP, Src: c.from.Addr(), Dst: vip.Addr()}.Append(frame, len(body))
	frame = append(frame, body...)
	n.lab.wait("a flow with the forged RST", func() (noted bool) {
		if err := wire.Send(frame); err != nil {
			t.Fatal(err)
		}
		err := client.host.agent.dp.Dump(func(f datapath.FlowState) bool {
			noted = f.RST && f.SrcPort == c.from.Port() && f.Dst == vip.Addr()
			return !noted
		})
		return err == nil && noted
	})
}

// TestConnectionEnds: the translations of connections that were closed or reset, by either side, go
// on both hosts. Those of living connections stay, as idle as some are: one that is open, those
// closed by one side alone, one with a forged RST, and those with the port of an earlier one.
func TestConnectionEnds(t *testing.T) {
	for _, memberOn := range []int{0, 1} {
		t.Run([]string{"member here", "member on another host"}[memberOn], func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2)
			n := l.network("blue")
			l.start()
			client := n.machine(l.hosts[0])
			b := n.balancerObeyed("10.0.0.100", n.machine(l.hosts[memberOn]))
			l.applied()
			vip := netip.AddrPortFrom(b.vip.Address, b.vip.ProtocolPort)
			open := func() *obeyed { return client.ask(vip, 0) }

			closed, closedByServer, reset, resetByServer := open(), open(), open(), open()
			closed.Close()
			closedByServer.closeAfterServer()
			reset.reset()
			resetByServer.send(resetAll)
			resetByServer.ends(syscall.ECONNRESET)

			idle, sending, half, forged := open(), open(), open(), open()
			sending.send(keepOn)
			must(t, sending.CloseWrite())
			half.send(closeHalf)
			half.ends(io.EOF)
			n.forgeReset(client, b.base.Ports[0].PortMAC, forged, vip)
			afterClose, afterReset := open(), open()
			afterClose.closeAfterServer()
			afterClose = client.ask(vip, afterClose.from.Port())
			afterReset.reset()
			afterReset = client.ask(vip, afterReset.from.Port())

			ended := []*obeyed{closed, closedByServer, reset, resetByServer}
			living := []*obeyed{idle, sending, half, forged, afterClose, afterReset}
			before := idle.translations(l.hosts...)
			if before < 2 {
				t.Fatalf("%d translations of a connection, want those of its destination and its source", before)
			}
			l.wait("translations of ended connections to go", func() (gone bool) {
				gone = true
				for _, c := range ended {
					gone = gone && c.translations(l.hosts...) == 0
				}
				sending.receives()
				forged.echoes()
				return gone
			})
			for i, c := range living {
				if got := c.translations(l.hosts...); got != before {
					t.Errorf("living connection %d has %d of %d translations", i, got, before)
				}
			}
			for _, c := range []*obeyed{idle, forged, afterClose, afterReset} {
				c.echoes()
			}
			sending.receives()
			for _, h := range l.hosts {
				if n := h.agent.engine.count.different.Load(); n != 0 {
					t.Errorf("%s found %d flows to be other than they should be", h.name, n)
				}
			}
		})
	}
}

// TestPortUsedAgainAfterARestart: the agent of a member's host forgets what an earlier one has
// received of an ended connection as soon as a client uses its port for another connection to the
// member: the replies go to that one.
func TestPortUsedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	l.start()
	client, here := n.machine(l.hosts[0]), l.hosts[1]
	b := n.balancerObeyed("10.0.0.100", n.machine(here))
	other := b.vip
	other.ID, other.ProtocolPort = uuid.NewString(), 81
	l.put(topology.Owner{Kind: "listener", ID: other.ID}, &topology.Bundle{Vips: []topology.Vip{other}})
	l.applied()
	first := client.ask(netip.AddrPortFrom(b.vip.Address, b.vip.ProtocolPort), 0)
	here.stop()
	first.closeAfterServer() // by the flows in the kernel
	here.start()
	if first.translations(here) == 0 {
		t.Fatal("the agent has none of the translations that an earlier one had received")
	}
	client.ask(netip.AddrPortFrom(other.Address, other.ProtocolPort), first.from.Port())
}
