package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// upkeepPause is the time between attempts of an upkeep that failed.
const upkeepPause = 5 * time.Second

// Upkeep brings the hosts that joined under an earlier version up to what this one promises, once
// at the start: their rights in the store, their names, which hosts could write then, and the keys
// in their records. It is a task, ready when it runs: the server can work meanwhile.
type Upkeep struct {
	task.Part
	service
}

// NewUpkeep returns the task.
func NewUpkeep(o Options) *Upkeep {
	return &Upkeep{task.NewPart("rights of hosts"), service{Options: o.withDefaults()}}
}

// Run tries until it succeeds, and ends with ctx.
func (u *Upkeep) Run(ctx context.Context) error {
	u.BeReady()
	full := false // and said so
	for {
		err := u.pass(ctx)
		if err == nil {
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			return nil
		}
		if is := errors.Is(err, store.ErrFull); !is || !full {
			u.Log.Warn("cannot check the rights of hosts, will try again", "err", err)
			full = is
		}
		task.Pause(ctx, upkeepPause)
	}
}

// pass takes the right to write a host's record before it restores the name in it.
func (u *Upkeep) pass(ctx context.Context) error {
	if err := u.Admission.PublishAuthorities(ctx, u.HostsCA()); err != nil {
		return err
	}
	snap, err := u.DB.View(ctx)
	if err != nil {
		return err
	}
	registered, err := registeredNames(ctx, u.DB.Store())
	if err != nil {
		return err
	}
	for j := range joined.All(snap) {
		name, ok := registered[j.HostID]
		if !ok {
			continue // removed at this moment
		}
		if err := u.Admission.AllowHost(ctx, j.HostID, name, j.rightsOf()); err != nil {
			return err
		}
		if err := u.restoreRecord(ctx, j, name); err != nil {
			return fmt.Errorf("host %s: %w", name, err)
		}
	}
	return nil
}

// registeredNames returns the names of hosts by their ids, from the keys that keep names unique:
// only servers write those.
func registeredNames(ctx context.Context, st store.Store) (map[string]string, error) {
	prefix := schema.Hosts.UniqueKey("name", "")
	kvs, _, err := st.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, kv := range kvs {
		names[string(kv.Value)] = strings.TrimPrefix(kv.Key, prefix)
	}
	return names, nil
}

// restoreRecord writes a host's record again where the host changed the name in it, or an earlier
// version did not enter its key. It goes past the tables: to them, the name in the record is the
// one to be given up, and that is another host's.
func (u *Upkeep) restoreRecord(ctx context.Context, j *Joined, name string) error {
	id := j.HostID
	key := schema.Hosts.Key(id)
	kv, err := u.DB.Store().Get(ctx, key)
	if err != nil {
		return err
	}
	var h topology.Host
	if err := json.Unmarshal(kv.Value, &h); err == nil && h.ID == id && h.Name == name && h.Key == j.Key {
		return nil
	}
	claimed := h.Name
	h.ID, h.Name, h.Key = id, name, j.Key
	value, err := json.Marshal(&h)
	if err != nil {
		return err
	}
	if _, err := u.DB.Store().Commit(ctx, []store.Cond{{Key: key, Mod: kv.ModRevision}}, []store.Op{{Key: key, Value: value}}); err != nil {
		return err
	}
	if claimed == name {
		return nil
	}
	u.Log.Warn("restored the name of a host that had changed it", "host", name, "id", id, "claimed", claimed)
	return nil
}
