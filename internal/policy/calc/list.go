package calc

import (
	"reflect"
	"slices"
)

// list is the rules of a policy or profile in one direction. It is resolved only while an endpoint of this host needs it.
type list struct {
	id        ListID
	policy    *policy
	profile   *profile
	refs      int // selections and classes that need it
	rules     []Rule
	sets      []*set // that the rules name
	missing   string // why it drops everything, by its source alone
	problem   string // what endpoints that need it have to report, by its source alone
	told      *List  // what Changes last said; nil: it is not there
	complaint string // what endpoints that need it have to report, in all
	stale     bool   // to be resolved again
	queued    bool   // in Calc.queuedLists
}

// lists are those of a policy or profile, by direction. Most are never needed here, and are not made.
type lists [2]list

// newLists makes both lists like one, but for the direction.
func newLists(like list) *lists {
	both := &lists{like, like}
	both[Outbound].id.Direction = Outbound
	return both
}

// idle says that nothing is left to be done about either list.
func (both *lists) idle() bool {
	if both == nil {
		return true
	}
	for i := range both {
		if l := &both[i]; l.refs > 0 || l.told != nil || l.queued {
			return false
		}
	}
	return true
}

// need counts one more user of a list.
func (c *Calc) need(l *list) {
	if l.refs++; l.refs == 1 {
		l.stale = true
		c.queueList(l)
	}
}

// unneed counts one user less.
func (c *Calc) unneed(l *list) {
	if l.refs--; l.refs == 0 {
		c.queueList(l)
	}
}

// reread notes that the source of lists has changed.
func (c *Calc) reread(both *lists) {
	if both == nil {
		return
	}
	for i := range both {
		if l := &both[i]; l.refs > 0 {
			l.stale = true
			c.queueList(l)
		}
	}
}

func (c *Calc) queueList(l *list) {
	if !l.queued {
		l.queued = true
		c.queuedLists = append(c.queuedLists, l)
	}
}

// refresh resolves a list if it must be, and takes and gives back the sets that it names.
func (c *Calc) refresh(l *list) {
	var now resolved
	switch {
	case l.refs == 0:
		l.missing, l.problem = "", ""
	case !l.stale:
		return
	default:
		now = c.read(l)
	}
	l.stale = false
	for _, s := range lacking(now.sets, l.sets) {
		s.users = append(s.users, l)
		c.queueSet(s)
	}
	for _, s := range lacking(l.sets, now.sets) {
		s.users = slices.DeleteFunc(s.users, func(user *list) bool { return user == l })
		c.queueSet(s)
	}
	l.rules, l.sets = now.rules, now.sets
}

// lacking returns the sets of a that b does not have.
func lacking(a, b []*set) []*set {
	if len(b) == 0 {
		return a
	}
	has := make(map[*set]bool, len(b))
	for _, s := range b {
		has[s] = true
	}
	var only []*set
	for _, s := range a {
		if !has[s] {
			only = append(only, s)
		}
	}
	return only
}

// read resolves a list's source.
func (c *Calc) read(l *list) resolved {
	stored, missing, problem := l.source()
	l.missing, l.problem = missing, problem
	if missing != "" {
		return resolved{}
	}
	now, err := c.resolve(stored, l.profile != nil)
	if err != nil {
		l.missing, l.problem = err.Error(), l.name()+": "+err.Error()
	}
	return now
}

// name is how endpoints' errors call a list.
func (l *list) name() string {
	if l.profile != nil {
		return "profile " + l.id.Name
	}
	return "policy " + l.id.Tier + "/" + l.id.Name
}

// outcome is what there is to say of a list that is needed. A set that cannot be kept fails the whole list.
func (c *Calc) outcome(l *list) (out *List, problem string) {
	if l.missing != "" {
		return &List{Missing: l.missing}, l.problem
	}
	for _, s := range l.sets {
		if why := c.tooLarge(s); why != "" {
			return &List{Missing: why}, l.name() + ": " + why
		}
	}
	return &List{Rules: l.rules}, l.problem
}

// tellLists says what became of the lists in the queue, and notes which of them endpoints have to complain about.
func (c *Calc) tellLists(out *Changes) {
	for _, l := range c.queuedLists {
		l.queued = false
		now, problem := (*List)(nil), ""
		if l.refs > 0 {
			now, problem = c.outcome(l)
		}
		c.complain(l, problem)
		if (now == nil) != (l.told == nil) || now != nil && !reflect.DeepEqual(now, l.told) {
			l.told = now
			out.Lists[l.id] = now
		}
		if l.profile != nil {
			c.dropProfile(l.profile)
		}
	}
	c.queuedLists = c.queuedLists[:0]
}

// complain notes what endpoints that need a list have to report.
func (c *Calc) complain(l *list, problem string) {
	if l.complaint == problem {
		return
	}
	switch {
	case l.complaint == "":
		c.failing++
	case problem == "":
		c.failing--
	}
	l.complaint = problem
	c.complaints = true
}
