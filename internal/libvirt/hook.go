package libvirt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"heddle/internal/cloud"
	"heddle/internal/terminal"
)

// Hook binds the ports of domains to this host.
type Hook struct {
	API  *cloud.Neutron
	Host string // name by which ports are bound to this host
}

// owner is the device_owner of the ports of domains, unless they have one.
const owner = "compute:libvirt"

// Keys of binding:profile.
const (
	interfaceName = "interface_name" // of the interface on the host
	domainUUID    = "libvirt_domain" // UUID of the domain that the binding is for
)

// port is a port as the API shows it to an administrator.
type port struct {
	ID          string         `json:"id"`
	MACAddress  string         `json:"mac_address"`
	DeviceOwner string         `json:"device_owner"`
	HostID      *string        `json:"binding:host_id"` // nil: the caller may not see it
	Status      string         `json:"status"`
	VIFType     string         `json:"binding:vif_type"`
	Profile     map[string]any `json:"binding:profile"`
}

// device returns the name of the port's interface on a host with this binding:profile.
func (p *port) device(profile map[string]any) string {
	if name, ok := profile[interfaceName].(string); ok && name != "" {
		return name
	}
	return "tap" + p.ID[:11]
}

// deviceName matches what the kernel takes for the name of an interface, of characters that need no
// care elsewhere.
var deviceName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)

// isOfAnother reports whether a binding is for another domain than d. Libvirt calls the hook for
// each domain with the port in its metadata: a copy of the one that runs has it, too.
func isOfAnother(profile map[string]any, d *Domain) bool {
	uuid, _ := profile[domainUUID].(string)
	return uuid != "" && uuid != d.UUID
}

// checkFree refuses a port that something else uses.
func (h *Hook) checkFree(p *port, d *Domain) error {
	switch _, known := p.Profile[domainUUID]; {
	case *p.HostID == "":
		return nil
	case isOfAnother(p.Profile, d):
		return fmt.Errorf("it is bound to host %s for the domain with the UUID %s: a copy of a domain needs a port of its own; "+
			"if that domain is gone, `heddle port set %s --host ''` takes the port from it", *p.HostID, terminal.Escape(fmt.Sprint(p.Profile[domainUUID])), p.ID)
	case !known && *p.HostID == h.Host && p.Status == "ACTIVE":
		return fmt.Errorf("it is in use on this host already: `heddle unplug %s` if it is plugged into a namespace, or stop the machine that has its tap open", p.ID)
	}
	return nil
}

// Handles reports whether the hook does something at one of libvirt's operations. The others need
// nothing: which host a machine runs on its first frame tells the agent.
func Handles(operation string) bool { return operation == "prepare" || operation == "release" }

// Handle does what an operation on a domain needs.
func (h *Hook) Handle(ctx context.Context, operation string, d *Domain) error {
	do := h.prepare
	if operation == "release" {
		do = h.release
	}
	var failed []error
	for _, id := range d.Ports {
		if err := do(ctx, d, id); err != nil {
			failed = append(failed, fmt.Errorf("domain %s: port %s: %w", terminal.Escape(d.Name), terminal.Escape(id), err))
		}
	}
	return errors.Join(failed...)
}

func (h *Hook) port(ctx context.Context, id string) (*port, error) {
	var p port
	if err := h.API.Get(ctx, cloud.Port, id, &p); err != nil {
		return nil, err
	}
	if p.HostID == nil {
		return nil, errors.New("binding a port to a host takes an administrator's rights: log in as one")
	}
	return &p, nil
}

