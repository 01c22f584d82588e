package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"heddle/internal/store"
	"heddle/internal/store/etcd"
	"heddle/internal/task"
)

// The embedded server's limits on a transaction, and those an external cluster should have.
const (
	MaxTxnOps       = 131072
	MaxRequestBytes = 64 << 20
)

// listPage is the number of keys in one request of a List.
const listPage = 10_000

// Etcd is a Store in etcd: a cluster, or the server embedded in this process.
type Etcd struct {
	*etcd.Watcher
	client    *clientv3.Client
	as        func(context.Context) context.Context // adds the caller's identity
	log       *slog.Logger
	member    *member                   // nil for a cluster
	embedded  bool                      // the store is embedded in this process or another one
	authority atomic.Pointer[Authority] // nil when hosts' certificates are signed elsewhere
	ledger    *ledger
	quota     int64        // of a cluster, see Cluster; 0: not given
	diagnose  func() error // nil for an embedded store
	requires  atomic.Bool  // see RequireSchema
	full      atomic.Bool  // as the space keeper has seen the cluster
	refused   task.Notice  // holds a token after a commit was refused for lack of space

	// rights keeps a host from joining again while its rights are being taken away.
	rights sync.Mutex

	closing sync.Once
	closed  error
}

// newEtcd returns a store over a client. as, if not nil, adds the caller's identity to contexts.
func newEtcd(client *clientv3.Client, as func(context.Context) context.Context, log *slog.Logger) *Etcd {
	etcd.RetryUnlessAuthChanged(client)
	if as == nil {
		as = func(ctx context.Context) context.Context { return ctx }
	}
	return &Etcd{
		Watcher: etcd.NewWatcher(client, as),
		client:  client,
		log:     log,
		as:      as,
		ledger:  newLedger(hostLimits(quotaBytes)),
		refused: task.NewNotice(),
	}
}

// Get implements [store.Store].
func (s *Etcd) Get(ctx context.Context, key string) (store.KV, error) {
	return s.getOne(ctx, key, key)
}

// GetAt implements [store.Store].
func (s *Etcd) GetAt(ctx context.Context, key string, rev int64) (store.KV, error) {
	return s.getOne(ctx, fmt.Sprintf("%s at revision %d", key, rev), key, clientv3.WithRev(rev))
}

// getOne gets a key, which errors call name.
func (s *Etcd) getOne(ctx context.Context, name, key string, opts ...clientv3.OpOption) (store.KV, error) {
	r, err := s.get(ctx, key, opts...)
	if err != nil {
		return store.KV{}, explain(ctx, "get "+name, err)
	}
	if len(r.Kvs) == 0 {
		return store.KV{}, fmt.Errorf("%s: %w", name, store.ErrNotFound)
	}
	return etcd.FromProto(r.Kvs[0]), nil
}

func (s *Etcd) get(ctx context.Context, key string, opts ...clientv3.OpOption) (r *clientv3.GetResponse, err error) {
	err = etcd.UnlessAuthChanged(func() (err error) {
		r, err = s.client.Get(s.as(ctx), key, opts...)
		return err
	})
	return r, err
}

// List implements [store.Store].
func (s *Etcd) List(ctx context.Context, prefix string) ([]store.KV, int64, error) {
	for {
		kvs, rev, err := s.list(ctx, prefix)
		// Compacted between two pages: start over.
		if errors.Is(err, store.ErrCompacted) && ctx.Err() == nil {
			continue
		}
		return kvs, rev, err
	}
}

// list reads page after page at the revision of the first one.
func (s *Etcd) list(ctx context.Context, prefix string) ([]store.KV, int64, error) {
	start, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	if prefix == "" {
		start, end = "\x00", "\x00"
	}
	var kvs []store.KV
	var rev int64
	for {
		r, err := s.get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(listPage), clientv3.WithRev(rev))
		if err != nil {
			return nil, 0, explain(ctx, "list "+prefix, err)
		}
		if rev == 0 {
			rev = r.Header.Revision
			kvs = make([]store.KV, 0, len(r.Kvs))
		}
		for _, kv := range r.Kvs {
			kvs = append(kvs, etcd.FromProto(kv))
		}
		if !r.More {
			return kvs, rev, nil
		}
		start = kvs[len(kvs)-1].Key + "\x00"
	}
}

