package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// world is an etcd with our client, and etcd's own to write what others would.
type world struct {
	*client.Client
	endpoint string
	etcd     *clientv3.Client
}

// start runs an etcd that forgets with the machine.
func start(t testing.TB) world {
	t.Helper()
	return connect(t, serve(t, backend.Embedded{}).Endpoint())
}

func serve(t testing.TB, o backend.Embedded) *backend.Etcd {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	if o.Listen == "" && o.Agents == "" {
		o.Listen = "127.0.0.1:0"
	}
	o.Tick, o.NoFsync = 10*time.Millisecond, true
	s, err := backend.Open(t.Context(), backend.Options{Embedded: &o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func connect(t testing.TB, endpoint string) world {
	t.Helper()
	c, err := client.New(client.Options{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	return world{c, endpoint, etcd}
}

// put writes as others do.
func (w world) put(t testing.TB, path, value string) {
	t.Helper()
	if _, err := w.etcd.Put(t.Context(), path, value); err != nil {
		t.Fatal(err)
	}
}

// raw returns the value at a path of etcd, or "".
func (w world) raw(t testing.TB, path string) string {
	t.Helper()
	r, err := w.etcd.Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

var (
	web  = calico.PolicyKey{Tier: "default", Policy: "web"}
	pool = calico.PoolKey{CIDR: netip.MustParsePrefix("10.0.0.0/16")}
)

const poolPath = "/calico/v1/ipam/v4/pool/10.0.0.0-16"

func aPool() *calico.Pool { return &calico.Pool{CIDR: pool.CIDR, IPAM: true} }

func TestCreateGetUpdateDelete(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	if _, err := w.Get(ctx, web); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("get of what is not there: %v", err)
	}
	first := must(w.Create(ctx, web, &calico.Policy{Selector: `role == "web"`}))(t)
	var fault *client.KeyError
	if _, err := w.Create(ctx, web, &calico.Policy{Selector: "all()"}); !errors.Is(err, client.ErrExists) || !errors.As(err, &fault) || fault.Key != web || fault.Have != first {
		t.Errorf("second create: %v", err)
	}
	policy, rev, err := client.Get[*calico.Policy](ctx, w.Client, web)
	if err != nil || rev != first || policy.Selector != `role == "web"` {
		t.Errorf("get: %+v at %d, %v; want revision %d", policy, rev, err, first)
	}
	if _, _, err := client.Get[*calico.Pool](ctx, w.Client, web); err == nil {
		t.Error("get of a policy as a pool succeeds")
	}
	second := must(w.Update(ctx, web, &calico.Policy{Selector: "all()"}, first))(t)
	if _, err := w.Update(ctx, web, policy, first); !errors.Is(err, client.ErrConflict) || !errors.As(err, &fault) || fault.Want != first || fault.Have != second {
		t.Errorf("update of an old revision: %v", err)
	}
	must(w.Update(ctx, web, policy, 0))(t)
	if err := w.Delete(ctx, web, second); !errors.Is(err, client.ErrConflict) {
		t.Errorf("delete of an old revision: %v", err)
	}
	if err := w.Delete(ctx, web, 0); err != nil {
		t.Error("delete:", err)
	}
	if err := w.Delete(ctx, web, 0); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("second delete: %v", err)
	}
	if _, err := w.Update(ctx, web, policy, 0); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("update of what is not there: %v", err)
	}
	must(w.Apply(ctx, web, policy))(t)
	must(w.Apply(ctx, web, policy))(t)
}

func TestInvalidObjectsAreRefused(t *testing.T) {
	t.Parallel()
	w := start(t)
	for name, op := range map[string]client.Op{
		"wrong type":   client.OpCreate(web, &calico.Tier{}),
		"bad selector": client.OpCreate(web, &calico.Policy{Selector: "a ="}),
		"no name":      client.OpCreate(calico.PolicyKey{Tier: "default"}, &calico.Policy{Selector: "all()"}),
		"no object":    client.OpApply(web, nil),
	} {
		if _, err := w.Commit(t.Context(), op); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.Commit(t.Context()); err == nil {
		t.Error("a commit of nothing succeeds")
	}
	if _, err := w.Commit(t.Context(), client.OpApply(pool, aPool()), client.OpDelete(pool, 0)); err == nil {
		t.Error("two operations for one key succeed")
	}
	w.put(t, poolPath, "{")
	e, err := w.Get(t.Context(), pool)
	if !errors.Is(err, client.ErrInvalid) || string(e.Raw) != "{" || e.Revision == 0 {
		t.Errorf("get of what cannot be decoded: %+v, %v", e, err)
	}
	must(w.Update(t.Context(), pool, aPool(), e.Revision))(t)
}

func TestUnknownMembersSurvive(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	w.put(t, poolPath, `{"cidr":"10.0.0.0/16","colour":"blue"}`)
	given := &calico.Pool{CIDR: pool.CIDR, IPAM: true, Masquerade: true}
	must(w.Apply(ctx, pool, given))(t)
	read := must(w.Get(ctx, pool))(t).Object.(*calico.Pool)
	if string(read.Unknown["colour"]) != `"blue"` || !read.Masquerade {
		t.Errorf("apply: %+v", read)
	}
	if given.Unknown != nil {
		t.Error("the caller's object was changed")
	}
	must(w.Update(ctx, pool, given, 0))(t)
	if read = must(w.Get(ctx, pool))(t).Object.(*calico.Pool); read.Unknown == nil {
		t.Errorf("update: %+v", read)
	}
	given.Unknown = calico.Unknown{}
	must(w.Update(ctx, pool, given, 0))(t)
	if read = must(w.Get(ctx, pool))(t).Object.(*calico.Pool); read.Unknown != nil {
		t.Errorf("update that says there are none: %+v", read)
	}
}

func TestSelectorsOfLaterVersions(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	later := &calico.Policy{Selector: `role starts with "web"`}
	if _, err := w.Create(ctx, web, later); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("create: %v", err)
	}
	c := must(client.New(client.Options{Endpoints: []string{w.endpoint}, Codec: []calico.Option{calico.SelectorExtensions()}}))(t)
	defer c.Close()
	must(c.Create(ctx, web, later))(t)
	must(c.Get(ctx, web))(t)
	if _, err := w.Get(ctx, web); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("get: %v", err)
	}
}

// Many who read, change and write one object at once lose nothing.
func TestConcurrentUpdates(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	key := calico.HandleKey{Handle: "h"}
	block := netip.MustParsePrefix("10.0.0.0/26")
	must(w.Create(ctx, key, &calico.Handle{ID: "h", Block: map[netip.Prefix]int{block: 1}}))(t)
	const writers, each = 4, 10
	done := make(chan error, writers)
	for range writers {
		go func() {
			for range each {
				for {
					h, rev, err := client.Get[*calico.Handle](ctx, w.Client, key)
					if err == nil {
						h.Block[block]++
						_, err = w.Update(ctx, key, h, rev)
					}
					if err == nil {
						break
					}
					if !errors.Is(err, client.ErrConflict) {
						done <- err
						return
					}
				}
			}
			done <- nil
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	h, _, err := client.Get[*calico.Handle](ctx, w.Client, key)
	if err != nil || h.Block[block] != 1+writers*each {
		t.Errorf("%+v, %v; want %d", h, err, 1+writers*each)
	}
}

func TestCommitIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	a, b := calico.TierKey{Tier: "a"}, calico.TierKey{Tier: "b"}
	rev := must(w.Create(ctx, a, &calico.Tier{}))(t)
	for name, c := range map[string]struct {
		op   client.Op
		want error
	}{
		"create": {client.OpCreate(a, &calico.Tier{}), client.ErrExists},
		"update": {client.OpUpdate(a, &calico.Tier{}, rev+100), client.ErrConflict},
		"delete": {client.OpDelete(a, rev+100), client.ErrConflict},
		"check":  {client.OpCheck(a, rev+100), client.ErrConflict},
		"absent": {client.OpCheck(a, 0), client.ErrExists},
		"there":  {client.OpCheck(calico.TierKey{Tier: "c"}, 5), client.ErrNotFound},
		"none":   {client.OpNone(calico.TierKey{}), client.ErrExists},
	} {
		if _, err := w.Commit(ctx, client.OpCreate(b, &calico.Tier{}), c.op); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if _, err := w.Get(ctx, b); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s: half of the commit is there: %v", name, err)
		}
	}
	_, err := w.Commit(ctx, client.OpCreate(a, &calico.Tier{}), client.OpDelete(b, 0))
	if !errors.Is(err, client.ErrExists) || !errors.Is(err, client.ErrNotFound) {
		t.Errorf("two conditions that do not hold: %v", err)
	}
	at := must(w.Commit(ctx, client.OpCheck(a, rev), client.OpCreate(b, &calico.Tier{}), client.OpNone(calico.BlockKey{}), client.OpClear(calico.ReadyKey{})))(t)
	s := must(w.Read(ctx, a, b, calico.TierKey{Tier: "c"}))(t)
	if len(s.Entries) != 2 || s.Entries[1].Created != at {
		t.Errorf("read: %+v", s.Entries)
	}
	revisions, now, err := w.Revisions(ctx, a, b, calico.TierKey{Tier: "c"})
	if err != nil || now != at || len(revisions) != 2 || revisions[a] != rev || revisions[b] != at {
		t.Errorf("revisions: %v at %d, %v", revisions, now, err)
	}
}

func TestTooLargeForEtcdAsItComes(t *testing.T) {
	t.Parallel()
	w := connect(t, storetest.PlainEtcd(t))
	var ops []client.Op
	for i := range 128 {
		ops = append(ops, client.OpCreate(calico.TierKey{Tier: fmt.Sprint(i)}, &calico.Tier{}))
	}
	must(w.Commit(t.Context(), ops...))(t)
	ops = append(ops, client.OpCreate(calico.TierKey{Tier: "x"}, &calico.Tier{}))
	for i := range ops {
		ops[i] = client.OpApply(calico.TierKey{Tier: fmt.Sprint(i)}, &calico.Tier{})
	}
	if _, err := w.Commit(t.Context(), ops...); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("%d operations: %v", len(ops), err)
	}
	var keys []calico.Key
	for i := range 500 {
		keys = append(keys, calico.TierKey{Tier: fmt.Sprint(i)})
	}
	if s := must(w.Read(t.Context(), keys...))(t); len(s.Entries) != 128 {
		t.Errorf("read in pages: %d, want 128", len(s.Entries))
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	for path, value := range map[string]string{
		"/calico/v1/host/h1/workload/o/w/endpoint/e":  `{"state":"active","name":"cali1"}`,
		"/calico/v1/host/h1/workload/o/w/endpoint/e2": `{"state":"active","name":"cali2"}`,
		"/calico/v1/host/h1/workload/o/v/endpoint/e":  `{"state":"broken"}`,
		"/calico/v1/host/h10/workload/o/w/endpoint/e": `{"state":"active","name":"cali3"}`,
		"/calico/v1/host/h1/endpoint/e":               `{"name":"eth0"}`,
		"/calico/v1/host/h1/config/marker":            "x",
		"/calico/v1/host/h1/nonsense":                 "x",
		"/calico/host/h1/workload/o/w/endpoint/e":     `{"state":"active","name":"cali4","profile_id":"p"}`,
		"/calico/v1/ipam/v4/pool/10.0.0.0-16":         `{"cidr":"10.0.0.0/16"}`,
		"/calico/v1/ipam/v6/pool/fd00::-64":           `{"cidr":"fd00::/64"}`,
		"/calico/v1/ipam/v4/pool/10.0.0.0":            `{}`,
	} {
		w.put(t, path, value)
	}
	paths := func(filters ...calico.Key) (out []string) {
		s, err := w.List(ctx, filters...)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Entries {
			text := e.Path
			if e.Err != nil {
				text = "invalid " + text
			}
			out = append(out, text)
		}
		keys, rev, err := w.Keys(ctx, filters...)
		if err != nil || rev < s.Revision || len(keys) != len(s.Entries) {
			t.Errorf("%v: %d keys at %d, %v; want %d", filters, len(keys), rev, err, len(s.Entries))
		}
		return out
	}
	const h1 = "/calico/v1/host/h1/workload/o/"
	for _, c := range []struct {
		filters []calico.Key
		want    []string
	}{
		{[]calico.Key{calico.WorkloadEndpointKey{Host: "h1"}}, []string{"invalid " + h1 + "v/endpoint/e", h1 + "w/endpoint/e", h1 + "w/endpoint/e2"}},
		{[]calico.Key{calico.WorkloadEndpointKey{Host: "h1", Orchestrator: "o", Workload: "w", Endpoint: "e"}}, []string{h1 + "w/endpoint/e"}},
		{[]calico.Key{calico.WorkloadEndpointKey{Endpoint: "e2"}}, []string{h1 + "w/endpoint/e2"}},
		{[]calico.Key{calico.WorkloadEndpointKey{Legacy: true}}, []string{"/calico/host/h1/workload/o/w/endpoint/e"}},
		{[]calico.Key{calico.HostEndpointKey{}, calico.PoolKey{}}, []string{"/calico/v1/host/h1/endpoint/e", "/calico/v1/ipam/v4/pool/10.0.0.0-16", "/calico/v1/ipam/v6/pool/fd00::-64"}},
		{[]calico.Key{calico.PolicyKey{}}, nil},
	} {
		if diff := cmp.Diff(c.want, paths(c.filters...)); diff != "" {
			t.Errorf("%+v: %s", c.filters, diff)
		}
	}
	if _, err := w.List(ctx); err == nil {
		t.Error("a list of nothing succeeds")
	}
	n := 0
	for _, pool := range client.All[*calico.Pool](must(w.List(ctx, calico.PoolKey{}, calico.HostEndpointKey{}))(t)) {
		if pool.CIDR.IsValid() {
			n++
		}
	}
	if n != 2 {
		t.Errorf("All gives %d pools, want 2", n)
	}
}

// A list of many keys is read in pages, all at one revision although others write meanwhile.
func TestListInPages(t *testing.T) {
	t.Parallel()
	server := serve(t, backend.Embedded{})
	w, ctx := connect(t, server.Endpoint()), t.Context()
	const n = 10_500 // more than a page
	for from := 0; from < n; from += 500 {
		var ops []store.Op
		for i := from; i < from+500; i++ {
			ops = append(ops, store.Op{Key: fmt.Sprintf("/calico/v1/config/n%05d", i), Value: []byte("x")}, store.Op{Key: fmt.Sprintf("/calico/v1/host/h/config/n%05d", i), Value: []byte("x")})
		}
		if _, err := server.Commit(ctx, nil, ops); err != nil {
			t.Fatal(err)
		}
	}
	s := must(w.List(ctx, calico.GlobalConfigKey{}, calico.HostConfigKey{Host: "h"}, calico.PoolKey{}))(t)
	seen := map[calico.Key]bool{}
	for _, e := range s.Entries {
		seen[e.Key] = true
	}
	if len(s.Entries) != 2*n || len(seen) != 2*n {
		t.Errorf("%d entries of %d keys, want %d", len(s.Entries), len(seen), 2*n)
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	key := calico.AgentStatusKey{Host: "h"}
	lease := must(w.Grant(ctx, time.Minute))(t)
	must(w.Commit(ctx, client.OpApply(key, &calico.AgentStatus{Time: "2026-01-01T00:00:00Z"}).Under(lease)))(t)
	if e := must(w.Get(ctx, key))(t); e.Lease != lease {
		t.Errorf("it is under lease %d, want %d", e.Lease, lease)
	}
	keeping, stop := context.WithCancel(ctx)
	kept := make(chan error, 1)
	go func() { kept <- w.KeepAlive(keeping, lease) }()
	stop()
	if err := <-kept; err != nil {
		t.Errorf("keep alive until told to stop: %v", err)
	}
	if err := w.Revoke(ctx, lease); err != nil {
		t.Error(err)
	}
	if err := w.Revoke(ctx, lease); err != nil {
		t.Error("second revoke:", err)
	}
	if err := w.KeepAlive(ctx, lease); !errors.Is(err, client.ErrLeaseGone) {
		t.Errorf("keep alive of what is gone: %v", err)
	}
	if _, err := w.Commit(ctx, client.OpApply(key, &calico.AgentStatus{Time: "2026-01-01T00:00:00Z"}).Under(lease)); !errors.Is(err, client.ErrLeaseGone) {
		t.Errorf("a put under what is gone: %v", err)
	}
	if _, err := w.Get(ctx, key); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("after the lease: %v", err)
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	c := must(client.New(client.Options{Endpoints: []string{"127.0.0.1:1"}, RequestTimeout: 100 * time.Millisecond}))(t)
	defer c.Close()
	if _, err := c.Get(t.Context(), web); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused") {
		t.Errorf("get: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Apply(ctx, web, &calico.Policy{Selector: "all()"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// The sockets of a running embedded store, without and with TLS, and what is said of certificates
// that do not fit.
func TestSocketsAndTLS(t *testing.T) {
	t.Parallel()
	for _, o := range []backend.Embedded{{}, {Agents: "127.0.0.1:0"}} {
		o.DataDir = t.TempDir()
		s := serve(t, o)
		how := must(backend.Running(o.DataDir))(t)
		options := client.Options{Endpoints: how.Endpoints, CAFile: how.CAFile, CertFile: how.CertFile, KeyFile: how.KeyFile}
		c := must(client.New(options))(t)
		defer c.Close()
		must(c.Create(t.Context(), web, &calico.Policy{Selector: "all()"}))(t)
		if o.Agents == "" {
			continue
		}
		stranger := must(client.New(client.Options{Endpoints: []string{"https://" + s.Endpoint()}, RequestTimeout: 100 * time.Millisecond}))(t)
		defer stranger.Close()
		if _, err := stranger.Get(t.Context(), web); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "unknown authority") {
			t.Errorf("without the CA: %v", err)
		}
	}
	for name, o := range map[string]client.Options{
		"no CA file":      {CAFile: "/no/such/file"},
		"no certificate":  {CertFile: "/no/such/file", KeyFile: "/no/such/file"},
		"not a CA in PEM": {CAFile: "client_test.go"},
	} {
		if _, err := client.New(o); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}
