package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"heddle/internal/store/follow"
	"heddle/internal/task"
)

// hostPrefixes are where hosts write.
func hostPrefixes() []string {
	return []string{calicoHosts, "/heddle/state/", underlayPrefix, "/heddle/xen/state/"}
}

// mostUnderlay bounds how a host says that it is reached, key and value, bytes: every other host follows it. It is ample for a
// hundred tunnel zones.
const mostUnderlay = 16 << 10

// nameOwner begins the owner of keys in Calico's tree, where hosts are known by their names.
const nameOwner = "name:"

// ownerOf returns to whose account a key belongs: a host's id, or nameOwner and its name; "" for keys of no host.
func ownerOf(key string) string {
	for _, prefix := range hostPrefixes() {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		host, _, _ := strings.Cut(rest, "/")
		switch prefix {
		case "/heddle/xen/state/":
			return strings.TrimPrefix(host, xenRef(""))
		case calicoHosts:
			return nameOwner + host
		}
		return host
	}
	return ""
}

// HostAccounts follows what hosts have in the store, and cuts off those that exceed their limits. It is a task of every
// server, over a cluster, too: whichever notices first cuts off.
type HostAccounts struct {
	store *Etcd
	log   *slog.Logger
	ready chan struct{}
	sizes map[string]int64 // of keys
	cut   atomic.Int64     // how many hosts this server has cut off
}

// NewHostAccounts returns the task.
func NewHostAccounts(s *Etcd, log *slog.Logger) *HostAccounts {
	return &HostAccounts{store: s, log: log, ready: make(chan struct{})}
}

func (a *HostAccounts) String() string { return "host accounts" }

// Ready is closed when the task runs.
func (a *HostAccounts) Ready() <-chan struct{} { return a.ready }

// CutOffs returns how many hosts this server has cut off.
func (a *HostAccounts) CutOffs() int64 { return a.cut.Load() }

// accountsPause is the time before another attempt to cut hosts off.
const accountsPause = time.Second

// Run follows the hosts until ctx ends.
func (a *HostAccounts) Run(ctx context.Context) error {
	close(a.ready)
	f := follow.New(follow.Options{Store: a.store, Prefixes: hostPrefixes(), Log: a.log})
	updates := make(chan follow.Update)
	var following sync.WaitGroup
	following.Go(func() {
		_ = f.Run(ctx, func(ctx context.Context, u follow.Update) { // it ends with ctx alone
			select {
			case updates <- u:
			case <-ctx.Done():
			}
		})
	})
	defer following.Wait()
	for recount := false; ; {
		before := a.cut.Load()
		err := a.cutOff(ctx)
		if err != nil && ctx.Err() == nil {
			a.log.Warn("cannot cut off a host; trying again", "err", err)
			task.Pause(ctx, accountsPause)
		}
		// What is under way after a host was cut off counts keys that are gone, and would cut the host off again as soon as
		// it has joined again.
		if err != nil || a.cut.Load() != before {
			recount = true
			f.Relist()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.store.ledger.news:
		case u := <-updates:
			if recount = recount && !u.Full; !recount {
				a.apply(u)
			}
		}
	}
}

// apply counts everything again, or each change.
func (a *HostAccounts) apply(u follow.Update) {
	if u.Full {
		a.store.ledger.forgetHoldings()
		a.sizes = map[string]int64{}
		for _, kv := range u.All {
			a.set(kv.Key, kv.Value, false)
		}
		return
	}
	for _, e := range u.Events {
		a.set(e.Key, e.Value, e.Deleted)
		// The embedded server has counted what was written when it was written.
		if owner := ownerOf(e.Key); owner != "" && !e.Deleted && a.store.member == nil {
			a.store.ledger.wrote(owner, keyOverhead+int64(len(e.Key)+len(e.Value)))
		}
	}
}

// set notes what is at a key now.
func (a *HostAccounts) set(key string, value []byte, deleted bool) {
	owner := ownerOf(key)
	if owner == "" {
		return
	}
	before, there := a.sizes[key]
	keys, size := 1, int64(len(key)+len(value))
	if there {
		keys--
	}
	if deleted {
		if !there {
			return
		}
		keys, size = -1, 0
		delete(a.sizes, key)
	} else {
		a.sizes[key] = size
	}
	a.store.ledger.holds(owner, keys, size-before)
	if size > mostUnderlay && strings.HasPrefix(key, underlayPrefix) {
		a.store.ledger.refuse(owner, "its underlay record has more than %d bytes", mostUnderlay)
	}
}

