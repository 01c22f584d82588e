package backend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/task"
)

// hostPrefixes returns the prefixes below which hosts write.
func hostPrefixes() []string {
	return []string{calicoHosts, "/heddle/state/", underlayPrefix, "/heddle/xen/state/"}
}

// mostUnderlay bounds a host's underlay record, key and value in bytes, since every other host
// follows it: ample for a hundred tunnel zones.
const mostUnderlay = 16 << 10

// nameOwner begins an owner in Calico's tree, where keys have hosts' names.
const nameOwner = "name:"

// ownerOf returns a key's owner: a host's id, nameOwner and a host's name, or "".
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

// HostAccounts follows what hosts have in the store, and cuts off those that exceed their limits.
// It is a task of every server; over a cluster the first to notice cuts off.
type HostAccounts struct {
	task.Part
	store *Etcd
	log   *slog.Logger
	sizes map[string]int64 // of keys
	cut   int              // how many hosts this server has cut off
}

// NewHostAccounts returns the task.
func NewHostAccounts(s *Etcd, log *slog.Logger) *HostAccounts {
	return &HostAccounts{Part: task.NewPart("host accounts"), store: s, log: log}
}

// accountsPause is the time before another attempt to cut hosts off.
const accountsPause = time.Second

// Run follows the hosts until ctx ends.
func (a *HostAccounts) Run(ctx context.Context) error {
	a.BeReady()
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
		before := a.cut
		err := a.cutOff(ctx)
		if err != nil && ctx.Err() == nil {
			a.log.Warn("cannot cut off a host; trying again", "err", err)
			task.Pause(ctx, accountsPause)
		}
		// Updates in flight count keys that were just deleted. They would cut the host off again
		// when it rejoins.
		if err != nil || a.cut != before {
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
			a.store.ledger.addWritten(owner, keyOverhead+int64(len(e.Key)+len(e.Value)))
		}
	}
}

// set records the size of a key.
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
	a.store.ledger.addKeys(owner, keys, size-before)
	if size > mostUnderlay && strings.HasPrefix(key, underlayPrefix) {
		a.store.ledger.refuse(owner, "its underlay record has more than %d bytes", mostUnderlay)
	}
}

// cutOff cuts off the hosts that have exceeded a limit.
func (a *HostAccounts) cutOff(ctx context.Context) error {
	for owner, reason := range a.store.ledger.takeExceeded() {
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
		name, err := a.store.nameOf(ctx, host)
		if err != nil {
			return err
		}
		if _, err := a.store.Get(ctx, "/heddle/hosts/"+host); errors.Is(err, store.ErrNotFound) && name == "" {
			continue // removed, or the server's own
		}
		if err := a.store.CutOff(ctx, host, reason, time.Now()); err != nil {
			return fmt.Errorf("cut off host %s: %w", host, err)
		}
		a.cut++
		a.log.Error("cut off host, which exceeded its limits in the store", "host", cmp.Or(name, host), "id", host, "reason", reason)
	}
	return nil
}

// CutOffPrefix begins the keys of records of hosts that were cut off; the host's id follows.
const CutOffPrefix = "/heddle/cut-off/"

// CutOff is the record of a host that exceeded its limits. The host comes back by joining again.
type CutOff struct {
	HostID string    `json:"host_id"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// CutOff takes a host's rights away as [Etcd.RemoveHost] does, with its leases and what it has
// written in Calico's tree, and records why. The host's own record stays until it joins again or is
// removed.
func (s *Etcd) CutOff(ctx context.Context, host, reason string, at time.Time) error {
	s.rights.Lock()
	defer s.rights.Unlock()
	ctx = store.WithReserve(ctx)
	value, err := json.Marshal(CutOff{host, reason, at.UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	name, err := s.nameOf(ctx, host)
	if err != nil {
		return err
	}
	if _, err := s.Commit(ctx, nil, []store.Op{{Key: CutOffPrefix + host, Value: value}}); err != nil {
		return err
	}
	if err := s.removeHost(ctx, host); err != nil {
		return err
	}
	for _, l := range s.ledger.forget(host) {
		if err := s.Revoke(ctx, l); err != nil && !errors.Is(err, store.ErrLeaseGone) {
			return err
		}
	}
	if name != "" {
		return s.deleteAll(ctx, calicoStatus(name))
	}
	return nil
}

// nameOf returns a host's name in Calico's tree, or "", from its role: what a host writes about
// itself does not count.
func (s *Etcd) nameOf(ctx context.Context, host string) (string, error) {
	r, err := s.client.RoleGet(s.as(ctx), hostRole(host))
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		return "", nil
	}
	if err != nil {
		return "", explain(ctx, "get etcd role "+hostRole(host), err)
	}
	for _, p := range r.Perm {
		if rest, ok := strings.CutPrefix(string(p.Key), calicoHosts); ok {
			return strings.TrimSuffix(rest, "/"), nil
		}
	}
	return "", nil
}

// hostNamed returns the id of the host whose role has a name, or "".
func (s *Etcd) hostNamed(ctx context.Context, name string) (string, error) {
	roles, err := s.client.RoleList(s.as(ctx))
	if err != nil {
		return "", explain(ctx, "list etcd roles", err)
	}
	slices.Sort(roles.Roles)
	for _, role := range roles.Roles {
		host, ok := strings.CutPrefix(role, hostRolePrefix)
		if !ok {
			continue
		}
		if n, err := s.nameOf(ctx, host); err != nil || n == name {
			return host, err
		}
	}
	return "", nil
}
