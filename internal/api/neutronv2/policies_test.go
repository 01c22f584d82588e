package neutronv2_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
)

// everyCaller are an admin and three users of one project, by their roles: member and reader,
// reader, and none.
var everyCaller = []string{"admin", "member", "reader", "none"}

// ways has the policy by which the callers' project sees an object, by the names that the cases
// have for it; "" is none.
var ways = map[string]string{
	"own": "", "other's": "",
	"shared with all":     `"action":"access_as_shared","target_tenant":"*"`,
	"shared with project": `"action":"access_as_shared","target_tenant":"` + memberProject + `"`,
	"external":            `"action":"access_as_external","target_tenant":"*"`,
}

// policyCase is a row of the matrix: it has what Neutron's default policies (conf/policies of
// neutron 21.0.0) let each of everyCaller do: create, show, list, update and delete an object, or
// all but update. A + is allowed, 0 the answer 400, 3 is 403, 4 is 404 and 9 is 409, and - is not
// in the list.
type policyCase struct {
	resource neutron.Resource
	way      string // of the object, or of what it is in
	what     string
	make     func(m *policyWorld, way string) (id, create string) // the object, and the body of a create
	update   string
	want     [4]string
}

// policyCases has a row for each resource and each way.
func policyCases() []policyCase {
	const name = `"name":"x"`
	all, reads := "+++++", "3++33"
	return []policyCase{
		{neutron.Networks, "own", "", networkOf, name, [4]string{all, all, reads, reads}},
		{neutron.Networks, "other's", "", networkOf, name, [4]string{all, "04-44", "04-44", "04-44"}},
		{neutron.Networks, "shared with all", "", networkOf, name, [4]string{all, "0++33", "0++33", "0++33"}},
		{neutron.Networks, "shared with project", "", networkOf, name, [4]string{all, "0++33", "0++33", "0++33"}},
		{neutron.Networks, "external", "", networkOf, name, [4]string{all, "0++33", "0++33", "0++33"}},

		{neutron.Subnets, "own", "", subnetOf, name, [4]string{all, all, reads, reads}},
		{neutron.Subnets, "other's", "", subnetOf, name, [4]string{all, "44-44", "44-44", "44-44"}},
		{neutron.Subnets, "shared with all", "", subnetOf, name, [4]string{all, reads, reads, reads}},
		{neutron.Subnets, "shared with project", "", subnetOf, name, [4]string{all, reads, reads, reads}},
		{neutron.Subnets, "external", "", subnetOf, name, [4]string{all, "34-44", "34-44", "34-44"}},

		{neutron.Ports, "own", "of the project", portOf("member"), name, [4]string{all, all, reads, reads}},
		{neutron.Ports, "own", "of a guest", portOf("other"), name, [4]string{all, "+++3+", reads, reads}},
		{neutron.Ports, "other's", "of its project", portOf("other"), name, [4]string{all, "44-44", "44-44", "44-44"}},
		{neutron.Ports, "other's", "for its project", portFor("other"), name, [4]string{all, "04-44", "04-44", "04-44"}},
		{neutron.Ports, "shared with all", "of its project", portOf("other"), name, [4]string{all, "+4-44", "34-44", "34-44"}},
		{neutron.Ports, "shared with all", "of the project", portOf("member"), name, [4]string{all, all, reads, reads}},
		{neutron.Ports, "shared with project", "of its project", portOf("other"), name, [4]string{all, "+4-44", "34-44", "34-44"}},
		{neutron.Ports, "shared with project", "of the project", portOf("member"), name, [4]string{all, all, reads, reads}},
		{neutron.Ports, "external", "of its project", portOf("other"), name, [4]string{all, "+4-44", "34-44", "34-44"}},

		{neutron.Trunks, "own", "", trunkOf, name, [4]string{all, all, reads, reads}},
		{neutron.Trunks, "other's", "", trunkOf, name, [4]string{all, "04-44", "04-44", "04-44"}},
		{neutron.Routers, "own", "", objectOf, name, [4]string{all, all, reads, reads}},
		{neutron.Routers, "other's", "", objectOf, name, [4]string{all, "04-44", "04-44", "04-44"}},
		{neutron.FloatingIPs, "own", "", floatingIPOf, `"description":"x"`, [4]string{all, all, reads, reads}},
		{neutron.FloatingIPs, "other's", "", floatingIPOf, `"description":"x"`, [4]string{all, "04-44", "04-44", "04-44"}},

		{neutron.NDPProxies, "own", "", ndpProxyOf, name, [4]string{all, all, reads, reads}},
		{neutron.NDPProxies, "other's", "", ndpProxyOf, name, [4]string{all, "04-44", "04-44", "04-44"}},

		{neutron.SecurityGroups, "own", "", objectOf, name, [4]string{all, all, reads, reads}},
		{neutron.SecurityGroups, "other's", "", objectOf, name, [4]string{all, "04-44", "04-44", "04-44"}},
		{neutron.SecurityGroups, "shared with all", "", objectOf, name, [4]string{all, "0++33", "0++33", "0++33"}},
		{neutron.SecurityGroups, "shared with project", "", objectOf, name, [4]string{all, "0++33", "0++33", "0++33"}},
		{neutron.SecurityGroupRules, "own", "", ruleOf, `"description":"x"`, [4]string{all, all, reads, reads}},
		{neutron.SecurityGroupRules, "other's", "", ruleOf, `"description":"x"`, [4]string{all, "44-44", "34-44", "34-44"}},
		{neutron.SecurityGroupRules, "shared with all", "", ruleOf, `"description":"x"`, [4]string{all, "34-44", "34-44", "34-44"}},

		{neutron.RBACPolicies, "own", "", policyOf, `"target_tenant":"x"`, [4]string{all, all, reads, reads}},
		{neutron.RBACPolicies, "other's", "", policyOf, `"target_tenant":"x"`, [4]string{all, "04-44", "34-44", "34-44"}},

		{neutron.LocalIPs, "own", "", localIPOf, name, [4]string{all, all, reads, reads}},
		{neutron.LocalIPs, "other's", "", localIPOf, name, [4]string{all, "04-44", "04-44", "04-44"}},

		{neutron.FirewallGroups, "own", "", objectOf, name, [4]string{all, all, reads, reads}},
		{neutron.FirewallGroups, "other's", "", objectOf, name, [4]string{all, "04-44", "04-44", "04-44"}},
		{neutron.FirewallGroupPolicies, "own", "", objectOf, name, [4]string{all, all, reads, reads}},
		{neutron.FirewallGroupPolicies, "other's", "", objectOf, name, [4]string{all, "04-44", "04-44", "04-44"}},
		{neutron.FirewallGroupRules, "own", "", objectOf, name, [4]string{all, all, reads, reads}},
		{neutron.FirewallGroupRules, "other's", "", objectOf, name, [4]string{all, "04-44", "04-44", "04-44"}},

		{neutron.Logs, "own", "", logOf, name, [4]string{all, "34-44", "34-44", "34-44"}},
		{neutron.Logs, "other's", "", logOf, name, [4]string{all, "04-44", "04-44", "04-44"}},
		{neutron.LoggingResources, "own", "", objectOf, name, [4]string{all, all, reads, reads}},
		{neutron.LoggingResources, "other's", "", objectOf, name, [4]string{all, "04-44", "04-44", "04-44"}},
		{neutron.FirewallLogs, "own", "", firewallLogOf, `"description":"x"`, [4]string{all, all, reads, reads}},

		{neutron.BGPSpeakers, "own", "", forAdmins(neutron.BGPSpeakers, `"local_as":1,"ip_version":4`), name, [4]string{all, "34-44", "34-44", "34-44"}},
		{neutron.BGPSpeakers, "other's", "", forAdmins(neutron.BGPSpeakers, `"local_as":1,"ip_version":4`), name, [4]string{all, "04-44", "04-44", "04-44"}},
		{neutron.BGPPeers, "own", "", forAdmins(neutron.BGPPeers, `"peer_ip":"192.0.2.1","remote_as":1,"auth_type":"none"`), name, [4]string{all, "34-44", "34-44", "34-44"}},
		{neutron.BGPPeers, "other's", "", forAdmins(neutron.BGPPeers, `"peer_ip":"192.0.2.1","remote_as":1,"auth_type":"none"`), name, [4]string{all, "04-44", "04-44", "04-44"}},
	}
}

