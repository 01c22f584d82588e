package offline

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// scenario is the topology of a scenario file: Neutron objects under names, and the ids made of
// them.
type scenario struct {
	world                                                      *world
	networks, scopes, pools, subnets, addresses, groups, ports *section
	routing                                                    routing
	firewallLogs                                               *section
	containers                                                 map[string]string // ids by the names of their ports
	nameOf                                                     map[string]string // id → name
	placement
	carriers
	trunking
	tapping
	balancing
	gateways
}

// placement says where the ports of a scenario are.
type placement struct {
	eachHost bool // every port on a host of its own, instead of all on one
	// play, if not empty, makes the ids differ from those of other plays over the same store.
	play string
	// place returns the registered host of a port and the name of its interface there; nil: the
	// scenario registers hosts of its own.
	place func(port string) (host topology.Host, iface string)
}

// derive returns the id of what the scenario calls by names.
func (p *placement) derive(role string, names ...string) string {
	if p.play != "" {
		names = append([]string{p.play}, names...)
	}
	return translate.Derive("scenario."+role, names...)
}

// section is the objects of one kind: Neutron's, with names in place of ids and some shorter words.
type section struct {
	kind   *kind
	what   string
	ids    map[string]string // by name
	fields map[string]field
}

// field is an attribute of Neutron; value turns what the file says into what the API takes, and is
// nil if that is the same.
type field struct {
	attribute string
	value     func(node) (any, error)
}

func newScenario(w *world, p placement) *scenario {
	s := &scenario{world: w, placement: p, carriers: newCarriers(), balancing: newBalancing(), containers: map[string]string{}, nameOf: map[string]string{}}
	s.networks = &section{kind: w.kinds["network"], what: "network", fields: asTheyAre("admin_state_up", "mtu")}
	s.networks.fields["up"] = field{attribute: "admin_state_up"}
	s.networks.fields["external"] = field{attribute: "router:external"}
	s.networks.fields["physical_network"] = field{attribute: "provider:physical_network"}
	s.networks.fields["vlan"] = field{attribute: "provider:segmentation_id"}

	s.scopes = &section{kind: w.kinds["address_scope"], what: "address scope", fields: asTheyAre("ip_version")}
	s.pools = &section{kind: w.kinds["subnetpool"], what: "subnet pool", fields: asTheyAre("prefixes")}
	s.pools.fields["address_scope"] = field{"address_scope_id", s.scopes.id}

	s.subnets = &section{kind: w.kinds["subnet"], what: "subnet", fields: asTheyAre("cidr", "gateway_ip", "dns_nameservers", "host_routes",
		"enable_dhcp", "ipv6_ra_mode", "ipv6_address_mode")}
	s.subnets.fields["network"] = field{"network_id", s.networks.id}
	s.subnets.fields["subnetpool"] = field{"subnetpool_id", s.pools.id}

	s.addresses = &section{kind: w.kinds["address_group"], what: "address group", fields: asTheyAre("addresses")}
	s.groups = &section{kind: w.kinds["security_group"], what: "security group", fields: asTheyAre("stateful")}

	s.ports = &section{kind: w.kinds["port"], what: "port", fields: asTheyAre("admin_state_up", "mac_address", "port_security_enabled", "dns_name")}
	maps.Copy(s.ports.fields, map[string]field{
		"up":                    {attribute: "admin_state_up"},
		"mac":                   {attribute: "mac_address"},
		"port_security":         {attribute: "port_security_enabled"},
		"owner":                 {attribute: "device_owner"},
		"device_owner":          {attribute: "device_owner"},
		"network":               {"network_id", s.networks.id},
		"security_groups":       {"security_groups", listOf(s.groups.id)},
		"fixed_ips":             {"fixed_ips", listOf(objectOf(map[string]field{"ip": {attribute: "ip_address"}, "subnet": {"subnet_id", s.subnets.id}}))},
		"allowed_address_pairs": {"allowed_address_pairs", listOf(objectOf(map[string]field{"ip": {attribute: "ip_address"}, "mac": {attribute: "mac_address"}}))},
		"extra_dhcp_opts": {"extra_dhcp_opts", listOf(objectOf(map[string]field{
			"opt_name": {attribute: "opt_name"}, "opt_value": {"opt_value", readText}, "ip_version": {attribute: "ip_version"}}))},
	})
	for _, sec := range []*section{s.networks, s.scopes, s.pools, s.subnets, s.addresses, s.groups, s.ports} {
		sec.ids = map[string]string{}
	}
	s.trunking = newTrunking(s, w)
	s.tapping = newTapping(s, w)
	s.routing = newRouting(s, w)
	s.firewallLogs = newFirewallLogs(s, w)
	s.gateways = newGateways(s, w)
	return s
}

