package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"heddle/internal/api"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
)

const (
	// mostEvents bounds the changes that are kept for readers who are slow or come back, and
	// mostWatchers the readers.
	mostEvents   = 4096
	mostWatchers = 128
	// followTime is the time after which readers have to ask again, and to show who they are.
	followTime = 5 * time.Minute
)

// changeEvent is a revision of the store, with what changed.
type changeEvent struct {
	Revision int64           `json:"revision"`
	Changes  []objectChanged `json:"changes"`
}

// objectChanged is an object that changed.
type objectChanged struct {
	Kind   string `json:"kind"` // as in heddle history: port, security group, port state
	ID     string `json:"id"`
	Change string `json:"change"` // created, changed or deleted
}

// Events has the most recent changes of the store for those who follow them.
type Events struct {
	mu       sync.Mutex
	recent   []changeEvent
	first    int   // number of the first of recent, counted since the start
	count    int   // changes in recent
	since    int64 // revision after which recent has all
	newest   int64 // revision of the last update
	changed  chan struct{}
	watchers seats
}

// NewEvents returns Events that know of none yet.
func NewEvents() *Events { return &Events{changed: make(chan struct{})} }

// unseen are the tables whose changes are no news to those who look at the virtual network: what is
// derived from other objects, questions to agents, and what agents tell each other.
var unseen = []string{
	schema.Bundles.Name(), schema.TraceRequests.Name(), schema.TraceAnswers.Name(), schema.LearnedMACs.Name(), schema.LearnedNeighbours.Name(), schema.LearnedRemotes.Name(),
	schema.LearnedRoutes.Name(), schema.NATBlocks.Name(), schema.TunnelKeys.Name(), schema.BGPPasswords.Name(), schema.Instances.Name(), schema.MetadataKeys.Name(),
	schema.PendingWorks.Name(), schema.PortArrivals.Name(), schema.VipTraffics.Name(), schema.Underlays.Name(), schema.ContainerBindings.Name(),
}

// Add notes an update of the replica.
func (e *Events) Add(u snapshot.Update) {
	one := changeEvent{Revision: u.Next.Revision}
	for _, c := range u.Changed {
		if !slices.Contains(unseen, c.Source) {
			one.Changes = append(one.Changes, changeOf(c))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.newest = u.Next.Revision
	if u.Prev.Revision == 0 || u.Diverged() || len(one.Changes) > mostEvents {
		e.forget(u.Next.Revision)
	} else if len(one.Changes) > 0 {
		e.recent = append(e.recent, one)
		e.count += len(one.Changes)
		for e.count > mostEvents {
			e.count -= len(e.recent[0].Changes)
			e.since = e.recent[0].Revision
			e.recent, e.first = e.recent[1:], e.first+1
		}
	} else {
		return
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

// forget leaves readers to look at everything again.
func (e *Events) forget(now int64) {
	e.first += len(e.recent) + 1
	e.recent, e.count, e.since = nil, 0, now
}

func changeOf(c snapshot.Changed) objectChanged {
	what := "changed"
	switch {
	case c.Old == nil:
		what = "created"
	case c.New == nil:
		what = "deleted"
	}
	return objectChanged{Kind: words(c.Source), ID: c.ID[strings.LastIndexByte(c.ID, '/')+1:], Change: what}
}

// begin returns the number of the first change after a revision, 0 = the present. It reports false
// if not all changes since then are known.
func (e *Events) begin(since int64) (next int, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if since == 0 {
		return e.first + len(e.recent), true
	}
	i, _ := slices.BinarySearchFunc(e.recent, since+1, func(c changeEvent, revision int64) int { return int(c.Revision - revision) })
	return e.first + i, e.since <= since && since <= e.newest
}

// after returns the changes from a number on, the next number, and what is closed when there are
// more. It reports false if the first of them are no longer known.
func (e *Events) after(next int) (all []changeEvent, end int, more <-chan struct{}, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	end = e.first + len(e.recent)
	if next < e.first {
		return nil, end, e.changed, false
	}
	return slices.Clone(e.recent[next-e.first:]), end, e.changed, true
}

// events follows the changes of the store, as server-sent events whose ids are revisions. The event
// reset says that changes were left out, so that what was read before is to be read again.
func (c *console) events(w http.ResponseWriter, r *http.Request) error {
	since, kinds, err := eventsQuery(r)
	if err != nil {
		return err
	}
	leave, err := c.Events.watchers.take(mostWatchers)
	if err != nil {
		return err
	}
	defer leave()
	next, known := c.Events.begin(since)
	out, err := newStream(w, "text/event-stream")
	if err != nil || out.send(": changes of the store\n\n") != nil {
		return nil // the client has gone
	}
	beat, end := time.NewTicker(heartbeat), time.NewTimer(followTime)
	defer beat.Stop()
	defer end.Stop()
	for {
		var all []changeEvent
		var more <-chan struct{}
		if known {
			all, next, more, known = c.Events.after(next)
		}
		if !known {
			next, known = c.Events.begin(0)
			if out.send("event: reset\ndata: {}\n\n") != nil {
				return nil
			}
			continue
		}
		for _, one := range all {
			if out.send(one.of(kinds).text()) != nil {
				return nil
			}
		}
		select {
		case <-more:
		case <-beat.C:
			if out.send(":\n\n") != nil {
				return nil
			}
		case <-end.C:
			return nil
		case <-api.Ending(r.Context()):
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}

// eventsQuery reads since, or Last-Event-ID, by which browsers come back, and kinds.
func eventsQuery(r *http.Request) (since int64, kinds []string, err error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("since")
	}
	if text != "" {
		if since, err = strconv.ParseInt(text, 10, 64); err != nil || since < 1 {
			return 0, nil, api.Errorf(http.StatusBadRequest, "since %q: want a revision of the store, as the ids of events are", text)
		}
	}
	if all := r.URL.Query().Get("kinds"); all != "" {
		kinds = strings.Split(all, ",")
	}
	return since, kinds, nil
}

// of returns the event with the changes of some kinds of objects; none = all.
func (e changeEvent) of(kinds []string) changeEvent {
	if len(kinds) > 0 {
		e.Changes = slices.DeleteFunc(slices.Clone(e.Changes), func(c objectChanged) bool { return !slices.Contains(kinds, c.Kind) })
	}
	return e
}

// text returns the event as it is sent; "" if it has no changes.
func (e changeEvent) text() string {
	if len(e.Changes) == 0 {
		return ""
	}
	data, _ := json.Marshal(e) // numbers and strings
	return fmt.Sprintf("id: %d\nevent: change\ndata: %s\n\n", e.Revision, data)
}