// operatorCases has the rows of resources that admins make, and of port forwardings.
func operatorCases() []policyCase {
	const name = `"name":"x"`
	all, reads := "+++++", "3++33"
	return []policyCase{
		{neutron.PortForwardings, "own", "", forwardingOf, `"description":"x"`, [4]string{all, all, reads, reads}},
		{neutron.MeteringLabels, "own", "", objectWith(name), "", [4]string{"++++", "3++3", "3++3", "3++3"}},
		{neutron.MeteringLabels, "other's", "", objectWith(name), "", [4]string{"++++", "04-4", "04-4", "04-4"}},
		{neutron.MeteringLabelRules, "own", "", meteringRuleOf, "", [4]string{"++++", "3++3", "3++3", "3++3"}},
		{neutron.Flavors, "own", "", flavorOf, name, [4]string{all, reads, reads, reads}},
		{neutron.ServiceProfiles, "own", "", profileOf, `"description":"x"`, [4]string{all, "34-44", "34-44", "34-44"}},
		{neutron.SegmentRanges, "own", "", segmentRangeOf, name, [4]string{all, "34-44", "34-44", "34-44"}},
		{neutron.DefaultRules, "own", "", defaultRuleOf, "", [4]string{"++++", "3++3", "3++3", "3++3"}},
		{neutron.Segments, "own", "", segmentOf, name, [4]string{"0+++9", "34-44", "34-44", "34-44"}},
	}
}

