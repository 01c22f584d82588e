package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/calico/ipam"
	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// world is an etcd with an IPAM on host h1.
type world struct {
	*ipam.IPAM
	client   *client.Client
	etcd     *clientv3.Client
	endpoint string
}

// start runs an etcd that forgets with the machine, with pools.
func start(t testing.TB, pools ...string) world {
	t.Helper()
	s := open(t, &backend.Embedded{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Tick: 10 * time.Millisecond, NoFsync: true})
	w := connect(t, s.Endpoint())
	for _, p := range pools {
		w.pool(t, p, nil)
	}
	return w
}

func open(t testing.TB, o *backend.Embedded) *backend.Etcd {
	t.Helper()
	s, err := backend.Open(t.Context(), backend.Options{Embedded: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func connect(t testing.TB, endpoint string) world {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	return world{etcd: etcd, endpoint: endpoint}.another(t)
}

// another returns an IPAM of another process.
func (w world) another(t testing.TB) world {
	t.Helper()
	c, err := client.New(client.Options{Endpoints: []string{w.endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	i, err := ipam.New(c, ipam.Options{Host: "h1"})
	if err != nil {
		t.Fatal(err)
	}
	return world{i, c, w.etcd, w.endpoint}
}

// pool puts a pool that is enabled, unless change makes it another one.
func (w world) pool(t testing.TB, cidr string, change func(*calico.Pool)) {
	t.Helper()
	p := &calico.Pool{CIDR: netip.MustParsePrefix(cidr), IPAM: true}
	if change != nil {
		change(p)
	}
	if _, err := w.client.Apply(t.Context(), calico.PoolKey{CIDR: p.CIDR}, p); err != nil {
		t.Fatal(err)
	}
}

// put writes as peers do.
func (w world) put(t testing.TB, path, value string) {
	t.Helper()
	if _, err := w.etcd.Put(t.Context(), path, value); err != nil {
		t.Fatal(err)
	}
}

// assign assigns addresses to a host, exactly as many as asked for.
func (w world) assign(t testing.TB, n int, host, handle string) []netip.Addr {
	t.Helper()
	got, _, err := w.AutoAssign(t.Context(), ipam.Request{Num4: n, Host: host, Handle: handle})
	if err != nil || len(got) != n {
		t.Fatalf("assign %d on %s: %d, %v", n, host, len(got), err)
	}
	return got
}

// blocks returns all blocks, as "CIDR host used".
func (w world) blocks(t testing.TB) []string {
	t.Helper()
	u, err := w.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, b := range u.Blocks {
		out = append(out, fmt.Sprint(b.CIDR, " ", b.Host, " ", b.Assigned))
	}
	return out
}

// sound checks that nothing contradicts the rules, but what is expected.
func (w world) sound(t testing.TB, expected ...string) {
	t.Helper()
	problems, err := w.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Error("problems:", diff)
	}
}

func ip(text string) netip.Addr     { return netip.MustParseAddr(text) }
func cidr(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func TestAutoAssignFillsOwnBlocksThenClaimsThenBorrows(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/25") // two blocks
	first := w.assign(t, 1, "a", "x")
	own := calico.BlockOf(first[0])
	if got := w.assign(t, 63, "a", "x"); slices.ContainsFunc(got, func(a netip.Addr) bool { return !own.Contains(a) }) {
		t.Errorf("not all of block %s: %v", own, got)
	}
	other := calico.BlockOf(w.assign(t, 1, "b", "y")[0])
	if other == own {
		t.Error("b takes from a's block while another could be claimed")
	}
	borrowed := w.assign(t, 2, "a", "z")
	if calico.BlockOf(borrowed[0]) != other {
		t.Errorf("a borrows %v, want of %s", borrowed, other)
	}
	got, _, err := w.AutoAssign(t.Context(), ipam.Request{Num4: 100, Host: "c"})
	if err != nil || len(got) != 61 {
		t.Errorf("the rest: %d, %v; want 61 and no error", len(got), err)
	}
	if got, _, err = w.AutoAssign(t.Context(), ipam.Request{Num4: 1, Host: "a"}); err != nil || len(got) != 0 {
		t.Errorf("of a full pool: %v, %v", got, err)
	}
	want := []string{own.String() + " a 64", other.String() + " b 64"}
	slices.Sort(want)
	if diff := cmp.Diff(want, w.blocks(t)); diff != "" {
		t.Error(diff)
	}
	w.sound(t)
}

// Exhausted blocks are left behind with what they had, and nothing that was obtained is lost (spec
// 19.1, 19.2).
func TestAutoAssignOverManyBlocks(t *testing.T) {
	t.Parallel()
	w := connect(t, storetest.PlainEtcd(t))
	w.pool(t, "10.0.0.0/16", nil)
	w.pool(t, "fd00::/64", nil)
	ctx := t.Context()
	ipv4, ipv6, err := w.AutoAssign(ctx, ipam.Request{Num4: 5000, Num6: 200, Handle: "many", Attributes: map[string]string{"a": "b"}})
	if err != nil || len(ipv4) != 5000 || len(ipv6) != 200 {
		t.Fatalf("%d, %d, %v", len(ipv4), len(ipv6), err)
	}
	all := slices.Concat(ipv4, ipv6)
	slices.SortFunc(all, netip.Addr.Compare)
	if n := len(slices.Compact(slices.Clone(all))); n != 5200 {
		t.Errorf("%d different addresses, want 5200", n)
	}
	found, err := w.IPsByHandle(ctx, "many")
	if err != nil || !slices.Equal(found, all) {
		t.Errorf("by handle: %d, %v", len(found), err)
	}
	w.sound(t)
	free := append(slices.Clone(all[:2500]), ip("10.0.255.255"), ip("192.0.2.1"))
	if not, err := w.ReleaseIPs(ctx, free...); err != nil || !slices.Equal(not, []netip.Addr{ip("10.0.255.255"), ip("192.0.2.1")}) {
		t.Errorf("release: %v, %v", not, err)
	}
	w.sound(t)
	if err := w.ReleaseByHandle(ctx, "many"); err != nil {
		t.Error(err)
	}
	if err := w.ReleaseByHandle(ctx, "many"); !errors.Is(err, ipam.ErrUnknownHandle) {
		t.Errorf("second release: %v", err)
	}
	if _, err := w.IPsByHandle(ctx, "many"); !errors.Is(err, ipam.ErrUnknownHandle) {
		t.Errorf("addresses of what is gone: %v", err)
	}
	w.sound(t)
	if err := w.ReleaseHostAffinities(ctx, ""); err != nil {
		t.Error(err)
	}
	if left := w.blocks(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.sound(t)
}

func TestStrictAffinity(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/25")
	ctx := t.Context()
	if err := w.SetConfig(ctx, calico.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true}); err != nil {
		t.Fatal(err)
	}
	a := w.assign(t, 10, "a", "")
	w.assign(t, 64, "b", "")
	got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1, Host: "b"})
	if err != nil || len(got) != 0 {
		t.Errorf("b gets %v, %v of a's strict block", got, err)
	}
	if err := w.AssignIP(ctx, ipam.Assignment{IP: a[9].Next(), Host: "b"}); !errors.Is(err, ipam.ErrStrict) {
		t.Errorf("b is assigned an address of a's strict block: %v", err)
	}
	if err := w.AssignIP(ctx, ipam.Assignment{IP: a[9].Next(), Host: "a"}); err != nil {
		t.Error(err)
	}
	w.sound(t)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24")
	ctx := t.Context()
	if c, err := w.GetConfig(ctx); err != nil || c.StrictAffinity || !c.AutoAllocateBlocks {
		t.Errorf("default: %+v, %v", c, err)
	}
	if err := w.SetConfig(ctx, calico.IPAMConfig{}); !errors.Is(err, ipam.ErrConfig) {
		t.Errorf("both false: %v", err)
	}
	// What peers leave out is false; unknown members stay.
	w.put(t, "/calico/ipam/v2/config", `{"strict_affinity":true,"x":1}`)
	if c, err := w.GetConfig(ctx); err != nil || !c.StrictAffinity || c.AutoAllocateBlocks {
		t.Errorf("a peer's: %+v, %v", c, err)
	}
	if got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1}); err != nil || len(got) > 0 {
		t.Errorf("without blocks, and none made: %v, %v", got, err)
	}
	if err := w.SetConfig(ctx, calico.IPAMConfig{AutoAllocateBlocks: true}); err != nil {
		t.Fatal(err)
	}
	if c, err := w.GetConfig(ctx); err != nil || c.StrictAffinity || !c.AutoAllocateBlocks || c.Unknown == nil {
		t.Errorf("set: %+v, %v", c, err)
	}
	w.assign(t, 1, "", "")
	if err := w.SetConfig(ctx, calico.IPAMConfig{AutoAllocateBlocks: true}); err != nil {
		t.Errorf("the same: %v", err)
	}
	if err := w.SetConfig(ctx, calico.IPAMConfig{StrictAffinity: true}); !errors.Is(err, ipam.ErrBlocksExist) {
		t.Errorf("while there are blocks: %v", err)
	}
}

func TestPools(t *testing.T) {
	t.Parallel()
	w := start(t)
	ctx := t.Context()
	request := func(pools ...string) error {
		r := ipam.Request{Num4: 1, Host: "h"}
		for _, p := range pools {
			r.Pools4 = append(r.Pools4, cidr(p))
		}
		_, _, err := w.AutoAssign(ctx, r)
		return err
	}
	if err := request(); !errors.Is(err, ipam.ErrNoPool) {
		t.Errorf("no pool: %v", err)
	}
	w.pool(t, "10.0.0.0/24", nil)
	w.pool(t, "10.0.1.0/24", nil)
	w.pool(t, "10.0.2.0/24", func(p *calico.Pool) { p.Disabled = true })
	w.pool(t, "10.0.3.0/24", func(p *calico.Pool) { p.IPAM = false })
	w.pool(t, "fd00::/120", nil)
	w.put(t, "/calico/v1/ipam/v4/pool/10.0.4.0-24", "{")
	// Named pools that are disabled or not for IPAM are skipped; with none left there is no pool.
	for _, idle := range []string{"10.0.2.0/24", "10.0.3.0/24"} {
		got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1, Host: "idle", Pools4: []netip.Prefix{cidr(idle), cidr("10.0.1.0/24")}})
		if err != nil || len(got) != 1 || !cidr("10.0.1.0/24").Contains(got[0]) {
			t.Errorf("pool %s and one that is enabled: %v, %v", idle, got, err)
		}
		if err := request(idle); !errors.Is(err, ipam.ErrNoPool) {
			t.Errorf("pool %s alone: %v", idle, err)
		}
		if _, err := w.ReleaseIPs(ctx, got...); err != nil {
			t.Error(err)
		}
	}
	if err := w.ReleaseHostAffinities(ctx, "idle"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"10.0.4.0/24", "10.9.0.0/24", "fd00::/120"} {
		if err := request("10.0.0.0/24", bad); !errors.Is(err, ipam.ErrUnknownPool) {
			t.Errorf("pool %s: %v", bad, err)
		}
	}
	got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 300, Host: "h", Pools4: []netip.Prefix{cidr("10.0.1.0/24"), cidr("10.0.0.0/24")}})
	if err != nil || len(got) != 300 || !cidr("10.0.1.0/24").Contains(got[255]) || !cidr("10.0.0.0/24").Contains(got[256]) {
		t.Errorf("in the order named: %d, %v", len(got), err)
	}
	// IPv4 failing stops IPv6.
	ipv4, ipv6, err := w.AutoAssign(ctx, ipam.Request{Num4: 1, Num6: 1, Pools4: []netip.Prefix{cidr("10.9.0.0/24")}})
	if err == nil || len(ipv4)+len(ipv6) > 0 {
		t.Errorf("IPv4 fails: %v, %v, %v", ipv4, ipv6, err)
	}
	if _, ipv6, err = w.AutoAssign(ctx, ipam.Request{Num6: 3}); err != nil || len(ipv6) != 3 || !cidr("fd00::/120").Contains(ipv6[0]) {
		t.Errorf("IPv6: %v, %v", ipv6, err)
	}
	w.sound(t, "/calico/v1/ipam/v4/pool/10.0.4.0-24: it cannot be read: "+unreadable(t, w))
}

