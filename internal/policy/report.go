package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"heddle/calico"
	"heddle/internal/store"
	"heddle/internal/task"
)

// reporter tells the store that this agent lives and what became of its endpoints (spec §15).
type reporter struct {
	store store.Store
	host  string
	log   *slog.Logger
	begun time.Time
	kick  task.Notice

	mu       sync.Mutex
	on       bool // there is something to tell: what is wanted is complete
	settings Settings
	problems []string          // of the whole agent, told with its liveness
	bad      []string          // objects that cannot be read, told with it too
	soon     bool              // the liveness is not to wait for its time
	wanted   map[string]string // endpoint statuses by path; what is not in it is to be gone
	due      map[string]time.Time
	swept    bool // told is what the store holds

	// Of run alone.
	told  map[string]string
	alive bool      // the liveness was written in this life
	next  time.Time // of the liveness
	round time.Time // of statuses: all that are due then go together
}

const (
	// reportBatch bounds the statuses written in one transaction.
	reportBatch = 512
	// reportTimeout bounds one call of the store, reportPause is the wait after one that failed.
	reportTimeout, reportPause = 5 * time.Second, time.Second
)

func newReporter(st store.Store, host string, log *slog.Logger) *reporter {
	return &reporter{store: st, host: host, log: log, begun: time.Now(), kick: task.NewNotice(),
		wanted: map[string]string{}, due: map[string]time.Time{}, told: map[string]string{}}
}

// start lets the reporter tell what it is given from now on: all that there is to tell has been set.
func (r *reporter) start() {
	r.mu.Lock()
	was := r.on
	r.on = true
	r.mu.Unlock()
	if !was {
		r.wake()
	}
}

// configure applies settings.
func (r *reporter) configure(s Settings) {
	r.mu.Lock()
	if s.EndpointReporting != r.settings.EndpointReporting {
		r.swept = false
	}
	if s.ReportingInterval != r.settings.ReportingInterval || s.ReportingTTL != r.settings.ReportingTTL {
		r.soon = true
	}
	r.settings = s
	r.mu.Unlock()
	r.wake()
}

// recheck has the statuses that the store holds compared with those wanted: the store may have lost some, or be another.
func (r *reporter) recheck() {
	r.mu.Lock()
	r.swept, r.soon = false, true
	r.mu.Unlock()
	r.wake()
}

// concern says what is wrong with the agent as a whole.
func (r *reporter) concern(problems []string) {
	r.mu.Lock()
	changed := !slices.Equal(r.problems, problems)
	r.problems = problems
	r.soon = r.soon || changed
	r.mu.Unlock()
	if changed {
		r.wake()
	}
}

// unreadable says which objects cannot be read. It waits for the liveness's time: one writer's mistake must not make all
// agents write at once.
func (r *reporter) unreadable(lines []string) {
	r.mu.Lock()
	r.bad = lines
	r.mu.Unlock()
}

// set says what an endpoint's status is from now on; "" that there is none.
func (r *reporter) set(path, status string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wanted[path] == status {
		return
	}
	if status == "" {
		delete(r.wanted, path)
	} else {
		r.wanted[path] = status
	}
	// A change waits, so that one that comes and goes is never told; others that come meanwhile do not make it wait longer.
	if _, waits := r.due[path]; !waits {
		r.due[path] = time.Now().Add(r.settings.EndpointDelay)
	}
	r.wake()
}

// jitter is a duration or up to a tenth more.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/10+1) }

func (r *reporter) wake() { r.kick.Give() }

