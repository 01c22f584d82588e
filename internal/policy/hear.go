package policy

import (
	"net/netip"
	"slices"

	"heddle/internal/hostnet"
)

// list reads all links and their addresses.
func (e *engine) list() error {
	links, err := e.net.Links()
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, l := range links {
		there[l.Name] = true
	}
	for name, d := range e.devices {
		if !there[name] {
			e.linkGone(d.Index)
		}
	}
	addresses, err := e.net.AllAddresses()
	if err != nil {
		return err
	}
	for _, l := range links {
		has := map[netip.Addr]bool{}
		for _, a := range addresses[l.Index] {
			has[a.Addr()] = true
		}
		e.addresses[l.Index] = has
		e.linkSet(l)
	}
	e.dirty.surroundings = true
	return nil
}

// hear takes in what the kernel tells.
func (e *engine) hear(event hostnet.Event) error {
	switch event.Kind {
	case hostnet.Lost:
		e.wiring.Sweep()
		return e.list()
	case hostnet.LinkSet:
		e.linkSet(event.Link)
	case hostnet.LinkGone:
		e.linkGone(event.Link.Index)
	case hostnet.AddressChanged:
		e.addressChanged(event)
	case hostnet.RouteChanged:
		e.routeChanged(event)
	case hostnet.NeighbourSet, hostnet.NeighbourGone:
		e.neighbourChanged(event)
	}
	return nil
}

// linkSet notes a link that is new or has changed. A link of the same name with another index is another one; one of the
// same index with another name has been renamed.
func (e *engine) linkSet(l hostnet.Link) {
	if old, ok := e.names[l.Index]; ok && old != l.Name {
		e.linkGone(l.Index)
	}
	was := e.devices[l.Name]
	if was != nil && was.Index != l.Index {
		e.linkGone(was.Index)
		was = nil
	}
	if e.addresses[l.Index] == nil {
		e.addresses[l.Index] = map[netip.Addr]bool{}
	}
	e.devices[l.Name] = &device{Link: l, addresses: e.addresses[l.Index]}
	e.names[l.Index] = l.Name
	if was == nil {
		e.ifaces.appeared(l.Name)
		e.dirty.surroundings = true
	}
	if was == nil || was.Up != l.Up {
		e.wiring.Kick(l.Name)
	}
	if was == nil || was.Running != l.Running {
		e.dirty.statuses = true
	}
}

func (e *engine) linkGone(index int) {
	name, ok := e.names[index]
	if !ok {
		return
	}
	delete(e.names, index)
	delete(e.addresses, index)
	delete(e.devices, name)
	e.ifaces.gone(name)
	e.dirty.surroundings, e.dirty.statuses = true, true
}

// addressChanged may come before the link itself is told.
func (e *engine) addressChanged(event hostnet.Event) {
	has := e.addresses[event.LinkIndex]
	if event.Removed {
		delete(has, event.Address.Addr())
	} else {
		if has == nil {
			has = map[netip.Addr]bool{}
			e.addresses[event.LinkIndex] = has
		}
		has[event.Address.Addr()] = true
	}
	if !e.settings.isWorkload(e.names[event.LinkIndex]) {
		e.dirty.surroundings = true
		e.lookAt = earlier(e.lookAt, e.now().Add(tunnelsPause)) // what lies under a tunnel may be another
	}
}

// routeChanged mends what somebody else did to our routes, and notes routes that no endpoint explains.
func (e *engine) routeChanged(event hostnet.Event) {
	dst := event.Route.Dst
	name := e.names[event.LinkIndex]
	owner := ""
	if dst.IsSingleIP() {
		owner = e.assigned.owners[dst.Addr()]
	}
	switch {
	case owner != "" && (event.Removed || owner != name || event.Route.Protocol != RouteProtocol):
		if e.devices[owner] != nil && e.devices[owner].Up {
			e.wiring.Kick(owner)
		}
	case owner != "" || event.Removed || name == "" || !e.mine(name) || event.Route.Protocol == RouteProtocol:
	case dst.Addr().IsMulticast() || dst.Addr().Is6() && dst.Addr().IsLinkLocalUnicast(): // the kernel's own
	default:
		e.ifaces.strange[name] = append(e.ifaces.strange[name], event.Route)
		e.sweepAt = earlier(e.sweepAt, e.ifaces.since[name].Add(grace))
	}
}

// neighbourChanged mends permanent neighbours that somebody else has changed.
func (e *engine) neighbourChanged(event hostnet.Event) {
	name := e.names[event.LinkIndex]
	w, ok := e.wired[name]
	if !ok || w.MAC == nil || !slices.Contains(w.Own, event.Neighbour.IP) || e.devices[name] == nil || !e.devices[name].Up {
		return
	}
	if event.Kind == hostnet.NeighbourGone || !event.Neighbour.Permanent || event.Neighbour.MAC != hostnet.MAC(*w.MAC) {
		e.wiring.Kick(name)
	}
}
