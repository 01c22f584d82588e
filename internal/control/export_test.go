package control

import (
	"context"

	"heddle/internal/store/follow"
	"heddle/internal/store/schema"
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
