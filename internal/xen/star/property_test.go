package star

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// machine is a host as it really is.
type machine struct {
	legs    []Leg
	bridge  bool
	address int
	cut     bool  // the controller does not reach its OVSDB
	pending *Step // a transaction on its way; when the host is cut, one that may still be done
}

// world is hosts, a controller that may know less than there is, and what happens to them.
type world struct {
	machines map[string]*machine
	n        *Network
	in       Intent
	down     map[Pair]Health
	loads    map[string]int
}

func (w *world) Load(host string) int          { return w.loads[host] }
func (w *world) Carries(_, a, b string) bool   { return a < b }
func (w *world) Health(a, b string) (h Health) { return w.down[PairOf(a, b)] }
func (w *world) member(t *rapid.T) *Member {
	return &w.n.Members[rapid.IntRange(0, len(w.n.Members)-1).Draw(t, "host")]
}
func (w *world) machine(m *Member) *machine { return w.machines[m.Host] }
func (m *machine) at() string               { return fmt.Sprintf("198.18.0.%d", m.address) }
func after(legs []Leg, st Step) []Leg {
	legs = slices.DeleteFunc(slices.Clone(legs), func(l Leg) bool {
		return slices.ContainsFunc(st.Delete, func(d Found) bool { return d.Name == l.Name }) ||
			slices.ContainsFunc(st.Put, func(p Leg) bool { return p.Name == l.Name })
	})
	return append(legs, st.Put...)
}

// do carries out what is on its way to a host.
func (m *machine) do() {
	if m.pending != nil && m.bridge {
		m.legs = after(m.legs, *m.pending)
	}
	m.pending = nil
}

// look brings the controller's knowledge of a host up to date.
func (w *world) look(m *Member) {
	real := w.machine(m)
	m.Known, m.Seen, m.Busy, m.Hub, m.Lost = true, true, false, false, false
	m.Bridge, m.Legs = "", nil
	if real.bridge {
		m.Bridge = "xapi0"
	}
	for _, l := range real.legs {
		m.Legs = append(m.Legs, Found{Leg: l, Bridge: "xapi0", OfPort: 1})
	}
}

// send begins a step.
func (w *world) send(st Step) {
	m, real := member(w.n, st.Host), w.machines[st.Host]
	real.pending = &st
	m.Busy = true
	m.Hub = m.Hub || len(m.Legs) > 1 || len(after(real.legs, st)) > 1
}

// finish is the end of a transaction: the answer comes.
func (w *world) finish(m *Member) {
	w.machine(m).do()
	w.look(m)
}

// act is one thing that may happen.
func (w *world) act(t *rapid.T) {
	m := w.member(t)
	real := w.machine(m)
	switch what := rapid.SampledFrom([]string{"decide", "decide", "step", "step", "step", "step", "finish", "finish", "finish", "finish", "finish", "finish", "late", "cut", "join", "lost", "attach", "live", "enable", "address", "probe", "prefer",
		"settle", "restart", "tunnel", "new", "load", "passing"}).Draw(t, "what"); what {
	case "decide":
		w.in = Decide(w.n, w.in, w)
	case "step":
		if steps := Steps(w.n, w.in, w); len(steps) > 0 {
			w.send(rapid.SampledFrom(steps).Draw(t, "step"))
		}
	case "finish":
		if m.Known && m.Busy {
			w.finish(m)
		}
	case "late":
		if real.cut {
			real.do()
		}
	case "cut":
		real.cut = true
		m.Known, m.Busy = false, false
	case "join": // what was sent before is done now or never
		if real.cut {
			if real.cut = false; rapid.Bool().Draw(t, "done") {
				real.do()
			}
			real.pending = nil
			w.look(m)
		}
	case "lost":
		m.Lost = !m.Known
	case "attach":
		m.Attached = !m.Attached
		if real.bridge = m.Attached; !real.bridge {
			real.legs = nil
		}
		if m.Known && !m.Busy {
			w.look(m)
		}
	case "live":
		m.Live = !m.Live
	case "enable":
		m.Enabled = !m.Enabled
	case "address":
		real.address += 10
		m.Address = real.at()
	case "probe":
		o := w.member(t)
		w.down[PairOf(m.Host, o.Host)] = rapid.SampledFrom([]Health{Unprobed, Up, Down}).Draw(t, "health")
	case "prefer":
		w.n.Preferred, w.n.AutoRevert = m.Host, rapid.Bool().Draw(t, "revert")
	case "settle":
		if _, all := InPlace(w.n, w.in, w); all {
			w.in.Settled, w.in.Previous = w.in.Epoch, ""
		}
	case "restart":
		for i := range w.n.Members {
			m := &w.n.Members[i]
			real := w.machine(m)
			real.cut = true
			m.Known, m.Seen, m.Busy, m.Hub, m.Lost, m.Bridge, m.Legs = false, false, false, false, false, "", nil
		}
	case "tunnel":
		m.Tunnel = !m.Tunnel
	case "new":
		m.New = !m.New
	case "passing":
		m.Passing = !m.Passing
	case "load":
		w.loads[m.Host] = rapid.IntRange(0, 9).Draw(t, "load")
	}
}

