package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"heddle/internal/store"
)

// smallQuota is the quota of stores in these tests.
const smallQuota = 64 << 20

// limited is a store with a small quota that serves agents, with the tasks that hold hosts to their
// limits.
func limited(t *testing.T) *Etcd {
	t.Helper()
	s := openTest(t, Embedded{Agents: "127.0.0.1:0", Quota: smallQuota})
	run(t, NewHostAccounts(s, testLog(t)))
	run(t, NewSpaceKeeper(s, testLog(t)))
	return s
}

// run runs a task until the test ends.
func run(t *testing.T, task interface {
	Run(context.Context) error
	Ready() <-chan struct{}
}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- task.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-task.Ready()
}

// awaitCutOff waits until a host is cut off, and checks that it is named with the reason.
func awaitCutOff(t *testing.T, s *Etcd, host, reason string) {
	t.Helper()
	changes, failed := s.Watch(t.Context(), 1, CutOffPrefix)
	for c := range changes {
		for _, e := range c.Events {
			if e.Key == CutOffPrefix+host && strings.Contains(string(e.Value), reason) {
				return
			}
		}
	}
	t.Fatal(host, "is not cut off:", failed())
}

// A host that fills the store is cut off and named, in whichever way it does, and its space is free
// again; all others go on.
func TestGreedyHost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		greed  func(ctx context.Context, s *Etcd, i int) error
		reason string
	}{
		"many keys": {func(ctx context.Context, s *Etcd, i int) error {
			var ops []store.Op
			for j := range 200 {
				ops = append(ops, store.Op{Key: fmt.Sprintf("/heddle/state/greedy/%d-%d", i, j)})
			}
			_, err := s.Commit(ctx, nil, ops)
			return err
		}, "it has more than"},
		"large keys": {func(ctx context.Context, s *Etcd, i int) error {
			_, err := s.Commit(ctx, nil, []store.Op{put(fmt.Sprint("/heddle/state/greedy/", i), strings.Repeat("x", 100<<10))})
			return err
		}, "more than 524288 bytes"},
		"one key again and again": {func(ctx context.Context, s *Etcd, _ int) error {
			_, err := s.Commit(ctx, nil, []store.Op{put("/heddle/state/greedy/x", strings.Repeat("x", 100<<10))})
			return err
		}, "it wrote more than 4194304 bytes"},
		"a large underlay record": {func(ctx context.Context, s *Etcd, _ int) error {
			_, err := s.Commit(ctx, nil, []store.Op{put("/heddle/underlay/greedy", strings.Repeat("x", mostUnderlay))})
			return err
		}, "its underlay record has more than 16384 bytes"},
		"Calico's tree": {func(ctx context.Context, s *Etcd, i int) error {
			_, err := s.Commit(ctx, nil, []store.Op{put(fmt.Sprint("/calico/felix/v1/host/name-of-greedy/", i), strings.Repeat("x", 100<<10))})
			return err
		}, "more than 524288 bytes"},
		"leases without number": {func(ctx context.Context, s *Etcd, _ int) error {
			_, err := s.Grant(ctx, 1000*time.Hour)
			return err
		}, "it has more than 256 leases"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := limited(t)
			if name == "many keys" {
				server.ledger.limits.Keys = 2000 // as many as make sense with so small a quota
			}
			ctx := t.Context()
			for _, h := range []string{"greedy", "modest"} {
				mustCommit(t, server, put("/heddle/hosts/"+h, "{}"))
			}
			greedy, err := connect(t, server, joined(t, server, "greedy"))
			if err != nil {
				t.Fatal(err)
			}
			modest, err := connect(t, server, joined(t, server, "modest"))
			if err != nil {
				t.Fatal(err)
			}
			report := put("/heddle/state/modest/alive", "{}")
			mustCommit(t, modest, report)

			// More than fits into the store, were it not for the limits.
			bounded, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			for i := range 2000 {
				if err = tt.greed(bounded, greedy, i); err != nil {
					break
				}
			}
			if err == nil {
				t.Fatal("the host may write without limit")
			}
			awaitCutOff(t, server, "greedy", tt.reason)

			// Those who were connected beside it come back by themselves.
			bounded, cancel = context.WithTimeout(ctx, time.Minute)
			defer cancel()
			for {
				_, err := modest.Commit(bounded, nil, []store.Op{report})
				if err == nil {
					break
				}
				if !errors.Is(err, store.ErrUnavailable) || bounded.Err() != nil {
					t.Fatal("another host cannot write:", err)
				}
			}
			mustCommit(t, server, put("/heddle/neutron/networks/1", "{}"))
			if _, err := greedy.Get(ctx, "/heddle/schema"); !errors.Is(err, store.ErrDenied) {
				t.Errorf("the host that was cut off reads: %v, want ErrDenied", err)
			}
			space, err := server.Space(ctx)
			if err != nil || space[0].NoSpace || !space[0].Left(warnReserve) {
				t.Errorf("space after it: %v, %v", space, err)
			}
			for _, prefix := range []string{"/heddle/state/greedy/", "/calico/felix/v1/host/name-of-greedy/"} {
				await(t, "deletion of what it has written", func() error {
					kvs, _, err := server.List(ctx, prefix)
					if err == nil && len(kvs) > 0 {
						err = fmt.Errorf("%d keys are left under %s", len(kvs), prefix)
					}
					return err
				})
			}

			// It comes back by joining again, with a new account.
			again, err := connect(t, server, joined(t, server, "greedy"))
			if err != nil {
				t.Fatal(err)
			}
			mustCommit(t, again, put("/heddle/state/greedy/alive", "{}"))
			if _, err := server.Get(ctx, CutOffPrefix+"greedy"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("it still counts as cut off: %v", err)
			}
		})
	}
}

