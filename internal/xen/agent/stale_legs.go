package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/ovs"
)

// legMark is in the external_ids of ports made by a tunnel controller, with network and peer.
var legMark = ovs.Mark{Key: "heddle-owner", Value: "tunnel-controller"}

const (
	legNetworkKey = "heddle-network" // uuid
	legPeerKey    = "heddle-peer"    // uuid of the host
)

// returned keeps a host that counted as dead from coming back with the legs that it had: Open
// vSwitch's database outlives everything, and the star may have another center now (spec 10.5).
// Before the host is heard of again as one with Open vSwitch, legs that the tunnels' status does
// not confirm are gone. A controller makes those anew that it wants.
type returned struct {
	agent *Agent

	mu      sync.Mutex
	pending bool // there may be such legs
}

// before runs before each lease. A host whose report is still in the store was never missed.
func (r *returned) before(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, switchTimeout)
	defer cancel()
	_, err := r.agent.opts.Store.Get(ctx, objects.HostReports.Key(r.agent.host))
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	r.mu.Lock()
	r.pending = true
	r.mu.Unlock()
	if r.agent.sw.Snapshot().Lost == nil {
		if err := r.clear(ctx); err != nil {
			return fmt.Errorf("remove legs of an earlier life of this host: %w", err)
		}
	}
	return r.agent.sendReport() // without Open vSwitch as long as there may be such legs
}

// clean reports whether no such legs are left.
func (r *returned) clean() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.pending
}

// clear removes them, if that is still to be done.
func (r *returned) clear(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.pending {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, switchTimeout)
	defer cancel()
	snap, err := r.agent.replica.Fresh(ctx)
	if err != nil {
		return err
	}
	s := r.agent.sw.Snapshot()
	edit := ovs.NewEdit(s, legMark)
	var errs []error
	stale := staleLegs(records.Over(snap), r.agent.host, s)
	for _, name := range stale {
		errs = append(errs, edit.DeletePort(name))
	}
	if ops := edit.Ops(); len(ops) > 0 {
		r.agent.log.Info("this host was away: removing legs of its tunnels that are not confirmed", "ports", stale)
		_, err := r.agent.sw.Transact(ctx, ops...)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r.pending = false
	r.agent.reportDue.Give()
	return nil
}

// staleLegs are the ports of tunnel controllers that no active tunnel of this host confirms: it
// must be this host that is the network's center, or the leg's other end.
func staleLegs(r records.Reader, host string, s *ovs.Snapshot) []string {
	var stale []string
	for _, p := range s.Ports {
		if legMark.On(p.ExternalIDs) && !confirmed(r, host, p) {
			stale = append(stale, p.Name)
		}
	}
	return stale
}

func confirmed(r records.Reader, host string, p *ovs.Port) bool {
	for network := range objects.Table("network").By(r, "uuid", p.ExternalIDs[legNetworkKey]) {
		for pif := range objects.Table("PIF").By(r, "host_network", host+"/"+network.Ref) {
			for tunnel := range objects.Table("tunnel").By(r, "access_PIF", pif.Ref) {
				status := tunnel.Map("status")
				return status["active"] == "true" && (status["heddle:role"] == "center" || status["heddle:center"] == p.ExternalIDs[legPeerKey])
			}
		}
	}
	return false
}