// cutOff cuts off the hosts that have exceeded a limit.
func (a *HostAccounts) cutOff(ctx context.Context) error {
	for owner, reason := range a.store.ledger.take() {
		host := owner
		if name, ok := strings.CutPrefix(owner, nameOwner); ok {
			var err error
			if host, err = a.store.hostNamed(ctx, name); err != nil {
				return err
			}
			if host == "" {
				a.log.Warn("a host that has not joined exceeds its limits in Calico's tree", "name", name, "reason", reason)
				continue
			}
		}
		if _, err := a.store.Get(ctx, "/heddle/hosts/"+host); errors.Is(err, ErrNotFound) && owner == host {
			if known, err := a.store.hasUser(ctx, host); err != nil || !known {
				continue // removed, or the server's own
			}
		}
		if err := a.store.CutOff(ctx, host, reason, time.Now()); err != nil {
			return fmt.Errorf("cut off host %s: %w", host, err)
		}
		a.cut.Add(1)
		a.log.Error("cut off host, which exceeded its limits in the store", "host", host, "reason", reason)
	}
	return nil
}

// CutOffPrefix is where records of hosts that were cut off lie, by the hosts' ids.
const CutOffPrefix = "/heddle/cut-off/"

// CutOff is the record of a host that exceeded its limits. The host comes back by joining again.
type CutOff struct {
	HostID string    `json:"host_id"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// CutOff takes a host's rights away as [Etcd.RemoveHost] does, with its leases and what it has written in Calico's tree,
// and records why. Its own record stays, so that lists of hosts name it, until it joins again or is removed.
func (s *Etcd) CutOff(ctx context.Context, host, reason string, at time.Time) error {
	s.rights.Lock()
	defer s.rights.Unlock()
	ctx = WithReserve(ctx)
	value, err := json.Marshal(CutOff{host, reason, at.UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	name, err := s.nameOf(ctx, host)
	if err != nil {
		return err
	}
	if _, err := s.Commit(ctx, nil, []Op{{Key: CutOffPrefix + host, Value: value}}); err != nil {
		return err
	}
	if err := s.removeHost(ctx, host); err != nil {
		return err
	}
	for _, l := range s.ledger.forget(host) {
		if err := s.Revoke(ctx, l); err != nil && !errors.Is(err, ErrLeaseGone) {
			return err
		}
	}
	if name != "" {
		return s.deleteAll(ctx, calicoStatus(name))
	}
	return nil
}

// hasUser reports whether a host has rights in the store.
func (s *Etcd) hasUser(ctx context.Context, host string) (bool, error) {
	_, err := s.client.UserGet(s.as(ctx), hostUser(host))
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		return false, nil
	}
	return err == nil, explain(ctx, "get etcd user "+hostUser(host), err)
}

// nameOf returns the name that a host has in Calico's tree by its role; "" for a host without one. What a host writes
// about itself does not count.
func (s *Etcd) nameOf(ctx context.Context, host string) (string, error) {
	r, err := s.client.RoleGet(s.as(ctx), hostUser(host))
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		return "", nil
	}
	if err != nil {
		return "", explain(ctx, "get etcd role "+hostUser(host), err)
	}
	for _, p := range r.Perm {
		if rest, ok := strings.CutPrefix(string(p.Key), calicoHosts); ok {
			return strings.TrimSuffix(rest, "/"), nil
		}
	}
	return "", nil
}

// hostNamed returns the id of the host whose role has a name; "" for none.
func (s *Etcd) hostNamed(ctx context.Context, name string) (string, error) {
	roles, err := s.client.RoleList(s.as(ctx))
	if err != nil {
		return "", explain(ctx, "list etcd roles", err)
	}
	slices.Sort(roles.Roles)
	for _, role := range roles.Roles {
		host, ok := strings.CutPrefix(role, hostUser(""))
		if !ok {
			continue
		}
		if n, err := s.nameOf(ctx, host); err != nil || n == name {
			return host, err
		}
	}
	return "", nil
}
