package cli

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
)

// resource describes the commands for one kind of object of the Neutron API.
type resource struct {
	use, alias string
	kind       cloud.Kind
	create     string  // the command that makes one: create, or add within another object
	argument   setting // of create; also of list, when objects are listed within another one
	within     bool    // the argument names the object that those of this kind are in
	settings   []setting
	columns    []column
	// derive adds attributes that follow from those given for a new object.
	derive func(attributes map[string]any)
	// note prints what is wrong with an object after these attributes of it were set.
	note func(cmd *cobra.Command, login *cloud.Config, attributes map[string]any, o cloud.Object)
}

// setting is an attribute that a flag or argument sets.
type setting struct {
	flag, attribute string
	usage           string
	absent          string // what a new object has without the flag; "": that needs no word
	form            form
	// of is the kind of the objects that the text names, by id or name.
	of cloud.Kind
	// put sets attributes by the texts, ids in place of names; nil: attribute becomes the text, or
	// the list of texts.
	put                      func(attributes map[string]any, texts []string) error
	choices                  []string                                 // which completion offers
	complete                 func(*cloud.Config) cobra.CompletionFunc // nil: by of and choices
	required                 bool
	onCreate, onSet, filters bool
}

// form is the form of a flag's value.
type form uint8

const (
	formText form = iota
	formList
	formNumber
	formTruth
)

// column is a column of a list.
type column struct {
	header, attribute string
	of                cloud.Kind // the attribute is the id, or a list of ids, of objects of the kind
	// show returns the cell; nil: the attribute as it is.
	show func(o cloud.Object, name func(cloud.Kind, string) string) string
}

// noValue stands for no value, where there can be one.
const noValue = "none"

