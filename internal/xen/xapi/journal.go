package xapi

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/store/snapshot"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// keptChanges bounds the journal, in changes. A client that is further behind gets everything.
const keptChanges = 1 << 16

// journalLag bounds the lag of the journal behind the replica.
const journalLag = 100 * time.Millisecond

// journal remembers which objects have changed after which revision of the store, so that what is
// new to a client costs as much as has changed. An object has changed too when its far sides have.
type journal struct {
	linked map[string][]link // by class
	tables map[string]string // classes, by the name of their table

	mu      sync.Mutex
	entries []entry // by revision
	horizon int64   // all changes after this revision are here
	history int64   // of the store, as of snap
	// unmarked: the store has begun another history, and its mark is still that of the one before.
	unmarked bool
	snap     *snapshot.Snapshot
	changed  chan struct{} // closed and replaced when there are more
}

// entry is one change of one object.
type entry struct {
	rev        int64
	class, ref string
	existed    bool // before this change
}

// link is a field whose target has a far side.
type link struct{ field, class string }

func newJournal() *journal {
	j := &journal{linked: map[string][]link{}, tables: map[string]string{}, changed: make(chan struct{})}
	for _, c := range model.Classes() {
		if t := objects.Table(c.Name); t != nil {
			j.tables[t.Name()] = c.Name
		}
		for _, f := range c.Fields {
			if f.Far != nil {
				j.linked[f.Far.Class] = append(j.linked[f.Far.Class], link{f.Far.Field, c.Name})
			}
		}
	}
	return j
}

// note takes in what the replica has got. All of it counts as of the newest revision: at worst a
// client sees a change twice.
func (j *journal) note(u snapshot.Update) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.snap = u.Next
	history := historyOf(u.Next)
	marked := history != j.history
	j.history, j.unmarked = history, !marked && (j.unmarked || u.Diverged())
	if u.Prev.Revision == 0 || u.Diverged() || marked {
		j.horizon, j.entries = u.Next.Revision, nil
	} else {
		for _, c := range u.Changed {
			j.noteOne(u, c)
		}
	}
	if extra := len(j.entries) - keptChanges; extra > keptChanges/4 {
		j.horizon = j.entries[extra-1].rev
		j.entries = slices.Clone(j.since(j.horizon))
	}
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *journal) noteOne(u snapshot.Update, c snapshot.Changed) {
	switch {
	case j.tables[c.Source] != "":
		class := j.tables[c.Source]
		j.add(u, class, c.ID)
		old, now := fieldsOf(c.Old), fieldsOf(c.New)
		for _, l := range j.linked[class] {
			before, after := old.Text(l.field), now.Text(l.field)
			if before == after {
				continue
			}
			j.add(u, l.class, before)
			j.add(u, l.class, after)
		}
	case c.Source == objects.HostReports.Name() && (c.Old == nil || c.New == nil):
		// host_metrics.live is that the report is there.
		if host, ok := objects.Table("host").Peek(records.Over(u.Next), c.ID); ok {
			j.add(u, "host_metrics", host.Text("metrics"))
		}
	case c.Source == injections.Name() && c.New != nil:
		i := c.New.(*injection)
		j.add(u, i.Class, i.Ref)
	}
}

// fieldsOf is the object of a change; one without fields where there was none.
func fieldsOf(record any) *objects.Object {
	if o, ok := record.(*objects.Object); ok {
		return o
	}
	return &objects.Object{}
}

// add notes an object that was there before the update or is there after it.
func (j *journal) add(u snapshot.Update, class, ref string) {
	table := objects.Table(class)
	if table == nil {
		return
	}
	existed := u.Prev.Get(table.Name(), ref) != nil
	if !existed && u.Next.Get(table.Name(), ref) == nil {
		return
	}
	j.entries = append(j.entries, entry{u.Next.Revision, class, ref, existed})
}

// since returns the entries after a revision. It is called with the lock held.
func (j *journal) since(rev int64) []entry {
	i := sort.Search(len(j.entries), func(i int) bool { return j.entries[i].rev > rev })
	return j.entries[i:]
}

