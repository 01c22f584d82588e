package natport

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// claimDirectly writes claims of a host to blocks as one that has its certificate may: in any
// number, without a lease.
func claimDirectly(t failer, ctx context.Context, st store.Store, host string, blocks []uint16) {
	t.Helper()
	for some := range slices.Chunk(blocks, 64) {
		var ops []store.Op
		for _, n := range some {
			record := &topology.NATBlock{HostID: host, DeviceID: router, Address: translated, Block: n}
			value, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, store.Op{Key: schema.NATBlocks.KeyOf(record), Value: value})
		}
		if _, err := st.Commit(ctx, nil, ops); err != nil {
			t.Fatal(err)
		}
	}
}

// blocks returns the numbers of the blocks from first to last.
func blocks(first, last uint16) (numbers []uint16) {
	for n := first; n <= last; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

// leaseOne has an agent lease a block of the whole address, and reports whether it got one.
func (a *agent) leaseOne(t failer, ctx context.Context) bool {
	t.Helper()
	before := a.Held()
	r := request(1024, 65535)
	a.mu.Lock()
	a.want(&r, &r.Targets[0], translated)
	a.mu.Unlock()
	a.step(t, ctx)
	return a.Held() > before
}

// follow makes an agent follow the changes of claims since a snapshot.
func (a *agent) follow(t failer, ctx context.Context, before *snapshot.Snapshot) {
	t.Helper()
	if _, err := a.replica.Fresh(ctx); err != nil {
		t.Fatal(err)
	}
	table, now := schema.NATBlocks.Name(), a.replica.Snapshot()
	for e := range before.All(table) {
		if now.Get(table, e.ID) == nil {
			a.Changed(&snapshot.Changed{Source: table, ID: e.ID, Old: e.Record}, now)
		}
	}
	for e := range now.All(table) {
		if old := before.Get(table, e.ID); old == nil || old.Mod != e.Mod {
			a.Changed(&snapshot.Changed{Source: table, ID: e.ID, New: e.Record}, now)
		}
	}
}

func (a *agent) heldBlocks() (numbers []uint16) {
	if p := a.pools[address{router, translated}]; p != nil {
		for _, b := range p.held {
			numbers = append(numbers, b.number)
		}
	}
	return numbers
}

// TestOneHostTakesHalf: a host that claims all blocks of an address keeps half of them from others.
func TestOneHostTakesHalf(t *testing.T) {
	t.Parallel()
	st := memory(t)
	a := started(t, st, "h1")
	claimDirectly(t, t.Context(), st, "h2", blocks(0, blocksOfAddress-1))
	for range blocksOfAddress - blocksOfHost {
		if !a.leaseOne(t, t.Context()) {
			t.Fatalf("%d blocks are leased beside a host that claims all", a.Held())
		}
	}
	got := a.heldBlocks()
	slices.Sort(got)
	if !slices.Equal(got, blocks(blocksOfHost, blocksOfAddress-1)) {
		t.Errorf("blocks %v are held", got)
	}
}

// TestHostsShare: a host leases half of an address's blocks and no more, and another one from the
// rest. Once it has released a block it leases again.
func TestHostsShare(t *testing.T) {
	t.Parallel()
	st := memory(t)
	a, b := started(t, st, "h1"), started(t, st, "h2")
	for range blocksOfHost {
		if !a.leaseOne(t, t.Context()) {
			t.Fatalf("%d blocks are leased by a host alone", a.Held())
		}
	}
	if a.leaseOne(t, t.Context()) {
		t.Errorf("%d blocks of %d are leased by one host", a.Held(), blocksOfAddress)
	}
	if !b.leaseOne(t, t.Context()) {
		t.Error("nothing is left for another host")
	}
	before := a.replica.Snapshot()
	p := a.pools[address{router, translated}]
	p.held = p.held[1:]
	a.step(t, t.Context()) // takes the claim back
	a.follow(t, t.Context(), before)
	if !a.leaseOne(t, t.Context()) {
		t.Error("no block is leased after one was released")
	}
}

// TestHeldBlockStays: a claim that did not count when this host leased the block takes it from this
// host at no later time, nor does a third host take it.
func TestHeldBlockStays(t *testing.T) {
	t.Parallel()
	st := memory(t)
	a, b := started(t, st, "h1"), started(t, st, "h2")
	claimDirectly(t, t.Context(), st, "h3", blocks(0, blocksOfAddress-1))
	if !a.leaseOne(t, t.Context()) {
		t.Fatal("no block is leased")
	}
	held := a.heldBlocks()
	before := a.replica.Snapshot()
	var taken []store.Op
	for n := range uint16(blocksOfHost) {
		record := &topology.NATBlock{HostID: "h3", DeviceID: router, Address: translated, Block: n}
		taken = append(taken, store.Op{Key: schema.NATBlocks.KeyOf(record), Delete: true})
	}
	for ops := range slices.Chunk(taken, 64) {
		if _, err := st.Commit(t.Context(), nil, ops); err != nil {
			t.Fatal(err)
		}
	}
	claimDirectly(t, t.Context(), st, "h3", held) // a change, at the same create revision
	a.follow(t, t.Context(), before)
	a.step(t, t.Context())
	if got := a.heldBlocks(); !slices.Equal(got, held) {
		t.Errorf("blocks %v are held, before %v", got, held)
	}
	if first := owner(a.replica.Snapshot(), address{router, translated}, held[0]); first.Record.(*topology.NATBlock).HostID != "h3" {
		t.Fatalf("the claim of %s counts: the case is not what it should be", first.ID)
	}
	if !b.leaseOne(t, t.Context()) || slices.Contains(b.heldBlocks(), held[0]) {
		t.Errorf("another host has blocks %v, this one %v", b.heldBlocks(), held)
	}
}

// TestHostileClaims: whatever claims a host writes and deletes, other hosts hold no block twice,
// none holds more than its share, and each gets a block while one of its own share is free.
func TestHostileClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		st := store.NewMemory()
		defer st.Close()
		var agents []*agent
		for _, host := range []string{"h1", "h2"} {
			a, stop := newAgent(t, ctx, st, host)
			defer stop()
			agents = append(agents, a)
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			var before []*snapshot.Snapshot
			for _, a := range agents {
				before = append(before, a.replica.Snapshot())
			}
			switch rapid.SampledFrom([]string{"claim", "delete", "lease", "release"}).Draw(t, "step") {
			case "claim":
				const end = blocksOfAddress + 8 // some of which are none
				first := rapid.Uint16Range(0, end).Draw(t, "first")
				claimDirectly(t, ctx, st, "h3", blocks(first, rapid.Uint16Range(first, end).Draw(t, "last")))
			case "delete":
				prefix := schema.StatePrefix + "h3" + schema.NATPortsTail + fmt.Sprint(router, "/", translated, "/", rapid.IntRange(1, 9).Draw(t, "digit"))
				if _, err := st.Commit(ctx, nil, []store.Op{{Key: prefix, DeletePrefix: true}}); err != nil {
					t.Fatal(err)
				}
			case "lease":
				if a := rapid.SampledFrom(agents).Draw(t, "host"); !a.leaseOne(t, ctx) {
					t.Fatalf("no block for a host with %d of them", a.Held())
				}
			case "release":
				if p := rapid.SampledFrom(agents).Draw(t, "host").pools[address{router, translated}]; p != nil && len(p.held) > 0 {
					p.held = p.held[1:]
				}
			}
			for i, a := range agents {
				a.follow(t, ctx, before[i])
				a.step(t, ctx)
			}
			count := map[string]int{}
			now := agents[0].replica.Snapshot()
			owners := claimsTo(now, address{router, translated}).owners
			for _, e := range owners {
				if e != nil {
					count[e.Record.(*topology.NATBlock).HostID]++
				}
			}
			if count["h3"] > blocksOfHost {
				t.Fatalf("%d claims of one host count", count["h3"])
			}
			n := rapid.Uint16Range(0, blocksOfAddress-1).Draw(t, "block")
			if one := owner(now, address{router, translated}, n); one != owners[n] {
				t.Fatalf("block %d: owner returns %+v, claimsTo %+v", n, one, owners[n])
			}
			for _, n := range agents[0].heldBlocks() {
				if slices.Contains(agents[1].heldBlocks(), n) {
					t.Fatalf("two hosts hold block %d", n)
				}
			}
		}
	})
}

// TestWarningNamesHolder: a host that finds no block left logs who holds the most, once a minute.
func TestWarningNamesHolder(t *testing.T) {
	t.Parallel()
	st := memory(t)
	a := started(t, st, "h1")
	var log bytes.Buffer
	a.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	claimDirectly(t, t.Context(), st, "h2", []uint16{16})
	claimDirectly(t, t.Context(), st, "h3", blocks(17, 19))
	refuse := func(lines int) {
		t.Helper()
		a.pools = map[address]*pool{}
		if _, answer := a.connect(t, t.Context(), request(1024, 1279), 1); answer != flow.NATExhausted {
			t.Fatalf("answer %d", answer)
		}
		if got := strings.Count(log.String(), "largestHolder=h3 largestBlocks=3"); got != lines {
			t.Errorf("%d warnings name the host, want %d:\n%s", got, lines, &log)
		}
	}
	refuse(1)
	a.now += warnEvery - 1
	refuse(1)
	a.now++
	refuse(2)
}