// ruleFields are those of a rule of a security group.
func (s *scenario) ruleFields() map[string]field {
	fields := asTheyAre("direction", "ethertype", "protocol", "remote_ip_prefix")
	maps.Copy(fields, map[string]field{
		"min": {attribute: "port_range_min"}, "max": {attribute: "port_range_max"}, "remote_group": {"remote_group_id", s.groups.id},
		"remote_address_group": {"remote_address_group_id", s.addresses.id},
	})
	return fields
}

// asTheyAre are fields that have Neutron's names and values.
func asTheyAre(names ...string) map[string]field {
	fields := map[string]field{}
	for _, name := range names {
		fields[name] = field{attribute: name}
	}
	return fields
}

// attributes reads an object of Neutron. What is null is not there, but where null says something:
// that a subnet has no gateway, or a port no longer an option.
func attributes(o object, fields map[string]field) (map[string]any, error) {
	body := map[string]any{}
	for _, name := range o.names() {
		f, known := fields[name]
		n := o.get(name)
		switch {
		case !known || n.null() && name != "gateway_ip" && name != "opt_value":
		case n.null() || f.value == nil:
			body[f.attribute] = n.value
		default:
			var err error
			if body[f.attribute], err = f.value(n); err != nil {
				return nil, err
			}
		}
	}
	return body, nil
}

// objectOf reads objects with these fields.
func objectOf(fields map[string]field) func(node) (any, error) {
	return func(n node) (any, error) {
		o, err := n.object(slices.Sorted(maps.Keys(fields))...)
		if err != nil {
			return nil, err
		}
		return attributes(o, fields)
	}
}

// listOf reads lists of what read reads.
func listOf(read func(node) (any, error)) func(node) (any, error) {
	return func(n node) (any, error) {
		list, err := each(n, read)
		return append([]any{}, list...), err
	}
}

func readText(n node) (any, error) { return n.text() }

// id is find as the value of a field.
func (sec *section) id(n node) (any, error) { return sec.find(n) }

// find returns the id of the object that a name stands for.
func (sec *section) find(n node) (string, error) {
	name, err := n.text()
	if err != nil {
		return "", err
	}
	if sec.ids[name] == "" {
		return "", fileErrorf(n.place, "there is no %s %q", sec.what, name)
	}
	return sec.ids[name], nil
}

