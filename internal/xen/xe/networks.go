package xe

import (
	"strconv"
	"strings"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

// refs are the objects that arguments name by UUID.
func (c *call) refs(arguments ...[2]string) ([]any, error) {
	var all []any
	for _, a := range arguments {
		ref, err := c.byUUID(a[0], c.need(a[1]))
		if err != nil {
			return nil, err
		}
		all = append(all, ref)
	}
	return all, nil
}

func tunnelCreate(c *call) error {
	args, err := c.refs([2]string{"PIF", "pif-uuid"}, [2]string{"network", "network-uuid"})
	if err != nil {
		return err
	}
	if protocol, ok := c.params.get("protocol"); ok {
		args = append(args, protocol)
	}
	tunnel, err := c.ref("tunnel.create", args...)
	if err != nil {
		return err
	}
	access, err := c.ref("tunnel.get_access_PIF", tunnel)
	if err != nil {
		return err
	}
	return c.printUUID("PIF", access)
}

func vlanCreate(c *call) error {
	tag, err := strconv.ParseInt(c.need("vlan"), 10, 64)
	if err != nil {
		return &model.Error{Code: "VLAN_TAG_INVALID", Params: []string{c.need("vlan")}}
	}
	args, err := c.refs([2]string{"PIF", "pif-uuid"}, [2]string{"network", "network-uuid"})
	if err != nil {
		return err
	}
	vlan, err := c.ref("VLAN.create", args[0], tag, args[1])
	if err != nil {
		return err
	}
	pif, err := c.ref("VLAN.get_untagged_PIF", vlan)
	if err != nil {
		return err
	}
	return c.printUUID("PIF", pif)
}

func vlanDestroy(c *call) error {
	uuid := c.need("uuid")
	vlan, err := c.byUUID("VLAN", uuid)
	if client.Code(err) == "UUID_INVALID" {
		pif, pifErr := c.byUUID("PIF", uuid)
		if pifErr != nil {
			return err
		}
		if vlan, err = c.ref("PIF.get_VLAN_master_of", pif); err == nil && vlan == model.NullRef {
			return failure("PIF %s is not that of a VLAN", uuid)
		}
	}
	if err != nil {
		return err
	}
	return c.do("VLAN.destroy", vlan)
}

func bondCreate(c *call) error {
	network, err := c.byUUID("network", c.need("network-uuid"))
	if err != nil {
		return err
	}
	members := []string{}
	for uuid := range strings.SplitSeq(c.need("pif-uuids"), ",") {
		pif, err := c.byUUID("PIF", strings.TrimSpace(uuid))
		if err != nil {
			return err
		}
		members = append(members, pif)
	}
	properties := map[string]string{}
	for _, a := range c.params {
		if key, ok := strings.CutPrefix(a.key, "properties:"); ok {
			properties[key] = a.value
		}
	}
	bond, err := c.ref("Bond.create", network, members, c.params.or("mac", ""), c.params.or("mode", "balance-slb"), properties)
	if err != nil {
		return err
	}
	return c.printUUID("Bond", bond)
}

func networkCreate(c *call) error {
	mtu, err := strconv.ParseInt(c.params.or("MTU", "1500"), 10, 64)
	if err != nil {
		return failure("Field 'MTU' needs a whole number, not '%s'", c.need("MTU"))
	}
	managed, err := parseBool("managed", c.params.or("managed", "true"))
	if err != nil {
		return err
	}
	network, err := c.ref("network.create", model.Record{
		"name_label": c.need("name-label"), "name_description": c.params.or("name-description", ""), "MTU": mtu, "bridge": c.params.or("bridge", ""), "managed": managed,
		"other_config": map[string]string{}, "tags": []string{},
	})
	if err != nil {
		return err
	}
	return c.printUUID("network", network)
}

func pifScan(c *call) error {
	host, err := c.byUUID("host", c.need("host-uuid"))
	if err != nil {
		return err
	}
	return c.do("PIF.scan", host)
}

func pifIntroduce(c *call) error {
	managed, err := parseBool("managed", c.params.or("managed", "true"))
	if err != nil {
		return err
	}
	host, err := c.byUUID("host", c.need("host-uuid"))
	if err != nil {
		return err
	}
	pif, err := c.ref("PIF.introduce", host, c.params.or("mac", ""), c.need("device"), managed)
	if err != nil {
		return err
	}
	return c.printUUID("PIF", pif)
}

func pifReconfigureIP(c *call) error {
	mode, ok := map[string]string{"none": "None", "dhcp": "DHCP", "static": "Static"}[strings.ToLower(c.need("mode"))]
	if !ok {
		return failure("'mode' must be none, dhcp or static, not '%s'", c.need("mode"))
	}
	pif, err := c.byUUID("PIF", c.need("uuid"))
	if err != nil {
		return err
	}
	return c.do("PIF.reconfigure_ip", pif, mode, c.params.or("IP", ""), c.params.or("netmask", ""), c.params.or("gateway", ""), c.params.or("DNS", ""))
}
