package client

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"heddle/calico"
	"heddle/internal/store"
	"heddle/internal/store/etcd"
)

// What a caller may decide by. Those that concern one key come in a [KeyError].
var (
	// ErrExists: the object to be created, or to be absent, is there.
	ErrExists = errors.New("exists already")
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the object is not at the revision that was asked for.
	ErrConflict = errors.New("has been changed")
	// ErrInvalid: the object cannot be encoded or decoded.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge: a commit exceeds etcd's limits; the text says which and what to set.
	ErrTooLarge = errors.New("too large for etcd")
	// ErrLeaseGone: the lease has ended, and what was put under it is gone.
	ErrLeaseGone = errors.New("lease has ended")
	// ErrUnavailable: etcd cannot be reached or has no leader. A commit may have been made or not.
	ErrUnavailable = errors.New("etcd is unavailable")
	// ErrClosed: the client has been closed. Whether a commit was made is unknown.
	ErrClosed = errors.New("client is closed")
	// ErrDenied: etcd denies the user access.
	ErrDenied = errors.New("permission denied")
)

// KeyError is an error about one object. Its Err wraps one of the errors above.
type KeyError struct {
	Key  calico.Key
	Path string
	// Want is the revision that the caller asked for, Have the one found; 0: not there.
	Want, Have int64
	Err        error
}

// Error names the object and, of a conflict, the revisions.
func (e *KeyError) Error() string {
	text := fmt.Sprintf("%s %s: %v", e.Key.Kind(), e.Path, e.Err)
	if e.Err == ErrConflict {
		text += fmt.Sprintf(": it is at revision %d, not %d; read it again", e.Have, e.Want)
	}
	return text
}

// Unwrap returns the cause.
func (e *KeyError) Unwrap() error { return e.Err }

// invalid says why an object cannot be written or a key not be used.
func invalid(key calico.Key, path string, err error) error {
	return &KeyError{Key: key, Path: path, Err: fmt.Errorf("%w: %w", ErrInvalid, err)}
}

// explain turns an error of etcd into one of this package's, with a remedy. If etcd cannot be
// reached it finds out why: etcd's own client reports only a timeout.
func (c *Client) explain(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	if errors.Is(err, rpctypes.ErrTooManyOps) {
		return fmt.Errorf("%s: %w: it has more operations than every etcd member's --max-txn-ops allows (128 by default)", what, ErrTooLarge)
	}
	switch etcd.Kind(err) {
	case store.ErrTooLarge:
		return fmt.Errorf("%s: %w: it has more bytes than every etcd member's --max-request-bytes allows (1.5 MiB by default)", what, ErrTooLarge)
	case store.ErrFull:
		return c.unavailable(fmt.Errorf("%s: %w: its database has reached its quota: defragment it, or raise --quota-backend-bytes, and then disarm the alarm with etcdctl", what, ErrUnavailable))
	case store.ErrLeaseGone:
		return fmt.Errorf("%s: %w", what, ErrLeaseGone)
	case store.ErrDenied:
		return fmt.Errorf("%s: %w: %w", what, ErrDenied, err)
	case store.ErrUnavailable:
		return c.unavailable(fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// unavailable adds to an error why etcd cannot be reached.
func (c *Client) unavailable(err error) error {
	if cause := etcd.Diagnose(c.endpoints, c.tls); cause != nil {
		return fmt.Errorf("%w; %w", err, cause)
	}
	return err
}

func isDenied(err error) bool { return etcd.Kind(err) == store.ErrDenied }
