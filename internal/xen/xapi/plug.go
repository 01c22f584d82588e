package xapi

import (
	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// rising returns the PIFs that plugging this one attaches, those that carry others first. PIFs that
// are attached already are not among them (spec 7.3).
func (p *pool) rising(pif *objects.Object) []*objects.Object {
	switch {
	case !pif.Bool("managed"):
		p.fail(model.PIFUnmanaged(pif.Ref))
	case isSlave(pif):
		p.fail(model.CannotPlugBondSlave(pif.Ref))
	}
	if p.err != nil || pif.Bool("currently_attached") {
		return nil
	}
	base := ""
	t := tunnelOf(p, pif.Ref)
	if t != nil {
		base = t.Text("transport_PIF")
	} else if v := vlanOf(p, pif.Ref); v != nil {
		base = v.Text("tagged_PIF")
	}
	if base == "" {
		return []*objects.Object{pif}
	}
	under := p.get("PIF", base)
	if t != nil && !configured(under) {
		p.fail(model.TransportPIFNotConfigured(under.Ref))
	}
	return append(p.rising(under), pif)
}

// bridgesFor returns the orders for the bridges that the PIFs need once they are attached.
func (p *pool) bridgesFor(pifs []*objects.Object) []*objects.Order {
	var orders []*objects.Order
	for _, pif := range pifs {
		network := p.get("network", pif.Text("network"))
		if tunnelOf(p, pif.Ref) != nil {
			orders = append(orders, bridgeOrder(pif.Text("host"), objects.BridgeFor(p, network, pif)))
		} else if v := vlanOf(p, pif.Ref); v != nil {
			if b, ok := objects.VLANBridge(p, network, v.Text("tagged_PIF"), int(v.Int("tag"))); ok {
				orders = append(orders, bridgeOrder(pif.Text("host"), b))
			}
		}
	}
	return orders
}

// attach marks the PIFs as attached. Those of tunnels get their network's MTU, and a tunnel that
// was waiting to be plugged no longer does.
func (p *pool) attach(pifs []*objects.Object) {
	for _, pif := range pifs {
		changed := model.Record{"currently_attached": true}
		if t := tunnelOf(p, pif.Ref); t != nil {
			changed["MTU"] = p.get("network", pif.Text("network")).Int("MTU")
			p.endInheritance(t)
		}
		p.uses(pif.Text("network"))
		p.edit(pif, changed)
	}
}

// endInheritance notes that a client has plugged or unplugged the tunnel's access PIF: a tunnel
// that was made unplugged at a join is then no longer plugged by the pool itself.
func (p *pool) endInheritance(t *objects.Object) {
	if t.Map("other_config")[inheritedKey] != "" {
		p.edit(t, model.Record{"other_config": without(t.Map("other_config"), inheritedKey)})
	}
}

// falling returns the PIFs that unplugging this one detaches: tunnels that it carries, then itself
// (spec 7.4); none if it is detached. In a transaction the commit needs that no other begins to use
// them.
func (p *pool) falling(pif *objects.Object) []*objects.Object {
	own, attached := p.own(), pif.Bool("currently_attached")
	switch {
	case !pif.Bool("managed"):
		p.fail(model.PIFUnmanaged(pif.Ref))
	case attached && own.Bool("ha_enabled"):
		p.fail(model.HAIsEnabled())
	case pif.Bool("management"):
		p.fail(model.PIFIsManagementInterface(pif.Ref))
	}
	if p.err != nil || !attached {
		return nil
	}
	p.alone(pif.Ref, pif.Text("network"))
	if vif := vifOn(p, pif); vif != nil {
		p.fail(model.VIFInUse(pif.Text("network"), vif.Ref))
	}
	if pif.Bool("disallow_unplug") {
		p.fail(model.PIFDoesNotAllowUnplug(pif.Ref))
	}
	var all []*objects.Object
	for _, t := range by(p, "tunnel", "transport_PIF", pif.Ref) {
		all = append(all, p.falling(p.get("PIF", t.Text("access_PIF")))...)
	}
	return append(all, pif)
}

// vifOn returns a VIF of a VM on the PIF's host, attached to its network; nil if there is none.
func vifOn(r records.Reader, pif *objects.Object) *objects.Object {
	for vif := range objects.Table("VIF").By(r, "network", pif.Text("network")) {
		vm, ok := objects.Table("VM").Peek(r, vif.Text("VM"))
		if ok && vif.Bool("currently_attached") && vm.Text("resident_on") == pif.Text("host") {
			return vif
		}
	}
	return nil
}

// detach marks the PIFs as detached, and returns the bridges that go with it.
func (p *pool) detach(pifs []*objects.Object) []place {
	var places []place
	for _, pif := range pifs {
		t := tunnelOf(p, pif.Ref)
		network, ok := objects.Table("network").Peek(p, pif.Text("network"))
		if ok && (t != nil || vlanOf(p, pif.Ref) != nil) { // others are the host's own interfaces
			places = append(places, place{pif.Text("host"), network.Text("bridge")})
		}
		if t != nil {
			p.endInheritance(t)
		}
		p.edit(pif, model.Record{"currently_attached": false})
	}
	return places
}

// plug attaches a PIF and what carries it, once the host has made the bridges.
func (c *call) plug(ref string) error {
	p := c.look()
	pif := p.get("PIF", ref)
	p.alive(pif.Text("host"))
	orders := p.bridgesFor(p.rising(pif))
	if p.err != nil {
		return p.err
	}
	return c.fulfil(orders, func(p *pool) { p.attach(p.rising(p.get("PIF", ref))) })
}

// unplug detaches a PIF and the tunnels that it carries. An interface of the host's own stays as it
// is, up and configured: that it is detached says that the pool does not use it.
func (c *call) unplug(ref string) error {
	return c.clearing(func(p *pool) []place {
		pif := p.get("PIF", ref)
		p.alive(pif.Text("host"))
		return p.detach(p.falling(pif))
	})
}

// clearing commits what f writes, and waits until hosts have removed the bridges that it returns.
func (c *call) clearing(f func(p *pool) []place) error {
	var places []place
	err := c.change(func(p *pool) { places = f(p) })
	if err == nil {
		c.cleared(places)
	}
	return err
}
