package offline

import (
	"maps"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
)

// commonIgnored are attributes of every resource that leave no trace in the topology.
func commonIgnored(more ...string) []string {
	return append([]string{"description", "tags", "created_at", "updated_at", "revision_number", "status", "tenant_id"}, more...)
}

func networkResource() resource {
	type network = neutron.Network
	return &table[network]{
		what: "network",
		attributes: map[string]setter[network]{
			"name":                  setText(func(n *network) *string { return &n.Name }),
			"admin_state_up":        setFlag(func(n *network) *bool { return &n.AdminStateUp }, true),
			"port_security_enabled": setFlag(func(n *network) *bool { return &n.PortSecurityEnabled }, true),
			"provider:network_type": setText(func(n *network) *string { return &n.NetworkType }),
			"mtu": func(n *network, v node) (err error) {
				n.MTU, _, err = v.number(0, 65535)
				return err
			},
			"qos_policy_id": func(_ *network, v node) error { return refuseQoS(v) },
		},
		ignored: commonIgnored("project_id", "shared", "router:external", "provider:physical_network",
			"provider:segmentation_id", "dns_domain", "subnets", "segments", "is_default", "availability_zones",
			"availability_zone_hints", "ipv4_address_scope", "ipv6_address_scope", "l2_adjacency", "vlan_transparent"),
		objects: func(w *world) map[string]*network { return w.networks },
		fresh: func(_ *world, std neutron.Standard) *network {
			return &network{Standard: std, AdminStateUp: true, PortSecurityEnabled: true}
		},
		validate: func(_ *world, n, old *network, _ object) error {
			if old != nil && translate.Uplink(n) != translate.Uplink(old) {
				return refuse(neutron.Invalid, "network %s: provider:network_type cannot change to or from uplink", n.ID)
			}
			if old != nil && n.Routed() != old.Routed() {
				return refuse(neutron.Invalid, "network %s: provider:network_type cannot change to or from routed", n.ID)
			}
			return nil
		},
		remove: func(w *world, n *network) error {
			maps.DeleteFunc(w.subnets, func(_ string, s *neutron.Subnet) bool { return s.NetworkID == n.ID })
			maps.DeleteFunc(w.ports, func(_ string, p *neutron.Port) bool { return p.NetworkID == n.ID })
			return nil
		},
	}
}

// refuseQoS: policies are part of the topology, but not one that this build translates.
func refuseQoS(v node) error {
	if v.null() {
		return nil
	}
	return refuse(neutron.Unsupported, "%s: QoS policies are not translated", v.place)
}
