package xe

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"heddle/internal/terminal"
	"heddle/internal/xen/client"
)

// command is one of xe's.
type command struct {
	name     string
	required []string
	optional []string // for help; a name that ends in : stands for keys that begin with it
	about    string
	run      func(*call) error
}

// call is a command in progress. Its first error sticks: no request is sent after it.
type call struct {
	ctx     context.Context
	api     api
	session *client.Session
	params  params
	minimal bool
	out     io.Writer
	err     error
}

// fail keeps the first error.
func (c *call) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// need returns the value of a required argument.
func (c *call) need(key string) string { return c.params.or(key, "") }

// number returns the value of an argument that is a whole number.
func (c *call) number(key, otherwise string) int64 {
	n, err := strconv.ParseInt(c.params.or(key, otherwise), 10, 64)
	if err != nil {
		c.fail(failure("Field '%s' needs a whole number, not '%s'", key, c.need(key)))
	}
	return n
}

// truth returns the value of an argument that is true unless it is given otherwise.
func (c *call) truth(key string) bool {
	is, err := parseBool(key, c.params.or(key, "true"))
	c.fail(err)
	return is
}

// print prints a value.
func (c *call) print(value string) {
	if c.minimal {
		printMinimal(c.out, value)
		return
	}
	fmt.Fprintln(c.out, terminal.EscapeLines(value))
}

// do sends a request whose result is not needed.
func (c *call) do(method string, args ...any) error {
	if c.err == nil {
		_, c.err = c.api.Call(c.ctx, method, args...)
	}
	return c.err
}

// ref sends a request whose result is a reference.
func (c *call) ref(method string, args ...any) string {
	if c.err != nil {
		return ""
	}
	v, err := c.api.Call(c.ctx, method, args...)
	ref, ok := v.(string)
	if err == nil && !ok {
		err = fmt.Errorf("%s: the answer is %T, no reference", method, v)
	}
	c.err = err
	return ref
}

// object returns the object of a class whose UUID is an argument.
func (c *call) object(class, key string) string { return c.byUUID(class, c.need(key)) }

// byUUID returns the object of a class with that UUID.
func (c *call) byUUID(class, uuid string) string { return c.ref(class+".get_by_uuid", uuid) }

// printUUID prints the UUID of an object.
func (c *call) printUUID(class, ref string) error {
	if uuid := c.ref(class+".get_uuid", ref); c.err == nil {
		c.print(uuid)
	}
	return c.err
}

// simple returns a command that sends one request, with the object of a class that its uuid names.
func simple(name, class, method, about string) *command {
	return with(name, "uuid", class, class+"."+method, about)
}

// with is simple for an object that another argument names.
func with(name, key, class, method, about string) *command {
	return &command{name: name, required: []string{key}, about: about, run: func(c *call) error { return c.do(method, c.object(class, key)) }}
}

