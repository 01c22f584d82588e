// Package translate turns Neutron objects into the virtual topology derived from them (midonet-translations). Every
// function is pure: current objects in, the complete [topology.Bundle] their owner holds out. The caller stores a bundle
// under its owner's kind and id in the transaction that changes the owner, replacing the old one whole; there is no
// difference to compute and an update cannot leave anything behind.
//
// What one object changes in another's part of the topology is either an entry in its own bundle (a port's address in
// its groups, its DHCP host, its seeds), which [topology.Link] joins, or an input of the other's function. So a bundle
// must be derived again when one of its inputs has changed:
//
//	bundle          derived again when                                                 never because of
//	network         the network changes                                                its subnets, its ports
//	subnet          the subnet changes; the network's mtu changes; a port with         other ports of the network
//	                owner network:dhcp and an address on the subnet comes, goes,
//	                or changes its addresses or its owner
//	port            the port changes                                                   its groups' rules and names,
//	                                                                                   other members, its subnets
//	security-group  the group's name changes; one of its rules comes or goes           its members
//
// A routed network has empty bundles. What it means to the policy agents are keys of Calico's data model, each written in
// the transaction that changes what it is made of:
//
//	endpoint of a port   the port; its network's admin state; gateways and enable_dhcp of its subnets
//	DHCP subnet          the subnet
//	profile of a group   the group and its rules, whether a port of a routed network uses it or not
//
// A port reads two things of other objects that cannot change while the port is there: whether its network is an uplink
// ([Uplink]: refused on update), and whether its groups are stateful (refused while a port uses the group). Reading them
// for their existence alone is therefore enough, and two ports made at once never conflict.
//
// Deleting an owner deletes its bundle. Rules elsewhere that jump to a deleted chain go with it in the linked view.
//
// Texts inside the objects (prefixes, protocol names) have been checked by package neutron. One that cannot be read all
// the same allows nothing: the rule or address is left out.
package translate