// position returns the newest position, and a channel that is closed when there is a newer one.
func (j *journal) position() (now position, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.snap != nil {
		now.rev = j.snap.Revision
	}
	now.history = j.history
	return now, j.changed
}

// lacksMark reports whether the store has begun a history that it is not marked with.
func (j *journal) lacksMark() (history int64, lacks bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.history, j.unmarked
}

// await waits for the journal, which is a moment behind the replica. What was undone meanwhile
// never comes: the wait has an end.
func (j *journal) await(rev int64) {
	late := time.NewTimer(journalLag)
	defer late.Stop()
	for {
		known, more := j.position()
		if known.rev >= rev {
			return
		}
		select {
		case <-more:
		case <-late.C:
			return
		}
	}
}

// changes are the events after a position that a client asks for, and the position that they lead
// to. covered is false when the journal does not reach back so far, or that was in another history.
func (j *journal) changes(after position, wants func(e entry) bool) (events []event, upTo position, more <-chan struct{}, covered bool) {
	j.mu.Lock()
	entries, snap, more := j.since(after.rev), j.snap, j.changed
	covered = snap != nil && !j.unmarked && after.history == j.history && after.rev >= j.horizon
	j.mu.Unlock()
	if !covered {
		return nil, position{}, more, false
	}
	return merged(records.Over(snap), entries, wants), position{max(after.rev, snap.Revision), after.history}, more, true
}

// Operations of events.
const (
	added    = "add"
	modified = "mod"
	deleted  = "del"
)

// event is an event of one object.
type event struct {
	rev        int64
	class, ref string
	operation  string
	object     *objects.Object // nil when it is deleted
}

// merged makes one event of all changes of an object, if any is left: adds, then mods, then dels.
func merged(r *records.Snap, entries []entry, wants func(entry) bool) []event {
	type place struct{ class, ref string }
	at := map[place]int{}
	var all []event
	for _, e := range entries {
		if !wants(e) {
			continue
		}
		p := place{e.class, e.ref}
		if i, seen := at[p]; seen {
			all[i].rev = e.rev
			continue
		}
		one := event{rev: e.rev, class: e.class, ref: e.ref}
		one.object, _ = objects.Table(e.class).Peek(r, e.ref)
		switch {
		case one.object == nil && e.existed:
			one.operation = deleted
		case one.object == nil:
			one.operation = ""
		case e.existed:
			one.operation = modified
		default:
			one.operation = added
		}
		at[p] = len(all)
		all = append(all, one)
	}
	all = slices.DeleteFunc(all, func(e event) bool { return e.operation == "" })
	order := []string{added, modified, deleted}
	slices.SortStableFunc(all, func(a, b event) int { return slices.Index(order, a.operation) - slices.Index(order, b.operation) })
	return all
}

// filter selects the objects whose events a client gets.
type filter struct {
	all     bool
	classes map[string]bool // in lower case
	objects map[string]bool // class in lower case, slash, reference
}

// newFilter reads clients' classes: names in any case, class/ref for one object, * for all.
func newFilter(classes []string) filter {
	f := filter{classes: map[string]bool{}, objects: map[string]bool{}}
	for _, c := range classes {
		switch c = lowerClass(c); {
		case c == "*":
			f.all = true
		case strings.Contains(c, "/"):
			f.objects[c] = true
		default:
			f.classes[c] = true
		}
	}
	return f
}

// lowerClass is a class or class/ref with the class in lower case, as events have it.
func lowerClass(c string) string {
	class, ref, one := strings.Cut(c, "/")
	if one {
		return strings.ToLower(class) + "/" + ref
	}
	return strings.ToLower(class)
}

func (f filter) matches(class, ref string) bool {
	class = strings.ToLower(class)
	return f.all || f.classes[class] || len(f.objects) > 0 && f.objects[class+"/"+ref]
}

// anyOf reports whether objects of a class may match.
func (f filter) anyOf(class string) bool {
	class = strings.ToLower(class)
	if f.all || f.classes[class] {
		return true
	}
	for o := range f.objects {
		if strings.HasPrefix(o, class+"/") {
			return true
		}
	}
	return false
}
