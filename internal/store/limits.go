package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"heddle/internal/task"
)

// HostLimits bounds what one host may have in the store. A host that exceeds one is cut off: see [Etcd.CutOff].
type HostLimits struct {
	Keys    int   // that exist
	Bytes   int64 // of them, keys and values
	Leases  int   // in the embedded store, where it is known whose they are
	Written int64 // bytes, within the time for which etcd keeps old revisions
}

// Limits of a host follow from the store's quota: 64 MiB of keys and 512 MiB written in ten minutes with the usual 8 GiB.
func hostLimits(quota int64) HostLimits {
	return HostLimits{Keys: 16384, Bytes: quota / 128, Leases: 256, Written: quota / 16}
}

// One request of a host may have this many bytes and as many operations as a commit of a server.
const mostHostRequest = 1 << 20

// keyOverhead is what etcd counts for a key beside its bytes.
const keyOverhead = 256

// ledger holds what the hosts have, and who has exceeded a limit.
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
	leases  map[Lease]bool
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
		a = &account{leases: map[Lease]bool{}, since: l.now()}
		l.accounts[owner] = a
	}
	return a
}

// exceed notes that an owner has exceeded a limit; l.mu is held.
func (l *ledger) exceed(owner, format string, args ...any) {
	if _, known := l.over[owner]; known {
		return
	}
	l.over[owner] = fmt.Sprintf(format, args...)
	l.news.Give()
}

// wrote counts bytes written, and reports whether the owner may write them.
func (l *ledger) wrote(owner string, bytes int64) bool {
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

// holds changes how many keys and bytes an owner has.
func (l *ledger) holds(owner string, keys int, bytes int64) {
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

// refuse notes that an owner has written what no host may.
func (l *ledger) refuse(owner, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exceed(owner, format, args...)
}

// forgetHoldings is for who counts them anew.
func (l *ledger) forgetHoldings() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		a.keys, a.bytes = 0, 0
	}
}

// take returns who has exceeded a limit since the last call, and why. They remain without rights to write.
func (l *ledger) take() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.over
	l.over = map[string]string{}
	return all
}

// forget ends a host's account: it begins anew.
func (l *ledger) forget(host string) (leases []Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[host]; a != nil {
		for id := range a.leases {
			leases = append(leases, id)
		}
		a.leases, a.written, a.since = map[Lease]bool{}, 0, l.now()
	}
	return leases
}

// mayGrant reports whether a host may have one more lease. exist returns the leases that have not ended.
func (l *ledger) mayGrant(host string, exist func() (map[Lease]bool, error)) bool {
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

func (l *ledger) granted(host string, id Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(host).leases[id] = true
}

func (l *ledger) revoked(host string, id Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of(host).leases, id)
}

// hostOf returns the id of the host that makes a call, "" for other callers.
func hostOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return ""
	}
	id, ok := strings.CutPrefix(info.State.VerifiedChains[0][0].Subject.CommonName, hostUser(""))
	if !ok {
		return ""
	}
	return id
}

// enforce holds the calls of hosts against their limits. It stands before the handlers of the embedded server, which the
// server's own calls do not pass.
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
			m.ledger.granted(host, Lease(granted.ID))
		}
		return answer, err
	case *pb.LeaseRevokeRequest:
		answer, err := handle(ctx, r)
		if err == nil {
			m.ledger.revoked(host, Lease(r.ID))
		}
		return answer, err
	}
	return handle(ctx, r)
}

// recognize notes whose connection a stream came by, a watch say.
func (m *member) recognize(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	m.front.recognize(stream.Context())
	return handle(server, stream)
}

// writes reports whether a request makes etcd write. Ending a lease is not refused: it happens by itself, too.
func writes(r any) bool {
	switch r := r.(type) {
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.LeaseGrantRequest, *pb.CompactionRequest:
		return true
	case *pb.TxnRequest:
		for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
			for _, op := range branch {
				if op.GetRequestRange() == nil {
					return true
				}
			}
		}
	}
	return false
}

func (m *member) mayWrite(host string, ops int, cost int64) error {
	switch {
	case ops > LeastTxnOps:
		return rpctypes.ErrGRPCTooManyOps
	case cost > mostHostRequest:
		return rpctypes.ErrGRPCRequestTooLarge
	case cost == 0:
		return nil
	case m.nearQuota(hostReserve):
		return rpctypes.ErrGRPCNoSpace
	case !m.ledger.wrote(host, cost):
		return rpctypes.ErrGRPCPermissionDenied
	}
	m.unsized.Add(cost)
	return nil
}

func putCost(r *pb.PutRequest) int64 { return int64(keyOverhead + len(r.Key) + len(r.Value)) }

// txnCost counts the operations of both branches, and of those within.
func txnCost(r *pb.TxnRequest) (ops int, cost int64) {
	ops = len(r.Compare)
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			ops++
			if put := op.GetRequestPut(); put != nil {
				cost += putCost(put)
			}
			if txn := op.GetRequestTxn(); txn != nil {
				n, c := txnCost(txn)
				ops, cost = ops+n, cost+c
			}
		}
	}
	return ops, cost
}

// leases returns those that have not ended.
func (m *member) leases() (map[Lease]bool, error) {
	r, err := m.etcd.Server.LeaseLeases(asRoot(context.Background()), &pb.LeaseLeasesRequest{})
	if err != nil {
		return nil, err
	}
	all := make(map[Lease]bool, len(r.Leases))
	for _, l := range r.Leases {
		all[Lease(l.ID)] = true
	}
	return all, nil
}

// adoptLeases finds out whose the leases are that the server has from before its start. One without keys is nobody's,
// and ends.
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
		if len(r.Keys) == 0 {
			if err := s.Revoke(ctx, id); err != nil && !errors.Is(err, ErrLeaseGone) {
				return err
			}
			continue
		}
		if owner := ownerOf(string(r.Keys[0])); owner != "" {
			m.ledger.granted(owner, id)
		}
	}
	return nil
}
