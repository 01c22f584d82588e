package overlay

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/netlab"
	"heddle/internal/topology"
)

// balancedPath gives a machine a second address, and makes it both members of a pool behind a VIP.
func (l *lab) balancedPath(name string, client, server *machine, second string, b *balanced) netlab.Path {
	l.t.Helper()
	server.MustIP(l.t, "addr add "+second+"/32 dev eth0")
	at := netip.MustParseAddr(second)
	b.vip.ProtocolPort = 8080
	for _, a := range []netip.Addr{server.v4, at} {
		b.members = append(b.members, &poolMember{machine: server,
			record: topology.PoolMember{ID: uuid.NewString(), PoolID: b.pool.ID, AdminStateUp: true, Status: topology.MemberMonitored, Address: a, ProtocolPort: 8080, Weight: 1}})
	}
	b.base.Neighbours = append(b.base.Neighbours, topology.NeighbourEntry{NetworkID: server.net.net.ID, IP: at, MAC: server.port.MACAddress})
	b.put()
	return netlab.Path{Name: name, Client: client.Namespace, Server: server.Namespace, Address: netip.IPv4Unspecified(), Dialed: b.vip.Address, Port: 8080}
}

// BenchmarkBalancer compares the way through a VIP, of both versions and on one host, with a direct
// veth pair, with a host that balances by nftables, and with haproxy in TCP mode, in turns: the
// medians of the ratios of neighbouring slices (services §14, rows 1 to 4).
func BenchmarkBalancer(b *testing.B) {
	l := newLab(b, 1)
	l.hosts[0].options.MaxFlows = 0
	r := l.routed()
	l.start()
	h := l.hosts[0]
	outside := r.external.machine(h)
	server1, client2, server2 := r.machine(h), r.machine(h), r.machine(h)
	v1 := l.balancer(r.router.ID, netip.MustParseAddr("192.0.2.80"), 8080)
	v1.base.Neighbours = []topology.NeighbourEntry{{NetworkID: r.external.net.ID, IP: v1.vip.Address, MAC: r.gateway.Port.MACAddress}}
	paths := []netlab.Path{
		l.balancedPath("v1", outside, server1, "10.0.0.201", v1),
		l.balancedPath("v2", client2, server2, "10.0.0.202", r.private.balancer2("10.0.0.100")),
	}
	for _, build := range []func(*netlab.Lab) (netlab.Path, error){netlab.DirectPath, netlab.BalancedPath} {
		p, err := build(netlab.ForTest(b))
		if err != nil {
			b.Fatal(err)
		}
		paths = append(paths, p)
	}
	proxied, stop, err := netlab.ProxiedPath(netlab.ForTest(b))
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	l.applied()
	for _, p := range append(slices.Clone(paths), proxied) {
		l.wait("packets by "+p.Name, func() bool {
			_, _, err := p.Connects(1)
			return err == nil
		})
	}
	const v1Path, v2Path, direct, nft = 0, 1, 2, 3
	b.ResetTimer()
	for range b.N {
		f, err := netlab.Compare(b.Context(), paths, netlab.CompareOptions{Slices: 20})
		if err != nil {
			b.Fatal(err)
		}
		trips := func(of, than int) float64 { return netlab.Ratios(f[of].RoundTrips, f[than].RoundTrips).Median }
		b.ReportMetric(trips(v1Path, direct), "v1-round-trips/veth")
		b.ReportMetric(trips(v2Path, direct), "v2-round-trips/veth")
		b.ReportMetric(trips(v1Path, nft), "v1-round-trips/nft")
		b.ReportMetric(trips(v2Path, nft), "v2-round-trips/nft")
		b.ReportMetric(netlab.Ratios(f[v1Path].Bits, f[nft].Bits).Median, "v1-bits/nft")
		b.ReportMetric(netlab.Ratios(f[v2Path].Bits, f[nft].Bits).Median, "v2-bits/nft")
		rates, err := netlab.Alternate(b.Context(), []netlab.Path{paths[v1Path], paths[nft], proxied}, 20, func(p netlab.Path) (float64, error) {
			_, rate, err := p.ConnectsFor(250 * time.Millisecond)
			return rate, err
		})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(netlab.Ratios(rates[0], rates[1]).Median, "v1-connects/nft")
		b.ReportMetric(netlab.Ratios(rates[0], rates[2]).Median, "v1-connects/haproxy")
		b.ReportMetric(median(slices.Clone(rates[0])), "v1-connects/s")
	}
}
