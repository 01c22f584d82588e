package overlay

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/overlay/flowstate"
	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
	"heddle/internal/telemetry"
	"heddle/internal/topology/flow"
)

// helloExchange is two sessions that send each other a hello every second.
type helloExchange struct {
	now        time.Time
	ends       [2]*helloSession
	cut        [2]bool // what the end sends is lost
	overtaking bool    // hellos of the first end arrive two at a time, the later first
	late       *flowstate.Hello
}

const helloGrace = 15 * time.Second

func newHelloExchange() *helloExchange {
	x := &helloExchange{now: time.Unix(1_700_000_000, 0)}
	for i := range x.ends {
		x.restart(i)
	}
	return x
}

// restart begins a new session of an end.
func (x *helloExchange) restart(i int) { x.ends[i] = newHelloSession(x.now, x.now) }

func (x *helloExchange) seconds(n int) {
	for range n {
		x.now = x.now.Add(time.Second)
		for from := range x.ends {
			h := x.ends[from].hello(time.Second)
			if x.cut[from] {
				continue
			}
			if from == 0 && x.overtaking && x.late == nil {
				x.late = &h
				continue
			}
			to := 1 - from
			x.ends[to].receive(&h, x.now)
			if from == 0 && x.late != nil {
				x.ends[to].receive(x.late, x.now)
				x.late = nil
			}
		}
	}
}

// String has the states of both ends, in and out, with the hellos lost.
func (x *helloExchange) String() string {
	h := hellos{grace: helloGrace, sessions: map[string]*helloSession{"a": x.ends[0], "b": x.ends[1]}}
	text := ""
	for _, host := range []string{"a", "b"} {
		in, out := h.directions(host, x.now)
		text += fmt.Sprintf("%s in %s %d out %s %d; ", host, in.State, in.Lost, out.State, out.Lost)
	}
	return text
}

// TestHelloSessions: both ends know which direction is dead, as far as they can, and how many
// hellos were lost.
func TestHelloSessions(t *testing.T) {
	t.Parallel()
	const alive = "a in alive 0 out alive 0; b in alive 0 out alive 0; "
	for _, c := range []struct {
		name string
		do   func(x *helloExchange)
		want string
	}{
		{"before the first hello", func(*helloExchange) {}, "a in unknown 0 out unknown 0; b in unknown 0 out unknown 0; "},
		{"alive", func(x *helloExchange) { x.seconds(3) }, alive},
		{"long alive", func(x *helloExchange) { x.seconds(100) }, alive},
		{"never heard", func(x *helloExchange) { x.cut = [2]bool{true, true}; x.seconds(21) }, "a in dead 0 out unknown 0; b in dead 0 out unknown 0; "},
		{"cut one way, within the limit", func(x *helloExchange) { x.seconds(40); x.cut[0] = true; x.seconds(20) },
			alive},
		{"cut one way", func(x *helloExchange) { x.seconds(40); x.cut[0] = true; x.seconds(21) },
			"a in alive 0 out dead 32; b in dead 32 out unknown 0; "},
		{"cut both ways", func(x *helloExchange) { x.seconds(40); x.cut = [2]bool{true, true}; x.seconds(21) },
			"a in dead 32 out unknown 0; b in dead 32 out unknown 0; "},
		{"one in five lost", func(x *helloExchange) {
			for range 20 {
				x.cut[0] = false
				x.seconds(4)
				x.cut[0] = true
				x.seconds(1)
			}
			x.cut[0] = false
			x.seconds(2)
		}, "a in alive 0 out alive 6; b in alive 6 out alive 0; "},
		{"restored", func(x *helloExchange) {
			x.seconds(40)
			x.cut[0] = true
			x.seconds(60)
			x.cut[0] = false
			x.seconds(33)
		}, alive},
		{"one end restarted", func(x *helloExchange) { x.seconds(40); x.restart(0); x.seconds(2) }, alive},
		{"overtaking", func(x *helloExchange) { x.seconds(2); x.overtaking = true; x.seconds(40) }, alive},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := newHelloExchange()
			if c.do(x); x.String() != c.want {
				t.Errorf("got %s\nwant %s", x, c.want)
			}
		})
	}
}

// helloPair is two hosts, a and b, that exchange hellos.
type helloPair struct {
	now  time.Time
	ends map[string]*hellos
	// known holds, by host, whether its store has the other one as alive; no entry if it has none.
	known map[string]map[string]bool
}

