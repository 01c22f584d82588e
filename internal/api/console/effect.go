package console

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/api/operator"
	"heddle/internal/explain"
	"heddle/internal/history"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

const noTime = "the time that a question may take has ended"

// addEffects adds to the changes of a page which connections fare otherwise by each. Those that
// there is no time for, or that a gap parts from newer ones, say so.
func (c *console) addEffects(ctx context.Context, h *operator.History) {
	ctx, cancel := context.WithTimeout(ctx, questionTime)
	defer cancel()
	done, why := c.effects(ctx, h.Changes, h.Names)
	for i := range h.Changes[done:] {
		h.Changes[done+i].Effect = &operator.Effect{Lost: []operator.ReachChange{}, Gained: []operator.ReachChange{}, NotCompared: why}
	}
}

// effects adds the effects of changes, the newest first, and what ids in them stand for to names.
// It returns the number of changes that have theirs, and why the others have none.
func (c *console) effects(ctx context.Context, changes []operator.Revision, names map[string]flow.TraceName) (done int, why string) {
	if len(changes) == 0 {
		return 0, ""
	}
	position := func(i int) journal.Position {
		return journal.Position{Epoch: changes[i].Epoch, Revision: changes[i].Revision}
	}
	past, after, err := history.RewindFrom(ctx, c.Journal, position(0))
	if ctx.Err() != nil {
		return 0, noTime
	} else if err != nil {
		return 0, err.Error()
	}
	world := explain.NewWorld()
	for before := range past.Earlier(ctx) {
		if past.At() == position(done) {
			e, err := effectOf(ctx, world, before, after, names)
			if err != nil {
				return done, noTime
			}
			if changes[done].Effect = e; concernsRoutedHosts(after, &changes[done]) {
				e.NotCompared = "what is on routed hosts: ask heddle calico check"
			}
			if done++; done == len(changes) {
				break
			}
		}
		after = before
	}
	switch _, end, gap, err := past.End(); {
	case err != nil:
		why = err.Error()
	case gap != nil:
		why = fmt.Sprintf("revisions %d to %d were not recorded, or cannot be read", gap.After+1, gap.Until)
	case end == operator.PastRestored:
		why = "the store was restored or replaced after this change"
	default:
		why = noTime
	}
	return done, why
}

// effectOf compares who reaches whom before and after a change.
func effectOf(ctx context.Context, world *explain.World, before, after *records.Snap, names map[string]flow.TraceName) (*operator.Effect, error) {
	e := &operator.Effect{Lost: []operator.ReachChange{}, Gained: []operator.ReachChange{}}
	if before.Same(after) {
		return e, nil
	}
	d, err := world.Diff(ctx, before, after, netip.Addr{})
	if err != nil {
		return nil, err
	}
	e.Lost, e.Gained, e.PairsOmitted = d.Lost, d.Gained, d.PairsOmitted
	groups := nameExamples(after, e.Lost, e.Gained)
	for _, snap := range []*records.Snap{before, after} {
		maps.Copy(names, namesOf(snap, idsOf(groups)))
	}
	return e, nil
}

// concernsRoutedHosts reports whether a change is of Calico's objects, other than of those that
// stand for Neutron's while no network is routed.
func concernsRoutedHosts(snap *records.Snap, r *operator.Revision) bool {
	isCalico := func(key string) bool { return strings.HasPrefix(key, schema.CalicoPrefix) }
	if slices.ContainsFunc(r.Objects, func(o operator.ChangedObject) bool { return isCalico(o.Key) }) {
		return true
	}
	for n := range schema.Networks.All(snap) {
		if n.Routed() {
			return slices.ContainsFunc(r.Derived, isCalico)
		}
	}
	return false
}
