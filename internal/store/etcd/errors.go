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
)

// Kind returns the error of this package that an error of etcd's client amounts to, or nil.
func Kind(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return ErrCompacted
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge), isOversized(err):
		return ErrTooLarge
	case errors.Is(err, rpctypes.ErrNoSpace):
		return ErrFull
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return ErrLeaseGone
	case isDenied(err):
		return ErrDenied
	case isUnavailable(err):
		return ErrUnavailable
	}
	return nil
}

// Explain says what failed with an error of etcd's client, as an error of this package. A context that was canceled is
// the error itself.
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
	case ErrCompacted, ErrLeaseGone:
		return fmt.Errorf("%s: %w", what, kind)
	case ErrDenied:
		return fmt.Errorf("%s: %w (%v)", what, kind, err)
	default:
		return fmt.Errorf("%s: %w: %v", what, kind, err)
	}
}

// UnlessAuthChanged calls f again while etcd's users or roles changed during the call: nothing was done then.
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
	// gRPC reports a connection that could not be made only in words.
	return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "Error while dialing")
}

// isOversized reports whether gRPC refused a message, which it does before etcd sees it.
func isOversized(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && !errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace)
}

func isDenied(err error) bool {
	for _, e := range []error{ErrDenied, rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserNotFound, rpctypes.ErrUserEmpty} {
		// Of why it ended a watch etcd sends the text only.
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
