package overlay

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// addressSet is an address group that a fleet's agents have.
type addressSet struct {
	*fleet
	id     string
	blocks map[int]*neutron.AddressBlock
}

// useAddressSet makes an address group, and ports of a security group that lets its members in.
func (f *fleet) useAddressSet(ports, members int) *addressSet {
	f.lab.t.Helper()
	s := &addressSet{fleet: f, id: "ag", blocks: map[int]*neutron.AddressBlock{}}
	b := translate.AddressGroup(&neutron.AddressGroup{Standard: neutron.Standard{ID: s.id}})
	f.lab.put(topology.Owner{Kind: "address-group", ID: s.id}, &b)
	for i := range members {
		s.add(netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(16 + i>>16), byte(i >> 8), byte(i)}), 32))
	}
	for _, block := range s.blocks {
		s.put(block)
	}
	n := f.lab.networkAt("many", "10.8.0.0/16")
	rule := allow("ingress", "IPv4", "", 0)
	rule.RemoteAddressGroupID = s.id
	g := f.lab.group(rule)
	for i := range ports {
		a := netip.AddrFrom4([4]byte{10, 8, byte(1 + i>>8), byte(i)})
		p := &neutron.Port{
			Standard: neutron.Standard{ID: fmt.Sprint("port-", i)}, NetworkID: n.net.ID, AdminStateUp: true, PortSecurityEnabled: true,
			MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 8, byte(i >> 8), byte(i)}, SecurityGroups: []string{g.ID},
			FixedIPs: []neutron.FixedIP{{SubnetID: n.v4.ID, IPAddress: a}},
		}
		b := translate.Port(p, &n.net, []*neutron.SecurityGroup{g})
		f.lab.put(topology.Owner{Kind: "port", ID: p.ID}, &b)
	}
	return s
}

// add adds a member to its block, which it returns.
func (s *addressSet) add(p netip.Prefix) *neutron.AddressBlock {
	n := neutron.BlockOf(p)
	b := s.blocks[n]
	if b == nil {
		b = &neutron.AddressBlock{GroupID: s.id, Number: n}
		s.blocks[n] = b
	}
	at, _ := slices.BinarySearchFunc(b.Addresses, p, neutron.ComparePrefixes)
	b.Addresses = slices.Insert(b.Addresses, at, p)
	return b
}

func (s *addressSet) put(block *neutron.AddressBlock) {
	b := translate.AddressBlock(block)
	s.lab.put(topology.Owner{Kind: "address-block", ID: schema.AddressBlockID(s.id, block.Number)}, &b)
}

// addOne commits one more member, and returns the times until half of the agents had it, and all.
func (s *addressSet) addOne(t testing.TB, i int) (half, last time.Duration) {
	t.Helper()
	p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	s.newest.Store(&p)
	s.put(s.add(p))
	return s.arrived(t, time.Now())
}

// TestAddressReachesAllAgents: each agent's world gets each member once.
func TestAddressReachesAllAgents(t *testing.T) {
	t.Parallel()
	s := newFleet(t, 10).useAddressSet(20, 500)
	for i := range 20 {
		s.addOne(t, i)
	}
	if len(s.at) > 0 {
		t.Errorf("members came again %d times", len(s.at))
	}
}

// TestMembersUnderTraffic: when an address leaves an address group, the connections from it stop,
// and no other flow. When it is back it is let in.
func TestMembersUnderTraffic(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	out, in := allow("egress", "IPv4", "", 0), allow("ingress", "IPv4", "tcp", 80)
	in.RemoteAddressGroupID = "ag"
	client, server := l.group(out), l.group(out, in)
	b := translate.AddressGroup(&neutron.AddressGroup{Standard: neutron.Standard{ID: "ag"}})
	l.put(topology.Owner{Kind: "address-group", ID: "ag"}, &b)
	l.start()
	a, other, s := n.machine(l.hosts[0], client), n.machine(l.hosts[0], client), n.machine(l.hosts[1], server)
	n.machine(l.hosts[1], server) // another user of the group
	s.listen("tcp", 80)
	members := func(machines ...*machine) {
		block := &neutron.AddressBlock{GroupID: "ag"}
		for _, m := range machines {
			block.Addresses = append(block.Addresses, netip.PrefixFrom(m.v4, 32))
		}
		b := translate.AddressBlock(block)
		l.put(topology.Owner{Kind: "address-block", ID: "ag/00"}, &b)
	}
	works := func(c net.Conn, timeout time.Duration) bool { return exchange(c, 10, timeout) == nil }
	members(a, other)
	var one, two net.Conn
	l.wait("members to be let in", func() bool {
		var err error
		if one, err = a.dial(s.v4, 80, short); err != nil {
			return false
		}
		two, err = other.dial(s.v4, 80, short)
		return err == nil && works(one, short) && works(two, short)
	})
	stopped := l.hosts[0].agent.engine.count.invalidations.Load()
	members(other)
	l.wait("one that has left to be refused", func() bool { return !works(one, short) })
	if n := l.hosts[0].agent.engine.count.invalidations.Load() - stopped; n != 1 {
		t.Errorf("the flows of %d ports or addresses were stopped, want those of one address", n)
	}
	if !works(two, 5*time.Second) {
		t.Error("the connection of the member that stays stands still")
	}
	members(a, other)
	l.wait("one that is back to be let in", func() bool {
		again, err := a.dial(s.v4, 80, short)
		if err != nil {
			return false
		}
		defer again.Close()
		return works(again, short)
	})
}

// BenchmarkAddressReachesAgents measures the time from a commit that adds a member to an address
// group of 10,000, which 1,000 ports use, until all agents have it: the median of all rounds, and
// the worst, and the processor's time for each agent, etcd included. It must not depend on the size
// of the group or the number of its ports. The goal is 10 ms for the last agent.
//
//	go test ./internal/overlay -run '^$' -bench AddressReachesAgents -benchtime 100x
func BenchmarkAddressReachesAgents(b *testing.B) {
	for _, c := range []struct{ agents, ports, members int }{
		{1, 1000, 10_000}, {10, 1000, 10_000}, {100, 1000, 10_000}, {10, 10, 100},
	} {
		b.Run(fmt.Sprintf("%d agents, %d ports, %d members", c.agents, c.ports, c.members), func(b *testing.B) {
			s := newFleet(b, c.agents).useAddressSet(c.ports, c.members)
			s.addOne(b, 1<<16) // when it is there, so is all before it
			runtime.GC()
			var lasts []time.Duration
			began := processorTime(b)
			for n := 0; b.Loop(); n++ {
				_, last := s.addOne(b, n)
				lasts = append(lasts, last)
			}
			used := processorTime(b) - began
			slices.Sort(lasts)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(lasts[len(lasts)/2]), "ms-all")
			b.ReportMetric(ms(lasts[len(lasts)-1]), "ms-all-worst")
			b.ReportMetric(float64(used.Microseconds())/float64(len(lasts)*c.agents), "cpu-µs/agent")
			b.ReportMetric(0, "ns/op")
		})
	}
}
