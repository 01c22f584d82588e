package xapi

import (
	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

func vlanMessages() map[string]handler {
	return map[string]handler{
		"VLAN.create": func(c *call) (any, error) {
			vlan, _, err := c.vlanCreate(c.text("tagged_PIF"), c.text("network"), c.number("tag"))
			return vlan, err
		},
		"VLAN.destroy": func(c *call) (any, error) { return nil, c.vlanDestroy(c.text("self")) },
	}
}

const (
	maxTag  = 4094
	vlanMAC = "fe:ff:ff:ff:ff:ff" // of every VLAN PIF
)

// checkVLAN says whether a VLAN may be made, with the errors in the order of spec 7.7.
func checkVLAN(r records.Reader, tagged, network string, tag int64) (pif, net *objects.Object, err error) {
	if pif, err = object(r, "PIF", tagged); err != nil {
		return nil, nil, err
	}
	if net, err = object(r, "network", network); err != nil {
		return nil, nil, err
	}
	host := pif.Text("host")
	if _, err := alive(r, host); err != nil {
		return nil, nil, err
	}
	if err := connectable(r, host, net); err != nil {
		return nil, nil, err
	}
	switch {
	case !pif.Bool("managed"):
		return nil, nil, model.PIFUnmanaged(pif.Ref)
	case isSlave(pif):
		return nil, nil, model.CannotAddVLANToBondSlave(pif.Ref)
	case pif.Int("VLAN") >= 0:
		return nil, nil, model.PIFIsVLAN(pif.Ref)
	case tunnelOf(r, pif.Ref) != nil:
		return nil, nil, model.IsTunnelAccessPIF(pif.Ref)
	case tag < 0 || tag > maxTag:
		return nil, nil, model.VLANTagInvalid(tag)
	}
	for vlan := range objects.Table("VLAN").By(r, "tagged_PIF", pif.Ref) {
		if vlan.Int("tag") == tag {
			return nil, nil, model.PIFVLANExists(pif.Text("device"))
		}
	}
	return pif, net, able(r, host, objects.CanVLAN, "its agent makes no VLANs: make one on "+pif.Text("device")+" on the host itself, the pool finds it")
}

// vlanCreate makes a VLAN with its PIF, plugged: all of it or nothing.
func (c *call) vlanCreate(tagged, network string, tag int64) (vlan, untagged string, err error) {
	r, err := c.view()
	if err != nil {
		return "", "", err
	}
	base, net, err := checkVLAN(r, tagged, network, tag)
	if err != nil {
		return "", "", err
	}
	var orders []*objects.Order
	if b, ok := objects.VLANBridge(r, net, base.Ref, int(tag)); ok {
		orders = append(orders, bridgeOrder(base.Text("host"), b))
	}
	err = c.fulfil(orders, func(tx *records.Tx) error {
		base, _, err := checkVLAN(tx, tagged, network, tag)
		if err != nil {
			return err
		}
		pif := newObject("PIF", model.Record{"device": base.Text("device"), "network": network, "host": base.Text("host"), "MAC": vlanMAC, "MTU": base.Int("MTU"),
			"VLAN": tag, "IPv6": []string{""}, "metrics": base.Text("metrics"), "primary_address_type": base.Text("primary_address_type")})
		made := newObject("VLAN", model.Record{"tagged_PIF": base.Ref, "untagged_PIF": pif.Ref, "tag": tag})
		vlan, untagged = made.Ref, pif.Ref
		for _, used := range []string{network, base.Ref, base.Text("host")} {
			uses(tx, used)
		}
		if err := put(tx, pif); err != nil {
			return err
		}
		if err := put(tx, made); err != nil {
			return err
		}
		pifs, err := rising(tx, pif)
		if err != nil {
			return err
		}
		return attach(tx, pifs)
	})
	return vlan, untagged, err
}

// vlanDestroy unplugs the VLAN's PIF and takes both away. Tunnels on it must go first.
func (c *call) vlanDestroy(ref string) error {
	var places []place
	err := c.update(func(tx *records.Tx) error {
		vlan, err := object(tx, "VLAN", ref)
		if err != nil {
			return err
		}
		pif, err := object(tx, "PIF", vlan.Text("untagged_PIF"))
		if err != nil {
			return err
		}
		if _, err := alive(tx, pif.Text("host")); err != nil {
			return err
		}
		alone(tx, pif.Ref)
		if first(tx, "tunnel", "transport_PIF", pif.Ref) != nil {
			return model.PIFTunnelStillExists(pif.Ref)
		}
		if ownInterface(tx, pif) {
			return model.OperationNotAllowed("VLAN " + vlan.UUID() + " is an interface of the host: take it away there, then destroy it here")
		}
		pifs, err := falling(tx, pif)
		if err != nil {
			return err
		}
		if places, err = detach(tx, pifs); err != nil {
			return err
		}
		return removeVLAN(tx, vlan, pif)
	})
	if err == nil {
		c.cleared(places)
	}
	return err
}

func removeVLAN(tx *records.Tx, vlan, pif *objects.Object) error {
	if err := remove(tx, "VLAN", vlan.Ref); err != nil {
		return err
	}
	return removePIF(tx, pif)
}

// ownInterface says that a host that is not imagined reports the PIF's interface: what it is is not the pool's to say.
func ownInterface(r records.Reader, pif *objects.Object) bool {
	report, ok := objects.HostReports.Peek(r, pif.Text("host"))
	return ok && !imagined(r, report.Host) && reported(report, deviceOf(pif)) != nil
}

// reported is the interface of a report with that name; nil: it has none.
func reported(report *objects.HostReport, device string) *objects.Interface {
	for i := range report.Interfaces {
		if one := &report.Interfaces[i]; objects.DeviceKey(one.Device, one.VLAN) == device {
			return one
		}
	}
	return nil
}
