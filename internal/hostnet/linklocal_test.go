package hostnet

import (
	"context"
	"testing"
	"time"
)

// TestWatchLinkLocal: a link is told once its address can be used, not while others are asked for
// it.
func TestWatchLinkLocal(t *testing.T) {
	t.Parallel()
	l := kernel(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	usable, err := l.WatchLinkLocal(ctx)
	must(t, err)
	if first := <-usable; first != 0 {
		t.Errorf("the first is %d, want 0 for all", first)
	}
	_, err = l.AddLink(LinkSpec{Name: "a", Kind: Veth, Peer: "b"})
	must(t, err, l.SetUp("a", true), l.SetUp("b", true))
	a, err := l.Link("a")
	must(t, err)
	b, err := l.Link("b")
	must(t, err)
	waits := map[int]string{a.Index: "a", b.Index: "b"}
	for len(waits) > 0 {
		select {
		case index := <-usable:
			delete(waits, index)
		case <-ctx.Done():
			t.Fatalf("not told: %v", waits)
		}
	}
	cancel()
	for range usable {
	}
}
