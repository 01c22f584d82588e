package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/control"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// limits let a game run into its quotas.
func limits() control.Options {
	return control.Options{Quotas: map[string]int{"network": 4, "subnet": 6, "port": 12, "security_group": 4, "security_group_rule": 20, "router": 4}}
}

// TestRandomOperations does anything in any order, and others harm keys of Calico's model. After
// each step every bundle and key is what its owner translates into now; a refused request has
// changed nothing; and when all is deleted, the store is as it was.
func TestRandomOperations(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w, keys := starting(t, store.NewMemory(), limits())
		w.hosts("h1", "h2")
		w.carry("physnet1", "public")
		play(rt, keys, w, w)
	})
}

// TestRandomOperationsAtTwoServers is the same over an etcd, each request at either server.
func TestRandomOperationsAtTwoServers(t *testing.T) {
	t.Parallel()
	st := inEtcd(t, false)
	one, keys := starting(t, st, limits())
	one.hosts("h1", "h2")
	one.carry("physnet1", "public")
	two := open(t, st, limits())
	rapid.Check(t, func(rt *rapid.T) { play(rt, keys, one, two) })
}

// play runs one game, on a network with a bit of everything. keys makes one of the servers' keys.
func play(rt *rapid.T, keys func() *control.Keys, ws ...*world) {
	w := ws[0]
	w.openRouted(rt)
	before := w.dump()
	g := &game{world: w, servers: ws, keys: keys, rt: rt}
	n := w.network(`{}`).ID
	w.subnet(n, `"ip_version":4,"cidr":"10.0.0.0/29"`)
	w.subnet(n, `"ip_version":6,"cidr":"fd00:2::/64","ipv6_ra_mode":"slaac","ipv6_address_mode":"slaac"`)
	w.port(n, `"device_owner":"network:dhcp"`)
	w.port(n, `"name":"first"`)
	r := w.routed()
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+r+`","ip_version":4,"cidr":"10.65.0.0/29"}`)
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+r+`","ip_version":6,"cidr":"fd00:65::/64"}`)
	must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+r+`","binding:host_id":"h1","device_id":"vm"}`)
	e := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`).ID
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+e+`","ip_version":4,"cidr":"172.24.4.0/28"}`)
	w.router(`{"external_gateway_info":{"network_id":"` + e + `"}}`)
	rt.Repeat(map[string]func(*rapid.T){
		"":                g.check,
		"create network":  g.createNetwork,
		"create subnet":   g.createSubnet,
		"create port":     g.createPort,
		"create ports":    g.createPorts,
		"create group":    g.createGroup,
		"create rule":     g.createRule,
		"update network":  g.updateNetwork,
		"update subnet":   g.updateSubnet,
		"change subnet":   g.updateSubnet,
		"update port":     g.updatePort,
		"change port":     g.updatePort,
		"alter port":      g.updatePort,
		"update group":    g.updateGroup,
		"delete anything": g.deleteAnything,
		"change tags":     g.changeTags,
		"harm keys":       g.harmKeys,

		"create router":    g.createRouter,
		"update router":    g.updateRouter,
		"add interface":    g.addInterface,
		"join":             g.addInterface,
		"remove interface": g.removeInterface,
	})
	g.deleteAll()
	if d := cmp.Diff(before, w.dump()); d != "" {
		rt.Fatalf("left in the store (+) or lost (-):\n%s", d)
	}
}

// game plays one sequence of steps.
type game struct {
	*world  // the server asked now
	servers []*world
	keys    func() *control.Keys
	rt      *rapid.T
}

// caller is somebody; most often the member.
func (g *game) caller(rt *rapid.T) neutron.Caller {
	return rapid.SampledFrom([]neutron.Caller{g.member, g.member, g.member, g.member, g.admin, g.admin, g.admin, g.other}).Draw(rt, "caller")
}

