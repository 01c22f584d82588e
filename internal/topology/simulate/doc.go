// Package simulate decides what happens to a packet that enters the virtual network: it walks it
// through ports, filters, bridges and routers (midonet-simulation.md) and returns where it goes and
// with which headers, or what dropped it and why. The agent installs the decisions as flows; traces
// are the same walk, explained.
//
// A [World] is the topology as a graph of pointers, kept current by [World.Apply] with one bundle
// per Neutron object. A [Simulator] walks packets through it, one in each goroutine; see the
// example.
//
// What must hold:
//   - The caller guards the world: any number of Run at once, or one Apply, LearnMAC, ForgetMAC….
//   - A cacheable decision stands until a later change of the world returns one of d.Touched. An
//     agent therefore reads the epochs of all tags before Run, under the same lock, and bumps
//     those of what is affected. Decisions of an earlier World, before a restart, must be
//     simulated again.
//   - The state is only read. The caller stores d.NewConns, d.NewNATs and d.FirstFrag, and sends
//     them to the hosts of d.Outputs before the packet leaves. [Memory] is a State for callers
//     without their own.
//   - The world depends on what was applied, never on the order.
//
// The package is pure: no clock, no goroutine, no I/O. It never panics on a packet or a topology.
package simulate