// sharedCases has the rows of resources that policies share, and that are in no other object.
func sharedCases() (cases []policyCase) {
	const name = `"name":"x"`
	all, reads := "+++++", "3++33"
	for _, x := range []struct {
		resource   neutron.Resource
		attributes string
	}{
		{neutron.SubnetPools, `"name":"p","prefixes":["10.0.0.0/16"]`},
		{neutron.AddressScopes, `"name":"a","ip_version":4`},
		{neutron.AddressGroups, `"name":"g","addresses":["192.0.2.0/24"]`},
		{neutron.QoSPolicies, `"name":"q"`},
	} {
		own, r, object := all, x.resource, objectWith(x.attributes)
		guest := "0++33"
		switch r {
		case neutron.QoSPolicies: // admins make them
			own = reads
		case neutron.AddressGroups: // those who have one by a policy do not find it to change it
			guest = "0++44"
		}
		cases = append(cases,
			policyCase{r, "own", "", object, name, [4]string{all, own, reads, reads}},
			policyCase{r, "other's", "", object, name, [4]string{all, "04-44", "04-44", "04-44"}},
			policyCase{r, "shared with all", "", object, name, [4]string{all, guest, guest, guest}},
			policyCase{r, "shared with project", "", object, name, [4]string{all, guest, guest, guest}},
		)
	}
	return cases
}

// attributeCase is a row of the matrix of attributes: it has who of everyCaller may set one that
// policies name, + or 3, at create and at update; "" is not tried. The object, or the network it is
// on, is the project's own, or shared with it.
type attributeCase struct {
	resource      neutron.Resource
	value         string // as in a body
	own, ofShared [2]string
}

// attributeCases has a row for each attribute that policies name.
func attributeCases() []attributeCase {
	everyone, admins, no := [2]string{"++33", "++33"}, [2]string{"+333", "+333"}, [2]string{}
	return []attributeCase{
		{neutron.Networks, `"shared":true`, admins, no},
		{neutron.Networks, `"router:external":true`, admins, no},
		{neutron.Networks, `"is_default":true`, admins, no},
		{neutron.Networks, `"port_security_enabled":false`, everyone, no},
		{neutron.Networks, `"provider:network_type":"vxlan"`, admins, no},
		{neutron.Networks, `"provider:physical_network":"p"`, admins, no},
		{neutron.Networks, `"provider:segmentation_id":77`, admins, no},
		{neutron.Networks, `"segments":[{"provider:network_type":"vxlan"}]`, admins, no},
		{neutron.Networks, `"qos_policy_id":"5e7a04b4-84a4-4bd9-a51c-3d9c6d9c0b4f"`, everyone, no},
		{neutron.Subnets, `"service_types":["compute:nova"]`, everyone, no}, // its rule is not enforced
		{neutron.Subnets, `"segment_id":"5e7a04b4-84a4-4bd9-a51c-3d9c6d9c0b4f"`, admins, no},
		{neutron.Ports, `"hints":{"openvswitch":{"other_config":{"tx-steering":"hash"}}}`, admins, admins},
		{neutron.Ports, `"trusted":true`, admins, admins},
		{neutron.Ports, `"qos_policy_id":"5e7a04b4-84a4-4bd9-a51c-3d9c6d9c0b4f"`, everyone, everyone},
		{neutron.FloatingIPs, `"qos_policy_id":"5e7a04b4-84a4-4bd9-a51c-3d9c6d9c0b4f"`, everyone, no},
		{neutron.Ports, `"mac_address":"fa:16:3e:00:00:07"`, [2]string{"++33", "+333"}, admins},
		{neutron.Ports, `"fixed_ips":[{"ip_address":"10.0.0.77"}]`, everyone, admins},
		{neutron.Ports, `"fixed_ips":[{"subnet_id":"SUBNET"}]`, everyone, [2]string{"++33", "+333"}},
		{neutron.Ports, `"device_owner":"network:x"`, everyone, admins},
		{neutron.Ports, `"device_owner":"compute:x"`, everyone, everyone},
		{neutron.Ports, `"port_security_enabled":true`, everyone, admins},
		{neutron.Ports, `"allowed_address_pairs":[{"ip_address":"10.0.0.9"}]`, everyone, admins},
		{neutron.Ports, `"binding:host_id":"h"`, admins, admins},
		{neutron.Ports, `"binding:profile":{"a":"b"}`, admins, admins},
		{neutron.Ports, `"binding:vnic_type":"normal"`, everyone, everyone},
		{neutron.Ports, `"data_plane_status":"DOWN"`, [2]string{"", "+333"}, [2]string{"", "+333"}},
		{neutron.Routers, `"distributed":true`, admins, no},
		{neutron.Routers, `"ha":true`, admins, no},
		{neutron.Routers, `"external_gateway_info":{"network_id":"EXTERNAL"}`, everyone, no},
		{neutron.Routers, `"external_gateway_info":{"network_id":"EXTERNAL","enable_snat":false}`, admins, no},
		{neutron.FloatingIPs, `"floating_ip_address":"203.0.113.77"`, [2]string{"+333", ""}, no},
		{neutron.RBACPolicies, `"target_tenant":"*"`, admins, no},
		{neutron.FirewallGroups, `"shared":true`, admins, no},
		{neutron.FirewallGroupPolicies, `"shared":true`, admins, no},
		{neutron.FirewallGroupRules, `"shared":true`, admins, no},
	}
}