// attempt runs a request, which may be refused, but then must leave no trace.
func (g *game) attempt(rt *rapid.T, request func() error) {
	g.world = rapid.SampledFrom(g.servers).Draw(rt, "server")
	before := g.dump()
	err := request()
	if err == nil {
		return
	}
	rt.Logf("refused: %s", problem(err))
	if len(problem(err)) > 15 && problem(err)[:15] == "not for clients" {
		rt.Fatalf("%v", err)
	}
	if d := cmp.Diff(before, g.dump()); d != "" {
		rt.Fatalf("refused with %v, but the store changed:\n%s", err, d)
	}
}

func (g *game) make(rt *rapid.T, r neutron.Resource, texts ...string) {
	c := g.caller(rt)
	rt.Logf("%s creates %s %v", c.ProjectID, r, texts)
	g.attempt(rt, func() error { _, err := g.create(c, r, texts...); return err })
}

func (g *game) update(rt *rapid.T, r neutron.Resource, text string) {
	id, ok := g.any(rt, r)
	if !ok {
		return
	}
	c := g.caller(rt)
	rt.Logf("%s updates %s %s %s", c.ProjectID, r, id, text)
	g.attempt(rt, func() error { _, err := g.change(c, r, id, text); return err })
}

func (g *game) createNetwork(rt *rapid.T) {
	g.make(rt, neutron.Networks, rapid.SampledFrom([]string{
		`{}`, `{"port_security_enabled":false}`, `{"shared":true}`, `{"mtu":1400}`, `{"provider:network_type":"uplink"}`,
		`{"provider:network_type":"vlan","provider:physical_network":"physnet1"}`, `{"provider:network_type":"flat","provider:physical_network":"public"}`,
		`{"provider:network_type":"routed"}`,
	}).Draw(rt, "network"))
}

func (g *game) createSubnet(rt *rapid.T) {
	network, _ := g.any(rt, neutron.Networks)
	g.make(rt, neutron.Subnets, `{"network_id":"`+network+`",`+rapid.SampledFrom([]string{
		`"ip_version":4,"cidr":"10.0.0.0/29"`, `"ip_version":4,"cidr":"10.1.0.0/24","enable_dhcp":false`, `"ip_version":6,"cidr":"fd00:1::/64"`,
		`"ip_version":6,"cidr":"fd00:2::/64","ipv6_ra_mode":"slaac","ipv6_address_mode":"slaac"`,
		`"ip_version":4,"cidr":"10.2.0.0/24","gateway_ip":null,"host_routes":[{"destination":"10.9.0.0/16","nexthop":"10.2.0.9"}]`,
	}).Draw(rt, "subnet")+`}`)
}

func (g *game) portText(rt *rapid.T) string {
	network, _ := g.any(rt, neutron.Networks)
	return `{"network_id":"` + network + `"` + rapid.SampledFrom([]string{
		``, `,"fixed_ips":[]`, `,"fixed_ips":[{"ip_address":"10.0.0.2"}]`, `,"mac_address":"fa:16:3e:00:00:01"`, `,"port_security_enabled":false`,
		`,"device_owner":"network:dhcp"`, `,"device_owner":"network:router_interface","device_id":"r"`, `,"binding:host_id":"h1"`,
		`,"binding:host_id":"nowhere"`, `,"allowed_address_pairs":[{"ip_address":"10.0.0.0/24"}]`,
		`,"extra_dhcp_opts":[{"opt_name":"mtu","opt_value":"1400"}]`, `,"binding:host_id":"h2","device_id":"a/b"`,
		`,"binding:host_id":"h1","binding:profile":{"interface_name":"eth9"}`,
		`,"binding:host_id":"h1","allowed_address_pairs":[{"ip_address":"10.0.0.6"},{"ip_address":"fd00:2::6/128"}]`,
	}).Draw(rt, "port") + `}`
}

func (g *game) createPort(rt *rapid.T) { g.make(rt, neutron.Ports, g.portText(rt)) }

func (g *game) createPorts(rt *rapid.T) {
	g.make(rt, neutron.Ports, g.portText(rt), g.portText(rt), g.portText(rt))
}

