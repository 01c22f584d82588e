package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"heddle/internal/cloud"
	"heddle/internal/topology"
)

// Remove removes all that the test has made.
func (t *Test) Remove(ctx context.Context) error {
	var errs []error
	if t.network != "" {
		errs = append(errs, removeNetwork(ctx, t.session, t.api, t.network))
	}
	if t.group != "" {
		errs = append(errs, remove(ctx, t.api, cloud.SecurityGroup, t.group))
	}
	return errors.Join(errs...)
}

// leftover is a network or a security group of a test.
type leftover struct {
	ID          string    `json:"id"`
	CreatedAt   time.Time `json:"created_at"`
	Description string    `json:"description"`
}

// CleanUp removes the objects of tests that were killed, begun before a time, and returns the
// number of tests. Their workloads go by themselves, a minute after their last probe. left counts
// tests that were begun later.
func CleanUp(ctx context.Context, s *cloud.Session, before time.Time) (removed, left int, err error) {
	api, err := s.Neutron()
	if err != nil {
		return 0, 0, err
	}
	for _, kind := range []cloud.Kind{cloud.Network, cloud.SecurityGroup} {
		var found []leftover
		if err := api.List(ctx, kind, url.Values{"name": {name}, "fields": {"id", "created_at", "description"}}, &found); err != nil {
			return removed, left, err
		}
		for _, f := range found {
			switch {
			case f.Description != description: // not ours
			case kind == cloud.SecurityGroup && !f.CreatedAt.Before(before):
			case !f.CreatedAt.Before(before):
				left++
			case kind == cloud.Network:
				if err := removeNetwork(ctx, s, api, f.ID); err != nil {
					return removed, left, err
				}
				removed++
			default:
				if err := remove(ctx, api, kind, f.ID); err != nil {
					return removed, left, err
				}
			}
		}
	}
	return removed, left, nil
}

// removeNetwork removes a network with its workloads and ports. That an agent does not remove a
// workload is no error: it does so by itself.
func removeNetwork(ctx context.Context, s *cloud.Session, api *cloud.Neutron, network string) error {
	var ports []cloud.Object
	if err := api.List(ctx, cloud.Port, url.Values{"network_id": {network}, "device_owner": {topology.WorkloadOwner}, "fields": {"id"}}, &ports); err != nil {
		return err
	}
	var ending sync.WaitGroup
	for _, p := range ports {
		ending.Go(func() { _, _ = ask(ctx, s, work{Port: p.ID(), Remove: true}) })
	}
	ending.Wait()
	for _, p := range ports {
		if err := remove(ctx, api, cloud.Port, p.ID()); err != nil {
			return err
		}
	}
	return remove(ctx, api, cloud.Network, network)
}

func remove(ctx context.Context, api *cloud.Neutron, k cloud.Kind, id string) error {
	if err := api.Delete(ctx, k, id); err != nil && !cloud.IsGone(err) {
		return fmt.Errorf("remove the temporary %s %s: %w", k, id, err)
	}
	return nil
}
