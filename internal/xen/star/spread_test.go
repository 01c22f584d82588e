package star

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// growing is networks that grow host by host, with what a controller keeps of each.
type growing struct {
	t     *testing.T
	all   []*growingNetwork
	load  map[string]int
	moves int
}

type growingNetwork struct {
	*Network
	in    Intent
	hosts []string // that have had a leg
}

func (g *growing) Load(host string) int          { return g.load[host] }
func (g *growing) Carries(_, _, _ string) bool   { return true }
func (g *growing) Health(a, b string) (h Health) { return Up }

func newGrowing(t *testing.T, networks int) *growing {
	g := &growing{t: t, load: map[string]int{}}
	for i := range networks {
		g.all = append(g.all, &growingNetwork{Network: &Network{UUID: fmt.Sprintf("net%d", i)}, in: Intent{Key: uint32(i + 1)}})
	}
	return g
}

// join gives the host a tunnel on the network.
func (g *growing) join(network, host int) {
	n := g.all[network]
	n.Members = append(n.Members, ready(fmt.Sprintf("h%d", host)))
	g.work(n)
}

// work decides and does until nothing is left.
func (g *growing) work(n *growingNetwork) {
	g.t.Helper()
	for range 3 {
		before := n.in
		n.in = Decide(n.Network, n.in, g)
		for i := range n.Members {
			if m := &n.Members[i]; Considered(n.Network, before, m, g) {
				m.New = false
			}
		}
		if n.in.Center != before.Center {
			g.load[before.Center]--
			g.load[n.in.Center]++
			if before.Center != "" {
				g.moves++
			}
		}
		for _, host := range Hosts(n.Network, n.in) {
			if !slices.Contains(n.hosts, host) {
				n.hosts = append(n.hosts, host)
				member(n.Network, host).New = before.Center != ""
			}
		}
		settle(g.t, n.Network, n.in, g)
		n.in.Settled, n.in.Previous = n.in.Epoch, ""
	}
}

// check looks whether no host is center of more than one network more than another.
func (g *growing) check(what string, hosts int) {
	g.t.Helper()
	delete(g.load, "")
	counts := slices.Sorted(maps.Values(g.load))
	if len(counts) != hosts || counts[hosts-1]-counts[0] > 1 {
		g.t.Errorf("%s: centers are %v", what, g.load)
	}
}

// TestSpread grows 20 networks over 8 hosts in every order that people do: centers spread evenly,
// and then stay.
func TestSpread(t *testing.T) {
	t.Parallel()
	const networks, hosts = 20, 8
	for what, grow := range map[string]func(g *growing){
		"network by network": func(g *growing) {
			for n := range networks {
				for h := range hosts {
					g.join(n, h)
				}
			}
		},
		"host by host": func(g *growing) {
			for h := range hosts {
				for n := range networks {
					g.join(n, h)
				}
			}
		},
		"all hosts at once": func(g *growing) {
			for _, n := range g.all {
				for h := range hosts {
					n.Members = append(n.Members, ready(fmt.Sprintf("h%d", h)))
				}
				g.work(n)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := newGrowing(t, networks)
			grow(g)
			g.check(what, hosts)
			if most := networks * (hosts - 2); g.moves > most/2 {
				t.Errorf("%d moves", g.moves)
			}
			t.Logf("%d moves, centers %v", g.moves, g.load)

			// Nothing moves when nothing happens, nor when a host goes and comes back, but for what
			// it was center of.
			g.moves = 0
			again := func() {
				for _, n := range g.all {
					g.work(n)
				}
			}
			again()
			if g.moves > 0 {
				t.Errorf("%d centers move although nothing has happened", g.moves)
			}
			was := g.load["h3"]
			for _, live := range []bool{false, true} {
				for _, n := range g.all {
					member(n.Network, "h3").Live = live
				}
				again()
			}
			if g.moves != was {
				t.Errorf("%d centers have moved because a host was away that had %d", g.moves, was)
			}
		})
	}
}

// TestNewcomer names what keeps a newcomer from becoming center.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(n *Network, in *Intent, v *view)
		want   string
	}{
		"takes over":               {want: "h3"},
		"not fewer enough":         {func(_ *Network, _ *Intent, v *view) { v.load["h3"] = 4 }, "h1"},
		"no newcomer":              {func(n *Network, _ *Intent, _ *view) { n.Members[2].New = false }, "h1"},
		"no frame passes":          {func(_ *Network, _ *Intent, v *view) { v.health[PairOf("h1", "h3")] = Down }, "h1"},
		"not known whether any do": {func(_ *Network, _ *Intent, v *view) { v.health[PairOf("h1", "h3")] = Unprobed }, "h1"},
		"its port fails":           {func(n *Network, _ *Intent, _ *view) { n.Members[2].Legs[0].OfPort = -1 }, "h1"},
		"disabled":                 {func(n *Network, _ *Intent, _ *view) { n.Members[2].Enabled = false }, "h1"},
		"not known":                {func(n *Network, _ *Intent, _ *view) { n.Members[2].Known = false }, "h1"},
		"the center was asked for": {func(n *Network, _ *Intent, _ *view) { n.Preferred = "h1" }, "h1"},
		"the network is moving":    {func(_ *Network, in *Intent, _ *view) { in.Settled = 0 }, "h1"},
		"the center moved of late": {func(n *Network, _ *Intent, _ *view) { n.Steady = true }, "h1"},
		"another is lighter":       {func(n *Network, _ *Intent, v *view) { n.Members[1].New, v.load["h2"] = true, 0 }, "h2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := network("h1", "h2", "h3")
			in := Decide(n, Intent{Key: 7}, calm{})
			settle(t, n, in, calm{})
			in.Settled, in.Previous = in.Epoch, ""
			n.Members[2].New = true
			v := view{load: map[string]int{"h1": 5, "h2": 5, "h3": 1}, health: map[Pair]Health{}}
			if c.change != nil {
				c.change(n, &in, &v)
			}
			if got := Decide(n, in, v); got.Center != c.want {
				t.Errorf("center %s, want %s", got.Center, c.want)
			}
		})
	}
}
