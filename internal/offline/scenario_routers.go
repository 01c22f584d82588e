package offline

import (
	"fmt"
	"maps"
	"slices"

	"heddle/internal/neutron"
)

// routing is the part of a scenario that routes: its objects, and the ports by which routers are on
// networks.
type routing struct {
	routers, floatingIPs, forwardings, ndpProxies, firewalls, firewallGroups *section

	links map[string]string // port by "router.gw" and "router/subnet"
}

// Fields of a router that make requests of their own.
const (
	routerGateway = "gateway"
	moreGateways  = "gateways" // after the first
	routerSNAT    = "snat"
	extraRoutes   = "extra_routes"
)

func newRouting(s *scenario, w *world) routing {
	r := routing{links: map[string]string{}}
	r.routers = &section{kind: w.kinds["router"], what: "router", ids: map[string]string{}, fields: asTheyAre("admin_state_up", "enable_ndp_proxy")}
	r.routers.fields["up"] = field{attribute: "admin_state_up"}
	r.floatingIPs = &section{kind: w.kinds["floatingip"], what: "floating IP", ids: map[string]string{}, fields: map[string]field{
		"network":  {"floating_network_id", s.networks.id},
		"ip":       {attribute: "floating_ip_address"},
		"router":   {"router_id", r.routers.id},
		"port":     {"port_id", s.portOrVIP},
		"fixed_ip": {attribute: "fixed_ip_address"},
	}}
	r.forwardings = &section{kind: w.kinds["port_forwarding"], what: "port forwarding", ids: map[string]string{},
		fields: asTheyAre("protocol", "external_port", "external_port_range", "internal_port", "internal_port_range")}
	maps.Copy(r.forwardings.fields, map[string]field{
		"floatingip": {"floatingip_id", r.floatingIPs.id}, "port": {"internal_port_id", s.ports.id}, "fixed_ip": {attribute: "internal_ip_address"},
	})
	r.ndpProxies = &section{kind: w.kinds["ndp_proxy"], what: "NDP proxy", ids: map[string]string{}, fields: map[string]field{
		"router": {"router_id", r.routers.id}, "port": {"port_id", s.ports.id}, "ip": {attribute: "ip_address"},
	}}
	r.firewalls = &section{kind: w.kinds["firewall"], what: "firewall", ids: map[string]string{}, fields: asTheyAre("admin_state_up")}
	maps.Copy(r.firewalls.fields, map[string]field{
		"up": {attribute: "admin_state_up"}, "rules": {attribute: firewallRuleList}, "routers": {addRouterIDs, listOf(r.routers.id)},
	})
	r.firewallGroups = newFirewallGroups(s, w, &r)
	return r
}

// addRouter makes a router with its gateways. Its routes need its interfaces (addExtraRoutes).
func (s *scenario) addRouter(n node) error {
	o, plain, err := s.routing.splitRouter(n)
	if err != nil {
		return err
	}
	err = s.add(s.routing.routers, plain, func(name string, body map[string]any) error {
		return s.setGateway(name, o, body)
	})
	if err != nil || o.get(moreGateways).null() {
		return err
	}
	return s.addGateways(o)
}

// addGateways gives a new router the gateways after its first, whose ports are called ROUTER.gw2,
// ROUTER.gw3 and so on.
func (s *scenario) addGateways(o object) error {
	name, err := o.get("name").text()
	if err != nil {
		return err
	}
	id, err := s.routing.routers.find(o.get("name"))
	if err != nil {
		return err
	}
	gateways, err := o.get(moreGateways).list()
	for i, n := range gateways {
		if err == nil {
			err = s.addOneGateway(n, id, fmt.Sprintf("%s.gw%d", name, i+2))
		}
	}
	return err
}

// addOneGateway gives a router a gateway whose port has a name.
func (s *scenario) addOneGateway(n node, router, name string) error {
	g, err := n.object("network", "subnet", "ip", routerSNAT)
	if err != nil {
		return err
	}
	snat, err := g.get(routerSNAT).flag(true)
	if err != nil {
		return err
	}
	network, err := s.networks.find(g.get("network"))
	if err != nil {
		return err
	}
	port, err := s.addLink(name, g, network, "network:router_gateway")
	if err != nil {
		return err
	}
	request := []*neutron.GatewayRequest{{NetworkID: network, PortID: port, EnableSNAT: &snat}}
	_, err = s.world.service.Routers().AddGateways(s.world.ctx, administrator(), router, request)
	return s.at(n, err)
}