func (g *game) createGroup(rt *rapid.T) {
	g.make(rt, neutron.SecurityGroups, rapid.SampledFrom([]string{`{"name":"a"}`, `{"name":"b","stateful":false}`}).Draw(rt, "group"))
}

func (g *game) createRule(rt *rapid.T) {
	group, _ := g.any(rt, neutron.SecurityGroups)
	remote, _ := g.any(rt, neutron.SecurityGroups)
	g.make(rt, neutron.SecurityGroupRules, `{"security_group_id":"`+group+`","direction":"ingress",`+rapid.SampledFrom([]string{
		`"protocol":"tcp","port_range_min":80,"port_range_max":80`, `"remote_group_id":"` + remote + `"`, `"protocol":"icmp"`,
	}).Draw(rt, "rule")+`}`)
}

func (g *game) createRouter(rt *rapid.T) {
	network, _ := g.any(rt, neutron.Networks)
	g.make(rt, neutron.Routers, rapid.SampledFrom([]string{
		`{}`, `{"admin_state_up":false}`, `{"external_gateway_info":{"network_id":"` + network + `"}}`,
		`{"external_gateway_info":{"network_id":"` + network + `","enable_snat":false}}`,
	}).Draw(rt, "router"))
}

func (g *game) updateRouter(rt *rapid.T) {
	network, _ := g.any(rt, neutron.Networks)
	g.update(rt, neutron.Routers, rapid.SampledFrom([]string{
		`{"name":"x"}`, `{"admin_state_up":false}`, `{"external_gateway_info":null}`, `{"external_gateway_info":{"network_id":"` + network + `"}}`,
		`{"external_gateway_info":{"network_id":"` + network + `","enable_snat":false}}`, `{"routes":[]}`,
		`{"external_gateway_info":{"network_id":"` + network + `","external_fixed_ips":[{"ip_address":"172.24.4.5"}]}}`,
		`{"routes":[{"destination":"10.9.0.0/16","nexthop":"10.0.0.3"},{"destination":"10.8.0.0/16","nexthop":"172.24.4.3"}]}`,
		`{"routes":[{"destination":"10.9.0.0/16","nexthop":"10.1.0.3"}]}`, `{"routes":[{"destination":"10.8.0.0/16","nexthop":"172.24.4.5"}]}`,
	}).Draw(rt, "change"))
}

// interfaceRequest names a port or a subnet.
func (g *game) interfaceRequest(rt *rapid.T) (q neutron.InterfaceRequest) {
	if rapid.Bool().Draw(rt, "by port") {
		q.PortID, _ = g.any(rt, neutron.Ports)
	} else {
		q.SubnetID, _ = g.any(rt, neutron.Subnets)
	}
	return q
}

func (g *game) addInterface(rt *rapid.T) {
	router, _ := g.any(rt, neutron.Routers)
	c, q := g.caller(rt), g.interfaceRequest(rt)
	rt.Logf("%s joins router %s and %+v", c.ProjectID, router, q)
	g.attempt(rt, func() error { _, err := g.join(c, router, q); return err })
}

func (g *game) removeInterface(rt *rapid.T) {
	router, _ := g.any(rt, neutron.Routers)
	c, q := g.caller(rt), g.interfaceRequest(rt)
	q.KeepPort = q.PortID != "" && rapid.Bool().Draw(rt, "keep port")
	rt.Logf("%s parts router %s and %+v", c.ProjectID, router, q)
	g.attempt(rt, func() error { _, err := g.part(c, router, q); return err })
}

// deleteRouters deletes all routers with their ports.
func (g *game) deleteRouters() {
	snap, err := g.db.View(context.Background())
	if err != nil {
		g.rt.Fatal(err)
	}
	for _, id := range g.ids(neutron.Routers) {
		if _, err := g.change(g.admin, neutron.Routers, id, `{"routes":[],"external_gateway_info":null}`); err != nil {
			g.rt.Fatalf("clear router %s: %v", id, err)
		}
		for x := range schema.RouterPorts.By(snap, "router", id) {
			if x.Gateway {
				continue
			}
			if _, err := g.part(g.admin, id, neutron.InterfaceRequest{PortID: x.PortID}); err != nil {
				g.rt.Fatalf("part router %s and %s: %v", id, x.PortID, err)
			}
		}
		if err := g.remove(g.admin, neutron.Routers, id); err != nil {
			g.rt.Fatalf("delete router %s: %v", id, err)
		}
	}
}

