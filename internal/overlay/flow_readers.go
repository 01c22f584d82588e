package overlay

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"heddle/internal/overlay/verdicts"
	"heddle/internal/task"
	"heddle/internal/topology/flow"
)

const (
	// mostReaders bounds the subscriptions of a host.
	mostReaders = 16
	// postRecords is the number of records in one post, and postPause the time between two.
	postRecords = 256
	postPause   = 250 * time.Millisecond
	// postTries is the number of failures after each other with which a subscription ends.
	postTries = 5
)

// PostFlows posts records of a subscription with an id to the server that it names. It reports over
// if the server wants none any more.
type PostFlows func(ctx context.Context, id string, s *flow.FlowSubscription, p *flow.FlowPost) (over bool, err error)

// flowReaders posts the flow log to the servers that have asked for it. Each subscription reads on
// by itself: one that is slow loses records, and the log waits for none.
type flowReaders struct {
	engine  *engine
	files   *verdicts.Segments // nil: the log is in memory alone
	post    PostFlows
	publish func(*flow.TraceRequest, flow.TraceAnswer)
	log     *slog.Logger

	mu      sync.Mutex
	ctx     context.Context // nil until Run
	ends    map[string]context.CancelFunc
	waiting []*flow.TraceRequest // for Run
	posting sync.WaitGroup
}

// Run posts until ctx ends.
func (f *flowReaders) Run(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	waiting := f.waiting
	f.waiting = nil
	f.mu.Unlock()
	for _, r := range waiting {
		f.start(r)
	}
	<-ctx.Done()
	f.mu.Lock()
	f.ctx = nil
	f.mu.Unlock()
	f.posting.Wait()
	return nil
}

// start begins to post for a subscription.
func (f *flowReaders) start(r *flow.TraceRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.post == nil:
		f.publish(r, flow.TraceAnswer{Error: "this agent posts no flow log"})
	case f.ctx == nil:
		f.waiting = append(f.waiting, r)
	case len(f.ends) >= mostReaders:
		f.publish(r, flow.TraceAnswer{Error: fmt.Sprintf("%d read the flow log of this host already: ask again later", mostReaders)})
	default:
		ctx, end := context.WithCancel(f.ctx)
		f.ends[r.ID] = end
		f.posting.Go(func() {
			defer f.stop(r.ID)
			f.serve(ctx, r)
		})
	}
}

// stop ends a subscription.
func (f *flowReaders) stop(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := f.ends[id]; end != nil {
		end()
		delete(f.ends, id)
	}
}

// serve posts records until ctx ends, the server wants no more, or there are no more to post.
func (f *flowReaders) serve(ctx context.Context, r *flow.TraceRequest) {
	s := r.Flows
	if !s.Follow {
		if err := f.engine.countFlows(0); err != nil {
			f.log.Warn("cannot read the flows for the flow log", "err", err)
		}
		f.engine.flowLog.Flush()
	}
	reader, begins, done := f.open(ctx, s)
	defer done()
	for number := 1; ; {
		read, lost, more := reader.Next(postRecords)
		p := flow.FlowPost{Secret: s.Secret, Number: number, Records: selected(read, lost, &s.FlowFilter), End: len(read) == 0 && !s.Follow}
		if number == 1 && !s.Since.IsZero() && begins.After(s.Since) {
			p.Records = slices.Insert(p.Records, 0, flow.FlowRecord{Begins: begins})
		}
		if len(p.Records) > 0 || p.End || number == 1 {
			if over := f.postOn(ctx, r, &p); over || p.End {
				return
			}
			number++
			if s.Follow && !task.Pause(ctx, postPause) {
				return
			}
		}
		if len(read) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
	}
}

// flowSource is a log, or a part of one, that is read on.
type flowSource interface {
	Next(most int) (records []flow.FlowRecord, lost uint64, more <-chan struct{})
}

// open returns a reader of the records that a subscription asks for, and the time since which there
// are some: of the past in the files, if the log has some, else of those in memory.
func (f *flowReaders) open(ctx context.Context, s *flow.FlowSubscription) (from flowSource, begins time.Time, done func()) {
	if f.files != nil && !s.Since.IsZero() && !s.Follow {
		past, begins := f.files.Past(ctx, f.engine.flowLog, s.Since)
		return past, begins, past.Close
	}
	reader, begins := f.engine.flowLog.Reader(s.Follow)
	return reader, begins, func() {}
}

// selected returns the records that a filter selects, after one of the loss before them.
func selected(read []flow.FlowRecord, lost uint64, filter *flow.FlowFilter) (records []flow.FlowRecord) {
	if lost > 0 {
		records = append(records, flow.FlowRecord{Lost: lost})
	}
	for i := range read {
		if read[i].Lost > 0 || filter.Matches(&read[i]) {
			records = append(records, read[i])
		}
	}
	return records
}

// postOn posts records, again when that fails. It reports over when no more are to be posted.
func (f *flowReaders) postOn(ctx context.Context, r *flow.TraceRequest, p *flow.FlowPost) (over bool) {
	backoff := task.Backoff{Least: postPause, Most: 5 * time.Second}
	for try := 1; ; try++ {
		over, err := f.post(ctx, r.ID, r.Flows, p)
		if err == nil || ctx.Err() != nil {
			return over || ctx.Err() != nil
		}
		if try == postTries {
			f.log.Warn("cannot post the flow log to the server that asks for it", "servers", r.Flows.URLs, "err", err)
			f.publish(r, flow.TraceAnswer{Error: err.Error()})
			return true
		}
		task.Pause(ctx, backoff.Next())
	}
}