// splitRouter reads a router, and returns what of it a plain section can read.
func (r *routing) splitRouter(n node, more ...string) (o object, plain node, err error) {
	own := []string{routerGateway, moreGateways, routerSNAT, extraRoutes}
	if o, err = n.object(slices.Concat(slices.Sorted(maps.Keys(r.routers.fields)), own, []string{"name"}, more)...); err != nil {
		return o, n, err
	}
	fields := maps.Clone(o.fields)
	for _, name := range own {
		delete(fields, name)
	}
	return o, node{n.place, fields}, nil
}

// setGateway makes the port of the gateway that a new router names, and sets the request's
// attributes for it.
func (s *scenario) setGateway(router string, o object, body map[string]any) error {
	snat, err := o.get(routerSNAT).flag(true)
	if err != nil || o.get(routerGateway).null() {
		return err
	}
	g, err := o.get(routerGateway).object("network", "subnet", "ip")
	if err != nil {
		return err
	}
	network, err := s.networks.find(g.get("network"))
	if err != nil {
		return err
	}
	port, err := s.addLink(router+".gw", g, network, "network:router_gateway")
	if err != nil {
		return err
	}
	body["external_gateway_info"] = map[string]any{"network_id": network, "enable_snat": snat}
	body["gw_port_id"] = port
	return nil
}

// addLink makes the port by which a router is on a network, with the subnet and ip that o names.
func (s *scenario) addLink(name string, o object, network, owner string) (string, error) {
	address, err := attributes(o, map[string]field{"ip": {attribute: "ip_address"}, "subnet": {"subnet_id", s.subnets.id}})
	if err != nil {
		return "", err
	}
	body := map[string]any{"network_id": network, "device_owner": owner}
	if len(address) > 0 {
		body["fixed_ips"] = []any{address}
	}
	id := s.derive("link", name)
	s.routing.links[name], s.nameOf[id] = id, name
	s.world.now = bornAt(len(s.nameOf))
	return id, s.at(o.node, s.world.create(s.ports.kind, id, object{o.node, body}))
}

// addInterface joins a router with a subnet.
func (s *scenario) addInterface(n node) error {
	o, err := n.object("router", "subnet", "ip")
	if err != nil {
		return err
	}
	router, err := s.routing.routers.find(o.get("router"))
	if err != nil {
		return err
	}
	id, err := s.subnets.find(o.get("subnet"))
	if err != nil {
		return err
	}
	subnet, err := s.world.service.Subnets().Show(s.world.ctx, administrator(), id)
	if err != nil {
		return err
	}
	fields := maps.Clone(o.fields)
	if o.get("ip").null() {
		if subnet.GatewayIP == nil {
			return fileErrorf(o.under("ip"), "is missing: the subnet has no gateway")
		}
		fields["ip"] = subnet.GatewayIP.String()
	}
	name := s.nameOf[router] + "/" + s.nameOf[id]
	if o.get("ip").null() && subnet.IPVersion == 6 {
		if port := s.ipv6Interface(router, subnet.NetworkID); port != "" { // as by openstack router add subnet
			s.routing.links[name] = port
			_, err := s.world.service.Routers().AddInterface(s.world.ctx, administrator(), router, neutron.InterfaceRequest{SubnetID: id})
			return s.at(n, err)
		}
	}
	port, err := s.addLink(name, object{n, fields}, subnet.NetworkID, "network:router_interface")
	if err != nil {
		return err
	}
	_, err = s.world.service.Routers().AddInterface(s.world.ctx, administrator(), router, neutron.InterfaceRequest{PortID: port})
	return s.at(n, err)
}

// ipv6Interface returns the router's interface with IPv6 addresses on a network; "" without one.
func (s *scenario) ipv6Interface(router, network string) string {
	for _, port := range s.routing.links {
		p, err := s.world.service.Ports().Show(s.world.ctx, administrator(), port)
		if err == nil && p.DeviceID == router && p.NetworkID == network && p.DeviceOwner == "network:router_interface" &&
			slices.ContainsFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.IPAddress.Is6() }) {
			return port
		}
	}
	return ""
}

// addExtraRoutes gives a router its extra routes.
func (s *scenario) addExtraRoutes(n node) error {
	o, err := n.anyObject()
	if err != nil {
		return err
	}
	id, err := s.routing.routers.find(o.get("name"))
	if err != nil || o.get(extraRoutes).null() {
		return err
	}
	return s.at(n, s.world.update(s.routing.routers.kind, id, object{n, map[string]any{"routes": o.get(extraRoutes).value}}))
}

