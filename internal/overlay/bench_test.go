package overlay

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"heddle/internal/control/translate"
	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/overlay/datapath"
	"heddle/internal/store"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// tenRules is a group of ten rules in each direction, the last of which allows UDP and TCP.
func tenRules() []neutron.SecurityGroupRule {
	var rules []neutron.SecurityGroupRule
	for _, direction := range []string{"egress", "ingress"} {
		for _, protocol := range []string{"udp", "tcp"} {
			rules = append(rules, allow(direction, "IPv4", protocol, 0))
		}
		for i := range 8 {
			rules = append(rules, allow(direction, "IPv4", "tcp", 8000+i)) // newer ones stand first
		}
	}
	return rules
}

// pair is two machines under ten rules each, with their agents running.
func pair(b *testing.B, hosts int) (l *lab, from, to *machine) {
	b.Helper()
	l = newLab(b, hosts)
	for _, h := range l.hosts {
		h.options.MaxFlows = 0
	}
	n := l.network("blue")
	g, x := l.group(tenRules()...), l.group(tenRules()...)
	l.start()
	return l, n.machine(l.hosts[0], g), n.machine(l.hosts[hosts-1], x)
}

// BenchmarkLAN compares the way between a machine and another on the LAN of a flat network with the
// same over a Linux bridge on the host, in turns: the medians of the ratios of neighbouring slices.
func BenchmarkLAN(b *testing.B) {
	l := newLAN(b, 1, 1)
	l.hosts[0].options.MaxFlows = 0
	n := l.physical(l.networkAt("flat", "192.0.2.0/24"), 0)
	l.start()
	m := n.machine(l.hosts[0])
	plain, host := l.MustNamespace(b, "plain"), l.MustNamespace(b, "bridged")
	host.MustIP(b, "link add br0 type bridge", "link set br0 up")
	l.join(host, "eth1", "bridged", "192.0.2.150/24")
	l.MustVeth(b, host, "machine", plain, "eth0")
	host.MustIP(b, "link set eth1 master br0", "link set machine master br0")
	plain.MustIP(b, "addr add 192.0.2.151/24 dev eth0")
	m.MustIP(b, "link set eth0 mtu 1500")
	bridged := &machine{Namespace: plain, lab: l.lab}
	l.wait("packets", func() bool { return m.answers(l.outside.v4) && bridged.answers(l.outside.v4) })
	paths := []netlab.Path{{Name: "bridge", Client: plain, Server: l.outside.Namespace, Address: l.outside.v4},
		{Name: "heddle", Client: m.Namespace, Server: l.outside.Namespace, Address: l.outside.v4}}
	b.ResetTimer()
	for range b.N {
		f, err := netlab.Compare(b.Context(), paths, netlab.CompareOptions{Slices: 20})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(netlab.Ratios(f[1].RoundTrips, f[0].RoundTrips).Median, "round-trips/bridge")
		b.ReportMetric(netlab.Ratios(f[1].Datagrams, f[0].Datagrams).Median, "datagrams/bridge")
		b.ReportMetric(netlab.Ratios(f[1].Bits, f[0].Bits).Median, "bits/bridge")
		b.ReportMetric(1e6*median(slices.Clone(f[1].RoundTrips)), "µs/round-trip")
	}
}

// BenchmarkEncryption compares two hosts between which frames are encrypted with two that send in
// the clear, in turns: the medians of the ratios of neighbouring slices.
func BenchmarkEncryption(b *testing.B) {
	paths := make([]netlab.Path, 2)
	for i, e := range []Encryption{NoEncryption, Encrypt} {
		l := newLab(b, 2)
		for _, h := range l.hosts {
			h.options.Encryption, h.options.MaxFlows = e, 0
		}
		n, open := l.network("blue"), l.group(everything()...)
		l.start()
		from, to := n.machine(l.hosts[0], open), n.machine(l.hosts[1], open)
		// So that the TCP of neither path is cut into other sizes.
		for _, m := range []*machine{from, to} {
			m.MustIP(b, "link set eth0 mtu 1390")
		}
		l.wait("packets", func() bool { return from.answers(to.v4) })
		paths[i] = netlab.Path{Name: string(e), Client: from.Namespace, Server: to.Namespace, Address: to.v4}
	}
	b.ResetTimer()
	for range b.N {
		f, err := netlab.Compare(b.Context(), paths, netlab.CompareOptions{Slices: 20})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(netlab.Ratios(f[1].RoundTrips, f[0].RoundTrips).Median, "round-trips/clear")
		b.ReportMetric(netlab.Ratios(f[1].Datagrams, f[0].Datagrams).Median, "datagrams/clear")
		b.ReportMetric(netlab.Ratios(f[1].Bits, f[0].Bits).Median, "bits/clear")
		b.ReportMetric(median(slices.Clone(f[1].Bits))/1e6, "Mbit/s")
		b.ReportMetric(1e6*median(slices.Clone(f[1].RoundTrips)), "µs/round-trip")
	}
}