// commands are all of them, in the order of help.
func commands() []*command {
	all := []*command{
		{name: "tunnel-create", required: []string{"pif-uuid", "network-uuid"}, optional: []string{"protocol"}, run: tunnelCreate,
			about: "Create a tunnel on top of a PIF, its transport, for a network. Prints the UUID of the tunnel's access PIF. The protocol is gre or vxlan."},
		simple("tunnel-destroy", "tunnel", "destroy", "Unplug a tunnel's access PIF and remove both."),
		{name: "vlan-create", required: []string{"pif-uuid", "vlan", "network-uuid"}, run: vlanCreate, about: "Create a VLAN with a tag on top of a PIF, for a network. Prints the UUID of the VLAN's PIF."},
		{name: "vlan-destroy", required: []string{"uuid"}, run: vlanDestroy, about: "Unplug a VLAN's PIF and remove both. The UUID may be the VLAN's or its PIF's."},
		{name: "bond-create", required: []string{"network-uuid", "pif-uuids"}, optional: []string{"mac", "mode", "properties:"}, run: bondCreate,
			about: "Create a bond of PIFs, whose UUIDs commas separate, for a network. Prints the bond's UUID. The mode is balance-slb, active-backup or lacp."},
		simple("bond-destroy", "Bond", "destroy", "Remove a bond; its tunnels and VLANs move to its primary member."),
		{name: "network-create", required: []string{"name-label"}, optional: []string{"name-description", "MTU", "bridge", "managed"}, run: networkCreate, about: "Create a network. Prints its UUID."},
		simple("network-destroy", "network", "destroy", "Remove a network that no PIF and no VIF uses."),
		simple("pif-plug", "PIF", "plug", "Bring a PIF up."),
		simple("pif-unplug", "PIF", "unplug", "Bring a PIF down, and the access PIFs of tunnels on top of it."),
		simple("pif-forget", "PIF", "forget", "Remove a physical PIF from the pool."),
		with("pif-scan", "host-uuid", "host", "PIF.scan", "Find new interfaces of a host."),
		{name: "pif-introduce", required: []string{"host-uuid", "device"}, optional: []string{"mac", "managed"}, run: pifIntroduce, about: "Add a host's interface to the pool. Prints the PIF's UUID."},
		{name: "pif-reconfigure-ip", required: []string{"uuid", "mode"}, optional: []string{"IP", "netmask", "gateway", "DNS"}, run: pifReconfigureIP, about: "Set how a PIF gets its address: mode is none, dhcp or static."},
		{name: "vif-create", required: []string{"device", "network-uuid", "vm-uuid"}, optional: []string{"mac", "mtu"}, run: vifCreate, about: "Create a VIF of a VM on a network. Prints its UUID. Without mac, or with mac=random, it has a random MAC."},
		simple("vif-destroy", "VIF", "destroy", "Remove a VIF that is not plugged."),
		simple("vif-plug", "VIF", "plug", "Plug a VIF of a running VM."),
		{name: "vif-unplug", required: []string{"uuid"}, optional: []string{"force"}, run: vifUnplug, about: "Unplug a VIF of a running VM."},
		{name: "vif-move", required: []string{"uuid", "network-uuid"}, run: vifMove, about: "Move a VIF to another network."},
		{name: "vm-create", required: []string{"name-label"}, optional: []string{"name-description"}, run: vmCreate, about: "Create a VM, as a record only. Prints its UUID."},
		simple("vm-destroy", "VM", "destroy", "Remove a halted VM and its VIFs."),
		{name: "vm-start", optional: []string{"on", "paused", "force", "vm", "multiple", "FIELD"}, run: vmStart, about: "Start VMs, on a host if one is named. VMs are chosen by vm=NAME-OR-UUID or by fields."},
		{name: "vm-shutdown", optional: []string{"force", "vm", "multiple", "FIELD"}, run: vmShutdown, about: "Shut VMs down; with force at once. VMs are chosen by vm=NAME-OR-UUID or by fields."},
		{name: "host-enable", optional: []string{"host", "multiple", "FIELD"}, run: hostDo("enable"), about: "Let hosts start VMs and carry networks. Hosts are chosen by host=NAME-OR-UUID or by fields."},
		{name: "host-disable", optional: []string{"host", "multiple", "FIELD"}, run: hostDo("disable"), about: "Take hosts out of use: centers of private networks move away first. Hosts are chosen by host=NAME-OR-UUID or by fields."},
		with("host-management-reconfigure", "pif-uuid", "PIF", "host.management_reconfigure", "Move a host's management to another PIF."),
		simple("host-forget", "host", "destroy", "Remove a dead host, its PIFs and its tunnels from the pool."),
		{name: "pool-join", required: []string{"master-address", "master-username", "master-password"}, optional: []string{"force"}, run: poolJoin, about: "Have this host join the pool of another."},
		with("pool-eject", "host-uuid", "host", "pool.eject", "Take a host out of the pool; its tunnels go."),
		with("pool-designate-new-master", "host-uuid", "host", "pool.designate_new_master", "Make another host the coordinator."),
		simple("task-cancel", "task", "cancel", "Cancel a task."),
		{name: "event-wait", required: []string{"class"}, optional: []string{"FIELD", "FIELD=/"}, run: eventWait, about: "Wait until an object of a class has all field=value, and no field=/=value."},
		{name: "help", optional: []string{"all", "COMMAND"}, about: "Tell about commands.", run: nil},
	}
	for _, k := range kinds() {
		all = append(all, k.commands()...)
	}
	return all
}

// commands are those that a kind's fields make.
func (k *kind) commands() []*command {
	of := func(name string, required []string, about string, run func(*call) error, optional ...string) *command {
		return &command{name: k.name + "-" + name, required: required, optional: optional, about: fmt.Sprintf(about, k.title), run: run}
	}
	all := []*command{
		of("list", nil, "List every %s, or those with certain fields: FIELD=VALUE, MAP-FIELD:KEY=VALUE, SET-FIELD:contains=VALUE. params=all or params=FIELD,… chooses columns.", k.list, "params", "FIELD"),
		of("param-list", []string{"uuid"}, "Show all fields of a %s.", k.paramList),
		of("param-get", []string{"uuid", "param-name"}, "Show one field of a %s, or what a key of a map holds.", k.paramGet, "param-key"),
	}
	if k.settable() {
		all = append(all, of("param-set", []string{"uuid"}, "Set fields of a %s: FIELD=VALUE or MAP-FIELD:KEY=VALUE.", k.paramSet, "FIELD"),
			of("param-clear", []string{"uuid", "param-name"}, "Empty a field of a %s.", k.paramClear))
	}
	if k.addressable() {
		all = append(all, of("param-add", []string{"uuid", "param-name"}, "Add to a set (param-key) or a map (KEY=VALUE) of a %s.", k.paramAdd, "param-key", "KEY"),
			of("param-remove", []string{"uuid", "param-name", "param-key"}, "Remove from a set or a map of a %s.", k.paramRemove))
	}
	return all
}

// kindOf returns the kind of a class, nil if there is none.
func kindOf(api string) *kind {
	for _, k := range kinds() {
		if k.api == api {
			return k
		}
	}
	return nil
}

// chosen returns the objects of a kind that a command is about: those that selector=NAME-OR-UUID
// names, else those with the fields given, else the only one.
func (c *call) chosen(k *kind, selector string, own ...string) ([]object, error) {
	filters, err := k.filters(c.params.without(append(own, selector)...))
	if err != nil {
		return nil, err
	}
	r := newReader(c.ctx, c.api, true)
	found, err := k.find(r, filters)
	if err != nil {
		return nil, err
	}
	if name, ok := c.params.get(selector); ok {
		found = named(found, name)
	}
	switch {
	case len(found) == 0:
		return nil, failure("No matching %ss found", k.title)
	case len(found) > 1 && !c.params.on("multiple"):
		return nil, failure("Multiple matches found. --multiple required to complete the operation")
	}
	return found, nil
}

// named returns those of the objects that a name or UUID means. It changes objects.
func named(objects []object, name string) []object {
	return slices.DeleteFunc(objects, func(o object) bool { return o.record["uuid"] != name && o.record["name_label"] != name })
}
