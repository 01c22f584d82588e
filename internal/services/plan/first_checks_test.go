package plan

import (
	"strings"
	"testing"
	"time"

	"heddle/internal/topology"
)

// TestFirstChecks: where one failure takes a member down, a member without a verdict is checked
// when its path has had time to come up, and each has a time of its own.
func TestFirstChecks(t *testing.T) {
	begin := time.Unix(1000, 0)
	pool := func(fall int, members ...string) Pool {
		p := Pool{Monitor: topology.HealthMonitor{FailRetries: fall}}
		for _, id := range members {
			p.Members = append(p.Members, topology.PoolMember{ID: id})
		}
		return p
	}
	var f FirstChecks
	for _, x := range []struct {
		name   string
		after  time.Duration
		pools  []Pool
		judged string
		want   string
		next   time.Duration // 0 = none
	}{
		{"new", 0, []Pool{pool(1, "a"), pool(2, "b")}, "", "b", PathTime},
		{"another", time.Second, []Pool{pool(1, "a", "c"), pool(2, "b")}, "", "b", PathTime},
		{"the first is due", PathTime, []Pool{pool(1, "a", "c"), pool(2, "b")}, "", "a b", time.Second + PathTime},
		{"all are due", time.Second + PathTime, []Pool{pool(1, "a", "c"), pool(2, "b")}, "", "a c b", 0},
		{"gone", time.Second + PathTime, []Pool{pool(1, "a"), pool(2, "b")}, "", "a b", 0},
		{"back", 2*time.Second + PathTime, []Pool{pool(1, "a", "c")}, "", "a", 2*time.Second + 2*PathTime},
		{"with a verdict", 2*time.Second + PathTime, []Pool{pool(1, "a", "d")}, "d", "a d", 0},
	} {
		c, next := f.Due(Container{Pools: x.pools}, func(m string) bool { return m == x.judged }, begin.Add(x.after))
		var got []string
		for _, p := range c.Pools {
			for _, m := range p.Members {
				got = append(got, m.ID)
			}
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%s: checks %v, want %s", x.name, got, x.want)
		}
		if want := begin.Add(x.next); x.next == 0 && !next.IsZero() || x.next != 0 && !next.Equal(want) {
			t.Errorf("%s: the next is due at %v, want %v after %v", x.name, next, x.next, begin)
		}
	}
}
