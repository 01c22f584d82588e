package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"heddle/internal/store"
)

// Kind returns the error of package store for an error of etcd's client, or nil.
func Kind(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return store.ErrCompacted
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge), isOversized(err):
		return store.ErrTooLarge
	case errors.Is(err, rpctypes.ErrNoSpace):
		return store.ErrFull
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return store.ErrLeaseGone
	case isDenied(err):
		return store.ErrDenied
	case isUnavailable(err):
		return store.ErrUnavailable
	}
	return nil
}

// Explain returns an error of etcd's client as one of package store. A canceled context's error is
// returned as it is.
func Explain(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	switch kind := Kind(err); kind {
	case nil:
		return fmt.Errorf("store: %s: %w", what, err)
	case store.ErrCompacted, store.ErrLeaseGone:
		return fmt.Errorf("%s: %w", what, kind)
	case store.ErrDenied:
		return fmt.Errorf("%s: %w (%v)", what, kind, err)
	default:
		return fmt.Errorf("%s: %w: %v", what, kind, err)
	}
}

// UnlessAuthChanged retries f if etcd's users or roles changed meanwhile: nothing was done then.
func UnlessAuthChanged(f func() error) error {
	for {
		if err := f(); !errors.Is(err, rpctypes.ErrAuthOldRevision) {
			return err
		}
	}
}

// IsRefusal reports whether a transaction that failed with err was not proposed to the cluster.
func IsRefusal(err error) bool {
	for _, e := range []error{rpctypes.ErrNoSpace, rpctypes.ErrTooManyRequests, rpctypes.ErrNoLeader, rpctypes.ErrNotCapable, clientv3.ErrNoAvailableEndpoints} {
		if errors.Is(err, e) || errors.Is(rpctypes.Error(err), e) {
			return true
		}
	}
	// gRPC reports a failed connection only in the text.
	return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "Error while dialing")
}

// isOversized reports whether gRPC refused a message, which it does before etcd sees it.
func isOversized(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && !errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace)
}

func isDenied(err error) bool {
	for _, e := range []error{store.ErrDenied, rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserNotFound, rpctypes.ErrUserEmpty} {
		// etcd sends only the text of why it ended a watch.
		if errors.Is(err, e) || strings.HasSuffix(err.Error(), rpctypes.ErrorDesc(e)) {
			return true
		}
	}
	return false
}

func isUnavailable(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, clientv3.ErrNoAvailableEndpoints) {
		return true
	}
	code := status.Code(err)
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		code = e.Code()
	}
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
}
