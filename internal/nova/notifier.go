// Package nova notifies OpenStack's Nova of the ports of its servers, by the events that Neutron
// sends: a port is plugged or unplugged, its addresses have changed, it was deleted. Nova starts a
// machine only after it has read that its ports are plugged.
//
//	replica ──current()──▶ what Nova should know ─┐
//	                                              ├─▶ differences ─▶ events ─▶ note in the store
//	store: what was reported ─────────────────────┘
//
// Of all servers one notifies, the one that holds a key under its lease. It compares states, so
// that it makes up for what happened while no server ran. An event is sent again if the notifier
// ends before it is noted.
package nova

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/presence"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/topology"
)

const (
	// batch is the most ports of one request.
	batch = 50
	// leastPause and mostPause bound the pauses while Nova does not take events.
	leastPause, mostPause = time.Second, time.Minute
	// defaultTTL is the default of [Options.TTL].
	defaultTTL = 15 * time.Second
	// defaultKeepTrying is the default of [Options.KeepTrying]: as long as Nova waits for an event
	// by default.
	defaultKeepTrying = 5 * time.Minute
)

// Client sends events to Nova. It returns Nova's code for each event in order (200, 404, 422 …), or
// an error if Nova did not take the request.
type Client interface {
	Send(ctx context.Context, events []Event) (codes []int, err error)
}

// Options of the notifier.
type Options struct {
	Store   store.Store
	Objects *replica.Replica // of schema's tables
	// Status returns the status of a port.
	Status func(r records.Reader, p *neutron.Port) string
	Client Client
	TTL    time.Duration // after which another server notifies when this one is gone; 0 = 15 s
	// KeepTrying is for how long events are repeated of a server that Nova has no host for (code
	// 422); 0 = 5 minutes.
	KeepTrying time.Duration
	Log        *slog.Logger
}

// Notifier sends the events. It is a task.
type Notifier struct {
	task.Part
	opts Options
	log  *slog.Logger
	wake task.Notice

	mu      sync.Mutex
	marked  map[string]bool // ports to look at
	all     bool            // look at every port
	figures figures
}

// figures are the metrics.
type figures struct {
	notifying     bool
	waiting, sent int
}

// New returns the task, which follows the replica from when that runs.
func New(o Options) *Notifier {
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if o.KeepTrying == 0 {
		o.KeepTrying = defaultKeepTrying
	}
	n := &Notifier{Part: task.NewPart("Nova events"), opts: o, log: o.Log, wake: task.NewNotice(), marked: map[string]bool{}}
	o.Objects.OnChange(n.notice)
	return n
}

// notice marks the ports that a change concerns.
func (n *Notifier) notice(u snapshot.Update) {
	var ids []string
	for _, c := range u.Changed {
		for _, record := range []any{c.Old, c.New} {
			switch record := record.(type) {
			case *neutron.Port:
				if serverOf(record) != "" {
					ids = append(ids, record.ID)
				}
			case *topology.PortState:
				ids = append(ids, record.PortID)
			case *neutron.FloatingIP:
				ids = append(ids, record.PortID)
			}
		}
	}
	n.mark(ids...)
}

func (n *Notifier) mark(ids ...string) {
	if len(ids) == 0 {
		return
	}
	n.mu.Lock()
	for _, id := range ids {
		n.marked[id] = true
	}
	n.mu.Unlock()
	n.wake.Give()
}

// Recheck has the notifier look at every port: a status may have changed that is in no table of the
// replica.
func (n *Notifier) Recheck() {
	n.mu.Lock()
	n.all = true
	n.mu.Unlock()
	n.wake.Give()
}

// Metrics returns the state of notifying.
func (n *Notifier) Metrics() []telemetry.Value {
	n.mu.Lock()
	f := n.figures
	n.mu.Unlock()
	return []telemetry.Value{
		telemetry.Flag("heddle_nova_notifying", "1 while this server is the one that sends events to Nova.", f.notifying),
		telemetry.Gauge.Of("heddle_nova_ports_waiting", "Ports with events that Nova has not taken yet; on the server that notifies.", f.waiting),
		telemetry.Counter.Of("heddle_nova_events_total", "Events that Nova has taken.", f.sent),
	}
}

func (n *Notifier) note(change func(*figures)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.figures)
}

// Run notifies until ctx ends.
func (n *Notifier) Run(ctx context.Context) error {
	n.BeReady()
	backoff := task.Backoff{Least: leastPause, Most: mostPause}
	for ctx.Err() == nil {
		err := presence.Campaign(ctx, n.opts.Store, notifierKey, n.opts.TTL, func(ctx context.Context, term int64) error {
			backoff.Reset()
			return n.lead(ctx, term)
		})
		n.note(func(f *figures) { *f = figures{sent: f.sent} })
		if ctx.Err() != nil {
			return nil
		}
		n.log.Warn("stopped notifying Nova", "err", err)
		backoff.Pause(ctx)
	}
	return nil
}