func newHelloPair() *helloPair {
	p := &helloPair{now: time.Unix(1_700_000_000, 0), ends: map[string]*hellos{}, known: map[string]map[string]bool{}}
	for here, there := range map[string]string{"a": "b", "b": "a"} {
		p.known[here] = map[string]bool{there: true}
		p.ends[here] = &hellos{hosts: func() map[string]bool { return p.known[here] }, sent: func(string) flow.Usage { return flow.Usage{} },
			send:  func(_ string, h flowstate.Hello) { p.ends[there].received(here, &h, p.now) },
			grace: helloGrace, name: hostItself, log: slog.New(slog.DiscardHandler), sessions: map[string]*helloSession{}}
	}
	return p
}

// hostItself returns the id of a host as its name.
func hostItself(id string) string { return id }

// seconds returns the states of the tunnel at both ends, in and out, that each of some seconds
// ended with.
func (p *helloPair) seconds(n int) (seen []string) {
	for range n {
		p.now = p.now.Add(helloTick)
		text := ""
		for _, here := range []string{"a", "b"} {
			p.ends[here].tick(p.now)
		}
		for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
			in, out := p.ends[pair[0]].directions(pair[1], p.now)
			text += fmt.Sprintf("%s in %s %d out %s %d; ", pair[0], in.State, in.Lost, out.State, out.Lost)
		}
		seen = append(seen, text)
	}
	return seen
}

const helloPairAlive = "a in alive 0 out alive 0; b in alive 0 out alive 0; "

// TestHellosAfterAHostWasAway: a host that had left the other one's store, and is back, has a
// tunnel that is alive within seconds, however long hellos had been exchanged before: the other one
// numbers its hellos from 1 again.
func TestHellosAfterAHostWasAway(t *testing.T) {
	t.Parallel()
	p := newHelloPair()
	p.seconds(1000)
	p.known["a"] = nil
	p.seconds(40)
	p.known["a"] = map[string]bool{"b": true}
	if seen := p.seconds(4); seen[3] != helloPairAlive {
		t.Errorf("the tunnel went through %q, want %q at the end", seen, helloPairAlive)
	}
}

// TestHellosToAHostWithoutStore: a host that alone has lost the store, so that its lease ends, has
// tunnels that count as alive at both ends while hellos arrive. When it has died, it has none.
func TestHellosToAHostWithoutStore(t *testing.T) {
	t.Parallel()
	p := newHelloPair()
	p.seconds(100)
	p.known["a"] = map[string]bool{"b": false}
	for i, seen := range p.seconds(75) {
		if seen != helloPairAlive {
			t.Fatalf("after %d s: %s", i, seen)
		}
	}
	p.ends["b"].send = func(string, flowstate.Hello) {}
	const gone = "a in unknown 0 out unknown 0; "
	for i, seen := range p.seconds(30) {
		if strings.Contains(seen, "a in dead") {
			t.Errorf("%d s after the agent has died, which the store says: %s", i, seen)
		}
		if i == 29 && !strings.HasPrefix(seen, gone) {
			t.Errorf("a host that has died still has a tunnel: %s", seen)
		}
	}
}

// TestHelloRate: hellos are one a second for each host, and at most a hundred a second in all.
func TestHelloRate(t *testing.T) {
	t.Parallel()
	for hosts, most := range map[int]int{1: 1, 100: 100, 1000: 250} {
		ids := map[string]bool{}
		for i := range hosts {
			ids[fmt.Sprint("host", i)] = true
		}
		sent := map[string]int{}
		x := &hellos{hosts: func() map[string]bool { return ids }, sent: func(string) flow.Usage { return flow.Usage{} },
			send: func(host string, _ flowstate.Hello) { sent[host]++ }, name: hostItself, log: slog.New(slog.DiscardHandler), sessions: map[string]*helloSession{}}
		now := time.Unix(1_700_000_000, 0)
		for range 120 {
			before := 0
			for _, n := range sent {
				before += n
			}
			now = now.Add(helloTick)
			x.tick(now)
			after := 0
			for _, n := range sent {
				after += n
			}
			if after-before > most {
				t.Errorf("%d hosts: %d hellos in one second", hosts, after-before)
			}
		}
		every := max(1, hosts/100)
		if n := sent["host0"]; n < 120/every-1 || n > 120/every+1 {
			t.Errorf("%d hosts: %d hellos to one within 120 s, want one every %d s", hosts, n, every)
		}
		ids = nil
		if x.tick(now.Add(helloTick)); len(x.sessions) != 0 {
			t.Errorf("%d sessions are left of hosts that have gone", len(x.sessions))
		}
	}
}