// fill writes below /heddle/n/ until that is refused, and returns how many keys of 256 KiB there
// are.
func fill(t *testing.T, ctx context.Context, s *Etcd, from int) (n int, refusal error) {
	t.Helper()
	value := strings.Repeat("x", 256<<10)
	for n = from; n < 3*smallQuota/len(value); n++ {
		if _, err := s.Commit(ctx, nil, []store.Op{put(fmt.Sprint("/heddle/n/", n), value)}); err != nil {
			return n, err
		}
	}
	t.Fatal("the store takes three times its quota")
	return 0, nil
}

// await waits until f succeeds.
func await(t *testing.T, what string, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A store that is full refuses what makes it fuller, before etcd refuses everything: log-ins,
// deletions, the removal of hosts and hosts' reports go on. Deleting is enough to have all go on
// again.
func TestFullStore(t *testing.T) {
	t.Parallel()
	server := openTest(t, Embedded{Agents: "127.0.0.1:0", Quota: smallQuota})
	ctx := t.Context()
	agent, err := connect(t, server, joined(t, server, "h1"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := fill(t, ctx, server, 0)
	if !errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("the store is full after %d keys: %v, want ErrFull", n, err)
	}
	if space, err := server.Space(ctx); err != nil || space[0].NoSpace {
		t.Errorf("etcd itself should not have run out of space: %v, %v", space, err)
	}

	reserved := store.WithReserve(ctx)
	lease, err := server.Grant(ctx, time.Hour)
	if err != nil {
		t.Error("lease of a token:", err)
	}
	if _, err := server.Commit(reserved, nil, []store.Op{{Key: "/heddle/identity/tokens/x", Value: []byte("{}"), Lease: lease}, put("/heddle/guard/x/", "")}); err != nil {
		t.Error("log-in:", err)
	}
	mustCommit(t, agent, put("/heddle/state/h1/alive", "{}"))
	if err := server.RemoveHost(reserved, "h1"); err != nil {
		t.Error("removal of a host:", err)
	}
	if _, err := server.Commit(reserved, nil, []store.Op{{Key: "/heddle/n/0", Delete: true}, put("/heddle/guard/n/", "")}); err != nil {
		t.Error("deletion:", err)
	}
	mustCommit(t, server, store.Op{Key: "/heddle/n/1", Delete: true})

	for i := 2; i < n*3/4; i++ {
		mustCommit(t, server, store.Op{Key: fmt.Sprint("/heddle/n/", i), Delete: true})
	}
	run(t, NewSpaceKeeper(server, testLog(t)))
	await(t, "writing after most was deleted", func() error {
		_, err := server.Commit(ctx, nil, []store.Op{put("/heddle/new", "x")})
		return err
	})
}

// A store whose etcd has run out of space all the same, as by a program that writes past every
// limit, comes back once something is deleted: by itself while its server runs, or by the commands.
func TestNoSpaceAlarm(t *testing.T) {
	t.Parallel()
	for _, itself := range []bool{true, false} {
		server := openTest(t, Embedded{Quota: smallQuota})
		ctx := store.WithReserve(t.Context())
		n, err := fill(t, ctx, server, 0)
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "heddle store status and reclaim") {
			t.Fatalf("etcd is full after %d keys: %v", n, err)
		}
		if err := server.Disarm(ctx); !errors.Is(err, store.ErrFull) {
			t.Errorf("disarm of a store that is as full as before: %v, want ErrFull", err)
		}
		space, err := server.Space(ctx)
		if err != nil || !space[0].NoSpace {
			t.Errorf("space of a full store: %v, %v", space, err)
		}
		for i := range n * 3 / 4 {
			mustCommit(t, server, store.Op{Key: fmt.Sprint("/heddle/n/", i), Delete: true})
		}
		if itself {
			run(t, NewSpaceKeeper(server, testLog(t)))
		} else if err := server.Reclaim(ctx); err != nil {
			t.Fatal(err)
		}
		await(t, "writing after most was deleted", func() error {
			_, err := server.Commit(t.Context(), nil, []store.Op{put("/heddle/new", "x")})
			return err
		})
		if space, err := server.Space(ctx); err != nil || space[0].NoSpace || space[0].Size > smallQuota*3/4 {
			t.Errorf("space after it: %v, %v", space, err)
		}
	}
}
