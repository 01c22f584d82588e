package control

import (
	"context"
	"errors"
	"iter"
	"net/netip"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

// gatewayDevices implements the operations on gateway devices. They are for admins.
type gatewayDevices struct {
	*resource[neutron.GatewayDevice, neutron.GatewayDeviceView]
}

func newGatewayDevices(s *Service) *resource[neutron.GatewayDevice, neutron.GatewayDeviceView] {
	t := schema.GatewayDevices
	return &resource[neutron.GatewayDevice, neutron.GatewayDeviceView]{
		service: s, name: neutron.GatewayDevices, make: (*operation).createGatewayDevice,
		finder:     forAdmins(t, byName(t), byProject(t)),
		standard:   func(d *neutron.GatewayDevice) *neutron.Standard { return &d.Standard },
		attributes: func(v *neutron.GatewayDeviceView) *neutron.Standard { return &v.Standard },
		answer: func(r records.Reader, d *neutron.GatewayDevice, q neutron.Query) *neutron.GatewayDeviceView {
			v := &neutron.GatewayDeviceView{GatewayDevice: d}
			if q.WithoutComputed {
				return v
			}
			for e := range schema.RemoteMACEntries.By(r, "device", d.ID) {
				v.Entries = append(v.Entries, e)
			}
			return v
		},
	}
}

// GatewayDevices returns the operations on gateway devices.
func (s *Service) GatewayDevices() Operations[*neutron.GatewayDeviceView] {
	o := s.gatewayDevices.untagged()
	o.Update, o.Delete = s.gatewayDevices.update, s.gatewayDevices.delete
	return o
}

// createGatewayDevice makes a gateway device of a router or a network that no other has.
func (o *operation) createGatewayDevice(_ context.Context, v neutron.Values) (*neutron.GatewayDevice, error) {
	d := &neutron.GatewayDevice{Standard: o.standard(v, 0), Type: v.Text("type"), ResourceID: v.Text("resource_id"),
		TunnelIPs: list[netip.Addr](v, "tunnel_ips")}
	d.ManagementIP, _ = v["management_ip"].(netip.Addr)
	d.ManagementPort = number(v, "management_port")
	if d.ManagementIP.IsValid() {
		d.ManagementProtocol = v.Text("management_protocol")
	}
	for _, check := range []func(*neutron.GatewayDevice) error{checkDeviceType, o.checkResource, o.checkTunnelIPs, o.checkManagement} {
		if err := check(d); err != nil {
			return nil, err
		}
	}
	return d, o.putGatewayDevice(d)
}

func (o *operation) putGatewayDevice(d *neutron.GatewayDevice) error {
	return errors.Join(schema.GatewayDevices.Put(o.tx, d), o.putBundle(kindGatewayDevice, d.ID, translate.GatewayDevice(d)))
}

func checkDeviceType(d *neutron.GatewayDevice) error {
	switch {
	case d.Type == neutron.GatewayHardwareVTEP:
		return invalid("gateway devices of type %s are not supported: type is %s or %s, and a switch is named by management_ip and management_port of a %[2]s",
			d.Type, neutron.GatewayRouterVTEP, neutron.GatewayNetworkVLAN)
	case d.ResourceID == "":
		return neutron.Errorf(neutron.Invalid, "ResourceIdRequired", "Gateway device %s must be specified with resource_id", d.Type)
	}
	return nil
}

// checkResource finds what a new device is: a router, or a network with a bridge of our own.
func (o *operation) checkResource(d *neutron.GatewayDevice) error {
	missing := neutron.Errorf(neutron.NotFound, "ResourceNotFound", "specified resource %s does not exist", d.ResourceID)
	kind := neutron.Routers.Name()
	if d.Type == neutron.GatewayNetworkVLAN {
		kind = neutron.Networks.Name()
		n, err := o.networkFor(d.ResourceID)
		if err != nil {
			return missing
		}
		if err := checkBridge(n); err != nil {
			return err
		}
	} else if _, _, err := o.routers.inTransaction(o, d.ResourceID); err != nil {
		return missing
	}
	return o.checkNoDevice(kind, d.ResourceID)
}

// checkBridge refuses a network that has no bridge, or whose bridge is a physical network's.
func checkBridge(n *neutron.Network) error {
	switch {
	case translate.Uplink(n), n.Routed():
		return invalid("network %s of type %s has no layer 2 that a gateway could join", n.ID, n.NetworkType)
	case n.PhysicalNetwork != "":
		return invalid("network %s is on physical network %s, where machines outside are reached without a gateway", n.ID, n.PhysicalNetwork)
	}
	return nil
}

// checkNoDevice refuses what would take a router or a network from the gateway device that has it.
func (o *operation) checkNoDevice(kind, id string) error {
	if schema.GatewayDevices.CountBy(o.tx, "resource", id) == 0 {
		return nil
	}
	return conflict("DeviceInUseByGatewayDevice", "device %s (%s) is in use by gateway device", id, kind)
}

func (o *operation) checkTunnelIPs(d *neutron.GatewayDevice) error {
	if err := d.CheckTunnelIPs(); err != nil {
		return err
	}
	for _, ip := range d.TunnelIPs {
		for other := range schema.GatewayDevices.By(o.tx, "tunnel_ip", ip.String()) {
			if other.ID != d.ID {
				return conflict("TunnelIPInUse", "Tunnel ip %s is in use by gateway device %s.", ip, other.ID)
			}
		}
	}
	return nil
}

// checkManagement refuses half of a switch's address, and that of another device's switch.
func (o *operation) checkManagement(d *neutron.GatewayDevice) error {
	switch {
	case !d.ManagementIP.IsValid() && d.ManagementPort == 0:
		return nil
	case d.Type != neutron.GatewayRouterVTEP:
		return invalid("management_ip and management_port are for gateway devices of type %s", neutron.GatewayRouterVTEP)
	case !d.ManagementIP.IsValid() || d.ManagementPort == 0:
		return invalid("management_ip and management_port go together: both or neither")
	}
	for other := range schema.GatewayDevices.By(o.tx, "management_ip", d.ManagementIP.String()) {
		return conflict("ManagementIPInUse", "Management ip %s is in use by gateway device %s.", d.ManagementIP, other.ID)
	}
	return nil
}

// update changes the name and the tunnel address of a device, which its connections' packets come
// from then.
func (s gatewayDevices) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.GatewayDeviceView, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(o *operation, d, _ *neutron.GatewayDevice) error {
		if !v.Has("tunnel_ips") {
			return nil
		}
		d.TunnelIPs = list[netip.Addr](v, "tunnel_ips")
		return o.checkTunnelIPs(d)
	}, func(o *operation, d *neutron.GatewayDevice) error {
		errs := []error{o.putGatewayDevice(d)}
		for x := range schema.L2GatewayConnections.By(o.tx, "device", d.ID) {
			errs = append(errs, o.putBundle(kindL2GatewayConnection, x.ID, translate.L2GatewayConnection(x, d)))
		}
		return errors.Join(errs...)
	})
}

