package simulate_test

import (
	"fmt"
	"net/netip"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// Two machines on one network, and a packet between them before and after a filter denies it.
func Example() {
	macA, macB := packet.MAC{2, 0, 0, 0, 0, 0xa}, packet.MAC{2, 0, 0, 0, 0, 0xb}
	port := func(id string, mac packet.MAC) *topology.Bundle {
		return &topology.Bundle{
			Ports:  []topology.Port{{ID: id, NetworkID: "blue", AdminStateUp: true, HostID: "h1", InterfaceName: "tap-" + id, OutboundFilterID: id + "/out"}},
			MACs:   []topology.MACEntry{{NetworkID: "blue", MAC: mac, PortID: id}},
			Chains: []topology.Chain{{ID: id + "/out"}},
		}
	}
	w := simulate.NewWorld(simulate.Options{})
	w.Apply(topology.Owner{Kind: "network", ID: "blue"}, &topology.Bundle{Networks: []topology.Network{{ID: "blue", AdminStateUp: true}}})
	w.Apply(topology.Owner{Kind: "port", ID: "a"}, port("a", macA))
	w.Apply(topology.Owner{Kind: "port", ID: "b"}, port("b", macB))

	src, dst := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")
	syn := packet.TCP{SrcPort: 4000, DstPort: 80, Flags: packet.TCPSyn}.Append(nil, src, dst, nil)
	frame := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv4}.Append(nil)
	frame = packet.IPv4{TTL: 64, Proto: packet.ProtoTCP, Src: src, Dst: dst}.Append(frame, len(syn))
	frame = append(frame, syn...)

	s, memory := simulate.NewSimulator(w), simulate.NewMemory()
	d := s.Run(simulate.Input{PortID: "a", Frame: frame, State: memory})
	memory.Commit(d)
	fmt.Println(d.Verdict, d.Outputs[0].PortID, d.Cacheable, d.Touched)

	closed := port("b", macB)
	closed.Chains[0].Rules = []topology.Rule{{ID: "r1", Type: topology.Literal, Action: topology.Drop}}
	fmt.Println("affected:", w.Apply(topology.Owner{Kind: "port", ID: "b"}, closed))

	d = s.Run(simulate.Input{PortID: "a", Frame: frame, State: memory, Explain: true})
	fmt.Println(d.Verdict, d.Device)
	fmt.Println(d.Reason)
	for _, step := range d.Walk[:2] {
		fmt.Println(" ", step.Device, step.Text)
	}
	// Output:
	// forward b true [a b]
	// affected: [b]
	// drop b
	// out filter: filter denies: chain b/out, rule 1 of 1: nothing before it accepted the packet
	//   a in: 02:00:00:00:00:0a → 02:00:00:00:00:0b, 192.0.2.10 → 192.0.2.11, TCP 4000 → 80
	//   blue MAC 02:00:00:00:00:0b is behind port b
}