// unreadable returns the model's error for "{" as a pool.
func unreadable(t testing.TB, w world) string {
	t.Helper()
	_, err := calico.Decode(calico.PoolKey{CIDR: cidr("10.0.4.0/24")}, []byte("{"))
	return err.Error()
}

func TestDisabledPoolIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24", "10.0.1.0/24")
	first := w.assign(t, 1, "h", "")[0]
	of := cidr("10.0.0.0/24")
	if !of.Contains(first) {
		of = cidr("10.0.1.0/24")
	}
	w.pool(t, of.String(), func(p *calico.Pool) { p.Disabled = true })
	// The host's block is there still, and remembered.
	if got := w.assign(t, 1, "h", ""); of.Contains(got[0]) {
		t.Errorf("%s is of the disabled pool", got[0])
	}
	if err := w.AssignIP(t.Context(), ipam.Assignment{IP: first.Next(), Host: "h"}); !errors.Is(err, ipam.ErrNotInPool) {
		t.Errorf("an address of the disabled pool: %v", err)
	}
}

func TestDeletePool(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24", "fd00::/64")
	ctx := t.Context()
	got := w.assign(t, 65, "h", "x")
	if err := w.DeletePool(ctx, cidr("10.0.0.0/24")); err != nil {
		t.Fatal(err)
	}
	if err := w.DeletePool(ctx, cidr("10.0.0.0/24")); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
	if _, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1, Host: "h"}); !errors.Is(err, ipam.ErrNoPool) {
		t.Errorf("assign: %v", err)
	}
	if blocks := w.blocks(t); len(blocks) != 2 || strings.Contains(strings.Join(blocks, ""), "h") {
		t.Errorf("blocks: %q, want two of nobody", blocks)
	}
	// Addresses outlive the pool, and can be released; the blocks go with the last of them.
	if not, err := w.ReleaseIPs(ctx, got...); err != nil || len(not) > 0 {
		t.Errorf("release: %v, %v", not, err)
	}
	if blocks := w.blocks(t); len(blocks) > 0 {
		t.Errorf("left: %q", blocks)
	}
	w.sound(t)
}