// resources returns what the commands are made of.
func resources() []resource {
	name := setting{flag: "name", attribute: "name", usage: "another `name` for it", onSet: true}
	named := setting{flag: "NAME", attribute: "name"}
	describe := setting{flag: "description", attribute: "description", usage: "`text` for people", onCreate: true, onSet: true}
	adminUp := setting{flag: "admin-up", attribute: "admin_state_up", usage: "traffic passes; --admin-up=false stops it", form: formTruth, onCreate: true, onSet: true}
	id, nameColumn := column{header: "ID", attribute: "id"}, column{header: "NAME", attribute: "name"}
	network := column{header: "NETWORK", attribute: "network_id", of: cloud.Network}
	status := column{header: "STATUS", attribute: "status"}
	return []resource{{
		use: "net", alias: "network", kind: cloud.Network, create: "create", argument: named, derive: putExternal,
		settings: []setting{name, describe, adminUp,
			{flag: "mtu", attribute: "mtu", usage: "largest packet of its machines in `bytes`", form: formNumber, onCreate: true, onSet: true},
			{flag: "shared", attribute: "shared", usage: "every project can use it", form: formTruth, onCreate: true, onSet: true},
			{flag: "external", attribute: "router:external", usage: "routers can have their gateway and floating IPs on it", form: formTruth, onCreate: true, onSet: true},
			{flag: "port-security", attribute: "port_security_enabled", usage: "filters and anti-spoofing on its new ports", form: formTruth, onCreate: true, onSet: true},
			{flag: "type", attribute: "provider:network_type", usage: "`type`: vxlan, flat, vlan, uplink or routed", absent: "vxlan; flat with --external", onCreate: true},
			{flag: "physical-network", attribute: "provider:physical_network", usage: "`name` of the hosts' network that a flat or vlan one is on", absent: "of an external one that which hosts carry", onCreate: true},
			{flag: "segment", attribute: "provider:segmentation_id", usage: "VLAN `id` of a vlan network", form: formNumber, onCreate: true},
		},
		columns: []column{id, nameColumn, {header: "SUBNETS", attribute: "subnets", of: cloud.Subnet}, {header: "MTU", attribute: "mtu"},
			{header: "EXTERNAL", attribute: "router:external"}, {header: "SHARED", attribute: "shared"}, status},
	}, {
		use: "subnet", kind: cloud.Subnet, create: "create", argument: named,
		settings: []setting{name, describe,
			{flag: "network", attribute: "network_id", usage: "`network` of the subnet", of: cloud.Network, required: true, onCreate: true, filters: true},
			{flag: "range", attribute: "cidr", usage: "its `addresses`, such as 10.0.0.0/24", put: putRange, required: true, onCreate: true},
			{flag: "gateway", attribute: "gateway_ip", usage: "`address` of the router for its machines, or none", absent: "the first one", put: orNone("gateway_ip"), onCreate: true, onSet: true},
			{flag: "dhcp", attribute: "enable_dhcp", usage: "machines get their addresses by DHCP", form: formTruth, onCreate: true, onSet: true},
			{flag: "dns", attribute: "dns_nameservers", usage: "`addresses` of name servers", form: formList, onCreate: true, onSet: true},
			{flag: "pool", attribute: "allocation_pools", usage: "`FIRST-LAST` addresses that ports are given; repeatable", form: formList, put: putPools, onCreate: true, onSet: true},
			{flag: "route", attribute: "host_routes", usage: "`RANGE=ADDRESS` of another router for its machines; repeatable", form: formList, put: putRoutes, onCreate: true, onSet: true},
			{flag: "ipv6-mode", attribute: "ipv6_address_mode", usage: "`mode`: slaac, dhcpv6-stateful or dhcpv6-stateless", put: putIPv6Mode, onCreate: true},
		},
		columns: []column{id, nameColumn, network, {header: "RANGE", attribute: "cidr"}, {header: "GATEWAY", attribute: "gateway_ip"}, {header: "DHCP", attribute: "enable_dhcp"}},
	}, {
		use: "port", kind: cloud.Port, create: "create", argument: named, note: noteUnbound,
		settings: []setting{name, describe, adminUp,
			{flag: "network", attribute: "network_id", usage: "`network` of the port", of: cloud.Network, required: true, onCreate: true, filters: true},
			{flag: "ip", attribute: "fixed_ips", usage: "`addresses` of the port", absent: "one of each IP version", form: formList, put: putAddresses, onCreate: true, onSet: true},
			{flag: "mac", attribute: "mac_address", usage: "MAC `address` of the port", absent: "a random one", onCreate: true, onSet: true},
			{flag: "sg", attribute: "security_groups", usage: "security `groups`; none: no group", absent: "the project's default one", form: formList, of: cloud.SecurityGroup, onCreate: true, onSet: true},
			{flag: "port-security", attribute: "port_security_enabled", usage: "filters and anti-spoofing", form: formTruth, onCreate: true, onSet: true},
			{flag: "allow", attribute: "allowed_address_pairs", usage: "`RANGE[=MAC]` that it may send from too; repeatable", form: formList, put: putPairs, onCreate: true, onSet: true},
			{flag: "host", attribute: "binding:host_id", usage: "`host` that it is bound to; \"\" unbinds it", complete: completeJoinedHosts, onCreate: true, onSet: true, filters: true},
			{flag: "interface", attribute: "binding:profile", usage: "`name` of its interface on the host", absent: "tap and the first 11 characters of its id", put: putInterface, onCreate: true, onSet: true},
			{flag: "device", attribute: "device_id", usage: "`id` of its machine", onCreate: true, onSet: true, filters: true},
			{flag: "device-owner", attribute: "device_owner", usage: "`service` that the machine belongs to, such as compute:nova", onCreate: true, onSet: true},
		},
		columns: []column{id, nameColumn, network, {header: "MAC", attribute: "mac_address"}, {header: "ADDRESSES", attribute: "fixed_ips", show: showFixedIPs},
			{header: "HOST", attribute: "binding:host_id"}, status},
	}, {
		use: "sg", alias: "security-group", kind: cloud.SecurityGroup, create: "create", argument: named,
		settings: []setting{name, describe,
			{flag: "stateful", attribute: "stateful", usage: "answers pass without a rule", form: formTruth, onCreate: true, onSet: true}},
		columns: []column{id, nameColumn, {header: "RULES", attribute: "security_group_rules", show: showCount("security_group_rules")}, {header: "DESCRIPTION", attribute: "description"}},
	}, {
		use: "rule", kind: cloud.SecurityGroupRule, create: "add", within: true,
		argument: setting{flag: "GROUP", attribute: "security_group_id", of: cloud.SecurityGroup},
		settings: []setting{describe,
			{flag: "direction", attribute: "direction", usage: "`direction` of the traffic that it allows: ingress to the port, or egress", put: putDirection, choices: []string{"ingress", "egress"}, onCreate: true, required: true},
			{flag: "remote", attribute: "remote_ip_prefix", usage: "`addresses` of the others", absent: "all", put: putRemote, onCreate: true},
			{flag: "remote-group", attribute: "remote_group_id", usage: "`group` whose members are the others", of: cloud.SecurityGroup, onCreate: true},
			{flag: "ethertype", attribute: "ethertype", usage: "IPv4 or IPv6", absent: "that of --remote, else IPv4", onCreate: true},
			{flag: "protocol", attribute: "protocol", usage: "`protocol`, such as tcp, udp or icmp", absent: "all", choices: []string{"tcp", "udp", "icmp", "ipv6-icmp", "sctp"}, onCreate: true},
			{flag: "port", attribute: "port_range_min", usage: "`FIRST[-LAST]` destination port", put: putPorts, onCreate: true},
		},
		columns: []column{id, {header: "DIRECTION", attribute: "direction"}, {header: "ETHERTYPE", attribute: "ethertype"}, {header: "PROTOCOL", attribute: "protocol"},
			{header: "FIRST PORT", attribute: "port_range_min"}, {header: "LAST PORT", attribute: "port_range_max"}, {header: "REMOTE", attribute: "remote_ip_prefix"},
			{header: "REMOTE GROUP", attribute: "remote_group_id", of: cloud.SecurityGroup}},
	}, {
		use: "router", kind: cloud.Router, create: "create", argument: named,
		settings: []setting{name, describe, adminUp,
			{flag: "external", attribute: "external_gateway_info", usage: "external `network` of its gateway", of: cloud.Network, put: putGateway, onCreate: true}},
		columns: []column{id, nameColumn, {header: "EXTERNAL NETWORK", attribute: "external_gateway_info", of: cloud.Network, show: showGateway}, status},
	}, {
		use: "fip", alias: "floating-ip", kind: cloud.FloatingIP, create: "create",
		argument: setting{flag: "NETWORK", attribute: "floating_network_id", of: cloud.Network},
		settings: []setting{describe,
			{flag: "ip", attribute: "floating_ip_address", usage: "the `address`", absent: "a free one", onCreate: true},
			{flag: "port", attribute: "port_id", usage: "`port` to attach it to", of: cloud.Port, complete: completeWorkloadPorts, onCreate: true},
			{flag: "fixed-ip", attribute: "fixed_ip_address", usage: "`address` of the port, if it has several", onCreate: true}},
		columns: []column{id, {header: "ADDRESS", attribute: "floating_ip_address"}, {header: "NETWORK", attribute: "floating_network_id", of: cloud.Network},
			{header: "PORT", attribute: "port_id", of: cloud.Port}, {header: "FIXED ADDRESS", attribute: "fixed_ip_address"}, status},
	}}
}

