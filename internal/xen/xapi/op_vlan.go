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

// checkVLAN fails if a VLAN may not be made, with the errors in the order of spec 7.7.
func (p *pool) checkVLAN(tagged, network string, tag int64) (pif, net *objects.Object) {
	pif, net = p.get("PIF", tagged), p.get("network", network)
	host := pif.Text("host")
	p.alive(host)
	p.connectable(host, net)
	switch {
	case !pif.Bool("managed"):
		p.fail(model.PIFUnmanaged(pif.Ref))
	case isSlave(pif):
		p.fail(model.CannotAddVLANToBondSlave(pif.Ref))
	case pif.Int("VLAN") >= 0:
		p.fail(model.PIFIsVLAN(pif.Ref))
	case tunnelOf(p, pif.Ref) != nil:
		p.fail(model.IsTunnelAccessPIF(pif.Ref))
	case tag < 0 || tag > maxTag:
		p.fail(model.VLANTagInvalid(tag))
	}
	for vlan := range objects.Table("VLAN").By(p, "tagged_PIF", pif.Ref) {
		if vlan.Int("tag") == tag {
			p.fail(model.PIFVLANExists(pif.Text("device")))
		}
	}
	p.able(host, objects.CanVLAN, "its agent makes no VLANs: make one on "+pif.Text("device")+" on the host itself, the pool finds it")
	return pif, net
}

// vlanCreate makes a VLAN with its PIF, plugged: all of it or nothing.
func (c *call) vlanCreate(tagged, network string, tag int64) (vlan, untagged string, err error) {
	p := c.look()
	base, net := p.checkVLAN(tagged, network, tag)
	if p.err != nil {
		return "", "", p.err
	}
	var orders []*objects.Order
	if b, ok := objects.VLANBridge(p, net, base.Ref, int(tag)); ok {
		orders = append(orders, bridgeOrder(base.Text("host"), b))
	}
	err = c.fulfil(orders, func(p *pool) {
		base, _ := p.checkVLAN(tagged, network, tag)
		pif := newObject("PIF", model.Record{"device": base.Text("device"), "network": network, "host": base.Text("host"), "MAC": vlanMAC, "MTU": base.Int("MTU"),
			"VLAN": tag, "IPv6": []string{""}, "metrics": base.Text("metrics"), "primary_address_type": base.Text("primary_address_type")})
		made := newObject("VLAN", model.Record{"tagged_PIF": base.Ref, "untagged_PIF": pif.Ref, "tag": tag})
		vlan, untagged = made.Ref, pif.Ref
		p.uses(network, base.Ref, base.Text("host"))
		p.put(pif, made)
		p.attach(p.rising(pif))
	})
	return vlan, untagged, err
}

// vlanDestroy unplugs the VLAN's PIF and removes both. Tunnels on it must go first.
func (c *call) vlanDestroy(ref string) error {
	return c.clearing(func(p *pool) []place {
		vlan := p.get("VLAN", ref)
		pif := p.get("PIF", vlan.Text("untagged_PIF"))
		p.alive(pif.Text("host"))
		p.alone(pif.Ref)
		if first(p, "tunnel", "transport_PIF", pif.Ref) != nil {
			p.fail(model.PIFTunnelStillExists(pif.Ref))
		}
		if ownInterface(p, pif) {
			p.fail(model.OperationNotAllowed("VLAN " + vlan.UUID() + " is an interface of the host: take it away there, then destroy it here"))
		}
		places := p.detach(p.falling(pif))
		p.remove("VLAN", vlan.Ref)
		p.removePIF(pif)
		return places
	})
}

// ownInterface reports whether the PIF's interface is a real host's own, not the pool's.
func ownInterface(r records.Reader, pif *objects.Object) bool {
	report, ok := objects.HostReports.Peek(r, pif.Text("host"))
	return ok && !imagined(r, report.Host) && reported(report, deviceOf(pif)) != nil
}

// reported returns the interface of a report with that name, nil if it has none.
func reported(report *objects.HostReport, device string) *objects.Interface {
	for i := range report.Interfaces {
		if one := &report.Interfaces[i]; objects.DeviceKey(one.Device, one.VLAN) == device {
			return one
		}
	}
	return nil
}
