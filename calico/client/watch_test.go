package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/internal/store/backend"
)

// follower takes a watch's events one after another.
type follower struct {
	t    testing.TB
	next func() (client.Event, error, bool)
}

func follow(t testing.TB, w world, filters ...calico.Key) follower {
	t.Helper()
	s := must(w.List(t.Context(), filters...))(t)
	return followFrom(t, w, s)
}

func followFrom(t testing.TB, w world, s *client.Snapshot) follower {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	next, stop := iter.Pull2(w.Watch(ctx, s))
	t.Cleanup(func() {
		cancel()
		stop()
	})
	return follower{t, next}
}

// expect takes as many events as are expected, as "path", "deleted path" or "invalid path".
func (f follower) expect(want ...string) {
	f.t.Helper()
	var got []string
	for range want {
		e, err, ok := f.next()
		if err != nil || !ok {
			f.t.Fatalf("watch ends after %v: %v, want %v", got, err, want)
		}
		switch {
		case e.Deleted:
			got = append(got, "deleted "+e.Path)
		case e.Err != nil:
			got = append(got, "invalid "+e.Path+" "+string(e.Raw))
		default:
			got = append(got, e.Path)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Fatal("events:", diff)
	}
}

const tierA, tierB = "/calico/v1/policy/tier/a/metadata", "/calico/v1/policy/tier/b/metadata"

func TestWatch(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	w.put(t, tierA, "{}")
	f := follow(t, w, calico.TierKey{})
	a, b := calico.TierKey{Tier: "a"}, calico.TierKey{Tier: "b"}
	must(w.Apply(ctx, calico.PolicyKey{Tier: "a", Policy: "not picked"}, &calico.Policy{Selector: "all()"}))(t)
	must(w.Commit(ctx, client.OpDelete(a, 0), client.OpCreate(b, &calico.Tier{})))(t)
	f.expect("deleted "+tierA, tierB)
	w.put(t, tierB, "{")
	w.put(t, tierA, `{"order":1}`)
	if err := w.Delete(ctx, b, 0); err != nil {
		t.Fatal(err)
	}
	f.expect("invalid "+tierB+" {", tierA, "deleted "+tierB)
}

func TestWatchOfTwoPlaces(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	const left, right = "/calico/bgp/v1/global/node_mesh", "/calico/v1/config/bgp_node_mesh"
	key := calico.BGPGlobalConfigKey{Name: "node_mesh"}
	w.put(t, right, `{"enabled":false}`)
	w.put(t, left, `{"enabled":true}`)
	f := follow(t, w, key)
	w.put(t, right, `{"enabled":true}`) // does not count
	w.put(t, "/calico/v1/config/other", "x")
	if _, err := w.etcd.Delete(ctx, left); err != nil {
		t.Fatal(err)
	}
	f.expect(right)
	must(w.Apply(ctx, key, &calico.NodeMesh{}))(t) // moves it
	f.expect(left)
	w.put(t, right, `{"enabled":true}`)
	if err := w.Delete(ctx, key, 0); err != nil {
		t.Fatal(err)
	}
	f.expect("deleted " + left)
	w.put(t, right, `{"enabled":true}`)
	if _, err := w.etcd.Delete(ctx, right); err != nil {
		t.Fatal(err)
	}
	f.expect(right, "deleted "+right)
}

// What happened while the revisions were compacted away is told as a difference.
func TestWatchSurvivesCompaction(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	for _, name := range []string{"kept", "changed", "gone"} {
		must(w.Create(ctx, calico.TierKey{Tier: name}, &calico.Tier{}))(t)
	}
	s := must(w.List(ctx, calico.TierKey{}))(t)
	order := 1.0
	must(w.Apply(ctx, calico.TierKey{Tier: "changed"}, &calico.Tier{Order: &order}))(t)
	must(w.Create(ctx, calico.TierKey{Tier: "new"}, &calico.Tier{}))(t)
	if err := w.Delete(ctx, calico.TierKey{Tier: "gone"}, 0); err != nil {
		t.Fatal(err)
	}
	now := must(w.Create(ctx, web, &calico.Policy{Selector: "all()"}))(t)
	if _, err := w.etcd.Compact(ctx, now); err != nil {
		t.Fatal(err)
	}
	f := followFrom(t, w, s)
	const tiers = "/calico/v1/policy/tier/"
	f.expect(tiers+"changed/metadata", tiers+"new/metadata", "deleted "+tiers+"gone/metadata")
	if err := w.Delete(ctx, calico.TierKey{Tier: "new"}, 0); err != nil {
		t.Fatal(err)
	}
	f.expect("deleted " + tiers + "new/metadata")
}

// A watch goes on when etcd was away, and compares when another cluster answers in its place.
func TestWatchSurvivesEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := serve(t, backend.Embedded{DataDir: dir})
	address := server.Endpoint()
	w := connect(t, address)
	client.CheckEvery(w.Client, 50*time.Millisecond)
	w.put(t, tierA, "{}")
	w.put(t, tierB, "{}")
	f := follow(t, w, calico.TierKey{})

	server.Close()
	server = serve(t, backend.Embedded{DataDir: dir, Listen: address})
	w.put(t, tierA, `{"order":2}`)
	f.expect(tierA)

	server.Close()
	serve(t, backend.Embedded{Listen: address})
	w.put(t, tierA, `{"order":3}`)
	f.expect(tierA, "deleted "+tierB)
	if _, err := w.etcd.Delete(t.Context(), tierA); err != nil {
		t.Fatal(err)
	}
	f.expect("deleted " + tierA)
}

