package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/calico/ipam"
)

// held lists the assigned addresses by handle.
type held map[netip.Addr]string

// assigned reads from etcd what is assigned.
func (w world) assigned(t rapid.TB) held {
	s, err := w.client.List(context.Background(), calico.BlockKey{})
	if err != nil {
		t.Fatal(err)
	}
	all := held{}
	for _, b := range client.All[*calico.Block](s) {
		a := b.CIDR.Addr()
		for _, index := range b.Allocations {
			if index != nil {
				all[a] = ""
				if h := b.Attributes[*index].HandleID; h != nil {
					all[a] = *h
				}
			}
			a = a.Next()
		}
	}
	return all
}

// machine does random operations, in two processes, and knows what must come of them.
type machine struct {
	world
	processes [2]world
	held      held
	enabled   map[string]bool // by pool
	strict    bool
}

var modelPools = []string{"10.0.0.0/25", "10.0.1.0/26", "fd00::/121"}

func newMachine(t *rapid.T, w, other world) *machine {
	ctx := context.Background()
	if _, err := w.etcd.Delete(ctx, "/calico/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	m := &machine{world: w, processes: [2]world{w, other}, held: held{}, enabled: map[string]bool{}, strict: rapid.Bool().Draw(t, "strict")}
	for _, p := range modelPools {
		m.toggle(t, p)
	}
	if err := w.SetConfig(ctx, calico.IPAMConfig{StrictAffinity: m.strict, AutoAllocateBlocks: true}); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) toggle(t *rapid.T, pool string) {
	p := netip.MustParsePrefix(pool)
	m.enabled[pool] = !m.enabled[pool]
	if _, err := m.client.Apply(context.Background(), calico.PoolKey{CIDR: p}, &calico.Pool{CIDR: p, IPAM: true, Disabled: !m.enabled[pool]}); err != nil {
		t.Fatal(err)
	}
}

// poolOf returns the enabled pool of an address; "" when there is none.
func (m *machine) poolOf(a netip.Addr) string {
	for p, on := range m.enabled {
		if on && netip.MustParsePrefix(p).Contains(a) {
			return p
		}
	}
	return ""
}

// free counts the addresses of a family that can still be assigned.
func (m *machine) free(v4 bool) int {
	n := 0
	for p, on := range m.enabled {
		if pool := netip.MustParsePrefix(p); on && pool.Addr().Is4() == v4 {
			n += 1 << (pool.Addr().BitLen() - pool.Bits())
		}
	}
	for a := range m.held {
		if a.Is4() == v4 && m.poolOf(a) != "" {
			n--
		}
	}
	return n
}

var (
	hosts   = rapid.SampledFrom([]string{"h1", "h2", "h3"})
	handles = rapid.SampledFrom([]string{"", "x", "y", "z"})
	numbers = rapid.SampledFrom([]int{1, 1, 2, 5, 40, 70, 200})
)

func (m *machine) process(t *rapid.T) world {
	return m.processes[rapid.IntRange(0, 1).Draw(t, "process")]
}

// address draws one that is held, or any.
func (m *machine) address(t *rapid.T) netip.Addr {
	if len(m.held) > 0 && rapid.Bool().Draw(t, "held") {
		return rapid.SampledFrom(slices.SortedFunc(maps.Keys(m.held), netip.Addr.Compare)).Draw(t, "address")
	}
	last := rapid.IntRange(0, 255).Draw(t, "last")
	return netip.MustParseAddr(rapid.SampledFrom([]string{fmt.Sprintf("10.0.0.%d", last), fmt.Sprintf("10.0.1.%d", last), fmt.Sprintf("fd00::%x", last)}).Draw(t, "address"))
}

func (m *machine) AutoAssign(t *rapid.T) {
	r := ipam.Request{Host: hosts.Draw(t, "host"), Handle: handles.Draw(t, "handle")}
	v4 := rapid.Bool().Draw(t, "IPv4")
	n := numbers.Draw(t, "number")
	if v4 {
		r.Num4 = n
	} else {
		r.Num6 = n
	}
	free := m.free(v4)
	ipv4, ipv6, err := m.process(t).IPAM.AutoAssign(context.Background(), r)
	if errors.Is(err, ipam.ErrNoPool) {
		if v4 && (m.enabled[modelPools[0]] || m.enabled[modelPools[1]]) || !v4 && m.enabled[modelPools[2]] {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Concat(ipv4, ipv6)
	if want := min(n, free); len(got) > want || len(got) < want && !m.strict {
		t.Fatalf("%d addresses of %d, with %d free (strict: %v)", len(got), n, free, m.strict)
	}
	for _, a := range got {
		if _, twice := m.held[a]; twice || m.poolOf(a) == "" || a.Is4() != v4 {
			t.Fatalf("%s is taken (%v), in no enabled pool, or of the wrong family", a, twice)
		}
		m.held[a] = r.Handle
		if m.strict {
			m.mustBeOf(t, a, r.Host)
		}
	}
}

// mustBeOf checks that an address is of a host's own block.
func (m *machine) mustBeOf(t *rapid.T, a netip.Addr, host string) {
	b, _, err := client.Get[*calico.Block](context.Background(), m.client, calico.BlockKey{CIDR: calico.BlockOf(a)})
	if err != nil || b.Affinity != calico.HostAffinity(host) {
		t.Fatalf("%s for %s is of the block of %q, %v", a, host, b.Affinity, err)
	}
}

func (m *machine) AssignIP(t *rapid.T) {
	a := ipam.Assignment{IP: m.address(t), Host: hosts.Draw(t, "host"), Handle: handles.Draw(t, "handle")}
	err := m.process(t).IPAM.AssignIP(context.Background(), a)
	_, taken := m.held[a.IP]
	switch {
	case m.poolOf(a.IP) == "":
		if !errors.Is(err, ipam.ErrNotInPool) {
			t.Fatalf("%s outside the pools: %v", a.IP, err)
		}
	case errors.Is(err, ipam.ErrStrict) && m.strict:
	case taken:
		if !errors.Is(err, ipam.ErrAssigned) {
			t.Fatalf("%s, which is taken: %v", a.IP, err)
		}
	case err != nil:
		t.Fatalf("%s: %v", a.IP, err)
	default:
		m.held[a.IP] = a.Handle
	}
}

func (m *machine) ReleaseIPs(t *rapid.T) {
	ips := rapid.SliceOfN(rapid.Custom(m.address), 1, 8).Draw(t, "addresses")
	not, err := m.process(t).IPAM.ReleaseIPs(context.Background(), ips...)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range ips {
		_, was := m.held[a]
		if was == slices.Contains(not, a) {
			t.Fatalf("%s was held (%v), and %v were not assigned", a, was, not)
		}
	}
	for _, a := range ips {
		delete(m.held, a)
	}
}

func (m *machine) ByHandle(t *rapid.T) {
	handle := handles.Filter(func(h string) bool { return h != "" }).Draw(t, "handle")
	want := []netip.Addr{}
	for a, h := range m.held {
		if h == handle {
			want = append(want, a)
		}
	}
	slices.SortFunc(want, netip.Addr.Compare)
	got, err := m.process(t).IPsByHandle(context.Background(), handle)
	if len(want) == 0 && !errors.Is(err, ipam.ErrUnknownHandle) || len(want) > 0 && (err != nil || !slices.Equal(got, want)) {
		t.Fatalf("by handle %s: %v, %v; want %v", handle, got, err, want)
	}
	if rapid.Bool().Draw(t, "release") {
		if err := m.process(t).ReleaseByHandle(context.Background(), handle); (err == nil) != (len(want) > 0) {
			t.Fatal(err)
		}
		for _, a := range want {
			delete(m.held, a)
		}
	}
}

func (m *machine) Affinities(t *rapid.T) {
	w, host, ctx := m.process(t), hosts.Draw(t, "host"), context.Background()
	pool := rapid.SampledFrom(modelPools).Draw(t, "pool")
	p := netip.MustParsePrefix(pool)
	var err error
	switch what := rapid.SampledFrom([]string{"claim", "release", "release host", "release pool", "remove host"}).Draw(t, "what"); what {
	case "claim":
		_, _, err = w.ClaimAffinity(ctx, p, host)
		if !m.enabled[pool] && errors.Is(err, ipam.ErrNotInPool) {
			err = nil
		}
	case "release":
		err = w.ReleaseAffinity(ctx, p, host)
	case "release host":
		err = w.ReleaseHostAffinities(ctx, host)
	case "release pool":
		err = w.ReleasePoolAffinities(ctx, p)
	case "remove host":
		err = w.RemoveIPAMHost(ctx, host)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) Toggle(t *rapid.T) { m.toggle(t, rapid.SampledFrom(modelPools).Draw(t, "pool")) }

// Check compares etcd with the model, and the parts of what is in etcd with each other.
func (m *machine) Check(t *rapid.T) {
	problems, err := m.world.Check(context.Background())
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if got := m.assigned(t); !maps.Equal(got, m.held) {
		t.Fatalf("assigned: %v\nwant %v", got, m.held)
	}
}
