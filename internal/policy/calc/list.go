package calc

import (
	"reflect"
	"slices"
)

// list has the rules of a policy or profile in one direction, resolved only while needed here.
type list struct {
	id        ListID
	policy    *policy
	profile   *profile
	refs      int // selections and classes that need it
	rules     []Rule
	sets      []*set // that the rules name
	missing   string // why it drops everything, by its source alone
	problem   string // what endpoints that need it have to report, by its source alone
	reported  *List  // what Changes last said; nil: it is not there
	complaint string // what endpoints that need it have to report, in all
	stale     bool   // to be resolved again
	queueable
}

// ruleLists resolves those lists of policies and profiles that endpoints of this host need.
type ruleLists struct {
	sets       *addressSets
	queue      queue[*list]
	failing    int  // lists that endpoints have to report
	complaints bool // what endpoints have to report may have changed
}

// lists are the two lists of a policy or profile. Most are never needed here, and never made.
type lists [2]list

// newLists returns both lists, equal to like but for the direction.
func newLists(like list) *lists {
	both := &lists{like, like}
	both[Outbound].id.Direction = Outbound
	return both
}

// idle reports whether neither list is needed or has changes to report.
func (both *lists) idle() bool {
	if both == nil {
		return true
	}
	for i := range both {
		if l := &both[i]; l.refs > 0 || l.reported != nil || l.queued {
			return false
		}
	}
	return true
}

func (rl *ruleLists) need(l *list) {
	if l.refs++; l.refs == 1 {
		l.stale = true
		rl.queue.add(l)
	}
}

func (rl *ruleLists) unneed(l *list) {
	if l.refs--; l.refs == 0 {
		rl.queue.add(l)
	}
}

// reread has lists resolved again, since their source has changed.
func (rl *ruleLists) reread(both *lists) {
	if both == nil {
		return
	}
	for i := range both {
		if l := &both[i]; l.refs > 0 {
			l.stale = true
			rl.queue.add(l)
		}
	}
}

// refresh resolves a list if it is stale, and updates the users of the sets that it names.
func (rl *ruleLists) refresh(l *list) {
	var now resolved
	switch {
	case l.refs == 0:
		l.missing, l.problem = "", ""
	case !l.stale:
		return
	default:
		now = rl.read(l)
	}
	l.stale = false
	for _, s := range lacking(now.sets, l.sets) {
		s.users = append(s.users, l)
		rl.sets.queue.add(s)
	}
	for _, s := range lacking(l.sets, now.sets) {
		s.users = slices.DeleteFunc(s.users, func(user *list) bool { return user == l })
		rl.sets.queue.add(s)
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

func (rl *ruleLists) read(l *list) resolved {
	stored, missing, problem := l.source()
	l.missing, l.problem = missing, problem
	if missing != "" {
		return resolved{}
	}
	now, err := rl.resolve(stored, l.profile != nil)
	if err != nil {
		l.missing, l.problem = err.Error(), l.name()+": "+err.Error()
	}
	return now
}

// name returns the list's name in errors of endpoints.
func (l *list) name() string {
	if l.profile != nil {
		return "profile " + l.id.Name
	}
	return "policy " + l.id.Tier + "/" + l.id.Name
}

// outcome returns what to report of a needed list. A set that is too large fails the whole list.
func (rl *ruleLists) outcome(l *list) (out *List, problem string) {
	if l.missing != "" {
		return &List{Missing: l.missing}, l.problem
	}
	for _, s := range l.sets {
		if why := rl.sets.tooLarge(s); why != "" {
			return &List{Missing: why}, l.name() + ": " + why
		}
	}
	return &List{Rules: l.rules}, l.problem
}

// addChanges adds the changes of the lists in the queue, and records problems of endpoints that
// need them. It returns the profiles of these lists.
func (rl *ruleLists) addChanges(out *Changes) (profiles []*profile) {
	for _, l := range rl.queue.items {
		l.queued = false
		now, problem := (*List)(nil), ""
		if l.refs > 0 {
			now, problem = rl.outcome(l)
		}
		rl.complain(l, problem)
		if (now == nil) != (l.reported == nil) || now != nil && !reflect.DeepEqual(now, l.reported) {
			l.reported = now
			out.Lists[l.id] = now
		}
		if l.profile != nil {
			profiles = append(profiles, l.profile)
		}
	}
	rl.queue.items = rl.queue.items[:0]
	return profiles
}

// complain records the problem that endpoints which need a list have to report.
func (rl *ruleLists) complain(l *list, problem string) {
	if l.complaint == problem {
		return
	}
	switch {
	case l.complaint == "":
		rl.failing++
	case problem == "":
		rl.failing--
	}
	l.complaint = problem
	rl.complaints = true
}
