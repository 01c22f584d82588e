package control

import (
	"maps"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Values of binding:vif_type. A bound port's is tap: Nova then creates the tap device itself, under
// the name that the host's agent serves.
const (
	vifUnbound = "unbound"
	vifTap     = "tap"
	vifFailed  = "binding_failed"
)

// bind sets what a request says about the binding, and finds the host. A host that is not known is
// no error: the port says binding_failed, and each later update tries again (midonet-translations
// §7.1). A profile of null unbinds until a request names a host or a profile (§7.2 step 10).
func (e portEdit) bind() error {
	p, v := e.p, e.v
	if err := e.checkSubportBinding(); err != nil {
		return err
	}
	if v.Has("binding:host_id") {
		p.HostID, p.BindingDeleted = v.Text("binding:host_id"), false
		if i := indexOfBinding(p, p.HostID); i >= 0 { // the port has one binding to each host
			p.OtherBindings = slices.Delete(slices.Clone(p.OtherBindings), i, i+1)
		}
		if p.Profile == nil {
			p.Profile = map[string]any{}
		}
	}
	if v.Has("binding:profile") {
		profile, _ := v["binding:profile"].(map[string]any)
		p.Profile = maps.Clone(profile)
	}
	if vnic := v.Text("binding:vnic_type"); vnic != "" {
		p.VNICType = vnic
	}
	return e.settleHost(p)
}

// checkSubportBinding refuses to bind a subport elsewhere than its parent.
func (e portEdit) checkSubportBinding() error {
	if e.p.SubportVLAN == 0 || !e.v.Has("binding:host_id") || e.v.Text("binding:host_id") == e.p.HostID {
		return nil
	}
	return e.checkPortInNoTrunk(e.p)
}

// settleHost binds a port to the host it names, if that is there.
func (o *operation) settleHost(p *neutron.Port) error {
	if p.SubportVLAN != 0 {
		if parent, ok := parentOf(o.tx, p); ok {
			o.bindSubport(p, parent)
		}
		return nil
	}
	before, beforeInterface := p.BoundHostID, p.InterfaceName
	p.BoundHostID, p.InterfaceName = "", ""
	if name := wantedInterface(p); name != "" {
		if h, err := schema.HostByName(o.tx, p.HostID); err == nil {
			if _, err := schema.Hosts.Need(o.tx, h.ID); err != nil {
				return err
			}
			p.BoundHostID, p.InterfaceName = h.ID, name
		}
	}
	if before != "" && before != p.BoundHostID {
		o.leave(p, before, beforeInterface)
	}
	return nil
}

// leave notes the host that a port was bound to until now. While a port is bound to another, the
// host that serves it goes on until the other does: the host before, or of a port that has never
// been up there the one before that.
func (o *operation) leave(p *neutron.Port, host, interfaceName string) {
	if p.BoundHostID != "" && p.PreviousInterface != "" && p.PreviousHostID != p.BoundHostID {
		return
	}
	p.PreviousHostID, p.PreviousInterface = host, ""
	if _, served := schema.PortStates.Peek(o.tx, host+"/"+p.ID); served && p.BoundHostID != "" {
		p.PreviousInterface = interfaceName
	}
}

// wantedInterface returns the interface to bind on the host that the port names, or "" for none.
func wantedInterface(p *neutron.Port) string {
	if p.HostID == "" || p.Profile == nil {
		return ""
	}
	return translate.InterfaceName(p)
}

// portView returns a port with what its binding and its host make of it.
func (s *Service) portView(r records.Reader, p *neutron.Port) *neutron.PortView {
	v := &neutron.PortView{Port: p, Status: statusDown, VIFType: vifUnbound, VIFDetails: s.vifNone}
	if n, ok := schema.Networks.Peek(r, p.NetworkID); ok {
		v.NetworkQoSPolicyID = n.QoSPolicyID
	}
	switch {
	case p.DeviceOwner == ownerFloatingIP: // holds an address, carries nothing
		v.Status = statusNone
	case p.BoundHostID != "" && s.onRouted(r, p):
		v.VIFType, v.VIFDetails = vifTap, s.vifRouted
		v.Status = s.opts.Statuses.of(p)
	case p.BoundHostID != "":
		v.VIFType, v.VIFDetails = vifTap, s.vifOverlay
		if served(r, p) && p.AdminStateUp {
			v.Status = statusActive
		}
	case lacksHost(r, p):
		v.VIFType = vifFailed
	case ofRouter(p.DeviceOwner) && p.AdminStateUp:
		if _, linked := schema.RouterPorts.Peek(r, p.ID); linked { // every host serves it
			v.Status = statusActive
		}
	}
	if p.TrunkID != "" {
		v.Trunk = trunkDetails(r, p.TrunkID)
	}
	return v
}

// PortStatus returns the status of a port.
func (s *Service) PortStatus(r records.Reader, p *neutron.Port) string {
	return s.portView(r, p).Status
}

// lacksHost reports whether a port that is not bound should be.
func lacksHost(r records.Reader, p *neutron.Port) bool {
	if p.SubportVLAN != 0 {
		parent, ok := parentOf(r, p)
		return ok && wantedInterface(parent) != ""
	}
	return wantedInterface(p) != ""
}

// served reports whether the host that a port is bound to serves it.
func served(r records.Reader, p *neutron.Port) bool {
	_, is := schema.PortStates.Peek(r, p.BoundHostID+"/"+translate.ServedPort(p))
	return is
}

// onRouted reports whether the network of a port is routed.
func (s *Service) onRouted(r records.Reader, p *neutron.Port) bool {
	n, ok := schema.Networks.Peek(r, p.NetworkID)
	return ok && n.Routed()
}
