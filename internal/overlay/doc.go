// Package overlay is the agent that runs virtual networks on one host: it attaches to the
// interfaces of workloads, decides the packets that the kernel's flow cache cannot, and keeps
// cache, tunnels and reports in step with the store (midonet-simulation §1, 5, 13–15;
// docs/architecture.md draws it).
//
//	store ─replica─▶ feed ─▶ virtualNetwork ◀─ engine: missed packet ─▶ simulate ─▶ install, send
//	  ▲               └─▶ attachments, underlay, keys                   │
//	  └─presence◀─ reporter ◀─ ports served, addresses seen ◀───────────┴─ upkeep: expires flows
//
// What must hold:
//   - A change stops every flow it affects before the next packet of it is decided: the epochs of
//     what is affected are bumped under the lock under which the change is applied.
//   - The connections of a packet are sent to the hosts that will see its replies before it leaves.
//   - Without the store the agent goes on with its last snapshot, new flows included; without the
//     agent the kernel goes on with its flows. A starting agent adopts those it would decide alike.
//   - Nothing of an earlier agent is removed before the desired state is known.
package overlay
