package legacy

import (
	"context"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"heddle/calico/client"
)

// lab is an etcd of the test's own, and two ways to it: the bindings, and the keys as they are.
type lab struct {
	t      *testing.T
	client *client.Client
	raw    *clientv3.Client
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "s")}
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "d")
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	c.ListenPeerUrls = nil
	c.TickMs, c.ElectionMs = 5, 50
	c.UnsafeNoFsync = true
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()
	l := &lab{t: t}
	if l.raw, err = clientv3.New(clientv3.Config{Endpoints: []string{socket.String()}, Logger: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.raw.Close() })
	if l.client, err = client.New(client.Options{Endpoints: []string{socket.String()}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.client.Close() })
	return l
}

// put writes keys as some other program would, and del deletes one.
func (l *lab) put(keysAndValues ...string) {
	l.t.Helper()
	for i := 0; i < len(keysAndValues); i += 2 {
		if _, err := l.raw.Put(context.Background(), keysAndValues[i], keysAndValues[i+1]); err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l *lab) del(key string) {
	l.t.Helper()
	if _, err := l.raw.Delete(context.Background(), key); err != nil {
		l.t.Fatal(err)
	}
}

// keys returns all keys with their values.
func (l *lab) keys() map[string]string {
	l.t.Helper()
	r, err := l.raw.Get(context.Background(), "/calico/", clientv3.WithPrefix())
	if err != nil {
		l.t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range r.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

// meddler lets the test act in the moment between what a Writer has read and its commit.
type meddler struct {
	etcd
	mu     sync.Mutex
	before []func() // one for each of the next commits
	made   int      // commits
}

func (m *meddler) Commit(ctx context.Context, ops ...client.Op) (int64, error) {
	m.mu.Lock()
	m.made++
	var act func()
	if len(m.before) > 0 {
		act, m.before = m.before[0], m.before[1:]
	}
	m.mu.Unlock()
	if act != nil {
		act()
	}
	return m.etcd.Commit(ctx, ops...)
}

// writer makes a Writer whose commits come after the acts, one each.
func (l *lab) writer(before ...func()) (*Writer, *meddler) {
	m := &meddler{etcd: l.client, before: before}
	return &Writer{m}, m
}
