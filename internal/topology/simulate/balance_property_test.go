package simulate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"

	"pgregory.net/rapid"
)

// The pools of balanced worlds: routed worlds with a load balancer on router r, or two.
var (
	balancedOwners = []topology.Owner{{Kind: "base", ID: "0"}, {Kind: "listener", ID: "1"}, {Kind: "listener", ID: "2"}, {Kind: "load-balancer", ID: "1"}, {Kind: "member", ID: "1"},
		{Kind: "member", ID: "2"}, {Kind: "pool", ID: "1"}, {Kind: topology.ContainerOwner, ID: "c"}}
	balancedIDs  = []string{"1", "2"}
	balancedVIPs = []netip.Addr{ip("10.0.0.100"), ip("10.0.1.100")}
)

// balancedWorld begins with a load balancer that works, unless rules of the router are in its way.
func balancedWorld(t *rapid.T) *World {
	w := routedWorld(t)
	record := func(id string, at netip.Addr) topology.PoolMember {
		return topology.PoolMember{ID: id, PoolID: "1", AdminStateUp: true, Status: topology.MemberMonitored, Address: at, ProtocolPort: 80, Weight: 1}
	}
	b := &topology.Bundle{
		LoadBalancers:  []topology.LoadBalancer{{ID: "1", RouterID: "r", AdminStateUp: true, ServiceContainerID: "c"}},
		HealthMonitors: []topology.HealthMonitor{{ID: "1", AdminStateUp: true}},
		Pools:          []topology.Pool{{ID: "1", LoadBalancerID: "1", AdminStateUp: true, Protocol: topology.BalanceTCP, HealthMonitorID: "1"}},
		PoolMembers:    []topology.PoolMember{record("1", routedAddrs[2]), record("2", routedAddrs[3])},
	}
	for i, at := range balancedVIPs {
		b.Vips = append(b.Vips, topology.Vip{ID: balancedIDs[i], LoadBalancerID: "1", PoolID: "1", AdminStateUp: true, Address: at, Protocol: topology.BalanceTCP, ProtocolPort: 80})
	}
	w.Apply(rapid.SampledFrom(balancedOwners[1:]).Draw(t, "owner of all"), b)
	for range rapid.IntRange(0, 3).Draw(t, "first") {
		genBalancedChange().Draw(t, "change").apply(w)
	}
	return w
}

