package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// registerTimeout bounds the calls of the store for one attempt.
const registerTimeout = 5 * time.Second

// registrar keeps this host and its tunnel addresses in the store.
type registrar struct {
	*Options
	replica   *replica.Replica
	published func(*snapshot.Snapshot) bool // whether the store has this host's keys
	physical  *physical
	place     *displacement
	changed   task.Notice // the records may differ from what they should be
}

// Run registers the host whenever that is due, until ctx ends.
func (r *registrar) Run(ctx context.Context) error {
	wait, failing := task.Backoff{Least: time.Second, Most: 30 * time.Second}, false
	for ctx.Err() == nil {
		if r.isDue() {
			err := r.register(ctx)
			// A conflict with an earlier record ends with the next snapshot.
			if err != nil && !errors.Is(err, store.ErrConflict) {
				if !failing && ctx.Err() == nil {
					r.Log.Warn("cannot register this host, will try again", "err", err)
					failing = true
				}
				wait.Pause(ctx)
				continue
			}
			failing = false
			wait.Reset()
		}
		select {
		case <-ctx.Done():
		case <-r.changed:
		}
	}
	return nil
}

// isDue reports whether the host is to be registered as it is now. Other hosts must have this
// one's keys before they send to it. What it carries is not known while its interfaces were looked
// at last when it was displaced: others would stand for its addresses until the next record.
func (r *registrar) isDue() bool {
	return r.place.Reason() == "" && len(r.physical.keptOff(agentDisplaced)) == 0 && r.published(r.replica.Snapshot())
}

// tunnels returns the addresses of this host in its zones.
func (o *Options) tunnels() (all []topology.HostTunnel) {
	for _, z := range o.TunnelZones {
		all = append(all, topology.HostTunnel{ZoneID: z, IP: o.TunnelIP})
	}
	return all
}

func (r *registrar) underlay() *topology.HostUnderlay {
	return &topology.HostUnderlay{HostID: r.HostID, Tunnels: r.tunnels(), PhysicalNetworks: r.physical.carried(), AvailabilityZone: r.AvailabilityZone}
}

// register writes this host's tunnel addresses, physical networks and zone to the store. A host
// that joined has its record already; otherwise an agent that may write it makes one, and the
// default tunnel zone.
func (r *registrar) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	snapshot := r.replica.Snapshot()
	known := records.Over(snapshot)
	host, there := schema.Hosts.Peek(known, r.HostID)
	if !there {
		return r.createHost(ctx)
	}
	if host.Name != r.HostName {
		return fmt.Errorf("the host with id %s is called %q in the store, here %q: give the agent the name or the id that belongs together", host.ID, host.Name, r.HostName)
	}
	underlay := r.underlay()
	if old, ok := schema.Underlays.Peek(known, r.HostID); ok && slices.Equal(old.Tunnels, underlay.Tunnels) &&
		maps.Equal(old.PhysicalNetworks, underlay.PhysicalNetworks) && old.AvailabilityZone == underlay.AvailabilityZone {
		return nil
	}
	value, err := json.Marshal(underlay)
	if err != nil {
		return err
	}
	// The host may write this key alone, so the commit has no condition on another.
	key := schema.Underlays.KeyOf(underlay)
	cond := store.Cond{Key: key}
	if e := snapshot.Get(schema.Underlays.Name(), r.HostID); e != nil {
		cond.Mod = e.Mod
	}
	_, err = r.Store.Commit(ctx, []store.Cond{cond}, []store.Op{{Key: key, Value: value}})
	return err
}

func (r *registrar) createHost(ctx context.Context) error {
	db := records.NewDB(r.Store, r.replica)
	_, err := db.Update(ctx, func(tx *records.Tx) error {
		if _, there := schema.TunnelZones.Peek(tx, topology.DefaultTunnelZone); !there && slices.Contains(r.TunnelZones, topology.DefaultTunnelZone) {
			zone := &topology.TunnelZone{ID: topology.DefaultTunnelZone, Name: "default", Type: "VXLAN"}
			if err := schema.TunnelZones.Put(tx, zone); err != nil {
				return err
			}
		}
		if err := schema.Hosts.Put(tx, &topology.Host{ID: r.HostID, Name: r.HostName}); err != nil {
			return err
		}
		return schema.Underlays.Put(tx, r.underlay())
	})
	if errors.Is(err, store.ErrDenied) {
		return fmt.Errorf("this host is not registered and may not register itself: have it join, see `heddle agent --join`: %w", err)
	}
	return err
}
