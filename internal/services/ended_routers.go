package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology"
)

// endedRouters holds the routers whose speakers have lost their last session, and since when. They
// keep their containers for addressDrain, so that the speakers can end the sessions and the peers
// receive that; the scheduler then removes them. The caller locks.
type endedRouters map[string]time.Time

// changed follows a router's speaker, and reports whether it has lost its last session.
func (e endedRouters) changed(c snapshot.Changed) (ended bool) {
	if old, ok := c.Old.(*schema.Bundle); ok && old.Owner.Kind == topology.RouterBGPOwner {
		delete(e, old.Owner.ID)
	}
	now, ok := c.New.(*schema.Bundle)
	if !ok || !withoutSessions(now) {
		return false
	}
	e[now.Owner.ID] = time.Now()
	return true
}

// withoutSessions reports whether a bundle is of a router whose speaker has no sessions.
func withoutSessions(b *schema.Bundle) bool {
	return b.Owner.Kind == topology.RouterBGPOwner && len(b.Bundle.BgpSpeakers) > 0 && len(b.Bundle.BgpSpeakers[0].Sessions) == 0
}

// over returns the routers whose time is over, and when the next one's is, the zero Time for none.
func (e endedRouters) over(now time.Time) (routers []string, next time.Time) {
	for router, since := range e {
		switch until := since.Add(addressDrain); {
		case !until.After(now):
			routers = append(routers, router)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	return routers, next
}

// removeEnded removes what routers have of BGP that are over, and sets the alarm for the next.
func (s *Scheduler) removeEnded(ctx context.Context) error {
	s.mu.Lock()
	routers, next := s.ended.over(time.Now())
	s.mu.Unlock()
	s.endedNext.Set(next)
	for _, router := range routers {
		if err := s.removeBGP(ctx, router); err != nil {
			return fmt.Errorf("BGP of router %s: %w", router, err)
		}
	}
	return nil
}

// removeBGP removes what a router has of BGP, with its container, unless its speaker has a session
// again.
func (s *Scheduler) removeBGP(ctx context.Context, router string) error {
	_, err := s.opts.DB.Update(ctx, func(tx *records.Tx) error {
		b, err := schema.Bundles.Get(tx, schema.RouterBGPBundleID(router))
		if errors.As(err, new(*records.NotFoundError)) || err == nil && !withoutSessions(b) {
			return nil
		}
		if err != nil {
			return err
		}
		err = schema.Bundles.Delete(tx, schema.ContainerBundleID(b.Bundle.BgpSpeakers[0].ContainerID))
		if err != nil && !errors.As(err, new(*records.NotFoundError)) {
			return err
		}
		return schema.Bundles.Delete(tx, schema.RouterBGPBundleID(router))
	})
	return err
}