// orNone sets an attribute that "none" removes.
func orNone(attribute string) func(map[string]any, []string) error {
	return func(attributes map[string]any, texts []string) error {
		attributes[attribute] = texts[0]
		if texts[0] == noValue {
			attributes[attribute] = nil
		}
		return nil
	}
}

func putRange(attributes map[string]any, texts []string) error {
	p, err := netip.ParsePrefix(texts[0])
	if err != nil {
		return fmt.Errorf("%q is no range of addresses, such as 10.0.0.0/24", texts[0])
	}
	attributes["cidr"], attributes["ip_version"] = texts[0], 4
	if p.Addr().Is6() {
		attributes["ip_version"] = 6
	}
	return nil
}

func putPools(attributes map[string]any, texts []string) error {
	pools := []map[string]string{}
	for _, t := range texts {
		first, last, found := strings.Cut(t, "-")
		if !found {
			return fmt.Errorf("%q: want FIRST-LAST address", t)
		}
		pools = append(pools, map[string]string{"start": first, "end": last})
	}
	attributes["allocation_pools"] = pools
	return nil
}

func putRoutes(attributes map[string]any, texts []string) error {
	routes := []map[string]string{}
	for _, t := range texts {
		dst, by, found := strings.Cut(t, "=")
		if !found {
			return fmt.Errorf("%q: want RANGE=ADDRESS", t)
		}
		routes = append(routes, map[string]string{"destination": dst, "nexthop": by})
	}
	attributes["host_routes"] = routes
	return nil
}

