package xapi

import (
	"cmp"
	"slices"
	"strings"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// VMs are records alone: whoever runs machines on the hosts says with them where, and which of
// their interfaces are attached.
func vmMessages() map[string]handler {
	return map[string]handler{
		"VM.create":         vmCreate,
		"VM.destroy":        vmDestroy,
		"VM.start":          func(c *call) (any, error) { return nil, c.vmStart("") },
		"VM.start_on":       func(c *call) (any, error) { return nil, c.vmStart(c.text("host")) },
		"VM.hard_shutdown":  vmStop,
		"VM.clean_shutdown": vmStop,
	}
}

// lowerState returns a power state as errors spell it.
func lowerState(vm *objects.Object) string { return strings.ToLower(vm.Text("power_state")) }

func vmCreate(c *call) (any, error) {
	vm := newObject("VM", givenBy(c.record("args"), "name_label", "name_description", "user_version", "is_a_template", "affinity", "other_config", "tags"))
	return vm.Ref, c.change(func(p *pool) {
		if host := vm.Text("affinity"); !null(host) {
			p.needs("host", host)
			p.uses(host)
		}
		p.put(vm)
	})
}

func vmDestroy(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		vm := p.get("VM", c.text("self"))
		if vm.Text("power_state") != "Halted" {
			p.fail(model.VMBadPowerState(vm.Ref, "halted", lowerState(vm)))
		}
		p.alone(vm.Ref)
		p.removeAll(by(p, "VIF", "VM", vm.Ref))
		p.remove("VM", vm.Ref)
	})
}

// startable returns the host for a VM to start on: this one, or one of its choice if that is "". It
// fails if the VM may not start there.
func (p *pool) startable(vm *objects.Object, host string) string {
	switch {
	case vm.Text("power_state") != "Halted":
		p.fail(model.VMBadPowerState(vm.Ref, "halted", lowerState(vm)))
	case vm.Bool("is_a_template"):
		p.fail(model.VMIsTemplate(vm.Ref))
	case host == "":
		return p.chooseHost(vm)
	}
	p.alive(host)
	if !p.get("host", host).Bool("enabled") {
		p.fail(model.HostDisabled(host))
	}
	if network := missing(p, vm, host); network != "" {
		p.fail(model.HostCannotAttachNetwork(host, network))
	}
	return host
}

// missing returns a network of the VM's that has PIFs, but none on this host; "" for none.
func missing(r records.Reader, vm *objects.Object, host string) string {
	for vif := range objects.Table("VIF").By(r, "VM", vm.Ref) {
		network := vif.Text("network")
		if on(r, host, network) == nil && first(r, "PIF", "network", network) != nil {
			return network
		}
	}
	return ""
}

// chooseHost returns the host for a VM that names none: its affinity if that is possible, else the
// one with the fewest VMs.
func (p *pool) chooseHost(vm *objects.Object) string {
	var fit []*objects.Object
	for h := range objects.Table("host").All(p) {
		if !reports(p, h.Ref) || !h.Bool("enabled") || missing(p, vm, h.Ref) != "" {
			continue
		}
		if h.Ref == vm.Text("affinity") {
			return h.Ref
		}
		fit = append(fit, h)
	}
	if len(fit) == 0 {
		p.fail(model.NoHostsAvailable())
		return ""
	}
	vms := func(h *objects.Object) int { return objects.Table("VM").CountBy(p, "resident_on", h.Ref) }
	return slices.MinFunc(fit, func(a, b *objects.Object) int {
		return cmp.Or(cmp.Compare(vms(a), vms(b)), cmp.Compare(a.UUID(), b.UUID()))
	}).Ref
}

// vmStart notes that a VM runs, once its networks are on the host.
func (c *call) vmStart(chosen string) error {
	p := c.look()
	vm := p.get("VM", c.text("vm"))
	host := p.startable(vm, chosen)
	if p.err != nil {
		return p.err
	}
	for _, vif := range by(p, "VIF", "VM", vm.Ref) {
		if err := c.carry(host, vif.Text("network")); err != nil {
			return err
		}
	}
	state := "Running"
	if c.truth("start_paused") {
		state = "Paused"
	}
	return c.change(func(p *pool) {
		vm := p.get("VM", vm.Ref)
		p.startable(vm, host)
		p.uses(host)
		p.alone(vm.Ref)
		for _, vif := range by(p, "VIF", "VM", vm.Ref) {
			p.connectVIF(vif, host)
		}
		p.edit(vm, model.Record{"power_state": state, "resident_on": host, "domid": p.freeDomain(host)})
	})
}

// freeDomain returns the number of a VM that starts on a host: above those of all that run there.
func (p *pool) freeDomain(host string) int64 {
	p.inTurn(guard(host))
	highest := int64(0)
	for vm := range objects.Table("VM").By(p, "resident_on", host) {
		highest = max(highest, vm.Int("domid"))
	}
	return highest + 1
}

func vmStop(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		vm := p.get("VM", c.text("vm"))
		if vm.Text("power_state") == "Halted" {
			p.fail(model.VMBadPowerState(vm.Ref, "running", lowerState(vm)))
		}
		p.halt(vm)
	})
}

// halt notes that VMs no longer run.
func (p *pool) halt(vms ...*objects.Object) {
	for _, vm := range vms {
		for _, vif := range by(p, "VIF", "VM", vm.Ref) {
			p.edit(vif, model.Record{"currently_attached": false})
		}
		p.edit(vm, model.Record{"power_state": "Halted", "resident_on": model.NullRef, "domid": int64(-1)})
	}
}
