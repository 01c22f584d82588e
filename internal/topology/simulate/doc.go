// Package simulate decides what happens to a packet that enters the virtual network: it walks it through ports,
// filters and bridges (midonet-simulation.md) and says where it goes, or who dropped it and why. The agent installs the
// decisions as flows; traces, live or offline, are the same walk, explained.
//
// A [World] is the topology as a graph of pointers, kept current by [World.Apply] with one bundle per Neutron object.
// A [Simulator] walks packets through it:
//
//	w := simulate.NewWorld(simulate.Options{})
//	affected := w.Apply(topology.Owner{Kind: "network", ID: id}, bundle) // nil bundle: the object is gone
//	s := simulate.NewSimulator(w)                                       // one for each goroutine
//	d := s.Run(simulate.Input{PortID: port, Frame: frame, State: state})
//	switch d.Verdict { … }
//
// What must hold:
//   - The caller guards the world: any number of Run at once, or one Apply, LearnMAC, ForgetMAC….
//   - A decision that is kept (d.Cacheable) stands until one of d.Touched is among the ids that a later change of the
//     world returns. An agent therefore reads the epochs of the ports before Run, under the same lock, and bumps those of
//     the affected ports. Decisions taken in an earlier World (before a restart) are unknown to this one: simulate their
//     packets again before relying on its word.
//   - The state is only read. The caller stores d.NewConns and d.FirstFrag, and tells them, before the packet leaves,
//     to the hosts of d.Outputs. [Memory] is a State for callers that have no other.
//   - The world depends on what was applied, never on the order.
//
// The package is pure: no clock, no goroutine, no I/O. Nothing in it panics on what a packet or a topology may hold.
package simulate
