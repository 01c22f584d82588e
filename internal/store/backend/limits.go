package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"heddle/internal/store"
	"heddle/internal/task"
)

// HostLimits bounds what a host may have in the store, or it is cut off: see [Etcd.CutOff].
type HostLimits struct {
	Keys    int   // that exist
	Bytes   int64 // of them, keys and values
	Leases  int   // in the embedded store, where their owners are known
	Written int64 // bytes, within the time for which etcd keeps old revisions
}

// hostLimits derives limits from the store's quota: with 8 GiB, 64 MiB of keys, and 512 MiB written
// in ten minutes.
func hostLimits(quota int64) HostLimits {
	return HostLimits{Keys: 16384, Bytes: quota / 128, Leases: 256, Written: quota / 16}
}

// mostHostRequest bounds one request of a host, in bytes.
const mostHostRequest = 1 << 20

// keyOverhead is the number of bytes that etcd adds to a key.
const keyOverhead = 256

// ledger counts what hosts have, and records which have exceeded a limit.
type ledger struct {
	limits HostLimits
	now    func() time.Time

	mu       sync.Mutex
	accounts map[string]*account // by owner: a host's id, or "name:" and its name in Calico's tree
	over     map[string]string   // owner to reason
	news     task.Notice         // holds a token after over has grown
}

type account struct {
	keys    int
	bytes   int64
	leases  map[store.Lease]bool
	written int64
	since   time.Time // when written was last reset
}

func newLedger(limits HostLimits) *ledger {
	return &ledger{limits: limits, now: time.Now, accounts: map[string]*account{}, over: map[string]string{}, news: task.NewNotice()}
}

// of returns an owner's account; l.mu is held.
func (l *ledger) of(owner string) *account {
	a := l.accounts[owner]
	if a == nil {
		a = &account{leases: map[store.Lease]bool{}, since: l.now()}
		l.accounts[owner] = a
	}
	return a
}

// exceed records that an owner has exceeded a limit; l.mu is held.
func (l *ledger) exceed(owner, format string, args ...any) {
	if _, known := l.over[owner]; known {
		return
	}
	l.over[owner] = fmt.Sprintf(format, args...)
	l.news.Give()
}

// addWritten counts bytes written, and reports whether the owner may write them.
func (l *ledger) addWritten(owner string, bytes int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(owner)
	if now := l.now(); now.Sub(a.since) > keepHistory {
		a.written, a.since = 0, now
	}
	a.written += bytes
	if a.written > l.limits.Written {
		l.exceed(owner, "it wrote more than %d bytes within %s", l.limits.Written, keepHistory)
		return false
	}
	return true
}

// addKeys changes how many keys and bytes an owner has.
func (l *ledger) addKeys(owner string, keys int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(owner)
	a.keys += keys
	a.bytes += bytes
	switch {
	case a.keys > l.limits.Keys:
		l.exceed(owner, "it has more than %d keys", l.limits.Keys)
	case a.bytes > l.limits.Bytes:
		l.exceed(owner, "its keys have more than %d bytes", l.limits.Bytes)
	}
}

// refuse records that an owner has written what no host may.
func (l *ledger) refuse(owner, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exceed(owner, format, args...)
}

// forgetHoldings resets keys and bytes before they are counted again.
func (l *ledger) forgetHoldings() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		a.keys, a.bytes = 0, 0
	}
}

// takeExceeded returns the owners that have exceeded a limit since the last call, and why.
func (l *ledger) takeExceeded() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.over
	l.over = map[string]string{}
	return all
}

// forget ends a host's account and returns its leases.
func (l *ledger) forget(host string) (leases []store.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[host]; a != nil {
		for id := range a.leases {
			leases = append(leases, id)
		}
		a.leases, a.written, a.since = map[store.Lease]bool{}, 0, l.now()
	}
	return leases
}

// mayGrant reports whether a host may have another lease. exist returns all active leases.
func (l *ledger) mayGrant(host string, exist func() (map[store.Lease]bool, error)) bool {
	l.mu.Lock()
	n := len(l.of(host).leases)
	l.mu.Unlock()
	if n < l.limits.Leases {
		return true
	}
	alive, err := exist()
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(host)
	for id := range a.leases {
		if !alive[id] {
			delete(a.leases, id)
		}
	}
	if len(a.leases) >= l.limits.Leases {
		l.exceed(host, "it has more than %d leases", l.limits.Leases)
		return false
	}
	return true
}

func (l *ledger) addLease(host string, id store.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(host).leases[id] = true
}

func (l *ledger) removeLease(host string, id store.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of(host).leases, id)
}

// hostOf returns the id of the host that makes a call, or "".
func hostOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return ""
	}
	return hostOfUser(info.State.VerifiedChains[0][0].Subject.CommonName)
}