// prepare binds a port to this host, where its machine is about to run. If it is bound to another
// host, whose machine may be about to migrate here, the binding is inactive until the machine runs.
func (h *Hook) prepare(ctx context.Context, d *Domain, id string) error {
	if !cloud.IsID(id) { // tenants choose names
		return errors.New("this is no port's id: write <heddle:port id='ID'/>, with the id that `heddle port show` prints")
	}
	p, err := h.port(ctx, id)
	if err != nil {
		return err
	}
	if err := h.checkFree(p, d); err != nil {
		return err
	}
	nic, ok := d.interfaceOf(p.MACAddress)
	switch {
	case !ok:
		return fmt.Errorf("no interface of the domain has the port's MAC address: write <mac address='%s'/>", p.MACAddress)
	case nic.Device == "":
		return fmt.Errorf("its interface has no name on the host: write <target dev='%s'/>", p.device(p.Profile))
	case !deviceName.MatchString(nic.Device):
		return fmt.Errorf("its interface is called %s on the host, which no interface can be: write <target dev='%s'/>", terminal.Escape(nic.Device), p.device(nil))
	}
	profile := maps.Clone(p.Profile)
	if profile == nil {
		profile = map[string]any{}
	}
	if delete(profile, interfaceName); nic.Device != p.device(nil) {
		profile[interfaceName] = nic.Device
	}
	profile[domainUUID] = d.UUID
	if p.DeviceOwner == "" {
		if _, err := h.API.Update(ctx, cloud.Port, p.ID, map[string]any{"device_owner": owner, "device_id": d.UUID}); err != nil {
			return err
		}
	}
	if *p.HostID != "" && *p.HostID != h.Host {
		return h.standBy(ctx, p.ID, profile)
	}
	return h.bind(ctx, p.ID, profile)
}

// bind makes this host's the active binding. If that fails the port is not bound.
func (h *Hook) bind(ctx context.Context, id string, profile map[string]any) error {
	if _, err := h.API.Update(ctx, cloud.Port, id, map[string]any{"binding:host_id": h.Host, "binding:profile": profile}); err != nil {
		return err
	}
	p, err := h.port(ctx, id)
	if err != nil {
		return err
	}
	if p.VIFType == "binding_failed" {
		if _, err := h.API.Update(ctx, cloud.Port, id, map[string]any{"binding:host_id": ""}); err != nil {
			return err
		}
		return fmt.Errorf("no host has joined as %s: start `heddle agent` on it, or name its agent with --host", h.Host)
	}
	return nil
}

// standBy makes this host's an inactive binding, or one that may become active again.
func (h *Hook) standBy(ctx context.Context, id string, profile map[string]any) error {
	all, err := h.API.Bindings(ctx, id)
	if err != nil {
		return err
	}
	b := cloud.Binding{Host: h.Host, Profile: profile}
	if slices.ContainsFunc(all, func(b cloud.Binding) bool { return b.Host == h.Host }) {
		return h.API.UpdateBinding(ctx, id, b)
	}
	return h.API.AddBinding(ctx, id, b)
}

// release takes the port of a machine that has ended here from this host. A machine that has
// migrated runs elsewhere already, or is about to be seen there.
func (h *Hook) release(ctx context.Context, d *Domain, id string) error {
	p, err := h.port(ctx, id)
	if cloud.IsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := h.API.Bindings(ctx, p.ID)
	if err != nil {
		return err
	}
	own := slices.IndexFunc(all, func(b cloud.Binding) bool { return b.Host == h.Host })
	if own < 0 || isOfAnother(all[own].Profile, d) {
		return nil
	}
	if *p.HostID != h.Host {
		return h.removeBinding(ctx, p.ID, all)
	}
	next := slices.IndexFunc(all, func(b cloud.Binding) bool { return b.Host != h.Host && b.Status == "INACTIVE" && b.VIFType == "tap" })
	if next >= 0 {
		return h.handOver(ctx, p.ID, all[next].Host)
	}
	profile := maps.Clone(p.Profile)
	delete(profile, domainUUID)
	attributes := map[string]any{"binding:host_id": "", "binding:profile": profile}
	if p.DeviceOwner == owner {
		attributes["device_owner"], attributes["device_id"] = "", ""
	}
	_, err = h.API.Update(ctx, cloud.Port, p.ID, attributes)
	return err
}

// handOver activates the binding to the host that the machine has migrated to, unless the agent
// there has been faster.
func (h *Hook) handOver(ctx context.Context, id, to string) error {
	if err := h.API.ActivateBinding(ctx, id, to); err != nil && !cloud.IsConflict(err) {
		return err
	}
	all, err := h.API.Bindings(ctx, id)
	if err != nil {
		return err
	}
	return h.removeBinding(ctx, id, all)
}

// removeBinding removes this host's binding from all of a port's, if it is inactive.
func (h *Hook) removeBinding(ctx context.Context, id string, all []cloud.Binding) error {
	if !slices.ContainsFunc(all, func(b cloud.Binding) bool { return b.Host == h.Host && b.Status == "INACTIVE" }) {
		return nil
	}
	if err := h.API.DeleteBinding(ctx, id, h.Host); err != nil && !cloud.IsGone(err) {
		return err
	}
	return nil
}
