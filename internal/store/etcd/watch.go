package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"heddle/internal/store"
	"heddle/internal/task"
)

// etcd answers a request for progress only while all watchers of the stream are in sync, so it is
// repeated. The first repetition waits for a few times what the last answer took, between these
// bounds, and the pauses grow: under load the requests of thousands of clients must not add to it.
const leastProgressPause, mostProgressPause, progressPauseAnswers = 10 * time.Millisecond, 2 * time.Second, 4

// Watcher watches for one client. Its methods may be called from any goroutine.
type Watcher struct {
	client *clientv3.Client
	as     func(context.Context) context.Context // adds the caller's identity

	mu      sync.Mutex
	watches map[*watch]bool
	streams int // numbers the watches' streams
}

// NewWatcher returns a client's watcher. as, if not nil, adds the caller's identity to a context.
func NewWatcher(client *clientv3.Client, as func(context.Context) context.Context) *Watcher {
	if as == nil {
		as = func(ctx context.Context) context.Context { return ctx }
	}
	return &Watcher{client: client, as: as, watches: map[*watch]bool{}}
}

// watch joins one etcd watcher per prefix into whole revisions. etcd orders events only within a
// watcher, so an event waits until every watcher has passed its revision, by an event of its own or
// by progress. With a single prefix nothing waits. Take changes from out soon: those not taken wait
// in etcd's client, without a bound.
type watch struct {
	client   *clientv3.Client
	out      chan store.Change
	err      error       // written before out is closed, read after
	nudged   task.Notice // holds a token after want was raised
	ask      task.Notice // holds a token while progress is to be requested
	arrivals chan arrival

	seen      []int64       // by watcher: every event up to this revision has arrived
	delivered int64         // out has everything up to this revision
	pending   []store.Event // arrived, newer than the slowest watcher

	mu   sync.Mutex
	want int64 // Nudge requested progress up to here
}

// arrival is one message of one watcher.
type arrival struct {
	watcher     int
	upTo        int64
	events      []store.Event
	reconnected bool
	err         error
}

// Watch delivers changes under the prefixes after revision from, until ctx ends (the channel is
// then closed) or history is lost (the error function then returns ErrCompacted or the cause). It
// reconnects by itself, without loss.
func (s *Watcher) Watch(ctx context.Context, from int64, prefixes ...string) (<-chan store.Change, func() error) {
	w := &watch{
		client:    s.client,
		out:       make(chan store.Change),
		nudged:    task.NewNotice(),
		ask:       task.NewNotice(),
		arrivals:  make(chan arrival),
		seen:      make([]int64, len(prefixes)),
		delivered: from,
	}
	for i := range w.seen {
		w.seen[i] = from
	}
	s.mu.Lock()
	s.watches[w] = true
	s.streams++
	id := strconv.Itoa(s.streams)
	s.mu.Unlock()

	go func() {
		defer close(w.out)
		// A stream of its own, since requests for progress concern a whole stream.
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(s.as(ctx)), "heddle-watch", id))
		w.err = w.run(ctx, from, prefixes, cancel)
		s.mu.Lock()
		delete(s.watches, w)
		s.mu.Unlock()
	}()
	return w.out, func() error { return w.err }
}

// Nudge makes every watch that is behind revision rev report progress soon, without waiting for it.
func (s *Watcher) Nudge(rev int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.mu.Lock()
		w.want = max(w.want, rev)
		w.mu.Unlock()
		w.nudged.Give()
	}
}

func (w *watch) run(ctx context.Context, from int64, prefixes []string, cancel context.CancelFunc) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	for i, p := range prefixes {
		parts.Go(func() { w.follow(ctx, i, p, from) })
	}
	parts.Go(func() { w.requestProgress(ctx) })
	parts.Go(func() { w.followConnection(ctx) })
	retry := time.NewTimer(0)
	defer retry.Stop()
	asked := false      // a request is in flight, or was not answered; then the timer runs
	var first time.Time // the request was sent first
	pauses := task.Backoff{Least: leastProgressPause, Most: mostProgressPause, Spread: true}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-retry.C:
			if asked && w.behind() {
				w.ask.Give()
				retry.Reset(pauses.Next())
			} else {
				asked = false
			}
		case <-w.nudged:
		case a := <-w.arrivals:
			if a.err != nil {
				return a.err
			}
			before := w.delivered
			if !w.deliver(ctx, a) {
				return nil
			}
			// Each watcher gets the answer: only the last to pass it on delivers something.
			if asked && w.delivered > before {
				asked = false
				answer := progressPauseAnswers * time.Since(first)
				pauses.Least = min(max(answer, leastProgressPause), mostProgressPause)
				pauses.Reset()
			}
		}
		if !asked && w.behind() {
			asked, first = true, time.Now()
			w.ask.Give()
			retry.Reset(pauses.Next())
		}
	}
}

