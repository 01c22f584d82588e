package plan

import (
	"cmp"
	"maps"
	"slices"
)

// MaxWeight bounds the weight of a host, which the host itself reports: no host gets more than this
// many times the containers of one with weight 1.
const MaxWeight = 10

// Host is a live host that runs service containers.
type Host struct {
	ID     string
	Weight int // its share of the containers, at most MaxWeight
	Limit  int // containers that it runs at most; 0 = any number
	// Able has the kinds of containers that it runs, and Unable those for which it lacks a program:
	// it gets one of them only where no other host may have it.
	Able, Unable map[string]bool
}

// Placed is a service container and its place.
type Placed struct {
	ID, Kind string
	// Among has the hosts that may run it; empty = any.
	Among map[string]bool
	Host  string // that runs it, "" for none
}

// Move gives a container another host, "" for none.
type Move struct{ ContainerID, From, To string }

// Place returns the moves after which each of these containers is on an eligible host, if there is
// one. A container stays where it is while its host is eligible. Others go to the host with the
// fewest containers for its weight, of equals to that with the lowest id. others counts, by host,
// the containers that stay there and are not among these.
func Place(hosts []Host, containers []Placed, others map[string]int) (moves []Move) {
	count := maps.Clone(others)
	if count == nil {
		count = map[string]int{}
	}
	byID := make(map[string]*Host, len(hosts))
	for i := range hosts {
		byID[hosts[i].ID] = &hosts[i]
	}
	var homeless []Placed
	for _, c := range slices.SortedFunc(slices.Values(containers), func(a, b Placed) int { return cmp.Compare(a.ID, b.ID) }) {
		if h := byID[c.Host]; h != nil && stays(h, &c, hosts) {
			count[c.Host]++
		} else {
			homeless = append(homeless, c)
		}
	}
	for _, c := range homeless {
		to := choose(hosts, &c, count)
		count[to]++
		if to != c.Host {
			moves = append(moves, Move{c.ID, c.Host, to})
		}
	}
	return moves
}

// stays reports whether a container's host is still eligible. One that lacks the program is while
// all are like it.
func stays(h *Host, c *Placed, hosts []Host) bool {
	if !c.mayBeOn(h) || !h.Able[c.Kind] && !h.Unable[c.Kind] {
		return false
	}
	able := func(o Host) bool { return o.Able[c.Kind] && c.mayBeOn(&o) }
	return h.Able[c.Kind] || !slices.ContainsFunc(hosts, able)
}

func (c *Placed) mayBeOn(h *Host) bool { return len(c.Among) == 0 || c.Among[h.ID] }

// choose returns the host for a container that has none, or "".
func choose(hosts []Host, c *Placed, count map[string]int) string {
	var best *Host
	for i := range hosts {
		h := &hosts[i]
		if !c.mayBeOn(h) || h.Weight <= 0 || h.Limit > 0 && count[h.ID] >= h.Limit || !h.Able[c.Kind] && !h.Unable[c.Kind] {
			continue
		}
		if best == nil || before(h, best, c.Kind, count) {
			best = h
		}
	}
	if best == nil {
		return ""
	}
	return best.ID
}

// before reports whether a container goes to a rather than to b.
func before(a, b *Host, kind string, count map[string]int) bool {
	if a.Able[kind] != b.Able[kind] {
		return a.Able[kind]
	}
	// a.count / a.weight < b.count / b.weight, without fractions.
	return cmp.Or(cmp.Compare(count[a.ID]*b.Weight, count[b.ID]*a.Weight), cmp.Compare(a.ID, b.ID)) < 0
}