// policyWorld makes the objects of the cases.
type policyWorld struct {
	*server
	t        *testing.T
	external string // a network
	counter  int
}

// next returns another number each time.
func (m *policyWorld) next() int {
	m.counter += 2
	return m.counter
}

// object makes the object of a case and returns its id, with a path before it if it is below
// another object, and the body of a create.
func (m *policyWorld) object(c policyCase) (id, create string) {
	id, create = c.make(m, c.way)
	switch {
	case id != "":
		return id, create
	case create == "":
		return plainObject(c.resource)(m, c.way)
	}
	who, _ := owner(c.way)
	if c.resource == neutron.QoSPolicies || c.resource == neutron.MeteringLabels {
		who = "admin"
	}
	id = m.make(who, c.resource, create)
	m.share(c.resource, id, c.way)
	return id, create
}

func newPolicyWorld(t *testing.T) *policyWorld {
	quotas := control.DefaultQuotas()
	for name := range quotas {
		quotas[name] = -1
	}
	m := &policyWorld{newServer(t, control.Options{Quotas: quotas}), t, "", 0}
	m.external = m.make("admin", neutron.Networks, `"router:external":true`)
	m.make("admin", neutron.Subnets, `"network_id":"`+m.external+`","ip_version":4,"cidr":"203.0.113.0/24"`)
	return m
}

func (m *policyWorld) make(who string, r neutron.Resource, body string) string {
	m.t.Helper()
	return m.create(m.t, who, strings.TrimPrefix(r.Path(), "/"), fmt.Sprintf(`{%q:{%s}}`, r.Name(), body))["id"].(string)
}

// owner returns who has the objects of a way, and what a body says to make another one.
func owner(way string) (who, body string) {
	if way == "own" {
		return "member", `"project_id":"` + memberProject + `"`
	}
	return "other", `"project_id":"` + otherProject + `"`
}

// share makes the policy of a way.
func (m *policyWorld) share(r neutron.Resource, id, way string) {
	if ways[way] != "" {
		m.make("admin", neutron.RBACPolicies, `"object_type":"`+r.ObjectType()+`","object_id":"`+id+`",`+ways[way])
	}
}

func plainObject(r neutron.Resource) func(m *policyWorld, way string) (id, create string) {
	return func(m *policyWorld, way string) (id, create string) {
		who, body := owner(way)
		id = m.make(who, r, body)
		m.share(r, id, way)
		return id, body
	}
}

// forAdmins returns objects that admins alone make, of the project of a way.
func forAdmins(r neutron.Resource, attributes string) func(m *policyWorld, way string) (id, create string) {
	return func(m *policyWorld, way string) (id, create string) {
		_, body := owner(way)
		body += "," + attributes
		return m.make("admin", r, body), body
	}
}

func networkOf(m *policyWorld, way string) (id, create string) {
	return plainObject(neutron.Networks)(m, way)
}

