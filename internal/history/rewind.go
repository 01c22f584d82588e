package history

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"heddle/internal/api/operator"
	"heddle/internal/store"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
)

// Rewind undoes commits in tables, the newest first. What the journal does not record stays as it
// is.
type Rewind struct {
	journal *journal.Journal
	tables  snapshot.Tables
	snap    *records.Snap
	epoch   int
	next    journal.Position // commits before it are still to be undone
	undone  *journal.Commit  // the last one; nil: none
	reached time.Time        // what is undone goes back to
	began   time.Time        // of the journal
	end     operator.PastEnd
	gap     *operator.Gap
	err     error
}

// leastUndone and mostUndone are the numbers of commits that are read at once: few at first, since
// most questions are about the newest ones, and many at last, since each reading searches for the
// values before them as far as to the beginning of a segment.
const leastUndone, mostUndone = 64, 4096

// NewRewind returns a Rewind that begins with the present. The journal must have all changes of it.
func NewRewind(j *journal.Journal, present *records.Snap) (*Rewind, error) {
	newest := j.Position()
	if newest.Revision < present.Revision() {
		return nil, fmt.Errorf("the journal has nothing after revision %d: %s", newest.Revision, j.Problem())
	}
	return newRewind(j, present, newest.Epoch), nil
}

// RewindFrom returns a Rewind that begins with what the journal has of a position, and the tables
// there.
func RewindFrom(ctx context.Context, j *journal.Journal, at journal.Position) (*Rewind, *records.Snap, error) {
	snap, _, err := AtRevision(ctx, j, at)
	if err != nil {
		return nil, nil, err
	}
	return newRewind(j, snap, at.Epoch), snap, nil
}

func newRewind(j *journal.Journal, at *records.Snap, epoch int) *Rewind {
	return &Rewind{journal: j, tables: snapshot.Of(schema.All()...), snap: at, epoch: epoch, next: journal.Position{Epoch: epoch, Revision: at.Revision() + 1}}
}

// Earlier yields the tables as they were before each commit; the same ones again, if it has changed
// nothing of them. It goes on until ctx ends, or what is before is not known.
func (r *Rewind) Earlier(ctx context.Context) iter.Seq[*records.Snap] {
	return func(yield func(*records.Snap) bool) {
		for limit := leastUndone; ; limit = min(4*limit, mostUndone) {
			page, err := r.journal.Commits(ctx, journal.Query{Before: r.next, Limit: limit})
			if err != nil {
				r.err = err
				return
			}
			if r.began = page.BeginsTime; !r.undoAll(ctx, page, yield) {
				return
			}
		}
	}
}

// undoAll undoes the commits of a page, and reports whether to go on with the next one.
func (r *Rewind) undoAll(ctx context.Context, page *journal.Page, yield func(*records.Snap) bool) bool {
	for i := range page.Commits {
		c := &page.Commits[i]
		switch gap := gapAbove(page.Gaps, c); {
		case c.Epoch != r.epoch:
			r.end = operator.PastRestored
		case gap != nil:
			r.end, r.gap = operator.PastGap, gap
		case ctx.Err() != nil:
			r.end, r.reached = operator.PastLimit, c.Time
		}
		if r.end != "" {
			return false
		}
		r.next, r.undone, r.reached = c.Position, c, c.Time
		r.snap = r.snap.With(r.tables, undoing(c), c.Revision-1)
		if !yield(r.snap) {
			return false
		}
	}
	switch {
	case len(page.Gaps) > 0:
		r.end, r.gap = operator.PastGap, describeGap(&page.Gaps[0])
	case page.Next == journal.Position{}:
		r.end = operator.PastBegins
	case page.Next.Epoch != r.epoch:
		r.end = operator.PastRestored
	case ctx.Err() != nil:
		r.end = operator.PastLimit
	default:
		r.next = page.Next
	}
	return r.end == ""
}

// gapAbove returns the gap between a commit and a later one, or in what the commit has changed.
func gapAbove(gaps []journal.Gap, c *journal.Commit) *operator.Gap {
	for i := range gaps {
		if c.Compare(gaps[i].After) <= 0 {
			return describeGap(&gaps[i])
		}
	}
	if slices.ContainsFunc(c.Changes, func(change journal.Change) bool { return change.Unknown }) {
		return &operator.Gap{After: c.Revision - 1, AfterTime: c.Time, Until: c.Revision, UntilTime: c.Time, Reason: "the values before this change cannot be read"}
	}
	return nil
}

// undoing returns the changes that undo a commit.
func undoing(c *journal.Commit) (events []store.Event) {
	for _, change := range c.Changes {
		kv := store.KV{Key: change.Key, Value: change.Before, ModRevision: c.Revision - 1}
		events = append(events, store.Event{KV: kv, Deleted: change.Before == nil})
	}
	return events
}

// Undone returns the last commit that was undone. One must have been.
func (r *Rewind) Undone() *operator.Revision {
	one := describe(r.undone)
	return &one
}

// At returns the position of the last commit that was undone. One must have been.
func (r *Rewind) At() journal.Position { return r.undone.Position }

// End returns the time as far back as to which commits were undone, and why there are no more, with
// the gap if that is one; "" = nothing has ended it.
func (r *Rewind) End() (back time.Time, why operator.PastEnd, gap *operator.Gap, err error) {
	switch {
	case r.end == operator.PastBegins:
		back = r.began
	case r.gap != nil:
		back = r.gap.UntilTime
	default:
		back = r.reached
	}
	return back, r.end, r.gap, r.err
}
