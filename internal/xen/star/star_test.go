package star

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// calm is a View in which everything is fine.
type calm struct{}

func (calm) Load(string) int                   { return 0 }
func (calm) Carries(network, a, b string) bool { return false }
func (calm) Health(a, b string) Health         { return Up }

// view is a View of a test.
type view struct {
	load   map[string]int
	health map[Pair]Health
}

func (v view) Load(host string) int      { return v.load[host] }
func (view) Carries(_, _, _ string) bool { return true }
func (v view) Health(a, b string) Health {
	if h, ok := v.health[PairOf(a, b)]; ok {
		return h
	}
	return Up
}

// ready is a member that lacks nothing.
func ready(host string) Member {
	return Member{Host: host, Tunnel: true, Attached: true, Live: true, Enabled: true, OpenVSwitch: true, Address: "198.18.0." + host[1:],
		TransportMTU: 1600, Protocol: "gre", Known: true, Seen: true, Bridge: "xapi0"}
}

func network(hosts ...string) *Network {
	n := &Network{UUID: "net", MTU: 1500}
	for _, h := range hosts {
		n.Members = append(n.Members, ready(h))
	}
	return n
}

// apply does a step on its host, whose ovs-vswitchd makes all that it is told.
func (m *Member) apply(st Step) {
	for _, d := range st.Delete {
		m.Legs = slices.DeleteFunc(m.Legs, func(f Found) bool { return f == d })
	}
	for _, l := range st.Put {
		m.Legs = slices.DeleteFunc(m.Legs, func(f Found) bool { return f.Name == l.Name })
		m.Legs = append(m.Legs, Found{Leg: l, Bridge: m.Bridge, OfPort: 1})
	}
}

// settle does all steps, and returns how many ports were made, changed or removed.
func settle(t *testing.T, n *Network, in Intent, v View) (changes int) {
	t.Helper()
	for range 20 {
		steps := Steps(n, in, v)
		if len(steps) == 0 {
			if _, all := InPlace(n, in, v); !all {
				t.Fatalf("nothing to do, and not all in place: %+v", n)
			}
			return changes
		}
		for _, st := range steps {
			changes += len(st.Delete) + len(st.Put)
			member(n, st.Host).apply(st)
		}
	}
	t.Fatalf("it never ends: %+v", Steps(n, in, v))
	return 0
}

// picture returns the legs as text.
func picture(n *Network) string {
	text := ""
	for _, m := range n.Members {
		peers := []string{}
		for _, l := range m.Legs {
			peers = append(peers, l.Peer)
		}
		slices.Sort(peers)
		text += fmt.Sprintf("%s%v ", m.Host, peers)
	}
	return text
}

func expect(t *testing.T, n *Network, want string) {
	t.Helper()
	if got := picture(n); got != want+" " {
		t.Errorf("legs are %s, want %s", got, want)
	}
}

