// Package services runs service containers (services §2): network namespaces with a program in
// them, each joined to a virtual router by one of its ports. Those of load balancers check the
// health of pools' members.
//
//	servers: Scheduler ── host of each container ──▶ store, binds the port ──▶ agents of all hosts
//	                                                   │
//	agent of that host: Agent ◀────────────────────────┘
//	    container ─▶ namespace, veth pair ─▶ haproxy, or probes of the agent itself
//	    verdicts  ─▶ MemberHealths, under a lease of their own
//	    state     ─▶ ContainerStates, under the host's lease
//
// What a container needs is computed by package plan. Namespaces and programs outlive the agent,
// and the next one adopts them.
package services
