// Package dhcp is the DHCP agent of a routed host: it gives this host's workloads the addresses of
// their endpoints in etcd, through a dnsmasq that it runs (seed 004; spec §17). Of etcd it reads
// only the endpoints of this host and the subnets. A second dnsmasq answers DNS for the workloads.
//
// What holds:
//   - A separate link carries the gateway address of each subnet that an endpoint here uses, and
//     attracts no traffic.
//   - Package plan computes the link's addresses, dnsmasq's arguments and its files; the agent
//     brings the host there with the least disruption.
//   - dnsmasq outlives the agent, and the next agent adopts it: a restart interrupts no lease.
//   - When dnsmasq has to be restarted the old one serves until the new one listens. The one for
//     DNS need not be restarted.
//
// Files, below the state directory:
//
//	hosts/…          a file for each endpoint, which dnsmasq reads when it appears or changes
//	opts             options of each subnet
//	addn_hosts/…     a file with names for DNS for each endpoint
//	leases.…         the leases; each instance has a file of its own
//	pid, log         the process that serves, and its log, emptied when it is long and read
//	dns.pid, dns.log the same for the one that answers DNS
package dhcp
