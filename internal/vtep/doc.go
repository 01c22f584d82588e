// Package vtep keeps hardware VTEPs in step with the gateway devices that name them (services
// §7.4): switches with a database hardware_vtep, spoken to by OVSDB.
//
//	Gateways, on the elected server ── one for each managed device ──▶ follower
//	    store ─▶ segments: networks, their MACs ─▶ plan ──▶ Logical_Switch, *_Remote, bindings
//	    LearnedRemotes, under a lease ◀─ readLocals ◀── Ucast_Macs_Local, Mcast_Macs_Local
//	    GatewayStates, under the same lease ◀─ connection, switches, ports, what is wrong
//
// What holds:
//   - Of the switch's rows only logical switches with our prefix, and what refers to them, are
//     changed or deleted.
//   - A pass compares whole tables and writes differences: what was missed is made up for, and a
//     switch that comes back empty is filled again.
//   - While the switch cannot be heard, what was learned of it stays for a minute.
//   - A row that cannot be read is skipped and named, and the others count.
package vtep
