package bgp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/bgp/plan"
	"heddle/internal/hostnet"
)

var (
	block      = netip.MustParsePrefix("10.0.0.0/26")
	remote     = netip.MustParsePrefix("10.0.1.0/26")
	workload   = netip.MustParsePrefix("10.0.0.1/32")
	hopA, hopB = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
)

// ribWith returns a rib in its first life, with sessions with both hops, a block of its own, and a
// link to the hops.
func ribWith(t *testing.T, tunnels ...plan.Tunnel) *rib {
	t.Helper()
	r := newRIB()
	if d := r.settle(); d.exports != nil {
		t.Fatalf("decides without a plan: %+v", d)
	}
	r.setTable([]hostnet.Link{{Index: 2, Name: "eth0"}, {Index: 3, Name: "cali1"}}, nil)
	r.setPlan(&plan.Plan{Blackholes: []netip.Prefix{block}, Tunnels: tunnels, WorkloadPrefixes: []string{"cali"},
		Sessions: []plan.Session{{Peer: hopA}, {Peer: hopB}},
		Export:   map[plan.Family]plan.Filter{plan.IPv4: {{Set: plan.Set{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Min: 8, Max: 32}}, Accept: true}}}})
	r.begin()
	return r
}

// announced has peers announce the way to a destination.
func announced(r *rib, dst netip.Prefix, hops ...netip.Addr) {
	r.announce([]netip.Prefix{dst}, map[netip.Prefix][]netip.Addr{dst: hops}, nil)
}

// resolve gives all unresolved hops a way over eth0.
func resolve(r *rib) {
	ways := map[netip.Addr]hostnet.Path{}
	for _, hop := range r.unresolved() {
		ways[hop] = hostnet.Path{Gateway: hop, Link: "eth0"}
	}
	r.setWays(ways)
}

// wantKernel settles, and compares the routes to set and those to remove.
func wantKernel(t *testing.T, r *rib, want ...string) {
	t.Helper()
	resolve(r)
	d := r.settle()
	var got []string
	for _, x := range d.set {
		text := x.Dst.String()
		for _, p := range x.Paths {
			text += " " + p.Gateway.String() + "@" + p.Link
		}
		got = append(got, text)
	}
	for _, dst := range d.unset {
		got = append(got, "no "+dst.String())
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the kernel gets\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func tableEvent(dst netip.Prefix, link int, removed bool) hostnet.TableEvent {
	return hostnet.TableEvent{Route: hostnet.Route{Dst: dst, Protocol: 3}, LinkIndex: link, Removed: removed}
}

// TestRIBLearns takes what peers announce and withdraw.
func TestRIBLearns(t *testing.T) {
	t.Parallel()
	r := ribWith(t)
	wantKernel(t, r, "10.0.0.0/26")
	announced(r, remote, hopA, hopB)
	wantKernel(t, r, "10.0.1.0/26 192.0.2.1@eth0 192.0.2.2@eth0")
	announced(r, remote, hopB)
	wantKernel(t, r, "10.0.1.0/26 192.0.2.2@eth0")
	announced(r, remote)
	wantKernel(t, r, "no 10.0.1.0/26")
	announced(r, netip.MustParsePrefix("127.0.0.0/8"), hopA)
	wantKernel(t, r, "no 127.0.0.0/8")
}

// TestRIBTunnel routes by a tunnel, and without it once the plan has none.
func TestRIBTunnel(t *testing.T) {
	t.Parallel()
	r := ribWith(t, plan.Tunnel{Pool: netip.MustParsePrefix("10.0.0.0/8"), Device: "tunl0"})
	announced(r, remote, hopA)
	wantKernel(t, r, "10.0.0.0/26", "10.0.1.0/26 192.0.2.1@tunl0")
	p := *r.plan
	p.Tunnels, p.Blackholes = nil, nil
	r.setPlan(&p)
	wantKernel(t, r, "10.0.1.0/26 192.0.2.1@eth0", "no 10.0.0.0/26")
}

// TestRIBRestart keeps the routes of an earlier life until all peers have announced theirs.
func TestRIBRestart(t *testing.T) {
	t.Parallel()
	r := ribWith(t)
	other := netip.MustParsePrefix("10.0.2.0/26")
	announced(r, remote, hopA)
	announced(r, other, hopB)
	wantKernel(t, r, "10.0.0.0/26", "10.0.1.0/26 192.0.2.1@eth0", "10.0.2.0/26 192.0.2.2@eth0")
	r.restarted = true
	r.begin()
	announced(r, remote, hopA)
	r.announce(nil, nil, map[netip.Addr]bool{hopA: true})
	wantKernel(t, r, "10.0.1.0/26 192.0.2.1@eth0")
	if r.converged {
		t.Fatal("converged without B")
	}
	r.keepSessions(map[netip.Addr]plan.Session{hopA: {Peer: hopA}}) // B is no peer any more
	wantKernel(t, r, "no 10.0.2.0/26")
	if !r.converged || r.restarted {
		t.Error("not converged, though all peers have announced all")
	}
}

// TestRIBOfOthers leaves destinations to other programs' routes, and exports those on links.
func TestRIBOfOthers(t *testing.T) {
	t.Parallel()
	r := ribWith(t)
	announced(r, remote, hopA)
	r.kernelEvent(tableEvent(remote, 2, false))
	wantKernel(t, r, "10.0.0.0/26", "no 10.0.1.0/26")
	r.kernelEvent(tableEvent(remote, 2, true))
	wantKernel(t, r, "10.0.1.0/26 192.0.2.1@eth0")
	r.kernelEvent(tableEvent(workload, 3, false))
	if d := r.settle(); !d.exports[workload] {
		t.Errorf("the workload is not exported: %v", d.exports)
	}
	all := r.exports(map[netip.Prefix]bool{remote: true})
	if want := map[netip.Prefix]bool{block: true, workload: true, remote: false}; len(all) != 3 || all[block] != want[block] || !all[workload] || all[remote] {
		t.Errorf("exports %v, want %v", all, want)
	}
}

// TestRIBWays drops hops without a way, and notices when ways change.
func TestRIBWays(t *testing.T) {
	t.Parallel()
	r := ribWith(t)
	announced(r, remote, hopA, hopB)
	wantKernel(t, r, "10.0.0.0/26", "10.0.1.0/26 192.0.2.1@eth0 192.0.2.2@eth0")
	r.setWays(map[netip.Addr]hostnet.Path{hopA: {}, hopB: {Gateway: hopB, Link: "eth0"}})
	wantKernel(t, r, "10.0.1.0/26 192.0.2.2@eth0")
	own := tableEvent(remote, 2, false)
	own.Route.Protocol = hostnet.ProtocolBGP
	if !r.kernelEvent(own) {
		t.Error("a route of the speaker may lead to a hop without a way")
	}
	r.setWays(map[netip.Addr]hostnet.Path{hopA: {Gateway: hopA, Link: "eth1"}})
	wantKernel(t, r, "10.0.1.0/26 192.0.2.1@eth1 192.0.2.2@eth0")
	if r.kernelEvent(own) {
		t.Error("all hops have ways")
	}
	if !r.kernelEvent(hostnet.TableEvent{Link: "eth1", LinkIndex: 4}) || r.kernelEvent(hostnet.TableEvent{Link: "eth2", LinkIndex: 5}) {
		t.Error("a link counts if a hop is reached over it")
	}
}
