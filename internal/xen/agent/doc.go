// Package agent is the agent of a pool's host: it makes the bridges that the pool's networks need
// here in this host's Open vSwitch, and reports the host and its interfaces to the pool.
//
//	store ──objects, orders──▶ replica ──▶ plan ──▶ bridges ──▶ Open vSwitch's database (local)
//	  ▲                                               │  ▲──────── its changes
//	  └──presence, a lease──◀── BridgeReports ◀───────┘
//	               └────◀────── HostReport ◀── look ◀── kernel: links, addresses, routes
//
// What holds:
//   - Rows without our mark are never changed nor deleted. A foreign bridge in the way is an error
//     in the bridge's report.
//   - A bridge is reported once Open vSwitch has made it and its device is up, and until it is
//     gone.
//   - The host counts as alive as long as its lease is renewed; the agent's end leaves bridges and
//     traffic as they are, and the next one adopts them.
//   - A host that counted as dead is heard of again only when legs of its former life are gone: see
//     returned.
//   - With the store or Open vSwitch away the agent goes on with what it knows, and repairs when
//     they return.
package agent
