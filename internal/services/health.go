package services

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"heddle/internal/services/plan"
	"heddle/internal/store"
	"heddle/internal/store/presence"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/topology"
)

// gather is the time for which verdicts are collected before they are written together.
const gather = 20 * time.Millisecond

// firstHold is the time for which a verdict of an earlier agent counts, until a container of this
// host checks the member.
const firstHold = time.Minute

// verdicts publishes what checks say about members: changes only, under a lease that outlives that
// of the host by the time for which the last verdict counts (services §5.4, §5.5). A member about
// which nothing is known any more keeps its last verdict that long.
type verdicts struct {
	opts    *Options
	keys    *presence.Keys
	changed task.Notice
	renew   task.Notice // the lease is too short

	mu          sync.Mutex
	members     map[string]*verdict
	holds       map[string]time.Duration // by container: how long its last verdicts count
	transitions map[string]int           // by member

	suspended bool // another agent has this host's place; of the goroutine that reports
}

// verdict is the last one about a member.
type verdict struct {
	topology.MemberHealth
	container string    // whose checks it is of, "" for an earlier agent's
	until     time.Time // when it ends, if nothing is known by then; zero: it is current
}

func newVerdicts(o *Options) *verdicts {
	changed := task.NewNotice()
	return &verdicts{opts: o, changed: changed, renew: task.NewNotice(),
		keys:    presence.NewKeys(o.Store, changed, schema.StatePrefix+o.HostID+schema.MemberHealthsTail),
		members: map[string]*verdict{}, holds: map[string]time.Duration{}, transitions: map[string]int{}}
}

// load takes over the verdicts of an earlier agent of this host.
func (v *verdicts) load(s *snapshot.Snapshot) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for h := range schema.MemberHealths.All(records.Over(s)) {
		if h.HostID == v.opts.HostID && v.members[h.MemberID] == nil {
			v.members[h.MemberID] = &verdict{MemberHealth: *h, until: time.Now().Add(firstHold)}
			v.put(v.members[h.MemberID])
		}
	}
	v.keys.Complete()
}

// put has a verdict written. It needs the lock.
func (v *verdicts) put(m *verdict) {
	value, err := json.Marshal(&m.MemberHealth)
	if err != nil {
		v.opts.Log.Error("cannot report a record", "key", schema.MemberHealths.KeyOf(&m.MemberHealth), "err", err)
		return
	}
	v.keys.Set(schema.MemberHealths.KeyOf(&m.MemberHealth), value, gather)
}

// set notes what a container's checks say about a member.
func (v *verdicts) set(container string, now plan.Verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := v.members[now.MemberID]
	if m != nil && m.Status == now.Status {
		m.container, m.until = container, time.Time{}
		return
	}
	if m != nil {
		v.transitions[now.MemberID]++
	}
	m = &verdict{container: container, MemberHealth: topology.MemberHealth{
		MemberID: now.MemberID, HostID: v.opts.HostID, Status: now.Status, Since: time.Now().UTC().Truncate(time.Millisecond)}}
	v.members[now.MemberID] = m
	v.put(m)
	v.opts.Log.Info("health of a pool's member", "member", now.MemberID, "status", now.Status)
}

// status returns the last verdict about a member, of this host or of the former hosts of its
// container; "" for none.
func (v *verdicts) status(member string, former []string) string {
	v.mu.Lock()
	own := v.members[member]
	v.mu.Unlock()
	if own != nil {
		return own.Status
	}
	if h := schema.FormerHealth(records.Over(v.opts.Objects.Snapshot()), member, former); h != nil {
		return h.Status
	}
	return ""
}

// has reports whether this host has a verdict about a member.
func (v *verdicts) has(member string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.members[member] != nil
}

// lacks reports whether a member that a container checks has no current verdict.
func (v *verdicts) lacks(c *plan.Container) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range c.Pools {
		for j := range c.Pools[i].Members {
			if m := v.members[c.Pools[i].Members[j].ID]; m == nil || !m.until.IsZero() {
				return true
			}
		}
	}
	return false
}

// check notes which members a container checks. Of others the last verdict is kept for a while.
func (v *verdicts) check(c *plan.Container) {
	v.mu.Lock()
	defer v.mu.Unlock()
	checked, hold := map[string]bool{}, time.Duration(0)
	for i := range c.Pools {
		hold = max(hold, c.Pools[i].Hold())
		for j := range c.Pools[i].Members {
			checked[c.Pools[i].Members[j].ID] = true
		}
	}
	before := v.holds[c.ID]
	for id, m := range v.members {
		if m.container == c.ID && !checked[id] {
			m.container, m.until = "", time.Now().Add(max(hold, before))
		}
	}
	if hold != before {
		v.holds[c.ID] = hold
		v.renew.Give()
	}
	v.changed.Give()
}

