package store

import (
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

	"heddle/internal/store/etcd"
	"heddle/internal/task"
)

// What the embedded server allows in one transaction, and what an external cluster should: see [LeastTxnOps].
const (
	MaxTxnOps       = 131072
	MaxRequestBytes = 64 << 20
)

// listPage is how many keys one request of a List asks for.
const listPage = 10_000

// Etcd is a Store in etcd: a cluster, or the server embedded in this process.
type Etcd struct {
	*etcd.Watcher
	client    *clientv3.Client
	as        func(context.Context) context.Context // says who calls
	log       *slog.Logger
	member    *member    // nil for a cluster
	embedded  bool       // the store is embedded in this process or another one
	authority *Authority // nil when hosts' certificates are signed elsewhere
	ledger    *ledger
	quota     int64       // of a cluster, see Cluster; 0: not given
	requires  atomic.Bool // see RequireSchema
	full      atomic.Bool // as the space keeper has seen the cluster
	refused   task.Notice // holds a token after a commit was refused for lack of space

	// rights keeps a host that joins again from one whose rights are still being taken away.
	rights sync.Mutex

	closing sync.Once
	closed  error
}

// newEtcd returns a store over a client. as adds the caller's identity to contexts; nil: the client has its own.
func newEtcd(client *clientv3.Client, as func(context.Context) context.Context, log *slog.Logger) *Etcd {
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

// Get implements [Store].
func (s *Etcd) Get(ctx context.Context, key string) (KV, error) {
	r, err := s.get(ctx, key)
	if err != nil {
		return KV{}, explain(ctx, "get "+key, err)
	}
	if len(r.Kvs) == 0 {
		return KV{}, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	return etcd.FromProto(r.Kvs[0]), nil
}

// GetAt implements [Store].
func (s *Etcd) GetAt(ctx context.Context, key string, rev int64) (KV, error) {
	r, err := s.get(ctx, key, clientv3.WithRev(rev))
	if err != nil {
		return KV{}, explain(ctx, fmt.Sprintf("get %s at revision %d", key, rev), err)
	}
	if len(r.Kvs) == 0 {
		return KV{}, fmt.Errorf("%s at revision %d: %w", key, rev, ErrNotFound)
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

// List implements [Store].
func (s *Etcd) List(ctx context.Context, prefix string) ([]KV, int64, error) {
	for {
		kvs, rev, err := s.list(ctx, prefix)
		// Compacted between two pages: the pages read so far are too old to be completed.
		if errors.Is(err, ErrCompacted) && ctx.Err() == nil {
			continue
		}
		return kvs, rev, err
	}
}

// list reads page after page at the revision of the first one.
func (s *Etcd) list(ctx context.Context, prefix string) ([]KV, int64, error) {
	start, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	if prefix == "" {
		start, end = "\x00", "\x00"
	}
	var kvs []KV
	var rev int64
	for {
		r, err := s.get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(listPage), clientv3.WithRev(rev))
		if err != nil {
			return nil, 0, explain(ctx, "list "+prefix, err)
		}
		if rev == 0 {
			rev = r.Header.Revision
			kvs = make([]KV, 0, len(r.Kvs))
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

// everyonesKey is one that all roles may read: those of servers and hosts, and those of programs that see nothing but
// Calico's tree. Any answer carries the store's revision and the cluster's id.
const everyonesKey = "/calico/v1/Ready"

// SchemaKey is the key that every store of Heddle has: the version of its schema.
const SchemaKey = "/heddle/schema"

// RequireSchema makes a store without [SchemaKey] unavailable from now on, with [ErrReplaced]: an etcd that was wiped is
// neither followed nor written to, although it answers. Call it once the key was seen.
func (s *Etcd) RequireSchema() { s.requires.Store(true) }

// errReplaced says what to do about a store without the required schema version.
func errReplaced(what string) error {
	return fmt.Errorf("%s: %w: %w: it has no %s: restore a backup of it", what, ErrUnavailable, ErrReplaced, SchemaKey)
}

// probe asks the store for its revision and its identity, and returns ErrReplaced if it lacks the schema version required.
func (s *Etcd) probe(ctx context.Context, what string) (*clientv3.GetResponse, error) {
	key, required := everyonesKey, s.requires.Load()
	if required {
		key = SchemaKey
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

// Revision implements [Store].
func (s *Etcd) Revision(ctx context.Context) (int64, error) {
	r, err := s.probe(ctx, "revision")
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}

// Identity implements [Store].
func (s *Etcd) Identity(ctx context.Context) (Identity, error) {
	r, err := s.probe(ctx, "identity")
	if err != nil {
		return Identity{}, err
	}
	return Identity{Cluster: r.Header.ClusterId, Term: r.Header.RaftTerm, Revision: r.Header.Revision}, nil
}

// Commit implements [Store].
func (s *Etcd) Commit(ctx context.Context, conds []Cond, ops []Op) (int64, error) {
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
		// In the same transaction: the store may have been replaced a moment ago.
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(SchemaKey), ">", 0))
		otherwise = append(otherwise, clientv3.OpGet(SchemaKey, clientv3.WithCountOnly()))
	}
	if !connected(ctx, s.client.ActiveConnection()) {
		return 0, fmt.Errorf("commit: %w: no connection to etcd", ErrUnavailable)
	}
	var r *clientv3.TxnResponse
	err := etcd.UnlessAuthChanged(func() (err error) {
		r, err = s.client.Txn(s.as(ctx)).If(cmps...).Then(then...).Else(otherwise...).Commit()
		return err
	})
	if err != nil {
		refused := etcd.IsRefusal(err)
		if err = explain(ctx, fmt.Sprintf("commit of %d conditions and %d operations", len(conds), len(ops)), err); errors.Is(err, ErrUnavailable) && !refused {
			err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		return 0, err
	}
	if !r.Succeeded && len(otherwise) > 0 && r.Responses[0].GetResponseRange().Count == 0 {
		return 0, errReplaced("commit")
	}
	if !r.Succeeded {
		return r.Header.Revision, ErrConflict
	}
	return r.Header.Revision, nil
}

// connected waits for a connection until ctx ends, and reports whether there is one. A transaction that is handed to the
// client before would wait inside, and its timeout would not tell that it was never sent. An in-process client has no
// connection and needs none.
func connected(ctx context.Context, conn *grpc.ClientConn) bool {
	if conn == nil {
		return true
	}
	for {
		state := conn.GetState()
		if state == connectivity.Ready || state == connectivity.Shutdown { // a closed client says so by itself
			return true
		}
		conn.Connect() // an idle one would stay so
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

func compare(c Cond) clientv3.Cmp {
	switch {
	case c.Prefix != "":
		return clientv3.Compare(clientv3.ModRevision(c.Prefix).WithPrefix(), "<", c.Mod+1)
	case c.Create > 0:
		return clientv3.Compare(clientv3.CreateRevision(c.Key), "=", c.Create)
	default:
		return clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Mod)
	}
}

func operation(o Op) clientv3.Op {
	switch {
	case o.DeletePrefix:
		return clientv3.OpDelete(o.Key, clientv3.WithPrefix())
	case o.Delete:
		return clientv3.OpDelete(o.Key)
	default:
		return clientv3.OpPut(o.Key, string(o.Value), clientv3.WithLease(clientv3.LeaseID(o.Lease)))
	}
}

// Grant implements [Store].
func (s *Etcd) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
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
	return Lease(r.ID), nil
}

// KeepAlive implements [Store].
func (s *Etcd) KeepAlive(ctx context.Context, l Lease) error {
	wait := time.Second
	for {
		r, err := s.client.KeepAliveOnce(s.as(ctx), clientv3.LeaseID(l))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return ErrLeaseGone
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

// TimeLeft is when the lease ends unless it is renewed, or ErrLeaseGone.
func (s *Etcd) TimeLeft(ctx context.Context, l Lease) (time.Duration, error) {
	r, err := s.client.TimeToLive(s.as(ctx), clientv3.LeaseID(l))
	if err != nil {
		return 0, explain(ctx, "lease", err)
	}
	if r.TTL <= 0 {
		return 0, ErrLeaseGone
	}
	return time.Duration(r.TTL) * time.Second, nil
}

// Revoke implements [Store].
func (s *Etcd) Revoke(ctx context.Context, l Lease) error {
	_, err := s.client.Revoke(s.as(ctx), clientv3.LeaseID(l))
	return explain(ctx, "revoke lease", err)
}

// Compact forgets what the keys were before revision rev. An embedded server does so by itself after some minutes.
func (s *Etcd) Compact(ctx context.Context, rev int64) error {
	_, err := s.client.Compact(s.as(ctx), rev)
	return explain(ctx, "compact", err)
}

// Close ends all watches, and the server when it is embedded.
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
		return nil // what an in-process client says
	}
	return err
}

// explain turns an error of etcd into one of package etcd, saying what was done and what can be done about it.
func explain(ctx context.Context, what string, err error) error {
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%s: %w: start every etcd member with --max-txn-ops=%d", what, ErrTooLarge, 2*LeastTxnOps)
	case etcd.Kind(err) == ErrTooLarge:
		return fmt.Errorf("%s: %w: start every etcd member with --max-request-bytes=%d (%v)", what, ErrTooLarge, MaxRequestBytes, err)
	case etcd.Kind(err) == ErrFull:
		return fmt.Errorf("%s: %w: %w: the store or the disk of its server is full: heddle store status and reclaim, or the server's log, say more", what, ErrUnavailable, ErrFull)
	}
	return etcd.Explain(ctx, what, err)
}
