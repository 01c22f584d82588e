package policy

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/follow"
)

// cut is a store whose watches can be broken. No new watch begins until it is repaired.
type cut struct {
	*backend.Etcd
	mu     sync.Mutex
	cancel context.CancelFunc
	mended chan struct{}
}

func (c *cut) Watch(ctx context.Context, from int64, prefixes ...string) (<-chan store.Change, func() error) {
	c.mu.Lock()
	mended := c.mended
	c.mu.Unlock()
	select {
	case <-mended:
	case <-ctx.Done():
	}
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.cancel = cancel
	c.mu.Unlock()
	return c.Etcd.Watch(ctx, from, prefixes...)
}

// breakWatch breaks the watch that there is; the next begins when the function it gives is called.
func (c *cut) breakWatch() (mend func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mended = make(chan struct{})
	c.cancel()
	return func() { close(c.mended) }
}

// TestFeed: a broken watch goes on where it was; one whose place has been compacted, or a resync,
// brings a snapshot. No change is lost, and none comes twice.
func TestFeed(t *testing.T) {
	t.Parallel()
	etcd, err := backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: t.TempDir(), Tick: 10 * time.Millisecond, NoFsync: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	open := make(chan struct{})
	close(open)
	st := &cut{Etcd: etcd, mended: open}
	put := func(key, value string) int64 {
		t.Helper()
		rev, err := etcd.Commit(t.Context(), nil, []store.Op{{Key: key, Value: []byte(value), Delete: value == ""}})
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	put("/calico/a", "1")
	f := newFeed(st, time.Minute, nil, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	next := func() follow.Update {
		t.Helper()
		for {
			select {
			case n := <-f.out:
				if n.Full || len(n.Events) > 0 {
					return n
				}
			case <-time.After(10 * time.Second):
				t.Fatal("no news in 10 s")
			}
		}
	}
	change := func(when, key, value string) {
		t.Helper()
		n := next()
		if n.Full || len(n.Events) != 1 || n.Events[0].Key != key || string(n.Events[0].Value) != value {
			t.Fatalf("%s: got %+v, want %s = %s", when, n, key, value)
		}
	}
	snapshot := func(when string, want ...string) {
		t.Helper()
		n := next()
		var got []string
		for _, kv := range n.All {
			got = append(got, kv.Key+"="+string(kv.Value))
		}
		if !n.Full || n.Diverged || len(got) != len(want) {
			t.Fatalf("%s: got %+v, want a snapshot of %v", when, n, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
	}
	snapshot("at first", "/calico/a=1")
	put("/calico/b", "2")
	change("a change", "/calico/b", "2")

	mend := st.breakWatch()
	put("/calico/b", "3")
	mend()
	change("after the watch broke", "/calico/b", "3")

	mend = st.breakWatch()
	put("/calico/a", "")
	if err := etcd.Compact(t.Context(), put("/calico/b", "4")); err != nil {
		t.Fatal(err)
	}
	mend()
	snapshot("after a compaction", "/calico/b=4")
	put("/calico/c", "5")
	change("after it", "/calico/c", "5")

	f.relist()
	snapshot("when asked for", "/calico/b=4", "/calico/c=5")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
