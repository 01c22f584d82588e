package authority

import (
	"context"
	"errors"
	"time"

	"heddle/internal/store"
	"heddle/internal/task"
)

// keepEvery is the interval between looks at whether a rotation can go on.
const keepEvery = time.Second

// Keeper goes on with a rotation when the conditions of its next step hold. It is a task of every
// server, ready when it runs.
type Keeper struct {
	task.Part
	service
	published string // authorities of hosts (PEM) as last published
}

// NewKeeper returns the task.
func NewKeeper(o Options) *Keeper {
	return &Keeper{Part: task.NewPart("authority"), service: service{o.withDefaults()}}
}

// Run looks until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.BeReady()
	said := ""
	for task.Pause(ctx, keepEvery) {
		err := k.pass(ctx)
		switch {
		case err == nil:
			said = ""
		case ctx.Err() != nil, errors.Is(err, store.ErrUnavailable): // others log that the store is away
		case err.Error() != said:
			said = err.Error()
			k.Log.Warn("cannot go on with the rotation of the authority; will try again", "err", err)
		}
	}
	return nil
}

// pass makes a step if nothing is missing for it.
func (k *Keeper) pass(ctx context.Context) error {
	if trusted := k.Store.Authority().PEM(); string(trusted) != k.published {
		if err := k.Store.PublishAuthorities(ctx, trusted); err != nil {
			return err
		}
		k.published = string(trusted)
	}
	if !k.Store.Authority().Rotating() { // which costs no call of the store
		return nil
	}
	v, state, err := k.status(ctx)
	if err != nil || len(v.WaitingFor) > 0 {
		return err
	}
	if state.Next != nil {
		k.Log.Info("the new authority signs from now on", "name", state.Next.Subject.CommonName)
		return k.Store.PromoteAuthority(ctx, k.Now())
	}
	if state.FormerTrusted {
		k.Log.Info("the authority before is trusted no more", "name", state.Former.Subject.CommonName)
		return k.Store.RetireAuthority(ctx)
	}
	return nil
}