// run tells until ctx ends.
func (r *reporter) run(ctx context.Context) error {
	failing := false
	for ctx.Err() == nil {
		next, err := r.pass(ctx)
		if err != nil && ctx.Err() == nil {
			if !failing {
				r.log.Warn("cannot report to the store, will try again", "err", err)
			}
			next = time.Now().Add(reportPause)
		}
		failing = err != nil
		timer := time.NewTimer(time.Until(next))
		if err == nil {
			select {
			case <-ctx.Done():
			case <-r.kick:
			case <-timer.C:
			}
		} else {
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
		timer.Stop()
	}
	return nil
}

// pass tells what is due and says when something is due next.
func (r *reporter) pass(ctx context.Context) (time.Time, error) {
	r.mu.Lock()
	on, swept, s := r.on, r.swept, r.settings
	r.mu.Unlock()
	never := time.Now().Add(time.Hour)
	if !on {
		return never, nil
	}
	next := never
	if s.ReportingInterval > 0 {
		if err := r.tellAlive(ctx, s); err != nil {
			return next, err
		}
		next = r.next
	}
	if !s.EndpointReporting {
		return next, nil
	}
	if !swept {
		if err := r.sweep(ctx); err != nil {
			return next, err
		}
	}
	for {
		batch, later := r.take()
		if len(batch) == 0 {
			if !later.IsZero() && later.Before(next) {
				next = later
			}
			return next, nil
		}
		if err := r.tell(ctx, batch); err != nil {
			return next, err
		}
	}
}

// tellAlive writes the liveness when it is time to: one key under a lease of its own, so that it goes when this agent
// does, and one that stays and says since when.
func (r *reporter) tellAlive(ctx context.Context, s Settings) error {
	now := time.Now()
	r.mu.Lock()
	problems, soon := slices.Concat(r.problems, r.bad), r.soon
	r.soon = false
	r.mu.Unlock()
	if now.Before(r.next) && !soon {
		return nil
	}
	r.next = now // until it is written
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	value, err := aliveValue(now, r.begun, !r.alive, problems)
	if err != nil {
		return err
	}
	status, err := calico.AgentStatusKey{Host: r.host}.Path()
	if err != nil {
		return err
	}
	last, err := calico.AgentLastStatusKey{Host: r.host}.Path()
	if err != nil {
		return err
	}
	lease, err := r.store.Grant(ctx, max(time.Second, s.ReportingTTL))
	if err != nil {
		return err
	}
	if _, err := r.store.Commit(ctx, nil, []store.Op{{Key: status, Value: value, Lease: lease}, {Key: last, Value: value}}); err != nil {
		return err
	}
	r.alive, r.next = true, now.Add(jitter(s.ReportingInterval))
	return nil
}

func aliveValue(now, begun time.Time, first bool, problems []string) ([]byte, error) {
	value := struct {
		Time        string   `json:"time"`
		Uptime      float64  `json:"uptime"`
		FirstUpdate bool     `json:"first_update"`
		Problems    []string `json:"problems,omitempty"`
	}{now.UTC().Format("2006-01-02T15:04:05Z"), now.Sub(begun).Round(time.Millisecond).Seconds(), first, problems}
	return json.Marshal(value)
}

// sweep reads the statuses that this host's agents have left in the store: those that no endpoint explains go, wrong ones
// are written again.
func (r *reporter) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	clear(r.told)
	for _, part := range []string{"workload/", "endpoint/"} {
		kvs, _, err := r.store.List(ctx, statusPrefix+r.host+"/"+part)
		if err != nil {
			return err
		}
		for _, kv := range kvs {
			var s struct{ Status string }
			if err := json.Unmarshal(kv.Value, &s); err != nil {
				s.Status = "unreadable"
			}
			r.told[kv.Key] = s.Status
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for path := range r.told {
		if _, wanted := r.wanted[path]; !wanted {
			r.due[path] = time.Time{}
		}
	}
	for path := range r.wanted {
		if _, waits := r.due[path]; !waits {
			r.due[path] = time.Time{}
		}
	}
	r.swept = true
	return nil
}

// statusPrefix is where agents report, by host.
const statusPrefix = "/calico/felix/v1/host/"

// take finds statuses to write now, and when the next round is. A round begins up to a tenth of the delay after the first
// status is due, so that changes that come together are told together.
func (r *reporter) take() (batch map[string]string, later time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, first := time.Now(), time.Time{}
	batch = map[string]string{}
	began := !now.Before(r.round)
	for path, due := range r.due {
		if began && !due.After(now) && len(batch) < reportBatch {
			delete(r.due, path)
			if r.told[path] != r.wanted[path] {
				batch[path] = r.wanted[path]
			}
		} else if first.IsZero() || due.Before(first) {
			first = due
		}
	}
	if len(batch) > 0 || first.IsZero() {
		return batch, first
	}
	delay := r.settings.EndpointDelay
	if began { // nothing is due: the next round is that of what is due first
		r.round = first.Add(rand.N(delay/10 + 1))
	}
	return batch, r.round
}

// tell writes a batch in one transaction. What fails is due again after all others.
func (r *reporter) tell(ctx context.Context, batch map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	ops := make([]store.Op, 0, len(batch))
	for _, path := range slices.Sorted(maps.Keys(batch)) {
		status := batch[path]
		if status == "" {
			ops = append(ops, store.Op{Key: path, Delete: true})
			continue
		}
		ops = append(ops, store.Op{Key: path, Value: fmt.Appendf(nil, `{"status":%q}`, status)})
	}
	_, err := r.store.Commit(ctx, nil, ops)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		for path := range batch {
			if _, waits := r.due[path]; !waits {
				r.due[path] = time.Now().Add(reportPause)
			}
		}
		return err
	}
	for path, status := range batch {
		if status == "" {
			delete(r.told, path)
		} else {
			r.told[path] = status
		}
	}
	return nil
}
