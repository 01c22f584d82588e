package xapi

import (
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// pifRecordMessages returns the PIF's messages about records, and those replaced by VLAN's.
func pifRecordMessages() map[string]handler {
	return map[string]handler{
		"PIF.create_VLAN":  pifCreateVLAN,
		"PIF.destroy":      pifDestroy,
		"PIF.db_introduce": pifDBIntroduce,
		"PIF.db_forget":    pifForget,
	}
}

// pifCreateVLAN makes a VLAN on a host's device, and answers its untagged PIF.
func pifCreateVLAN(c *call) (any, error) {
	p := c.look()
	host, device := c.text("host"), c.text("device")
	p.needs("host", host)
	base := first(p, "PIF", "host_device", hostDevice(host, device))
	if base == nil {
		p.fail(model.InvalidValue("device", device))
	}
	if p.err != nil {
		return nil, p.err
	}
	_, untagged, err := c.vlanCreate(base.Ref, c.text("network"), c.number("VLAN"))
	return untagged, err
}

// pifDestroy removes a VLAN by its untagged PIF.
func pifDestroy(c *call) (any, error) {
	p := c.look()
	pif := p.get("PIF", c.text("self"))
	switch vlan := vlanOf(p, pif.Ref); {
	case p.err != nil:
		return nil, p.err
	case vlan != nil:
		return nil, c.vlanDestroy(vlan.Ref)
	case tunnelOf(p, pif.Ref) != nil:
		return nil, model.IsTunnelAccessPIF(pif.Ref)
	}
	return nil, model.PIFIsPhysical(pif.Ref)
}

// pifDBIntroduce makes the record of a PIF as given. The report of its host overrides it.
func pifDBIntroduce(c *call) (any, error) {
	var made string
	err := c.change(func(p *pool) {
		pif := c.givenPIF(p)
		metrics := newObject("PIF_metrics", model.Record{"last_updated": c.server.time()})
		pif.Fields["metrics"] = metrics.Ref
		p.uses(pif.Text("network"), pif.Text("host"))
		p.put(metrics, pif)
		made = pif.Ref
	})
	return made, err
}

// givenPIF returns the PIF that the arguments describe, but for far sides.
func (c *call) givenPIF(p *pool) *objects.Object {
	fields := model.Record{}
	for _, param := range c.Params {
		if f := c.Class.Field(param.Name); f.Far == nil {
			fields[param.Name] = c.args[param.Name]
		}
	}
	pif := newObject("PIF", fields)
	p.needs("host", pif.Text("host"))
	p.needs("network", pif.Text("network"))
	if isSlave(pif) {
		p.needs("Bond", pif.Text("bond_slave_of"))
	}
	switch {
	case !validMAC(pif.Text("MAC")):
		p.fail(model.MACInvalid(pif.Text("MAC")))
	case pif.Text("device") == "":
		p.fail(model.InvalidValue("device", ""))
	case pif.Int("VLAN") < -1 || pif.Int("VLAN") > maxTag:
		p.fail(model.VLANTagInvalid(pif.Int("VLAN")))
	}
	for _, other := range by(p, "PIF", "host", pif.Text("host")) {
		switch {
		case other.Text("network") == pif.Text("network"):
			p.fail(model.NetworkAlreadyConnected(pif.Text("host"), other.Ref))
		case deviceOf(other) == deviceOf(pif):
			p.fail(model.DuplicatePIFDeviceName(pif.Text("device")))
		}
	}
	return pif
}
