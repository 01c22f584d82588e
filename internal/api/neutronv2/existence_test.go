package neutronv2_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"heddle/internal/neutron"
)

// missingID is the id of no object.
const missingID = "5e7a04b4-84a4-4bd9-a51c-3d9c6d9c0b4f"

// reference is a request of a member that names an object by FOREIGN: another project's, or none.
// Other words in capitals stand for objects of the member.
type reference struct {
	to                 neutron.Resource
	method, path, body string
}

// references has a row for each way in which a request refers to an object.
func references() []reference {
	const post, put = http.MethodPost, http.MethodPut
	return []reference{
		{neutron.Networks, post, "/subnets", `{"subnet":{"network_id":"FOREIGN","ip_version":4,"cidr":"10.9.0.0/24"}}`},
		{neutron.Networks, post, "/ports", `{"port":{"network_id":"FOREIGN"}}`},
		{neutron.Networks, post, "/routers", `{"router":{"external_gateway_info":{"network_id":"FOREIGN"}}}`},
		{neutron.Networks, put, "/routers/ROUTER", `{"router":{"external_gateway_info":{"network_id":"FOREIGN"}}}`},
		{neutron.Networks, put, "/routers/ROUTER/add_external_gateways", `{"router":{"external_gateways":[{"network_id":"FOREIGN"}]}}`},
		{neutron.Networks, put, "/routers/ROUTER/update_external_gateways", `{"router":{"external_gateways":[{"network_id":"FOREIGN"}]}}`},
		{neutron.Networks, put, "/routers/ROUTER/remove_external_gateways", `{"router":{"external_gateways":[{"network_id":"FOREIGN"}]}}`},
		{neutron.Networks, post, "/floatingips", `{"floatingip":{"floating_network_id":"FOREIGN"}}`},
		{neutron.Networks, post, "/local-ips", `{"local_ip":{"network_id":"FOREIGN"}}`},
		{neutron.Networks, put, "/subnetpools/POOL/onboard_network_subnets", `{"network_id":"FOREIGN"}`},
		{neutron.Networks, post, "/segments", `{"segment":{"network_id":"FOREIGN","network_type":"vxlan"}}`},
		{neutron.Networks, post, "/network-segment-ranges", `{"network_segment_range":{"network_type":"vxlan","minimum":1,"maximum":2,"project_id":"` + memberProject + `"}}`},

		{neutron.Subnets, post, "/ports", `{"port":{"network_id":"NETWORK","fixed_ips":[{"subnet_id":"FOREIGN"}]}}`},
		{neutron.Subnets, post, "/ports", `{"port":{"network_id":"NETWORK","fixed_ips":[{"subnet_id":"FOREIGN","ip_address":"10.0.0.9"}]}}`},
		{neutron.Subnets, put, "/ports/PORT", `{"port":{"fixed_ips":[{"subnet_id":"FOREIGN"}]}}`},
		{neutron.Subnets, put, "/routers/ROUTER/add_router_interface", `{"subnet_id":"FOREIGN"}`},
		{neutron.Subnets, put, "/routers/ROUTER/remove_router_interface", `{"subnet_id":"FOREIGN"}`},
		{neutron.Subnets, put, "/routers/ROUTER/remove_router_interface", `{"port_id":"PORT","subnet_id":"FOREIGN"}`},
		{neutron.Subnets, post, "/floatingips", `{"floatingip":{"floating_network_id":"EXTERNAL","subnet_id":"FOREIGN"}}`},
		{neutron.Subnets, post, "/routers", `{"router":{"external_gateway_info":{"network_id":"EXTERNAL","external_fixed_ips":[{"subnet_id":"FOREIGN"}]}}}`},
		{neutron.Subnets, put, "/routers/ROUTER/remove_external_gateways", `{"router":{"external_gateways":[{"network_id":"EXTERNAL","external_fixed_ips":[{"subnet_id":"FOREIGN"}]}]}}`},

		{neutron.Ports, put, "/routers/ROUTER/add_router_interface", `{"port_id":"FOREIGN"}`},
		{neutron.Ports, put, "/routers/ROUTER/remove_router_interface", `{"port_id":"FOREIGN"}`},
		{neutron.Ports, post, "/floatingips", `{"floatingip":{"floating_network_id":"EXTERNAL","port_id":"FOREIGN"}}`},
		{neutron.Ports, put, "/floatingips/FLOATING", `{"floatingip":{"port_id":"FOREIGN"}}`},
		{neutron.Ports, post, "/floatingips/FLOATING/port_forwardings",
			`{"port_forwarding":{"protocol":"tcp","internal_port_id":"FOREIGN","internal_ip_address":"10.0.0.9","internal_port":80,"external_port":80}}`},
		{neutron.Ports, post, "/floatingips/FLOATING/port_forwardings",
			`{"port_forwarding":{"protocol":"tcp","internal_port_id":"FOREIGN","internal_ip_address":"10.0.0.2","internal_port":80,"external_port":80}}`},
		{neutron.Ports, put, "/floatingips/FORWARDED/port_forwardings/FORWARDING", `{"port_forwarding":{"internal_port_id":"FOREIGN"}}`},
		{neutron.Ports, put, "/floatingips/FORWARDED/port_forwardings/FORWARDING", `{"port_forwarding":{"internal_port_id":"FOREIGN","internal_ip_address":"10.0.0.2"}}`},
		{neutron.Ports, post, "/trunks", `{"trunk":{"port_id":"FOREIGN"}}`},
		{neutron.Ports, post, "/trunks", `{"trunk":{"port_id":"PORT","sub_ports":[{"port_id":"FOREIGN","segmentation_type":"vlan","segmentation_id":7}]}}`},
		{neutron.Ports, post, "/trunks", `{"trunk":{"port_id":"PORT","sub_ports":[{"port_id":"FOREIGN","segmentation_type":"inherit"}]}}`},
		{neutron.Ports, put, "/trunks/TRUNK/add_subports", `{"sub_ports":[{"port_id":"FOREIGN","segmentation_type":"vlan","segmentation_id":7}]}`},
		{neutron.Ports, put, "/trunks/TRUNK/remove_subports", `{"sub_ports":[{"port_id":"FOREIGN"}]}`},
		{neutron.Ports, post, "/local-ips", `{"local_ip":{"local_port_id":"FOREIGN"}}`},
		{neutron.Ports, post, "/local-ips", `{"local_ip":{"local_port_id":"FOREIGN","local_ip_address":"10.0.0.2"}}`},
		{neutron.Ports, post, "/local-ips/LOCAL/port_associations", `{"port_association":{"fixed_port_id":"FOREIGN"}}`},
		{neutron.Ports, http.MethodDelete, "/local-ips/LOCAL/port_associations/FOREIGN", ""},
		{neutron.Ports, http.MethodGet, "/local-ips/LOCAL/port_associations/FOREIGN", ""},
		{neutron.Ports, post, "/ndp_proxies", `{"ndp_proxy":{"router_id":"ROUTER","port_id":"FOREIGN"}}`},
		{neutron.Ports, post, "/ndp_proxies", `{"ndp_proxy":{"router_id":"PROXYING","port_id":"FOREIGN"}}`},
		{neutron.Ports, post, "/fwaas/firewall_groups", `{"firewall_group":{"ports":["FOREIGN"]}}`},
		{neutron.Ports, put, "/fwaas/firewall_groups/FIREWALLGROUP", `{"firewall_group":{"ports":["FOREIGN"]}}`},

		{neutron.Routers, post, "/ports", `{"port":{"network_id":"NETWORK","device_owner":"network:router_interface","device_id":"FOREIGN"}}`},
		{neutron.Routers, post, "/ports", `{"port":{"network_id":"NETWORK","device_owner":"network:router_gateway","device_id":"FOREIGN"}}`},
		{neutron.Routers, put, "/ports/PORT", `{"port":{"device_owner":"network:router_interface","device_id":"FOREIGN"}}`},
		{neutron.Routers, post, "/ndp_proxies", `{"ndp_proxy":{"router_id":"FOREIGN","port_id":"PORT"}}`},
		{neutron.Routers, post, "/fw/firewalls", `{"firewall":{"firewall_policy_id":"FIREWALLPOLICY1","router_ids":["FOREIGN"]}}`},

		{neutron.SecurityGroups, post, "/ports", `{"port":{"network_id":"NETWORK","security_groups":["FOREIGN"]}}`},
		{neutron.SecurityGroups, put, "/ports/PORT", `{"port":{"security_groups":["FOREIGN"]}}`},
		{neutron.SecurityGroups, post, "/security-group-rules", `{"security_group_rule":{"security_group_id":"FOREIGN","direction":"ingress"}}`},
		{neutron.SecurityGroups, post, "/security-group-rules", `{"security_group_rule":{"security_group_id":"GROUP","direction":"ingress","remote_group_id":"FOREIGN"}}`},
		{neutron.AddressGroups, post, "/security-group-rules", `{"security_group_rule":{"security_group_id":"GROUP","direction":"ingress","remote_address_group_id":"FOREIGN"}}`},

		{neutron.QoSPolicies, post, "/networks", `{"network":{"qos_policy_id":"FOREIGN"}}`},
		{neutron.QoSPolicies, put, "/networks/NETWORK", `{"network":{"qos_policy_id":"FOREIGN"}}`},
		{neutron.QoSPolicies, post, "/ports", `{"port":{"network_id":"NETWORK","qos_policy_id":"FOREIGN"}}`},
		{neutron.QoSPolicies, put, "/ports/PORT", `{"port":{"qos_policy_id":"FOREIGN"}}`},
		{neutron.QoSPolicies, post, "/floatingips", `{"floatingip":{"floating_network_id":"EXTERNAL","qos_policy_id":"FOREIGN"}}`},
		{neutron.QoSPolicies, put, "/floatingips/FLOATING", `{"floatingip":{"qos_policy_id":"FOREIGN"}}`},
		{neutron.QoSPolicies, put, "/routers/ROUTER", `{"router":{"external_gateway_info":{"network_id":"EXTERNAL","qos_policy_id":"FOREIGN"}}}`},

		{neutron.SubnetPools, post, "/subnets", `{"subnet":{"network_id":"NETWORK","ip_version":4,"subnetpool_id":"FOREIGN"}}`},
		{neutron.AddressScopes, post, "/subnetpools", `{"subnetpool":{"name":"p","prefixes":["10.8.0.0/16"],"address_scope_id":"FOREIGN"}}`},
		{neutron.AddressScopes, put, "/subnetpools/POOL", `{"subnetpool":{"address_scope_id":"FOREIGN"}}`},
		{neutron.Segments, post, "/subnets", `{"subnet":{"network_id":"NETWORK","ip_version":4,"cidr":"10.9.0.0/24","segment_id":"FOREIGN"}}`},
		{neutron.Segments, put, "/subnets/SUBNET", `{"subnet":{"segment_id":"FOREIGN"}}`},
		{neutron.MeteringLabels, post, "/metering/metering-label-rules",
			`{"metering_label_rule":{"metering_label_id":"FOREIGN","direction":"ingress","destination_ip_prefix":"10.0.0.0/8"}}`},
		{neutron.SecurityGroups, post, "/log/logs", `{"log":{"resource_type":"security_group","resource_id":"FOREIGN"}}`},
		{neutron.Ports, post, "/log/logs", `{"log":{"resource_type":"security_group","target_id":"FOREIGN"}}`},
		{neutron.Ports, post, "/taas/tap_services", `{"tap_service":{"port_id":"FOREIGN"}}`},
		{neutron.Ports, post, "/taas/tap_flows", `{"tap_flow":{"tap_service_id":"TAPSERVICE","source_port":"FOREIGN","direction":"IN"}}`},
		{neutron.TapServices, post, "/taas/tap_flows", `{"tap_flow":{"tap_service_id":"FOREIGN","source_port":"PORT","direction":"IN"}}`},
		{neutron.BGPPeers, put, "/bgp-speakers/none/add_bgp_peer", `{"bgp_peer_id":"FOREIGN"}`},

		{neutron.FirewallPolicies, post, "/fw/firewalls", `{"firewall":{"firewall_policy_id":"FOREIGN"}}`},
		{neutron.FirewallRules, post, "/fw/firewall_policies", `{"firewall_policy":{"name":"p","firewall_rules":["FOREIGN"]}}`},
		{neutron.FirewallRules, put, "/fw/firewall_policies/FIREWALLPOLICY1/insert_rule", `{"firewall_rule_id":"FOREIGN"}`},
		{neutron.FirewallRules, put, "/fw/firewall_policies/FIREWALLPOLICY1/insert_rule", `{"firewall_rule_id":"FIREWALLRULE1","insert_before":"FOREIGN"}`},
		{neutron.FirewallRules, put, "/fw/firewall_policies/FIREWALLPOLICY1/remove_rule", `{"firewall_rule_id":"FOREIGN"}`},
		{neutron.FirewallGroupPolicies, post, "/fwaas/firewall_groups", `{"firewall_group":{"ingress_firewall_policy_id":"FOREIGN"}}`},
		{neutron.FirewallGroupPolicies, put, "/fwaas/firewall_groups/FIREWALLGROUP", `{"firewall_group":{"egress_firewall_policy_id":"FOREIGN"}}`},
		{neutron.FirewallGroupRules, post, "/fwaas/firewall_policies", `{"firewall_policy":{"name":"p","firewall_rules":["FOREIGN"]}}`},
		{neutron.FirewallGroupRules, put, "/fwaas/firewall_policies/FIREWALLPOLICY/insert_rule", `{"firewall_rule_id":"FOREIGN"}`},
		{neutron.FirewallGroupRules, put, "/fwaas/firewall_policies/FIREWALLPOLICY/insert_rule", `{"firewall_rule_id":"FIREWALLRULE","insert_after":"FOREIGN"}`},
		{neutron.FirewallGroupRules, put, "/fwaas/firewall_policies/FIREWALLPOLICY/remove_rule", `{"firewall_rule_id":"FOREIGN"}`},
	}
}

