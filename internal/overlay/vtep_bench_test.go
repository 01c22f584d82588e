package overlay

import (
	"net/netip"
	"testing"

	"heddle/internal/netlab"
)

// kernelVTEP joins a workload to a vxlan device of another namespace by the kernel's means: a
// bridge with a vxlan device on the workload's host.
func kernelVTEP(b *testing.B) netlab.Path {
	b.Helper()
	l := netlab.ForTest(b)
	client, host, peer := l.MustNamespace(b, "client"), l.MustNamespace(b, "host"), l.MustNamespace(b, "peer")
	l.MustVeth(b, host, "client", client, "eth0")
	l.MustVeth(b, host, "under", peer, "under")
	client.MustIP(b, "addr add 10.0.0.1/24 dev eth0", "link set eth0 mtu 1400")
	host.MustIP(b, "addr add 192.0.2.1/24 dev under", "link add vx0 type vxlan id 77 dstport 4789 local 192.0.2.1 remote 192.0.2.2 dev under noudpcsum",
		"link add br0 type bridge", "link set client master br0", "link set vx0 master br0", "link set vx0 up", "link set br0 up")
	peer.MustIP(b, "addr add 192.0.2.2/24 dev under", "link add vx0 type vxlan id 77 dstport 4789 local 192.0.2.2 remote 192.0.2.1 dev under noudpcsum",
		"link set vx0 mtu 1400 up", "addr add 10.0.0.2/24 dev vx0")
	return netlab.Path{Name: "bridge + vxlan", Client: client, Server: peer, Address: netip.MustParseAddr("10.0.0.2")}
}

// BenchmarkVTEP compares the way by a VTEP of the virtual network to a vxlan device of the kernel
// with that by a bridge and another vxlan device, in turns: the medians of the ratios of
// neighbouring slices (services §14, row 9).
func BenchmarkVTEP(b *testing.B) {
	l := newLab(b, 1)
	l.hosts[0].options.MaxFlows = 0
	l.start()
	v := l.routed().vtep("l2")
	outside, m := v.external.machine(l.hosts[0]), v.net.machine(l.hosts[0])
	m.MustIP(b, "link set eth0 mtu 1400")
	v.peer(outside, "10.0.0.200", 1400)
	paths := []netlab.Path{
		{Name: "VTEP", Client: m.Namespace, Server: outside.Namespace, Address: netip.MustParseAddr("10.0.0.200")},
		kernelVTEP(b),
	}
	for _, p := range paths {
		l.wait("packets by "+p.Name, func() bool {
			_, _, err := p.Connects(1)
			return err == nil
		})
	}
	b.ResetTimer()
	for range b.N {
		f, err := netlab.Compare(b.Context(), paths, netlab.CompareOptions{Slices: 20})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(netlab.Ratios(f[0].RoundTrips, f[1].RoundTrips).Median, "round-trips/vxlan")
		b.ReportMetric(netlab.Ratios(f[0].Datagrams, f[1].Datagrams).Median, "datagrams/vxlan")
		b.ReportMetric(netlab.Ratios(f[0].Bits, f[1].Bits).Median, "bits/vxlan")
	}
}
