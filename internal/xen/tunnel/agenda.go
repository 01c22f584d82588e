package tunnel

import (
	"maps"
	"slices"
	"time"
)

// agenda lists what has to be considered, now or later.
type agenda[K comparable] struct {
	now   map[K]bool
	later map[K]time.Time // the earliest time at which it has to be
}

func newAgenda[K comparable]() agenda[K] {
	return agenda[K]{map[K]bool{}, map[K]time.Time{}}
}

// add has k considered now.
func (a agenda[K]) add(k K) { a.now[k] = true }

// addAt has k considered at t, if not before.
func (a agenda[K]) addAt(k K, t time.Time) {
	if first, ok := a.later[k]; !ok || t.Before(first) {
		a.later[k] = t
	}
}

// take removes and returns what has to be considered at the time now, in order.
func (a agenda[K]) take(now time.Time, order func(a, b K) int) []K {
	for k, t := range a.later {
		if !now.Before(t) {
			delete(a.later, k)
			a.now[k] = true
		}
	}
	keys := slices.SortedFunc(maps.Keys(a.now), order)
	clear(a.now)
	return keys
}

// next returns the earlier of limit and the time at which something is due later.
func (a agenda[K]) next(limit time.Time) time.Time {
	for _, t := range a.later {
		if t.Before(limit) {
			limit = t
		}
	}
	return limit
}