// policyReferences are those of RBAC policies, one for each type of objects.
func policyReferences() (all []reference) {
	for _, r := range []neutron.Resource{neutron.Networks, neutron.SecurityGroups, neutron.QoSPolicies, neutron.AddressGroups, neutron.SubnetPools, neutron.AddressScopes} {
		all = append(all, reference{r, http.MethodPost, "/rbac-policies",
			`{"rbac_policy":{"object_type":"` + r.ObjectType() + `","object_id":"FOREIGN","action":"access_as_shared","target_tenant":"a"}}`})
	}
	return all
}

// pathReferences are those in paths: of objects, their tags, and what is below them.
func pathReferences() (all []reference) {
	below := map[neutron.Resource][]string{
		neutron.Networks:              {"GET /dhcp-agents"},
		neutron.Ports:                 {"GET /bindings", "POST /bindings {\"binding\":{\"host\":\"h\"}}", "PUT /bindings/h/activate", "DELETE /bindings/h"},
		neutron.Routers:               {"GET /l3-agents", "PUT /add_router_interface {\"subnet_id\":\"SUBNET\"}", "PUT /add_extraroutes {\"router\":{\"routes\":[]}}", "PUT /remove_external_gateways {\"router\":{\"external_gateways\":[]}}"},
		neutron.FloatingIPs:           {"GET /port_forwardings", "GET /port_forwardings/" + missingID},
		neutron.LocalIPs:              {"GET /port_associations", "DELETE /port_associations/" + missingID, "POST /port_associations {\"port_association\":{\"fixed_port_id\":\"PORT\"}}"},
		neutron.Trunks:                {"GET /get_subports", "PUT /add_subports {\"sub_ports\":[]}", "PUT /remove_subports {\"sub_ports\":[]}"},
		neutron.SubnetPools:           {"PUT /add_prefixes {\"prefixes\":[\"10.8.0.0/16\"]}", "PUT /remove_prefixes {\"prefixes\":[\"10.8.0.0/16\"]}", "PUT /onboard_network_subnets {\"network_id\":\"NETWORK\"}"},
		neutron.AddressGroups:         {"PUT /add_addresses {\"addresses\":[\"10.8.0.0/16\"]}", "PUT /remove_addresses {\"addresses\":[\"10.8.0.0/16\"]}"},
		neutron.QoSPolicies:           {"GET /bandwidth_limit_rules", "POST /bandwidth_limit_rules {\"bandwidth_limit_rule\":{\"max_kbps\":1}}", "DELETE /dscp_marking_rules/" + missingID},
		neutron.FirewallPolicies:      {"PUT /insert_rule {\"firewall_rule_id\":\"FIREWALLRULE1\"}", "PUT /remove_rule {\"firewall_rule_id\":\"FIREWALLRULE1\"}"},
		neutron.FirewallGroupPolicies: {"PUT /insert_rule {\"firewall_rule_id\":\"FIREWALLRULE\"}", "PUT /remove_rule {\"firewall_rule_id\":\"FIREWALLRULE\"}"},
		neutron.BGPSpeakers:           {"GET /bgp-dragents", "GET /get_advertised_routes", "PUT /add_gateway_network {\"network_id\":\"NETWORK\"}"},
	}
	for _, r := range []neutron.Resource{
		neutron.Networks, neutron.Subnets, neutron.Ports, neutron.Routers, neutron.FloatingIPs, neutron.Trunks, neutron.SecurityGroups, neutron.SecurityGroupRules,
		neutron.RBACPolicies, neutron.LocalIPs, neutron.NDPProxies, neutron.SubnetPools, neutron.AddressScopes, neutron.AddressGroups, neutron.QoSPolicies,
		neutron.Segments, neutron.MeteringLabels, neutron.MeteringLabelRules, neutron.Logs, neutron.BGPSpeakers, neutron.BGPPeers,
		neutron.TapServices, neutron.TapFlows,
		neutron.FirewallRules, neutron.FirewallPolicies, neutron.Firewalls, neutron.FirewallGroups, neutron.FirewallGroupPolicies, neutron.FirewallGroupRules,
	} {
		item := r.Path() + "/FOREIGN"
		all = append(all, reference{r, http.MethodGet, item, ""}, reference{r, http.MethodDelete, item, ""},
			reference{r, http.MethodGet, r.Path() + "?limit=1&marker=FOREIGN", ""},
			reference{r, http.MethodPut, item, `{"` + r.Name() + `":{"name":"x"}}`}, reference{r, http.MethodPut, item, `{"` + r.Name() + `":{"description":"x"}}`},
			reference{r, http.MethodGet, item + "/tags", ""}, reference{r, http.MethodPut, item + "/tags/x", ""}, reference{r, http.MethodDelete, item + "/tags/x", ""})
		for _, more := range below[r] {
			parts := strings.SplitN(more+" ", " ", 3)
			all = append(all, reference{r, parts[0], item + parts[1], strings.TrimSpace(parts[2])})
		}
	}
	return all
}

