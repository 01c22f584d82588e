// Package policy is the agent that enforces Calico's model on one host: it follows /calico/ in
// etcd, has calc decide what this host needs of it, and keeps nftables, routes, neighbours, tunnels
// and kernel parameters in that state.
//
//	etcd ─► feed ─► model ─► settings, pools, hosts ──────┐
//	                     └─► calc ─► Changes ─► nft ──────┼─► interfaces, tunnels, statuses
//	kernel events ─► links, addresses ────────────────────┘
//
// Invariants:
//   - Nothing is touched before /calico/v1/Ready is "true" and the first listing is complete.
//     While it is not "true", everything stays as it is.
//   - All changes of one etcd revision come into force in one commit.
//   - Policy is in force before the routes of a new endpoint. The routes of one that leaves are
//     gone before its policy.
//   - Unreadable objects close traffic or count as absent. Log and status name them, with what is
//     in force instead.
//   - Without etcd, and without the agent, the kernel keeps the last state.
package policy
