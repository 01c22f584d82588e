package offline

import (
	"maps"
	"slices"
	"strings"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// scenario is the topology of a scenario file: Neutron objects under names, and the ids made of them.
type scenario struct {
	world    *world
	networks map[string]string // name → id
	subnets  map[string]string
	groups   map[string]string
	ports    map[string]string
	nameOf   map[string]string // id → name
	apart    bool              // every port on a host of its own
}

// unsupportedSections are parts of a topology that this version does not simulate.
func unsupportedSections() []string {
	return []string{
		"routers", "interfaces", "floatingips", "firewalls", "lbaas_v1", "lbaas_v2", "gateway_devices", "l2_gateways",
		"l2_gateway_connections", "tap_services", "tap_flows",
	}
}

// readScenario builds the objects of a topology.
func readScenario(n node, apart bool) (*scenario, error) {
	sections := append([]string{"networks", "subnets", "security_groups", "ports"}, unsupportedSections()...)
	o, err := n.object(sections...)
	if err != nil {
		return nil, err
	}
	for _, name := range unsupportedSections() {
		list, err := o.get(name).list()
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			return nil, fileErrorf(o.under(name), "%s are not simulated by this version", name)
		}
	}
	s := &scenario{
		world: newWorld(), apart: apart, nameOf: map[string]string{},
		networks: map[string]string{}, subnets: map[string]string{}, groups: map[string]string{}, ports: map[string]string{},
	}
	for _, section := range []struct {
		name string
		add  func(node) error
	}{
		{"networks", s.addNetwork}, {"subnets", s.addSubnet}, {"security_groups", s.addGroup},
		{"security_groups", s.addGroupRules}, {"ports", s.addPort},
	} {
		list, err := o.get(section.name).list()
		if err != nil {
			return nil, err
		}
		for _, element := range list {
			if err := section.add(element); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// enter gives the named object its id.
func (s *scenario) enter(o object, kind string, ids map[string]string) (neutron.Standard, error) {
	name, err := o.get("name").text()
	if err != nil {
		return neutron.Standard{}, err
	}
	if name == "" {
		return neutron.Standard{}, fileErrorf(o.under("name"), "is missing")
	}
	if ids[name] != "" {
		return neutron.Standard{}, fileErrorf(o.under("name"), "there are two of name %q", name)
	}
	id := translate.Derive("scenario."+kind, name)
	ids[name], s.nameOf[id] = id, name
	return neutron.Standard{ID: id, Name: name, CreatedAt: bornAt(len(s.nameOf))}, nil
}

// find resolves a reference by name.
func find(n node, kind string, ids map[string]string) (string, error) {
	name, err := n.text()
	if err != nil {
		return "", err
	}
	if ids[name] == "" {
		return "", fileErrorf(n.place, "there is no %s %q", kind, name)
	}
	return ids[name], nil
}

func (s *scenario) addNetwork(n node) error {
	o, err := n.object("name", "external", "admin_state_up", "mtu")
	if err != nil {
		return err
	}
	network := &neutron.Network{PortSecurityEnabled: true}
	if network.Standard, err = s.enter(o, "network", s.networks); err != nil {
		return err
	}
	if network.External, err = o.get("external").flag(false); err != nil {
		return err
	}
	if network.MTU, _, err = o.get("mtu").number(0, 65535); err != nil {
		return err
	}
	s.world.networks[network.ID] = network
	network.AdminStateUp, err = o.get("admin_state_up").flag(true)
	return err
}

func (s *scenario) addSubnet(n node) error {
	o, err := n.object("name", "network", "cidr", "gateway_ip", "dns_nameservers", "host_routes", "enable_dhcp",
		"ipv6_ra_mode", "ipv6_address_mode")
	if err != nil {
		return err
	}
	subnet := &neutron.Subnet{EnableDHCP: true}
	if subnet.Standard, err = s.enter(o, "subnet", s.subnets); err != nil {
		return err
	}
	if subnet.NetworkID, err = find(o.get("network"), "network", s.networks); err != nil {
		return err
	}
	set := subnetResource().(*table[neutron.Subnet]).attributes
	for _, name := range o.names() {
		if name == "name" || name == "network" {
			continue
		}
		if err := set[name](subnet, o.get(name)); err != nil {
			return err
		}
	}
	if err := validateSubnet(s.world, subnet, nil, o); err != nil {
		return s.atPlace(n, err)
	}
	s.world.subnets[subnet.ID] = subnet
	return nil
}

// atPlace says where in the file an object stands that was refused, in the file's names.
func (s *scenario) atPlace(n node, err error) error {
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

func (s *scenario) addGroup(n node) error {
	o, err := n.object("name", "rules", "stateful")
	if err != nil {
		return err
	}
	group := &neutron.SecurityGroup{}
	if group.Standard, err = s.enter(o, "security group", s.groups); err != nil {
		return err
	}
	s.world.groups[group.ID] = group
	group.Stateful, err = o.get("stateful").flag(true)
	return err
}

// addGroupRules reads the rules when every group has its id: they name each other.
func (s *scenario) addGroupRules(n node) error {
	o, err := n.object("name", "rules", "stateful")
	if err != nil {
		return err
	}
	id, err := find(o.get("name"), "security group", s.groups)
	if err != nil {
		return err
	}
	return s.setRules(id, o.get("rules"))
}

// setRules replaces the rules of a group.
func (s *scenario) setRules(group string, n node) error {
	rules, err := each(n, func(n node) (neutron.SecurityGroupRule, error) { return s.readRule(group, n) })
	if err != nil {
		return err
	}
	g := *s.world.groups[group]
	g.Rules = rules
	s.world.groups[group] = &g
	return nil
}

func (s *scenario) readRule(group string, n node) (r neutron.SecurityGroupRule, err error) {
	o, err := n.object("direction", "ethertype", "protocol", "min", "max", "remote_ip_prefix", "remote_group")
	if err != nil {
		return r, err
	}
	r.ID, r.SecurityGroupID = translate.Derive("scenario.rule", n.place, group), group
	if err := readMatch(o, &r, "min", "max"); err != nil {
		return r, err
	}
	if !o.get("remote_group").null() {
		if r.RemoteGroupID, err = find(o.get("remote_group"), "security group", s.groups); err != nil {
			return r, err
		}
	}
	return r, refuseTwoRemotes(o, &r)
}

func (s *scenario) addPort(n node) error {
	o, err := n.object(append(slices.Sorted(maps.Keys(portAttributes())), "name", "network")...)
	if err != nil {
		return err
	}
	p := &neutron.Port{AdminStateUp: true, PortSecurityEnabled: true, DeviceOwner: "compute:nova", Profile: map[string]any{}}
	if p.Standard, err = s.enter(o, "port", s.ports); err != nil {
		return err
	}
	if p.NetworkID, err = find(o.get("network"), "network", s.networks); err != nil {
		return err
	}
	p.TunnelKey = s.world.nextTunnelKey()
	p.BoundHostID, p.InterfaceName = s.hostOf(p.Name).ID, p.Name
	return s.putPort(p, o, "name", "network")
}

// putPort sets the attributes that o names, but for those to skip, and stores the port.
func (s *scenario) putPort(p *neutron.Port, o object, skip ...string) error {
	set := portAttributes()
	for _, name := range o.names() {
		if slices.Contains(skip, name) {
			continue
		}
		if err := set[name](s, p, o.get(name)); err != nil {
			return err
		}
	}
	if translate.ClassOf(p.DeviceOwner) == translate.Remote {
		return fileErrorf(o.place, "owner network:remote_site needs layer-2 gateways, which are not simulated by this version")
	}
	if err := s.world.settleMAC(p); err != nil {
		return s.atPlace(o.node, err)
	}
	if err := s.world.settleFixedIPs(p); err != nil {
		return s.atPlace(o.node, err)
	}
	s.world.ports[p.ID] = p
	return nil
}

// hostOf is the host of a port. All hosts reach each other in one tunnel zone.
func (s *scenario) hostOf(port string) topology.Host {
	name := "host"
	if s.apart {
		name = "host-" + port
	}
	return topology.Host{ID: translate.Derive("scenario.host", name), Name: name}
}

// portAttributes are the attributes of a port in a scenario; "up" and its like go by Neutron's names too.
func portAttributes() map[string]func(*scenario, *neutron.Port, node) error {
	up := func(_ *scenario, p *neutron.Port, n node) (err error) { p.AdminStateUp, err = n.flag(true); return err }
	mac := func(_ *scenario, p *neutron.Port, n node) (err error) { p.MACAddress, err = n.mac(); return err }
	security := func(_ *scenario, p *neutron.Port, n node) (err error) {
		p.PortSecurityEnabled, err = n.flag(true)
		return err
	}
	owner := func(_ *scenario, p *neutron.Port, n node) (err error) { p.DeviceOwner, err = n.text(); return err }
	return map[string]func(*scenario, *neutron.Port, node) error{
		"up": up, "admin_state_up": up, "mac": mac, "mac_address": mac, "port_security": security,
		"port_security_enabled": security, "owner": owner, "device_owner": owner,
		"dns_name": func(_ *scenario, p *neutron.Port, n node) (err error) { p.DNSName, err = n.text(); return err },
		"fixed_ips": func(s *scenario, p *neutron.Port, n node) (err error) {
			p.FixedIPs, err = each(n, s.readFixedIP)
			return err
		},
		"security_groups": func(s *scenario, p *neutron.Port, n node) (err error) {
			p.SecurityGroups, err = each(n, func(n node) (string, error) { return find(n, "security group", s.groups) })
			return err
		},
		"allowed_address_pairs": func(_ *scenario, p *neutron.Port, n node) (err error) {
			p.AllowedAddressPairs, err = each(n, readPair)
			return err
		},
		"extra_dhcp_opts": func(_ *scenario, p *neutron.Port, n node) error { return setDHCPOpts(p, n) },
	}
}

func (s *scenario) readFixedIP(n node) (f neutron.FixedIP, err error) {
	o, err := n.object("ip", "subnet")
	if err != nil {
		return f, err
	}
	if !o.get("subnet").null() {
		if f.SubnetID, err = find(o.get("subnet"), "subnet", s.subnets); err != nil {
			return f, err
		}
	}
	f.IPAddress, err = o.get("ip").addr()
	return f, err
}

func readPair(n node) (p neutron.AddressPair, err error) {
	o, err := n.object("ip", "mac")
	if err != nil {
		return p, err
	}
	ip, err := o.get("ip").prefix()
	if err != nil {
		return p, err
	}
	if !ip.IsValid() {
		return p, fileErrorf(o.under("ip"), "is missing")
	}
	p.IPAddress = ip.String()
	p.MACAddress, err = o.get("mac").mac()
	return p, err
}

// macs are the MAC addresses that @name stands for.
func (s *scenario) macs() map[string]string {
	macs := map[string]string{}
	for name, id := range s.ports {
		if p := s.world.ports[id]; p != nil {
			macs[name] = p.MACAddress.String()
		}
	}
	return macs
}

// references are those of the topology, and what was captured.
func (s *scenario) references(captured map[string]any) references {
	r := references{macs: s.macs(), captured: captured}
	r.macs["bcast"] = packet.Broadcast.String()
	return r
}

// update changes an object: {kind: name, attribute: value…}.
func (s *scenario) update(n node) error {
	o, err := n.anyObject()
	if err != nil {
		return err
	}
	for _, kind := range []string{"port", "network", "security_group"} {
		if !o.has(kind) {
			continue
		}
		switch kind {
		case "port":
			return s.updatePort(n, o)
		case "network":
			return s.updateNetwork(n, o)
		}
		return s.updateGroup(n, o)
	}
	for _, kind := range []string{"router", "floatingip", "firewall", "lb"} {
		if o.has(kind) {
			return fileErrorf(o.under(kind), "updates of a %s are not simulated by this version", kind)
		}
	}
	return fileErrorf(n.place, "names nothing to update: want port, network or security_group")
}

func (s *scenario) updatePort(n node, o object) error {
	if _, err := n.object(append(slices.Sorted(maps.Keys(portAttributes())), "port")...); err != nil {
		return err
	}
	id, err := find(o.get("port"), "port", s.ports)
	if err != nil {
		return err
	}
	p := *s.world.ports[id]
	return s.putPort(&p, o, "port")
}

func (s *scenario) updateNetwork(n node, o object) error {
	if _, err := n.object("network", "admin_state_up", "up", "mtu"); err != nil {
		return err
	}
	id, err := find(o.get("network"), "network", s.networks)
	if err != nil {
		return err
	}
	network := *s.world.networks[id]
	for _, name := range []string{"up", "admin_state_up"} {
		if !o.has(name) {
			continue
		}
		if network.AdminStateUp, err = o.get(name).flag(true); err != nil {
			return err
		}
	}
	if o.has("mtu") {
		if network.MTU, _, err = o.get("mtu").number(0, 65535); err != nil {
			return err
		}
	}
	s.world.networks[id] = &network
	return nil
}

func (s *scenario) updateGroup(n node, o object) error {
	if _, err := n.object("security_group", "rules"); err != nil {
		return err
	}
	id, err := find(o.get("security_group"), "security group", s.groups)
	if err != nil || !o.has("rules") {
		return err
	}
	return s.setRules(id, o.get("rules"))
}
