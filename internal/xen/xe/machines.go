package xe

import (
	"strconv"

	"heddle/internal/xen/model"
)

func vifCreate(c *call) error {
	args, err := c.refs([2]string{"network", "network-uuid"}, [2]string{"VM", "vm-uuid"})
	if err != nil {
		return err
	}
	mtu, err := strconv.ParseInt(c.params.or("mtu", "1500"), 10, 64)
	if err != nil {
		return failure("Field 'mtu' needs a whole number, not '%s'", c.need("mtu"))
	}
	mac := c.params.or("mac", "")
	if mac == "random" {
		mac = ""
	}
	vif, err := c.ref("VIF.create", model.Record{
		"device": c.need("device"), "network": args[0], "VM": args[1], "MAC": mac, "MTU": mtu,
		"other_config": map[string]string{}, "qos_algorithm_type": "", "qos_algorithm_params": map[string]string{},
	})
	if err != nil {
		return err
	}
	return c.printUUID("VIF", vif)
}

func vifUnplug(c *call) error {
	vif, err := c.byUUID("VIF", c.need("uuid"))
	if err != nil {
		return err
	}
	if c.params.on("force") {
		return c.do("VIF.unplug_force", vif)
	}
	return c.do("VIF.unplug", vif)
}

func vifMove(c *call) error {
	args, err := c.refs([2]string{"VIF", "uuid"}, [2]string{"network", "network-uuid"})
	if err != nil {
		return err
	}
	return c.do("VIF.move", args...)
}

func vmCreate(c *call) error {
	vm, err := c.ref("VM.create", model.Record{"name_label": c.need("name-label"), "name_description": c.params.or("name-description", "")})
	if err != nil {
		return err
	}
	return c.printUUID("VM", vm)
}

func vmStart(c *call) error {
	found, err := c.chosen(kindOf("VM"), "vm", "on", "paused")
	if err != nil {
		return err
	}
	paused, force := c.params.on("paused"), c.params.on("force")
	where, ok := c.params.get("on")
	if !ok {
		return each(found, func(vm string) error { return c.do("VM.start", vm, paused, force) })
	}
	hosts := call{ctx: c.ctx, api: c.api, params: params{{"host", where}}}
	on, err := hosts.chosen(kindOf("host"), "host")
	if err != nil {
		return err
	}
	return each(found, func(vm string) error { return c.do("VM.start_on", vm, on[0].ref, paused, force) })
}

func vmShutdown(c *call) error {
	found, err := c.chosen(kindOf("VM"), "vm")
	if err != nil {
		return err
	}
	method := "VM.clean_shutdown"
	if c.params.on("force") {
		method = "VM.hard_shutdown"
	}
	return each(found, func(vm string) error { return c.do(method, vm) })
}

// each does something to every object, until one fails.
func each(objects []object, do func(ref string) error) error {
	for _, o := range objects {
		if err := do(o.ref); err != nil {
			return err
		}
	}
	return nil
}

// hostDo is a command that makes one call with each host chosen.
func hostDo(method string) func(*call) error {
	return func(c *call) error {
		found, err := c.chosen(kindOf("host"), "host")
		if err != nil {
			return err
		}
		return each(found, func(host string) error { return c.do("host."+method, host) })
	}
}

func hostManagement(c *call) error {
	pif, err := c.byUUID("PIF", c.need("pif-uuid"))
	if err != nil {
		return err
	}
	return c.do("host.management_reconfigure", pif)
}

func poolJoin(c *call) error {
	method := "pool.join"
	if c.params.on("force") {
		method = "pool.join_force"
	}
	if err := c.do(method, c.need("master-address"), c.need("master-username"), c.need("master-password")); err != nil {
		return err
	}
	c.print("The host joins the pool of " + c.need("master-address") + ".")
	return nil
}

func poolEject(c *call) error { return poolHost(c, "pool.eject") }

func poolMaster(c *call) error { return poolHost(c, "pool.designate_new_master") }

func poolHost(c *call, method string) error {
	host, err := c.byUUID("host", c.need("host-uuid"))
	if err != nil {
		return err
	}
	return c.do(method, host)
}
