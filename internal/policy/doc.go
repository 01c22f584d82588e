// Package policy is the agent that makes Calico's model true on one host: it follows /calico/ in etcd, has calc decide
// what this host needs of it, and keeps nftables, routes, neighbours, tunnels and kernel parameters so.
//
//	etcd ─► feed ─► decode, merge legacy ─► settings, pools, hosts ──────────────┐
//	                                    └─► calc ─► Changes ─► nft (one commit)  ├─► tunnels, NAT, host endpoints
//	kernel events ─► links, addresses ─────────────────────────► interfaces ◄────┘    status ─► etcd
//
// What holds:
//   - Nothing is touched before /calico/v1/Ready is "true" and the first snapshot is complete; while it is not "true",
//     everything stays as it is.
//   - All changes of one etcd revision come into force in one commit.
//   - Policy is in force before the routes of a new endpoint, and the routes are gone before the policy of one that leaves.
//   - What cannot be read closes traffic or counts as absent; the log and the status name it, with what is in force instead.
//   - Without etcd, and without the agent, the kernel goes on with the last state.
package policy
