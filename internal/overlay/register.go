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

// registerHost makes the store's record of this host say by which addresses it is reached. A host that joined has its
// record from then and may write nothing else; without a record an agent that may makes one, and the default tunnel zone.
func (a *Agent) registerHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	snapshot := a.replica.Snapshot()
	e := snapshot.Get(schema.Hosts.Name(), a.opts.HostID)
	if e == nil {
		return a.createHost(ctx)
	}
	host := *e.Record.(*topology.Host)
	if host.Name != a.opts.HostName {
		return fmt.Errorf("the host with id %s is called %q in the store, here %q: give the agent the name or the id that belongs together", host.ID, host.Name, a.opts.HostName)
	}
	tunnels := a.tunnels()
	if slices.Equal(host.Tunnels, tunnels) {
		return nil
	}
	host.Tunnels = tunnels
	value, err := json.Marshal(&host)
	if err != nil {
		return err
	}
	key := schema.Hosts.Key(host.ID)
	_, err = a.opts.Store.Commit(ctx, []store.Cond{{Key: key, Mod: e.Mod}}, []store.Op{{Key: key, Value: value}})
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
		return schema.Hosts.Put(tx, &topology.Host{ID: a.opts.HostID, Name: a.opts.HostName, Tunnels: a.tunnels()})
	})
	if errors.Is(err, store.ErrDenied) {
		return fmt.Errorf("this host is not registered and may not register itself: have it join, see `heddle agent --join`: %w", err)
	}
	return err
}
