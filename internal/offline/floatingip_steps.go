package offline

import (
	"maps"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// A floating IP of a file names its router, which the server finds by itself, and the port that
// holds its address may have been made before, as Neutron's core plugin makes it.

// floatingIPValues adds to a request what only a file says about a floating IP.
func (w *world) floatingIPValues(v neutron.Values, data object) error {
	if router := data.get("router_id"); !router.null() && v.Text("port_id") != "" {
		id, err := idOf(router)
		if err != nil {
			return err
		}
		v["router_id"] = id
	}
	return nil
}

// forwardedFloatingIP is the field of a port forwarding that names its floating IP, which the API
// has in the path.
const forwardedFloatingIP = "floatingip_id"

// forwardingOf returns the floating IP of a new port forwarding, and takes it out of the request.
func forwardingOf(k *kind, data object, body map[string]any) (string, error) {
	if k.Resource != neutron.PortForwardings {
		return "", nil
	}
	delete(body, forwardedFloatingIP)
	return idOf(data.get(forwardedFloatingIP))
}

// addressHolder returns the id of the port that holds the address of a new floating IP: one that
// the file has made, or else one that does not exist yet.
func (w *world) addressHolder(v neutron.Values) (string, error) {
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return "", err
	}
	for p := range schema.Ports.By(snap, "network", v.Text("floating_network_id")) {
		if p.DeviceOwner != "network:floatingip" || schema.FloatingIPs.CountBy(snap, "floating_port", p.ID) > 0 {
			continue
		}
		for _, a := range p.FixedIPs {
			if p.DeviceID == v.Text("id") || any(a.IPAddress) == v["floating_ip_address"] {
				return p.ID, nil
			}
		}
	}
	return translate.Derive("file.floatingip-port", v.Text("id")), nil
}

// releaseServed disassociates the floating IPs that a router serves by a port, which is going
// (midonet-translations §10).
func (w *world) releaseServed(port string) error {
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return err
	}
	for f := range schema.FloatingIPs.By(snap, "served_by", port) {
		if err := w.kinds[neutron.FloatingIPs.Name()].update(f.ID, neutron.Values{"port_id": nil}); err != nil {
			return err
		}
	}
	return nil
}

// associated completes an update of a floating IP: what it does not say about the association is as
// it was, unless another port is named.
func associated(given, stored map[string]any) map[string]any {
	body := maps.Clone(given)
	if body == nil {
		body = map[string]any{}
	}
	_, port := body["port_id"]
	_, fixed := body["fixed_ip_address"]
	_, router := body["router_id"]
	if !port && (fixed || router) {
		body["port_id"] = stored["port_id"]
		port = true
	}
	if port && body["port_id"] == stored["port_id"] {
		for _, name := range []string{"fixed_ip_address", "router_id"} {
			if body[name] == nil {
				body[name] = stored[name]
			}
		}
	}
	return body
}
