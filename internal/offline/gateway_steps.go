package offline

import (
	"heddle/internal/neutron"
)

// Fields by which a file names what the API has in the path, or in another request: the device of a
// remote MAC entry, and the whole gateway of a connection, as Neutron's plugin gives it to a driver
// (midonet-translations §19).
const (
	remoteMACDevice = "device_id"
	embeddedGateway = "l2_gateway"
)

// createRemoteMAC makes a remote MAC entry of the device that it names.
func (w *world) createRemoteMAC(k *kind, id string, data object) error {
	device, err := idOf(data.get(remoteMACDevice))
	if err != nil {
		return err
	}
	v, err := w.newValues(k, id, withoutFields(data, remoteMACDevice))
	if err != nil {
		return err
	}
	v[remoteMACDevice] = device
	return k.create(v)
}

// createConnection makes a connection, and its gateway with it if that is not there.
func (w *world) createConnection(k *kind, id string, data object) error {
	if !data.has(embeddedGateway) {
		v, err := w.newValues(k, id, data)
		if err != nil {
			return err
		}
		return k.create(v)
	}
	gateway, made, hasSegment, err := w.gatewayOf(data)
	if err != nil {
		return err
	}
	fields := withoutFields(data, embeddedGateway).fields
	fields["l2_gateway_id"] = gateway
	if hasSegment { // the plugin repeats it
		delete(fields, "segmentation_id")
	}
	v, err := w.newValues(k, id, object{data.node, fields})
	if err == nil {
		err = k.create(v)
	}
	switch {
	case !made:
	case err != nil:
		_ = w.kinds[neutron.L2Gateways.Name()].remove(gateway) // as if it had not been made
	default:
		w.ownGateways[id] = gateway
	}
	return err
}

// gatewayOf returns the gateway that a connection has inside, made unless it is there, and whether
// that has the segmentation id.
func (w *world) gatewayOf(data object) (id string, made, hasSegment bool, err error) {
	o, err := data.get(embeddedGateway).anyObject()
	if err != nil {
		return "", false, false, err
	}
	if id, err = idOf(o.get("id")); err != nil {
		return "", false, false, err
	}
	devices, err := o.get("devices").list()
	if err != nil {
		return "", false, false, err
	}
	for _, n := range devices {
		if d, err := n.anyObject(); err == nil {
			hasSegment = hasSegment || d.has("segmentation_id") && !d.get("segmentation_id").null()
		}
	}
	k := w.kinds[neutron.L2Gateways.Name()]
	if _, err := k.show(id); err == nil {
		return id, false, hasSegment, nil
	}
	v, err := w.newValues(k, id, o)
	if err != nil {
		return "", false, false, err
	}
	return id, true, hasSegment, k.create(v)
}

// removeConnection deletes a connection, and the gateway that was made with it.
func (w *world) removeConnection(k *kind, id string) error {
	if err := k.remove(id); err != nil {
		return err
	}
	gateway, made := w.ownGateways[id]
	if !made {
		return nil
	}
	delete(w.ownGateways, id)
	return ignoreMissing(w.kinds[neutron.L2Gateways.Name()].remove(gateway))
}
