package offline

import (
	"fmt"
	"maps"
	"strings"
)

// limits restricts the values that a scenario captures.
type limits struct {
	ranges   map[string][2]int
	distinct [][2]string
}

// read adds the vars and distinct of a scenario or a step; names may be written with their $.
func (l *limits) read(o object) error {
	vars, err := o.get("vars").anyObject()
	if err != nil {
		return err
	}
	for _, name := range vars.names() {
		bounds, err := each(vars.get(name), func(n node) (int, error) {
			v, _, err := n.number(0, 1<<32-1)
			return v, err
		})
		if err != nil {
			return err
		}
		if len(bounds) != 2 {
			return fileErrorf(vars.under(name), "want [low, high]")
		}
		l.ranges[strings.TrimPrefix(name, "$")] = [2]int(bounds)
	}
	pairs, err := each(o.get("distinct"), func(n node) ([]string, error) { return each(n, node.text) })
	if err != nil {
		return err
	}
	for _, pair := range pairs {
		if len(pair) != 2 {
			return fileErrorf(o.under("distinct"), "want pairs of names")
		}
		l.distinct = append(l.distinct, [2]string{strings.TrimPrefix(pair[0], "$"), strings.TrimPrefix(pair[1], "$")})
	}
	return nil
}

// hold reports whether the captured values are within their bounds and differ where they should.
func (l *limits) hold(captured map[string]any) bool {
	for name, bounds := range l.ranges {
		value, known := captured[name]
		if !known {
			continue
		}
		if v, isNumber := value.(int); !isNumber || v < bounds[0] || v > bounds[1] {
			return false
		}
	}
	for _, pair := range l.distinct {
		a, aKnown := captured[pair[0]]
		b, bKnown := captured[pair[1]]
		if aKnown && bKnown && fmt.Sprint(a) == fmt.Sprint(b) {
			return false
		}
	}
	return true
}

// assignmentTries bounds the search for which delivery meets which expectation.
const assignmentTries = 1_000_000

// assign finds for every expectation a delivery of its own, such that the captured values agree. If
// there are, it keeps what they captured.
func (r *run) assign(want []expected, got []delivery) bool {
	tries := 0
	used := make([]bool, len(got))
	var search func(i int, captured map[string]any) bool
	search = func(i int, captured map[string]any) bool {
		if i == len(want) {
			if !r.limits.hold(captured) {
				return false
			}
			r.captured = captured
			return true
		}
		for j := range got {
			if tries++; tries > assignmentTries {
				return false
			}
			if used[j] || got[j].Port != want[i].port {
				continue
			}
			taken := maps.Clone(captured)
			if !want[i].frame.matches(got[j].Frame, taken) {
				continue
			}
			used[j] = true
			if search(i+1, taken) {
				return true
			}
			used[j] = false
		}
		return false
	}
	return search(0, r.captured)
}
