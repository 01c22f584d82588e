package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"heddle/internal/api"
	"heddle/internal/explain"
	"heddle/internal/history"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
)

// moment is the virtual network at a time.
type moment struct {
	snap  *records.Snap
	world *explain.World
	time  *time.Time // of the commit that made it so; nil: it is the present
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
	text string
	moment
}

// moment returns the virtual network at a time, or at a revision as heddle history prints it; "" is
// the present.
func (c *console) moment(ctx context.Context, text string) (moment, error) {
	if text == "" {
		snap, err := c.DB.View(ctx)
		return moment{snap: snap, world: c.world}, err
	}
	if _, err := c.past(ctx); err != nil {
		return moment{}, err
	}
	c.moments.mu.Lock()
	defer c.moments.mu.Unlock()
	kept := &c.moments.kept
	if i := slices.IndexFunc(*kept, func(k keptMoment) bool { return k.text == text }); i >= 0 {
		k := (*kept)[i]
		*kept = append(slices.Delete(*kept, i, i+1), k)
		return k.moment, nil
	}
	snap, at, lasts, err := c.recorded(ctx, text)
	if err != nil {
		return moment{}, err
	}
	m := moment{snap, explain.NewWorld(), &at}
	if lasts {
		*kept = append(*kept, keptMoment{text, m})
		*kept = (*kept)[max(0, len(*kept)-mostMoments):]
	}
	return m, nil
}

// recorded returns what the journal has of a moment, the time of its commit, and whether that will
// stay the moment's last commit.
func (c *console) recorded(ctx context.Context, text string) (snap *records.Snap, at time.Time, lasts bool, err error) {
	if wanted, timeErr := time.Parse(time.RFC3339, text); timeErr == nil {
		snap, at, err = history.At(ctx, c.Journal, wanted)
		lasts = time.Since(wanted) > settled
	} else {
		position, parseErr := history.ParsePosition(text, c.Journal.Position().Epoch)
		if parseErr != nil {
			return nil, at, false, api.Errorf(http.StatusBadRequest, "at %q: want a time such as 2026-11-28T06:00:00Z, or a revision as heddle history prints it", text)
		}
		snap, at, err = history.AtRevision(ctx, c.Journal, position)
		lasts = true
	}
	var missing *journal.NotRecordedError
	if errors.As(err, &missing) {
		return nil, at, false, api.Errorf(http.StatusNotFound, "at %s: %v", text, missing)
	}
	return snap, at, lasts, err
}
