package xapi

import (
	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// rising are the PIFs that plugging this one attaches, what carries it first: those that are attached already are not
// among them (spec 7.3).
func rising(r records.Reader, pif *objects.Object) ([]*objects.Object, error) {
	switch {
	case !pif.Bool("managed"):
		return nil, model.PIFUnmanaged(pif.Ref)
	case isSlave(pif):
		return nil, model.CannotPlugBondSlave(pif.Ref)
	case pif.Bool("currently_attached"):
		return nil, nil
	}
	base := ""
	if t := tunnelOf(r, pif.Ref); t != nil {
		base = t.Text("transport_PIF")
	} else if v := vlanOf(r, pif.Ref); v != nil {
		base = v.Text("tagged_PIF")
	}
	if base == "" {
		return []*objects.Object{pif}, nil
	}
	under, err := object(r, "PIF", base)
	if err != nil {
		return nil, err
	}
	if tunnelOf(r, pif.Ref) != nil && !configured(under) {
		return nil, model.TransportPIFNotConfigured(under.Ref)
	}
	below, err := rising(r, under)
	return append(below, pif), err
}

// bridgesFor are the orders for the bridges that the PIFs need once they are attached.
func bridgesFor(r records.Reader, pifs []*objects.Object) ([]*objects.Order, error) {
	var orders []*objects.Order
	for _, pif := range pifs {
		network, err := object(r, "network", pif.Text("network"))
		if err != nil {
			return nil, err
		}
		if tunnelOf(r, pif.Ref) != nil {
			orders = append(orders, bridgeOrder(pif.Text("host"), objects.BridgeFor(r, network, pif)))
		} else if v := vlanOf(r, pif.Ref); v != nil {
			if b, ok := objects.VLANBridge(r, network, v.Text("tagged_PIF"), int(v.Int("tag"))); ok {
				orders = append(orders, bridgeOrder(pif.Text("host"), b))
			}
		}
	}
	return orders, nil
}

// attach marks the PIFs as attached. Those of tunnels get their network's MTU with it, and a tunnel that was waiting to
// be plugged waits no more.
func attach(tx *records.Tx, pifs []*objects.Object) error {
	for _, pif := range pifs {
		changed := model.Record{"currently_attached": true}
		if t := tunnelOf(tx, pif.Ref); t != nil {
			network, err := object(tx, "network", pif.Text("network"))
			if err != nil {
				return err
			}
			changed["MTU"] = network.Int("MTU")
			if err := decided(tx, t); err != nil {
				return err
			}
		}
		uses(tx, pif.Text("network"))
		if err := put(tx, edited(pif, changed)); err != nil {
			return err
		}
	}
	return nil
}

// decided says that somebody has plugged or unplugged the tunnel's access PIF: a tunnel that was made unplugged at a join
// is then no longer plugged by the pool itself.
func decided(tx *records.Tx, t *objects.Object) error {
	if t.Map("other_config")[inheritedKey] == "" {
		return nil
	}
	return put(tx, edited(t, model.Record{"other_config": without(t.Map("other_config"), inheritedKey)}))
}

// falling are the PIFs that unplugging this one detaches: tunnels that it carries, then itself (spec 7.4). It is empty for
// one that is detached. In a transaction the commit needs nobody to begin using them.
func falling(r records.Reader, pif *objects.Object) ([]*objects.Object, error) {
	pool, err := thePool(r)
	if err != nil {
		return nil, err
	}
	attached := pif.Bool("currently_attached")
	switch {
	case !pif.Bool("managed"):
		return nil, model.PIFUnmanaged(pif.Ref)
	case attached && pool.Bool("ha_enabled"):
		return nil, model.HAIsEnabled()
	case pif.Bool("management"):
		return nil, model.PIFIsManagementInterface(pif.Ref)
	case !attached:
		return nil, nil
	}
	if tx, ok := r.(*records.Tx); ok {
		alone(tx, pif.Ref)
		alone(tx, pif.Text("network"))
	}
	if vif := vifOn(r, pif); vif != nil {
		return nil, model.VIFInUse(pif.Text("network"), vif.Ref)
	}
	if pif.Bool("disallow_unplug") {
		return nil, model.PIFDoesNotAllowUnplug(pif.Ref)
	}
	var all []*objects.Object
	for _, t := range by(r, "tunnel", "transport_PIF", pif.Ref) {
		access, err := object(r, "PIF", t.Text("access_PIF"))
		if err != nil {
			return nil, err
		}
		above, err := falling(r, access)
		if err != nil {
			return nil, err
		}
		all = append(all, above...)
	}
	return append(all, pif), nil
}

// vifOn is a VIF of a VM on the PIF's host, attached to its network; nil: there is none.
func vifOn(r records.Reader, pif *objects.Object) *objects.Object {
	for vif := range objects.Table("VIF").By(r, "network", pif.Text("network")) {
		vm, ok := objects.Table("VM").Peek(r, vif.Text("VM"))
		if ok && vif.Bool("currently_attached") && vm.Text("resident_on") == pif.Text("host") {
			return vif
		}
	}
	return nil
}

// detach marks the PIFs as detached, and says which bridges go with it.
func detach(tx *records.Tx, pifs []*objects.Object) ([]place, error) {
	var places []place
	for _, pif := range pifs {
		if p, ok := ownBridge(tx, pif); ok {
			places = append(places, p)
		}
		if t := tunnelOf(tx, pif.Ref); t != nil {
			if err := decided(tx, t); err != nil {
				return nil, err
			}
		}
		if err := put(tx, edited(pif, model.Record{"currently_attached": false})); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// ownBridge is the bridge that the host has for this PIF alone; false: the PIF is one of the host's own interfaces.
func ownBridge(r records.Reader, pif *objects.Object) (place, bool) {
	network, ok := objects.Table("network").Peek(r, pif.Text("network"))
	if !ok || tunnelOf(r, pif.Ref) == nil && vlanOf(r, pif.Ref) == nil {
		return place{}, false
	}
	return place{pif.Text("host"), network.Text("bridge")}, true
}

// plug attaches a PIF and what carries it, once the host has made the bridges.
func (c *call) plug(ref string) error {
	r, err := c.view()
	if err != nil {
		return err
	}
	pif, err := object(r, "PIF", ref)
	if err != nil {
		return err
	}
	if _, err := alive(r, pif.Text("host")); err != nil {
		return err
	}
	pifs, err := rising(r, pif)
	if err != nil {
		return err
	}
	orders, err := bridgesFor(r, pifs)
	if err != nil {
		return err
	}
	return c.fulfil(orders, func(tx *records.Tx) error {
		pif, err := object(tx, "PIF", ref)
		if err != nil {
			return err
		}
		pifs, err := rising(tx, pif)
		if err != nil {
			return err
		}
		return attach(tx, pifs)
	})
}

// unplug detaches a PIF and the tunnels that it carries. An interface of the host's own stays as it is, up and configured:
// that it is detached says that the pool does not use it.
func (c *call) unplug(ref string) error {
	var places []place
	err := c.update(func(tx *records.Tx) error {
		pif, err := object(tx, "PIF", ref)
		if err != nil {
			return err
		}
		if _, err := alive(tx, pif.Text("host")); err != nil {
			return err
		}
		pifs, err := falling(tx, pif)
		if err != nil {
			return err
		}
		places, err = detach(tx, pifs)
		return err
	})
	if err == nil {
		c.cleared(places)
	}
	return err
}