// enforce applies the limits to hosts' calls of the embedded server, which the server's own calls
// bypass.
func (m *member) enforce(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	m.front.recognize(ctx)
	if writes(r) && m.checkDisk(ctx) != nil {
		return nil, rpctypes.ErrGRPCNoSpace
	}
	host := hostOf(ctx)
	if host == "" {
		return handle(ctx, r)
	}
	switch r := r.(type) {
	case *pb.PutRequest:
		if err := m.mayWrite(host, 1, putCost(r)); err != nil {
			return nil, err
		}
	case *pb.TxnRequest:
		ops, cost := txnCost(r)
		if err := m.mayWrite(host, ops, cost); err != nil {
			return nil, err
		}
	case *pb.LeaseGrantRequest:
		if m.nearQuota(hostReserve) {
			return nil, rpctypes.ErrGRPCNoSpace
		}
		if !m.ledger.mayGrant(host, m.leases) {
			return nil, rpctypes.ErrGRPCPermissionDenied
		}
		answer, err := handle(ctx, r)
		if granted, ok := answer.(*pb.LeaseGrantResponse); ok && err == nil {
			m.ledger.addLease(host, store.Lease(granted.ID))
		}
		return answer, err
	case *pb.LeaseRevokeRequest:
		answer, err := handle(ctx, r)
		if err == nil {
			m.ledger.removeLease(host, store.Lease(r.ID))
		}
		return answer, err
	}
	return handle(ctx, r)
}

// recognize records which host's connection a stream, such as a watch, came by.
func (m *member) recognize(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	m.front.recognize(stream.Context())
	return handle(server, stream)
}

// writes reports whether a request makes etcd write. Revoking a lease does not count.
func writes(r any) bool {
	switch r := r.(type) {
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.LeaseGrantRequest, *pb.CompactionRequest:
		return true
	case *pb.TxnRequest:
		return slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(op *pb.RequestOp) bool { return op.GetRequestRange() == nil })
	}
	return false
}

func (m *member) mayWrite(host string, ops int, cost int64) error {
	switch {
	case ops > store.LeastTxnOps:
		return rpctypes.ErrGRPCTooManyOps
	case cost > mostHostRequest:
		return rpctypes.ErrGRPCRequestTooLarge
	case cost == 0:
		return nil
	case m.nearQuota(hostReserve):
		return rpctypes.ErrGRPCNoSpace
	case !m.ledger.addWritten(host, cost):
		return rpctypes.ErrGRPCPermissionDenied
	}
	m.unsized.Add(cost)
	return nil
}

func putCost(r *pb.PutRequest) int64 { return int64(keyOverhead + len(r.Key) + len(r.Value)) }

// txnCost counts the operations of both branches, and of nested transactions.
func txnCost(r *pb.TxnRequest) (ops int, cost int64) {
	ops = len(r.Compare) + len(r.Success) + len(r.Failure)
	for _, op := range slices.Concat(r.Success, r.Failure) {
		if put := op.GetRequestPut(); put != nil {
			cost += putCost(put)
		}
		if txn := op.GetRequestTxn(); txn != nil {
			n, c := txnCost(txn)
			ops, cost = ops+n, cost+c
		}
	}
	return ops, cost
}

// leases returns the active leases.
func (m *member) leases() (map[store.Lease]bool, error) {
	r, err := m.etcd.Server.LeaseLeases(asRoot(context.Background()), &pb.LeaseLeasesRequest{})
	if err != nil {
		return nil, err
	}
	all := make(map[store.Lease]bool, len(r.Leases))
	for _, l := range r.Leases {
		all[store.Lease(l.ID)] = true
	}
	return all, nil
}

// adoptLeases finds the owners of leases from before the server's start, by their keys. A lease
// without keys is revoked, unless it may have been granted a moment ago by another member of the
// cluster.
func (m *member) adoptLeases(ctx context.Context, s *Etcd) error {
	all, err := m.leases()
	if err != nil {
		return err
	}
	for id := range all {
		r, err := m.etcd.Server.LeaseTimeToLive(asRoot(ctx), &pb.LeaseTimeToLiveRequest{ID: int64(id), Keys: true})
		if err != nil {
			continue // ended meanwhile
		}
		if len(r.Keys) == 0 && m.options.Peer != nil {
			continue
		}
		if len(r.Keys) == 0 {
			if err := s.Revoke(ctx, id); err != nil && !errors.Is(err, store.ErrLeaseGone) {
				return err
			}
			continue
		}
		if owner := ownerOf(string(r.Keys[0])); owner != "" {
			m.ledger.addLease(owner, id)
		}
	}
	return nil
}