func genBalancedBundle() *rapid.Generator[*topology.Bundle] {
	return rapid.Custom(func(t *rapid.T) *topology.Bundle {
		b := &topology.Bundle{}
		id := rapid.SampledFrom(balancedIDs)
		up := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) > 0 }
		proto := func(name string) string {
			if up(name) {
				return topology.BalanceTCP
			}
			return topology.BalanceUDP
		}
		persistence := rapid.SampledFrom([]string{"", "", topology.PersistSourceIP})
		if up("lb") {
			b.LoadBalancers = append(b.LoadBalancers, topology.LoadBalancer{ID: id.Draw(t, "lb id"), RouterID: rapid.SampledFrom([]string{"r", "r", "s"}).Draw(t, "router"), AdminStateUp: up("lb up"), ServiceContainerID: rapid.SampledFrom([]string{"", "c"}).Draw(t, "container")})
		}
		if up("monitor") {
			b.HealthMonitors = append(b.HealthMonitors, topology.HealthMonitor{ID: id.Draw(t, "monitor id"), AdminStateUp: true})
		}
		for range rapid.IntRange(0, 2).Draw(t, "pools") {
			b.Pools = append(b.Pools, topology.Pool{ID: id.Draw(t, "pool id"), LoadBalancerID: id.Draw(t, "pool lb"), AdminStateUp: up("pool up"), Protocol: proto("pool proto"),
				LBMethod:           rapid.SampledFrom([]string{topology.MethodRoundRobin, topology.MethodSourceIP, topology.MethodSourceIPPort, topology.MethodLeastConnections}).Draw(t, "method"),
				SessionPersistence: persistence.Draw(t, "pool persistence"), PersistenceBits: rapid.SampledFrom([]int{0, 24}).Draw(t, "bits"), HealthMonitorID: rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "pool monitor")})
		}
		for range rapid.IntRange(0, 2).Draw(t, "members") {
			b.PoolMembers = append(b.PoolMembers, topology.PoolMember{ID: id.Draw(t, "member id"), PoolID: rapid.SampledFrom([]string{"", "1", "1", "2"}).Draw(t, "member pool"), AdminStateUp: up("member up"),
				Status:  rapid.SampledFrom([]string{topology.MemberActive, topology.MemberInactive, topology.MemberMonitored}).Draw(t, "status"),
				Address: rapid.SampledFrom(append(slices.Clone(routedAddrs[1:4]), balancedVIPs[0])).Draw(t, "address"), ProtocolPort: rapid.Uint16Range(80, 81).Draw(t, "port"),
				Weight: rapid.IntRange(0, 3).Draw(t, "weight"), Backup: !up("backup")})
		}
		for range rapid.IntRange(0, 2).Draw(t, "vips") {
			v := topology.Vip{ID: id.Draw(t, "vip id"), LoadBalancerID: rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "vip lb"), PoolID: rapid.SampledFrom([]string{"", "1", "1", "2"}).Draw(t, "vip pool"),
				AdminStateUp: up("vip up"), Address: rapid.SampledFrom(balancedVIPs).Draw(t, "vip address"), Protocol: proto("vip proto"), ProtocolPort: rapid.Uint16Range(80, 81).Draw(t, "vip port"),
				SessionPersistence: persistence.Draw(t, "vip persistence")}
			if !up("allowed") {
				v.AllowedSources = []netip.Prefix{prefix("10.0.1.0/24")}
			}
			b.Vips = append(b.Vips, v)
		}
		return b
	})
}

func genBalancedChange() *rapid.Generator[change] {
	return rapid.Custom(func(t *rapid.T) change {
		o := rapid.SampledFrom(balancedOwners[1:]).Draw(t, "owner")
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			return change{fmt.Sprintf("%v gone", o), func(w *World) []string { return w.Apply(o, nil) }}
		case 1, 2:
			host, id := rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "host"), rapid.SampledFrom(balancedIDs).Draw(t, "member")
			var h *topology.MemberHealth
			if rapid.Bool().Draw(t, "known") {
				h = &topology.MemberHealth{MemberID: id, HostID: host, Status: rapid.SampledFrom([]string{topology.MemberActive, topology.MemberInactive}).Draw(t, "status"),
					Since: time.Unix(rapid.Int64Range(0, 3).Draw(t, "since"), 0)}
			}
			return change{fmt.Sprintf("health %s by %s %+v", id, host, h), func(w *World) []string { return w.ApplyMemberHealth(host, id, h) }}
		case 3:
			b := &topology.Bundle{ServiceContainers: []topology.ServiceContainer{{ID: "c", FormerHostIDs: rapid.SampledFrom([][]string{nil, {"h1"}, {"h2", "h1"}}).Draw(t, "former")}},
				Ports: []topology.Port{{ID: "hc", HostID: rapid.SampledFrom([]string{"", "h1", "h2"}).Draw(t, "host of container")}}}
			return change{fmt.Sprintf("container %+v", *b), func(w *World) []string { return w.Apply(topology.Owner{Kind: topology.ContainerOwner, ID: "c"}, b) }}
		}
		b := genBalancedBundle().Draw(t, "bundle")
		return change{fmt.Sprintf("%v %+v", o, *b), func(w *World) []string { return w.Apply(o, b) }}
	})
}

