// Package overlay is the agent that makes virtual networks real on one host: it attaches to the interfaces of workloads,
// decides the packets that the kernel's flow cache cannot, and keeps cache, tunnels and what this host reports in step
// with the store (midonet-simulation §1, 5, 13–15; docs/architecture.md draws it).
//
//	store ──replica──▶ feed ──▶ world ◀── engine: missed packet ─▶ simulate ─▶ remember, tell ─▶ install ─▶ send
//	  ▲                  └─▶ attachments, underlay       ▲                        │
//	  └──presence◀── what is served, seen, answered ◀────┴── upkeep: what is used lives, the rest goes
//
// What holds:
//   - A change that the replica brings stops every flow it affects before the next packet of it is decided, whatever
//     their number: the epochs of the ports it affects are bumped under the lock under which it is applied.
//   - The connections of a packet are told to the hosts that will see its replies before it leaves.
//   - Without the store the agent goes on with what it last heard, new flows included; without the agent the kernel goes
//     on with the flows it has. An agent that starts adopts them, and takes away those that would be decided otherwise.
//   - Nothing is taken away that an earlier agent made until it is known what is wanted.
package overlay
