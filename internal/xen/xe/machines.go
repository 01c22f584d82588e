package xe

import "heddle/internal/xen/model"

func vifCreate(c *call) error {
	network, vm := c.object("network", "network-uuid"), c.object("VM", "vm-uuid")
	mac := c.params.or("mac", "")
	if mac == "random" {
		mac = ""
	}
	return c.printUUID("VIF", c.ref("VIF.create", model.Record{
		"device": c.need("device"), "network": network, "VM": vm, "MAC": mac, "MTU": c.number("mtu", "1500"),
		"other_config": map[string]string{}, "qos_algorithm_type": "", "qos_algorithm_params": map[string]string{},
	}))
}

func vifUnplug(c *call) error {
	method := "VIF.unplug"
	if c.params.on("force") {
		method = "VIF.unplug_force"
	}
	return c.do(method, c.object("VIF", "uuid"))
}

func vifMove(c *call) error {
	vif, network := c.object("VIF", "uuid"), c.object("network", "network-uuid")
	return c.do("VIF.move", vif, network)
}

func vmCreate(c *call) error {
	return c.printUUID("VM", c.ref("VM.create", model.Record{"name_label": c.need("name-label"), "name_description": c.params.or("name-description", "")}))
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