// readableKey can be read by every role. Any answer has the store's revision and the cluster's id.
const readableKey = "/calico/v1/Ready"

// RequireSchema makes a store without [store.SchemaKey] unavailable from now on, with
// [store.ErrReplaced], so that a wiped etcd is neither followed nor written. Call it once the key
// was seen.
func (s *Etcd) RequireSchema() { s.requires.Store(true) }

// errReplaced returns the error of a store without the required schema version.
func errReplaced(what string) error {
	return fmt.Errorf("%s: %w: %w: it has no %s: restore a backup of it", what, store.ErrUnavailable, store.ErrReplaced, store.SchemaKey)
}

// probe reads the store's revision and identity, or returns ErrReplaced.
func (s *Etcd) probe(ctx context.Context, what string) (*clientv3.GetResponse, error) {
	key, required := readableKey, s.requires.Load()
	if required {
		key = store.SchemaKey
	}
	r, err := s.get(ctx, key, clientv3.WithCountOnly())
	switch {
	case err != nil:
		return nil, explain(ctx, what, err)
	case required && r.Count == 0:
		return nil, errReplaced(what)
	}
	return r, nil
}

// Diagnose returns why the members of a cluster cannot be reached, which other errors hide behind a
// timeout, or nil.
func (s *Etcd) Diagnose() error {
	if s.diagnose == nil {
		return nil
	}
	return s.diagnose()
}

// SetEndpoints changes the addresses of the cluster's members, host:port or URLs.
func (s *Etcd) SetEndpoints(endpoints []string) { s.client.SetEndpoints(endpoints...) }

// Revision implements [store.Store].
func (s *Etcd) Revision(ctx context.Context) (int64, error) {
	r, err := s.probe(ctx, "revision")
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}

// Identity implements [store.Store].
func (s *Etcd) Identity(ctx context.Context) (store.Identity, error) {
	r, err := s.probe(ctx, "identity")
	if err != nil {
		return store.Identity{}, err
	}
	return store.Identity{Cluster: r.Header.ClusterId, Term: r.Header.RaftTerm, Revision: r.Header.Revision}, nil
}

// Commit implements [store.Store].
func (s *Etcd) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	if err := s.checkSpace(ctx, ops); err != nil {
		return 0, err
	}
	cmps := make([]clientv3.Cmp, len(conds))
	for i, c := range conds {
		cmps[i] = compare(c)
	}
	then := make([]clientv3.Op, len(ops))
	for i, o := range ops {
		then[i] = operation(o)
	}
	var otherwise []clientv3.Op
	if s.requires.Load() {
		// In the same transaction, since the store may have been replaced a moment ago.
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(store.SchemaKey), ">", 0))
		otherwise = append(otherwise, clientv3.OpGet(store.SchemaKey, clientv3.WithCountOnly()))
	}
	if !connected(ctx, s.client.ActiveConnection()) {
		return 0, fmt.Errorf("commit: %w: no connection to etcd", store.ErrUnavailable)
	}
	var r *clientv3.TxnResponse
	err := etcd.UnlessAuthChanged(func() (err error) {
		r, err = s.client.Txn(s.as(ctx)).If(cmps...).Then(then...).Else(otherwise...).Commit()
		return err
	})
	if err != nil {
		refused := etcd.IsRefusal(err)
		if err = explain(ctx, fmt.Sprintf("commit of %d conditions and %d operations", len(conds), len(ops)), err); errors.Is(err, store.ErrUnavailable) && !refused {
			err = fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
		}
		return 0, err
	}
	if !r.Succeeded && len(otherwise) > 0 && r.Responses[0].GetResponseRange().Count == 0 {
		return 0, errReplaced("commit")
	}
	if !r.Succeeded {
		return r.Header.Revision, store.ErrConflict
	}
	return r.Header.Revision, nil
}