// TestTunnelSeriesAreBounded: what does not fit has one series, which is dead if one of them is.
func TestTunnelSeriesAreBounded(t *testing.T) {
	t.Parallel()
	var all []tunnelReport
	for i := range 250 {
		d := flow.TunnelDirection{State: flow.TunnelAlive, Usage: flow.Usage{Packets: 1, Bytes: 10}}
		all = append(all, tunnelReport{true, flow.TunnelReport{Name: fmt.Sprint("h", i), Address: netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), In: d, Out: d}})
	}
	all[200].In.State = flow.TunnelDead
	count := map[string]int{}
	others := map[string]float64{}
	for _, v := range tunnelFigures(all) {
		count[v.Name]++
		if v.Label("host") == "others" {
			others[v.Name] = v.Value
		}
	}
	for name, n := range count {
		if n != telemetry.MaxSeries {
			t.Errorf("%s has %d series", name, n)
		}
	}
	if o := others; o["heddle_overlay_tunnel_up"] != 1 || o["heddle_overlay_tunnel_in_alive"] != 0 || o["heddle_overlay_tunnel_out_alive"] != 1 ||
		o["heddle_overlay_tunnel_in_bytes_total"] != 1510 || o["heddle_overlay_tunnel_out_packets_total"] != 151 {
		t.Errorf("the others have %v", o)
	}
	if dead := deadTunnels(all); len(dead) != 1 || dead[0].Name != "h200" {
		t.Errorf("dead tunnels: %+v", dead)
	}
}

// figure returns a metric of the host's agent about its tunnel to another host.
func (h *testHost) figure(name string, other *testHost) (value float64, there bool) {
	all := h.agent.Metrics()
	i := slices.IndexFunc(all, func(v telemetry.Value) bool { return v.Name == name && v.Label("host") == other.name })
	if i < 0 {
		return 0, false
	}
	return all[i].Value, true
}

func (h *testHost) direction(name string, other *testHost, want float64) {
	h.lab.t.Helper()
	h.lab.wait(fmt.Sprintf("%s of %s to %s to be %v", name, h.name, other.name, want), func() bool {
		value, there := h.figure(name, other)
		return there && value == want
	})
}

// storeRelay is the way of one host to the store, which can be cut.
type storeRelay struct {
	t                testing.TB
	address, forward string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
}

func (r *storeRelay) open() {
	r.t.Helper()
	l, err := net.Listen("tcp4", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.listener = l
	r.mu.Unlock()
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			r.pass(l, in)
		}
	}()
}

// pass joins a connection that a listener has accepted with one to the store.
func (r *storeRelay) pass(l net.Listener, in net.Conn) {
	out, err := net.Dial("tcp4", r.forward)
	if err != nil {
		in.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != l {
		in.Close()
		out.Close()
		return
	}
	r.conns = append(r.conns, in, out)
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			way[0].Close()
		}()
	}
}

func (r *storeRelay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		r.listener.Close()
	}
	for _, c := range r.conns {
		c.Close()
	}
	r.listener, r.conns = nil, nil
}

