package control

import (
	"maps"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// What binding:vif_type says.
const (
	vifUnbound = "unbound"
	vifBound   = "ovs"
	vifFailed  = "binding_failed"
)

// bind sets what a request says about the binding, and finds the host. A host that is not known is no error: the port
// says binding_failed, and each later update tries again (midonet-translations §7.1).
func (o *operation) bind(p *neutron.Port, v neutron.Values) error {
	host := p.BoundHostID
	if v.Has("binding:host_id") {
		p.HostID = v.Text("binding:host_id")
	}
	if profile, ok := v["binding:profile"].(map[string]any); ok {
		p.Profile = maps.Clone(profile)
	}
	if vnic := v.Text("binding:vnic_type"); vnic != "" {
		p.VNICType = vnic
	}
	p.BoundHostID, p.InterfaceName = "", ""
	if name := translate.InterfaceName(p); p.HostID != "" && name != "" {
		for h := range schema.Hosts.By(o.tx, "name", p.HostID) {
			if _, err := schema.Hosts.Need(o.tx, h.ID); err != nil {
				return err
			}
			p.BoundHostID, p.InterfaceName = h.ID, name
		}
	}
	if host != "" && host != p.BoundHostID {
		p.PreviousHostID = host
	}
	return nil
}

// portView is a port with what its binding and its host make of it.
func (s *Service) portView(r records.Reader, p *neutron.Port) *neutron.PortView {
	v := &neutron.PortView{Port: p, Status: statusDown, VIFType: vifUnbound, VIFDetails: s.vifNone}
	switch {
	case p.DeviceOwner == ownerFloatingIP: // holds an address, carries nothing
		v.Status = statusNone
	case p.BoundHostID != "":
		v.VIFType, v.VIFDetails = vifBound, s.vifDetails
		if _, served := schema.PortStates.Peek(r, p.BoundHostID+"/"+p.ID); served && p.AdminStateUp {
			v.Status = statusActive
		}
	case p.HostID != "" && translate.InterfaceName(p) != "":
		v.VIFType = vifFailed
	}
	return v
}
