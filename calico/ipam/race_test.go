package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/calico/ipam"
	"heddle/internal/store/backend"
)

// holders knows who has which address, and finds those that two have.
type holders struct {
	mu sync.Mutex
	of map[netip.Addr]string
}

func (h *holders) take(t testing.TB, who string, ips []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range ips {
		if other, twice := h.of[a]; twice {
			t.Errorf("%s is given to %s while %s has it", a, who, other)
		}
		h.of[a] = who
	}
}

// leave must be called before the addresses are released.
func (h *holders) leave(ips []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range ips {
		delete(h.of, a)
	}
}

// Processes of one host, and hosts that must borrow from each other, never get the same address,
// and lose none.
func TestRaces(t *testing.T) {
	t.Parallel()
	for name, hosts := range map[string][]string{"one host": {"h", "h", "h"}, "three hosts": {"h1", "h2", "h3"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, "10.0.0.0/25")
			h := &holders{of: map[netip.Addr]string{}}
			var all sync.WaitGroup
			for p, host := range hosts {
				process := w.another(t)
				for c := range 4 {
					all.Go(func() { process.churn(t, h, host, fmt.Sprintf("%s-%d-%d", host, p, c)) })
				}
			}
			all.Wait()
			w.sound(t)
			left := w.assigned(t)
			if len(left) != len(h.of) {
				t.Errorf("%d addresses are assigned, %d are held", len(left), len(h.of))
			}
			for a, who := range h.of {
				if left[a] != who {
					t.Errorf("%s: %q, want %q", a, left[a], who)
				}
			}
		})
	}
}

// churn assigns and releases, and in the end holds some.
func (w world) churn(t testing.TB, h *holders, host, who string) {
	ctx := context.Background()
	var mine []netip.Addr
	for range 20 {
		got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: rand.IntN(8), Host: host, Handle: who})
		if err != nil {
			t.Error(err)
			return
		}
		h.take(t, who, got)
		mine = append(mine, got...)
		n := rand.IntN(len(mine) + 1)
		h.leave(mine[:n])
		if not, err := w.ReleaseIPs(ctx, mine[:n]...); err != nil || len(not) > 0 {
			t.Error(not, err)
			return
		}
		mine = mine[n:]
	}
}

// Connections that break and callers that give up leave no half state: what etcd has agrees with
// itself, and every address that a caller was told of is there.
func TestFaults(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/22")
	h := &holders{of: map[netip.Addr]string{}}
	unknown := false
	for round := range 12 {
		process := w.another(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		var all sync.WaitGroup
		for c := range 6 {
			who := fmt.Sprintf("%d-%d", round, c)
			all.Go(func() { process.untilItFails(ctx, t, h, who) })
		}
		// At some moment the process dies, or its callers give up.
		moment := time.NewTimer(rand.N(60 * time.Millisecond))
		<-moment.C
		if round%3 == 0 {
			cancel()
		} else {
			process.client.Close()
			unknown = true
		}
		all.Wait()
		cancel()
		process.client.Close()
		w.sound(t)
	}
	left := w.assigned(t)
	for a, who := range h.of {
		if left[a] != who {
			t.Errorf("%s: %q, want %q", a, left[a], who)
		}
	}
	// Whoever is left in doubt finds what he has by its handle.
	handles := map[string]bool{}
	for _, who := range left {
		handles[who] = true
	}
	if len(left) > len(h.of) && !unknown {
		t.Errorf("%d addresses are assigned, %d are known of", len(left), len(h.of))
	}
	for who := range handles {
		if err := w.ReleaseByHandle(t.Context(), who); err != nil {
			t.Error(err)
		}
	}
	if left := w.assigned(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.sound(t)
}

// A server that goes away in the middle of transactions, again and again, leaves no half state
// either, and its callers go on when it is back.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	o := &backend.Embedded{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Tick: 10 * time.Millisecond, NoFsync: true}
	s := open(t, o)
	o.Listen = s.Endpoint()
	w := connect(t, s.Endpoint())
	w.pool(t, "10.0.0.0/22", nil)
	h := &holders{of: map[netip.Addr]string{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	progress := make(chan struct{})
	for c := range 4 {
		all.Go(func() { w.keepGoing(ctx, t, h, fmt.Sprintf("caller-%d", c), progress) })
	}
	for range 3 {
		for range 40 {
			<-progress
		}
		s.Close()
		s = open(t, o)
	}
	for range 40 {
		<-progress
	}
	stop()
	for done := waited(&all); ; {
		select {
		case <-progress:
			continue
		case <-done:
		}
		break
	}
	w.sound(t)
	left := w.assigned(t)
	for a, who := range h.of {
		if left[a] != who {
			t.Errorf("%s: %q, want %q", a, left[a], who)
		}
	}
}

// keepGoing assigns and releases until it is told to stop, whatever fails, and tells of each
// success.
func (w world) keepGoing(ctx context.Context, t testing.TB, h *holders, who string, progress chan<- struct{}) {
	for ctx.Err() == nil {
		got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1 + rand.IntN(3), Host: "h", Handle: who})
		h.take(t, who, got)
		if err == nil && len(got) > 0 {
			h.leave(got)
			_, err = w.ReleaseIPs(ctx, got...)
		}
		switch {
		case err == nil:
			progress <- struct{}{}
		case !errors.Is(err, client.ErrUnavailable) && ctx.Err() == nil:
			t.Error(err)
		}
	}
}

func waited(all *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	return done
}

// untilItFails assigns and releases until the process is dead or told to stop.
func (w world) untilItFails(ctx context.Context, t testing.TB, h *holders, who string) {
	for {
		got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1 + rand.IntN(3), Host: "h", Handle: who})
		h.take(t, who, got)
		if err == nil && rand.IntN(2) == 0 && len(got) > 0 {
			h.leave(got)
			_, err = w.ReleaseIPs(ctx, got...)
		}
		if err != nil {
			if !errors.Is(err, client.ErrClosed) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			return
		}
	}
}

