package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"heddle/internal/store"
)

// Commit is all recorded changes of one revision.
type Commit struct {
	Position
	Time    time.Time // at which the journal received it
	Changes []Change  // by key
}

// Change is a change of one key.
type Change struct {
	Key           string
	Before, After []byte // nil: the key did not exist
	Unknown       bool   // the value before cannot be read
}

// Gap is a part of the past that was not recorded, or cannot be read: what is after one position up
// to another one, the state of which is known again.
type Gap struct {
	After      Position  `json:"after"`
	AfterTime  time.Time `json:"after_time"`
	Until      Position  `json:"until"`
	UntilTime  time.Time `json:"until_time"`
	Unreadable string    `json:"unreadable,omitempty"` // the file, and why
}

// Query selects commits.
type Query struct {
	Before Position  // commits before this one; zero: the newest ones
	Since  time.Time // commits at this time and later
	Limit  int       // most commits
	// About selects commits that change a key of which the value, then or before, is about
	// something. nil: all do.
	About func(key string, value []byte) bool
	// Match reports whether a commit, of which the values before are not known yet, may be wanted;
	// Want, whether it is. nil: all are.
	Match, Want func(*Commit) bool
}

// Page is the answer to a Query: commits, the newest first, and the gaps between them.
type Page struct {
	Commits []Commit
	Gaps    []Gap
	// Next is the position before which there may be more; zero: there is none.
	Next Position
	// Begins is the position and time from which on the journal has anything.
	Begins     Position
	BeginsTime time.Time
}

// Commits returns a page of commits. When ctx ends it returns what it has found, and Next.
func (j *Journal) Commits(ctx context.Context, q Query) (*Page, error) {
	segments, lost := j.snapshot()
	p := &Page{}
	if len(segments) > 0 {
		first := segments[0].header
		p.Begins, p.BeginsTime = Position{first.Epoch, first.Revision}, first.Time
	}
	s := search{ctx: ctx, Query: q, page: p, lost: lost}
	for i, seg := range slices.Backward(segments) {
		if !s.wants(seg) {
			continue
		}
		if i+1 < len(segments) {
			s.gap(seg, segments[i+1])
		}
		if done := s.segment(seg); done {
			return p, nil
		}
	}
	return p, nil
}

// snapshot returns the segments, oldest first, and those of which nothing can be read.
func (j *Journal) snapshot() ([]*segment, []lostSegment) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.segments, j.lost
}

// search is one call of Commits.
type search struct {
	ctx context.Context
	Query
	page *Page
	lost []lostSegment
	keys map[string]bool // of the segment, those of which a value is about what is wanted
	// advanced is set once some commits were looked at: a search that ends then does not begin
	// again at the same place.
	advanced bool
}

// wants reports whether a segment may have commits that are wanted.
func (s *search) wants(seg *segment) bool {
	return (s.Before == Position{} || (Position{seg.header.Epoch, seg.header.Revision}).Compare(s.Before) < 0) && !seg.until.Before(s.Since)
}

// gap adds the gap between two segments, if there is one.
func (s *search) gap(seg, next *segment) {
	if next.header.Epoch != seg.header.Epoch || next.header.Revision <= seg.last {
		return
	}
	g := Gap{After: Position{seg.header.Epoch, seg.last}, AfterTime: seg.until, Until: Position{next.header.Epoch, next.header.Revision}, UntilTime: next.header.Time}
	if seg.lost != nil {
		g.Unreadable = fmt.Sprintf("%s: %v", seg.file, seg.lost)
	}
	for _, l := range s.lost {
		if l.file > seg.file && l.file < next.file {
			g.Unreadable = fmt.Sprintf("%s: %v", l.file, l.err)
		}
	}
	if (s.Before == Position{} || g.Until.Compare(s.Before) < 0) {
		s.page.Gaps = append(s.page.Gaps, g)
	}
}

// segment adds the commits of a segment, and reports whether the page is complete.
func (s *search) segment(seg *segment) (done bool) {
	s.findKeys(seg)
	for {
		found, next := s.candidates(seg)
		for _, c := range found {
			if s.Want == nil || s.Want(c) {
				s.page.Commits = append(s.page.Commits, *c)
			}
		}
		if next == (Position{}) {
			return false
		}
		if s.Before = next; len(s.page.Commits) >= s.Limit || s.expired() {
			s.page.Next = next
			return true
		}
	}
}

