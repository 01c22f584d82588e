package simulate

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"

	"pgregory.net/rapid"
)

// poolOf makes a pool of members with these weights, at 10.9.0.1 and on.
func poolOf(method string, weights ...int) *pool {
	p := &pool{def: &topology.Pool{ID: "p", AdminStateUp: true, LBMethod: method}}
	for i, w := range weights {
		m := &member{pool: p, def: &topology.PoolMember{AdminStateUp: true, Weight: w, Address: netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), ProtocolPort: 80}}
		m.id = fmt.Sprint("m", i)
		p.members = append(p.members, m)
	}
	return p
}

// TestByWeight: members get connections by their weights, none without one.
func TestByWeight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(0, 256), 1, 20).Draw(t, "weights")
		c := newChoice(poolOf(topology.MethodRoundRobin, weights...))
		sum := 0
		for _, w := range weights {
			sum += w
		}
		if sum == 0 {
			if len(c.members) > 0 {
				t.Fatal("members without weight are selectable")
			}
			return
		}
		// Over numbers at equal distances the shares are exact, but for the ends of slots.
		const n = 1 << 16
		got := map[string]int{}
		for i := range uint64(n) {
			got[c.byWeight(i<<48).id]++
		}
		for i, w := range weights {
			id := fmt.Sprint("m", i)
			if want := float64(n) * float64(w) / float64(sum); math.Abs(float64(got[id])-want) > 2*float64(len(weights)) {
				t.Fatalf("%s of weight %d gets %d of %d, want %.0f (weights %v)", id, w, got[id], n, want, weights)
			}
		}
	})
}

// TestByHash: sources spread by weight, and only those of a member that goes move.
func TestByHash(t *testing.T) {
	t.Parallel()
	const sources = 20000
	p := poolOf(topology.MethodSourceIP, 1, 2, 1, 4)
	before, shares := map[uint64]string{}, map[string]int{}
	for i := range uint64(sources) {
		m := newChoice(p).byHash(mix(i))
		before[i] = m.id
		shares[m.id]++
	}
	for i, m := range p.members {
		if got, want := float64(shares[m.id])/sources, float64(m.def.Weight)/8; math.Abs(got-want) > 0.02 {
			t.Errorf("member %d has %.3f of the sources, want %.3f", i, got, want)
		}
	}
	p.members[1].def.AdminStateUp = false
	c := newChoice(p)
	for i, was := range before {
		if now := c.byHash(mix(i)); was != "m1" && now.id != was {
			t.Fatalf("source %d went from %s to %s, though m1 went", i, was, now.id)
		}
	}
}

// TestByConnections: the member with the fewest connections for its weight, and each of several
// alike in turn.
func TestByConnections(t *testing.T) {
	t.Parallel()
	p := poolOf(topology.MethodLeastConnections, 1, 2, 1, 1)
	c := newChoice(p)
	conns := map[string]int{"m0": 3, "m1": 3, "m2": 2, "m3": 9}
	count := func(m *member) int { return conns[m.id] }
	if m := c.byConnections(1, count); m.id != "m1" {
		t.Errorf("got %s, want m1 with 1.5 for its weight", m.id)
	}
	conns["m1"] = 4 // as m2
	got := map[string]int{}
	for i := range uint64(1000) {
		got[c.byConnections(mix(i), count).id]++
	}
	if len(got) != 2 || got["m1"] < 400 || got["m2"] < 400 {
		t.Errorf("of two alike: %v", got)
	}
}

// TestMethods: each method is the one that the pool names, and the same connection goes the same
// way.
func TestMethods(t *testing.T) {
	t.Parallel()
	key := func(src string, port uint16) flow.NATKey {
		return flow.NATKey{Src: ip(src), Dst: ip("10.0.0.1"), SrcPort: port, DstPort: 80, Proto: 6}
	}
	members := func(method string, src string, ports int) int {
		p := poolOf(method, 1, 1, 1, 1, 1, 1, 1, 1)
		seen := map[string]bool{}
		for port := range ports {
			m, _ := p.selectable().pick(p, key(src, uint16(port)), 1, func(*member) int { return 0 })
			again, _ := p.selectable().pick(p, key(src, uint16(port)), 1, func(*member) int { return 0 })
			if m != again {
				t.Errorf("%s: one connection has two members", method)
			}
			seen[m.id] = true
		}
		return len(seen)
	}
	for method, want := range map[string]int{topology.MethodSourceIP: 1, topology.MethodSourceIPPort: 8, topology.MethodRoundRobin: 8, topology.MethodLeastConnections: 8} {
		if got := members(method, "192.0.2.1", 400); got != want {
			t.Errorf("%s: a client's connections go to %d members, want %d", method, got, want)
		}
	}
}
