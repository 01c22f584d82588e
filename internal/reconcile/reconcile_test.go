package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// shelf is a target that fails when told to, and that others take things from and put things on.
type shelf struct {
	mu     sync.Mutex
	there  map[string]int
	broken map[string]error
	log    []string
}

func newShelf() *shelf { return &shelf{there: map[string]int{}, broken: map[string]error{}} }

func (s *shelf) Found(context.Context) (map[string]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.there), s.broken["found"]
}

func (s *shelf) Set(_ context.Context, k string, v int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.broken[k]; err != nil {
		return err
	}
	s.there[k] = v
	s.log = append(s.log, fmt.Sprintf("+%s", k))
	return nil
}

func (s *shelf) Delete(_ context.Context, k string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.broken[k]; err != nil {
		return err
	}
	delete(s.there, k)
	s.log = append(s.log, fmt.Sprintf("-%s", k))
	return nil
}

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func equal(a, b int) bool { return a == b }

func newTest(s *shelf, c *clock) *Reconciler[string, int] {
	return New(Options[string, int]{Name: "things", Target: s, Equal: equal, Now: c.now,
		Rank: func(k string) int { return strings.Count(k, "/") }})
}

func TestNothingIsTakenBeforeWantsAreComplete(t *testing.T) {
	s, c := newShelf(), &clock{t: time.Unix(1, 0)}
	s.there["old"], s.there["kept"] = 1, 2
	r := newTest(s, c)
	r.Want("kept", 2)
	r.Pass(t.Context())
	if len(s.there) != 2 {
		t.Fatalf("there is %v before Complete", s.there)
	}
	r.Complete()
	r.Pass(t.Context())
	if !maps.Equal(s.there, map[string]int{"kept": 2}) {
		t.Errorf("there is %v after Complete", s.there)
	}
	if st := r.Status(); !st.Settled() {
		t.Errorf("status %v", st)
	}
}

func TestOrder(t *testing.T) {
	s, c := newShelf(), &clock{t: time.Unix(1, 0)}
	s.there["x/1"], s.there["x"] = 1, 1
	r := newTest(s, c)
	for _, k := range []string{"a/b/c", "a/b", "a"} {
		r.Want(k, 1)
	}
	r.Complete()
	r.Pass(t.Context())
	if got, want := strings.Join(s.log, " "), "-x/1 -x +a +a/b +a/b/c"; got != want {
		t.Errorf("did %s, want %s", got, want)
	}
}

func TestFailuresAreTriedAgainWithGrowingPauses(t *testing.T) {
	s, c := newShelf(), &clock{t: time.Unix(1, 0)}
	r := newTest(s, c)
	s.broken["bad"] = errors.New("broken")
	r.Want("bad", 1)
	r.Want("good", 1)
	r.Complete()
	var pauses []time.Duration
	for range 11 {
		next := r.Pass(t.Context())
		pauses = append(pauses, next.Sub(c.t))
		c.t = next
	}
	if s.there["good"] != 1 {
		t.Error("one item's failure stopped another")
	}
	want := "[100ms 200ms 400ms 800ms 1.6s 3.2s 6.4s 12.8s 25.6s"
	if got := fmt.Sprint(pauses); !strings.HasPrefix(got, want) {
		t.Errorf("pauses %v, want %v…", got, want)
	}
	if st := r.Status(); st.Failing != 1 || st.LastError == nil || !strings.Contains(st.String(), "things bad: broken") {
		t.Errorf("status %v", st)
	}
	if failing := r.Failing(); len(failing) != 1 || failing["bad"] == nil {
		t.Errorf("failing %v", failing)
	}
	s.broken = map[string]error{}
	c.t = c.t.Add(time.Minute)
	r.Pass(t.Context())
	if st := r.Status(); !st.Settled() || st.String() != "2 of 2 in place" {
		t.Errorf("status %v", st)
	}
}

