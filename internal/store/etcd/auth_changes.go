package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// RetryUnlessAuthChanged has a client's calls about users, roles and leases retried if etcd's users
// or roles changed meanwhile, as [UnlessAuthChanged] does for transactions.
func RetryUnlessAuthChanged(c *clientv3.Client) {
	c.Auth, c.Lease = retriedAuth{c.Auth}, retriedLease{c.Lease}
}

func retried[R any](call func() (R, error)) (r R, err error) {
	err = UnlessAuthChanged(func() (err error) {
		r, err = call()
		return err
	})
	return r, err
}

type retriedAuth struct{ clientv3.Auth }

func (a retriedAuth) AuthEnable(ctx context.Context) (*clientv3.AuthEnableResponse, error) {
	return retried(func() (*clientv3.AuthEnableResponse, error) { return a.Auth.AuthEnable(ctx) })
}

func (a retriedAuth) AuthDisable(ctx context.Context) (*clientv3.AuthDisableResponse, error) {
	return retried(func() (*clientv3.AuthDisableResponse, error) { return a.Auth.AuthDisable(ctx) })
}

func (a retriedAuth) UserAddWithOptions(ctx context.Context, name, password string, opt *clientv3.UserAddOptions) (*clientv3.AuthUserAddResponse, error) {
	return retried(func() (*clientv3.AuthUserAddResponse, error) {
		return a.Auth.UserAddWithOptions(ctx, name, password, opt)
	})
}

func (a retriedAuth) UserDelete(ctx context.Context, name string) (*clientv3.AuthUserDeleteResponse, error) {
	return retried(func() (*clientv3.AuthUserDeleteResponse, error) { return a.Auth.UserDelete(ctx, name) })
}

func (a retriedAuth) UserGet(ctx context.Context, name string) (*clientv3.AuthUserGetResponse, error) {
	return retried(func() (*clientv3.AuthUserGetResponse, error) { return a.Auth.UserGet(ctx, name) })
}

func (a retriedAuth) UserGrantRole(ctx context.Context, user, role string) (*clientv3.AuthUserGrantRoleResponse, error) {
	return retried(func() (*clientv3.AuthUserGrantRoleResponse, error) { return a.Auth.UserGrantRole(ctx, user, role) })
}

func (a retriedAuth) RoleAdd(ctx context.Context, name string) (*clientv3.AuthRoleAddResponse, error) {
	return retried(func() (*clientv3.AuthRoleAddResponse, error) { return a.Auth.RoleAdd(ctx, name) })
}

func (a retriedAuth) RoleDelete(ctx context.Context, role string) (*clientv3.AuthRoleDeleteResponse, error) {
	return retried(func() (*clientv3.AuthRoleDeleteResponse, error) { return a.Auth.RoleDelete(ctx, role) })
}

func (a retriedAuth) RoleGet(ctx context.Context, role string) (*clientv3.AuthRoleGetResponse, error) {
	return retried(func() (*clientv3.AuthRoleGetResponse, error) { return a.Auth.RoleGet(ctx, role) })
}

func (a retriedAuth) RoleList(ctx context.Context) (*clientv3.AuthRoleListResponse, error) {
	return retried(func() (*clientv3.AuthRoleListResponse, error) { return a.Auth.RoleList(ctx) })
}

func (a retriedAuth) RoleGrantPermission(ctx context.Context, name, key, end string, may clientv3.PermissionType) (*clientv3.AuthRoleGrantPermissionResponse, error) {
	return retried(func() (*clientv3.AuthRoleGrantPermissionResponse, error) {
		return a.Auth.RoleGrantPermission(ctx, name, key, end, may)
	})
}

func (a retriedAuth) RoleRevokePermission(ctx context.Context, role, key, end string) (*clientv3.AuthRoleRevokePermissionResponse, error) {
	return retried(func() (*clientv3.AuthRoleRevokePermissionResponse, error) {
		return a.Auth.RoleRevokePermission(ctx, role, key, end)
	})
}

type retriedLease struct{ clientv3.Lease }

func (l retriedLease) Grant(ctx context.Context, seconds int64) (*clientv3.LeaseGrantResponse, error) {
	return retried(func() (*clientv3.LeaseGrantResponse, error) { return l.Lease.Grant(ctx, seconds) })
}

func (l retriedLease) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return retried(func() (*clientv3.LeaseRevokeResponse, error) { return l.Lease.Revoke(ctx, id) })
}

func (l retriedLease) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	return retried(func() (*clientv3.LeaseTimeToLiveResponse, error) { return l.Lease.TimeToLive(ctx, id, opts...) })
}

func (l retriedLease) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	return retried(func() (*clientv3.LeaseKeepAliveResponse, error) { return l.Lease.KeepAliveOnce(ctx, id) })
}
