package offline

import (
	"errors"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// Two types of steps are not Neutron's: host registers the host of an agent, and port_binding binds
// a port to an interface of a host (midonet-translations §15).

// applyHost carries out a step of type host.
func (w *world) applyHost(s *step) error {
	id, err := idOf(s.data.get("id"))
	if err != nil {
		return err
	}
	name, err := s.data.get("name").text()
	if err != nil {
		return err
	}
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return err
	}
	old, there := schema.Hosts.Peek(snap, id)
	switch {
	case s.op == "create" && there:
		return refuse(neutron.Conflict, "host %s exists already", id)
	case s.op == "update" && !there:
		return refuse(neutron.NotFound, "host %s could not be found", id)
	case s.op == "update" && !s.data.has("name"):
		return nil
	case s.op == "delete" && !there:
		return nil // deleting what is gone is success (midonet-translations §1.3)
	case s.op == "delete":
		for p := range schema.Ports.By(snap, "bound_host", id) {
			return refuse(neutron.Conflict, "host %s has port %s bound to it; unbind it first", old.Name, p.ID)
		}
		_, err := w.db.Update(w.ctx, func(tx *records.Tx) error { return schema.Hosts.Delete(tx, id) })
		return err
	case name == "":
		return refuse(neutron.Invalid, "host %s: name is missing", id)
	}
	return w.putHost(&topology.Host{ID: id, Name: name})
}

// putHost registers a host, and binds the ports that wait for one of its name.
func (w *world) putHost(h *topology.Host) error {
	_, err := w.db.Update(w.ctx, func(tx *records.Tx) error { return schema.Hosts.Put(tx, h) })
	var taken *records.TakenError
	if errors.As(err, &taken) {
		return refuse(neutron.Conflict, "host name %q is that of host %s", h.Name, taken.By)
	} else if err != nil {
		return err
	}
	return w.service.Rebind(w.ctx, h)
}

// applyBinding carries out a step of type port_binding.
func (w *world) applyBinding(s *step) error {
	place := "port_id"
	if !s.data.has(place) {
		place = "id"
	}
	id, err := idOf(s.data.get(place))
	if err != nil {
		return err
	}
	port, err := w.service.Ports().Show(w.ctx, administrator(), id)
	switch {
	case s.op == "update":
		return refuse(neutron.Unsupported, "port_binding cannot be updated; delete it and create another")
	case s.op == "delete" && (err != nil || port.BoundHostID == ""):
		return ignoreMissing(err)
	case err != nil:
		return err
	case s.op == "delete":
		return w.bind(id, nil, nil)
	}
	return w.createBinding(port.Port, s.data)
}

func (w *world) createBinding(p *neutron.Port, data object) error {
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return err
	}
	owner := topology.Owner{Kind: "port", ID: p.ID}
	if b, ok := schema.Bundles.Peek(snap, schema.BundleID(owner)); !ok || len(b.Bundle.Ports) == 0 {
		return refuse(neutron.Invalid, "port %s of owner %q on its network has no port in the topology to bind", p.ID, p.DeviceOwner)
	}
	if p.BoundHostID != "" {
		return refuse(neutron.Conflict, "port %s is bound to %s on host %s", p.ID, p.InterfaceName, p.BoundHostID)
	}
	host, err := data.get("host_id").text()
	if err != nil {
		return err
	}
	iface, err := data.get("interface_name").text()
	if err != nil {
		return err
	}
	h, err := schema.FindHost(snap, host)
	var ambiguous *schema.AmbiguousHostError
	switch {
	case errors.As(err, &ambiguous):
		return refuse(neutron.Conflict, "%s", ambiguous.Error())
	case err != nil:
		return refuse(neutron.NotFound, "host %s could not be found", host)
	case iface == "":
		return refuse(neutron.Invalid, "%s is missing", data.under("interface_name"))
	}
	return w.bind(p.ID, h.Name, map[string]any{"interface_name": iface})
}

// bind sets the host, if it is not nil, and the profile of a port, nil for none.
func (w *world) bind(port string, host, profile any) error {
	change := map[string]any{"binding:profile": profile}
	if host != nil {
		change["binding:host_id"] = host
	}
	return w.update(w.kinds[neutron.Ports.Name()], port, object{fields: change})
}

// ignoreMissing drops the error that an object is not there.
func ignoreMissing(err error) error {
	var refused *neutron.Error
	if errors.As(err, &refused) && refused.Kind == neutron.NotFound {
		return nil
	}
	return err
}
