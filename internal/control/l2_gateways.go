package control

import (
	"cmp"
	"context"
	"errors"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// The operations on layer-2 gateways and their connections. They are for admins.
type (
	l2Gateways struct {
		*resource[neutron.L2Gateway, neutron.L2Gateway]
	}
	l2GatewayConnections struct {
		*resource[neutron.L2GatewayConnection, neutron.L2GatewayConnection]
	}
)

func newL2Gateways(s *Service) *resource[neutron.L2Gateway, neutron.L2Gateway] {
	t := schema.L2Gateways
	return asStored(s, neutron.L2Gateways, forAdmins(t, byProject(t)),
		func(g *neutron.L2Gateway) *neutron.Standard { return &g.Standard }, (*operation).createL2Gateway)
}

func newL2GatewayConnections(s *Service) *resource[neutron.L2GatewayConnection, neutron.L2GatewayConnection] {
	t := schema.L2GatewayConnections
	return asStored(s, neutron.L2GatewayConnections,
		forAdmins(t, by(t, "network", func(q *neutron.Query) []string { return q.NetworkIDs }), byProject(t)),
		func(c *neutron.L2GatewayConnection) *neutron.Standard { return &c.Standard }, (*operation).createL2GatewayConnection)
}

// L2Gateways returns the operations on layer-2 gateways.
func (s *Service) L2Gateways() Operations[*neutron.L2Gateway] {
	o := s.l2Gateways.untagged()
	o.Update, o.Delete = s.l2Gateways.update, s.l2Gateways.delete
	return o
}

// L2GatewayConnections returns the operations on the connections of networks to layer-2 gateways.
func (s *Service) L2GatewayConnections() Operations[*neutron.L2GatewayConnection] {
	o := s.l2GatewayConnections.untagged()
	o.Delete = s.l2GatewayConnections.delete
	return o
}

// createL2Gateway makes a gateway of one gateway device.
func (o *operation) createL2Gateway(_ context.Context, v neutron.Values) (*neutron.L2Gateway, error) {
	g := &neutron.L2Gateway{Standard: o.standard(v, 0)}
	g.Device, _ = v["devices"].(neutron.L2GatewayDevice)
	d, err := o.deviceOf(&g.Device)
	if err != nil {
		return nil, err
	}
	g.Device.ID, g.Device.DeviceID = translate.Derive("l2gateway.device", g.ID), d.ID
	if n := g.Device.SegmentationID; n != nil {
		if err := d.CheckSegment(*n); err != nil {
			return nil, err
		}
	}
	return g, schema.L2Gateways.Put(o.tx, g)
}

// deviceOf finds the gateway device that a request names: by its id or, as switches are, by name.
func (o *operation) deviceOf(x *neutron.L2GatewayDevice) (*neutron.GatewayDevice, error) {
	if x.DeviceName == "" {
		d, _, err := o.gatewayDevices.inTransaction(o, x.DeviceID)
		return d, err
	}
	d, err := o.deviceNamed(x.DeviceName)
	if err == nil && !d.Managed() {
		err = invalid("interfaces are ports of a switch, and gateway device %s has no management_ip: name the device by device_id, without interfaces", x.DeviceName)
	}
	return d, err
}

func (o *operation) deviceNamed(name string) (*neutron.GatewayDevice, error) {
	if d, err := schema.GatewayDevices.Get(o.tx, name); err == nil {
		return d, nil
	}
	var found *neutron.GatewayDevice
	for d := range schema.GatewayDevices.By(o.tx, "name", name) {
		if found != nil {
			return nil, conflict("L2GatewayDeviceAmbiguous", "Gateway devices %s and %s are both named %s: use an id as device_name.", found.ID, d.ID, name)
		}
		found = d
	}
	if found == nil {
		return nil, neutron.Errorf(neutron.NotFound, "L2GatewayDeviceNotFound", "L2 Gateway Device %s could not be found.", name)
	}
	return found, nil
}

// update changes the name of a gateway.
func (s l2Gateways) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.L2Gateway, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(*operation, *neutron.L2Gateway, *neutron.L2Gateway) error {
		if v.Has("devices") {
			return neutron.Errorf(neutron.Unsupported, "L2GatewayUpdateNotSupported", "The devices of L2 Gateway %s cannot be updated: create another gateway.", id)
		}
		return nil
	}, put(schema.L2Gateways))
}

// delete deletes a gateway that has no connection.
func (s l2Gateways) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.L2Gateway) error {
		if schema.L2GatewayConnections.CountBy(o.tx, "l2_gateway", id) > 0 {
			return conflict("L2GatewayInUse", "L2 Gateway '%s' still has active mappings with one or more neutron networks.", id)
		}
		return schema.L2Gateways.Delete(o.tx, id)
	})
}

// createL2GatewayConnection joins a network to a gateway.
func (o *operation) createL2GatewayConnection(_ context.Context, v neutron.Values) (*neutron.L2GatewayConnection, error) {
	x := &neutron.L2GatewayConnection{Standard: o.standard(v, 0), SegmentationID: v.Number("segmentation_id")}
	g, _, err := o.l2Gateways.inTransaction(o, v.Text("l2_gateway_id"))
	if err != nil {
		return nil, err
	}
	d, err := schema.GatewayDevices.Need(o.tx, g.Device.DeviceID)
	if err != nil {
		return nil, err
	}
	n, err := o.networkFor(v.Text("network_id"))
	if err != nil {
		return nil, err
	}
	x.L2GatewayID, x.DeviceID, x.NetworkID = g.ID, d.ID, n.ID
	if err := o.charge(x.ProjectID, quotaL2GatewayConnection, 1); err != nil {
		return nil, err
	}
	if x.Segment, err = segmentOfConnection(x, g, d, n); err != nil {
		return nil, err
	}
	if err := cmp.Or(o.checkTrunk(d, n), o.checkToJoin(n), o.checkConnected(x)); err != nil {
		return nil, err
	}
	return x, errors.Join(schema.L2GatewayConnections.Put(o.tx, x), o.putBundle(kindL2GatewayConnection, x.ID, translate.L2GatewayConnection(x, d)))
}