// delete deletes a device with its remote MAC entries, unless a layer-2 gateway has it.
func (s gatewayDevices) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, d *neutron.GatewayDevice) error {
		if schema.L2Gateways.CountBy(o.tx, "device", id) > 0 {
			return conflict("GatewayDeviceInUse", "Gateway device %s is in use by l2 gateway", id)
		}
		errs := []error{o.dropBundle(kindGatewayDevice, id)}
		for e := range schema.RemoteMACEntries.By(o.tx, "device", id) {
			errs = append(errs, o.dropBundle(kindRemoteMACEntry, e.ID))
		}
		return errors.Join(append(errs, schema.GatewayDevices.Delete(o.tx, d.ID))...)
	})
}

// RemoteMACEntries returns the operations on the remote MAC entries of a gateway device. Callers in
// this process may leave the id of that empty, and name it as device_id at create.
func (s *Service) RemoteMACEntries(device string) Operations[*neutron.RemoteMACEntry] {
	e := remoteMACEntries{s, device}
	return Operations[*neutron.RemoteMACEntry]{Create: e.create, Delete: e.delete, Show: e.show, List: e.list}
}

// remoteMACEntries are the operations on the remote MAC entries of a gateway device.
type remoteMACEntries struct {
	*Service
	of string // id of the device; "" = any
}

// read returns a snapshot in which the caller sees the device.
func (s remoteMACEntries) read(ctx context.Context, c neutron.Caller) (*records.Snap, error) {
	snap, err := s.view(ctx)
	if err != nil || s.of == "" {
		return snap, err
	}
	if d, ok := schema.GatewayDevices.Peek(snap, s.of); !ok || !s.gatewayDevices.sees(snap, c, d) {
		return nil, neutron.GatewayDevices.NotFound(s.of)
	}
	return snap, nil
}

