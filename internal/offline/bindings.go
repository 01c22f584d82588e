package offline

import (
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
)

// settleBinding binds, moves or unbinds a port whose request says something of its binding (midonet-translations §4 H6,
// §7.1 step 4, §7.2 step 10). The translation binds by a host and an interface alone: the name that the server gives an
// interface when a client names only the host is not its business. A profile without an interface (null) unbinds, and
// so does clearing the host; a host alone says nothing of an interface that was bound without Neutron.
func (w *world) settleBinding(p *neutron.Port, data object) error {
	iface := translate.ProfileInterface(p)
	if p.HostID == "" || iface == "" {
		if data.has("binding:profile") || p.HostID == "" {
			unbind(p)
		}
		return nil
	}
	host, err := w.hostNamed(p.HostID)
	if err != nil {
		return err
	}
	if host == nil {
		return refuse(neutron.NotFound, "port %s: host %q could not be found", p.ID, p.HostID)
	}
	if err := w.refuseTakenInterface(p, host.ID, iface); err != nil {
		return err
	}
	bind(p, host.ID, iface)
	return nil
}

// refuseTakenInterface holds that an interface is bound to one port.
func (w *world) refuseTakenInterface(p *neutron.Port, host, iface string) error {
	other := first(w.ports, func(o *neutron.Port) bool {
		return o.ID != p.ID && o.BoundHostID == host && o.InterfaceName == iface
	})
	if other == nil {
		return nil
	}
	return refuse(neutron.Conflict, "port %s: interface %s of host %s is bound to port %s", p.ID, iface, host, other.ID)
}

// bind puts the port on an interface, taking it off the one it was on.
func bind(p *neutron.Port, host, iface string) {
	if p.BoundHostID != host || p.InterfaceName != iface {
		unbind(p)
	}
	p.BoundHostID, p.InterfaceName = host, iface
}

// unbind takes the port off its host, which keeps what it knows of the port's connections.
func unbind(p *neutron.Port) {
	if p.BoundHostID != "" {
		p.PreviousHostID = p.BoundHostID
	}
	p.BoundHostID, p.InterfaceName = "", ""
}

// bindings is the port_binding task, which binds a port without touching its attributes (midonet-translations §15).
type bindings struct{}

func bindingResource() resource { return bindings{} }

func (bindings) check(data object) error {
	_, err := data.object("id", "port_id", "host_id", "interface_name")
	return err
}

func (bindings) apply(w *world, s *step) error {
	place := "port_id"
	if !s.data.has(place) {
		place = "id"
	}
	id, err := idOf(s.data.get(place))
	if err != nil {
		return err
	}
	switch p := w.ports[id]; s.op {
	case "create":
		return createBinding(w, p, id, s.data)
	case "update":
		return refuse(neutron.Unsupported, "port_binding cannot be updated; delete it and create another")
	default:
		if p != nil {
			unbound := *p
			unbind(&unbound)
			w.ports[id] = &unbound
		}
		return nil
	}
}

func createBinding(w *world, p *neutron.Port, id string, data object) error {
	if p == nil {
		return notFound("port", id)
	}
	if !w.hasTopologyPort(p) {
		return refuse(neutron.Invalid, "port %s of owner %q on its network has no port in the topology to bind", id, p.DeviceOwner)
	}
	if p.BoundHostID != "" {
		return refuse(neutron.Conflict, "port %s is bound to %s on host %s", id, p.InterfaceName, p.BoundHostID)
	}
	hostID, err := data.get("host_id").text()
	if err != nil {
		return err
	}
	iface, err := data.get("interface_name").text()
	if err != nil {
		return err
	}
	host := w.hosts[hostID]
	if host == nil {
		if host, err = w.hostNamed(hostID); err != nil {
			return err
		}
	}
	if host == nil {
		return notFound("host", hostID)
	}
	if iface == "" {
		return refuse(neutron.Invalid, "%s is missing", data.under("interface_name"))
	}
	if err := w.refuseTakenInterface(p, host.ID, iface); err != nil {
		return err
	}
	bound := *p
	bind(&bound, host.ID, iface)
	w.ports[id] = &bound
	return nil
}
