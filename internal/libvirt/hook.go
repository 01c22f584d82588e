package libvirt

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// interfaceName is the key of binding:profile that names the interface on the host.
const interfaceName = "interface_name"

// port is a port as the API shows it to an administrator.
type port struct {
	ID          string         `json:"id"`
	MACAddress  string         `json:"mac_address"`
	DeviceOwner string         `json:"device_owner"`
	HostID      *string        `json:"binding:host_id"` // nil: the caller may not see it
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
	p, err := h.port(ctx, id)
	if err != nil {
		return err
	}
	nic, ok := d.interfaceOf(p.MACAddress)
	switch {
	case !ok:
		return fmt.Errorf("no interface of the domain has the port's MAC address: write <mac address='%s'/>", p.MACAddress)
	case nic.Device == "":
		return fmt.Errorf("its interface has no name on the host: write <target dev='%s'/>", p.device(p.Profile))
	}
	profile := maps.Clone(p.Profile)
	if profile == nil {
		profile = map[string]any{}
	}
	if delete(profile, interfaceName); nic.Device != p.device(nil) {
		profile[interfaceName] = nic.Device
	}
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
func (h *Hook) release(ctx context.Context, _ *Domain, id string) error {
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
	if *p.HostID != h.Host {
		return h.removeBinding(ctx, p.ID, all)
	}
	next := slices.IndexFunc(all, func(b cloud.Binding) bool { return b.Host != h.Host && b.Status == "INACTIVE" && b.VIFType == "tap" })
	if next >= 0 {
		return h.handOver(ctx, p.ID, all[next].Host)
	}
	attributes := map[string]any{"binding:host_id": ""}
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
