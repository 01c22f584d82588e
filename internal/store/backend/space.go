package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/internal/store"
	"heddle/internal/store/etcd"
	"heddle/internal/task"
)

// The last parts of the quota are reserved. Clients' objects are rejected when less than
// clientReserve is left, hosts' writes when less than hostReserve is. Log-ins, deletions and the
// removal of hosts go on, with [store.WithReserve].
const (
	clientReserve = 8 // the quota divided by this
	hostReserve   = 16
	// warnReserve is the part below which operators are warned.
	warnReserve = 4
)

// etcdSlack is the distance above an embedded store's quota etcd itself rejects writes: large
// values make the database grow by more than is written, for a moment.
const etcdSlack = 64 << 20

// Space reports how full one etcd member's database is.
type Space struct {
	Member string `json:"member"`
	Size   int64  `json:"size"`   // bytes of the file
	InUse  int64  `json:"in_use"` // of these; the rest is free again, and returned by defragmenting
	Quota  int64  `json:"quota"`  // Size at which etcd refuses all writes
	// Assumed: the member does not report its quota and none was given, so Quota is etcd's default.
	Assumed bool `json:"quota_assumed"`
	NoSpace bool `json:"no_space"`
	Leader  bool `json:"leader"` // of the members
	// DiskFull: the disk of an embedded store is so full that its server accepts no writes.
	DiskFull bool `json:"disk_full,omitempty"`
}

// defaultClusterQuota is etcd's default of --quota-backend-bytes.
const defaultClusterQuota = 2 << 30

// Left reports whether at least the quota divided by part is left.
func (s Space) Left(part int64) bool { return s.Quota == 0 || s.Size < s.Quota-s.Quota/part }

// Full reports whether only deletions and log-ins are accepted.
func (s Space) Full() bool { return s.NoSpace || !s.Left(clientReserve) }

// NearlyFull reports whether operators should act.
func (s Space) NearlyFull() bool { return s.NoSpace || !s.Left(warnReserve) }

func (s Space) String() string {
	assumed := ""
	if s.Assumed {
		assumed = " (assumed)"
	}
	return fmt.Sprintf("%s: %d of %d MiB%s, %d MiB of it in use", s.Member, s.Size>>20, s.Quota>>20, assumed, s.InUse>>20)
}

// nearQuota reports whether less than the quota divided by part is left.
func (m *member) nearQuota(part int64) bool {
	size := m.etcd.Server.Backend().Size()
	if m.sized.Swap(size) != size {
		m.unsized.Store(0)
	}
	return !Space{Size: size + m.unsized.Load(), Quota: m.quota}.Left(part)
}

// checkSpace refuses a commit that makes a full store fuller.
func (s *Etcd) checkSpace(ctx context.Context, ops []store.Op) error {
	full := s.full.Load()
	if s.member != nil {
		if err := s.member.checkDisk(ctx); err != nil {
			return err
		}
		full = s.member.nearQuota(clientReserve)
	}
	if !full || store.UsesReserve(ctx) {
		if s.member != nil {
			s.member.unsized.Add(cost(ops))
		}
		return nil
	}
	for _, o := range ops {
		if !o.Delete && !o.DeletePrefix {
			s.refused.Give()
			return fmt.Errorf("%w: its database is near its quota; only deletions and log-ins are accepted: delete what is not needed, or raise the quota (heddle store status)", store.ErrFull)
		}
	}
	return nil
}

// cost returns by how much operations let the database grow.
func cost(ops []store.Op) (bytes int64) {
	for _, o := range ops {
		bytes += int64(keyOverhead + len(o.Key) + len(o.Value))
	}
	return bytes
}

// Space returns how full each member is.
func (s *Etcd) Space(ctx context.Context) ([]Space, error) {
	alarms, err := s.client.AlarmList(s.as(ctx))
	if err != nil {
		return nil, explain(ctx, "list alarms", err)
	}
	noSpace := map[uint64]bool{}
	for _, a := range alarms.Alarms {
		noSpace[a.MemberID] = noSpace[a.MemberID] || a.Alarm == pb.AlarmType_NOSPACE
	}
	var all []Space
	for _, e := range s.endpoints() {
		r, err := s.client.Status(s.as(ctx), e)
		if err != nil {
			return nil, explain(ctx, "status of "+e, err)
		}
		one := Space{Member: e, Size: r.DbSize, InUse: r.DbSizeInUse, Quota: r.DbSizeQuota, NoSpace: noSpace[r.Header.MemberId], Leader: r.Leader == r.Header.MemberId}
		if one.Quota == 0 {
			one.Quota, one.Assumed = cmp.Or(s.quota, defaultClusterQuota), s.quota == 0
		}
		if s.embedded {
			one.Member, one.Quota = "the embedded store", one.Quota-etcdSlack
		}
		all = append(all, one)
	}
	return all, nil
}

// endpoints returns the members, each to be called by itself.
func (s *Etcd) endpoints() []string {
	if s.member != nil {
		return []string{""} // in this process
	}
	return s.client.Endpoints()
}

