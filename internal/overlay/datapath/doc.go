// Package datapath is the part of the overlay that lives in the kernel: eBPF programs on the host end of every workload
// interface and on the underlay, a cache of flows, tunnels, and the way up for packets the cache cannot decide
// (dataplane-lab §1, midonet-simulation §1, §13–15).
//
//	workload ──► from_workload ── flow known ──► workload (redirect_peer) or underlay (own VXLAN header)
//	                   │ not known, too big, not cacheable
//	                   ▼
//	           ring buffer, or tap for frames above UpcallBytes ──► Run's handler ── Install, Send
//	                                                                                    │ tap, with instructions
//	underlay ──► from_underlay ── tunnel key known ──► workload          from_agent ◄───┘
//	                   ├── StateKey ──► ring buffer
//	                   └── what only the kernel's vxlan device can unpack ──► from_vxlan ──► workload
//
// What must hold:
//   - A flow acts only while every tag it carries has the epoch it was installed with, so a change of topology stops any
//     number of flows with one write (Bump), and a flow decided on an old snapshot never acts at all.
//   - A port or tunnel number is never given twice: flows of a former owner cannot match or deliver.
//   - Nothing from a workload ever reaches the host's own stack. What does not parse goes up or is dropped and counted.
//   - Everything is pinned: forwarding goes on while no agent runs, and Open adopts what it finds.
//
// An agent uses it like this:
//
//	d, err := datapath.Open(datapath.Options{Name: host})        // adopts what an earlier agent left
//	d.AttachUnderlay("eth0", localTunnelIP)                      // again after each start: replaces programs in place
//	t, err := d.SetTunnel(datapath.TunnelPath{…})                // per remote host; keyed by Remote
//	p, err := d.AttachPort(portID, "tap1", datapath.PortOptions{TunnelKey: k, MTU: 1450})
//	go d.Run(ctx, handle)                                        // handle(*Upcall), one at a time, fair between ports
//	tags := d.Tags(datapath.SlotOf(a), datapath.SlotOf(b))       // before the snapshot
//	key, ok := datapath.KeyOf(u.Port, u.Frame)
//	n, err := d.Install([]datapath.Flow{{Key: key, Out: datapath.Output{Port: q}, Tags: tags}})
//	err = d.Send(datapath.Output{Port: q}, u.Frame, u.Offload)   // also to tunnels, also frames the agent built
//	err = d.SendState(t, message)
//	d.Bump(datapath.SlotOf(a))
//	err = d.Dump(func(datapath.FlowState) bool), d.Delete(keys…), d.Counters(), d.Ports(), d.DetachPort(name)
//	conns, err := d.Table("connections", keySize, valueSize, max) // pinned key→value bytes that survive a restart
//	d.Close()                                                    // lets go; forwarding goes on
//	datapath.Cleanup(opts)                                       // takes away everything Open ever made
package datapath
