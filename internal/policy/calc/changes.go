package calc

import (
	"cmp"
	"fmt"
	"slices"

	"heddle/calico"
)

// Changes says what became of this host's needs since the last call. What has changed and is again as it was, is not in
// it. Nothing in it is changed later, and nothing may be changed by others.
func (c *Calc) Changes() *Changes {
	out := &Changes{
		Sets: map[SetID]*SetChange{}, Lists: map[ListID]*List{},
		Workloads: map[calico.WorkloadEndpointKey]*Workload{}, Hosts: map[calico.HostEndpointKey]*Host{},
	}
	c.settlePolicies()
	c.settleLocals()
	for _, l := range c.queuedLists {
		c.refresh(l)
	}
	c.tellSets(out)
	c.tellLists(out)
	c.findProblems()
	c.tellLocals(out)
	for _, p := range c.queuedPolicies {
		p.queued, p.moved, p.searched = false, false, false
		c.dropPolicy(p)
	}
	c.queuedPolicies = c.queuedPolicies[:0]
	return out
}

// oneByOne is up to how many policies are looked at for each local class, when their selectors change. Beyond that it
// costs less that the classes look for their policies anew.
const oneByOne = 100

// settlePolicies brings the policies in the queue into the index, and finds the local classes that they concern.
func (c *Calc) settlePolicies() {
	if len(c.queuedPolicies) == 0 {
		return
	}
	searched := 0
	for _, p := range c.queuedPolicies {
		c.fileQuery(p)
		if p.searched {
			searched++
		}
	}
	for lc := range c.localClasses {
		if searched > oneByOne {
			c.touch(lc, rematch)
		}
		if lc.redo == rematch {
			continue // it looks itself
		}
		for _, p := range c.queuedPolicies {
			c.settlePolicy(p, lc)
		}
	}
	for key, s := range c.selections {
		if slices.ContainsFunc(s.policies, func(p *policy) bool { return p.moved }) {
			delete(c.selections, key)
		}
	}
}

// settlePolicy looks whether a policy picks a local class.
func (c *Calc) settlePolicy(p *policy, lc *localClass) {
	at, was := findPolicy(lc.matched, p)
	now := was
	if p.searched {
		now = p.selects && c.index.matches(&p.query, lc.class)
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
	c.touch(lc, reselect)
}

// tellSets says what became of sets, and forgets those that are not used.
func (c *Calc) tellSets(out *Changes) {
	for _, s := range c.queuedSets {
		s.queued = false
		was := s.told
		if change := c.tell(s); change != nil {
			out.Sets[s.id] = change
		}
		if was != s.told {
			for _, l := range s.users {
				c.queueList(l) // they drop everything while the set does not fit
			}
		}
		if len(s.users) == 0 {
			c.forgetSet(s)
		}
	}
	c.queuedSets = c.queuedSets[:0]
}

// Problems lists what is wrong in what is stored, in a fixed order, for the log and metrics. What single endpoints
// suffer from is in their Errors.
func (c *Calc) Problems() []Problem {
	var all []Problem
	for key, reason := range c.invalid {
		all = append(all, Problem{Key: key, Text: reason})
	}
	for _, t := range c.tiers {
		if !t.counts() {
			all = append(all, Problem{Key: calico.TierKey{Tier: t.name}, Text: fmt.Sprintf("it has no metadata, so its policies (%d) are ignored", len(t.policies))})
		}
	}
	for _, s := range c.sets {
		if why := c.tooLarge(s); why != "" {
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