// findKeys finds the keys of a segment of which some value is about what is wanted.
func (s *search) findKeys(seg *segment) {
	if s.About == nil {
		return
	}
	s.keys = map[string]bool{}
	for n := range seg.groups {
		// What cannot be read is said when the commits are.
		_ = seg.each(n, func(_ blockHead, r record) {
			if !s.keys[r.kv.Key] && s.About(r.kv.Key, r.kv.Value) {
				s.keys[r.kv.Key] = true
			}
		})
	}
}

// candidates returns the last commits of a segment that match, with the values before, and the
// position from which to go on; zero: the segment has no more.
func (s *search) candidates(seg *segment) (found []*Commit, next Position) {
	missing := map[string][]*Change{} // those that lack the value before, by key
	ended, reached := false, Position{seg.header.Epoch, seg.last + 1}
	for n := len(seg.groups) - 1; n >= 0; n-- {
		g := seg.groups[n]
		if (ended || g.snapshot) && len(missing) == 0 {
			break
		}
		if s.Before != (Position{}) && !g.snapshot && (Position{seg.header.Epoch, g.after + 1}).Compare(s.Before) >= 0 {
			continue
		}
		if s.expired() && !ended { // what was found is completed all the same
			ended, next = true, reached
		}
		commits, err := s.read(seg, n)
		if err != nil {
			s.unreadable(seg, err)
			forgo(missing)
			break
		}
		s.advanced = s.advanced || !g.snapshot
		for _, c := range slices.Backward(commits) {
			c.complete(missing)
			switch {
			case ended || g.snapshot:
				continue
			case c.Time.Before(s.Since):
				ended = true
				continue
			}
			if reached = c.Position; !s.isCandidate(c) {
				continue
			}
			if found = append(found, c.forget(missing)); len(found) == s.Limit-len(s.page.Commits) {
				ended, next = true, reached
			}
		}
	}
	return found, next
}

// expired reports whether the search has to end.
func (s *search) expired() bool { return s.advanced && s.ctx.Err() != nil }

// forgo marks changes whose values before cannot be read.
func forgo(missing map[string][]*Change) {
	for _, changes := range missing {
		for _, change := range changes {
			change.Unknown = true
		}
	}
}

func (s *search) isCandidate(c *Commit) bool {
	isAbout := func(change Change) bool { return s.keys[change.Key] }
	return (s.Before == Position{} || c.Compare(s.Before) < 0) && (s.About == nil || slices.ContainsFunc(c.Changes, isAbout)) && (s.Match == nil || s.Match(c))
}

// unreadable adds a gap for what cannot be read of a segment.
func (s *search) unreadable(seg *segment, err error) {
	if errors.Is(err, os.ErrNotExist) {
		return // it has become too old meanwhile
	}
	h := seg.header
	s.page.Gaps = append(s.page.Gaps, Gap{After: Position{h.Epoch, h.Revision}, AfterTime: h.Time, Until: Position{h.Epoch, seg.last}, UntilTime: seg.until, Unreadable: err.Error()})
}

// read returns the commits of a group; of a snapshot, one commit with all its keys.
func (s *search) read(seg *segment, n int) (commits []*Commit, err error) {
	var last *Commit
	err = seg.each(n, func(h blockHead, r record) {
		revision := r.kv.ModRevision
		if h.what() == snapshotBlock {
			revision = seg.header.Revision
		}
		if last == nil || last.Revision != revision {
			last = &Commit{Position: Position{seg.header.Epoch, revision}, Time: time.UnixMilli(h.millis).UTC()}
			commits = append(commits, last)
		}
		last.Changes = append(last.Changes, Change{Key: r.kv.Key, After: r.kv.Value})
		if created := r.kv.CreateRevision == r.kv.ModRevision; created {
			last.Changes[len(last.Changes)-1].Before = absent
		}
	})
	return commits, err
}

// absent stands for the value before of a key that a change has created.
var absent = []byte{}

// complete sets the values before of later changes of the commit's keys.
func (c *Commit) complete(missing map[string][]*Change) {
	for _, change := range c.Changes {
		for _, later := range missing[change.Key] {
			later.Before = bytes.Clone(change.After)
		}
		delete(missing, change.Key)
	}
}

