package presence

import (
	"context"
	"errors"
	"testing"
	"time"

	"heddle/internal/store"
)

// TestCampaign: of those that campaign for a key one leads, the next when that has given up or lost
// its lease.
func TestCampaign(t *testing.T) {
	st := store.NewMemory()
	began, ends := make(chan int64), make(chan error)
	campaign := func(ctx context.Context) chan error {
		over := make(chan error, 1)
		go func() {
			over <- Campaign(ctx, st, "/leader", time.Minute, func(ctx context.Context, term int64) error {
				began <- term
				select {
				case <-ctx.Done():
					return ctx.Err()
				case err := <-ends:
					return err
				}
			})
		}()
		return over
	}
	first, second := campaign(t.Context()), campaign(t.Context())
	term := <-began
	select {
	case <-began:
		t.Fatal("two lead")
	default:
	}
	failed := errors.New("failed")
	ends <- failed
	next := <-began
	if next <= term {
		t.Errorf("term %d after %d", next, term)
	}
	kv, err := st.Get(t.Context(), "/leader")
	if err != nil || kv.CreateRevision != next {
		t.Errorf("the key was created at %d, want the term %d; %v", kv.CreateRevision, next, err)
	}
	if err := st.Revoke(t.Context(), store.Lease(kv.Lease)); err != nil {
		t.Fatal(err)
	}
	for _, over := range []chan error{first, second} {
		if err := <-over; !errors.Is(err, failed) && !errors.Is(err, store.ErrLeaseGone) {
			t.Errorf("a campaign ended with %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	third := campaign(ctx)
	<-began
	cancel()
	if err := <-third; !errors.Is(err, context.Canceled) {
		t.Errorf("stopped with %v", err)
	}
}
