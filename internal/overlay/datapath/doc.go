// Package datapath is the part of the overlay that lives in the kernel: eBPF programs on the host
// end of every workload interface and on the underlay, a cache of flows, tunnels, and the way up
// for packets the cache cannot decide (dataplane-lab §1, midonet-simulation §1, §13–15).
//
//	workload ─► from_workload ─ flow known ─► workload (redirect_peer) or underlay (VXLAN)
//	                 │ unknown, too big, not cacheable
//	                 ▼
//	        ring buffer, or tap for long frames ─► handler of Run ─ Install, Send
//	                                                             │ tap, with instructions
//	underlay ─► from_underlay ─ tunnel key known ─► workload ◄─ from_agent
//	                 ├─ StateKey ─► ring buffer
//	                 └─ what only the vxlan device can unpack ─► from_vxlan ─► workload
//	LAN ─► from_physical ─ to a MAC address at home here, its tag off ─► as from_workload
//	                 ├─ to many: a copy ─► ring buffer
//	                 └─ all else, and frames to many ─► the host's own stack
//
// Flows of a virtual network's own VTEPs pack frames into VXLAN packets before they leave
// (Framing), and unpack such packets, of which the inner frame then comes in at the port of its VNI
// (AttachVTEP). What leaves so for another host travels in a tunnel on top.
//
// What must hold:
//   - A flow acts only while every tag it carries has the epoch it was installed with, so a change
//     of topology stops any number of flows with one write (Bump), and a flow decided on an old
//     snapshot never acts at all.
//   - A port or tunnel number is never given twice: flows of a former owner cannot match or
//     deliver.
//   - Nothing from a workload ever reaches the host's own stack. What does not parse goes up or is
//     dropped and counted.
//   - Nothing on a LAN is kept from the host's own stack but frames to the MAC addresses that this
//     host stands for there (SetHomes), each in its VLAN.
//   - Everything is pinned: forwarding goes on while no agent runs, and Open adopts what it finds.
package datapath
