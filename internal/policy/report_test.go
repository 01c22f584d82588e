package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/store"
)

// sick is a store whose commits fail on request.
type sick struct {
	store.Store
	failing atomic.Bool
	commits atomic.Int32
}

func (s *sick) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	if s.failing.Load() {
		return 0, errors.New("no")
	}
	s.commits.Add(1)
	return s.Store.Commit(ctx, conds, ops)
}

// TestReporting: on a clock of its own: a flapping status is reported once or not at all, many
// statuses take one commit, what failed is reported later, and the liveness ends with its lease.
func TestReporting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := store.NewMemory()
		defer memory.Close()
		st := &sick{Store: memory}
		r := newReporter(st, "h1", slog.New(slog.DiscardHandler))
		s := usual(t)
		s.EndpointReporting, s.EndpointDelay = true, time.Second
		r.configure(s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.run(ctx) }()
		pass := func(d time.Duration) {
			time.Sleep(d) // of the bubble's clock
			synctest.Wait()
		}
		path := func(i int) string { return fmt.Sprintf("/calico/felix/v1/host/h1/workload/o/w%d/endpoint/e", i) }
		is := func(when string, i int, want string) {
			t.Helper()
			kv, err := memory.Get(t.Context(), path(i))
			if string(kv.Value) != want {
				t.Errorf("%s: status %d is %q, %v; want %q", when, i, kv.Value, err, want)
			}
		}
		alive := func() bool {
			_, err := memory.Get(t.Context(), "/calico/felix/v1/host/h1/status")
			return err == nil
		}
		pass(time.Minute)
		if st.commits.Load() != 0 {
			t.Error("something was told before all was known")
		}
		for i := range 1000 {
			r.set(path(i), "up")
		}
		r.start()
		pass(2 * time.Second)
		is("at first", 999, `{"status":"up"}`)
		if n := st.commits.Load(); n > 4 { // the liveness, and 1000 statuses
			t.Errorf("%d commits for 1000 endpoints", n)
		}
		before := st.commits.Load()
		r.set(path(1), "down")
		pass(500 * time.Millisecond)
		is("too soon", 1, `{"status":"up"}`)
		r.set(path(1), "up")
		pass(3 * time.Second)
		if st.commits.Load() != before {
			t.Error("a status that came and went was told")
		}
		st.failing.Store(true)
		r.set(path(2), "error")
		pass(3 * time.Second)
		r.set(path(3), "")
		st.failing.Store(false)
		pass(3 * time.Second)
		is("after a failure", 2, `{"status":"error"}`)
		is("gone", 3, "")
		pass(2 * time.Minute)
		if !alive() {
			t.Error("the liveness is gone after two minutes")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !alive() {
			t.Error("stopping takes the liveness along: an agent that is only restarted would be missed")
		}
	})
}
