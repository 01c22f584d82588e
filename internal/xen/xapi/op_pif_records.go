package xapi

import (
	"time"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// pifRecordMessages are the PIF's messages that are about records alone, and those that VLAN's own have replaced.
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
	r, err := c.view()
	if err != nil {
		return nil, err
	}
	host, device := c.text("host"), c.text("device")
	if _, err := object(r, "host", host); err != nil {
		return nil, err
	}
	base := first(r, "PIF", "host_device", hostDevice(host, device))
	if base == nil {
		return nil, model.InvalidValue("device", device)
	}
	_, untagged, err := c.vlanCreate(base.Ref, c.text("network"), c.number("VLAN"))
	return untagged, err
}

// pifDestroy takes a VLAN away by its untagged PIF.
func pifDestroy(c *call) (any, error) {
	r, err := c.view()
	if err != nil {
		return nil, err
	}
	pif, err := object(r, "PIF", c.text("self"))
	if err != nil {
		return nil, err
	}
	switch vlan := vlanOf(r, pif.Ref); {
	case vlan != nil:
		return nil, c.vlanDestroy(vlan.Ref)
	case tunnelOf(r, pif.Ref) != nil:
		return nil, model.IsTunnelAccessPIF(pif.Ref)
	}
	return nil, model.PIFIsPhysical(pif.Ref)
}

// pifDBIntroduce makes the record of a PIF as it is given. Of a host that reports, what the report says counts.
func pifDBIntroduce(c *call) (any, error) {
	var made string
	err := c.update(func(tx *records.Tx) error {
		pif, err := c.givenPIF(tx)
		if err != nil {
			return err
		}
		metrics := newObject("PIF_metrics", model.Record{"last_updated": c.server.opts.Now().UTC().Truncate(time.Second)})
		pif.Fields["metrics"] = metrics.Ref
		for _, used := range []string{pif.Text("network"), pif.Text("host")} {
			uses(tx, used)
		}
		if err := put(tx, metrics); err != nil {
			return err
		}
		made = pif.Ref
		return put(tx, pif)
	})
	return made, err
}

// givenPIF is the PIF that the arguments describe. Those that stand for other objects' fields are passed over.
func (c *call) givenPIF(r records.Reader) (*objects.Object, error) {
	fields := model.Record{}
	for _, p := range c.Params {
		if f := c.Class.Field(p.Name); f.Far == nil {
			fields[p.Name] = c.args[p.Name]
		}
	}
	pif := newObject("PIF", fields)
	for field, class := range map[string]string{"host": "host", "network": "network", "bond_slave_of": "Bond"} {
		if ref := pif.Text(field); field != "bond_slave_of" || !null(ref) {
			if _, err := object(r, class, ref); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case !validMAC(pif.Text("MAC")):
		return nil, model.MACInvalid(pif.Text("MAC"))
	case pif.Text("device") == "":
		return nil, model.InvalidValue("device", "")
	case pif.Int("VLAN") < -1 || pif.Int("VLAN") > maxTag:
		return nil, model.VLANTagInvalid(pif.Int("VLAN"))
	}
	for _, other := range by(r, "PIF", "host", pif.Text("host")) {
		switch {
		case other.Text("network") == pif.Text("network"):
			return nil, model.NetworkAlreadyConnected(pif.Text("host"), other.Ref)
		case deviceOf(other) == deviceOf(pif):
			return nil, model.DuplicatePIFDeviceName(pif.Text("device"))
		}
	}
	return pif, nil
}