// A request that cannot be stored fails alone, though it shares its transaction with others.
func TestABadRequestFailsAlone(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24")
	for range 10 {
		var all sync.WaitGroup
		for n := range 8 {
			r := ipam.Request{Num4: 1, Host: "h", Attributes: map[string]string{"k": fmt.Sprint(n)}}
			switch n {
			case 3:
				r.Attributes["k"] = "\xff"
			case 5:
				r.Handle = "a/b"
			}
			all.Go(func() {
				if got, _, err := w.AutoAssign(t.Context(), r); (err == nil) == (n == 3 || n == 5) {
					t.Errorf("request %d: %v, %v", n, got, err)
				}
			})
		}
		all.Wait()
	}
	w.sound(t)
	if left := w.assigned(t); len(left) != 60 {
		t.Errorf("%d addresses are assigned, want 60", len(left))
	}
}

// Block, handle and affinity come and go at one revision.
func TestOneTransaction(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24")
	ctx := t.Context()
	w.assign(t, 3, "h", "x")
	s, err := w.client.List(ctx, calico.BlockKey{}, calico.HandleKey{}, calico.BlockAffinityKey{})
	if err != nil || len(s.Entries) != 3 {
		t.Fatal(s, err)
	}
	for _, e := range s.Entries {
		if e.Revision != s.Revision {
			t.Errorf("%s is of revision %d, not %d", e.Path, e.Revision, s.Revision)
		}
	}
	if err := w.ReleaseByHandle(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	after, err := w.client.List(ctx, calico.BlockKey{}, calico.HandleKey{})
	if err != nil || after.Revision != s.Revision+1 || len(after.Entries) != 1 {
		t.Errorf("released at %d with %d keys left, %v; want %d and the block", after.Revision, len(after.Entries), err, s.Revision+1)
	}
}

// Callers of one process who wait while a transaction is on its way share the next one (spec 19.9).
func TestCallersShareTransactions(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/16")
	const callers, each = 8, 40
	revision := func() int64 {
		s, err := w.client.List(t.Context(), calico.PoolKey{})
		if err != nil {
			t.Fatal(err)
		}
		return s.Revision
	}
	before := revision()
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for n := range each {
				if got, _, err := w.AutoAssign(t.Context(), ipam.Request{Num4: 1, Host: "h", Handle: fmt.Sprintf("%d-%d", c, n)}); err != nil || len(got) != 1 {
					t.Error(got, err)
				}
			}
		})
	}
	all.Wait()
	if n := revision() - before; n > callers*each/2 {
		t.Errorf("%d calls took %d transactions; want several calls in one", callers*each, n)
	}
	w.sound(t)
}

// No block is made under a configuration that is no longer in force.
func TestConfigAgainstClaims(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24")
	other := w.another(t)
	ctx := t.Context()
	for round := range 20 {
		strict := round%2 == 0
		var all sync.WaitGroup
		all.Go(func() {
			err := other.SetConfig(ctx, calico.IPAMConfig{StrictAffinity: strict, AutoAllocateBlocks: true})
			if err != nil && !errors.Is(err, ipam.ErrBlocksExist) {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1, Host: "h", Handle: "x"}); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		c, err := w.GetConfig(ctx)
		u, err2 := w.Usage(ctx)
		if err != nil || err2 != nil || len(u.Blocks) != 1 || u.Blocks[0].Strict != c.StrictAffinity {
			t.Fatalf("configuration %+v, blocks %+v, %v, %v", c, u.Blocks, err, err2)
		}
		if err := errors.Join(w.ReleaseByHandle(ctx, "x"), w.ReleaseHostAffinities(ctx, "h")); err != nil {
			t.Fatal(err)
		}
	}
}