func TestAssignIP(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24", "fd00::/64")
	ctx := t.Context()
	one := ipam.Assignment{IP: ip("10.0.0.64"), Host: "a", Handle: "x", Attributes: map[string]string{"k": "v"}}
	if err := w.AssignIP(ctx, one); err != nil { // the network address of its block
		t.Fatal(err)
	}
	if err := w.AssignIP(ctx, one); !errors.Is(err, ipam.ErrAssigned) {
		t.Errorf("again: %v", err)
	}
	if err := w.AssignIP(ctx, ipam.Assignment{IP: ip("10.0.0.127"), Host: "b", Handle: "x"}); err != nil { // borrowed
		t.Error(err)
	}
	if err := w.AssignIP(ctx, ipam.Assignment{IP: ip("::ffff:10.0.0.100")}); err != nil {
		t.Error("an IPv4 address in IPv6 dress:", err)
	}
	if err := w.AssignIP(ctx, ipam.Assignment{IP: ip("fd00::ffff"), Handle: "x"}); err != nil {
		t.Error(err)
	}
	for _, bad := range []netip.Addr{ip("192.0.2.1"), {}, ip("fe80::1%eth0")} {
		if err := w.AssignIP(ctx, ipam.Assignment{IP: bad}); !errors.Is(err, ipam.ErrNotInPool) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if attributes, err := w.GetAssignmentAttributes(ctx, one.IP); err != nil || attributes["k"] != "v" {
		t.Errorf("attributes: %v, %v", attributes, err)
	}
	if handle, err := w.HandleOf(ctx, one.IP); err != nil || handle != "x" {
		t.Errorf("handle: %v, %v", handle, err)
	}
	if _, err := w.GetAssignmentAttributes(ctx, ip("10.0.0.65")); !errors.Is(err, ipam.ErrNotAssigned) {
		t.Errorf("attributes of a free one: %v", err)
	}
	want := []netip.Addr{ip("10.0.0.64"), ip("10.0.0.127"), ip("fd00::ffff")}
	if got, err := w.IPsByHandle(ctx, "x"); err != nil || !slices.Equal(got, want) {
		t.Errorf("by handle: %v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"10.0.0.64/26 a 3", "fd00::ffc0/122 h1 1"}, w.blocks(t)); diff != "" {
		t.Error(diff)
	}
	w.sound(t)
}

func TestReleaseIPs(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24")
	ctx := t.Context()
	got := w.assign(t, 10, "h", "x")
	// Several of one handle in one call (spec 19.3), one of them twice, and some that are not
	// assigned.
	not, err := w.ReleaseIPs(ctx, got[0], got[1], got[2], got[2], got[9].Next(), ip("10.0.0.5"), ip("192.0.2.1"), ip("fd00::1"))
	if err != nil || slices.Contains(not, got[2]) || !slices.Contains(not, ip("192.0.2.1")) || !slices.Contains(not, ip("fd00::1")) || !slices.Contains(not, got[9].Next()) {
		t.Errorf("not assigned: %v, %v", not, err)
	}
	h, _, err := client.Get[*calico.Handle](ctx, w.client, calico.HandleKey{Handle: "x"})
	if err != nil || h.Block[calico.BlockOf(got[0])] != 7 {
		t.Errorf("handle: %+v, %v; want 7", h, err)
	}
	// Those released come last again.
	next := w.assign(t, 1, "h", "y")[0]
	if next != got[9].Next() {
		t.Errorf("next is %s, want %s", next, got[9].Next())
	}
	w.assign(t, 53, "h", "y")
	if again := w.assign(t, 1, "h", "y")[0]; again != got[0] {
		t.Errorf("after all others %s, want %s", again, got[0])
	}
	w.sound(t)
}

func TestAttributesAreShared(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24")
	ctx := t.Context()
	for range 3 {
		for _, a := range []map[string]string{nil, {"k": "v"}, {"k": "w"}} {
			if _, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1, Host: "h", Handle: "x", Attributes: a}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, err := w.client.List(ctx, calico.BlockKey{})
	if err != nil || len(s.Entries) != 1 {
		t.Fatal(s, err)
	}
	b := s.Entries[0].Object.(*calico.Block)
	if len(b.Attributes) != 3 {
		t.Errorf("%d attribute entries, want 3", len(b.Attributes))
	}
	// The entry in the middle goes, and those behind it are renumbered.
	var gone []netip.Addr
	for i := range 9 {
		if i%3 == 1 {
			a := b.CIDR.Addr()
			for range i {
				a = a.Next()
			}
			gone = append(gone, a)
		}
	}
	if not, err := w.ReleaseIPs(ctx, gone...); err != nil || len(not) > 0 {
		t.Fatal(not, err)
	}
	if a, err := w.GetAssignmentAttributes(ctx, b.CIDR.Addr().Next().Next()); err != nil || a["k"] != "w" {
		t.Errorf("attributes: %v, %v", a, err)
	}
	w.sound(t)
}

func TestAffinities(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/23")
	ctx := t.Context()
	claimed, failed, err := w.ClaimAffinity(ctx, cidr("10.0.0.0/25"), "a")
	if err != nil || len(claimed) != 2 || len(failed) != 0 {
		t.Errorf("claim: %v, %v, %v", claimed, failed, err)
	}
	claimed, failed, err = w.ClaimAffinity(ctx, cidr("10.0.0.0/24"), "b")
	if err != nil || len(claimed) != 2 || !slices.Equal(failed, []netip.Prefix{cidr("10.0.0.0/26"), cidr("10.0.0.64/26")}) {
		t.Errorf("claim of some that are taken: %v, %v, %v", claimed, failed, err)
	}
	if claimed, _, err = w.ClaimAffinity(ctx, cidr("10.0.0.0/26"), "a"); err != nil || len(claimed) != 1 {
		t.Errorf("claim of what is ours: %v, %v", claimed, err)
	}
	for _, bad := range []netip.Prefix{cidr("10.0.0.0/27"), cidr("10.0.0.0/8"), cidr("192.0.2.0/26"), {}} {
		if _, _, err := w.ClaimAffinity(ctx, bad, "a"); err == nil {
			t.Errorf("claim of %v succeeds", bad)
		}
	}
	if err := w.AssignIP(ctx, ipam.Assignment{IP: ip("10.0.0.70"), Host: "a", Handle: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := w.ReleaseAffinity(ctx, cidr("10.0.0.0/24"), "a"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"10.0.0.64/26  1", "10.0.0.128/26 b 0", "10.0.0.192/26 b 0"}, w.blocks(t)); diff != "" {
		t.Error("release:", diff)
	}
	if err := w.RemoveIPAMHost(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"10.0.0.64/26  1"}, w.blocks(t)); diff != "" {
		t.Error("remove host:", diff)
	}
	// An address of a block that nobody has stays assigned; with it the block goes.
	if err := w.ReleaseByHandle(ctx, "x"); err != nil || len(w.blocks(t)) != 0 {
		t.Errorf("release: %v, blocks %v", err, w.blocks(t))
	}
	if claimed, failed, err = w.ClaimAffinity(ctx, cidr("10.0.0.0/23"), ""); err != nil || len(claimed) != 8 || len(failed) > 0 {
		t.Errorf("claim for this host: %v, %v, %v", claimed, failed, err)
	}
	w.sound(t)
	if err := w.ReleasePoolAffinities(ctx, cidr("10.0.0.0/23")); err != nil || len(w.blocks(t)) != 0 {
		t.Errorf("release of the pool's: %v, blocks %v", err, w.blocks(t))
	}
	w.sound(t)
}

// What needs more operations than an etcd takes at once, as it comes, is several transactions.
func TestManyOperationsAreSeveralTransactions(t *testing.T) {
	t.Parallel()
	w := connect(t, storetest.PlainEtcd(t))
	w.pool(t, "10.0.0.0/16", nil)
	claimed, failed, err := w.ClaimAffinity(t.Context(), cidr("10.0.0.0/17"), "a")
	if err != nil || len(claimed) != 512 || len(failed) != 0 {
		t.Errorf("%d, %d, %v", len(claimed), len(failed), err)
	}
	// Each address has a handle of its own.
	got := make(chan netip.Addr, 200)
	for n := range cap(got) {
		go func() {
			one, _, err := w.AutoAssign(t.Context(), ipam.Request{Num4: 1, Host: "a", Handle: fmt.Sprint("handle", n)})
			if err != nil || len(one) != 1 {
				t.Error(one, err)
				one = []netip.Addr{{}}
			}
			got <- one[0]
		}()
	}
	var all []netip.Addr
	for range cap(got) {
		all = append(all, <-got)
	}
	w.sound(t)
	if not, err := w.ReleaseIPs(t.Context(), all...); err != nil || len(not) > 0 {
		t.Errorf("release: %v, %v", not, err)
	}
	w.sound(t)
}

func TestHostNameByDefault(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24")
	w.assign(t, 1, "", "")
	if blocks := w.blocks(t); !strings.Contains(blocks[0], " h1 ") {
		t.Errorf("blocks: %q", blocks)
	}
}

func TestACancelledCallDoesNothing(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1}); !errors.Is(err, context.Canceled) || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	if blocks := w.blocks(t); len(blocks) > 0 {
		t.Errorf("blocks: %q", blocks)
	}
}
