// Package bgp is the BGP agent of one host: a speaker (gobgp) that announces this host's blocks and
// workloads to peers, and installs their routes in the kernel (spec calico.md §12;
// docs/architecture.md draws it; docs/guides/bgp.md is for operators).
//
//	store ──feed──▶ plan ──▶ speaker ◀──sessions──▶ peers
//	                  │        ▲  │ best paths
//	kernel ──events──▶│ local  │  ▼
//	main table        └────────┴─ routes ──▶ kernel: learned routes over next hop or tunnel,
//	                                                 blackholes of own blocks
//
// What holds:
//   - Other programs' routes in the kernel are never touched: the speaker's have a protocol number
//     and a metric of their own (hostnet.ProtocolBGP), and none goes where another program has one.
//   - A changed session, filter or route disturbs no other session.
//   - When the agent ends, in whatever way, its routes stay, and peers with graceful restart keep
//     theirs. An agent that starts deletes a route only when each peer has announced all it has, or
//     the restart time is over.
//   - Without the store the agent goes on with its last plan.
//
// gobgp keeps settings in variables of its package, so a process runs one speaker.
package bgp