// objectOf stands for plainObject of the case's resource.
func objectOf(*policyWorld, string) (id, create string) { return "", "" }

func subnetOf(m *policyWorld, way string) (id, create string) {
	n, _ := networkOf(m, way)
	who, _ := owner(way)
	body := `"network_id":"` + n + `","ip_version":4,"cidr":`
	return m.make(who, neutron.Subnets, body+`"10.0.0.0/24"`), body + `"10.0.1.0/24"`
}

// objectWith returns objects with attributes beside the project.
func objectWith(attributes string) func(m *policyWorld, way string) (id, create string) {
	return func(m *policyWorld, way string) (id, create string) {
		_, body := owner(way)
		return "", body + "," + attributes
	}
}

// forwardingOf returns port forwardings of a floating IP, with the path of that.
func forwardingOf(m *policyWorld, way string) (id, create string) {
	who, project := owner(way)
	n := m.make(who, neutron.Networks, project)
	subnet := m.make(who, neutron.Subnets, `"network_id":"`+n+`","ip_version":4,"cidr":"10.0.0.0/24"`)
	router := m.make(who, neutron.Routers, project+`,"external_gateway_info":{"network_id":"`+m.external+`"}`)
	m.must(m.t, http.StatusOK, who, http.MethodPut, "/routers/"+router+"/add_router_interface", `{"subnet_id":"`+subnet+`"}`)
	port := m.create(m.t, who, "ports", `{"port":{"network_id":"`+n+`"}}`)
	floating, _ := floatingIPOf(m, way)
	path := "floatingips/" + floating + "/port_forwardings"
	body := func(number int) string {
		return fmt.Sprintf(`"protocol":"tcp","internal_port_id":%q,"internal_ip_address":%q,"internal_port":%d,"external_port":%d`,
			port["id"], first(port["fixed_ips"])["ip_address"], number, number)
	}
	made := m.create(m.t, who, path, `{"port_forwarding":{`+body(80)+`}}`)
	return fmt.Sprintf("/%s/%s", path, made["id"]), body(81)
}

func meteringRuleOf(m *policyWorld, way string) (id, create string) {
	_, project := owner(way)
	label := m.make("admin", neutron.MeteringLabels, project+`,"name":"x"`)
	body := `"metering_label_id":"` + label + `","direction":"ingress","destination_ip_prefix":`
	return m.make("admin", neutron.MeteringLabelRules, body+`"10.0.0.0/24"`), body + `"10.0.1.0/24"`
}

func flavorOf(m *policyWorld, _ string) (id, create string) {
	const body = `"service_type":"L3_ROUTER_NAT"`
	return m.make("admin", neutron.Flavors, body), body
}

func profileOf(m *policyWorld, _ string) (id, create string) {
	const body = `"driver":"neutron.services.l3_router.service_providers.dvr.DvrDriver"`
	return m.make("admin", neutron.ServiceProfiles, body), body
}

func segmentRangeOf(m *policyWorld, _ string) (id, create string) {
	body := func(least int) string {
		return fmt.Sprintf(`"network_type":"vlan","physical_network":"p","minimum":%d,"maximum":%d`, least, least)
	}
	at := m.next()
	return m.make("admin", neutron.SegmentRanges, body(at)), body(at + 1)
}

func defaultRuleOf(m *policyWorld, _ string) (id, create string) {
	body := func(number int) string {
		return fmt.Sprintf(`"direction":"ingress","protocol":"tcp","port_range_min":%[1]d,"port_range_max":%[1]d`, number)
	}
	at := m.next()
	return m.make("admin", neutron.DefaultRules, body(at)), body(at + 1)
}

func segmentOf(m *policyWorld, way string) (id, create string) {
	n, _ := networkOf(m, way)
	found := m.must(m.t, http.StatusOK, "admin", http.MethodGet, "/segments?network_id="+n, nil).ids("segments")
	return found[0], `"network_id":"` + n + `","network_type":"vxlan"`
}

// portOf returns ports of a caller's project on networks.
func portOf(project string) func(m *policyWorld, way string) (id, create string) {
	return func(m *policyWorld, way string) (id, create string) {
		n, _ := networkOf(m, way)
		body := `"network_id":"` + n + `"`
		return m.make("admin", neutron.Ports, body+`,"project_id":"`+tokens[project].ProjectID+`"`), body
	}
}

// portFor is portOf, with creates for the same project.
func portFor(project string) func(m *policyWorld, way string) (id, create string) {
	return func(m *policyWorld, way string) (id, create string) {
		id, create = portOf(project)(m, way)
		return id, create + `,"project_id":"` + tokens[project].ProjectID + `"`
	}
}