// ownObjects makes the member's objects that references name, by their words.
func (m *policyWorld) ownObjects() map[string]string {
	network, subnet := m.lan("member", "10.0.0.0/24")
	own := map[string]string{
		"NETWORK": network, "SUBNET": subnet, "EXTERNAL": m.external,
		"PORT":          m.make("member", neutron.Ports, `"network_id":"`+network+`"`),
		"ROUTER":        m.make("member", neutron.Routers, `"external_gateway_info":{"network_id":"`+m.external+`"}`),
		"GROUP":         m.make("member", neutron.SecurityGroups, `"name":"g"`),
		"POOL":          m.make("member", neutron.SubnetPools, `"name":"p","prefixes":["10.7.0.0/16"]`),
		"FIREWALLGROUP": m.make("member", neutron.FirewallGroups, ""), "FIREWALLPOLICY": m.make("member", neutron.FirewallGroupPolicies, `"name":"p"`),
		"FIREWALLPOLICY1": m.make("member", neutron.FirewallPolicies, `"name":"p"`),
		"FIREWALLRULE":    m.make("member", neutron.FirewallGroupRules, ""), "FIREWALLRULE1": m.make("member", neutron.FirewallRules, ""),
	}
	own["TRUNK"], _ = trunkOf(m, "own")
	own["TAPSERVICE"] = m.make("member", neutron.TapServices, `"port_id":"`+m.make("member", neutron.Ports, `"network_id":"`+network+`"`)+`"`)
	own["LOCAL"], _ = localIPOf(m, "own")
	own["FLOATING"], _ = floatingIPOf(m, "own")
	forwarding, _ := forwardingOf(m, "own")
	parts := strings.Split(forwarding, "/")
	own["FORWARDED"], own["FORWARDING"] = parts[2], parts[4]
	_, create := ndpProxyOf(m, "own")
	_, after, _ := strings.Cut(create, `"router_id":"`)
	own["PROXYING"] = after[:len(missingID)]
	return own
}