func (g *game) updateNetwork(rt *rapid.T) {
	g.update(rt, neutron.Networks, rapid.SampledFrom([]string{
		`{}`, `{"name":"x"}`, `{"mtu":1300}`, `{"mtu":0}`, `{"shared":true}`, `{"shared":false}`, `{"router:external":true}`, `{"router:external":false}`,
		`{"provider:segmentation_id":150}`, `{"admin_state_up":false}`, `{"admin_state_up":true}`,
	}).Draw(rt, "change"))
}

func (g *game) updateSubnet(rt *rapid.T) {
	g.update(rt, neutron.Subnets, rapid.SampledFrom([]string{
		`{"name":"x"}`, `{"gateway_ip":null}`, `{"gateway_ip":"10.0.0.6"}`, `{"enable_dhcp":false}`, `{"enable_dhcp":true}`,
		`{"dns_nameservers":["10.0.0.3"]}`, `{"allocation_pools":[{"start":"10.0.0.3","end":"10.0.0.4"}]}`,
	}).Draw(rt, "change"))
}

func (g *game) updatePort(rt *rapid.T) {
	group, _ := g.any(rt, neutron.SecurityGroups)
	g.update(rt, neutron.Ports, rapid.SampledFrom([]string{
		`{"name":"x"}`, `{"admin_state_up":false}`, `{"fixed_ips":[]}`, `{"fixed_ips":[{"ip_address":"10.0.0.3"}]}`, `{"mac_address":null}`,
		`{"mac_address":"fa:16:3e:00:00:02"}`, `{"security_groups":["` + group + `"]}`, `{"security_groups":[]}`,
		`{"port_security_enabled":false,"security_groups":[],"allowed_address_pairs":[]}`, `{"port_security_enabled":true}`,
		`{"device_owner":"network:dhcp"}`, `{"device_owner":"compute:nova"}`, `{"binding:host_id":"h2"}`, `{"binding:host_id":""}`,
		`{"binding:profile":{"interface_name":"eth0"}}`, `{"extra_dhcp_opts":[{"opt_name":"mtu","opt_value":null}]}`, `{"extra_dhcp_opts":[{"opt_name":"mtu","opt_value":"1300"}]}`,
		`{"device_id":"other"}`, `{"device_id":""}`, `{"binding:host_id":"h1"}`, `{"binding:profile":null}`, `{"binding:profile":{}}`,
	}).Draw(rt, "change"))
}

func (g *game) updateGroup(rt *rapid.T) {
	g.update(rt, neutron.SecurityGroups, rapid.SampledFrom([]string{`{"name":"x"}`, `{"stateful":false}`, `{"stateful":true}`}).Draw(rt, "change"))
}

func (g *game) deleteAnything(rt *rapid.T) {
	r := rapid.SampledFrom([]neutron.Resource{neutron.Networks, neutron.Subnets, neutron.Ports, neutron.SecurityGroups, neutron.SecurityGroupRules,
		neutron.Routers}).Draw(rt, "kind")
	id, ok := g.any(rt, r)
	if !ok {
		return
	}
	c := g.caller(rt)
	rt.Logf("%s deletes %s %s", c.ProjectID, r, id)
	g.attempt(rt, func() error { return g.remove(c, r, id) })
}

func (g *game) changeTags(rt *rapid.T) {
	r := rapid.SampledFrom([]neutron.Resource{neutron.Networks, neutron.Subnets, neutron.Ports, neutron.SecurityGroups, neutron.Routers}).Draw(rt, "kind")
	id, ok := g.any(rt, r)
	if !ok {
		return
	}
	g.attempt(rt, func() error {
		_, err := g.on(r).tags(g.caller(rt), id, func(tags []string) ([]string, error) { return append(slices.Clone(tags), "t"), nil })
		return err
	})
}

