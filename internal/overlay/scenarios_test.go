package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
	"heddle/internal/offline"
	"heddle/internal/overlay/datapath"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// TestScenarios plays the scenario files of `heddle trace` between namespaces: the topology is made
// by the server's operations, and each frame fares on real hosts as in the simulator, as a frame
// and, where it begins a connection, as a connection of the machines' own kernels.
func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, where := range []struct {
		name  string
		hosts int
	}{{"one host", 1}, {"a host each", 4}} {
		for _, by := range []struct {
			name  string
			carry carrier
			mute  bool
		}{{"frames", (*playHosts).carryFrame, true}, {"connections", (*playHosts).connect, false}} {
			t.Run(where.name+" by "+by.name, func(t *testing.T) {
				t.Parallel()
				l := newLab(t, where.hosts) // its own: a tunnel address is one device's
				l.start()
				for _, file := range scenarioFiles(t) {
					name := strings.TrimSuffix(filepath.Base(file), ".txt")
					if where.hosts > 1 && (name == "reply-elsewhere" || name == "related") {
						continue // a third port sends: its host learns of connections only if a packet leads to it
					}
					t.Run(name, func(t *testing.T) { l.play(t, file, by.carry, by.mute) })
				}
			})
		}
	}
}

// carrier carries a frame from a port, as offline.Hosts does.
type carrier func(*playHosts, *playPort, []byte, offline.Passage) (offline.Passage, error)