// connected waits for a connection until ctx ends and reports whether there is one. The client
// would wait too, but its timeout would not show whether a transaction was sent. An in-process
// client needs no connection.
func connected(ctx context.Context, conn *grpc.ClientConn) bool {
	if conn == nil {
		return true
	}
	for {
		state := conn.GetState()
		if state == connectivity.Ready || state == connectivity.Shutdown { // a closed client returns an error itself
			return true
		}
		conn.Connect() // an idle one would stay so
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

func compare(c store.Cond) clientv3.Cmp {
	switch {
	case c.Prefix != "":
		return clientv3.Compare(clientv3.ModRevision(c.Prefix).WithPrefix(), "<", c.Mod+1)
	case c.Create > 0:
		return clientv3.Compare(clientv3.CreateRevision(c.Key), "=", c.Create)
	default:
		return clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Mod)
	}
}

func operation(o store.Op) clientv3.Op {
	switch {
	case o.DeletePrefix:
		return clientv3.OpDelete(o.Key, clientv3.WithPrefix())
	case o.Delete:
		return clientv3.OpDelete(o.Key)
	default:
		return clientv3.OpPut(o.Key, string(o.Value), clientv3.WithLease(clientv3.LeaseID(o.Lease)))
	}
}

// Grant implements [store.Store].
func (s *Etcd) Grant(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	if s.member != nil {
		if err := s.member.checkDisk(ctx); err != nil {
			return 0, fmt.Errorf("grant lease: %w", err)
		}
	}
	if s.requires.Load() {
		if _, err := s.probe(ctx, "grant lease"); err != nil {
			return 0, err
		}
	}
	seconds := max(1, int64(math.Ceil(ttl.Seconds())))
	r, err := s.client.Grant(s.as(ctx), seconds)
	if err != nil {
		return 0, explain(ctx, "grant lease", err)
	}
	return store.Lease(r.ID), nil
}

// KeepAlive implements [store.Store].
func (s *Etcd) KeepAlive(ctx context.Context, l store.Lease) error {
	wait := time.Second
	for {
		r, err := s.client.KeepAliveOnce(s.as(ctx), clientv3.LeaseID(l))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return store.ErrLeaseGone
		case err != nil:
			wait = time.Second
		default:
			wait = time.Duration(r.TTL) * time.Second / 3
		}
		if !task.Pause(ctx, wait) {
			return nil
		}
	}
}

// TimeLeft returns the time until the lease ends unless it is renewed, or ErrLeaseGone.
func (s *Etcd) TimeLeft(ctx context.Context, l store.Lease) (time.Duration, error) {
	r, err := s.client.TimeToLive(s.as(ctx), clientv3.LeaseID(l))
	if err != nil {
		return 0, explain(ctx, "lease", err)
	}
	if r.TTL <= 0 {
		return 0, store.ErrLeaseGone
	}
	return time.Duration(r.TTL) * time.Second, nil
}

// Revoke implements [store.Store].
func (s *Etcd) Revoke(ctx context.Context, l store.Lease) error {
	_, err := s.client.Revoke(s.as(ctx), clientv3.LeaseID(l))
	return explain(ctx, "revoke lease", err)
}

// Compact drops the history before revision rev. An embedded server does so by itself.
func (s *Etcd) Compact(ctx context.Context, rev int64) error {
	_, err := s.client.Compact(s.as(ctx), rev)
	return explain(ctx, "compact", err)
}

// Close ends all watches, and the server if it is embedded.
func (s *Etcd) Close() error {
	s.closing.Do(func() { s.closed = s.close() })
	return s.closed
}

func (s *Etcd) close() error {
	err := s.client.Close()
	if s.member != nil {
		s.member.close()
	}
	if errors.Is(err, context.Canceled) {
		return nil // from an in-process client
	}
	return err
}

// explain turns an error of etcd's client into one of package store, with what can be done about
// it.
func explain(ctx context.Context, what string, err error) error {
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%s: %w: start every etcd member with --max-txn-ops=%d", what, store.ErrTooLarge, 2*store.LeastTxnOps)
	case etcd.Kind(err) == store.ErrTooLarge:
		return fmt.Errorf("%s: %w: start every etcd member with --max-request-bytes=%d (%v)", what, store.ErrTooLarge, MaxRequestBytes, err)
	case etcd.Kind(err) == store.ErrFull:
		return fmt.Errorf("%s: %w: %w: the store or the disk of its server is full: heddle store status and reclaim, or the server's log, say more", what, store.ErrUnavailable, store.ErrFull)
	}
	return etcd.Explain(ctx, what, err)
}

// set writes a key unless it already has the value.
func (s *Etcd) set(ctx context.Context, key string, value []byte) error {
	kv, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		err = nil // as if it were empty
	}
	if err != nil || bytes.Equal(kv.Value, value) {
		return err
	}
	_, err = s.Commit(ctx, nil, []store.Op{{Key: key, Value: value}})
	return err
}