func balancedProbes() map[string][]byte {
	all := map[string][]byte{}
	for n, src := range map[int]netip.Addr{1: routedAddrs[1], 2: routedAddrs[2], 3: routedAddrs[3]} {
		to := min(n, 2)
		for i, at := range balancedVIPs {
			for _, port := range []uint16{80, 81} {
				s := frameSpec{n: n, to: to, src: src, dst: at}
				all[fmt.Sprint("tcp ", n, i, port)], all[fmt.Sprint("udp ", n, i, port)] = s.tcp(4000, port), s.udp(4000, port)
				s.dst = routedAddrs[1+i]
				all[fmt.Sprint("reply ", n, i, port)] = s.tcp(port, 4000)
			}
		}
	}
	return all
}

// dumpBalancers adds what a world has of load balancers.
func dumpBalancers(w *World, all map[string]string) {
	for id, b := range w.balancers {
		text := fmt.Sprintf("refs %d def %v pools", b.refs, b.def)
		for _, p := range b.pools {
			text += " " + p.id
		}
		var at []string
		for e, vips := range b.vips {
			for _, v := range vips {
				at = append(at, fmt.Sprint(e, v.id))
			}
		}
		slices.Sort(at)
		all["balancer "+id] = text + fmt.Sprint(at, b.members, b.ports)
	}
	for id, p := range w.pools {
		all["pool "+id] = fmt.Sprintf("refs %d def %v members %d vips %d at %v", p.refs, p.def, len(p.members), len(p.vips), len(p.at))
		if p.monitor != nil {
			all["pool "+id] += " monitor " + p.monitor.id
		}
	}
	for id, m := range w.members {
		all["member "+id] = fmt.Sprintf("refs %d def %v %s", m.refs, m.def, m.reported())
	}
	for id, v := range w.vips {
		all["vip "+id] = fmt.Sprintf("refs %d def %v", v.refs, v.def)
	}
	for id, m := range w.monitors {
		all["monitor "+id] = fmt.Sprintf("refs %d def %v pools %d", m.refs, m.def, len(m.pools))
	}
}

// TestChoices: whatever the pool, a new connection goes to a member that is selectable, one that is
// there stays while the member may keep it, and a client stays with its member.
func TestChoices(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, mem := balancedWorld(t), NewMemory()
		s := NewSimulator(w)
		probes := balancedProbes()
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			for _, name := range slices.Sorted(maps.Keys(probes)) {
				d := s.Run(Input{PortID: "p" + strings.Fields(name)[1][:1], Frame: probes[name], State: mem})
				for _, n := range d.NewNATs {
					if n.Kind == flow.ForwardDNAT && len(d.Opened) > 0 {
						checkChoice(t, w, mem, d, n)
					}
				}
				mem.Commit(d)
			}
			genBalancedChange().Draw(t, "change").apply(w)
		}
	})
}

// checkChoice checks the member that a decision opens a connection to.
func checkChoice(t *rapid.T, w *World, mem *Memory, d *flow.Decision, n flow.NATEntry) {
	b := w.balancers[n.Device]
	if b == nil { // a rule of NAT
		return
	}
	v := b.vipAt(endpoint{n.Dst, n.DstPort, n.Proto})
	at := v.pool.at[endpoint{n.Addr, n.Port, n.Proto}]
	sticky := v.isSticky()
	_, wasThere := mem.NAT(n.NATKey)
	_, clientWas := mem.NAT(stickyKey(v.pool, n.NATKey))
	switch {
	case len(at) == 0:
		t.Fatalf("%v: to no member of pool %s", n, v.pool.id)
	case wasThere && !slices.Contains(d.GoneNATs, n.NATKey):
		t.Fatalf("%v: it was there and is opened again", n)
	case sticky && clientWas && !slices.Contains(d.GoneNATs, stickyKey(v.pool, n.NATKey)):
		if !slices.ContainsFunc(at, func(m *member) bool { return m.keeps(true) }) {
			t.Fatalf("%v: to the client's member, which may keep nothing", n)
		}
	case !slices.ContainsFunc(at, (*member).isSelectable) || !v.pool.def.AdminStateUp:
		t.Fatalf("%v: to a member that is not selectable", n)
	}
}
