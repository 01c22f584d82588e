// Package bgp is the BGP agent of one host: a speaker (gobgp) that tells peers of this host's blocks and workloads, and
// puts what it learns into the kernel (spec calico.md §12; docs/architecture.md draws it; docs/guides/bgp.md is for operators).
//
//	store ──feed──▶ plan ──▶ speaker ◀──sessions──▶ peers
//	                  │        ▲  │ best paths
//	kernel ──events──▶│ local  │  ▼
//	main table        └────────┴─ routes ──▶ kernel: learned routes over next hop or tunnel, blackholes of own blocks
//
// What holds:
//   - Routes in the kernel that are not the speaker's are never touched: its own have a protocol number and a metric that
//     nobody else has (hostnet.ProtocolBGP), and a destination that somebody else routes is left to him.
//   - A changed session, filter or route disturbs no other session.
//   - When the agent ends, however it ends, its routes stay, and peers that know of graceful restarts keep theirs. An
//     agent that starts takes a route away only when each peer has told all it has, or the restart time is over.
//   - Without the store the agent goes on with its last plan.
//
// gobgp keeps settings in variables of its package, so a process runs one speaker.
package bgp
