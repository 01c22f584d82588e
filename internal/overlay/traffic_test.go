package overlay

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"heddle/internal/control/translate"
	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// TestTooBig: packets that do not fit the tunnel are answered, in both families, and fragments pass
// by their ports.
func TestTooBig(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	a, b, c := n.machine(l.hosts[0], g), n.machine(l.hosts[1], g), n.machine(l.hosts[0], g)
	for _, m := range []*machine{a, b, c} {
		m.MustIP(t, "link set eth0 mtu 1500")
	}
	b.listen("tcp", 80)
	const slow = 30 * time.Second            // of a machine under load; nothing waits for it that succeeds
	for _, v6 := range []bool{false, true} { // TCP finds the size that passes by itself
		to := b.v4
		if v6 {
			to = b.v6
		}
		conn, err := c.dial(to, 80, slow)
		if err == nil {
			err = exchange(conn, 10000, slow)
			conn.Close()
		}
		if err != nil {
			t.Errorf("TCP to %s: %v", to, err)
		}
	}
	if c.host.agent.engine.count.drops[dropTooBig].Load() == 0 {
		t.Error("no sender was told what passes")
	}
	for size, to := range map[string]netip.Addr{"1450": b.v4, "1430": b.v6} {
		l.wait("a packet to "+to.String()+" to be refused", func() bool {
			// ping waits for answers to what was refused too.
			out, err := a.Output(t.Context(), "ping", "-n", "-c", "2", "-i", "0.05", "-W", "1", "-M", "do", "-s", size, to.String())
			if err == nil {
				t.Errorf("a packet of more than 1450 bytes passed:\n%s", out)
			}
			return err == nil || strings.Contains(out, "mtu")
		})
	}
	for _, to := range []netip.Addr{b.v4, b.v6} {
		l.wait("fragments to "+to.String()+" to pass", func() bool {
			// The first may be too big still.
			_, err := a.Output(t.Context(), "ping", "-n", "-c", "2", "-i", "0.05", "-W", "1", "-s", "4000", to.String())
			return err == nil
		})
	}
	if a.host.agent.engine.count.drops[dropTooBig].Load() == 0 {
		t.Error("nothing too big was counted")
	}
	l.wait("the tunnel's metrics to have it", func() bool {
		up, _ := l.hosts[0].figure("heddle_overlay_tunnel_up", l.hosts[1])
		bytes, _ := l.hosts[0].figure("heddle_overlay_tunnel_out_bytes_total", l.hosts[1])
		return up == 1 && bytes > 20000 // TCP's, in both families
	})
}

// TestRelatedErrors: the ICMP errors about a connection come back to who may get nothing but
// replies.
func TestRelatedErrors(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	client := l.group(allow("egress", "IPv4", "", 0), allow("egress", "IPv6", "", 0))
	server := l.group(everything()...)
	l.start()
	a := n.machine(l.hosts[0], client)
	for _, to := range []*machine{n.machine(l.hosts[0], server), n.machine(l.hosts[1], server)} {
		for _, address := range []string{to.v4.String(), to.v6.String()} {
			refused := func() bool {
				var c net.Conn
				err := a.Do(func() (err error) { c, err = net.Dial("udp", net.JoinHostPort(address, "9")); return err })
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := c.Write([]byte("heddle")); err != nil {
					t.Fatal(err)
				}
				must(t, c.SetDeadline(time.Now().Add(short)))
				_, err = c.Read(make([]byte, 8))
				return err != nil && strings.Contains(err.Error(), "refused")
			}
			l.wait("port unreachable from "+address, refused)
		}
	}
}

// TestScanStarvesNobody: while one machine makes as many new flows as it can, others make
// connections.
func TestScanStarvesNobody(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	a, b, scanner := n.machine(l.hosts[0], g), n.machine(l.hosts[0], g), n.machine(l.hosts[0], g)
	b.listen("tcp", 80)
	ctx, cancel := context.WithCancel(t.Context())
	scanned := make(chan error, 1)
	go func() { scanned <- scanner.flood(ctx, b.v4) }()
	for range 50 {
		if err := connects(a, b.v4, 80, long); err != nil {
			t.Error(err)
		}
	}
	cancel()
	must(t, <-scanned)
	c, err := l.hosts[0].agent.dp.Counters()
	must(t, err)
	t.Logf("missed %d, dropped %v", c.Upcalls, c.Drops)
}