// harmKeys has others delete and write some of Neutron's keys, and a server put them right.
func (g *game) harmKeys(rt *rapid.T) {
	if !g.hasRouted() {
		return // they may be another Neutron's then
	}
	harm := map[string]string{}
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(g.calico()))), 1, 3, rapid.ID).Draw(rt, "keys") {
		harm[key] = rapid.SampledFrom([]string{"", "{}", someEndpoint, someSubnet}).Draw(rt, "harm")
	}
	harm[endpointPath("h1", "openstack/vm", "nobody")] = someEndpoint
	g.write(rt, harm)
	once(rt, g.keys()) // of a server that has just started: one that runs would rest between
}

func (g *game) hasRouted() bool {
	snap, err := g.db.View(context.Background())
	if err != nil {
		g.rt.Fatal(err)
	}
	for n := range schema.Networks.All(snap) {
		if n.Routed() {
			return true
		}
	}
	return false
}

// ids returns those of all objects of a kind, in an order that does not depend on chance.
func (g *game) ids(r neutron.Resource) []string {
	prefix := map[neutron.Resource]string{
		neutron.Networks: schema.Networks.Key(""), neutron.Subnets: schema.Subnets.Key(""), neutron.Ports: schema.Ports.Key(""),
		neutron.SecurityGroups: schema.SecurityGroups.Key(""), neutron.SecurityGroupRules: schema.SecurityGroups.Key(""),
		neutron.Routers: schema.Routers.Key(""),
	}[r]
	kvs, _, err := g.st.List(context.Background(), prefix)
	if err != nil {
		g.rt.Fatal(err)
	}
	slices.SortStableFunc(kvs, func(a, b store.KV) int { return int(a.CreateRevision - b.CreateRevision) })
	var ids []string
	for _, kv := range kvs {
		if r != neutron.SecurityGroupRules {
			ids = append(ids, strings.TrimPrefix(kv.Key, prefix))
			continue
		}
		var group neutron.SecurityGroup
		if err := json.Unmarshal(kv.Value, &group); err != nil {
			g.rt.Fatal(err)
		}
		for _, rule := range group.Rules {
			ids = append(ids, rule.ID)
		}
	}
	return ids
}

func (g *game) any(rt *rapid.T, r neutron.Resource) (string, bool) {
	ids := g.ids(r)
	if len(ids) == 0 {
		return "11111111-1111-1111-1111-111111111111", false
	}
	return ids[rapid.IntRange(0, len(ids)-1).Draw(rt, "which "+r.Name())], true
}

// check derives every bundle and key anew and compares.
func (g *game) check(rt *rapid.T) {
	snap := g.checkDerived(rt)
	if d := cmp.Diff(calicoOf(rt, snap), g.calico()); d != "" {
		rt.Fatalf("keys of Calico's model are not what their owners mean now (-want +got):\n%s", d)
	}
}