func TestChoice(t *testing.T) {
	t.Parallel()
	down := map[Pair]Health{PairOf("h1", "h2"): Down, PairOf("h1", "h3"): Down}
	for name, c := range map[string]struct {
		change func(n *Network)
		in     Intent
		v      view
		want   string
	}{
		"least loaded":                  {in: Intent{Key: 1}, v: view{load: map[string]int{"h1": 2, "h2": 1, "h3": 1}}, want: "h2"},
		"ties by UUID":                  {in: Intent{Key: 1}, want: "h1"},
		"preferred":                     {change: func(n *Network) { n.Preferred = "h3" }, in: Intent{Key: 1}, want: "h3"},
		"preferred is no member":        {change: func(n *Network) { n.Preferred = "h9" }, in: Intent{Key: 1}, want: "h1"},
		"present stays":                 {in: Intent{Key: 1, Center: "h2"}, v: view{load: map[string]int{"h2": 9}}, want: "h2"},
		"preferred now":                 {change: func(n *Network) { n.Preferred = "h3" }, in: Intent{Key: 1, Center: "h2", Preferred: "h2"}, want: "h3"},
		"preferred is back":             {change: func(n *Network) { n.Preferred = "h3" }, in: Intent{Key: 1, Center: "h2", Preferred: "h3"}, want: "h2"},
		"preferred is back, and wanted": {change: func(n *Network) { n.Preferred, n.AutoRevert = "h3", true }, in: Intent{Key: 1, Center: "h2", Preferred: "h3"}, want: "h3"},
		"preferred is disabled": {change: func(n *Network) { n.Preferred = "h3"; n.Members[2].Enabled = false },
			in: Intent{Key: 1, Center: "h2"}, want: "h2"},
		"center unplugged": {change: func(n *Network) { n.Members[1].Attached = false }, in: Intent{Key: 1, Center: "h2"}, want: "h1"},
		"center disabled":  {change: func(n *Network) { n.Members[1].Enabled = false }, in: Intent{Key: 1, Center: "h2"}, want: "h1"},
		"center refuses":   {change: func(n *Network) { n.Members[1].Unwilling = true }, in: Intent{Key: 1, Center: "h2"}, want: "h1"},
		"center refuses, and the rest": {change: func(n *Network) {
			n.Members[0].Unwilling, n.Members[1].Unwilling, n.Members[2].Known = true, true, false
		}, in: Intent{Key: 1, Center: "h2"}, want: "h2"},
		"all disabled": {change: func(n *Network) {
			for i := range n.Members {
				n.Members[i].Enabled = false
			}
		}, in: Intent{Key: 1, Center: "h2"}, want: "h2"},
		"center dead": {change: func(n *Network) { n.Members[1].Live = false }, in: Intent{Key: 1, Center: "h2"}, want: "h1"},
		"center's agent is dead, frames pass": {change: func(n *Network) { n.Members[1].Live, n.Members[1].Passing = false, true },
			in: Intent{Key: 1, Center: "h2"}, want: "h2"},
		"new, and an agent is dead": {change: func(n *Network) { n.Members[0].Live, n.Members[0].Passing = false, true }, in: Intent{Key: 1}, want: "h2"},
		"center has no bridge":      {change: func(n *Network) { n.Members[1].Bridge = "" }, in: Intent{Key: 1, Center: "h2"}, want: "h1"},
		"center has no address":     {change: func(n *Network) { n.Members[1].Address = "" }, in: Intent{Key: 1, Center: "h2"}, want: "h1"},
		"nobody reaches it":         {in: Intent{Key: 1, Center: "h1"}, v: view{health: down}, want: "h2"},
		"not known, and half do not reach it": {change: func(n *Network) {
			n.Members[0].Known = false
			n.Members[2].Legs = []Found{{Leg: Leg{Peer: "h1"}}}
		}, in: Intent{Key: 1, Center: "h1"}, v: view{health: map[Pair]Health{PairOf("h1", "h2"): Down}}, want: "h2"},
		"it was moved just now": {change: func(n *Network) { n.Steady = true }, in: Intent{Key: 1, Center: "h1"}, v: view{health: down}, want: "h1"},
		"one reaches it":        {in: Intent{Key: 1, Center: "h1"}, v: view{health: map[Pair]Health{PairOf("h1", "h2"): Down}}, want: "h1"},
		"two hosts":             {change: func(n *Network) { n.Members = n.Members[:2] }, in: Intent{Key: 1, Center: "h1"}, v: view{health: down}, want: "h1"},
		"alone":                 {change: func(n *Network) { n.Members = n.Members[:1] }, in: Intent{Key: 1}, want: ""},
		"no key":                {in: Intent{}, want: ""},
		"center is not known, the others have their legs": {change: func(n *Network) {
			n.Members[1].Known, n.Members[1].Seen = false, false
			n.Members[0].Legs = []Found{{Leg: Leg{Peer: "h2"}}}
		}, in: Intent{Key: 1, Center: "h2"}, want: "h2"},
		"center is not known, and nobody has a leg": {change: func(n *Network) { n.Members[1].Known = false }, in: Intent{Key: 1, Center: "h2"}, want: "h1"},
		"center is lost, and one lacks its leg": {change: func(n *Network) {
			n.Members[1].Known, n.Members[1].Lost = false, true
			n.Members[0].Legs = []Found{{Leg: Leg{Peer: "h2"}}}
		}, in: Intent{Key: 1, Center: "h2"}, want: "h1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := network("h1", "h2", "h3")
			if c.change != nil {
				c.change(n)
			}
			got := Decide(n, c.in, c.v)
			if got.Center != c.want {
				t.Errorf("center %q, want %q", got.Center, c.want)
			}
			if moved := got.Center != c.in.Center; moved != (got.Epoch == c.in.Epoch+1) || moved && got.Previous != c.in.Center {
				t.Errorf("%+v after %+v: a new center is a new epoch", got, c.in)
			}
			if got.Key != c.in.Key {
				t.Errorf("the key has changed to %d", got.Key)
			}
		})
	}
}