// CompactAll drops all history, and waits until the space is free.
func (s *Etcd) CompactAll(ctx context.Context) error {
	rev, err := s.Revision(ctx)
	if err != nil {
		return err
	}
	_, err = s.client.Compact(s.as(ctx), rev, clientv3.WithCompactPhysical())
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return nil // already
	case err != nil && etcd.Kind(err) == store.ErrFull: // etcd itself compacts at its quota
		return fmt.Errorf("compact: %w: %w: the disk of the server's data directory is full: make room there", store.ErrUnavailable, store.ErrFull)
	}
	return explain(ctx, "compact", err)
}

// Defragment has each member in turn return free space to the disk. A member does not answer
// meanwhile, some seconds for each GiB.
func (s *Etcd) Defragment(ctx context.Context) error {
	if s.member != nil {
		return s.member.defragment()
	}
	for _, e := range s.endpoints() {
		if _, err := s.client.Defragment(s.as(ctx), e); err != nil {
			return explain(ctx, "defragment "+e, err)
		}
	}
	return nil
}

// defragment rewrites the database, if the disk has room for both.
func (m *member) defragment() error {
	be := m.etcd.Server.Backend()
	if m.disk != nil {
		free, err := m.disk.readFree()
		if err != nil {
			return err
		}
		if need := be.SizeInUse() + diskStop; free < need {
			return fmt.Errorf("defragment: %w: the disk of %s has %d MiB free, and %d MiB are needed", store.ErrFull, m.disk.dir, free>>20, need>>20)
		}
	}
	return be.Defrag()
}

// checkDisk returns an error while the disk is too full for writes.
func (m *member) checkDisk(ctx context.Context) error {
	if m.disk == nil {
		return nil
	}
	return m.disk.check(ctx)
}

// Disarm ends the alarm that etcd raised when its database reached its quota. It fails while the
// quota is still reached, since etcd would raise it again.
func (s *Etcd) Disarm(ctx context.Context) error {
	space, err := s.Space(ctx)
	if err != nil {
		return err
	}
	for _, one := range space {
		if !one.Left(hostReserve) && !one.Assumed {
			return fmt.Errorf("disarm: %w: %s: compact and defragment first, delete, or raise the quota", store.ErrFull, one)
		}
	}
	_, err = s.client.AlarmDisarm(s.as(ctx), &clientv3.AlarmMember{})
	return explain(ctx, "disarm", err)
}

// Reclaim compacts and defragments, and then disarms.
func (s *Etcd) Reclaim(ctx context.Context) error {
	if err := s.CompactAll(ctx); err != nil {
		return err
	}
	if err := s.Defragment(ctx); err != nil {
		return err
	}
	return s.Disarm(ctx)
}

// SpaceKeeper watches how full the store is, warns operators, and reclaims the embedded store's
// space. It is a task of every server.
type SpaceKeeper struct {
	task.Part
	store *Etcd
	log   *slog.Logger
	every time.Duration
	state atomic.Pointer[[]Space]
	level string // logged last
	noted bool   // that a quota is assumed
	last  time.Time
}

const (
	spaceEvery = 10 * time.Second
	// reclaimPause is the least time between two reclaims of the embedded store.
	reclaimPause = 30 * time.Second
)

// NewSpaceKeeper returns the task.
func NewSpaceKeeper(s *Etcd, log *slog.Logger) *SpaceKeeper {
	return &SpaceKeeper{Part: task.NewPart("space keeper"), store: s, log: log, every: spaceEvery}
}

// Space returns the last result.
func (k *SpaceKeeper) Space() []Space {
	if p := k.state.Load(); p != nil {
		return *p
	}
	return nil
}

// Run watches until ctx ends.
func (k *SpaceKeeper) Run(ctx context.Context) error {
	k.BeReady()
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		if err := k.check(ctx); err != nil && ctx.Err() == nil {
			k.log.Debug("cannot read how full the store is", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.store.refused:
		case <-tick.C:
		}
	}
}

func (k *SpaceKeeper) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	space, err := k.store.Space(ctx)
	if err != nil {
		return err
	}
	if k.store.member != nil && space[0].NearlyFull() && time.Since(k.last) >= reclaimPause {
		err := k.store.Reclaim(ctx)
		k.last = time.Now()
		if err != nil && !errors.Is(err, store.ErrFull) {
			return err
		}
		if space, err = k.store.Space(ctx); err != nil {
			return err
		}
	}
	k.state.Store(&space)
	k.report(space)
	return nil
}

// report logs a change, and makes commits over a full cluster fail.
func (k *SpaceKeeper) report(space []Space) {
	level, worst := "", Space{}
	for _, s := range space {
		if s.Assumed && !k.noted {
			k.noted = true
			k.log.Warn("the cluster does not report its quota; assuming etcd's default: give --etcd-quota", "member", s.Member, "quota", s.Quota)
		}
		switch {
		case s.Full():
			level, worst = "full", s
		case s.NearlyFull() && level == "":
			level, worst = "nearly full", s
		}
	}
	k.store.full.Store(level == "full")
	switch {
	case level == k.level:
	case level == "full":
		k.log.Error("the store is full; only deletions and log-ins are accepted", "space", worst.String(), "alarm", worst.NoSpace)
	case level != "":
		k.log.Warn("the store is nearly full", "space", worst.String())
	default:
		k.log.Info("the store has space again")
	}
	k.level = level
}