// BenchmarkFlowSetup measures the work of one core for a connection's first packet: simulate it and
// its reply, remember and tell the connection, install the flows, send the packet on.
func BenchmarkFlowSetup(b *testing.B) {
	for _, hosts := range []int{1, 2} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			l, from, to := pair(b, hosts)
			h := l.hosts[0].agent.engine.newHandler()
			u := &datapath.Upcall{Reason: datapath.Miss, Port: portNumber(b, h.engine, from)}
			frame := packet.Ethernet{Dst: to.port.MACAddress, Src: from.port.MACAddress, Type: packet.TypeIPv4}.Append(nil)
			ip := packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: from.v4, Dst: to.v4}
			b.ReportAllocs()
			i := 0
			var before time.Duration
			for b.Loop() {
				if i == 0 {
					before = processorTime(b)
				}
				f := ip.Append(frame[:14], 8+16)
				u.Frame = packet.UDP{SrcPort: uint16(i), DstPort: uint16(1024 + i>>16)}.Append(f, from.v4, to.v4, make([]byte, 16))
				u.Length = len(u.Frame)
				h.handle(u)
				i++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "setups/s")
			b.ReportMetric(float64(b.N)/(processorTime(b)-before).Seconds(), "setups/core-s")
			if n := h.count.installed.Load(); n < uint64(b.N) {
				b.Errorf("%d flows installed for %d packets", n, b.N)
			}
		})
	}
}

// processorTime returns the time that this process has used of all cores: on a machine that has
// other work it tells more than the clock.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func portNumber(b *testing.B, e *engine, m *machine) datapath.Port {
	b.Helper()
	e.net.mu.RLock()
	defer e.net.mu.RUnlock()
	p := e.net.portByID[m.port.ID]
	if p == nil {
		b.Fatalf("port %s is not attached", m.port.ID)
	}
	return p.number
}

// BenchmarkConnects compares new connections with those over a veth pair with no host between.
func BenchmarkConnects(b *testing.B) {
	l, from, to := pair(b, 1)
	x, y := l.MustNamespace(b, "x"), l.MustNamespace(b, "y")
	l.MustVeth(b, x, "eth0", y, "eth0")
	x.MustIP(b, "addr add 192.0.2.1/24 dev eth0")
	y.MustIP(b, "addr add 192.0.2.2/24 dev eth0")
	direct := netlab.Path{Name: "direct veth", Client: x, Server: y, Address: netip.MustParseAddr("192.0.2.2")}
	ours := netlab.Path{Name: "overlay", Client: from.Namespace, Server: to.Namespace, Address: to.v4}
	const each = 2000
	var ratios, p50 []float64
	for b.Loop() {
		_, plain, err := direct.Connects(each)
		if err != nil {
			b.Fatal(err)
		}
		latency, rate, err := ours.Connects(each)
		if err != nil {
			b.Fatal(err)
		}
		ratios, p50 = append(ratios, rate/plain), append(p50, float64(latency.P50.Microseconds()))
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(p50), "p50-µs")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkFirstPacket measures the time for which a first packet waits longer than the second,
// there and back.
func BenchmarkFirstPacket(b *testing.B) {
	for _, hosts := range []int{1, 2} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			_, from, to := pair(b, hosts)
			server := to.udpEcho()
			var added []float64
			for b.Loop() {
				first, second := from.twoEchoes(b, server)
				added = append(added, float64((first-second).Nanoseconds())/1000)
			}
			b.ReportMetric(median(added), "added-p50-µs")
		})
	}
}