// updateRouter changes a router. A gateway of null takes it away.
func (s *scenario) updateRouter(n node) error {
	o, plain, err := s.routing.splitRouter(n, "router")
	if err != nil {
		return err
	}
	id, err := s.routing.routers.find(o.get("router"))
	if err != nil {
		return err
	}
	if o.has(moreGateways) {
		return fileErrorf(o.under(moreGateways), "only a new router can be given these")
	}
	if err := s.updateIn(s.routing.routers, plain, "router"); err != nil {
		return err
	}
	body := map[string]any{}
	if o.has(extraRoutes) {
		body["routes"] = o.get(extraRoutes).value
	}
	if o.has(routerGateway) || o.has(routerSNAT) {
		if err := s.changeGateway(id, o, body); err != nil {
			return err
		}
	}
	return s.at(n, s.world.update(s.routing.routers.kind, id, object{n, body}))
}

// changeGateway sets the attributes of a request by which a router gets another gateway, none, or
// the present one with or without SNAT.
func (s *scenario) changeGateway(id string, o object, body map[string]any) error {
	name := s.nameOf[id]
	r, err := s.world.service.Routers().Show(s.world.ctx, administrator(), id)
	if err != nil {
		return err
	}
	gone := o.has(routerGateway) && (o.get(routerGateway).null() || len(r.Gateways) > 0)
	if gone {
		delete(s.routing.links, name+".gw")
		none := object{o.node, map[string]any{"external_gateway_info": nil}}
		if err := s.at(o.node, s.world.update(s.routing.routers.kind, id, none)); err != nil {
			return err
		}
	}
	switch {
	case o.has(routerGateway):
		return s.setGateway(name, o, body)
	case len(r.Gateways) == 0:
		return fileErrorf(o.under(routerSNAT), "router %s has no gateway", name)
	}
	snat, err := o.get(routerSNAT).flag(true)
	body["external_gateway_info"] = map[string]any{"network_id": r.Gateways[0].NetworkID, "enable_snat": snat}
	return err
}

// addFirewall makes a firewall with its rules.
func (s *scenario) addFirewall(n node) error {
	plain, err := s.withRules(n, "name")
	if err != nil {
		return err
	}
	return s.addWith(s.routing.firewalls, plain, nil, s.world.createFirewall)
}

// firewallRuleFields are those of a rule of a firewall or a firewall group.
func firewallRuleFields() map[string]field {
	fields := asTheyAre("action", "protocol", "source_port", "destination_port", "enabled")
	maps.Copy(fields, map[string]field{"source": {attribute: "source_ip_address"}, "destination": {attribute: "destination_ip_address"}})
	return fields
}

// withRules returns a firewall with its rules as Neutron has them, with ids.
func (s *scenario) withRules(n node, name string) (node, error) {
	o, err := n.anyObject()
	if err != nil || !o.has("rules") {
		return n, err
	}
	firewall, err := o.get(name).text()
	if err != nil {
		return n, err
	}
	rules, err := each(o.get("rules"), func(n node) (any, error) {
		rule, err := objectOf(firewallRuleFields())(n)
		if err == nil {
			rule.(map[string]any)["id"] = s.derive("firewall-rule", firewall, n.place)
		}
		return rule, err
	})
	changed := maps.Clone(o.fields)
	changed["rules"] = append([]any{}, rules...)
	return node{n.place, changed}, err
}

// updateFirewall changes a firewall; routers that it names are all that it has then.
func (s *scenario) updateFirewall(n node) error {
	n, err := s.withRules(n, "firewall")
	if err != nil {
		return err
	}
	o, err := n.object(append(slices.Sorted(maps.Keys(s.routing.firewalls.fields)), "firewall")...)
	if err != nil {
		return err
	}
	id, err := s.routing.firewalls.find(o.get("firewall"))
	if err != nil {
		return err
	}
	body, err := attributes(o, s.routing.firewalls.fields)
	if err != nil {
		return err
	}
	if o.has("routers") {
		f, err := s.world.service.Firewalls().Show(s.world.ctx, administrator(), id)
		if err != nil {
			return err
		}
		ids := make([]any, len(f.RouterIDs))
		for i, r := range f.RouterIDs {
			ids[i] = r
		}
		body[delRouterIDs] = ids
	}
	return s.at(n, s.world.updateFirewall(id, object{n, body}))
}
