package control

import (
	"errors"
	"fmt"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/store"
)

// TestErrorsOfTheStore: what the store cannot do is told to clients as theirs or ours, with what to
// do.
func TestErrorsOfTheStore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		kind neutron.Kind // 0 = not for clients
		text string
	}{
		{store.ErrTooLarge, neutron.Invalid, "The request changes too many objects at once: commit: store: transaction too large."},
		{store.ErrUnavailable, neutron.Unavailable, "The service is unavailable: it does not reach its store (etcd). Try again."},
		{store.ErrConflict, neutron.Unavailable, "Others kept changing the same objects. Try again."},
		{store.ErrDenied, 0, ""},
		{neutron.Ports.NotFound("p"), neutron.NotFound, "Port p could not be found."},
	} {
		err := tt.err
		if tt.kind != neutron.NotFound {
			err = fmt.Errorf("commit: %w", err)
		}
		got := forClient(err)
		var known *neutron.Error
		if errors.As(got, &known) != (tt.kind != 0) || known != nil && (known.Kind != tt.kind || known.Message != tt.text) {
			t.Errorf("%v becomes %v, want %q", tt.err, got, tt.text)
		}
		if tt.kind == neutron.Unavailable && !errors.Is(got, tt.err) {
			t.Errorf("%v hides its cause", got)
		}
	}
}
