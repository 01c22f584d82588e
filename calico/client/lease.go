package client

import (
	"context"
	"errors"
	"math"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/internal/task"
)

// LeaseID names a lease; 0 is none. What was put under a lease vanishes when it ends.
type LeaseID int64

// Grant makes a lease that ends ttl after its last renewal; etcd rounds ttl up to whole seconds.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (LeaseID, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	r, err := c.etcd.Grant(ctx, max(1, int64(math.Ceil(ttl.Seconds()))))
	if err != nil {
		return 0, c.explain(ctx, "grant lease", err)
	}
	return LeaseID(r.ID), nil
}

// KeepAlive renews the lease until ctx ends (nil), or returns [ErrLeaseGone] when the lease has
// ended. While etcd is away it keeps trying.
func (c *Client) KeepAlive(ctx context.Context, lease LeaseID) error {
	for {
		wait := time.Second
		r, err := c.etcd.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return ErrLeaseGone
		case err != nil && isDenied(err):
			return c.explain(ctx, "renew lease", err)
		case err == nil:
			wait = time.Duration(r.TTL) * time.Second / 3
		}
		if !task.Pause(ctx, wait) {
			return nil
		}
	}
}

// Revoke ends the lease at once. A lease that has ended already is no error.
func (c *Client) Revoke(ctx context.Context, lease LeaseID) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if _, err := c.etcd.Revoke(ctx, clientv3.LeaseID(lease)); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return c.explain(ctx, "revoke lease", err)
	}
	return nil
}
