package explain

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/records"
)

// mostPairs bounds the pairs of sets in an answer.
const mostPairs = 10_000

// setsOf has, by what machines are counted by, the function that returns the ids of a port's sets.
var setsOf = map[string]func(p *neutron.Port) []string{
	"group":   func(p *neutron.Port) []string { return orNone(p.SecurityGroups) },
	"network": func(p *neutron.Port) []string { return []string{p.NetworkID} },
	"project": func(p *neutron.Port) []string { return []string{p.ProjectID} },
}

// orNone returns the sets, or the one of what is in none.
func orNone(sets []string) []string {
	if len(sets) == 0 {
		return []string{""}
	}
	return sets
}

// matrix answers for one service between all pairs of machines.
func (w *World) matrix(ctx context.Context, snap *records.Snap, q *operator.ReachRequest) (*operator.ReachAnswer, error) {
	sets, ok := setsOf[q.By]
	switch {
	case !ok:
		return nil, fault("by", Invalid, "%q: want group, network or project", q.By)
	case q.From != "" || q.To != "":
		return nil, fault("by", Invalid, "all pairs are counted without from and to")
	case q.Protocol == "" && q.Port == 0:
		return nil, fault("port", Invalid, "all pairs are counted for one service: want a port, or a protocol")
	case q.Version != 0 && q.Version != 4 && q.Version != 6:
		return nil, fault("version", Invalid, "%d: want 4 or 6", q.Version)
	}
	s, err := readService(&operator.WhyRequest{Protocol: q.Protocol, Port: q.Port})
	if err != nil {
		return nil, err
	}
	is4 := q.Version != 6
	s = s.ofFamily(is4)
	r := w.rosterOf(snap)
	c := counts{sets: map[string][]string{}, sizes: map[string]int{}, both: map[[2]string]int{}, all: map[[2]string]*operator.ReachPairs{}}
	for id, p := range r.machines {
		c.sets[id] = sets(p)
	}
	c.add(reach.NewMatrix(ctx, w.world, r.partition, reach.Service{Protocol: s.proto, Port: s.port}, is4, r.end))
	a := &operator.ReachAnswer{Revision: snap.Revision(), Service: s.String(), Reaches: []operator.Reach{}}
	a.Pairs, a.PairsOmitted = c.pairs()
	return a, late(ctx)
}

// counts has the pairs of machines by the sets that they are in.
type counts struct {
	sets  map[string][]string // of each port
	sizes map[string]int      // of the sets
	both  map[[2]string]int   // ports that are in both of two sets
	all   map[[2]string]*operator.ReachPairs
}

// members is the number of ends of a class by their sets.
type members struct {
	in   map[string]int
	both map[[2]string]int // in both of two
}

// add counts the pairs of a matrix.
func (c *counts) add(m *reach.Matrix) {
	classes := make([]members, len(m.Classes))
	for i, ends := range m.Classes {
		classes[i] = members{in: map[string]int{}, both: map[[2]string]int{}}
		for _, e := range ends {
			for _, a := range c.sets[e.PortID] {
				classes[i].in[a]++
				c.sizes[a]++
				for _, b := range c.sets[e.PortID] {
					classes[i].both[[2]string{a, b}]++
					c.both[[2]string{a, b}]++
				}
			}
		}
	}
	for i := range classes {
		for j := range classes {
			if fate := m.Fate(i, j); fate != reach.Never {
				c.addClasses(&classes[i], &classes[j], i == j, fate)
			}
		}
	}
}

// addClasses counts the pairs of a member of one class and another of a second, or of the same.
func (c *counts) addClasses(from, to *members, same bool, fate reach.Fate) {
	for a, n := range from.in {
		for b, k := range to.in {
			key := [2]string{a, b}
			pairs := n * k
			if same {
				pairs -= from.both[key]
			}
			if pairs == 0 {
				continue
			}
			x := c.all[key]
			if x == nil {
				x = &operator.ReachPairs{From: a, To: b, All: c.sizes[a]*c.sizes[b] - c.both[key]}
				c.all[key] = x
			}
			switch fate {
			case reach.Always:
				x.Reached += pairs
			case reach.May:
				x.May += pairs
			default:
				x.OneWay += pairs
			}
		}
	}
}

// pairs returns the counts in order of their sets, and how many are left out.
func (c *counts) pairs() (pairs []operator.ReachPairs, omitted int) {
	all := slices.SortedFunc(maps.Values(c.all), func(a, b *operator.ReachPairs) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	for _, x := range all[:min(len(all), mostPairs)] {
		pairs = append(pairs, *x)
	}
	return pairs, len(all) - len(pairs)
}