// TestMove moves a center as planned: make before break, and at last one leg a spoke.
func TestMove(t *testing.T) {
	t.Parallel()
	n := network("h1", "h2", "h3", "h4")
	in := Decide(n, Intent{Key: 7}, calm{})
	settle(t, n, in, calm{})
	expect(t, n, "h1[h2 h3 h4] h2[h1] h3[h1] h4[h1]")
	in.Settled, in.Previous = in.Epoch, ""

	n.Preferred = "h3"
	in = Decide(n, in, calm{})
	for i, want := range []string{
		"h1[h2 h3 h4] h2[h1] h3[h1 h2 h4] h4[h1]", // the new one expects all
		"h1[h2 h3 h4] h2[h3] h3[h1 h2 h4] h4[h3]", // they come
		"h1[h3] h2[h3] h3[h1 h2 h4] h4[h3]",       // the old one lets go
	} {
		for _, st := range Steps(n, in, calm{}) {
			member(n, st.Host).apply(st)
		}
		if expect(t, n, want); t.Failed() {
			t.Fatalf("in step %d", i+1)
		}
	}
	if settle(t, n, in, calm{}) != 0 {
		t.Error("there was more to do")
	}
}

// TestPassing tells hosts that BFD knows to be well from those that it does not.
func TestPassing(t *testing.T) {
	t.Parallel()
	all := func(h Health) map[Pair]Health {
		return map[Pair]Health{PairOf("h1", "h2"): h, PairOf("h1", "h3"): h}
	}
	for name, c := range map[string]struct {
		change  func(n *Network, in *Intent)
		health  map[Pair]Health
		passing [3]bool
		cutOff  [3]bool
	}{
		"up":                 {passing: [3]bool{true, true, true}},
		"one down":           {health: map[Pair]Health{PairOf("h1", "h2"): Down}, passing: [3]bool{true, false, true}, cutOff: [3]bool{false, true, false}},
		"all down":           {health: all(Down), cutOff: [3]bool{true, true, true}},
		"nothing is said":    {health: all(Unprobed)},
		"a port fails":       {change: func(n *Network, _ *Intent) { n.Members[1].Legs[0].Error = "File exists" }, passing: [3]bool{true, false, true}},
		"one is not known":   {change: func(n *Network, _ *Intent) { n.Members[1].Known = false }, passing: [3]bool{true, true, true}},
		"none is known":      {change: func(n *Network, _ *Intent) { n.Members[0].Known, n.Members[1].Known = false, false }, passing: [3]bool{true, false, true}},
		"the center moves":   {change: func(n *Network, in *Intent) { *in = in.move(n, "h3") }, passing: [3]bool{true, true, true}},
		"there is no center": {change: func(_ *Network, in *Intent) { in.Center = "h9" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := network("h1", "h2", "h3")
			in := Decide(n, Intent{Key: 7}, calm{})
			settle(t, n, in, calm{})
			in.Settled, in.Previous = in.Epoch, ""
			if c.change != nil {
				c.change(n, &in)
			}
			v := view{health: c.health}
			for i, m := range n.Members {
				if got := Passing(n, in, m.Host, v); got != c.passing[i] {
					t.Errorf("%s: passing %t", m.Host, got)
				}
				if got := CutOff(n, in, m.Host, v); got != c.cutOff[i] {
					t.Errorf("%s: cut off %t", m.Host, got)
				}
			}
		})
	}
}