// TestHostAloneWithoutStore: while one host cannot reach the store, and after, its tunnels count as
// alive at both ends: frames arrive all the time.
func TestHostAloneWithoutStore(t *testing.T) {
	t.Parallel()
	l := newRemoteLab(t, 2)
	h1, h2 := l.hosts[0], l.hosts[1]
	way := &storeRelay{t: t, address: freeAddress(t), forward: l.server.address}
	way.open()
	t.Cleanup(way.cut)
	st, err := backend.Open(t.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{"http://" + way.address}, SkipLimits: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	h2.options.Store = st
	l.start()
	alive := func() {
		t.Helper()
		for _, pair := range [][2]*testHost{{h1, h2}, {h2, h1}} {
			pair[0].direction("heddle_overlay_tunnel_in_alive", pair[1], 1)
			pair[0].direction("heddle_overlay_tunnel_out_alive", pair[1], 1)
		}
	}
	alive()

	way.cut()
	l.wait("the lease of "+h2.name+" to end", func() bool { return there(t, l.st, schema.HostStates.Key(h2.id)) == "" })
	for range 12 { // more hellos than may be missing until a tunnel counts as dead
		first := h1.hellosSent(h2)
		l.wait(fmt.Sprintf("%s to greet %s", h1.name, h2.name), func() bool { return h1.hellosSent(h2) > first })
	}
	for _, h := range l.hosts {
		if dead := h.agent.hostReport(false).DeadTunnels; len(dead) != 0 {
			t.Errorf("%s reports the dead tunnels %+v", h.name, dead)
		}
	}
	way.open()
	l.wait("the report of "+h2.name, func() bool { return there(t, l.st, schema.HostStates.Key(h2.id)) != "" })
	alive()
	for _, h := range l.hosts {
		if strings.Contains(h.log.String(), "though its agent is alive") {
			t.Errorf("the log of %s has a tunnel that died:\n%s", h.name, h.log)
		}
	}
}

// hellosSent returns how many hellos the host has sent to another one.
func (h *testHost) hellosSent(other *testHost) uint32 {
	x := h.agent.engine.hellos
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.sessions[other.id]; s != nil {
		return s.sent
	}
	return 0
}

// nft changes the rules for what passes the underlay.
func (l *lab) nft(commands string) {
	l.t.Helper()
	if text, err := l.wire.Output(l.t.Context(), "nft", commands); err != nil {
		l.t.Fatalf("nft %s: %v: %s", commands, err, text)
	}
}

// TestTunnelDeadInOneDirection: when the underlay loses what one host sends to another, both
// know which direction it is, until it is restored; what flows carry is counted for
// the tunnel at both ends, and for the network where it came in.
func TestTunnelDeadInOneDirection(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	open := l.group(everything()...)
	l.start()
	h1, h2 := l.hosts[0], l.hosts[1]
	a, b := n.machine(h1, open), n.machine(h2, open)
	for _, pair := range [][2]*testHost{{h1, h2}, {h2, h1}} {
		pair[0].direction("heddle_overlay_tunnel_in_alive", pair[1], 1)
		pair[0].direction("heddle_overlay_tunnel_out_alive", pair[1], 1)
	}

	if err := a.ping(b.v4, 5); err != nil {
		t.Fatal(err)
	}
	l.wait("the traffic to be counted", func() bool {
		report := h1.agent.hostReport(true)
		in, _ := h2.figure("heddle_overlay_tunnel_in_bytes_total", h1)
		out, _ := h1.figure("heddle_overlay_tunnel_out_bytes_total", h2)
		return out > 0 && in == out && len(report.Traffic.Networks) == 1 && report.Traffic.Networks[0].ID == n.net.ID &&
			report.Traffic.Networks[0].Bytes == uint64(out) && report.Traffic.Tunnels[0].Out.Bytes == uint64(out)
	})

	l.nft("add table bridge cut; add chain bridge cut way { type filter hook forward priority 0; }; " +
		"add rule bridge cut way ip saddr " + h1.ip.String() + " udp dport 6677 drop")
	h1.direction("heddle_overlay_tunnel_out_alive", h2, 0)
	h2.direction("heddle_overlay_tunnel_in_alive", h1, 0)
	h1.direction("heddle_overlay_tunnel_in_alive", h2, 1)
	if dead := h1.agent.hostReport(false).DeadTunnels; len(dead) != 1 || dead[0].Host != h2.id || dead[0].In.State != flow.TunnelAlive || dead[0].Out.State != flow.TunnelDead {
		t.Errorf("%s reports the dead tunnels %+v", h1.name, dead)
	}
	h1.logged(`by the tunnel to it, though its agent is alive" host=h2 id=` + h2.id)
	h2.logged(`by its tunnel, though its agent is alive" host=h1 id=` + h1.id)

	l.nft("delete table bridge cut")
	h1.direction("heddle_overlay_tunnel_out_alive", h2, 1)
	h2.direction("heddle_overlay_tunnel_in_alive", h1, 1)
	if dead := h1.agent.hostReport(false).DeadTunnels; len(dead) != 0 {
		t.Errorf("%s still reports the dead tunnels %+v", h1.name, dead)
	}
	h1.logged(`"frames arrive at a host again" host=h2`)
	h2.logged(`"frames arrive from a host again" host=h1`)
}

// logged waits until the log of the host's agent has some text.
func (h *testHost) logged(text string) {
	h.lab.t.Helper()
	h.lab.wait(fmt.Sprintf("the log of %s to have %s", h.name, text), func() bool { return strings.Contains(h.log.String(), text) })
}
