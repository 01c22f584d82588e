package control

import (
	"context"

	"heddle/internal/neutron"
	"heddle/internal/store/follow"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// Once looks at all keys as Run does at its start, once.
func (k *Keys) Once(ctx context.Context) error {
	all, rev, err := k.service.db.Store().List(ctx, schema.CalicoPrefix)
	if err != nil {
		return err
	}
	k.markAll(ctx, follow.Update{Revision: rev, Full: true, All: all})
	return k.pass(ctx)
}

// Again looks at the keys that are still marked, as Run does after a failure.
func (k *Keys) Again(ctx context.Context) error { return k.pass(ctx) }

// Impatiently has the task join in on pending work at once.
func (p *Pending) Impatiently() *Pending {
	p.grace = 0
	return p
}

// PutContainer stores a service container's bundle, as operations on load balancers do.
func (s *Service) PutContainer(ctx context.Context, b topology.Bundle) error {
	_, err := transact(ctx, s, neutron.Caller{}, func(o *operation) (struct{}, error) { return struct{}{}, o.putContainer(b) })
	return err
}

// DropContainer deletes a service container, likewise.
func (s *Service) DropContainer(ctx context.Context, id string) error {
	_, err := transact(ctx, s, neutron.Caller{}, func(o *operation) (struct{}, error) { return struct{}{}, o.dropContainer(id) })
	return err
}
