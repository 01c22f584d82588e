package datapath

import "fmt"

// Counters holds the counts of the programs since their maps were made; they survive a restart.
type Counters struct {
	TunnelledIn uint64            // frames from other hosts for a port here
	Upcalls     uint64            // frames given to the agent, state messages not counted
	Answered    uint64            // questions about neighbours that the programs answered
	Copies      uint64            // copies of frames sent for mirrors by flows
	PhysicalIn  uint64            // frames from physical networks, to many or to a home here
	VTEPIn      uint64            // VXLAN packets for VTEPs of the virtual network, unpacked by flows
	VTEPOut     uint64            // frames that its VTEPs packed
	Drops       map[string]uint64 // frames dropped, by reason
}

// dropReasons lists the drops of enum counter in bpf/maps.h: all but its first two and its last
// five.
func dropReasons() []string {
	return []string{
		"the flow says so", "no such port", "no such tunnel", "unknown tunnel key", "bad tunnel header",
		"too many upcalls of its port", "too many upcalls in all", "ring full", "refused by the kernel", "bad instruction",
		"tunnelled by an unknown host", "wrong tunnel secret", "tunnelled by a host without port in the network", "tunnelled and not from the underlay",
		"tunnelled in the clear though encrypted, or the other way round",
		"copy of a frame to many: too many from a physical network", "copy of a frame to many: too large", "VLAN tag of no subport",
		"over its limit of rate", "copy for a mirror: not taken",
	}
}

// Counters reads the programs' counters.
func (d *Datapath) Counters() (Counters, error) {
	reasons := dropReasons()
	c := Counters{Drops: make(map[string]uint64, len(reasons))}
	for i := range 2 + len(reasons) + 5 {
		var perCPU []uint64
		if err := d.maps.Counters.Lookup(uint32(i), &perCPU); err != nil {
			return c, fmt.Errorf("read counter %d: %w", i, err)
		}
		var sum uint64
		for _, n := range perCPU {
			sum += n
		}
		switch i {
		case 0:
			c.TunnelledIn = sum
		case 1:
			c.Upcalls = sum
		case 2 + len(reasons):
			c.Copies = sum
		case 2 + len(reasons) + 1:
			c.Answered = sum
		case 2 + len(reasons) + 2:
			c.PhysicalIn = sum
		case 2 + len(reasons) + 3:
			c.VTEPIn = sum
		case 2 + len(reasons) + 4:
			c.VTEPOut = sum
		default:
			c.Drops[reasons[i-2]] = sum
		}
	}
	c.Drops["malformed state message"] = d.malformed.Load()
	return c, nil
}
