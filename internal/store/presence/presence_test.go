package presence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/store"
)

// there returns the keys below a prefix, as "key=value".
func there(t *testing.T, st store.Store, prefix string) string {
	t.Helper()
	kvs, _, err := st.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range kvs {
		all[strings.TrimPrefix(kv.Key, prefix)] = string(kv.Value)
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, k+"="+all[k])
	}
	return strings.Join(out, " ")
}

// until waits for the store to hold text below the prefix, looking after every change.
func until(t *testing.T, st store.Store, prefix, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, rev, err := st.List(ctx, prefix)
	if err != nil {
		t.Fatal(err)
	}
	changes, _ := st.Watch(ctx, rev, prefix)
	for there(t, st, prefix) != want {
		if _, ok := <-changes; !ok {
			t.Fatalf("the store has %q, want %q", there(t, st, prefix), want)
		}
	}
}

func runPresence(t *testing.T, p *Presence) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return stop
}

func TestPresenceReports(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: "/me/left", Value: []byte("over")}, {Key: "/me/a", Value: []byte("old")}}); err != nil {
		t.Fatal(err)
	}
	p := New(Options{Store: st, Prefix: "/me/", TTL: time.Minute})
	p.Set("/me/a", []byte("1"))
	stop := runPresence(t, p)
	until(t, st, "/me/", "a=1 left=over") // nothing is swept before all is known
	p.Complete()
	<-p.Reported()
	until(t, st, "/me/", "a=1")
	p.Set("/me/b", []byte("2"))
	p.Set("/me/a", []byte("3"))
	until(t, st, "/me/", "a=3 b=2")
	p.Delete("/me/a")
	p.Delete("/me/none")
	until(t, st, "/me/", "b=2")
	stop()
	if got := there(t, st, "/me/"); got != "b=2" {
		t.Errorf("after a stop the store has %q: a restart would be noticed", got)
	}
}

// TestPresenceExcept: keys of others below the prefix are neither deleted nor written.
func TestPresenceExcept(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: "/me/left", Value: []byte("over")}, {Key: "/me/other/a", Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	p := New(Options{Store: st, Prefix: "/me/", Except: []string{"/me/other/"}, TTL: time.Minute})
	p.Complete()
	runPresence(t, p)
	<-p.Reported()
	if got := there(t, st, "/me/"); got != "other/a=1" {
		t.Errorf("the store has %q", got)
	}
	p.RewriteAll()
	p.Set("/me/a", []byte("2"))
	until(t, st, "/me/", "a=2 other/a=1")
}

func TestPresenceTakesAnotherLease(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	p := New(Options{Store: st, Prefix: "/me/", TTL: time.Minute})
	for i := range batch + 10 {
		p.Set(fmt.Sprintf("/me/%04d", i), []byte("x"))
	}
	p.Complete()
	runPresence(t, p)
	<-p.Reported()
	all := there(t, st, "/me/")
	first := p.Lease()
	if err := st.Revoke(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	p.Set("/me/more", []byte("y")) // finds the lease gone
	until(t, st, "/me/", all+" more=y")
	if again := p.Lease(); again == first || again == 0 {
		t.Errorf("lease %d, was %d", again, first)
	}
}

// While Prepare fails nothing is reported; it is called again for each lease.
func TestPresenceWaitsForPrepare(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	calls := make(chan int, 8)
	n := 0
	p := New(Options{Store: st, Prefix: "/me/", TTL: time.Minute, Prepare: func(context.Context) error {
		n++
		calls <- n
		if n == 1 {
			return errors.New("not yet")
		}
		return nil
	}})
	p.Set("/me/a", []byte("1"))
	p.Complete()
	runPresence(t, p)
	if <-calls; there(t, st, "/me/") != "" {
		t.Error("reported although Prepare failed")
	}
	<-p.Reported()
	until(t, st, "/me/", "a=1")
	if err := st.Revoke(t.Context(), p.Lease()); err != nil {
		t.Fatal(err)
	}
	p.Set("/me/b", []byte("2"))
	until(t, st, "/me/", "a=1 b=2")
	for range 2 {
		<-calls // the lease that was lost, and the one after
	}
}

// What lasts stays when the lease is gone, and is written again when another has written it.
func TestPresenceLasting(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	p := New(Options{Store: st, Prefix: "/me/", TTL: time.Minute})
	if err := p.SetLasting("/me/key", 1); err != nil {
		t.Fatal(err)
	}
	p.Set("/me/alive", []byte("x"))
	p.Complete()
	stop := runPresence(t, p)
	<-p.Reported()
	until(t, st, "/me/", "alive=x key=1")
	if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: "/me/key", Value: []byte("2")}}); err != nil {
		t.Fatal(err)
	}
	p.Rewrite("/me/key")
	p.Rewrite("/me/none")
	until(t, st, "/me/", "alive=x key=1")
	lease := p.Lease()
	stop()
	if err := st.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if got := there(t, st, "/me/"); got != "key=1" {
		t.Errorf("without its lease the store has %q", got)
	}
}

// Without the store a host says once that it has no lease, and once when it has one again.
func TestPresenceSaysOnceThatItHasNoLease(t *testing.T) {
	t.Parallel()
	away := store.NewDeferred()
	away.Fail()
	var log bytes.Buffer
	attempts := make(chan struct{})
	p := New(Options{Store: away, Prefix: "/me/", TTL: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil)), Prepare: func(ctx context.Context) error {
		select {
		case attempts <- struct{}{}:
		case <-ctx.Done():
		}
		return nil
	}})
	p.Complete()
	stop := runPresence(t, p)
	for range 3 {
		<-attempts
	}
	<-p.Unreachable()
	away.Open(store.NewMemory()) // the attempt under way may find it already
	for told := false; !told; {
		select {
		case <-p.Reported():
			told = true
		case <-attempts:
		}
	}
	stop()
	if n := strings.Count(log.String(), "no lease"); n != 1 {
		t.Errorf("%d times:\n%s", n, &log)
	}
	if !strings.Contains(log.String(), "took a lease") {
		t.Errorf("the log does not say that it was over:\n%s", &log)
	}
}