func trunkOf(m *policyWorld, way string) (id, create string) {
	n, _ := networkOf(m, way)
	who, project := owner(way)
	port := func() string {
		return project + `,"port_id":"` + m.make(who, neutron.Ports, `"network_id":"`+n+`"`) + `"`
	}
	return m.make(who, neutron.Trunks, port()), port()
}

func localIPOf(m *policyWorld, way string) (id, create string) {
	n, _ := networkOf(m, way)
	who, body := owner(way)
	m.make(who, neutron.Subnets, `"network_id":"`+n+`","ip_version":4,"cidr":"10.0.0.0/24"`)
	body += `,"local_port_id":"` + m.make(who, neutron.Ports, `"network_id":"`+n+`"`) + `"`
	return m.make(who, neutron.LocalIPs, body), body
}

func floatingIPOf(m *policyWorld, way string) (id, create string) {
	who, body := owner(way)
	body += `,"floating_network_id":"` + m.external + `"`
	return m.make(who, neutron.FloatingIPs, body), body
}

// ndpProxyOf returns a proxy for a port, and the body of one for another port of its project.
func ndpProxyOf(m *policyWorld, way string) (id, create string) {
	who, project := owner(way)
	scope := m.make(who, neutron.AddressScopes, project+`,"name":"s","ip_version":6`)
	pool := m.make(who, neutron.SubnetPools, project+`,"name":"p","address_scope_id":"`+scope+`","default_prefixlen":112,"prefixes":["2001:db8::/96"]`)
	subnet := func(network, cidr string) string {
		return m.make("admin", neutron.Subnets, project+`,"network_id":"`+network+`","ip_version":6,"subnetpool_id":"`+pool+`","cidr":"`+cidr+`"`)
	}
	external := m.make("admin", neutron.Networks, `"router:external":true`)
	subnet(external, "2001:db8::1:0/112")
	network := m.make(who, neutron.Networks, project)
	inside := subnet(network, "2001:db8::2:0/112")
	router := m.make(who, neutron.Routers, project+`,"enable_ndp_proxy":true,"external_gateway_info":{"network_id":"`+external+`"}`)
	m.must(m.t, http.StatusOK, who, http.MethodPut, "/routers/"+router+"/add_router_interface", `{"subnet_id":"`+inside+`"}`)
	body := func() string {
		return project + `,"router_id":"` + router + `","port_id":"` + m.make(who, neutron.Ports, project+`,"network_id":"`+network+`"`) + `"`
	}
	return m.make(who, neutron.NDPProxies, body()), body()
}

func ruleOf(m *policyWorld, way string) (id, create string) {
	g, _ := plainObject(neutron.SecurityGroups)(m, way)
	who, _ := owner(way)
	body := `"security_group_id":"` + g + `","direction":"ingress","ethertype":`
	return m.make(who, neutron.SecurityGroupRules, body+`"IPv4"`), body + `"IPv6"`
}

func policyOf(m *policyWorld, way string) (id, create string) {
	n, _ := networkOf(m, way)
	who, _ := owner(way)
	body := `"object_type":"network","object_id":"` + n + `","action":"access_as_shared","target_tenant":`
	return m.make(who, neutron.RBACPolicies, body+`"a"`), body + `"b"`
}

// firewallLogOf returns logs of a firewall, with the path of their logging resource.
func firewallLogOf(m *policyWorld, way string) (id, create string) {
	who, project := owner(way)
	policy := m.make(who, neutron.FirewallPolicies, project)
	firewall := m.make(who, neutron.Firewalls, project+`,"firewall_policy_id":"`+policy+`","router_ids":["`+m.make(who, neutron.Routers, project)+`"]`)
	path := "logging/logging_resources/" + m.make(who, neutron.LoggingResources, project) + "/firewall_logs"
	body := `"firewall_id":"` + firewall + `"`
	made := m.create(m.t, who, path, `{"firewall_log":{`+body+`}}`)
	return fmt.Sprintf("/%s/%s", path, made["id"]), body
}

func logOf(m *policyWorld, way string) (id, create string) {
	_, body := owner(way)
	body += `,"resource_type":"security_group"`
	return m.make("admin", neutron.Logs, body), body
}

// outcome is an answer in a cell of the matrix.
func outcome(a answer) string {
	switch a.status {
	case http.StatusBadRequest:
		return "0"
	case http.StatusForbidden:
		return "3"
	case http.StatusNotFound:
		return "4"
	case http.StatusConflict:
		return "9"
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return "+"
	}
	return fmt.Sprintf("(%d %s)", a.status, a.body)
}

