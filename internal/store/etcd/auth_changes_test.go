package etcd

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// changing fails each first call since users have changed, as etcd does.
type changing struct {
	clientv3.Auth
	clientv3.Lease
	calls int
}

func (c *changing) fail() error {
	if c.calls++; c.calls%2 == 1 {
		return rpctypes.ErrAuthOldRevision
	}
	return nil
}

func (c *changing) UserDelete(context.Context, string) (*clientv3.AuthUserDeleteResponse, error) {
	return &clientv3.AuthUserDeleteResponse{}, c.fail()
}

func (c *changing) RoleDelete(context.Context, string) (*clientv3.AuthRoleDeleteResponse, error) {
	if err := c.fail(); err != nil {
		return nil, err
	}
	return nil, rpctypes.ErrRoleNotFound
}

func (c *changing) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{ID: 7}, c.fail()
}

func TestRetryUnlessAuthChanged(t *testing.T) {
	fake := &changing{}
	c := &clientv3.Client{Auth: fake, Lease: fake}
	RetryUnlessAuthChanged(c)
	if r, err := c.UserDelete(t.Context(), "user"); err != nil || r == nil {
		t.Errorf("delete a user: %v", err)
	}
	if _, err := c.RoleDelete(t.Context(), "role"); err != rpctypes.ErrRoleNotFound {
		t.Errorf("delete a role: %v, want the second answer", err)
	}
	if r, err := c.Grant(t.Context(), 1); err != nil || r.ID != 7 {
		t.Errorf("grant a lease: %+v, %v", r, err)
	}
	if fake.calls != 6 {
		t.Errorf("%d calls, want two of each", fake.calls)
	}
}