func TestWaitingIsNoFailure(t *testing.T) {
	s, c := newShelf(), &clock{t: time.Unix(1, 0)}
	r := newTest(s, c)
	s.broken["a"] = fmt.Errorf("no interface: %w", ErrWait)
	r.Want("a", 1)
	r.Complete()
	c.t = r.Pass(t.Context()).Add(-time.Second)
	r.Pass(t.Context())
	if st := r.Status(); st.Waiting != 1 || st.Failing != 0 || !st.Settled() {
		t.Errorf("status %v", st)
	}
	delete(s.broken, "a")
	r.Kick("a")
	r.Pass(t.Context())
	if !r.InPlace("a") {
		t.Error("not in place after Kick")
	}
}

func TestSweepRepairs(t *testing.T) {
	s, c := newShelf(), &clock{t: time.Unix(1, 0)}
	r := newTest(s, c)
	r.Want("a", 1)
	r.Want("b", 2)
	r.Complete()
	next := r.Pass(t.Context())
	delete(s.there, "a")
	s.there["b"], s.there["c"] = 9, 3
	c.t = next
	r.Pass(t.Context())
	if !maps.Equal(s.there, map[string]int{"a": 1, "b": 2}) {
		t.Errorf("there is %v", s.there)
	}
}

// TestWantedIsFound: after any sequence of wants, faults, losses and strangers, once faults end,
// what is there is what is wanted.
func TestWantedIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, c := newShelf(), &clock{t: time.Unix(1, 0)}
		r := newTest(s, c)
		key := rapid.SampledFrom([]string{"a", "b", "a/b", "a/c", "d/e/f", "found"})
		wanted := map[string]int{}
		t.Repeat(map[string]func(*rapid.T){
			"want": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), rapid.IntRange(1, 3).Draw(t, "value")
				wanted[k] = v
				r.Want(k, v)
			},
			"unwant": func(t *rapid.T) {
				k := key.Draw(t, "key")
				delete(wanted, k)
				r.Unwant(k)
			},
			"break":    func(t *rapid.T) { s.broken[key.Draw(t, "key")] = errors.New("broken") },
			"wait":     func(t *rapid.T) { s.broken[key.Draw(t, "key")] = ErrWait },
			"mend":     func(t *rapid.T) { k := key.Draw(t, "key"); delete(s.broken, k); r.Kick(k) },
			"lose":     func(t *rapid.T) { delete(s.there, key.Draw(t, "key")) },
			"stranger": func(t *rapid.T) { s.there[key.Draw(t, "key")] = 7 },
			"kick":     func(t *rapid.T) { r.Kick(key.Draw(t, "key")) },
			"complete": func(t *rapid.T) { r.Complete() },
			"time": func(t *rapid.T) {
				c.t = c.t.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
			},
			"pass": func(t *rapid.T) { r.Pass(context.Background()) },
		})
		for k := range s.broken {
			delete(s.broken, k)
			r.Kick(k)
		}
		r.Complete()
		for range 3 {
			c.t = c.t.Add(2 * time.Minute)
			r.Pass(context.Background())
		}
		if !maps.Equal(s.there, wanted) {
			t.Fatalf("there is %v, wanted %v", s.there, wanted)
		}
		if st := r.Status(); !st.Settled() || st.Wanted != len(wanted) {
			t.Fatalf("status %v", st)
		}
	})
}

// TestRun: marks wake Run, changes during a pass are not lost, Run ends with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		r := New(Options[string, int]{Name: "things", Target: s, Equal: equal, Parallel: 4})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		for i := range 100 {
			r.Want(fmt.Sprint(i%10), i)
		}
		r.Complete()
		synctest.Wait()
		if len(s.there) != 10 || s.there["9"] != 99 {
			t.Errorf("there is %v", s.there)
		}
		s.mu.Lock()
		delete(s.there, "3")
		s.mu.Unlock()
		<-time.After(61 * time.Second) // on the bubble's clock: the next sweep
		synctest.Wait()
		if s.there["3"] != 93 {
			t.Errorf("there is %v after a sweep", s.there)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