// udpEcho answers datagrams and says where.
func (m *machine) udpEcho() string {
	t := m.lab.t
	t.Helper()
	var c net.PacketConn
	if err := m.Do(func() (err error) { c, err = net.ListenPacket("udp4", m.v4.String()+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if _, err := c.WriteTo(b[:n], from); err != nil {
				return
			}
		}
	}()
	return c.LocalAddr().String()
}

// twoEchoes sends two datagrams from a new socket, one after the other, and says how long each
// took.
func (m *machine) twoEchoes(b *testing.B, to string) (first, second time.Duration) {
	b.Helper()
	var c net.Conn
	if err := m.Do(func() (err error) { c, err = net.Dial("udp4", to); return err }); err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	one := func() time.Duration {
		start := time.Now()
		if err := exchange(c, 8, time.Second); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	return one(), one()
}

// BenchmarkInvalidation measures how long it takes to stop all flows that a change of a group
// affects, with many of them.
func BenchmarkInvalidation(b *testing.B) {
	for _, flows := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			l, from, to := pair(b, 1)
			e := l.hosts[0].agent.engine
			number := portNumber(b, e, from)
			out := datapath.Output{Port: portNumber(b, e, to)}
			var batch []datapath.Flow
			tags := e.dp.Tags(datapath.SlotOf(from.port.ID), datapath.SlotOf(to.port.ID))
			for i := range flows {
				batch = append(batch, datapath.Flow{Key: datapath.Key{Port: number, Src: from.v4, Dst: to.v4, Proto: packet.ProtoUDP,
					SrcPort: uint16(i), DstPort: uint16(i >> 16)}, Out: out, Tags: tags})
			}
			if err := e.dp.Install(batch); err != nil {
				b.Fatal(err)
			}
			g := to.groups[0]
			owner := topology.Owner{Kind: "security-group", ID: g.ID}
			with := translate.SecurityGroup(g)
			g.Rules = g.Rules[1:]
			without := translate.SecurityGroup(g)
			i := 0
			for b.Loop() {
				i++
				bundle := &with
				if i%2 == 1 {
					bundle = &without
				}
				e.net.apply(func(w *simulate.World) []string { return w.Apply(owner, bundle) })
			}
			stale := 0
			if err := e.dp.Dump(func(f datapath.FlowState) bool {
				if f.Stale {
					stale++
				}
				return true
			}); err != nil || stale < flows {
				b.Errorf("%d of %d flows stopped, %v", stale, flows, err)
			}
		})
	}
}

// BenchmarkStart measures how long an agent takes until all flows are possible: 1000 ports in the
// store, 100 of this host.
func BenchmarkStart(b *testing.B) {
	l := newLab(b, 1)
	h := l.hosts[0]
	h.options.MaxFlows = 0
	n := l.network("blue")
	g := l.group(tenRules()...)
	elsewhere := &testHost{lab: l, id: uuid.NewString()}
	workloads := l.MustNamespace(b, "workloads")
	var ops []store.Op
	for i := range 1000 {
		m := n.port(elsewhere, g)
		m.v4, m.v6 = netip.AddrFrom4([4]byte{10, 0, byte(1 + i/250), byte(1 + i%250)}), netip.MustParseAddr(fmt.Sprintf("2001:db8::1:%x", i))
		m.port.MACAddress[4], m.port.MACAddress[5] = byte(i>>8), byte(i)
		m.port.FixedIPs[0].IPAddress, m.port.FixedIPs[1].IPAddress = m.v4, m.v6
		m.port.TunnelKey = uint32(i + 1)
		if i%10 == 0 {
			m.port.BoundHostID = h.id
			h.ns.MustIP(b, fmt.Sprintf("link add %s type veth peer name p%d netns %s", m.port.InterfaceName, i, workloads.Name), "link set "+m.port.InterfaceName+" up")
			workloads.MustIP(b, fmt.Sprintf("link set p%d up", i))
		}
		bundle := translate.Port(&m.port, &n.net, m.groups)
		ops = append(ops, l.op(m.owner(), &bundle))
	}
	l.commit(ops...)
	var fresh, restart []float64
	for b.Loop() {
		h.start()
		fresh = append(fresh, float64(time.Since(h.agent.begun).Milliseconds()))
		if got := len(h.agent.dp.Ports()); got != 100 {
			b.Fatalf("%d ports attached", got)
		}
		h.stop()
		h.start()
		restart = append(restart, float64(time.Since(h.agent.begun).Milliseconds()))
		h.stop()
		if err := Cleanup(h.options); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(median(fresh), "fresh-ms")
	b.ReportMetric(median(restart), "restart-ms")
}