// deliver sends the changes that an arrival has completed; false when ctx has ended.
func (w *watch) deliver(ctx context.Context, a arrival) bool {
	c, ok := store.Change{Revision: w.delivered, Reconnected: true}, true
	if !a.reconnected {
		c, ok = w.take(a)
	}
	if !ok {
		return true
	}
	select {
	case w.out <- c:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow forwards one watcher's messages until ctx ends or etcd ends the watcher. One that etcd
// refuses because its users or roles have just changed is opened again.
func (w *watch) follow(ctx context.Context, watcher int, prefix string, from int64) {
	opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(from + 1), clientv3.WithProgressNotify()}
	for r := range w.client.Watch(ctx, prefix, opts...) {
		a := arrival{watcher: watcher}
		switch err := r.Err(); {
		case r.CompactRevision != 0:
			a.err = fmt.Errorf("watch %s: %w", prefix, store.ErrCompacted)
		case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthOldRevision):
			w.follow(ctx, watcher, prefix, from)
			return
		case err != nil:
			a.err = Explain(ctx, "watch "+prefix, err)
		case r.IsProgressNotify():
			a.upTo = r.Header.Revision
		case len(r.Events) == 0:
			continue
		default:
			a.events = events(r.Events)
			a.upTo = a.events[len(a.events)-1].ModRevision
		}
		from = max(from, a.upTo)
		if !w.arrive(ctx, a) {
			return
		}
	}
	w.arrive(ctx, arrival{err: fmt.Errorf("watch %s: %w: closed", prefix, store.ErrUnavailable)})
}

// followConnection sends an arrival after each reconnection.
func (w *watch) followConnection(ctx context.Context) {
	conn := w.client.ActiveConnection()
	if conn == nil {
		return // within this process
	}
	for state := conn.GetState(); conn.WaitForStateChange(ctx, state); {
		if state = conn.GetState(); state == connectivity.Ready && !w.arrive(ctx, arrival{reconnected: true}) {
			return
		}
	}
}

func (w *watch) arrive(ctx context.Context, a arrival) bool {
	select {
	case w.arrivals <- a:
		return true
	case <-ctx.Done():
		return false
	}
}

func events(from []*clientv3.Event) []store.Event {
	out := make([]store.Event, len(from))
	for i, e := range from {
		out[i] = store.Event{
			KV:      FromProto(e.Kv),
			Deleted: e.Type == clientv3.EventTypeDelete,
		}
	}
	return out
}

// take adds an arrival and returns the changes that it has completed.
func (w *watch) take(a arrival) (store.Change, bool) {
	w.seen[a.watcher] = max(w.seen[a.watcher], a.upTo)
	w.pending = append(w.pending, a.events...)
	upTo := slices.Min(w.seen)
	if upTo <= w.delivered {
		return store.Change{}, false
	}
	w.delivered = upTo
	// No key occurs twice in a revision, so key order will do, the same for every store.
	slices.SortFunc(w.pending, func(a, b store.Event) int {
		return cmp.Or(cmp.Compare(a.ModRevision, b.ModRevision), cmp.Compare(a.Key, b.Key))
	})
	n := 0
	for n < len(w.pending) && w.pending[n].ModRevision <= upTo {
		n++
	}
	c := store.Change{Revision: upTo, Events: w.pending[:n:n]}
	w.pending = append([]store.Event(nil), w.pending[n:]...)
	return c, true
}

// behind reports whether something waits for progress.
func (w *watch) behind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending) > 0 || w.delivered < w.want
}

// requestProgress forwards requests to etcd. It is apart from run, since etcd's client may block.
func (w *watch) requestProgress(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.ask:
		}
		if err := w.client.RequestProgress(ctx); err != nil {
			return // the stream is gone; its watchers say why
		}
	}
}
