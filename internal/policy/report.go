package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"heddle/calico"
	"heddle/internal/store"
	"heddle/internal/store/presence"
	"heddle/internal/task"
)

// reporter writes the agent's liveness and the statuses of its endpoints to the store (spec §15).
type reporter struct {
	store    store.Store
	host     string
	log      *slog.Logger
	begun    time.Time
	changed  task.Notice
	statuses *presence.Keys

	mu         sync.Mutex
	on         bool // everything to report was set
	settings   Settings
	problems   []string // of the whole agent, reported with its liveness
	unreadable []string // objects that cannot be read, reported with it too
	now        bool     // report the liveness now

	// Of run alone.
	reported bool      // the liveness was reported since the agent started
	next     time.Time // when the liveness is reported again
}

const (
	// reportTimeout bounds one call of the store.
	reportTimeout = 5 * time.Second
	// reportPause is the pause after a failed call of the store.
	reportPause = time.Second
)

func newReporter(st store.Store, host string, log *slog.Logger) *reporter {
	changed := task.NewNotice()
	prefix := "/calico/felix/v1/host/" + host + "/"
	return &reporter{store: st, host: host, log: log, begun: time.Now(), changed: changed,
		statuses: presence.NewKeys(st, changed, prefix+"workload/", prefix+"endpoint/")}
}

// start has everything reported from now on: all that there is to report has been set.
func (r *reporter) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on {
		r.on = true
		r.statuses.Complete()
	}
}

func (r *reporter) configure(s Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.EndpointReporting != r.settings.EndpointReporting {
		r.statuses.Recheck()
	}
	r.now = r.now || s.ReportingInterval != r.settings.ReportingInterval || s.ReportingTTL != r.settings.ReportingTTL
	r.settings = s
	r.changed.Give()
}

// recheck compares the statuses in the store, which may have lost some, or be another one.
func (r *reporter) recheck() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = true
	r.statuses.Recheck()
}

// write has a report written. New problems go out at once; unreadable objects wait for the next
// liveness, so that one writer's mistake does not make all agents write at once.
func (r *reporter) write(report statusReport) {
	r.mu.Lock()
	if !slices.Equal(r.problems, report.problems) {
		r.now = true
		r.changed.Give()
	}
	r.problems, r.unreadable = report.problems, report.unreadable
	r.mu.Unlock()
	for path, status := range report.changed {
		r.set(path, status)
	}
	r.start()
}

// set sets the status of an endpoint; "": there is none. It is written after a delay, so that a
// status which comes and goes is never written.
func (r *reporter) set(path, status string) {
	r.mu.Lock()
	delay := r.settings.EndpointDelay
	r.mu.Unlock()
	if status == "" {
		r.statuses.Delete(path, delay)
	} else {
		r.statuses.Set(path, fmt.Appendf(nil, `{"status":%q}`, status), delay)
	}
}

// run reports until ctx ends.
func (r *reporter) run(ctx context.Context) error {
	failing, alarm := false, task.NewAlarm()
	for ctx.Err() == nil {
		next, err := r.pass(ctx)
		changed := r.changed
		if err != nil {
			if !failing && ctx.Err() == nil {
				r.log.Warn("cannot report to the store, will try again", "err", err)
			}
			next, changed = time.Now().Add(reportPause), nil
		}
		failing = err != nil
		alarm.Set(next)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-alarm.C:
		}
	}
	return nil
}

// pass reports what is due, and returns when something is due next.
func (r *reporter) pass(ctx context.Context) (next time.Time, err error) {
	r.mu.Lock()
	on, s := r.on, r.settings
	r.mu.Unlock()
	next = time.Now().Add(time.Hour)
	if on && s.ReportingInterval > 0 {
		if err := r.reportLiveness(ctx, s); err != nil {
			return next, err
		}
		next = r.next
	}
	if on && s.EndpointReporting {
		due, err := r.statuses.Flush(ctx, 0)
		if err != nil {
			return next, err
		}
		if !due.IsZero() {
			next = earlier(next, due)
		}
	}
	return next, nil
}

// reportLiveness writes the liveness when it is due: one key under a lease of its own, which
// expires without further reports, and one that stays and shows the last report.
func (r *reporter) reportLiveness(ctx context.Context, s Settings) error {
	now := time.Now()
	r.mu.Lock()
	problems, due := slices.Concat(r.problems, r.unreadable), r.now
	r.now = false
	r.mu.Unlock()
	if now.Before(r.next) && !due {
		return nil
	}
	r.next = now // until it is written
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	value, err := json.Marshal(struct {
		Time        string   `json:"time"`
		Uptime      float64  `json:"uptime"`
		FirstUpdate bool     `json:"first_update"`
		Problems    []string `json:"problems,omitempty"`
	}{now.UTC().Format("2006-01-02T15:04:05Z"), now.Sub(r.begun).Round(time.Millisecond).Seconds(), !r.reported, problems})
	if err != nil {
		return err
	}
	current, err := calico.AgentStatusKey{Host: r.host}.Path()
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
	if _, err := r.store.Commit(ctx, nil, []store.Op{{Key: current, Value: value, Lease: lease}, {Key: last, Value: value}}); err != nil {
		return err
	}
	r.reported, r.next = true, now.Add(s.ReportingInterval+rand.N(s.ReportingInterval/10+1)) // hosts must not write together
	return nil
}