// checkDerived derives every bundle anew and compares. Every chain says what it is for.
func (w *world) checkDerived(rt fataler) *records.Snap {
	rt.Helper()
	snap, err := w.db.View(context.Background())
	if err != nil {
		rt.Fatal(err)
	}
	want, got := derivedServices(rt, snap), map[string]string{}
	for n := range schema.Networks.All(snap) {
		want["network/"+n.ID] = text(translate.Network(n))
	}
	for s := range schema.Subnets.All(snap) {
		n, _ := schema.Networks.Get(snap, s.NetworkID)
		var servers []*neutron.Port
		for p := range schema.Ports.By(snap, "subnet", s.ID) {
			if p.DeviceOwner == "network:dhcp" {
				servers = append(servers, p)
			}
		}
		want["subnet/"+s.ID] = text(translate.Subnet(s, n, servers, "openstacklocal"))
	}
	for p := range schema.Ports.All(snap) {
		n, _ := schema.Networks.Get(snap, p.NetworkID)
		var groups []*neutron.SecurityGroup
		for _, id := range p.SecurityGroups {
			sg, err := schema.SecurityGroups.Get(snap, id)
			if err != nil {
				rt.Fatalf("port %s: %v", p.ID, err)
			}
			groups = append(groups, sg)
		}
		want["port/"+p.ID] = text(translate.Port(p, n, groups))
	}
	for sg := range schema.SecurityGroups.All(snap) {
		want["security-group/"+sg.ID] = text(translate.SecurityGroup(sg))
	}
	for g := range schema.AddressGroups.All(snap) {
		want["address-group/"+g.ID] = text(translate.AddressGroup(g))
	}
	for b := range schema.AddressBlocks.All(snap) {
		want["address-block/"+schema.AddressBlockID(b.GroupID, b.Number)] = text(translate.AddressBlock(b))
	}
	for r := range schema.Routers.All(snap) {
		var links []translate.RouterLink
		for x := range schema.RouterPorts.By(snap, "router", r.ID) {
			links = append(links, linkIn(snap, x))
		}
		for id, b := range derivedRouter(r, links) {
			want[id] = text(b)
		}
	}
	for x := range schema.NDPProxies.All(snap) {
		r, _ := schema.Routers.Peek(snap, x.RouterID)
		var b topology.Bundle
		if link, ok := schema.RouterPorts.Peek(snap, translate.NDPProxyGateway(r)); ok {
			b = translate.NDPProxy(x, r, linkIn(snap, link))
		}
		want["ndp-proxy/"+x.ID] = text(b)
	}
	for b := range schema.Bundles.All(snap) {
		got[schema.BundleID(b.Owner)] = text(b.Bundle)
		for _, c := range b.Bundle.Chains {
			if c.Purpose == "" {
				rt.Fatalf("chain %s of %s has no purpose", c.Name, schema.BundleID(b.Owner))
			}
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		rt.Fatalf("bundles are not what their owners mean now (-want +got):\n%s", d)
	}
	return snap
}

// linkIn returns a router's port with what its translation reads.
func linkIn(snap *records.Snap, x *neutron.RouterPort) (l translate.RouterLink) {
	l.Port, _ = schema.Ports.Peek(snap, x.PortID)
	l.Network, _ = schema.Networks.Peek(snap, l.Port.NetworkID)
	for _, f := range l.Port.FixedIPs {
		s, _ := schema.Subnets.Peek(snap, f.SubnetID)
		if slices.Contains(l.Subnets, s) {
			continue
		}
		l.Subnets = append(l.Subnets, s)
		if pool, ok := schema.SubnetPools.Peek(snap, s.SubnetPoolID); ok && s.IPVersion == 6 {
			l.AddressScopes.IPv6 = pool.AddressScopeID
		} else if ok {
			l.AddressScopes.IPv4 = pool.AddressScopeID
		}
		if s.IPVersion == 6 || x.Gateway {
			continue
		}
		var servers []*neutron.Port
		for p := range schema.Ports.By(snap, "subnet", s.ID) {
			if p.DeviceOwner == "network:dhcp" {
				servers = append(servers, p)
			}
		}
		l.DHCPServer = translate.DHCPServer(s, servers)
	}
	return l
}

func text(b topology.Bundle) string {
	t, err := json.Marshal(b)
	if err != nil {
		panic(err)
	}
	return string(t)
}

// deleteAll deletes everything as the admin, dependants first. Ports become a service's that
// anybody may delete: as a machine's they could be refused.
func (g *game) deleteAll() {
	g.deleteRouters()
	for _, id := range g.ids(neutron.Ports) {
		if _, err := g.change(g.admin, neutron.Ports, id, `{"device_owner":"network:other"}`); err != nil {
			g.rt.Fatalf("free port %s: %v", id, err)
		}
	}
	for _, r := range []neutron.Resource{neutron.Ports, neutron.Subnets, neutron.Networks, neutron.SecurityGroups} {
		for _, id := range g.ids(r) {
			if err := g.remove(g.admin, r, id); err != nil {
				g.rt.Fatal(fmt.Errorf("delete %s %s: %w", r, id, err))
			}
		}
	}
}