// TestReturn brings a center back that was away when another was chosen, with all its ports.
func TestReturn(t *testing.T) {
	t.Parallel()
	n := network("h1", "h2", "h3")
	in := Decide(n, Intent{Key: 7}, calm{})
	settle(t, n, in, calm{})
	in.Settled, in.Previous = in.Epoch, ""
	n.Members[0].Live, n.Members[0].Known = false, false
	in = Decide(n, in, calm{})
	settle(t, n, in, calm{})
	in.Settled, in.Previous = in.Epoch, ""
	expect(t, n, "h1[h2 h3] h2[h3] h3[h2]")
	n.Members[0].Live, n.Members[0].Known = true, true
	in = Decide(n, in, calm{})
	steps := Steps(n, in, calm{})
	if len(steps) != 1 || steps[0].Host != "h1" {
		t.Fatalf("before the host is clean nobody has a port to it: %+v", steps)
	}
	settle(t, n, in, calm{})
	expect(t, n, "h1[h2] h2[h1 h3] h3[h2]")
}

// TestOwnLegsOnly changes one member after another and counts ports that change.
func TestOwnLegsOnly(t *testing.T) {
	t.Parallel()
	n := network("h1", "h2", "h3", "h4", "h5")
	in := Decide(n, Intent{Key: 7}, calm{})
	settle(t, n, in, calm{})
	for name, c := range map[string]struct {
		change func(m *Member)
		ports  int
	}{
		"address":    {func(m *Member) { m.Address = "198.18.9.9" }, 2},
		"unplugged":  {func(m *Member) { m.Attached = false }, 2},
		"dead":       {func(m *Member) { m.Live, m.Known = false, false }, 1},
		"not known":  {func(m *Member) { m.Known = false }, 0},
		"disabled":   {func(m *Member) { m.Enabled = false }, 0},
		"no bridge":  {func(m *Member) { m.Bridge, m.Legs = "", nil }, 1},
		"no tunnel":  {func(m *Member) { m.Tunnel = false }, 2},
		"other MTU":  {func(m *Member) { m.TransportMTU = 9000 }, 0},
		"other kind": {func(m *Member) { m.Protocol = "vxlan" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &Network{UUID: n.UUID, MTU: n.MTU, Members: slices.Clone(n.Members)}
			for i := range n.Members {
				n.Members[i].Legs = slices.Clone(n.Members[i].Legs)
			}
			c.change(&n.Members[2])
			if got := Decide(n, in, calm{}); got != in {
				t.Errorf("the intent changes to %+v", got)
			}
			if got := settle(t, n, in, calm{}); got != c.ports {
				t.Errorf("%d ports change, want %d", got, c.ports)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	hub := map[string]string{"active": "true", "key": "7", "heddle:role": "center", "heddle:center": "h1"}
	spoke := map[string]string{"active": "true", "key": "7", "heddle:role": "spoke", "heddle:center": "h1"}
	off := map[string]string{"active": "false"}
	failed := func(code string) map[string]string { return map[string]string{"active": "false", "error": code} }
	but := func(m map[string]string, code string) map[string]string {
		m = maps.Clone(m)
		m["error"] = code
		return m
	}
	for name, c := range map[string]struct {
		change func(n *Network) // after all is in place
		health map[Pair]Health
		key    uint32 // 0: 7
		want   [3]map[string]string
	}{
		"fine":      {want: [3]map[string]string{hub, spoke, spoke}},
		"unplugged": {change: func(n *Network) { n.Members[1].Attached = false }, want: [3]map[string]string{hub, off, spoke}},
		"offline":   {change: func(n *Network) { n.Members[1].Live = false }, want: [3]map[string]string{hub, failed(HostOffline), spoke}},
		"offline, frames pass": {change: func(n *Network) { n.Members[1].Live, n.Members[1].Passing = false, true },
			want: [3]map[string]string{hub, but(spoke, HostOffline), spoke}},
		"bridge backend":   {change: func(n *Network) { n.Members[1].OpenVSwitch = false }, want: [3]map[string]string{hub, failed(BackendNotOpenVSwitch), spoke}},
		"no address":       {change: func(n *Network) { n.Members[1].Address = "" }, want: [3]map[string]string{hub, failed(TransportNotConfigured), spoke}},
		"no bridge":        {change: func(n *Network) { n.Members[1].Bridge = "" }, want: [3]map[string]string{hub, failed(BridgeMissing), spoke}},
		"not known, works": {change: func(n *Network) { n.Members[1].Known = false }, want: [3]map[string]string{hub, but(spoke, OVSDBUnreachable), spoke}},
		"never known": {change: func(n *Network) {
			n.Members[1] = ready("h2")
			n.Members[1].Known, n.Members[1].Seen = false, false
			n.Members[1].Reason = "no route"
			n.Members[0].Legs = n.Members[0].Legs[1:]
		},
			want: [3]map[string]string{hub, failed(OVSDBUnreachable + ": no route"), spoke}},
		"cut":            {health: map[Pair]Health{PairOf("h1", "h2"): Down}, want: [3]map[string]string{hub, failed(TransportUnreachable), spoke}},
		"all cut":        {health: map[Pair]Health{PairOf("h1", "h2"): Down, PairOf("h1", "h3"): Down}, want: [3]map[string]string{off, failed(TransportUnreachable), failed(TransportUnreachable)}},
		"not yet probed": {health: map[Pair]Health{PairOf("h1", "h2"): Unprobed}, want: [3]map[string]string{hub, off, spoke}},
		"port fails":     {change: func(n *Network) { n.Members[1].Legs[0].Error = "File exists" }, want: [3]map[string]string{hub, failed("OVS_ERROR: File exists"), spoke}},
		"center's port fails": {change: func(n *Network) { n.Members[0].Legs[0].Error, n.Members[0].Legs[0].OfPort = "File exists", -1 },
			want: [3]map[string]string{hub, failed("OVS_ERROR: on the switching host: File exists"), spoke}},
		"port is not made": {change: func(n *Network) { n.Members[1].Legs[0].OfPort = 0 }, want: [3]map[string]string{hub, off, spoke}},
		"mismatch":         {change: func(n *Network) { n.Members[1].Protocol = "vxlan" }, want: [3]map[string]string{hub, but(spoke, ProtocolMismatch), spoke}},
		"MTU": {change: func(n *Network) { n.Members[1].TransportMTU = 1500 },
			want: [3]map[string]string{hub, but(spoke, "MTU_TOO_LARGE: the network's MTU is 1500, the transport carries at most 1458"), spoke}},
		"no keys": {change: func(n *Network) {
			for i := range n.Members {
				n.Members[i].Legs = nil
			}
		}, key: MaxKey + 1, want: [3]map[string]string{failed(KeysExhausted), failed(KeysExhausted), failed(KeysExhausted)}},
		"alone": {change: func(n *Network) { n.Members[1].Attached, n.Members[2].Attached = false, false }, want: [3]map[string]string{off, off, off}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := network("h1", "h2", "h3")
			in := Decide(n, Intent{Key: 7}, calm{})
			settle(t, n, in, calm{})
			if c.change != nil {
				c.change(n)
			}
			if c.key > MaxKey {
				in = Intent{}
			}
			for i, st := range Statuses(n, in, view{health: c.health}) {
				if got := st.Map(); !maps.Equal(got, c.want[i]) {
					t.Errorf("%s: %v, want %v", n.Members[i].Host, got, c.want[i])
				}
			}
		})
	}
}

func TestMaxMTU(t *testing.T) {
	t.Parallel()
	four, six := Member{TransportMTU: 1500, Address: "192.0.2.1"}, Member{TransportMTU: 1500, Address: "2001:db8::1"}
	for _, c := range []struct {
		m        Member
		protocol string
		want     int
	}{{four, "gre", 1458}, {four, "vxlan", 1450}, {six, "gre", 1438}, {six, "vxlan", 1430}} {
		if got := MaxMTU(&c.m, c.protocol); got != c.want {
			t.Errorf("%s over %s carries %d, want %d", c.protocol, c.m.Address, got, c.want)
		}
	}
}

func TestNextKey(t *testing.T) {
	t.Parallel()
	used := map[uint32]bool{1: true, 2: true, 5: true, MaxKey: true}
	for last, want := range map[uint32]uint32{0: 3, 3: 4, 4: 6, MaxKey - 1: 3, MaxKey: 3} {
		if got, ok := NextKey(last, func(k uint32) bool { return used[k] }); !ok || got != want {
			t.Errorf("after %d comes %d, want %d", last, got, want)
		}
	}
	if key, ok := NextKey(9, func(uint32) bool { return true }); ok {
		t.Errorf("%d although all are used", key)
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	p := NewProbes()
	ab, bc := PairOf("b", "a"), PairOf("b", "c")
	expect := func(step string, changed []string, wantChanged []string, wantAB, wantBC string) {
		t.Helper()
		if !slices.Equal(changed, wantChanged) || p.Carrier("a", "b") != wantAB || p.Carrier("c", "b") != wantBC {
			t.Errorf("%s: changed %v, carriers %q and %q", step, changed, p.Carrier("a", "b"), p.Carrier("c", "b"))
		}
	}
	expect("the first", p.Set("1", []Pair{ab, bc}, nil), nil, "1", "1")
	expect("another", p.Set("2", []Pair{ab, bc}, nil), nil, "1", "1")
	expect("one that probes already", p.Set("3", []Pair{ab}, map[Pair]bool{ab: true}), []string{"1"}, "3", "1")
	expect("it goes", p.Set("3", nil, nil), []string{"1"}, "1", "1")
	expect("a part goes", p.Set("1", []Pair{ab}, nil), []string{"2"}, "1", "2")
	expect("all go", append(p.Set("1", nil, nil), p.Set("2", nil, nil)...), []string{"2"}, "", "")
}

func TestPortName(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, n := range []string{"n1", "n2"} {
		for _, p := range []string{"p1", "p2"} {
			name := PortName(n, p)
			if names[name] || len(name) > 15 || name != PortName(n, p) {
				t.Errorf("port of %s to %s: %s", n, p, name)
			}
			names[name] = true
		}
	}
}

// fleet is networks over the same hosts, nothing made yet.
func fleet(networks, hosts int) []*Network {
	all := make([]*Network, networks)
	for i := range all {
		all[i] = &Network{UUID: fmt.Sprintf("5f6c91aa-0b1d-4e4e-8a51-%012d", i), MTU: 1500}
		for h := range hosts {
			m := ready(fmt.Sprintf("h%d", h))
			m.Host = fmt.Sprintf("7d3b5f0e-52a4-4b0c-9a3e-%012d", h)
			all[i].Members = append(all[i].Members, m)
		}
	}
	return all
}

// loads counts centers.
type loads struct {
	calm
	centers map[string]int
	probes  *Probes
}

func (l loads) Load(host string) int              { return l.centers[host] }
func (l loads) Carries(network, a, b string) bool { return l.probes.Carries(network, a, b) }

// BenchmarkPlan plans 1,000 networks over 16 hosts: centers, legs, and the statuses once they are
// made.
func BenchmarkPlan(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		all := fleet(1000, 16)
		b.StartTimer()
		plan(all)
	}
}

func plan(all []*Network) (loads, []Intent) {
	v := loads{centers: map[string]int{}, probes: NewProbes()}
	intents := make([]Intent, len(all))
	for i, n := range all {
		in := Decide(n, Intent{Key: uint32(i + 1)}, v)
		v.centers[in.Center]++
		pairs, probing := Pairs(n, in)
		v.probes.Set(n.UUID, pairs, probing)
		Steps(n, in, v)
		Statuses(n, in, v)
		intents[i] = in
	}
	return v, intents
}

// BenchmarkChange plans one network of those 1,000 anew, all being in place, after a member's
// address has changed.
func BenchmarkChange(b *testing.B) {
	all := fleet(1000, 16)
	v, intents := plan(all)
	n, in := all[500], intents[500]
	for range 3 {
		for _, st := range Steps(n, in, v) {
			member(n, st.Host).apply(st)
		}
	}
	n.Members[9].Address = "198.18.9.9"
	for b.Loop() {
		in := Decide(n, in, v)
		pairs, probing := Pairs(n, in)
		v.probes.Set(n.UUID, pairs, probing)
		if steps := Steps(n, in, v); len(steps) != 2 {
			b.Fatalf("%d hosts change", len(steps))
		}
		Statuses(n, in, v)
	}
}
