package natport

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/overlay/flowstate"
	"heddle/internal/store"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/store/storetest"
	"heddle/internal/topology/flow"
)

const (
	router = "11111111-1111-4111-8111-111111111111"
	portA  = "22222222-2222-4222-8222-222222222222"
)

var translated = netip.MustParseAddr("203.0.113.1")

// agent has the parts of one host's agent that lease ports and use them.
type agent struct {
	*Leases
	nats    *flowstate.Translations
	replica *replica.Replica
	now     time.Duration
	arrived int
}

// failer is a testing.T or a rapid.T.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// newAgent makes an agent whose Run does not run: tests make its passes.
func newAgent(t failer, ctx context.Context, st store.Store, host string) (a *agent, stop func()) {
	t.Helper()
	a = &agent{nats: flowstate.NewTranslations(flowstate.TranslationOptions{})}
	a.replica = replica.New(st, replica.Options{}, schema.NATBlocks)
	a.Leases = New(Options{HostID: host, Store: st, Replica: a.replica, Translations: a.nats,
		Arrived: func(string, netip.Addr) { a.arrived++ }, Clock: func() time.Duration { return a.now }})
	a.claims.lost = make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- a.replica.Run(ctx) }()
	if _, err := a.replica.Fresh(ctx); err != nil {
		t.Fatal(err)
	}
	return a, func() {
		a.endLease()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// step makes a pass over all that the store has now.
func (a *agent) step(t failer, ctx context.Context) {
	t.Helper()
	if _, err := a.replica.Fresh(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.pass(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.replica.Fresh(ctx); err != nil {
		t.Fatal(err)
	}
}

// connect opens a connection of a client to a server, which takes a port or waits for one.
func (a *agent) connect(t failer, ctx context.Context, r flow.NATRequest, client uint16) (flow.NATEntry, flow.NATAnswer) {
	t.Helper()
	if !r.Src.IsValid() {
		r.Src = netip.AddrFrom4([4]byte{10, 0, byte(client >> 8), byte(client)})
	}
	b, answer := a.Choose(r)
	if answer == flow.NATWaiting {
		a.step(t, ctx)
		b, answer = a.Choose(r)
	}
	if answer != flow.NATChosen {
		return flow.NATEntry{}, answer
	}
	e := flow.NATEntry{NATKey: flow.NATKey{Kind: flow.ForwardSNAT, Src: r.Src, SrcPort: client,
		Dst: r.Dst, DstPort: r.DstPort, Proto: r.Proto, Device: r.Device}, NATBinding: b}
	if _, taken := a.nats.Get(e.Reverse().NATKey, a.now); taken {
		t.Fatalf("port %d is in use already", b.Port)
	}
	a.nats.Add([]flow.NATEntry{e}, portA, nil, a.now)
	return e, answer
}

func request(first, last uint16) flow.NATRequest {
	return flow.NATRequest{Device: router, Targets: []flow.NATTarget{{First: translated, Last: translated, FirstPort: first, LastPort: last}},
		Dst: netip.MustParseAddr("198.51.100.2"), DstPort: 80, Proto: 6}
}

func memory(t *testing.T) store.Store {
	st := store.NewMemory()
	t.Cleanup(func() { st.Close() })
	return st
}

func started(t *testing.T, st store.Store, host string) *agent {
	t.Helper()
	a, stop := newAgent(t, t.Context(), st, host)
	t.Cleanup(stop)
	return a
}

// TestHostsShareNoPort: two hosts that open connections to the same few destinations give no two of
// them one port, and use all there are before they refuse any.
func TestHostsShareNoPort(t *testing.T) {
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
		type use struct {
			dst  netip.Addr
			port uint16
		}
		used := map[use]bool{}
		const first, last = 1030, 1290 // parts of five blocks
		for i := range rapid.IntRange(1, 300).Draw(t, "connections") {
			r := request(first, last)
			r.Dst = netip.AddrFrom4([4]byte{198, 51, 100, byte(rapid.IntRange(1, 2).Draw(t, "server"))})
			e, answer := agents[rapid.IntRange(0, 1).Draw(t, "host")].connect(t, ctx, r, uint16(i))
			if answer != flow.NATChosen {
				if held := agents[0].Held() + agents[1].Held(); held != 5 {
					t.Fatalf("refused while hosts hold %d blocks", held)
				}
				continue
			}
			u := use{e.Dst, e.Port}
			if used[u] || e.Port < first || e.Port > last {
				t.Fatalf("port %d toward %s, given before: %v", e.Port, e.Dst, used[u])
			}
			used[u] = true
		}
	})
}

// TestClaimsAtOnce: of hosts that claim one block at once one gets it, the others take their claims
// back.
func TestClaimsAtOnce(t *testing.T) {
	t.Parallel()
	st := storetest.Open(t, t.TempDir())
	agents := []*agent{started(t, st, "h1"), started(t, st, "h2"), started(t, st, "h3")}
	r := request(1024, 1087) // one block
	for _, a := range agents {
		if _, answer := a.Choose(r); answer != flow.NATWaiting {
			t.Fatalf("answer %d before there is a block", answer)
		}
	}
	errs := make(chan error)
	for _, a := range agents {
		go func() { errs <- a.pass(t.Context()) }()
	}
	for range agents {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	held, answers := 0, map[flow.NATAnswer]int{}
	for _, a := range agents {
		held += a.Held()
		_, answer := a.Choose(r)
		answers[answer]++
		if a.arrived != 1 {
			t.Errorf("waiting packets were called %d times", a.arrived)
		}
	}
	if held != 1 || answers[flow.NATChosen] != 1 || answers[flow.NATExhausted] != 2 {
		t.Errorf("%d blocks are held, answers %v", held, answers)
	}
	if kvs, _, err := st.List(t.Context(), schema.StatePrefix); err != nil || len(kvs) != 1 || kvs[0].Lease == 0 {
		t.Errorf("the store has %+v, %v", kvs, err)
	}
}

func TestRestartKeepsBlocks(t *testing.T) {
	t.Parallel()
	st := storetest.Open(t, t.TempDir())
	a, stop := newAgent(t, t.Context(), st, "h1")
	e, answer := a.connect(t, t.Context(), request(1024, 65535), 1)
	if answer != flow.NATChosen {
		t.Fatal(answer)
	}
	before := claimsIn(t, st)
	stop()

	next := started(t, st, "h1")
	next.Load(next.replica.Snapshot())
	next.nats.Add([]flow.NATEntry{e}, portA, nil, 0)
	if next.Held() != 1 {
		t.Fatalf("%d blocks are held", next.Held())
	}
	other, answer := next.connect(t, t.Context(), request(1024, 65535), 2)
	if answer != flow.NATChosen || other.Port/flowstate.BlockSize != e.Port/flowstate.BlockSize {
		t.Errorf("%d of another block than %d, answer %d", other.Port, e.Port, answer)
	}
	next.step(t, t.Context())
	after := claimsIn(t, st)
	if len(after) != 1 || after[0].CreateRevision != before[0].CreateRevision || after[0].Lease == before[0].Lease {
		t.Errorf("claims %+v, before %+v: want the same under another lease", after, before)
	}
}

func claimsIn(t *testing.T, st store.Store) []store.KV {
	t.Helper()
	kvs, _, err := st.List(t.Context(), schema.StatePrefix)
	if err != nil {
		t.Fatal(err)
	}
	return kvs
}

// TestLostClaim: a host whose claims have vanished from the store claims its blocks again, except
// where another host was faster.
func TestLostClaim(t *testing.T) {
	t.Parallel()
	st := memory(t)
	a, b := started(t, st, "h1"), started(t, st, "h2")
	r := request(1024, 1087)
	if _, answer := a.connect(t, t.Context(), r, 1); answer != flow.NATChosen {
		t.Fatal(answer)
	}
	lose := func() *snapshot.Snapshot {
		t.Helper()
		s := a.replica.Snapshot()
		rev, err := st.Commit(t.Context(), nil, []store.Op{{Key: schema.StatePrefix + "h1/", DeletePrefix: true}})
		if err == nil {
			_, err = a.replica.At(t.Context(), rev)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	lose()
	a.step(t, t.Context())
	if got := claimsIn(t, st); len(got) != 1 || a.Held() != 1 {
		t.Fatalf("claims %v, %d blocks held", got, a.Held())
	}
	s := lose()
	if _, answer := b.connect(t, t.Context(), r, 1); answer != flow.NATChosen {
		t.Fatal(answer)
	}
	a.step(t, t.Context())
	if a.Held() != 0 {
		t.Error("a block is held that is another host's")
	}
	for e := range s.All(schema.NATBlocks.Name()) {
		a.Changed(&snapshot.Changed{Source: schema.NATBlocks.Name(), ID: e.ID, Old: e.Record}, a.replica.Snapshot())
	}
	a.step(t, t.Context())
	if got := claimsIn(t, st); len(got) != 1 || b.Held() != 1 {
		t.Errorf("claims %v", got)
	}
}

func TestUnusedBlocksAreReleased(t *testing.T) {
	t.Parallel()
	st := memory(t)
	a := started(t, st, "h1")
	if _, answer := a.connect(t, t.Context(), request(1024, 1151), 1); answer != flow.NATChosen {
		t.Fatal(answer)
	}
	upkeep := func(now time.Duration, held int) {
		t.Helper()
		a.now = now
		a.releaseUnused()
		a.step(t, t.Context())
		if got := claimsIn(t, st); a.Held() != held || len(got) != held {
			t.Errorf("at %v: %d blocks held, claims %v; want %d", now, a.Held(), got, held)
		}
	}
	upkeep(releaseAfter, 1) // in use
	a.nats.Expire(releaseAfter)
	upkeep(2*releaseAfter-1, 1)
	upkeep(2*releaseAfter, 0)
	if len(a.pools) != 0 {
		t.Errorf("pools are left: %v", a.pools)
	}
}

// TestFreshBlocksFirst: blocks that hosts let go are leased again when there are no others, that
// released first before the others.
func TestFreshBlocksFirst(t *testing.T) {
	t.Parallel()
	st := memory(t)
	a := started(t, st, "h1")
	r := request(64, 255) // three blocks
	if _, answer := a.Choose(r); answer != flow.NATWaiting {
		t.Fatal(answer)
	}
	p := a.pools[address{router, translated}]
	p.released[1], p.released[3] = 2*time.Second, time.Second
	var order []uint16
	for range 3 {
		p.wanted = true
		a.step(t, t.Context())
		order = append(order, p.held[len(p.held)-1].number)
	}
	if !slices.Equal(order, []uint16{2, 3, 1}) {
		t.Errorf("leased in the order %v", order)
	}
}

func TestEchoIDsAreKept(t *testing.T) {
	t.Parallel()
	a := started(t, memory(t), "h1")
	r := request(1024, 65535)
	r.Proto, r.DstPort, r.Keep = 1, 0, 7 // below the ports of the rule
	ping := func() uint16 {
		t.Helper()
		b, answer := a.Choose(r)
		if answer == flow.NATWaiting {
			a.step(t, t.Context())
			b, answer = a.Choose(r)
		}
		if answer != flow.NATChosen {
			t.Fatal(answer)
		}
		return b.Port
	}
	if got := ping(); got != 7 {
		t.Errorf("id 7 became %d", got)
	}
	// Another machine with the same id: the first one's is held for it.
	if got := ping(); got == 7 || got < 1024 {
		t.Errorf("id 7 was given twice, or %d is out of the range", got)
	}
	r.Dst = netip.MustParseAddr("198.51.100.3")
	if got := ping(); got != 7 {
		t.Errorf("id 7 to another destination became %d", got)
	}
}

// TestNextBlockIsLeasedEarly: a block that is half in use begins the lease of the next, and so on
// up to the largest reserve, so that no packet waits.
func TestNextBlockIsLeasedEarly(t *testing.T) {
	t.Parallel()
	a := started(t, memory(t), "h1")
	r := request(1024, 65535)
	waited, passes := 0, 0
	for i := range 1000 {
		if _, answer := a.Peek(r); answer == flow.NATWaiting {
			waited++
		}
		if _, answer := a.connect(t, t.Context(), r, uint16(i)); answer != flow.NATChosen {
			t.Fatal(answer)
		}
		if p := a.pools[address{router, translated}]; p.wanted {
			a.step(t, t.Context())
			passes++
		}
	}
	if most := (1000+mostSpare)/flowstate.BlockSize + 1; waited != 1 || a.Held() < most-1 || a.Held() > most || passes > most {
		t.Errorf("%d packets waited, %d blocks for 1000 connections, %d leases", waited, a.Held(), passes)
	}
}

// TestShareOfSource: one source gets half of an address's ports for a destination and no more, and
// so half of its blocks; other sources get the rest, on other hosts too.
func TestShareOfSource(t *testing.T) {
	t.Parallel()
	st := memory(t)
	a, b := started(t, st, "h1"), started(t, st, "h2")
	const first, ports = 1024, 4 * 64
	client := uint16(0)
	connect := func(on *agent, source string, dst byte, want flow.NATAnswer) {
		t.Helper()
		r := request(first, first+ports-1)
		r.Src, r.Dst = netip.MustParseAddr(source), netip.AddrFrom4([4]byte{198, 51, 100, dst})
		client++
		if _, answer := on.connect(t, t.Context(), r, client); answer != want {
			t.Fatalf("connection %d, from %s to .%d: answer %d, want %d", client, source, dst, answer, want)
		}
	}
	for range ports / 2 {
		connect(a, "10.0.0.1", 2, flow.NATChosen)
	}
	connect(a, "10.0.0.1", 2, flow.NATShareUsed)
	if a.Held() > 3 {
		t.Errorf("one source leased %d blocks of 4", a.Held())
	}
	connect(a, "10.0.0.1", 3, flow.NATChosen)
	connect(a, "10.0.0.2", 2, flow.NATChosen)
	connect(b, "10.0.0.3", 2, flow.NATChosen)
}

func TestPeekLeavesNothing(t *testing.T) {
	t.Parallel()
	a := started(t, memory(t), "h1")
	r := request(1024, 1087)
	if _, answer := a.Peek(r); answer != flow.NATWaiting || len(a.pools) != 0 {
		t.Errorf("answer %d, %v", answer, a.pools)
	}
	if _, answer := a.connect(t, t.Context(), r, 1); answer != flow.NATChosen {
		t.Fatal(answer)
	}
	a.now += time.Minute
	for range 100 {
		if _, answer := a.Peek(r); answer != flow.NATChosen {
			t.Fatal(answer)
		}
	}
	if _, answer := a.Choose(r); answer != flow.NATChosen || len(a.holds) != 1 {
		t.Errorf("answer %d, held %v", answer, a.holds)
	}
	a.now += holdFor
	if _, answer := a.Choose(r); answer != flow.NATChosen || len(a.holds) != 1 || len(a.order) != 1 {
		t.Errorf("answer %d, held %v", answer, a.holds)
	}
}

// TestStoreAway: without a store packets wait, and the blocks there serve on.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	st := &failing{Store: memory(t)}
	a := started(t, st, "h1")
	if _, answer := a.connect(t, t.Context(), request(1024, 65535), 1); answer != flow.NATChosen {
		t.Fatal(answer)
	}
	st.away.Store(true)
	if _, answer := a.connect(t, t.Context(), request(1024, 65535), 2); answer != flow.NATChosen {
		t.Error(answer)
	}
	r := request(1024, 65535)
	r.Device = "33333333-3333-4333-8333-333333333333"
	if _, answer := a.Choose(r); answer != flow.NATWaiting {
		t.Error(answer)
	}
	if err := a.pass(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("pass: %v", err)
	}
	st.away.Store(false)
	if _, answer := a.connect(t, t.Context(), r, 1); answer != flow.NATChosen {
		t.Error(answer)
	}
}

// TestStoreBack: however long the store was away, a packet that waits has a port within two seconds
// of its return.
func TestStoreBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &failing{Store: memory(t)}
		st.away.Store(true)
		a := started(t, st, "h1")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		r := request(1024, 65535)
		if _, answer := a.Choose(r); answer != flow.NATWaiting {
			t.Fatalf("answer %d without a store", answer)
		}
		time.Sleep(5 * time.Minute) // on the bubble's clock
		if _, answer := a.Choose(r); answer != flow.NATWaiting {
			t.Fatalf("answer %d without a store", answer)
		}
		st.away.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, answer := a.Choose(r); answer != flow.NATChosen {
			t.Errorf("answer %d with the store back", answer)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

type failing struct {
	store.Store
	away atomic.Bool
}

func (f *failing) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	if f.away.Load() {
		return 0, fmt.Errorf("test: %w", store.ErrUnavailable)
	}
	return f.Store.Commit(ctx, conds, ops)
}

func TestWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number, first, last := rapid.Uint16Range(0, blocksOfAddress-1).Draw(t, "block"), rapid.Uint16().Draw(t, "first"), rapid.Uint16().Draw(t, "last")
		got, want := within(number, first, last), uint64(0)
		for i := range flowstate.BlockSize {
			if port := int(number)*flowstate.BlockSize + i; port >= int(first) && port <= int(last) {
				want |= 1 << i
			}
		}
		if got != want {
			t.Fatalf("ports %#x of block %d in %d–%d, want %#x", got, number, first, last, want)
		}
		for n := range bits.OnesCount64(got) {
			if bit := nth(got, n); got>>bit&1 == 0 || bits.OnesCount64(got&(1<<bit-1)) != n {
				t.Fatalf("bit %d of %#x is at %d", n, got, bit)
			}
		}
	})
}