// A watch that is away while etcd is restored to an older state, and goes on from there past the
// revision that the watch had, delivers what is different: the cluster's id and its revision alone
// do not show it.
func TestWatchOfARestoredEtcd(t *testing.T) {
	t.Parallel()
	dir, older := t.TempDir(), filepath.Join(t.TempDir(), "older")
	server := serve(t, backend.Embedded{DataDir: dir})
	address := server.Endpoint()
	w := connect(t, address)
	w.put(t, tierA, "{}")
	server.Close()
	if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	server = serve(t, backend.Embedded{DataDir: dir, Listen: address})
	f := follow(t, w, calico.TierKey{})
	w.put(t, tierB, "{}")
	f.expect(tierB)

	server.Close()
	offline := serve(t, backend.Embedded{DataDir: older})
	ahead := connect(t, offline.Endpoint())
	for range 20 {
		ahead.put(t, tierA, `{"order":2}`)
	}
	offline.Close()
	serve(t, backend.Embedded{DataDir: older, Listen: address})
	f.expect(tierA, "deleted "+tierB)
	w.put(t, tierB, "{}")
	f.expect(tierB)
}

// Connections that break again and again lose and repeat nothing.
func TestWatchOverABadConnection(t *testing.T) {
	t.Parallel()
	direct := start(t)
	proxy := newProxy(t, direct.endpoint)
	w := connect(t, proxy.address())
	f := follow(t, w, calico.TierKey{})
	const n = 60
	var writer sync.WaitGroup
	defer writer.Wait() // the last event may arrive before the answer to the write that caused it
	writer.Go(func() {
		for i := range n {
			if _, err := direct.Create(t.Context(), calico.TierKey{Tier: fmt.Sprint(i)}, &calico.Tier{}); err != nil {
				t.Error(err)
			}
			if i%20 == 10 {
				proxy.cut()
			}
		}
	})
	for i := range n {
		f.expect(fmt.Sprintf("/calico/v1/policy/tier/%d/metadata", i))
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	w := start(t)
	s := must(w.List(t.Context(), calico.TierKey{}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for e, err := range w.Watch(ctx, s) {
		t.Errorf("a cancelled watch delivers %v, %v", e, err)
	}
	w.put(t, tierA, "{}")
	w.put(t, tierB, "{}")
	n := 0
	for range w.Watch(t.Context(), s) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d events, want the first", n)
	}
	w.Client.Close()
	var last error
	for _, err := range w.Watch(t.Context(), s) {
		last = err
	}
	if !errors.Is(last, client.ErrClosed) {
		t.Errorf("the watch of a closed client ends with %v", last)
	}
	if _, err := w.List(t.Context(), web); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a list of a closed client: %v", err)
	}
}

// Who may not read is told so.
func TestWatchDenied(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	s := must(w.List(ctx, calico.TierKey{}))(t)
	for _, err := range []error{
		second(w.etcd.UserAdd(ctx, "root", "root")), second(w.etcd.UserGrantRole(ctx, "root", "root")),
		second(w.etcd.UserAdd(ctx, "guest", "guest")), second(w.etcd.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	guest := must(client.New(client.Options{Endpoints: []string{w.endpoint}, User: "guest", Password: "guest", DialTimeout: time.Minute}))(t)
	defer guest.Close()
	if _, err := guest.List(ctx, calico.TierKey{}); !errors.Is(err, client.ErrDenied) {
		t.Errorf("list: %v", err)
	}
	var last error
	for _, err := range guest.Watch(ctx, s) {
		last = err
	}
	if !errors.Is(last, client.ErrDenied) {
		t.Errorf("watch: %v", last)
	}
	if _, err := client.New(client.Options{Endpoints: []string{w.endpoint}, User: "guest", Password: "wrong", DialTimeout: time.Minute}); !errors.Is(err, client.ErrDenied) {
		t.Errorf("wrong password: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// proxy passes connections on, and cuts all of them when told to.
type proxy struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	open     []net.Conn
}

func newProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target}
	go p.accept()
	t.Cleanup(func() {
		l.Close()
		p.cut()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, in, out)
		p.mu.Unlock()
		go pipe(in, out)
		go pipe(out, in)
	}
}

func pipe(from, to net.Conn) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		c.Close()
	}
	p.open = nil
}
