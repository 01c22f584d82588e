package xapi

import (
	"cmp"
	"slices"
	"strings"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// VMs are records alone: who runs machines on the hosts says with them where, and which of their interfaces are attached.
func vmMessages() map[string]handler {
	return map[string]handler{
		"VM.create":   vmCreate,
		"VM.destroy":  vmDestroy,
		"VM.start":    func(c *call) (any, error) { return nil, c.vmStart("") },
		"VM.start_on": func(c *call) (any, error) { return nil, c.vmStart(c.text("host")) },
		"VM.hard_shutdown": func(c *call) (any, error) {
			return nil, c.vmStop()
		},
		"VM.clean_shutdown": func(c *call) (any, error) {
			return nil, c.vmStop()
		},
	}
}

// lowerState is a power state as errors spell it.
func lowerState(vm *objects.Object) string { return strings.ToLower(vm.Text("power_state")) }

func vmCreate(c *call) (any, error) {
	vm := newObject("VM", givenBy(c.record("args"), "name_label", "name_description", "user_version", "is_a_template", "affinity", "other_config", "tags"))
	return vm.Ref, c.update(func(tx *records.Tx) error {
		if host := vm.Text("affinity"); !null(host) {
			if _, err := object(tx, "host", host); err != nil {
				return err
			}
			uses(tx, host)
		}
		return put(tx, vm)
	})
}

func vmDestroy(c *call) (any, error) {
	return nil, c.update(func(tx *records.Tx) error {
		vm, err := object(tx, "VM", c.text("self"))
		if err != nil {
			return err
		}
		if vm.Text("power_state") != "Halted" {
			return model.VMBadPowerState(vm.Ref, "halted", lowerState(vm))
		}
		alone(tx, vm.Ref)
		for _, vif := range by(tx, "VIF", "VM", vm.Ref) {
			if err := remove(tx, "VIF", vif.Ref); err != nil {
				return err
			}
		}
		return remove(tx, "VM", vm.Ref)
	})
}

// startable says whether a VM may start on a host, and chooses one where none is given.
func startable(r records.Reader, vm *objects.Object, host string) (string, error) {
	switch {
	case vm.Text("power_state") != "Halted":
		return "", model.VMBadPowerState(vm.Ref, "halted", lowerState(vm))
	case vm.Bool("is_a_template"):
		return "", model.VMIsTemplate(vm.Ref)
	case host == "":
		return chooseHost(r, vm)
	}
	if _, err := alive(r, host); err != nil {
		return "", err
	}
	h, err := object(r, "host", host)
	if err != nil {
		return "", err
	}
	if !h.Bool("enabled") {
		return "", model.HostDisabled(host)
	}
	if network := missing(r, vm, host); network != "" {
		return "", model.HostCannotAttachNetwork(host, network)
	}
	return host, nil
}

// missing is a network of the VM's that other hosts have a PIF on and this one has none; "": there is none such.
func missing(r records.Reader, vm *objects.Object, host string) string {
	for vif := range objects.Table("VIF").By(r, "VM", vm.Ref) {
		network := vif.Text("network")
		if on(r, host, network) == nil && first(r, "PIF", "network", network) != nil {
			return network
		}
	}
	return ""
}

// chooseHost is the host for a VM that says nothing: its affinity if that can be, else the one with the fewest VMs.
func chooseHost(r records.Reader, vm *objects.Object) (string, error) {
	var fit []*objects.Object
	for h := range objects.Table("host").All(r) {
		_, err := alive(r, h.Ref)
		if err != nil || !h.Bool("enabled") || missing(r, vm, h.Ref) != "" {
			continue
		}
		if h.Ref == vm.Text("affinity") {
			return h.Ref, nil
		}
		fit = append(fit, h)
	}
	if len(fit) == 0 {
		return "", model.NoHostsAvailable()
	}
	least := slices.MinFunc(fit, func(a, b *objects.Object) int {
		vms := func(h *objects.Object) int { return objects.Table("VM").CountBy(r, "resident_on", h.Ref) }
		return cmp.Or(cmp.Compare(vms(a), vms(b)), cmp.Compare(a.UUID(), b.UUID()))
	})
	return least.Ref, nil
}

// vmStart notes that a VM runs, once its networks are on the host.
func (c *call) vmStart(wanted string) error {
	r, err := c.view()
	if err != nil {
		return err
	}
	vm, err := object(r, "VM", c.text("vm"))
	if err != nil {
		return err
	}
	host, err := startable(r, vm, wanted)
	if err != nil {
		return err
	}
	for _, vif := range by(r, "VIF", "VM", vm.Ref) {
		if err := c.carry(host, vif.Text("network")); err != nil {
			return err
		}
	}
	state := "Running"
	if c.truth("start_paused") {
		state = "Paused"
	}
	return c.update(func(tx *records.Tx) error {
		vm, err := object(tx, "VM", vm.Ref)
		if err != nil {
			return err
		}
		if _, err := startable(tx, vm, host); err != nil {
			return err
		}
		uses(tx, host)
		alone(tx, vm.Ref)
		for _, vif := range by(tx, "VIF", "VM", vm.Ref) {
			if err := connectVIF(tx, vif, host); err != nil {
				return err
			}
		}
		return put(tx, edited(vm, model.Record{"power_state": state, "resident_on": host, "domid": freeDomain(tx, host)}))
	})
}

// freeDomain is the number of a VM that starts on a host: above those of all that run there.
func freeDomain(r records.Reader, host string) int64 {
	inTurn(r, guard(host))
	highest := int64(0)
	for vm := range objects.Table("VM").By(r, "resident_on", host) {
		highest = max(highest, vm.Int("domid"))
	}
	return highest + 1
}

func (c *call) vmStop() error {
	return c.update(func(tx *records.Tx) error {
		vm, err := object(tx, "VM", c.text("vm"))
		if err != nil {
			return err
		}
		if vm.Text("power_state") == "Halted" {
			return model.VMBadPowerState(vm.Ref, "running", lowerState(vm))
		}
		return halt(tx, vm)
	})
}

// halt notes that a VM runs no more.
func halt(tx *records.Tx, vm *objects.Object) error {
	for _, vif := range by(tx, "VIF", "VM", vm.Ref) {
		if err := put(tx, edited(vif, model.Record{"currently_attached": false})); err != nil {
			return err
		}
	}
	return put(tx, edited(vm, model.Record{"power_state": "Halted", "resident_on": model.NullRef, "domid": int64(-1)}))
}
