package policy

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"heddle/internal/policy/nft"
	"heddle/internal/store"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology/flow"
)

// countsService answers servers' requests for this host's counters.
type countsService struct {
	store    store.Store
	host     string // id
	table    *nft.Table
	since    time.Time
	log      *slog.Logger
	requests *replica.Replica
	waiting  chan *flow.TraceRequest
}

const (
	// mostReported bounds the counters in one answer, which is a value of the store, and
	// mostWaiting the requests that wait: more of them get no answer.
	mostReported, mostWaiting = 2000, 16
	// answerLease bounds how long an answer stays.
	answerLease = 30 * time.Second
)

func newCountsService(st store.Store, hostID string, table *nft.Table, log *slog.Logger) *countsService {
	s := &countsService{store: st, host: hostID, table: table, since: time.Now().UTC(), log: log, waiting: make(chan *flow.TraceRequest, mostWaiting)}
	source := schema.TraceRequests.Source()
	source.Prefix = schema.TraceRequestsPrefix + hostID + "/"
	s.requests = replica.New(st, replica.Options{Log: log}, source)
	s.requests.OnChange(s.changed)
	return s
}

// changed is called from one goroutine.
func (s *countsService) changed(u snapshot.Update) {
	for _, c := range u.Changed {
		if r, ok := c.New.(*flow.TraceRequest); ok && r.Policy != nil {
			select {
			case s.waiting <- r:
			default:
				s.log.Warn("too many requests for counters wait", "request", r.ID)
			}
		}
	}
}

// run answers requests until ctx ends.
func (s *countsService) run(ctx context.Context) error {
	for {
		select {
		case r := <-s.waiting:
			if err := s.answer(ctx, r); err != nil && ctx.Err() == nil {
				s.log.Warn("cannot answer a request for counters", "request", r.ID, "err", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *countsService) answer(ctx context.Context, r *flow.TraceRequest) error {
	ctx, cancel := context.WithTimeout(ctx, countersTimeout)
	defer cancel()
	a := &flow.TraceAnswer{ID: r.ID, HostID: s.host, Walk: []flow.Step{}}
	if counts, err := s.table.Counts(ctx); err != nil {
		a.Error = err.Error()
	} else {
		a.Counters = countersOf(counts, r.Policy, mostReported)
		a.Counters.Since = s.since
	}
	value, err := json.Marshal(a)
	if err != nil {
		return err
	}
	lease, err := s.store.Grant(ctx, answerLease)
	if err != nil {
		return err
	}
	_, err = s.store.Commit(ctx, nil, []store.Op{{Key: schema.PolicyAnswers.KeyOf(a), Value: value, Lease: lease}})
	return err
}
