package xe

import (
	"strconv"
	"strings"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

func tunnelCreate(c *call) error {
	args := []any{c.object("PIF", "pif-uuid"), c.object("network", "network-uuid")}
	if protocol, ok := c.params.get("protocol"); ok {
		args = append(args, protocol)
	}
	tunnel := c.ref("tunnel.create", args...)
	return c.printUUID("PIF", c.ref("tunnel.get_access_PIF", tunnel))
}

func vlanCreate(c *call) error {
	tag, err := strconv.ParseInt(c.need("vlan"), 10, 64)
	if err != nil {
		return &model.Error{Code: "VLAN_TAG_INVALID", Params: []string{c.need("vlan")}}
	}
	pif, network := c.object("PIF", "pif-uuid"), c.object("network", "network-uuid")
	vlan := c.ref("VLAN.create", pif, tag, network)
	return c.printUUID("PIF", c.ref("VLAN.get_untagged_PIF", vlan))
}

func vlanDestroy(c *call) error {
	vlan := c.object("VLAN", "uuid")
	if unknown := c.err; client.Code(unknown) == "UUID_INVALID" { // the UUID may be that of the VLAN's PIF
		c.err = nil
		pif := c.object("PIF", "uuid")
		if c.err != nil {
			return unknown
		}
		vlan = c.ref("PIF.get_VLAN_master_of", pif)
		if vlan == model.NullRef {
			c.fail(failure("PIF %s is not that of a VLAN", c.need("uuid")))
		}
	}
	return c.do("VLAN.destroy", vlan)
}

func bondCreate(c *call) error {
	network := c.object("network", "network-uuid")
	members := []string{}
	for uuid := range strings.SplitSeq(c.need("pif-uuids"), ",") {
		members = append(members, c.byUUID("PIF", strings.TrimSpace(uuid)))
	}
	properties := map[string]string{}
	for _, a := range c.params {
		if key, ok := strings.CutPrefix(a.key, "properties:"); ok {
			properties[key] = a.value
		}
	}
	return c.printUUID("Bond", c.ref("Bond.create", network, members, c.params.or("mac", ""), c.params.or("mode", "balance-slb"), properties))
}

func networkCreate(c *call) error {
	return c.printUUID("network", c.ref("network.create", model.Record{
		"name_label": c.need("name-label"), "name_description": c.params.or("name-description", ""), "MTU": c.number("MTU", "1500"), "bridge": c.params.or("bridge", ""), "managed": c.truth("managed"),
		"other_config": map[string]string{}, "tags": []string{},
	}))
}

func pifIntroduce(c *call) error {
	managed := c.truth("managed")
	host := c.object("host", "host-uuid")
	return c.printUUID("PIF", c.ref("PIF.introduce", host, c.params.or("mac", ""), c.need("device"), managed))
}

func pifReconfigureIP(c *call) error {
	mode, ok := map[string]string{"none": "None", "dhcp": "DHCP", "static": "Static"}[strings.ToLower(c.need("mode"))]
	if !ok {
		return failure("'mode' must be none, dhcp or static, not '%s'", c.need("mode"))
	}
	pif := c.object("PIF", "uuid")
	return c.do("PIF.reconfigure_ip", pif, mode, c.params.or("IP", ""), c.params.or("netmask", ""), c.params.or("gateway", ""), c.params.or("DNS", ""))
}