// lan makes a network with a subnet.
func (m *policyWorld) lan(who, cidr string) (network, subnet string) {
	network = m.make(who, neutron.Networks, "")
	return network, m.make(who, neutron.Subnets, `"network_id":"`+network+`","ip_version":4,"cidr":"`+cidr+`"`)
}

// foreignObjects makes an object of another project of each resource that references name.
func (m *policyWorld) foreignObjects() map[neutron.Resource]string {
	network, subnet := m.lan("other", "10.0.0.0/24")
	visible, _ := m.lan("other", "10.0.0.0/24")
	m.share(neutron.Networks, visible, "shared with project")
	project := `"project_id":"` + otherProject + `"`
	foreign := map[neutron.Resource]string{
		neutron.Networks: network, neutron.Subnets: subnet,
		neutron.Ports:         m.make("other", neutron.Ports, `"network_id":"`+visible+`","fixed_ips":[{"ip_address":"10.0.0.2"}]`),
		neutron.Routers:       m.make("other", neutron.Routers, ""),
		neutron.AddressScopes: m.make("other", neutron.AddressScopes, `"name":"s","ip_version":4`),
		neutron.SubnetPools:   m.make("other", neutron.SubnetPools, `"name":"p","prefixes":["10.0.0.0/16"],"default_prefixlen":24`),
		neutron.AddressGroups: m.make("other", neutron.AddressGroups, `"name":"g","addresses":["192.0.2.0/24"]`),
		neutron.QoSPolicies:   m.make("admin", neutron.QoSPolicies, `"name":"q",`+project),
		neutron.BGPPeers:      m.make("admin", neutron.BGPPeers, `"peer_ip":"192.0.2.1","remote_as":1,"auth_type":"none",`+project),
		neutron.BGPSpeakers:   m.make("admin", neutron.BGPSpeakers, `"local_as":1,"ip_version":4,`+project),
		neutron.Firewalls:     m.make("other", neutron.Firewalls, `"firewall_policy_id":"`+m.make("other", neutron.FirewallPolicies, `"name":"p"`)+`"`),
	}
	for _, r := range []neutron.Resource{neutron.FirewallRules, neutron.FirewallGroups, neutron.FirewallGroupRules} {
		foreign[r] = m.make("other", r, "")
	}
	for _, r := range []neutron.Resource{neutron.FirewallPolicies, neutron.FirewallGroupPolicies} {
		foreign[r] = m.make("other", r, `"name":"p"`)
	}
	for r, of := range map[neutron.Resource]func(m *policyWorld, way string) (id, create string){
		neutron.SecurityGroupRules: ruleOf, neutron.RBACPolicies: policyOf, neutron.FloatingIPs: floatingIPOf, neutron.Trunks: trunkOf, neutron.LocalIPs: localIPOf,
		neutron.NDPProxies: ndpProxyOf, neutron.Segments: segmentOf, neutron.Logs: logOf, neutron.MeteringLabelRules: meteringRuleOf,
		neutron.SecurityGroups: plainObject(neutron.SecurityGroups),
	} {
		foreign[r], _ = of(m, "other's")
	}
	foreign[neutron.TapServices] = m.make("other", neutron.TapServices, `"port_id":"`+foreign[neutron.Ports]+`"`)
	foreign[neutron.TapFlows] = m.make("other", neutron.TapFlows, `"direction":"IN","tap_service_id":"`+foreign[neutron.TapServices]+
		`","source_port":"`+m.make("other", neutron.Ports, `"network_id":"`+network+`"`)+`"`)
	foreign[neutron.MeteringLabels] = m.make("admin", neutron.MeteringLabels, `"name":"x",`+project)
	return foreign
}

// TestExistence: a member who knows the id of another project's object does not learn from any
// answer that it exists: the answer is that to the id of no object.
func TestExistence(t *testing.T) {
	t.Parallel()
	m := newPolicyWorld(t)
	own, foreign := m.ownObjects(), m.foreignObjects()
	var words []string
	for word, id := range own {
		words = append(words, word, id)
	}
	for _, ref := range append(append(references(), policyReferences()...), pathReferences()...) {
		id := foreign[ref.to]
		if id == "" {
			t.Fatalf("no object of %s", ref.to.Path())
		}
		ask := func(id string) string {
			fill := strings.NewReplacer(append(words, "FOREIGN", id)...)
			var body any
			if ref.body != "" {
				body = fill.Replace(ref.body)
			}
			a := m.do(t, "member", ref.method, fill.Replace(ref.path), body, nil)
			return strings.ReplaceAll(fmt.Sprintf("%d %s", a.status, a.body), id, "ID")
		}
		none := ask(missingID)
		if some := ask(id); some != none {
			t.Errorf("%s %s %s:\nof another project %sof none            %s", ref.method, ref.path, ref.body, some, none)
		}
	}
}