// forget returns a copy of the commit that shares no memory with the group it was read from, and
// adds the values it lacks to missing.
func (c *Commit) forget(missing map[string][]*Change) *Commit {
	own := &Commit{Position: c.Position, Time: c.Time}
	for _, change := range c.Changes {
		own.Changes = append(own.Changes, Change{Key: change.Key, After: bytes.Clone(change.After)})
	}
	for i, change := range c.Changes {
		if change.Before == nil {
			missing[change.Key] = append(missing[change.Key], &own.Changes[i])
		}
	}
	return own
}

// NotRecordedError reports that the journal does not have the state at a position or time.
type NotRecordedError struct {
	Gap *Gap // nil: it is before the journal begins
	// Begins is the first position that the journal has.
	Begins     Position
	BeginsTime time.Time
}

func (e *NotRecordedError) Error() string {
	if g := e.Gap; g != nil {
		return fmt.Sprintf("not recorded between %s (revision %d) and %s (revision %d)",
			g.AfterTime.Format(time.RFC3339), g.After.Revision, g.UntilTime.Format(time.RFC3339), g.Until.Revision)
	}
	return fmt.Sprintf("not recorded before %s (revision %d)", e.BeginsTime.Format(time.RFC3339), e.Begins.Revision)
}

// State is all recorded keys at a position of the store.
type State struct {
	Position
	Time time.Time // of the last change
	Keys map[string]store.KV
}

// At returns the state after the last commit at a time or before it.
func (j *Journal) At(ctx context.Context, at time.Time) (*State, error) {
	return j.at(ctx, func(seg *segment) bool { return !seg.header.Time.After(at) },
		func(h blockHead, _ record) bool { return h.millis <= at.UnixMilli() }, func(seg *segment) bool { return !seg.until.Before(at) })
}

// AtRevision returns the state at a position. Epoch 0 is the newest one.
func (j *Journal) AtRevision(ctx context.Context, p Position) (*State, error) {
	if p.Epoch == 0 {
		if all, _ := j.snapshot(); len(all) > 0 {
			p.Epoch = all[len(all)-1].header.Epoch
		}
	}
	return j.at(ctx, func(seg *segment) bool { return (Position{seg.header.Epoch, seg.header.Revision}).Compare(p) <= 0 },
		func(_ blockHead, r record) bool { return r.kv.ModRevision <= p.Revision },
		func(seg *segment) bool { return (Position{seg.header.Epoch, seg.last}).Compare(p) >= 0 })
}

// at returns the state up to the last record that is not too late, of the last segment that has
// begun by then. covers reports whether the segment goes on until then.
func (j *Journal) at(ctx context.Context, begun func(*segment) bool, early func(blockHead, record) bool, covers func(*segment) bool) (*State, error) {
	all, lost := j.snapshot()
	i := len(all) - 1
	for i >= 0 && !begun(all[i]) {
		i--
	}
	if i < 0 {
		e := &NotRecordedError{}
		if len(all) > 0 {
			e.Begins, e.BeginsTime = Position{all[0].header.Epoch, all[0].header.Revision}, all[0].header.Time
		}
		return nil, e
	}
	if i+1 < len(all) && !covers(all[i]) {
		s := search{page: &Page{}, lost: lost}
		if s.gap(all[i], all[i+1]); len(s.page.Gaps) > 0 {
			return nil, &NotRecordedError{Gap: &s.page.Gaps[0]}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return all[i].state(early)
}

// state returns the state of a segment with the changes that are early enough.
func (s *segment) state(early func(blockHead, record) bool) (*State, error) {
	st := &State{Position: Position{s.header.Epoch, s.header.Revision}, Time: s.header.Time, Keys: map[string]store.KV{}}
	for n := range s.groups {
		err := s.each(n, func(h blockHead, r record) {
			switch {
			case h.what() == headerBlock || h.what() == changesBlock && !early(h, r):
				return
			case h.what() == changesBlock:
				st.Revision, st.Time = max(st.Revision, r.kv.ModRevision), time.UnixMilli(h.millis).UTC()
			}
			if r.kind == deletedRecord {
				delete(st.Keys, r.kv.Key)
				return
			}
			r.kv.Value = bytes.Clone(r.kv.Value)
			st.Keys[r.kv.Key] = r.kv
		})
		if err != nil {
			return nil, err
		}
	}
	return st, nil
}

// records yields the state as records of a snapshot, by key.
func (s *State) records(yield func(record) bool) {
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		if !yield(record{editedRecord, s.Keys[key]}) {
			return
		}
	}
}
