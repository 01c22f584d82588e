package policy

import (
	"net/netip"
	"time"

	"heddle/internal/hostnet"
)

// links are the network interfaces of this host with their addresses, as the kernel reports them.
type links struct {
	devices   map[string]*device
	names     map[int]string              // of devices, by index
	addresses map[int]map[netip.Addr]bool // by index of the link, which may be reported later
}

// device is a network interface.
type device struct {
	hostnet.Link
	addresses map[netip.Addr]bool
	since     time.Time // when it appeared
}

func newLinks() links {
	return links{devices: map[string]*device{}, names: map[int]string{}, addresses: map[int]map[netip.Addr]bool{}}
}

// set records a link, and returns the previous device of that name, or nil. A link of the same name
// with another index is another device; one of the same index with another name was renamed.
func (k *links) set(l hostnet.Link, now time.Time) (before *device) {
	if old, ok := k.names[l.Index]; ok && old != l.Name {
		k.remove(l.Index)
	}
	before = k.devices[l.Name]
	if before != nil && before.Index != l.Index {
		k.remove(before.Index)
		before = nil
	}
	if k.addresses[l.Index] == nil {
		k.addresses[l.Index] = map[netip.Addr]bool{}
	}
	d := &device{Link: l, addresses: k.addresses[l.Index], since: now}
	if before != nil {
		d.since = before.since
	}
	k.devices[l.Name], k.names[l.Index] = d, l.Name
	return before
}

// remove forgets a link, and reports whether it was known.
func (k *links) remove(index int) bool {
	name, ok := k.names[index]
	if ok {
		delete(k.names, index)
		delete(k.addresses, index)
		delete(k.devices, name)
	}
	return ok
}

// setAddress records an address that was added to a link or removed from it.
func (k *links) setAddress(index int, address netip.Addr, removed bool) {
	has := k.addresses[index]
	switch {
	case removed:
		delete(has, address)
	case has == nil:
		k.addresses[index] = map[netip.Addr]bool{address: true}
	default:
		has[address] = true
	}
}

func (k *links) isUp(name string) bool {
	d := k.devices[name]
	return d != nil && d.Up
}

// isRunning reports whether the device is there and carries packets.
func (k *links) isRunning(name string) bool {
	d := k.devices[name]
	return d != nil && d.Running
}

// listLinks replaces all links and addresses, after events were lost or none has come yet.
func (c *core) listLinks(all []hostnet.Link, addresses map[int][]netip.Prefix, now time.Time) {
	present := map[string]bool{}
	for _, l := range all {
		present[l.Name] = true
	}
	for name, d := range c.links.devices {
		if !present[name] {
			c.removeLink(d.Index)
		}
	}
	for _, l := range all {
		has := map[netip.Addr]bool{}
		for _, a := range addresses[l.Index] {
			has[a.Addr()] = true
		}
		c.links.addresses[l.Index] = has
		c.setLink(l, now)
	}
	c.dirty.surroundings = true
}

// applyEvent applies an event of the kernel, other than that events were lost.
func (c *core) applyEvent(event hostnet.Event, now time.Time) {
	switch event.Kind {
	case hostnet.LinkSet:
		c.setLink(event.Link, now)
	case hostnet.LinkGone:
		c.removeLink(event.Link.Index)
	case hostnet.AddressChanged:
		c.links.setAddress(event.LinkIndex, event.Address.Addr(), event.Removed)
		if !c.isWorkloadName(c.links.names[event.LinkIndex]) {
			c.dirty.surroundings = true
			c.tunnels.checkBy(now.Add(tunnelsPause)) // the device under a tunnel may be another one
		}
	case hostnet.RouteChanged:
		c.applyRoute(event, now)
	case hostnet.NeighbourSet, hostnet.NeighbourGone:
		c.applyNeighbour(event)
	}
}

func (c *core) setLink(l hostnet.Link, now time.Time) {
	before := c.links.set(l, now)
	if before == nil {
		c.dirty.surroundings = true
	}
	if before == nil || before.Up != l.Up {
		c.out.kick = append(c.out.kick, l.Name)
	}
	if before == nil || before.Running != l.Running {
		c.dirty.statuses = true
	}
}

func (c *core) removeLink(index int) {
	if c.links.remove(index) {
		c.dirty.surroundings, c.dirty.statuses = true, true
	}
}

// applyRoute repairs our routes where others changed them, and notes those no endpoint explains.
func (c *core) applyRoute(event hostnet.Event, now time.Time) {
	dst := event.Route.Dst
	name := c.links.names[event.LinkIndex]
	owner := ""
	if dst.IsSingleIP() {
		owner = c.endpoints.assigned.owners[dst.Addr()]
	}
	ours := event.Route.Protocol == RouteProtocol
	switch {
	case owner != "" && (event.Removed || owner != name || !ours):
		if c.links.isUp(owner) {
			c.out.kick = append(c.out.kick, owner)
		}
	case owner != "" || event.Removed || name == "" || !c.isOurs(name) || ours:
	case dst.Addr().IsMulticast() || dst.Addr().Is6() && dst.Addr().IsLinkLocalUnicast(): // the kernel's own
	default:
		event.Route.Link = name
		c.out.unexplained = append(c.out.unexplained, event.Route)
		c.upkeep.sweepAt = earlier(c.upkeep.sweepAt, c.links.devices[name].since.Add(grace))
	}
}

func (c *core) applyNeighbour(event hostnet.Event) {
	name := c.links.names[event.LinkIndex]
	w, ok := c.wiring.desired[name]
	if !ok || w.MAC == nil || !w.owns(event.Neighbour.IP) || !c.links.isUp(name) {
		return
	}
	if event.Kind == hostnet.NeighbourGone || !event.Neighbour.Permanent || event.Neighbour.MAC != hostnet.MAC(*w.MAC) {
		c.out.kick = append(c.out.kick, name)
	}
}