// readScenario builds the objects of a topology.
func readScenario(w *world, n node, p placement) (*scenario, error) {
	o, err := n.object("hosts", "networks", "address_scopes", "subnetpools", "subnets", "address_groups", "security_groups", "ports", "trunks", "routers", "interfaces", "lbaas_v1", "lbaas_v2", "floatingips", "port_forwardings", "ndp_proxies", "firewalls",
		"firewall_groups", "firewall_logs", "bgp", "tap_services", "tap_flows", "gateway_devices", "l2_gateways", "l2_gateway_connections")
	if err != nil {
		return nil, err
	}
	s := newScenario(w, p)
	for _, part := range []struct {
		name string
		add  func(node) error
	}{
		{"hosts", s.addCarrier}, {"networks", s.addNetwork}, {"address_scopes", s.scopes.adder(s)},
		{"subnetpools", s.addPool}, {"subnets", s.subnets.adder(s)}, {"address_groups", s.addresses.adder(s)}, {"security_groups", s.addGroup},
		{"security_groups", s.addGroupRules}, {"ports", s.addNearPort}, {"trunks", s.addTrunk}, {"routers", s.addRouter}, {"interfaces", s.addInterface},
		{"routers", s.addExtraRoutes}, {"lbaas_v1", s.addBalancerV1}, {"lbaas_v2", s.addBalancerV2}, {"floatingips", s.routing.floatingIPs.adder(s)},
		{"port_forwardings", s.routing.forwardings.adder(s)}, {"ndp_proxies", s.routing.ndpProxies.adder(s)},
		{"firewalls", s.addFirewall},
		{"firewall_groups", s.addFirewallGroup}, {"firewall_logs", s.addFirewallLog},
		{"bgp", s.addBGP}, {"tap_services", s.tapServices.adder(s)}, {"tap_flows", s.tapFlows.adder(s)},
		{"gateway_devices", s.addGatewayDevice}, {"l2_gateways", s.addL2Gateway}, {"l2_gateway_connections", s.addConnection},
		{"ports", s.addRemotePort},
	} {
		list, err := o.get(part.name).list()
		if err != nil {
			return nil, err
		}
		for _, element := range list {
			if err := part.add(element); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// adder adds objects that have the section's fields alone.
func (sec *section) adder(s *scenario) func(node) error {
	return func(n node) error { return s.add(sec, n, nil) }
}

// add makes an object; more sets what its name and its fields do not say. The name is the file's
// alone: Neutron does not take every name for every object.
func (s *scenario) add(sec *section, n node, more func(name string, body map[string]any) error) error {
	return s.addWith(sec, n, more, func(id string, data object) error { return s.world.create(sec.kind, id, data) })
}

// addWith is add with another way to create the object.
func (s *scenario) addWith(sec *section, n node, more func(name string, body map[string]any) error, create func(id string, data object) error) error {
	o, err := n.object(append(slices.Sorted(maps.Keys(sec.fields)), "name")...)
	if err != nil {
		return err
	}
	name, err := o.get("name").text()
	if err != nil {
		return err
	}
	if name == "" {
		return fileErrorf(o.under("name"), "is missing")
	}
	if sec.ids[name] != "" {
		return fileErrorf(o.under("name"), "there are two of name %q", name)
	}
	body, err := attributes(o, sec.fields)
	if err != nil {
		return err
	}
	id := s.derive(sec.what, name)
	sec.ids[name], s.nameOf[id] = id, name
	s.world.now = bornAt(len(s.nameOf))
	if more != nil {
		if err := more(name, body); err != nil {
			return err
		}
	}
	return s.at(n, create(id, object{n, body}))
}

// at says where in the file an object stands that was refused, in the file's names.
func (s *scenario) at(n node, err error) error {
	var already *FileError
	if err == nil || errors.As(err, &already) {
		return err
	}
	return fileErrorf(n.place, "%s", s.names().Replace(err.Error()))
}

// names puts names in the place of ids.
func (s *scenario) names() *strings.Replacer {
	var pairs []string
	for id, name := range s.nameOf {
		pairs = append(pairs, id, name)
	}
	return strings.NewReplacer(pairs...)
}

// addPool makes a subnet pool, which must have a name.
func (s *scenario) addPool(n node) error {
	return s.add(s.pools, n, func(name string, body map[string]any) error {
		body["name"] = name
		return nil
	})
}

// addGroup makes a group without rules: they may name groups that come later.
func (s *scenario) addGroup(n node) error {
	o, err := n.object("name", "rules", "stateful")
	if err != nil {
		return err
	}
	fields := maps.Clone(o.fields)
	delete(fields, "rules")
	return s.add(s.groups, node{n.place, fields}, nil)
}

func (s *scenario) addGroupRules(n node) error {
	o, err := n.anyObject()
	if err != nil {
		return err
	}
	id, err := s.groups.find(o.get("name"))
	if err != nil {
		return err
	}
	return s.setRules(id, o.get("rules"))
}

// setRules replaces the rules of a group.
func (s *scenario) setRules(group string, n node) error {
	fields := s.ruleFields()
	rules, err := each(n, func(n node) (neutron.Values, error) {
		o, err := n.object(slices.Sorted(maps.Keys(fields))...)
		if err != nil {
			return nil, err
		}
		body, err := attributes(o, fields)
		if err != nil {
			return nil, err
		}
		v, err := s.world.newRule(s.derive("rule", n.place, group), group, object{n, body})
		return v, s.at(n, err)
	})
	if err != nil {
		return err
	}
	return s.at(n, s.world.replaceRules(group, rules))
}

// addNetwork makes a network: a flat or VLAN one if it names a physical network.
func (s *scenario) addNetwork(n node) error {
	return s.add(s.networks, n, func(_ string, body map[string]any) error {
		switch {
		case body["provider:segmentation_id"] != nil:
			body["provider:network_type"] = "vlan"
		case body["provider:physical_network"] != nil:
			body["provider:network_type"] = "flat"
		}
		return nil
	})
}

// addPort makes a port that is bound to an interface of its own name.
func (s *scenario) addPort(n node) error {
	o, err := n.anyObject()
	if err != nil {
		return err
	}
	fields := maps.Clone(o.fields)
	delete(fields, "host")
	return s.add(s.ports, node{n.place, fields}, func(name string, body map[string]any) error {
		if s.placed[name], err = s.readHost(o.get("host")); err != nil {
			return err
		}
		host, iface := s.bindingOf(name)
		if err := s.addHost(host); err != nil {
			return err
		}
		body["binding:host_id"], body["binding:profile"] = host.Name, map[string]any{"interface_name": iface}
		if _, given := body["device_owner"]; !given {
			body["device_owner"] = "compute:nova"
		}
		return nil
	})
}

// macAddresses are those that @name stands for.
func (s *scenario) macAddresses() (map[string]string, error) {
	snap, err := s.world.db.View(s.world.ctx)
	if err != nil {
		return nil, err
	}
	macs := map[string]string{}
	for _, ids := range []map[string]string{s.ports.ids, s.routing.links, s.vipPorts} {
		for name, id := range ids {
			if p, ok := schema.Ports.Peek(snap, id); ok {
				macs[name] = p.MACAddress.String()
			}
		}
	}
	return macs, s.containerMACs(macs)
}

// update changes an object: {kind: name, attribute: value…}.
func (s *scenario) update(n node) error {
	o, err := n.anyObject()
	if err != nil {
		return err
	}
	switch {
	case o.has("lb"):
		return s.updateBalancer(n)
	case o.has("host"):
		return s.updateHost(n)
	case o.has("bgp"):
		return s.updateBGP(n)
	case o.has("firewall_log"):
		return s.updateFirewallLog(n)
	case o.has("firewall"): // before those that it names
		return s.updateFirewall(n)
	case o.has("firewall_group"):
		return s.updateFirewallGroup(n)
	case o.has("port_forwarding"): // before the floating IP and the port that it names
		return s.updateIn(s.routing.forwardings, n, "port_forwarding")
	case o.has("floatingip"):
		return s.updateIn(s.routing.floatingIPs, n, "floatingip")
	case o.has("router"):
		return s.updateRouter(n)
	case o.has("address_group"):
		return s.updateAddressGroup(n)
	case o.has("tap_flow"):
		return s.updateTapFlow(n)
	case o.has("trunk"): // before its parent
		return s.updateTrunk(n)
	}
	for _, part := range []struct {
		kind    string
		section *section
	}{{"port", s.ports}, {"network", s.networks}, {"security_group", s.groups}} {
		if o.has(part.kind) {
			return s.updateIn(part.section, n, part.kind)
		}
	}
	return fileErrorf(n.place, "names nothing to update: want port, network, address_group, security_group, router, floatingip, port_forwarding, firewall, firewall_group, firewall_log, trunk, tap_flow, bgp, lb or host")
}

func (s *scenario) updateIn(sec *section, n node, kind string) error {
	known := append(slices.Sorted(maps.Keys(sec.fields)), kind)
	if sec == s.groups {
		known = append(known, "rules")
	}
	o, err := n.object(known...)
	if err != nil {
		return err
	}
	id, err := sec.find(o.get(kind))
	if err != nil {
		return err
	}
	if o.has("rules") {
		if err := s.setRules(id, o.get("rules")); err != nil {
			return err
		}
	}
	body, err := attributes(o, sec.fields)
	if err != nil {
		return err
	}
	for name, f := range sec.fields {
		if o.has(name) && o.get(name).null() {
			body[f.attribute] = nil // takes away what is there
		}
	}
	if len(body) == 0 {
		return nil
	}
	return s.at(n, s.world.update(sec.kind, id, object{n, body}))
}
