package calc

import (
	"cmp"
	"fmt"
	"slices"

	"heddle/calico"
)

// Changes returns what has changed for this host since the last call. What was changed and changed
// back is left out. Nothing in it is changed later, nor may be by the caller.
func (c *Calc) Changes() *Changes {
	out := &Changes{
		Sets: map[SetID]*SetChange{}, Lists: map[ListID]*List{},
		Workloads: map[calico.WorkloadEndpointKey]*Workload{}, Hosts: map[calico.HostEndpointKey]*Host{},
	}
	c.locals.settlePolicies()
	c.locals.settle()
	for _, l := range c.lists.queue.items {
		c.lists.refresh(l)
	}
	c.addSetChanges(out)
	for _, p := range c.lists.addChanges(out) {
		c.classes.dropProfile(p)
	}
	c.locals.findProblems()
	c.locals.addChanges(out)
	for _, p := range c.policies.queue.items {
		p.queued, p.moved, p.searched = false, false, false
		c.policies.drop(p)
	}
	c.policies.queue.items = c.policies.queue.items[:0]
	return out
}

// oneByOne is the number of changed selectors up to which each policy is matched with each local
// class. Beyond that it is cheaper if the classes search the index.
const oneByOne = 100

// settlePolicies indexes the policies in the queue, and finds the local classes they concern.
func (le *localEndpoints) settlePolicies() {
	if len(le.policies.queue.items) == 0 {
		return
	}
	searched := 0
	for _, p := range le.policies.queue.items {
		le.policies.fileQuery(p)
		if p.searched {
			searched++
		}
	}
	for lc := range le.classes {
		if searched > oneByOne {
			le.touched.add(lc, rematch)
		}
		if lc.redo == rematch {
			continue // it looks itself
		}
		for _, p := range le.policies.queue.items {
			le.settlePolicy(p, lc)
		}
	}
	for key, s := range le.selections {
		if slices.ContainsFunc(s.policies, func(p *policy) bool { return p.moved }) {
			delete(le.selections, key)
		}
	}
}

// settlePolicy checks whether a policy picks a local class.
func (le *localEndpoints) settlePolicy(p *policy, lc *localClass) {
	at, was := findPolicy(lc.matched, p)
	now := was
	if p.searched {
		now = p.selects && le.index.matches(&p.query, lc.class)
	}
	if now != was && lc.shared {
		lc.matched, lc.shared = slices.Clone(lc.matched), false
	}
	switch {
	case now && !was:
		lc.matched = slices.Insert(lc.matched, at, p)
	case was && !now:
		lc.matched = slices.Delete(lc.matched, at, at+1)
	case !now || !p.moved:
		return
	}
	le.touched.add(lc, reselect)
}

// addSetChanges adds the changes of sets, and drops unused sets.
func (c *Calc) addSetChanges(out *Changes) {
	for _, s := range c.sets.queue.items {
		s.queued = false
		was := s.reported
		if change := c.sets.takeChange(s); change != nil {
			out.Sets[s.id] = change
		}
		if was != s.reported {
			for _, l := range s.users {
				c.lists.queue.add(l) // they drop everything while the set does not fit
			}
		}
		if len(s.users) == 0 {
			c.sets.forget(s)
		}
	}
	c.sets.queue.items = c.sets.queue.items[:0]
}

// Problems lists what is wrong in what is stored, in a fixed order, for the log and metrics.
// Problems of single endpoints are in their Errors.
func (c *Calc) Problems() []Problem {
	var all []Problem
	for key, reason := range c.invalid {
		all = append(all, Problem{Key: key, Text: reason})
	}
	for _, t := range c.policies.tiers {
		if !t.counts() {
			all = append(all, Problem{Key: calico.TierKey{Tier: t.name}, Text: fmt.Sprintf("it has no metadata, so its policies (%d) are ignored", len(t.policies))})
		}
	}
	for _, s := range c.sets.all {
		if why := c.sets.tooLarge(s); why != "" {
			all = append(all, Problem{Set: s.id, Text: why})
		}
	}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.subject(), b.subject()), cmp.Compare(a.Text, b.Text))
	})
	return all
}

func (p Problem) subject() string {
	if p.Key == nil {
		return string(p.Set)
	}
	return fmt.Sprintf("%T %v", p.Key, p.Key)
}