func (s remoteMACEntries) show(ctx context.Context, c neutron.Caller, id string) (*neutron.RemoteMACEntry, error) {
	snap, err := s.read(ctx, c)
	if err != nil {
		return nil, err
	}
	e, ok := schema.RemoteMACEntries.Peek(snap, id)
	if !ok {
		return nil, neutron.RemoteMACEntries.NotFound(id)
	}
	return e, s.checkDevice(e)
}

// checkDevice refuses the entry of another device.
func (s remoteMACEntries) checkDevice(e *neutron.RemoteMACEntry) error {
	if s.of == "" || e.DeviceID == s.of {
		return nil
	}
	return neutron.Errorf(neutron.Invalid, "RemoteMacEntryWrongGatewayDevice", "Remote MAC entry %s does not belong to gateway device %s", e.ID, s.of)
}

func (s remoteMACEntries) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.RemoteMACEntry], error) {
	snap, err := s.read(ctx, c)
	if err != nil {
		return nil, err
	}
	return func(yield func(*neutron.RemoteMACEntry) bool) {
		for e := range schema.RemoteMACEntries.By(snap, "device", s.of) {
			if q.InRange(e.ID) && !yield(e) {
				return
			}
		}
	}, nil
}

// create makes entries, all or none.
func (s remoteMACEntries) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.RemoteMACEntry, error) {
	id := func(e *neutron.RemoteMACEntry) string { return e.ID }
	return createAll(ctx, s.Service, c, id, func(o *operation) ([]*neutron.RemoteMACEntry, error) {
		var made []*neutron.RemoteMACEntry
		for _, v := range vs {
			e, err := s.createOne(o, v)
			if err != nil {
				return nil, err
			}
			made = append(made, e)
		}
		return made, nil
	})
}

func (s remoteMACEntries) createOne(o *operation, v neutron.Values) (*neutron.RemoteMACEntry, error) {
	of := s.of
	if of == "" {
		of = v.Text("device_id")
	}
	d, err := s.device(o, of, neutron.Create)
	if err != nil {
		return nil, err
	}
	e := &neutron.RemoteMACEntry{Standard: o.standard(v, 0), DeviceID: d.ID, SegmentationID: number(v, "segmentation_id")}
	e.MACAddress, _ = v["mac_address"].(packet.MAC)
	e.VTEPAddress, _ = v["vtep_address"].(netip.Addr)
	if schema.RemoteMACEntries.CountBy(o.tx, "mac_address", schema.RemoteMAC(d.ID, e.MACAddress)) > 0 {
		return nil, conflict("DuplicateRemoteMacAddress", "Request contains duplicate remote mac address entry: mac_address %s.", e.MACAddress)
	}
	return e, errors.Join(schema.RemoteMACEntries.Put(o.tx, e), o.putBundle(kindRemoteMACEntry, e.ID, translate.RemoteMACEntry(e, d)))
}

// device returns the device if the caller may change its entries.
func (s remoteMACEntries) device(o *operation, id string, op neutron.Op) (*neutron.GatewayDevice, error) {
	d, owner, err := s.gatewayDevices.inTransaction(o, id)
	if err != nil {
		return nil, err
	}
	if err := neutron.Authorize(o.caller, neutron.RemoteMACEntries, op, nil, owner); err != nil {
		return nil, err
	}
	if d.Type == neutron.GatewayNetworkVLAN {
		return nil, conflict("OperationRemoteMacEntryNotSupported", "Unable to operate remote_mac_entry for gateway device %s type.", d.Type)
	}
	return d, nil
}

func (s remoteMACEntries) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.Service, c, func(o *operation) error {
		if s.of != "" {
			if _, err := s.device(o, s.of, neutron.Delete); err != nil {
				return err
			}
		}
		e, err := schema.RemoteMACEntries.Get(o.tx, id)
		if err != nil {
			return neutron.RemoteMACEntries.NotFound(id)
		}
		if err := s.checkDevice(e); err != nil {
			return err
		}
		if _, err := s.device(o, e.DeviceID, neutron.Delete); err != nil {
			return err
		}
		return errors.Join(checkRevision(ifMatch, e.RevisionNumber), schema.RemoteMACEntries.Delete(o.tx, id), o.dropBundle(kindRemoteMACEntry, id))
	})
}
