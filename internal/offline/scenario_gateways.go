package offline

import "heddle/internal/control/translate"

// gateways are the layer-2 gateways of a scenario.
type gateways struct {
	devices, l2Gateways, connections *section
	remote                           map[string]bool // names of ports of machines outside
}

func newGateways(s *scenario, w *world) gateways {
	g := gateways{
		remote: map[string]bool{},
		devices: &section{kind: w.kinds["gateway_device"], what: "gateway device", ids: map[string]string{},
			fields: asTheyAre("type", "tunnel_ips")},
		l2Gateways: &section{kind: w.kinds["l2_gateway"], what: "L2 gateway", ids: map[string]string{}, fields: asTheyAre("segmentation_id")},
		connections: &section{kind: w.kinds["l2_gateway_connection"], what: "L2 gateway connection", ids: map[string]string{},
			fields: asTheyAre("segmentation_id")},
	}
	g.devices.fields["resource"] = field{"resource_id", s.routerOrNetwork}
	g.devices.fields["remote_macs"] = field{attribute: "remote_macs"}
	g.l2Gateways.fields["device"] = field{"devices", g.devices.id}
	g.connections.fields["l2_gateway"] = field{"l2_gateway_id", g.l2Gateways.id}
	g.connections.fields["network"] = field{"network_id", s.networks.id}
	return g
}

// routerOrNetwork returns the id of the router or else the network that a name stands for.
func (s *scenario) routerOrNetwork(n node) (any, error) {
	if id, err := s.routing.routers.find(n); err == nil {
		return id, nil
	}
	return s.networks.find(n)
}

// addGatewayDevice makes a device with its remote MAC entries.
func (s *scenario) addGatewayDevice(n node) error {
	o, err := n.anyObject()
	if err != nil {
		return err
	}
	return s.addWith(s.gateways.devices, n, nil, func(id string, data object) error {
		if err := s.world.create(s.gateways.devices.kind, id, withoutFields(data, "remote_macs")); err != nil {
			return err
		}
		entries, err := o.get("remote_macs").list()
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := s.addRemoteMAC(e, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *scenario) addRemoteMAC(n node, device string) error {
	o, err := n.object("mac", "vtep", "vni")
	if err != nil {
		return err
	}
	mac, err := o.get("mac").text()
	if err != nil {
		return err
	}
	body := map[string]any{"mac_address": o.get("mac").value, "vtep_address": o.get("vtep").value, "segmentation_id": o.get("vni").value, remoteMACDevice: device}
	k := s.world.kinds["remote_mac_entry"]
	return s.at(n, s.world.create(k, s.derive("remote MAC", device, mac), object{n, body}))
}

// addL2Gateway makes a gateway of one device.
func (s *scenario) addL2Gateway(n node) error {
	return s.add(s.gateways.l2Gateways, n, func(_ string, body map[string]any) error {
		device := map[string]any{"device_id": body["devices"]}
		if segment, given := body["segmentation_id"]; given {
			device["segmentation_id"] = segment
		}
		delete(body, "segmentation_id")
		body["devices"] = []any{device}
		return nil
	})
}

// addConnection makes a connection, which needs no name: it has its gateway's.
func (s *scenario) addConnection(n node) error {
	o, err := n.anyObject()
	if err != nil {
		return err
	}
	if !o.has("name") {
		fields := withoutFields(o).fields
		fields["name"] = o.get("l2_gateway").value
		n = node{n.place, fields}
	}
	return s.add(s.gateways.connections, n, nil)
}

// isRemote reports whether a port is a machine's outside.
func isRemote(n node) bool {
	o, err := n.anyObject()
	if err != nil {
		return false
	}
	for _, name := range []string{"owner", "device_owner"} {
		if owner, err := o.get(name).text(); err == nil && translate.ClassOf(owner) == translate.Remote {
			return true
		}
	}
	return false
}

// addNearPort makes a port that is no machine's outside.
func (s *scenario) addNearPort(n node) error {
	if isRemote(n) {
		return nil
	}
	return s.addPort(n)
}

// addRemotePort makes the port of a machine outside, which is bound to no host.
func (s *scenario) addRemotePort(n node) error {
	if !isRemote(n) {
		return nil
	}
	return s.add(s.ports, n, func(name string, _ map[string]any) error {
		s.remote[name] = true
		return nil
	})
}
