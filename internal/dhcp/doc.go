// Package dhcp is the DHCP agent of a routed host: it gives this host's workloads the addresses that their endpoints in
// etcd name, through a dnsmasq that it runs (seed 004; spec §17). It asks nobody but etcd, and of that only for the
// endpoints of this host and the subnets. A second dnsmasq answers DNS for them.
//
// What holds:
//   - A link of its own carries the gateway address of each subnet that an endpoint here uses, and attracts no traffic.
//   - What is written says what to do: plan computes the link's addresses, dnsmasq's arguments and its files; the agent
//     brings the host there with the least disruption.
//   - dnsmasq outlives the agent, and the next agent adopts it: no lease is interrupted by a restart.
//   - When dnsmasq has to start anew the old one serves until the new one listens. That for DNS need not start anew.
//
// Files, below the state directory:
//
//	hosts/…          a file for each endpoint, which dnsmasq reads when it appears or changes
//	opts             options of each subnet
//	addn_hosts/…     a file with names for DNS for each endpoint
//	leases.…         the leases; each instance has a file of its own
//	pid, log         the process that serves, and what it says; emptied when it is long and has been read
//	dns.pid, dns.log the same of the one that answers DNS
package dhcp