// segmentOfConnection returns the VLAN or VNI of a new connection. Where the gateway has ports of a
// switch, segmentation ids are VLANs there, and the VNI is the network's own.
func segmentOfConnection(x *neutron.L2GatewayConnection, g *neutron.L2Gateway, d *neutron.GatewayDevice, n *neutron.Network) (int, error) {
	ofGateway, ports := g.Device.SegmentationID, g.Device.Interfaces
	has := ofGateway != nil || len(ports) > 0 && len(ports[0].VLANs) > 0
	switch {
	case has && x.SegmentationID != nil:
		return 0, invalid("default segmentation_id should not be provided when segmentation_id is assigned during l2gateway creation")
	case !has && x.SegmentationID == nil:
		return 0, invalid("Segmentation id must be specified in create l2gateway connections")
	case len(ports) > 0:
		if n.NetworkType != typeVXLAN || n.SegmentationID == nil {
			return 0, invalid("network %s of type %s has no VNI: the ports of a switch join networks of type %s", n.ID, n.NetworkType, typeVXLAN)
		}
		if x.SegmentationID != nil {
			return *n.SegmentationID, neutron.CheckSwitchVLAN(*x.SegmentationID)
		}
		return *n.SegmentationID, nil
	case ofGateway != nil:
		return *ofGateway, nil
	}
	return *x.SegmentationID, d.CheckSegment(*x.SegmentationID)
}

// checkToJoin refuses to join a network whose machines a gateway would not reach, or that is the
// trunk of others.
func (o *operation) checkToJoin(n *neutron.Network) error {
	if n.External {
		return invalid("network %s is external: an L2 gateway joins tenants' networks", n.ID)
	}
	if err := checkBridge(n); err != nil {
		return err
	}
	for d := range schema.GatewayDevices.By(o.tx, "resource", n.ID) {
		if schema.L2GatewayConnections.CountBy(o.tx, "device", d.ID) > 0 {
			return conflict("NetworkInUseByGatewayDevice", "Network %s is the trunk of gateway device %s, and has networks connected already.", n.ID, d.ID)
		}
	}
	return nil
}

// checkTrunk refuses as a trunk the network itself, and one that is connected on its own.
func (o *operation) checkTrunk(d *neutron.GatewayDevice, n *neutron.Network) error {
	switch {
	case d.Type != neutron.GatewayNetworkVLAN:
		return nil
	case d.ResourceID == n.ID:
		return invalid("network %s is that of gateway device %s itself", n.ID, d.ID)
	case schema.L2GatewayConnections.CountBy(o.tx, "network", d.ResourceID) > 0:
		return conflict("NetworkInUseByL2Gateway", "Network %s of gateway device %s is connected to an L2 gateway itself.", d.ResourceID, d.ID)
	}
	return nil
}

// checkConnected refuses a second connection of a gateway, of a network, and of a segment of the
// gateway's device.
func (o *operation) checkConnected(x *neutron.L2GatewayConnection) error {
	if schema.L2GatewayConnections.CountBy(o.tx, "l2_gateway", x.L2GatewayID) > 0 {
		return conflict("L2GatewayConnectionExists", "L2 Gateway Connection related to specified L2 Gateway %s already exists", x.L2GatewayID)
	}
	for other := range schema.L2GatewayConnections.By(o.tx, "network", x.NetworkID) {
		return conflict("NetworkInUseByL2Gateway", "Network %s is connected to L2 Gateway %s already.", x.NetworkID, other.L2GatewayID)
	}
	for other := range schema.L2GatewayConnections.By(o.tx, "segment", schema.DeviceSegment(x.DeviceID, x.Segment)) {
		return conflict("SegmentationIdInUse", "Segmentation id %d of gateway device %s is that of network %s already.", x.Segment, x.DeviceID, other.NetworkID)
	}
	return nil
}

func (s l2GatewayConnections) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.L2GatewayConnection) error {
		return errors.Join(schema.L2GatewayConnections.Delete(o.tx, id), o.dropBundle(kindL2GatewayConnection, id))
	})
}

// checkNotJoined refuses to delete a network, or to make it external, while a gateway joins it.
func (o *operation) checkNotJoined(networkID string) error {
	for x := range schema.L2GatewayConnections.By(o.tx, "network", networkID) {
		return conflict("NetworkInUseByL2Gateway", "Network %s is connected to L2 Gateway %s by connection %s.", networkID, x.L2GatewayID, x.ID)
	}
	return nil
}

// checkRemoteSite refuses a port of a machine outside on a network that no gateway joins.
func (e portEdit) checkRemoteSite() error {
	if e.p.DeviceOwner != ownerRemoteSite || schema.L2GatewayConnections.CountBy(e.tx, "network", e.p.NetworkID) == 1 {
		return nil
	}
	return conflict("NetworkNotConnected", "Network %s is connected to no L2 gateway, behind which a port of %s could be.", e.p.NetworkID, ownerRemoteSite)
}