// check fails the test if an invariant is broken.
func (w *world) check(t *rapid.T) {
	edges := map[Pair]int{}
	for host, m := range w.machines {
		for _, l := range m.legs {
			edges[PairOf(host, l.Peer)]++
		}
	}
	parent := map[string]string{}
	var root func(string) string
	root = func(h string) string {
		if p, ok := parent[h]; ok {
			return root(p)
		}
		return h
	}
	for pair, ends := range edges {
		switch {
		case ends > 2:
			t.Fatalf("%v have %d ends between them: %s", pair, ends, w)
		case ends < 2:
			continue
		}
		a, b := root(pair[0]), root(pair[1])
		if a == b {
			t.Fatalf("the legs form a ring: %s", w)
		}
		parent[a] = b
	}
	for i, st := range Statuses(w.n, w.in, w) {
		if m := &w.n.Members[i]; st.Active && (!m.Tunnel || !m.Attached || !m.Live && !m.Passing || m.Address == "" || m.Known && len(m.Legs) == 0) {
			t.Fatalf("%s is said to be active: %s", m.Host, w)
		}
	}
}

func (w *world) String() string {
	text := fmt.Sprintf("%+v\n", w.in)
	for _, host := range slices.Sorted(maps.Keys(w.machines)) {
		m := w.machines[host]
		text += fmt.Sprintf("%s: %+v pending %+v; known %+v\n", host, m.legs, m.pending, *member(w.n, host))
	}
	return text
}

// heal ends all faults and lets the controller work to the end.
func (w *world) heal(t *rapid.T) {
	for i := range w.n.Members {
		m := &w.n.Members[i]
		w.machine(m).cut, w.machine(m).pending = false, nil
		m.Live = true
		w.look(m)
	}
	clear(w.down)
	for a := range w.machines {
		for b := range w.machines {
			w.down[PairOf(a, b)] = Up
		}
	}
	for range 20 {
		w.in = Decide(w.n, w.in, w)
		steps := Steps(w.n, w.in, w)
		if len(steps) == 0 {
			w.converged(t)
			return
		}
		for _, st := range rapid.Permutation(steps).Draw(t, "order") {
			w.send(st)
			w.finish(member(w.n, st.Host))
			w.check(t)
		}
	}
	t.Fatalf("it never ends: %+v\n%s", Steps(w.n, w.in, w), w)
}

// converged reports whether there is a star of all members, and nothing else.
func (w *world) converged(t *rapid.T) {
	var members []string
	for i := range w.n.Members {
		if m := &w.n.Members[i]; m.Tunnel && m.Attached {
			members = append(members, m.Host)
		}
	}
	statuses := Statuses(w.n, w.in, w)
	for i := range w.n.Members {
		m := &w.n.Members[i]
		var want []string
		switch {
		case len(members) < 2 || !slices.Contains(members, m.Host):
		case m.Host == w.in.Center:
			want = slices.DeleteFunc(slices.Clone(members), func(h string) bool { return h == m.Host })
		default:
			want = []string{w.in.Center}
		}
		var got []string
		for _, l := range w.machine(m).legs {
			got = append(got, l.Peer)
			if l.RemoteIP != w.machines[l.Peer].at() || l.LocalIP != w.machine(m).at() || l.Epoch != w.in.Epoch || l.Key != w.in.Key {
				t.Fatalf("%s has the leg %+v", m.Host, l)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Fatalf("%s has legs to %v, want %v: %s", m.Host, got, want, w)
		}
		if statuses[i].Active != (want != nil) || statuses[i].Error != "" {
			t.Fatalf("%s has status %+v with legs %v", m.Host, statuses[i], want)
		}
	}
}

// TestAlwaysForest lets everything happen that may, in any order, and looks at the true state after
// each.
func TestAlwaysForest(t *testing.T) {
	t.Parallel()
	for range 20 { // a hundred runs are few for rings that need three centers
		rapid.Check(t, storm)
	}
}

func storm(t *rapid.T) {
	w := &world{machines: map[string]*machine{}, n: network("h1", "h2", "h3", "h4", "h5"), in: Intent{Key: 7}, down: map[Pair]Health{}, loads: map[string]int{}}
	for i := range w.n.Members {
		m := &w.n.Members[i]
		w.machines[m.Host] = &machine{bridge: true, address: i}
		m.Address = w.machines[m.Host].at()
	}
	w.heal(t)
	for range rapid.IntRange(0, 120).Draw(t, "length") {
		w.act(t)
		w.check(t)
	}
	w.heal(t)
}
