package etcd

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/internal/store"
)

// busy is an etcd whose answers to requests for progress take a while. Its clients' other calls are
// not made here.
type busy struct {
	clientv3.Watcher
	answer time.Duration

	mu       sync.Mutex
	revision int64
	watchers map[string]chan clientv3.WatchResponse
	requests int
}

func (b *busy) Watch(ctx context.Context, prefix string, _ ...clientv3.OpOption) clientv3.WatchChan {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan clientv3.WatchResponse, 1000)
	b.watchers[prefix] = c
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, prefix)
		close(c)
	})
	return c
}

func (b *busy) RequestProgress(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests++
	time.AfterFunc(b.answer, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, c := range b.watchers {
			c <- clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: b.revision}}
		}
	})
	return nil
}

// put is a change under a prefix, which its watcher gets at once.
func (b *busy) put(prefix string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revision++
	b.watchers[prefix] <- clientv3.WatchResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: b.revision},
		Events: []*clientv3.Event{{Kv: &mvccpb.KeyValue{Key: []byte(prefix + "key"), ModRevision: b.revision}}},
	}
}

// TestWatchRequestsOfBusyEtcd: a change costs one request for progress, and while it is not known
// how long answers take a few; not one every ten milliseconds until etcd has answered.
func TestWatchRequestsOfBusyEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := &busy{answer: time.Second, revision: 1, watchers: map[string]chan clientv3.WatchResponse{}}
		ctx, cancel := context.WithCancel(t.Context())
		prefixes := []string{"/a/", "/b/", "/c/", "/d/", "/e/", "/f/"}
		changes, _ := NewWatcher(&clientv3.Client{Watcher: etcd}, nil).Watch(ctx, 1, prefixes...)
		counts := []int{}
		for n := range 10 {
			synctest.Wait()
			etcd.put(prefixes[n%len(prefixes)])
			var c store.Change
			for len(c.Events) == 0 {
				c = <-changes
			}
			if c.Revision != etcd.revision || len(c.Events) != 1 {
				t.Fatalf("change %d: %+v, want revision %d alone", n, c, etcd.revision)
			}
			counts = append(counts, etcd.requests)
			time.Sleep(time.Minute) // all requests are answered
		}
		cancel()
		for range changes { // until the watch has ended
		}
		if first, rest := counts[0], counts[9]-counts[0]; first > 10 || rest != 9 {
			t.Error("requests so far, after each change: " + fmt.Sprint(counts))
		}
	})
}