// lead notifies until ctx ends, or the store refuses.
func (n *Notifier) lead(ctx context.Context, term int64) error {
	l, err := loadLedger(ctx, n.opts.Store, term)
	if err != nil {
		return err
	}
	n.log.Info("notifying Nova of ports")
	n.note(func(f *figures) { f.notifying = true })
	n.Recheck()
	r := &round{Notifier: n, ledger: l, left: map[string]bool{}, rejected: map[string]time.Time{}}
	backoff := task.Backoff{Least: leastPause, Most: mostPause}
	wake, retry := n.wake, (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		case <-retry:
			retry = nil
			r.markLeft()
		}
		answered, err := r.pass(ctx)
		if err != nil {
			return err
		}
		wake = n.wake
		if !answered { // changes alone do not have Nova asked again
			wake = nil
		}
		switch {
		case len(r.left) == 0:
			retry = nil
			backoff.Reset()
		case retry == nil:
			retry = time.After(backoff.Next())
		}
	}
}

// round is the state that a notifier keeps from pass to pass.
type round struct {
	*Notifier
	ledger   *ledger
	left     map[string]bool      // ports with events that Nova has not taken
	rejected map[string]time.Time // since when Nova has no host for the servers of ports
}

// markLeft marks the ports with events that Nova has not taken.
func (r *round) markLeft() {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(r.marked, r.left)
	clear(r.left)
}

// step holds the events to send about a port.
type step struct {
	port   string
	events []Event
	now    *reported // what Nova knows afterwards; nil: nothing
}

// pass notifies Nova of all marked ports, and reports whether Nova has answered. Its error is the
// store's.
func (r *round) pass(ctx context.Context) (answered bool, err error) {
	steps, err := r.steps(ctx)
	if err != nil {
		return false, err
	}
	answered = true
	for part := range slices.Chunk(steps, batch) {
		for _, s := range part {
			r.left[s.port] = true
		}
		if !answered {
			continue
		}
		after, failed := r.send(ctx, part)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case failed != nil:
			r.log.Warn("cannot notify Nova", "err", failed)
			answered = false
			continue
		}
		if err := r.ledger.put(ctx, after); err != nil {
			return false, err
		}
		for port := range after {
			delete(r.left, port)
		}
	}
	r.note(func(f *figures) { f.waiting = len(r.left) })
	return answered, nil
}

// steps returns the steps of the marked ports, and unmarks them.
func (r *round) steps(ctx context.Context) ([]step, error) {
	r.mu.Lock()
	marked, all := r.marked, r.all
	r.marked, r.all = map[string]bool{}, false
	r.mu.Unlock()
	snap, err := r.opts.Objects.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	for id := range marked {
		delete(r.left, id)
	}
	reader := records.Over(snap)
	if all {
		for p := range schema.Ports.All(reader) {
			marked[p.ID] = true
		}
		for id := range r.ledger.ports {
			marked[id] = true
		}
	}
	var steps []step
	for _, id := range slices.Sorted(maps.Keys(marked)) {
		if s, changed := r.step(reader, id); changed {
			steps = append(steps, s)
		}
	}
	return steps, nil
}

// step returns the step of a port, and whether what was reported is out of date.
func (r *round) step(reader records.Reader, id string) (s step, changed bool) {
	before := r.ledger.ports[id]
	p, there := schema.Ports.Peek(reader, id)
	switch {
	case !there && before == nil:
		return step{}, false
	case !there:
		return step{id, eventsOfDeletion(id, *before), nil}, true
	}
	now := current(reader, p, r.opts.Status(reader, p))
	if before == now || before != nil && now != nil && *before == *now {
		return step{}, false
	}
	return step{id, eventsBetween(id, before, now), now}, true
}

// send sends the events of some ports. It returns what is reported afterwards, without the ports
// whose events must be sent again.
func (r *round) send(ctx context.Context, steps []step) (after map[string]*reported, err error) {
	var events []Event
	for _, s := range steps {
		events = append(events, s.events...)
	}
	var codes []int
	if len(events) > 0 {
		if codes, err = r.opts.Client.Send(ctx, events); err != nil {
			return nil, err
		}
	}
	after = map[string]*reported{}
	for _, s := range steps {
		own := codes[:len(s.events)]
		codes = codes[len(s.events):]
		if r.refused(s, own) {
			continue
		}
		delete(r.rejected, s.port)
		after[s.port] = s.now
	}
	return after, nil
}

// refused takes Nova's codes for the events of a port, and reports whether to send them again: of a
// server without a host for a while, but not of one that Nova does not have.
func (r *round) refused(s step, codes []int) bool {
	noHost := false
	for i, code := range codes {
		e := s.events[i]
		switch code {
		case http.StatusOK:
			r.note(func(f *figures) { f.sent++ })
			r.log.Debug("notified Nova", "event", e.Name, "server", e.ServerID, "port", e.PortID)
		case http.StatusUnprocessableEntity:
			noHost = true
		default:
			r.log.Info("Nova ignores an event", "event", e.Name, "server", e.ServerID, "port", e.PortID, "code", code)
		}
	}
	if !noHost {
		return false
	}
	since, known := r.rejected[s.port]
	if !known {
		r.rejected[s.port] = time.Now()
		return true
	}
	if time.Since(since) < r.opts.KeepTrying {
		return true
	}
	r.log.Warn("Nova has had no host for the server of a port; its events are given up", "port", s.port, "since", since)
	return false
}
