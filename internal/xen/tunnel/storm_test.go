package tunnel

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"heddle/internal/ovsdb"
	"heddle/internal/store"
	"heddle/internal/xen/ovs"
	"heddle/internal/xen/star"
)

// TestStorm lets all kinds of things happen to a network in quick succession, and looks into all
// databases all the while: the legs never form a ring, and in the end there is a star.
func TestStorm(t *testing.T) {
	t.Parallel()
	l := newLab(t, 4)
	network, tunnels := l.star("gre")
	relays, use := l.relays()
	st := store.NewMemory()
	_, stop := l.controller(st, use)
	l.active(tunnels, 0, 1, 2, 3)
	looked := l.lookForRings()

	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	token := ""
	var access []string
	for _, tunnel := range tunnels {
		access = append(access, l.records("tunnel")[tunnel]["access_PIF"].(string))
	}
	for range 40 {
		i := r.IntN(len(l.hosts))
		switch r.IntN(7) {
		case 0, 1:
			l.prefer(network, i)
		case 2:
			l.call("host.disable", l.named(l.hosts[i].Name))
		case 3:
			l.call("host.enable", l.named(l.hosts[i].Name))
		case 4:
			relays[i].set(r.IntN(2) == 0)
		case 5:
			if l.call("PIF.get_currently_attached", access[i]).(bool) {
				l.call("PIF.unplug", access[i])
			} else {
				l.call("PIF.plug", access[i])
			}
		case 6:
			stop()
			_, stop = l.controller(st, use)
		}
		b, err := l.session.Events(l.ctx, []string{"tunnel"}, token, 50*time.Millisecond) // a little time, but not always enough
		if err != nil {
			t.Fatal(err)
		}
		token = b.Token
	}
	for i, h := range l.hosts {
		relays[i].set(false)
		l.call("host.enable", l.named(h.Name))
		l.call("PIF.plug", access[i])
	}
	l.active(tunnels, 0, 1, 2, 3)
	l.reach()
	if n := looked(); n == 0 {
		t.Error("nobody looked")
	}
}

// lookForRings follows all databases until the test calls what it returns, which says how often it
// has looked.
func (l *lab) lookForRings() (stop func() int) {
	l.t.Helper()
	clients := map[string]*ovs.Client{} // by the host's UUID
	for i, h := range l.hosts {
		c, err := ovs.Dial(l.ctx, ovsdb.Options{Address: h.DB()})
		if err != nil {
			l.t.Fatal(err)
		}
		clients[l.uuid(i)] = c
	}
	var (
		watching sync.WaitGroup
		mu       sync.Mutex
		looks    int
	)
	over := make(chan struct{})
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		looks++
		ends := map[star.Pair]int{}
		for uuid, c := range clients {
			snap := c.Snapshot()
			for _, p := range snap.Ports {
				if e, ours := endOf(snap, p); ours {
					ends[star.PairOf(uuid, e.Peer)]++
				}
			}
		}
		in := map[string]string{} // one of the hosts that each can reach
		var root func(string) string
		root = func(h string) string {
			if next, ok := in[h]; ok {
				return root(next)
			}
			return h
		}
		for pair, n := range ends {
			a, b := root(pair[0]), root(pair[1])
			switch {
			case n > 2:
				l.t.Errorf("%d ends between %v", n, pair)
			case n == 2 && a == b:
				l.t.Errorf("a ring: %v", ends)
			case n == 2:
				in[a] = b
			}
		}
	}
	for _, c := range clients {
		watching.Go(func() {
			for {
				changed := c.Changed()
				look()
				select {
				case <-changed:
				case <-over:
					return
				}
			}
		})
	}
	var once sync.Once
	end := func() {
		close(over)
		watching.Wait()
		for _, c := range clients {
			c.Close()
		}
	}
	l.t.Cleanup(func() { once.Do(end) })
	return func() int { once.Do(end); return looks }
}