// scenarioFiles returns the golden files of package offline that are no lists of mistakes and need
// no LAN outside. Those of trunks have several ports on one interface (TestTrunk), and the metadata
// service has no machine behind its port (TestMetadata).
func scenarioFiles(t *testing.T) (files []string) {
	t.Helper()
	all, err := filepath.Glob("../offline/testdata/trace/*.txt")
	if err != nil || len(all) == 0 {
		t.Fatalf("no scenario files: %v", err)
	}
	return slices.DeleteFunc(all, func(f string) bool {
		name := filepath.Base(f)
		return slices.ContainsFunc([]string{"refus", "physical", "trunks", "metadata"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
}

// play plays what stands above the line of a golden file.
func (l *lab) play(t *testing.T, file string, carry carrier, mute bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	input, _, _ := strings.Cut(string(text), "\n----\n")
	hosts := &playHosts{l: l, t: t, carry: carry, mute: mute, ports: map[string]*playPort{}, opened: map[string]bool{}}
	defer hosts.close()
	carried, err := offline.Play(t.Context(), strings.NewReader(input+"\n"), l.st, hosts)
	if err != nil {
		l.logs()
		t.Error(err)
	}
	withoutConnections := []string{"arp-nd", "dhcp", "ipv6-routing", "ndp-proxies", "taps", "vlan-gateway"}
	if carried == 0 && strings.Contains(input, "send:") && (mute || !slices.Contains(withoutConnections, strings.TrimSuffix(filepath.Base(file), ".txt"))) {
		t.Error("nothing was carried")
	}
}

// playHosts carries the frames of one scenario between the machines at its ports.
type playHosts struct {
	l     *lab
	t     *testing.T
	carry carrier
	mute  bool // the machines' kernels send nothing themselves
	ports map[string]*playPort
	// opened holds the connections opened so far, by protocol and addresses of their replies.
	opened map[string]bool
}

// playPort is a port of the scenario, with the machine behind it.
type playPort struct {
	offline.PlayedPort
	host  *testHost
	iface string
	ns    *netlab.Namespace
	wire  *netlab.Wire
	vtep  bool // the machine is a VTEP too, with another one behind it
}

func (p *playHosts) Place(port string) (topology.Host, string) {
	x := p.ports[port]
	if x == nil {
		p.l.ports++
		x = &playPort{host: p.l.hosts[len(p.ports)%len(p.l.hosts)], iface: fmt.Sprintf("p%d", p.l.ports)}
		p.ports[port] = x
	}
	return topology.Host{ID: x.host.id, Name: x.host.name}, x.iface
}

func (p *playHosts) Follow(_ int64, ports []offline.PlayedPort) error {
	for _, port := range ports {
		if x := p.ports[port.Name]; x.ns == nil {
			x.PlayedPort = port
			if err := p.plug(x); err != nil {
				return err
			}
		}
	}
	for _, x := range p.ports {
		key := schema.PortStates.Key(x.host.id + "/" + x.ID)
		if err := p.until("port "+x.Name+" to be served", func() bool {
			_, err := p.l.st.Get(p.t.Context(), key)
			return err == nil
		}); err != nil {
			return err
		}
	}
	return p.barrier()
}

// plug makes the machine of a port. No kernel at either end of its interface sends by IPv6.
func (p *playHosts) plug(x *playPort) (err error) {
	if x.ns, err = p.l.Namespace(x.iface); err != nil {
		return err
	}
	for _, name := range []string{"all", "default"} {
		if err := x.ns.Sysctl("net/ipv6/conf/"+name+"/disable_ipv6", "1"); err != nil {
			return err
		}
	}
	if err := x.host.ns.Sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil {
		return err
	}
	if err := p.l.Veth(x.host.ns, x.iface, x.ns, "eth0"); err != nil {
		return err
	}
	if err := x.ns.IP("link set eth0 down", "link set eth0 address "+x.MAC+" mtu 1450", "link set eth0 up"); err != nil || !p.mute {
		return err
	}
	x.wire, err = x.ns.Wire("eth0")
	return err
}

func (p *playHosts) close() {
	for _, x := range p.ports {
		if x.wire != nil {
			x.wire.Close()
		}
	}
}

func (p *playHosts) until(what string, cond func() bool) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	return netlab.Until(ctx, what, func() (bool, error) { return cond(), nil })
}

// barrier waits until all agents have applied what the store has: their answers to requests that
// come after it.
func (p *playHosts) barrier() error {
	var put, remove []store.Op
	var answers []string
	for _, h := range p.l.hosts {
		r := &flow.TraceRequest{ID: uuid.NewString(), HostID: h.id, PortID: uuid.NewString()}
		value, err := json.Marshal(r)
		if err != nil {
			return err
		}
		key := schema.TraceRequests.KeyOf(r)
		put, remove = append(put, store.Op{Key: key, Value: value}), append(remove, store.Op{Key: key, Delete: true})
		answers = append(answers, schema.TraceAnswers.KeyOf(&flow.TraceAnswer{ID: r.ID, HostID: h.id}))
	}
	if _, err := p.l.st.Commit(p.t.Context(), nil, put); err != nil {
		return err
	}
	if err := p.until("all agents to follow", func() bool {
		return !slices.ContainsFunc(answers, func(key string) bool {
			_, err := p.l.st.Get(p.t.Context(), key)
			return err != nil
		})
	}); err != nil {
		return err
	}
	_, err := p.l.st.Commit(p.t.Context(), nil, remove)
	return err
}

func (p *playHosts) Carry(port string, frame []byte, predicted offline.Passage) (offline.Passage, error) {
	return p.carry(p, p.ports[port], frame, predicted)
}

// carryFrame sends the frame as it is.
func (p *playHosts) carryFrame(from *playPort, frame []byte, predicted offline.Passage) (offline.Passage, error) {
	got := offline.Passage{Drops: predicted.Drops}
	if !predicted.Waits {
		got.Drops = p.foreseen(from, frame, predicted)
	}
	before := from.host.handled()
	// Frames of a port are decided in order. When two have been, the first fence has, so that the
	// frame, which may have needed no decision, has fared already.
	for _, f := range [][]byte{frame, fence(from), fence(from)} {
		if err := from.wire.Send(f); err != nil {
			return got, err
		}
	}
	if err := p.until("the frame to be decided", func() bool { return from.host.handled() >= before+2 }); err != nil {
		return got, err
	}
	err := p.until(fmt.Sprintf("%d frames to arrive", len(predicted.Frames)), func() bool {
		got.Frames = append(got.Frames, p.arrived()...)
		return len(got.Frames) >= len(predicted.Frames)
	})
	if err != nil && p.t.Context().Err() != nil {
		return got, err
	}
	return got, nil // what is missing the caller sees
}

// handled counts the frames of workloads that have come to the agent.
func (h *testHost) handled() (n uint64) {
	for reason := range h.agent.engine.count.upcalls {
		if r := datapath.Reason(reason); r != datapath.State {
			n += h.agent.engine.count.upcalls[r].Load()
		}
	}
	return n
}

// etherTypeTest is for experiments (IEEE 802, local experimental EtherType 1).
const etherTypeTest = 0x88b5

// fence is a frame that the agent drops, and decides about anew each time.
func fence(x *playPort) []byte {
	mac, err := packet.ParseMAC(x.MAC)
	if err != nil {
		panic(err)
	}
	return packet.Ethernet{Dst: mac, Src: mac, Type: etherTypeTest}.Append(nil)
}

// foreseen returns the drops that the agent foresees for a frame, once it foresees the same
// deliveries as the simulator: what the network has learned reaches it by the store.
func (p *playHosts) foreseen(from *playPort, frame []byte, predicted offline.Passage) (drops []flow.Dropped) {
	var want []string
	for _, f := range predicted.Frames {
		want = append(want, f.Port)
	}
	slices.Sort(want)
	e := from.host.agent.engine
	sim := simulate.NewSimulator(e.net.world)
	_ = p.until("the agent to foresee the same", func() bool {
		e.net.mu.RLock()
		defer e.net.mu.RUnlock()
		d := sim.Run(simulate.Input{PortID: from.ID, Frame: frame, State: liveState{e, true}, Explain: true})
		drops = slices.Clone(d.Drops)
		var outputs []string
		for _, o := range d.Outputs {
			outputs = append(outputs, p.nameOf(o.PortID))
		}
		for _, c := range d.Copies {
			outputs = append(outputs, p.nameOf(c.PortID))
		}
		for i := range d.Emit {
			outputs = append(outputs, p.nameOf(d.Emit[i].PortID))
		}
		slices.Sort(outputs)
		return d.Verdict == flow.Postponed || slices.Equal(outputs, want)
	}) // the frame is sent all the same: the test shows what becomes of it
	return drops
}

func (p *playHosts) nameOf(id string) string {
	for name, x := range p.ports {
		if x.ID == id {
			return name
		}
	}
	return id
}

// arrived returns what has come to the machines.
func (p *playHosts) arrived() (frames []offline.PortFrame) {
	for name, x := range p.ports {
		for {
			b, ok, err := x.wire.Take()
			if err != nil {
				p.t.Error(err)
			}
			if !ok {
				break
			}
			if !(b[12] == etherTypeTest>>8 && b[13] == etherTypeTest&0xff) {
				frames = append(frames, offline.PortFrame{Port: name, Frame: slices.Clone(b)})
			}
		}
	}
	return frames
}

// connect opens the connection that the frame is the first packet of, where one machine gets it,
// and returns the frame as that machine sees the connection. Of VXLAN packets it is the connection
// inside, of the machine behind the VTEP.
func (p *playHosts) connect(from *playPort, frame []byte, predicted offline.Passage) (got offline.Passage, err error) {
	var sent, seen packet.Frame
	if !predicted.Answered {
		return got, offline.ErrNotCarried
	}
	out := predicted.Frames[0]
	request, vni := offline.Unwrap(frame)
	observed := slices.Clone(out.Frame)
	inside, _ := offline.Unwrap(observed)
	if err := errors.Join(packet.Decode(request, &sent), packet.Decode(inside, &seen)); err != nil {
		return got, err
	}
	if vni == 0 && sent.Src.String() != from.MAC || !mayOpen(&sent) || !mayOpen(&seen) || p.opened[ends(&sent)] {
		return got, offline.ErrNotCarried
	}
	to := p.ports[out.Port]
	if err := errors.Join(from.joins(frame, true), to.joins(out.Frame, false)); err != nil {
		return got, err
	}
	c := connection{from: from.ns, to: to.ns, source: netip.AddrPortFrom(sent.SrcIP, sent.TpSrc), target: netip.AddrPortFrom(sent.DstIP, sent.TpDst),
		server: netip.AddrPortFrom(seen.DstIP, seen.TpDst)}
	client, err := c.open(sent.Proto)
	if err != nil {
		return got, fmt.Errorf("%v → %v, served at %v: %w", c.source, c.target, c.server, err)
	}
	got.Drops = predicted.Drops
	w := flow.Rewrite{SrcMAC: seen.Src, DstMAC: seen.Dst, Src: client.Addr(), Dst: seen.DstIP, SrcPort: client.Port(), DstPort: seen.TpDst}
	if err := w.Apply(inside, false); err != nil {
		return got, err
	}
	got.Frames = []offline.PortFrame{{Port: out.Port, Frame: observed}}
	p.opened[fmt.Sprint(seen.Proto, c.server, client)] = true // the replies were carried
	return got, nil
}

// mayOpen reports whether a packet may be the first of a connection by sockets.
func mayOpen(f *packet.Frame) bool {
	return f.EtherType == packet.TypeIPv4 && f.HasTp && f.VLANs == 0 && f.Frag == packet.FragNone && (f.Proto == packet.ProtoTCP || f.Proto == packet.ProtoUDP) &&
		f.TpSrc >= 1 && f.TpDst >= 1 && !f.Dst.IsMulticast()
}

func ends(f *packet.Frame) string {
	return fmt.Sprint(f.Proto, netip.AddrPortFrom(f.SrcIP, f.TpSrc), netip.AddrPortFrom(f.DstIP, f.TpDst))
}

// party is the part of a machine in the frames of a connection.
type party struct {
	mac        packet.MAC
	own, other netip.Addr
	next       packet.MAC // to which the way to the other begins
}

// partyOf returns the part of the machine that sends a frame, or else of the one that gets it.
func partyOf(frame []byte, sends bool) (party, error) {
	var f packet.Frame
	err := packet.Decode(frame, &f)
	if sends {
		return party{f.Src, f.SrcIP, f.DstIP, f.Dst}, err
	}
	return party{f.Dst, f.DstIP, f.SrcIP, f.Src}, err
}

// joins has a machine take part in the connection of a frame, which it sends or gets. If that is in
// a VXLAN packet, the kernel's vxlan device stands for the machine behind it.
func (x *playPort) joins(frame []byte, sends bool) error {
	inner, vni := offline.Unwrap(frame)
	p, err := partyOf(inner, sends)
	if err != nil {
		return err
	}
	if vni == 0 {
		return x.meets("eth0", p)
	}
	outer, err := partyOf(frame, sends)
	if err != nil {
		return err
	}
	if err := x.meets("eth0", outer); err != nil {
		return err
	}
	if !x.vtep {
		if err := x.ns.IP(fmt.Sprintf("link add vx0 address %s mtu 1400 type vxlan id %d dstport 4789 local %s remote %s noudpcsum", p.mac, vni, outer.own, outer.other),
			"link set vx0 up"); err != nil {
			return err
		}
		x.vtep = true
	}
	return x.meets("vx0", p)
}

// meets gives a device of a machine an address, and the way to another.
func (x *playPort) meets(dev string, p party) error {
	return x.ns.IP(fmt.Sprintf("addr replace %s/32 dev %s", p.own, dev), fmt.Sprintf("neigh replace %s lladdr %s nud permanent dev %s", p.other, p.next, dev),
		fmt.Sprintf("route replace %s/32 dev %s src %s", p.other, dev, p.own))
}

// connection is one between two machines.
type connection struct {
	from, to               *netlab.Namespace
	source, target, server netip.AddrPort
}

// open opens the connection, has bytes go both ways, and returns the client's address as the server
// sees it.
func (c *connection) open(proto uint8) (client netip.AddrPort, err error) {
	if proto == packet.ProtoUDP {
		return c.datagrams()
	}
	var l *net.TCPListener
	if err := c.to.Do(func() (err error) { l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(c.server)); return err }); err != nil {
		return client, err
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		s, err := l.AcceptTCP()
		if err != nil {
			served <- err
			return
		}
		defer s.Close()
		client = s.RemoteAddr().(*net.TCPAddr).AddrPort()
		_, err = io.Copy(s, s)
		if errors.Is(err, unix.ECONNRESET) {
			err = nil // by which the client ends, so that its port can be used again at once
		}
		served <- err
	}()
	var conn net.Conn
	if err := c.from.Do(func() (err error) {
		d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(c.source)}
		conn, err = d.Dial("tcp4", c.target.String())
		return err
	}); err != nil {
		return client, err
	}
	err = exchange(conn, 20000, 10*time.Second)
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
	return client, errors.Join(err, <-served)
}

func (c *connection) datagrams() (client netip.AddrPort, err error) {
	var server, conn *net.UDPConn
	if err := c.to.Do(func() (err error) {
		server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(c.server))
		return err
	}); err != nil {
		return client, err
	}
	defer server.Close()
	if err := c.from.Do(func() (err error) {
		conn, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(c.source), net.UDPAddrFromAddrPort(c.target))
		return err
	}); err != nil {
		return client, err
	}
	defer conn.Close()
	until := time.Now().Add(10 * time.Second)
	if err := errors.Join(server.SetDeadline(until), conn.SetDeadline(until)); err != nil {
		return client, err
	}
	b := make([]byte, 16)
	if _, err := conn.Write([]byte("question")); err != nil {
		return client, err
	}
	if _, client, err = server.ReadFromUDPAddrPort(b); err != nil {
		return client, err
	}
	if _, err := server.WriteToUDPAddrPort([]byte("answer"), client); err != nil {
		return client, err
	}
	_, err = conn.Read(b)
	return client, err
}
