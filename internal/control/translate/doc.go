// Package translate turns Neutron objects into the virtual topology derived from them
// (midonet-translations). Every function is pure: current objects in, the complete
// [topology.Bundle] of their owner out. The caller stores a bundle under its owner's kind and id in
// the transaction that changes the owner, replacing the old one.
//
// What an object changes in another's part of the topology is an entry in its own bundle (a port's
// address in its groups, its DHCP host, its seeds), which [topology.Link] joins, or an input of the
// other's function. So a bundle must be derived again when an input has changed:
//
//	bundle            derived again after changes of          never because of
//	network           the network                             its subnets, its ports
//	subnet            the subnet; the network's mtu; ports    other ports of the network
//	                  with owner network:dhcp on the subnet
//	port              the port; its network's QoS policy,     its groups' rules and names,
//	                  unless it has its own                   other members, its subnets,
//	                                                          a policy's rules
//	security-group    the group's name; its rules             its members
//	router            the router; with extra routes the       floating IPs, firewalls, NDP
//	                  addresses of its gateways and           proxies
//	                  interfaces
//	router-gateway    the port; its subnets' gateways;        interfaces, floating IPs
//	                  enable_snat; which gateway of the
//	                  router is the first; the network's
//	                  QoS policy
//	router-interface  the port; its subnets' gateways; the    floating IPs, other
//	                  newest DHCP port of its first subnet;   interfaces
//	                  an uplink's admin state; the gateway
//	                  for NDP proxies
//	floating-ip       the floating IP; the router's port      the port of the fixed address
//	                  that serves it
//	ndp-proxy         the proxy; the router's gateway for     the port
//	                  NDP proxies
//	firewall          the firewall; its policy's rules        its routers
//	firewall-group    the group; which routers have its       its policies' rules
//	                  ports
//	firewall-group-   the policy; its rules                   its groups
//	policy
//	qos-policy        the policy's rules                      what has it
//	load-balancer     the balancer; its port's MAC; its       listeners, pools
//	                  subnet's gateway and host routes
//	listener          the listener                            its pool
//	lb-pool           the pool                                its members
//	lb-member         the member                              its pool
//	health-monitor    the monitor                             its pools
//	router-lb         which of the router's pools of LBaaS    their members
//	                  v1 there are, and are monitored
//	vip               the VIP; the router's gateway           its pool
//	router-bgp        the router; its ports, their networks   floating IPs
//	                  and subnets; the speaker; its peers
//	container         what has the container                  the scheduler's choice, which the
//	                                                          port follows
//
// A routed network has empty bundles. The policy agents read keys of Calico's data model, each
// written in the transaction that changes one of its inputs:
//
//	endpoint of a port   the port; its network's admin state; its subnets' gateway and enable_dhcp
//	DHCP subnet          the subnet
//	profile of a group   the group and its rules, whether or not a routed port uses it
//
// A port reads two things of other objects, which cannot change while the port exists: whether its
// network is an uplink ([Uplink]), and whether its groups are stateful. Guarding their existence is
// enough, so concurrent creates of ports never conflict.
//
// Deleting an owner deletes its bundle. Rules elsewhere that jump to a deleted chain disappear from
// the linked view. Texts inside objects have been checked by package neutron; a rule or address
// with an invalid one is left out, and so allows nothing, while one of a firewall that would deny
// something denies everything.
package translate