// putIPv6Mode sets how machines get their addresses, and that routers announce it.
func putIPv6Mode(attributes map[string]any, texts []string) error {
	attributes["ipv6_address_mode"], attributes["ipv6_ra_mode"] = texts[0], texts[0]
	return nil
}

func putAddresses(attributes map[string]any, texts []string) error {
	ips := []map[string]string{}
	for _, t := range texts {
		ips = append(ips, map[string]string{"ip_address": t})
	}
	attributes["fixed_ips"] = ips
	return nil
}

func putPairs(attributes map[string]any, texts []string) error {
	pairs := []map[string]string{}
	for _, t := range texts {
		ip, mac, found := strings.Cut(t, "=")
		pair := map[string]string{"ip_address": ip}
		if found {
			pair["mac_address"] = mac
		}
		pairs = append(pairs, pair)
	}
	attributes["allowed_address_pairs"] = pairs
	return nil
}

func putInterface(attributes map[string]any, texts []string) error {
	attributes["binding:profile"] = map[string]string{"interface_name": texts[0]}
	return nil
}

func putDirection(attributes map[string]any, texts []string) error {
	if texts[0] != "ingress" && texts[0] != "egress" {
		return fmt.Errorf("%q: want ingress, to the port, or egress, from it", texts[0])
	}
	attributes["direction"] = texts[0]
	return nil
}

// putRemote sets the addresses of the other ends, and the IP version that they have.
func putRemote(attributes map[string]any, texts []string) error {
	attributes["remote_ip_prefix"] = texts[0]
	if strings.Contains(texts[0], ":") {
		attributes["ethertype"] = "IPv6"
	}
	return nil
}

func putPorts(attributes map[string]any, texts []string) error {
	first, last, found := strings.Cut(texts[0], "-")
	if !found {
		last = first
	}
	for attribute, t := range map[string]string{"port_range_min": first, "port_range_max": last} {
		n, err := strconv.ParseUint(t, 10, 16)
		if err != nil {
			return fmt.Errorf("%q: want a port, or FIRST-LAST", texts[0])
		}
		attributes[attribute] = n
	}
	return nil
}

func putGateway(attributes map[string]any, texts []string) error {
	attributes["external_gateway_info"] = map[string]any{"network_id": texts[0]}
	return nil
}

func showFixedIPs(o cloud.Object, _ func(cloud.Kind, string) string) string {
	var addresses []string
	for _, ip := range objects(o["fixed_ips"]) {
		addresses = append(addresses, ip.Text("ip_address"))
	}
	return strings.Join(addresses, " ")
}

func showCount(attribute string) func(cloud.Object, func(cloud.Kind, string) string) string {
	return func(o cloud.Object, _ func(cloud.Kind, string) string) string {
		return strconv.Itoa(len(objects(o[attribute])))
	}
}

func showGateway(o cloud.Object, name func(cloud.Kind, string) string) string {
	gateway, _ := o["external_gateway_info"].(map[string]any)
	id := cloud.Object(gateway).Text("network_id")
	if id == "" {
		return ""
	}
	return name(cloud.Network, id)
}

// objects returns the objects of a list in an answer.
func objects(v any) []cloud.Object {
	items, _ := v.([]any)
	all := make([]cloud.Object, 0, len(items))
	for _, item := range items {
		if o, ok := item.(map[string]any); ok {
			all = append(all, o)
		}
	}
	return all
}