// serviceWant returns what a member with the role advsvc may do besides: all with ports, and see
// networks. Another project's objects are refused to it by policy, where a member may not name the
// project.
func (c *policyCase) serviceWant() string {
	member := c.want[1]
	switch {
	case c.resource == neutron.Ports:
		return "+++++"
	case c.way == "own":
		return member
	case c.resource == neutron.Networks:
		return "3++33"
	case c.resource == neutron.Subnets: // it sees the network
		return "3" + member[1:]
	case c.resource == neutron.RBACPolicies: // which names no other project
		return member
	}
	return strings.Replace(member, "0", "3", 1)
}

// TestPolicyMatrix holds who may do what to which objects against Neutron's default policies.
func TestPolicyMatrix(t *testing.T) {
	t.Parallel()
	m := newPolicyWorld(t)
	for _, c := range slices.Concat(policyCases(), operatorCases(), sharedCases()) {
		for i, who := range append(slices.Clone(everyCaller), "service") {
			want := c.serviceWant()
			if i < len(c.want) {
				want = c.want[i]
			}
			id, create := m.object(c)
			path := c.resource.Path()
			if at := strings.LastIndex(id, "/"); at >= 0 {
				path, id = id[:at], id[at+1:]
			}
			body := func(attributes string) string { return fmt.Sprintf(`{%q:{%s}}`, c.resource.Name(), attributes) }
			got := outcome(m.do(t, who, http.MethodPost, path, body(create), nil)) + outcome(m.do(t, who, http.MethodGet, path+"/"+id, nil, nil))
			if strings.Contains(string(m.must(t, http.StatusOK, who, http.MethodGet, path+"?fields=id", nil).body), id) {
				got += "+"
			} else {
				got += "-"
			}
			if c.update != "" {
				got += outcome(m.do(t, who, http.MethodPut, path+"/"+id, body(c.update), nil))
			}
			got += outcome(m.do(t, who, http.MethodDelete, path+"/"+id, nil, nil))
			if got != want {
				t.Errorf("%s, %s %s, as %s: create, show, list, update, delete are %s, want %s", c.resource.Path(), c.way, c.what, who, got, want)
			}
		}
	}
}

// TestAttributeMatrix holds who may set which attributes against Neutron's default policies. What
// is refused otherwise counts as allowed: policy comes first.
func TestAttributeMatrix(t *testing.T) {
	t.Parallel()
	m := newPolicyWorld(t)
	named := map[string]bool{}
	for _, c := range attributeCases() {
		attribute, _, _ := strings.Cut(strings.TrimPrefix(c.value, `"`), `"`)
		named[c.resource.Path()+" "+attribute] = true
		for way, want := range map[string][2]string{"own": c.own, "shared with project": c.ofShared} {
			for i, who := range everyCaller {
				m.tryAttribute(c, way, who, func(op int) string {
					if want[op] == "" {
						return ""
					}
					return want[op][i : i+1]
				})
			}
			m.tryAttribute(c, way, "service", func(op int) string { return c.serviceWant(want, op) })
		}
		if c.resource == neutron.Ports {
			m.tryAttribute(c, "other's", "service", func(op int) string { return c.serviceWant(c.ofShared, op) })
		}
	}
	for r := neutron.Networks; r <= neutron.RBACPolicies; r++ {
		for _, a := range r.Attributes() {
			create := a.Policed && a.Create && !(r == neutron.RBACPolicies && a.Required())
			if (create || a.Policed && a.Update) && a.Later == "" && !named[r.Path()+" "+a.Name] {
				t.Errorf("no row for attribute %s of %s", a.Name, r.Path())
			}
		}
	}
}

// serviceWant returns what comes of a member with the role advsvc setting the attribute, where want
// is what comes of everyCaller.
func (c *attributeCase) serviceWant(want [2]string, op int) string {
	if want[op] == "" {
		return ""
	}
	attribute, _, _ := strings.Cut(strings.TrimPrefix(c.value, `"`), `"`)
	if c.resource == neutron.Ports && slices.Contains([]string{"device_owner", "fixed_ips", "mac_address", "port_security_enabled"}, attribute) {
		return "+"
	}
	return want[op][1:2]
}

