package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/explain"
	"heddle/internal/history"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
	"heddle/internal/store/snapshot"
)

// moment is the virtual network at a time.
type moment struct {
	snap  *records.Snap
	world *explain.World
	time  *time.Time // of the commit that made it so; nil: it is the present
	draft *draft     // the change that it would be after; nil: it is as it was
}

// with returns a moment as it would be after a change. Without steps it is as it was.
func (c *console) with(ctx context.Context, at moment, steps []operator.ChangeStep) (moment, error) {
	if len(steps) == 0 {
		return at, nil
	}
	d, err := c.newDraft(ctx, at, steps)
	if err != nil {
		return moment{}, err
	}
	return moment{snap: d.fork.Snap(), world: c.surveyed(at), time: at.time, draft: d}, nil
}

// calicoAt returns what has Calico's objects at a moment; nil: this server does not follow them.
func (c *console) calicoAt(at moment) func(context.Context) (*snapshot.Snapshot, error) {
	return func(ctx context.Context) (*snapshot.Snapshot, error) {
		under := at.snap.Tables()
		if at.draft != nil {
			under = at.draft.under.Tables()
		}
		if at.time == nil {
			if c.Calico == nil {
				return nil, nil
			}
			var err error
			if under, err = c.Calico.At(ctx, under.Revision); err != nil {
				return nil, err
			}
		}
		if at.draft == nil {
			return under, nil
		}
		return at.draft.calico(under), nil
	}
}

// refused returns the steps of a change that the server would refuse.
func (m *moment) refused() []operator.RefusedStep {
	if m.draft == nil {
		return nil
	}
	return m.draft.refused
}

// revision returns the revision that the moment is of, or would be a change of.
func (m *moment) revision() int64 {
	if m.draft == nil {
		return m.snap.Revision()
	}
	return m.draft.base
}

// mostMoments is the number of past moments that are kept for the next question about one of them,
// and settled the age from which the commit before a time cannot be another any more.
const (
	mostMoments = 2
	settled     = 10 * time.Second
)

// moments has the past moments that questions were about last.
type moments struct {
	mu   sync.Mutex
	kept []keptMoment // the one that was used last is last
}

type keptMoment struct {
	when
	moment
}

// when is a time or a revision that a question about the past names.
type when struct {
	time     time.Time
	position journal.Position // where time is zero
}

// moment returns the virtual network at a time, or at a revision as heddle history prints it; "" is
// the present.
func (c *console) moment(ctx context.Context, text string) (moment, error) {
	if text == "" {
		snap, err := c.DB.View(ctx)
		return moment{snap: snap, world: c.world}, err
	}
	present, err := c.past(ctx)
	if err != nil {
		return moment{}, err
	}
	at, err := c.when(text, present.Revision())
	if err != nil {
		return moment{}, err
	}
	c.moments.mu.Lock()
	defer c.moments.mu.Unlock()
	kept := &c.moments.kept
	if i := slices.IndexFunc(*kept, func(k keptMoment) bool { return k.when == at }); i >= 0 {
		k := (*kept)[i]
		*kept = append(slices.Delete(*kept, i, i+1), k)
		return k.moment, nil
	}
	m, err := c.recorded(ctx, at)
	var missing *journal.NotRecordedError
	if errors.As(err, &missing) {
		return moment{}, api.Errorf(http.StatusNotFound, "at %s: %v", text, missing)
	} else if err != nil {
		return moment{}, err
	}
	if c.isSettled(at) {
		*kept = append(*kept, keptMoment{at, m})
		*kept = (*kept)[max(0, len(*kept)-mostMoments):]
	}
	return m, nil
}

// isSettled reports whether no change is still to come to the journal that belongs to a moment.
func (c *console) isSettled(at when) bool {
	if at.time.IsZero() {
		return at.position.Compare(c.Journal.Position()) <= 0
	}
	return time.Since(at.time) > settled
}

// when reads what a question about the past names, while the store is at a revision. What is yet to
// come is refused.
func (c *console) when(text string, present int64) (when, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return when{time: at.UTC()}, nil
	}
	newest := journal.Position{Epoch: c.Journal.Position().Epoch, Revision: present}
	position, err := history.ParsePosition(text, newest.Epoch)
	switch {
	case err != nil:
		return when{}, api.Errorf(http.StatusBadRequest, "at %q: want a time such as 2026-11-28T06:00:00Z, or a revision as heddle history prints it", text)
	case position.Compare(newest) > 0:
		return when{}, api.Errorf(http.StatusBadRequest, "at %s: the store is only at revision %d.%d", text, newest.Epoch, newest.Revision)
	}
	return when{position: position}, nil
}

// recorded returns what the journal has of a moment.
func (c *console) recorded(ctx context.Context, at when) (moment, error) {
	var snap *records.Snap
	var committed time.Time
	var err error
	if at.time.IsZero() {
		snap, committed, err = history.AtRevision(ctx, c.Journal, at.position)
	} else {
		snap, committed, err = history.At(ctx, c.Journal, at.time)
	}
	return moment{snap: snap, world: explain.NewWorld(), time: &committed}, err
}
