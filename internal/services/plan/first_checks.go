package plan

import (
	"slices"
	"time"

	"heddle/internal/topology"
)

// PathTime is the time that the path to a member gets to come up before its first check, where a
// single failure takes a member down: meanwhile the hosts read where new ports are.
const PathTime = 3 * time.Second

// FirstChecks has the times of the first checks of members.
type FirstChecks struct {
	since map[string]time.Time // when the container got a member without a verdict
}

// Due returns a container without the members whose first check is to come later than now, and when
// the next one is due, zero for none. A member with a verdict of this host is checked at once, and
// so are those of pools that need several failures.
func (f *FirstChecks) Due(c Container, judged func(member string) bool, now time.Time) (due Container, next time.Time) {
	since := map[string]time.Time{}
	early := func(m topology.PoolMember) bool {
		if judged(m.ID) {
			return false
		}
		begun, ok := f.since[m.ID]
		if !ok {
			begun = now
		}
		since[m.ID] = begun
		first := begun.Add(PathTime)
		if !first.After(now) {
			return false
		}
		if next.IsZero() || first.Before(next) {
			next = first
		}
		return true
	}
	c.Pools = slices.Clone(c.Pools)
	for i := range c.Pools {
		if p := &c.Pools[i]; p.Fall() == 1 {
			p.Members = slices.DeleteFunc(slices.Clone(p.Members), early)
		}
	}
	f.since = since
	return c, next
}
