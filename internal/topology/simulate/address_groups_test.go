package simulate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// TestAddressSetDecidesAsList: a port lets in what a group of prefixes has, which changes by
// blocks. Decisions are kept, as the agent keeps flows, until something that they touched is
// affected: each, kept or new, is what a list of the prefixes says.
func TestAddressSetDecidesAsList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		l := newLab()
		l.network("net")
		l.port(machine(1, "web"))
		l.group("web", allowFrom("friends", "ag", packet.TypeIPv4))
		sender := machine(2)
		sender.open = true
		l.port(sender)

		blocks := map[int][]netip.Prefix{}
		type decision struct {
			in      bool
			touched []string
		}
		kept := map[netip.Addr]decision{}
		apply := func(kind, id string, b *topology.Bundle) {
			affected := l.Apply(owner(kind, id), b)
			maps.DeleteFunc(kept, func(_ netip.Addr, d decision) bool {
				return slices.ContainsFunc(d.touched, func(id string) bool { return slices.Contains(affected, id) })
			})
		}
		source := rapid.Custom(func(rt *rapid.T) netip.Addr {
			return netip.AddrFrom4([4]byte{192, byte(rapid.IntRange(0, 1).Draw(rt, "b")), byte(rapid.IntRange(0, 3).Draw(rt, "c")), rapid.Byte().Draw(rt, "d")})
		})
		lets := func(a netip.Addr) bool {
			for _, list := range blocks {
				if slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) }) {
					return true
				}
			}
			return false
		}
		var asked []netip.Addr
		check := func() {
			for _, a := range asked {
				d, known := kept[a]
				if !known {
					run := l.send("p2", tcpFrom(a))
					d = decision{run.Verdict == flow.Forward, slices.Clone(run.Touched)}
					kept[a] = d
				}
				if d.in != lets(a) {
					rt.Fatalf("%v gets in: %v (kept: %v), the list says %v: %v", a, d.in, known, lets(a), blocks)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) { asked = append(asked, source.Draw(rt, "source")) },
			"block": func(rt *rapid.T) {
				n := rapid.IntRange(0, 2).Draw(rt, "block")
				set := topology.MemberSet{GroupID: "ag"}
				for range rapid.IntRange(0, 3).Draw(rt, "members") {
					p := netip.PrefixFrom(source.Draw(rt, "member"), rapid.IntRange(7, 32).Draw(rt, "bits")).Masked()
					if len(asked) > 0 && rapid.Bool().Draw(rt, "of one that was asked for") {
						p = netip.PrefixFrom(rapid.SampledFrom(asked).Draw(rt, "which"), rapid.IntRange(12, 32).Draw(rt, "bits")).Masked()
					}
					if !slices.Contains(set.Prefixes, p) {
						set.Prefixes = append(set.Prefixes, p)
					}
				}
				blocks[n] = set.Prefixes
				apply("address-block", fmt.Sprint("ag/", n), &topology.Bundle{MemberSets: []topology.MemberSet{set}})
			},
			"no block": func(rt *rapid.T) {
				n := rapid.IntRange(0, 2).Draw(rt, "block")
				delete(blocks, n)
				apply("address-block", fmt.Sprint("ag/", n), nil)
			},
			"define": func(*rapid.T) {
				apply("address-group", "ag", &topology.Bundle{IPAddrGroups: []topology.IPAddrGroup{{ID: "ag"}}})
			},
			"": func(*rapid.T) {
				if l.groups["ag"] != nil && l.groups["ag"].def != nil {
					check()
				}
			},
		})
	})
}

// tcpFrom is a TCP packet of machine 2 from any address to machine 1.
func tcpFrom(a netip.Addr) []byte {
	t := packet.TCP{SrcPort: 1000, DstPort: 80, Flags: packet.TCPSyn}.Append(nil, a, addr(1), nil)
	b := packet.Ethernet{Dst: mac(1), Src: mac(2), Type: packet.TypeIPv4}.Append(nil)
	return append(packet.IPv4{Proto: packet.ProtoTCP, Src: a, Dst: addr(1), TTL: 64}.Append(b, len(t)), t...)
}

// BenchmarkAddressGroup: what a packet costs by a group of ten thousand prefixes of eight lengths,
// and what one more member costs that 1,000 ports use.
//
//	go test -run '^$' -bench AddressGroup ./internal/topology/simulate
func BenchmarkAddressGroup(b *testing.B) {
	l := newLab()
	l.network("net")
	for i := range 1000 {
		l.port(machine(i, "web"))
	}
	l.group("web", allowFrom("friends", "ag", packet.TypeIPv4))
	l.Apply(owner("address-group", "ag"), &topology.Bundle{IPAddrGroups: []topology.IPAddrGroup{{ID: "ag"}}})
	blocks := make([][]netip.Prefix, 256)
	block := func(prefixes []netip.Prefix) *topology.Bundle {
		return &topology.Bundle{MemberSets: []topology.MemberSet{{GroupID: "ag", Prefixes: prefixes}}}
	}
	for i := range 10_000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, byte(i >> 8), byte(i), 128}), 25+i%8).Masked()
		blocks[i%256] = append(blocks[i%256], p)
	}
	for i, prefixes := range blocks {
		l.Apply(owner("address-block", fmt.Sprint("ag/", i)), block(prefixes))
	}
	b.Run("packet", func(b *testing.B) {
		in := Input{PortID: "p2", Frame: tcp(2, 1, 1000, 80), State: l.mem}
		for b.Loop() {
			l.sim.Run(in)
		}
	})
	for name, a := range map[string]string{"member": "198.51.100.1/32", "member-in-use": addr(2).String() + "/32"} {
		b.Run(name, func(b *testing.B) {
			less := block(blocks[0])
			more := block(append(slices.Clone(blocks[0]), netip.MustParsePrefix(a)))
			for b.Loop() {
				l.sim.Run(Input{PortID: "p2", Frame: tcp(2, 1, 1000, 80), State: l.mem})
				l.Apply(owner("address-block", "ag/0"), more)
				l.Apply(owner("address-block", "ag/0"), less)
			}
		})
	}
}