// lose notes that a container checks nothing now.
func (v *verdicts) lose(container string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.members {
		if m.container == container {
			m.container, m.until = "", time.Now().Add(v.holds[container])
		}
	}
	v.changed.Give()
}

// keep forgets all members but those that exist.
func (v *verdicts) keep(existing map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id := range v.members {
		if !existing[id] {
			v.forget(id)
		}
	}
}

// forget withdraws the verdict about a member. It needs the lock.
func (v *verdicts) forget(id string) {
	m := v.members[id]
	delete(v.members, id)
	delete(v.transitions, id)
	v.keys.Delete(schema.MemberHealths.KeyOf(&m.MemberHealth), 0)
}

// expire withdraws the verdicts whose time is over, and returns when the next one ends.
func (v *verdicts) expire(now time.Time) (next time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, m := range v.members {
		switch {
		case m.until.IsZero():
		case !m.until.After(now):
			v.opts.Log.Warn("health of a pool's member is not known", "member", id, "last", m.Status)
			v.forget(id)
		case next.IsZero() || m.until.Before(next):
			next = m.until
		}
	}
	return next
}

// ttl returns the time for which verdicts outlive this agent.
func (v *verdicts) ttl() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	longest := time.Duration(0)
	for _, hold := range v.holds {
		longest = max(longest, hold)
	}
	return schema.HostLease + longest
}

// run publishes verdicts until ctx ends. The last ones stay until their lease ends.
func (v *verdicts) run(ctx context.Context) {
	backoff := task.Backoff{Least: leastPause, Most: mostPause}
	failing := false
	for ctx.Err() == nil {
		if err := v.session(ctx); err != nil && ctx.Err() == nil {
			if !failing {
				v.opts.Log.Warn("cannot report the health of pools' members, will try again", "err", err)
			}
			failing = true
			backoff.Pause(ctx)
			continue
		}
		failing = false
		backoff.Reset()
	}
}

// session publishes under one lease, until that is lost or has to be longer.
func (v *verdicts) session(ctx context.Context) error {
	ttl := v.ttl()
	lease, err := v.opts.Store.Grant(ctx, ttl)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	lost := make(chan error, 1)
	go func() { lost <- v.opts.Store.KeepAlive(ctx, lease) }()
	defer func() { cancel(); <-lost }()
	v.keys.RewriteAll()
	for {
		next, err := v.flush(ctx, lease)
		if err != nil {
			return err
		}
		alarm := task.NewAlarm()
		alarm.Set(next)
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			lost <- nil // for the end
			return err
		case <-v.renew:
			if v.ttl() != ttl {
				return nil
			}
		case <-v.changed:
		case <-alarm.C:
		}
		alarm.Set(time.Time{})
	}
}

// lookAgain is the pause before the agent looks whether it has its host's place again.
const lookAgain = time.Second

// flush writes what is due, and returns when more is. Without its host's place the agent reaches no
// member, and reports nothing.
func (v *verdicts) flush(ctx context.Context, lease store.Lease) (next time.Time, err error) {
	if v.opts.Reports.Suspended() {
		v.suspended = true
		return time.Now().Add(lookAgain), nil
	}
	if v.suspended {
		v.suspended = false
		v.keys.RewriteAll()
	}
	expiry := v.expire(time.Now())
	due, err := v.keys.Flush(ctx, lease)
	if expiry.IsZero() || !due.IsZero() && due.Before(expiry) {
		return due, err
	}
	return expiry, err
}

func (v *verdicts) metrics() (values []telemetry.Value) {
	v.mu.Lock()
	defer v.mu.Unlock()
	down := 0
	for id, m := range v.members {
		if m.Status == topology.MemberInactive {
			down++
		}
		values = append(values, telemetry.Counter.Of("heddle_pool_member_transitions_total", "Times that checks have found a pool's member up or down again.", v.transitions[id]).With("member", id))
	}
	return append(values,
		telemetry.Gauge.Of("heddle_pool_members_checked", "Pools' members with a verdict of this host's checks.", len(v.members)),
		telemetry.Gauge.Of("heddle_pool_members_down", "Pools' members that this host's checks have found down.", down))
}
