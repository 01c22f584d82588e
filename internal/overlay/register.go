package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// registerTimeout bounds the calls of the store for one attempt.
const registerTimeout = 5 * time.Second

// registerHost makes the store say by which addresses this host is reached. A host that joined has its record, with its
// name, from then; without one an agent that may write it makes one, and the default tunnel zone.
func (a *Agent) registerHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	snapshot := a.replica.Snapshot()
	r := records.Over(snapshot)
	host, there := schema.Hosts.Peek(r, a.opts.HostID)
	if !there {
		return a.createHost(ctx)
	}
	if host.Name != a.opts.HostName {
		return fmt.Errorf("the host with id %s is called %q in the store, here %q: give the agent the name or the id that belongs together", host.ID, host.Name, a.opts.HostName)
	}
	underlay := &topology.HostUnderlay{HostID: a.opts.HostID, Tunnels: a.tunnels()}
	if known, ok := schema.Underlays.Peek(r, a.opts.HostID); ok && slices.Equal(known.Tunnels, underlay.Tunnels) {
		return nil
	}
	value, err := json.Marshal(underlay)
	if err != nil {
		return err
	}
	// The host may write this key alone, so the commit has no condition on another.
	key := schema.Underlays.KeyOf(underlay)
	cond := store.Cond{Key: key}
	if e := snapshot.Get(schema.Underlays.Name(), a.opts.HostID); e != nil {
		cond.Mod = e.Mod
	}
	_, err = a.opts.Store.Commit(ctx, []store.Cond{cond}, []store.Op{{Key: key, Value: value}})
	return err
}

func (a *Agent) createHost(ctx context.Context) error {
	db := records.NewDB(a.opts.Store, a.replica)
	_, err := db.Update(ctx, func(tx *records.Tx) error {
		if _, there := schema.TunnelZones.Peek(tx, topology.DefaultTunnelZone); !there && slices.Contains(a.opts.TunnelZones, topology.DefaultTunnelZone) {
			zone := &topology.TunnelZone{ID: topology.DefaultTunnelZone, Name: "default", Type: "VXLAN"}
			if err := schema.TunnelZones.Put(tx, zone); err != nil {
				return err
			}
		}
		if err := schema.Hosts.Put(tx, &topology.Host{ID: a.opts.HostID, Name: a.opts.HostName}); err != nil {
			return err
		}
		return schema.Underlays.Put(tx, &topology.HostUnderlay{HostID: a.opts.HostID, Tunnels: a.tunnels()})
	})
	if errors.Is(err, store.ErrDenied) {
		return fmt.Errorf("this host is not registered and may not register itself: have it join, see `heddle agent --join`: %w", err)
	}
	return err
}