// tryAttribute has a caller create an object with an attribute, and update one; want returns what
// should come of it, or "".
func (m *policyWorld) tryAttribute(c attributeCase, way, who string, want func(op int) string) {
	m.t.Helper()
	if want(0)+want(1) == "" {
		return
	}
	network, _ := networkOf(m, way)
	owner, _ := owner(way)
	subnet := m.make(owner, neutron.Subnets, `"network_id":"`+network+`","ip_version":4,"cidr":"10.0.0.0/24"`)
	value := strings.NewReplacer("SUBNET", subnet, "EXTERNAL", m.external).Replace(c.value)
	project := `"project_id":"` + memberProject + `",`
	base := map[neutron.Resource]string{
		neutron.Ports:        project + `"network_id":"` + network + `",`,
		neutron.Subnets:      `"network_id":"` + network + `","ip_version":4,"cidr":"10.0.1.0/24",`,
		neutron.FloatingIPs:  project + `"floating_network_id":"` + m.external + `",`,
		neutron.RBACPolicies: `"object_type":"network","object_id":"` + network + `","action":"access_as_shared",`,
	}[c.resource]
	if base == "" {
		base = project
	}
	path := c.resource.Path()
	body := func(attributes string) string {
		return fmt.Sprintf(`{%q:{%s}}`, c.resource.Name(), strings.TrimSuffix(attributes, ","))
	}
	check := func(op string, a answer, want string) {
		m.t.Helper()
		got := "+"
		if a.status == http.StatusForbidden {
			got = outcome(a)
		}
		if got != want {
			m.t.Errorf("%s %s with %s, %s, as %s: %s %s, want %s", op, path, c.value, way, who, got, a.body, want)
		}
	}
	if w := want(0); w != "" {
		check("create", m.do(m.t, who, http.MethodPost, path, body(base+value), nil), w)
	}
	if w := want(1); w != "" {
		if c.resource == neutron.RBACPolicies {
			base += `"target_tenant":"a",`
		}
		id := subnet
		if c.resource != neutron.Subnets {
			maker := "member"
			if way == "other's" {
				maker = "admin"
			}
			id = m.make(maker, c.resource, strings.TrimSuffix(base, ","))
		}
		check("update", m.do(m.t, who, http.MethodPut, path+"/"+id, body(value), nil), w)
	}
}

// TestQuotaMatrix holds who may get, set and reset a project's quotas against Neutron's default
// policies.
func TestQuotaMatrix(t *testing.T) {
	t.Parallel()
	m := newPolicyWorld(t)
	for _, x := range []struct {
		project string
		want    [4]string
	}{
		{memberProject, [4]string{"+++++", "+++33", "+++33", "+++33"}},
		{otherProject, [4]string{"+++++", "33333", "33333", "33333"}},
	} {
		for i, who := range everyCaller {
			path, got := "/quotas/"+x.project, ""
			for _, below := range []string{"", "/default", "/details"} {
				got += outcome(m.do(t, who, http.MethodGet, path+below, nil, nil))
			}
			got += outcome(m.do(t, who, http.MethodPut, path, `{"quota":{"network":7}}`, nil)) + outcome(m.do(t, who, http.MethodDelete, path, nil, nil))
			if got != x.want[i] {
				t.Errorf("%s as %s: show, default, details, update, delete are %s, want %s", path, who, got, x.want[i])
			}
		}
	}
	for i, who := range everyCaller {
		if got := outcome(m.do(t, who, http.MethodGet, "/quotas", nil, nil)); got != "+333"[i:i+1] {
			t.Errorf("list of quotas as %s: %s", who, got)
		}
	}
}

// TestOnboardingAnswers: the subnets that moved are answered, and members may move their own.
func TestOnboardingAnswers(t *testing.T) {
	t.Parallel()
	m := newPolicyWorld(t)
	n := m.make("member", neutron.Networks, "")
	subnet := m.make("member", neutron.Subnets, `"network_id":"`+n+`","ip_version":4,"cidr":"10.0.0.0/24"`)
	pool := m.make("member", neutron.SubnetPools, `"name":"p","prefixes":["10.1.0.0/16"]`)
	path := "/subnetpools/" + pool + "/onboard_network_subnets"
	body := `{"network_id":"` + n + `"}`
	m.refused(t, http.StatusForbidden, "reader", http.MethodPut, path, body, "rule:onboard_network_subnets is disallowed by policy")
	m.refused(t, http.StatusNotFound, "other", http.MethodPut, path, body, "SubnetPoolNotFound")
	m.refused(t, http.StatusBadRequest, "member", http.MethodPut, path, `{}`, "Invalid input for operation: network_id must be specified..")
	m.refused(t, http.StatusOK, "member", http.MethodPut, path, body, `[{"id":"`+subnet+`","cidr":"10.0.0.0/24"}]`)
}