// flood sends datagrams to port after port until ctx ends.
func (m *machine) flood(ctx context.Context, to netip.Addr) error {
	var c net.PacketConn
	if err := m.Do(func() (err error) { c, err = net.ListenPacket("udp4", ":0"); return err }); err != nil {
		return err
	}
	defer c.Close()
	for port := 1024; ctx.Err() == nil; port++ {
		if _, err := c.WriteTo([]byte("heddle"), &net.UDPAddr{IP: to.AsSlice(), Port: 1024 + port%60000}); err != nil && !strings.Contains(err.Error(), "refused") {
			return err
		}
	}
	return nil
}

// TestHostileFrames: whatever comes up, the agent goes on, and nothing passes that was not sent by
// who may.
func TestHostileFrames(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	l.start()
	a, b := n.machine(l.hosts[0], l.group(everything()...)), n.machine(l.hosts[0], l.group(everything()...))
	e := l.hosts[0].agent.engine
	h := e.newHandler()
	e.net.mu.RLock()
	port := e.net.portByID[a.port.ID].number
	e.net.mu.RUnlock()
	good := exampleFrame(nil, datapath.Key{SrcMAC: a.port.MACAddress, DstMAC: b.port.MACAddress, Src: a.v4, Dst: b.v4, Proto: packet.ProtoTCP, SrcPort: 1, DstPort: 2})
	rapid.Check(t, func(t *rapid.T) {
		frame := append([]byte(nil), good...)
		for range rapid.IntRange(0, 8).Draw(t, "changes") {
			frame[rapid.IntRange(0, len(frame)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
		}
		if rapid.IntRange(0, 3).Draw(t, "cut") == 3 {
			frame = frame[:rapid.IntRange(0, len(frame)).Draw(t, "length")]
		}
		u := &datapath.Upcall{Reason: rapid.SampledFrom([]datapath.Reason{datapath.Miss, datapath.Miss, datapath.Stale, datapath.NoKey,
			datapath.Malformed, datapath.TooBigTunnel, datapath.TooBigPort, datapath.State}).Draw(t, "reason"),
			Port: rapid.SampledFrom([]datapath.Port{port, port, port, 0, port + 1}).Draw(t, "port"), Frame: frame,
			Length: len(frame) + rapid.SampledFrom([]int{0, 1, 4000, 70000}).Draw(t, "more"), From: a.v4}
		h.handle(u)
		var f packet.Frame
		if u.Reason != datapath.Miss || u.Port != port || packet.DecodeHead(frame, u.Length, &f) != nil || !f.IsIP() {
			return
		}
		if key, ok := u.Key(); ok && f.SrcIP != a.v4 && f.SrcIP != a.v6 && !f.SrcIP.IsUnspecified() && !f.SrcIP.IsLinkLocalUnicast() {
			if flow, found, err := e.dp.Lookup(key); err == nil && found && !flow.Out.Drops() {
				t.Fatalf("a frame from %s passes: % x", f.SrcIP, frame)
			}
		}
	})
	if err := a.ping(b.v4, 1); err != nil {
		t.Error(err)
	}
}

// TestDHCP: a real client gets its address from the agent.
func TestDHCP(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	l.start()
	m := n.machine(l.hosts[0], l.group(allow("egress", "IPv4", "", 0)))
	m.MustIP(t, "addr flush dev eth0")
	m.leases()
}

// TestDHCPLeadsToMetadata: on a subnet whose gateway no router has, systemd-networkd and dhclient
// with Debian's script reach the metadata service by what DHCP gives them.
func TestDHCPLeadsToMetadata(t *testing.T) {
	t.Parallel()
	needsNetworkd(t)
	l := newLab(t, 1)
	h := l.hosts[0]
	h.servesMetadata()
	n := l.network("blue")
	l.start()
	g := l.group()
	for name, script := range map[string]string{"systemd-networkd": networkdScript, "dhclient": dhclient4Script} {
		m := n.machine(h, g)
		m.MustIP(t, "addr flush dev eth0")
		m.configures(name, script)
		m.expectMetadata(m.v4)
	}
}

// dhclient4Script runs dhclient with the script of its package, which writes into /etc.
const dhclient4Script = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir /run/etc /run/work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work overlay /etc
exec dhclient -4 -d -lf /run/leases -pf /run/pid eth0`

// configures runs a DHCP client until the test ends.
func (m *machine) configures(name, script string) {
	t := m.lab.t
	var log netlab.Log
	client := exec.Command("unshare", "--mount", "sh", "-c", script)
	client.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=debug")
	client.Stdout, client.Stderr = &log, &log
	if err := m.Start(client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Process.Kill()
		_ = client.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", name, log.String())
		}
	})
	m.lab.wait(name+" to take "+m.v4.String(), func() bool {
		out, err := m.Output(t.Context(), "ip", "-4", "addr", "show", "dev", "eth0")
		return err == nil && strings.Contains(out, "inet "+m.v4.String()+"/24 ")
	})
}

// leases has a DHCP client get the machine's address. On a busy machine it asks more than once.
func (m *machine) leases() {
	m.lab.t.Helper()
	out, err := m.Output(m.lab.t.Context(), "busybox", "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", "/bin/true")
	if err != nil || !strings.Contains(out, "lease of "+m.v4.String()) {
		m.lab.t.Errorf("the DHCP client got %v:\n%s", err, out)
	}
}

// networkdScript runs systemd-networkd with directories of its own, and eth0 to be configured by
// DHCP. On a read-only /sys it expects no udev. It needs neither systemd nor D-Bus.
const networkdScript = `set -e
mount --make-rprivate /
mount -t sysfs -o ro sysfs /sys
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/network /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp
chown -R systemd-network: /run/systemd/netif
printf '[Match]\nName=eth0\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n[DHCPv4]\nClientIdentifier=mac\n' >/run/systemd/network/00-eth0.network
exec /lib/systemd/systemd-networkd`

func needsNetworkd(t *testing.T) {
	if _, err := os.Stat("/lib/systemd/systemd-networkd"); err != nil {
		t.Skipf("this test needs systemd-networkd: run scripts/setup: %v", err)
	}
}

// TestDHCPWithoutGateway: on a subnet without gateway systemd-networkd takes the address, too. It
// ignores a server that has none itself.
func TestDHCPWithoutGateway(t *testing.T) {
	t.Parallel()
	needsNetworkd(t)
	l := newLab(t, 1)
	n := l.network("blue")
	n.v4.GatewayIP = nil
	b := translate.Subnet(&n.v4, &n.net, nil, "")
	l.put(topology.Owner{Kind: "subnet", ID: n.v4.ID}, &b)
	l.start()
	m := n.machine(l.hosts[0], l.group(allow("egress", "IPv4", "", 0)))
	m.MustIP(t, "addr flush dev eth0")
	m.configures("systemd-networkd", networkdScript)
}

// TestTrace: a request is answered with the live state of the host, and the answer goes with the
// request.
func TestTrace(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	out := allow("egress", "IPv4", "", 0)
	client, server := l.group(out), l.group(out, allow("ingress", "IPv4", "tcp", 80))
	l.start()
	h := l.hosts[0]
	a, b := n.machine(h, client), n.machine(h, server)
	b.listen("tcp", 80)
	trace := func(from, to *machine, sport, dport uint16) flow.TraceAnswer {
		t.Helper()
		frame := packet.Ethernet{Dst: to.port.MACAddress, Src: from.port.MACAddress, Type: packet.TypeIPv4}.Append(nil)
		frame = packet.IPv4{TTL: 64, Proto: packet.ProtoTCP, Src: from.v4, Dst: to.v4}.Append(frame, 20)
		frame = packet.TCP{SrcPort: sport, DstPort: dport, Flags: packet.TCPAck}.Append(frame, from.v4, to.v4, nil)
		request := &flow.TraceRequest{ID: uuid.NewString(), HostID: h.id, PortID: from.port.ID, Frame: frame}
		value, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		l.commit(store.Op{Key: schema.TraceRequests.KeyOf(request), Value: value})
		key := schema.TraceAnswers.KeyOf(&flow.TraceAnswer{ID: request.ID, HostID: h.id})
		var answer flow.TraceAnswer
		l.wait("the answer", func() bool {
			kv, err := l.st.Get(t.Context(), key)
			return err == nil && json.Unmarshal(kv.Value, &answer) == nil
		})
		l.commit(store.Op{Key: schema.TraceRequests.KeyOf(request), Delete: true})
		l.wait("the answer to go", func() bool { _, err := l.st.Get(t.Context(), key); return err != nil })
		return answer
	}
	if x := trace(b, a, 80, 40000); x.Verdict != "drop" || !x.LiveState || len(x.Walk) == 0 || !strings.Contains(x.Reason, "security group denies") {
		t.Errorf("before the connection: %+v", x)
	}
	c, err := a.dial(b.v4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if x := trace(b, a, 80, portOf(c.LocalAddr().String())); x.Verdict != "forward" || len(x.Outputs) != 1 || x.Outputs[0].PortID != a.port.ID {
		t.Errorf("a reply of the connection: %+v", x)
	}
}

func portOf(address string) uint16 {
	_, port, _ := strings.Cut(address, ":")
	var n uint16
	for _, c := range port {
		n = n*10 + uint16(c-'0')
	}
	return n
}

// TestFullTables: a machine that scans fills the cache and the memory of connections; what others
// do goes on.
func TestFullTables(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.hosts[0].options.MaxFlows = 256
	l.hosts[0].options.MaxConnections = 256
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	a, b, scanner := n.machine(l.hosts[0], g), n.machine(l.hosts[0], g), n.machine(l.hosts[0], g)
	b.listen("tcp", 80)
	c, err := a.dial(b.v4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	e := l.hosts[0].agent.engine
	l.wait("the cache to be full and idle flows to make room", func() bool {
		scanner.scan(b.v4, 64)
		if err := exchange(c, 1000, 5*time.Second); err != nil {
			t.Fatalf("a connection under way: %v", err)
		}
		return e.dp.Evicted() > 500 && e.conns.Stats().Evicted > 500
	})
	if err := connects(a, b.v4, 80, long); err != nil {
		t.Errorf("a new connection: %v", err)
	}
	flows := 0
	if err := e.dp.Dump(func(datapath.FlowState) bool { flows++; return true }); err != nil || flows > 256 {
		t.Errorf("%d flows, %v", flows, err)
	}
}

// TestScanEndsNoConnection: what a machine that scans pushes out of the table of connections is its
// own, and even those go on with their next packet.
func TestScanEndsNoConnection(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.hosts[0].options.MaxFlows = 16384 // flows stay, connections do not
	l.hosts[0].options.MaxConnections = 256
	n := l.network("blue")
	server, client := l.group(everything()...), l.group(allow("egress", "IPv4", "", 0))
	l.start()
	a, b, scanner := n.machine(l.hosts[0], client), n.machine(l.hosts[0], server), n.machine(l.hosts[0], client)
	b.echoUDP(9)
	talk := func(m *machine) (flows []net.Conn) {
		for range 10 {
			c := m.dialUDP(b.v4, 9)
			l.wait("UDP to begin", func() bool { return exchange(c, 100, short) == nil })
			flows = append(flows, c)
		}
		return flows
	}
	quiet, own := talk(a), talk(scanner)
	e := l.hosts[0].agent.engine
	l.wait("the table to be full many times over", func() bool {
		scanner.scan(b.v4, 64)
		return e.conns.Stats().Evicted > 2000
	})
	seen := e.count.verified.Load()
	l.wait("a round after the scan", func() bool { return e.count.verified.Load() > seen })
	for range 2 { // a round looks at flows first and forgets connections then
		scanner.scan(b.v4, 64)
		for who, flows := range map[string][]net.Conn{"the other machine": quiet, "the scanner": own} {
			for i, c := range flows {
				if err := exchange(c, 100, 5*time.Second); err != nil {
					t.Fatalf("connection %d of %s: %v", i, who, err)
				}
			}
		}
	}
}

// scan sends a datagram to each of the next count ports.
func (m *machine) scan(to netip.Addr, count int) {
	for range count {
		m.scanned++
		err := m.Do(func() error { return sendUDP(to.String(), 1024+m.scanned%60000) })
		if err != nil && !strings.Contains(err.Error(), "refused") {
			m.lab.t.Fatal(err)
		}
	}
}

// TestBusyPorts: who scans is named first among the ports of a host.
func TestBusyPorts(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	h := l.hosts[0]
	e := h.agent.engine
	quiet, scanner := n.machine(h, g), n.machine(h, g)
	if err := quiet.ping(scanner.v4, 1); err != nil {
		t.Fatal(err)
	}
	e.upcalls.turn(e.clock())
	scanner.scan(quiet.v4, 200)
	var busy []flow.PortReport
	l.wait("the flows of the scan", func() bool {
		busy = e.busyPorts()
		return len(busy) > 0 && busy[0].Flows >= 200
	})
	e.upcalls.turn(e.clock())
	if busy = e.busyPorts(); len(busy) != 2 || busy[0].ID != scanner.port.ID || busy[0].Upcalls < busy[1].Upcalls || busy[1].ID != quiet.port.ID {
		t.Errorf("busy ports: %+v, want %s first, then %s", busy, scanner.port.ID, quiet.port.ID)
	}
}

// TestUpcallCounts: what is reported is the rate of the last whole round.
func TestUpcallCounts(t *testing.T) {
	t.Parallel()
	c := newUpcallCounts(0)
	for range 50 {
		c.add(1)
	}
	if got := c.perSecond(); len(got) != 0 {
		t.Errorf("in the first round: %v", got)
	}
	c.turn(10 * time.Second)
	c.add(2)
	if got := c.perSecond(); len(got) != 1 || got[1] != 5 {
		t.Errorf("after 50 in 10 s: %v", got)
	}
	c.turn(11 * time.Second)
	if got := c.perSecond(); len(got) != 1 || got[2] != 1 {
		t.Errorf("after 1 in 1 s: %v", got)
	}
}
