package control_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// linked returns the whole topology.
func (w *world) linked() *topology.View {
	w.t.Helper()
	snap, err := w.db.View(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var bundles []topology.Bundle
	for b := range schema.Bundles.All(snap) {
		bundles = append(bundles, b.Bundle)
	}
	return topology.Link(bundles, nil, nil)
}

// gatewayDevice makes a device of a router or a network.
func (w *world) gatewayDevice(text string) *neutron.GatewayDeviceView {
	w.t.Helper()
	return must[*neutron.GatewayDeviceView](w, w.admin, neutron.GatewayDevices, text)
}

func (w *world) vtepOf(router, tunnelIP string) *neutron.GatewayDeviceView {
	w.t.Helper()
	return w.gatewayDevice(`{"type":"router_vtep","resource_id":"` + router + `","tunnel_ips":["` + tunnelIP + `"]}`)
}

// remoteMAC makes a remote MAC entry of a device.
func (w *world) remoteMAC(device, text string) (*neutron.RemoteMACEntry, error) {
	w.t.Helper()
	v, err := parse(w.admin, neutron.RemoteMACEntries, neutron.Create, text)
	if err != nil {
		return nil, err
	}
	made, err := w.RemoteMACEntries(device).Create(w.t.Context(), w.admin, []neutron.Values{v})
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

func (w *world) l2gateway(device, more string) *neutron.L2Gateway {
	w.t.Helper()
	return must[*neutron.L2Gateway](w, w.admin, neutron.L2Gateways, `{"devices":[{"device_id":"`+device+`"`+more+`}]}`)
}

func (w *world) connect(gateway, network, segment string) *neutron.L2GatewayConnection {
	w.t.Helper()
	return must[*neutron.L2GatewayConnection](w, w.admin, neutron.L2GatewayConnections,
		`{"l2_gateway_id":"`+gateway+`","network_id":"`+network+`","segmentation_id":`+segment+`}`)
}

// TestVTEPRouter follows a connection to a VTEP's router through its life: ports, peering table,
// tunnel address, machines outside, and an empty topology at the end.
func TestVTEPRouter(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	s, r := w.subnetOn("10.0.0.0/24"), w.router(`{}`)
	start := w.dump()
	d := w.vtepOf(r.ID, "192.0.2.1")
	early, err := w.remoteMAC(d.ID, `{"mac_address":"fa:16:3e:00:00:01","vtep_address":"192.0.2.9","segmentation_id":77}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.remoteMAC(d.ID, `{"mac_address":"fa:16:3e:00:00:02","vtep_address":"192.0.2.9","segmentation_id":78}`); err != nil {
		t.Fatal(err)
	}
	remotePort := `{"network_id":"` + s.NetworkID + `","project_id":"mine","device_owner":"network:remote_site","mac_address":"fa:16:3e:00:00:01","fixed_ips":[{"ip_address":"10.0.0.50"}]}`
	_, err = w.create(w.admin, neutron.Ports, remotePort)
	w.expect(err, "NetworkNotConnected: Network "+s.NetworkID+" is connected to no L2 gateway, behind which a port of network:remote_site could be.")
	g := w.l2gateway(d.ID, "")
	c := w.connect(g.ID, s.NetworkID, "77")
	late, err := w.remoteMAC(d.ID, `{"mac_address":"ff:ff:ff:ff:ff:ff","vtep_address":"192.0.2.8","segmentation_id":77}`)
	if err != nil {
		t.Fatal(err)
	}

	net, gw := translate.Derive("port.l2gw.net", s.NetworkID), translate.Derive("port.l2gw.gw", s.NetworkID)
	entries := []string{early.ID, late.ID}
	slices.Sort(entries)
	v := w.linked()
	for id, want := range map[string]*topology.Port{
		net: {ID: net, NetworkID: s.NetworkID, AdminStateUp: true, PeerID: gw},
		gw: {ID: gw, RouterID: r.ID, AdminStateUp: true, PeerID: net, VNI: 77, TunnelIP: netip.MustParseAddr("192.0.2.1"),
			RemoteMacEntryIDs: entries},
	} {
		if d := cmp.Diff(want, v.Ports[id], cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Errorf("port %s (-want +got):\n%s", id, d)
		}
	}
	if d := cmp.Diff(map[string][][2]string{gw: {{"fa:16:3e:00:00:01", "192.0.2.9"}, {"ff:ff:ff:ff:ff:ff", "192.0.2.8"}}}, v.Tables.Peering); d != "" {
		t.Errorf("peering tables (-want +got):\n%s", d)
	}

	p := must[*neutron.PortView](w, w.admin, neutron.Ports, remotePort)
	if got := w.bundle("port", p.ID); len(got.Ports) != 0 || len(got.Chains) != 0 {
		t.Errorf("the port of a machine outside is in the topology: %+v", got)
	}
	v = w.linked()
	if got := v.Tables.MAC[s.NetworkID][0]; len(got) != 1 || got[0] != [2]string{"fa:16:3e:00:00:01", net} {
		t.Errorf("MAC table: %v", got)
	}
	if got := v.Tables.ARP[s.NetworkID]; len(got) != 1 || got[0] != [2]string{"10.0.0.50", "fa:16:3e:00:00:01"} {
		t.Errorf("ARP table: %v", got)
	}

	if _, err := w.change(w.admin, neutron.GatewayDevices, d.ID, `{"tunnel_ips":["192.0.2.2"]}`); err != nil {
		t.Fatal(err)
	}
	if got := w.linked().Ports[gw].TunnelIP; got.String() != "192.0.2.2" {
		t.Errorf("after an update of the device the port's tunnel address is %v", got)
	}
	for _, x := range []struct {
		name neutron.Resource
		id   string
		want string
	}{
		{neutron.Routers, r.ID, "DeviceInUseByGatewayDevice: device " + r.ID + " (router) is in use by gateway device"},
		{neutron.GatewayDevices, d.ID, "GatewayDeviceInUse: Gateway device " + d.ID + " is in use by l2 gateway"},
		{neutron.L2Gateways, g.ID, "L2GatewayInUse: L2 Gateway '" + g.ID + "' still has active mappings with one or more neutron networks."},
		{neutron.Ports, p.ID, ""},
		{neutron.Networks, s.NetworkID, "NetworkInUseByL2Gateway: Network " + s.NetworkID + " is connected to L2 Gateway " + g.ID + " by connection " + c.ID + "."},
		{neutron.L2GatewayConnections, c.ID, ""}, {neutron.L2Gateways, g.ID, ""}, {neutron.GatewayDevices, d.ID, ""},
		{neutron.RemoteMACEntries, early.ID, "RemoteMacEntryNotFound: Remote MAC entry " + early.ID + " does not exist"},
	} {
		w.expect(w.remove(w.admin, x.name, x.id), x.want)
	}
	if d := cmp.Diff(start, w.dump()); d != "" {
		t.Errorf("left behind (-want +got):\n%s", d)
	}
}

// TestVLANGateway: a connection to a network is a pair of ports, the trunk's with the VLAN.
func TestVLANGateway(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	trunk, n := w.network(`{}`), w.network(`{}`)
	start := w.dump()
	d := w.gatewayDevice(`{"type":"network_vlan","resource_id":"` + trunk.ID + `"}`)
	g := w.l2gateway(d.ID, `,"segmentation_id":10`)
	c := must[*neutron.L2GatewayConnection](w, w.admin, neutron.L2GatewayConnections, `{"l2_gateway_id":"`+g.ID+`","network_id":"`+n.ID+`"}`)
	net, gw := translate.Derive("port.l2gw.net", n.ID), translate.Derive("port.l2gw.gw", n.ID)
	v := w.linked()
	if got, want := v.Ports[gw], (&topology.Port{ID: gw, NetworkID: trunk.ID, VlanID: 10, AdminStateUp: true, PeerID: net}); cmp.Diff(want, got,
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) != "" || !got.InVLAN() || v.Ports[net].PeerID != gw || v.Ports[net].InVLAN() {
		t.Errorf("trunk's port %+v, network's %+v", got, v.Ports[net])
	}
	w.expect(w.remove(w.admin, neutron.Networks, trunk.ID), "DeviceInUseByGatewayDevice: device "+trunk.ID+" (network) is in use by gateway device")
	for _, x := range []struct {
		name neutron.Resource
		id   string
	}{{neutron.L2GatewayConnections, c.ID}, {neutron.L2Gateways, g.ID}, {neutron.GatewayDevices, d.ID}} {
		w.expect(w.remove(w.admin, x.name, x.id), "")
	}
	if d := cmp.Diff(start, w.dump()); d != "" {
		t.Errorf("left behind (-want +got):\n%s", d)
	}
}

// TestL2GatewayRefusals: what is refused, in which words, and leaves nothing behind.
func TestL2GatewayRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.carry("public")
	trunk, n, other, joined := w.network(`{}`), w.network(`{}`), w.network(`{}`), w.network(`{}`)
	provider := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"provider:network_type":"flat","provider:physical_network":"public"}`)
	external, _ := w.external()
	r, r2, free := w.router(`{}`), w.router(`{}`), w.router(`{}`)
	vlan := w.gatewayDevice(`{"type":"network_vlan","resource_id":"` + trunk.ID + `"}`)
	vtep := w.vtepOf(r.ID, "192.0.2.1")
	managed := w.gatewayDevice(`{"type":"router_vtep","name":"sw0","resource_id":"` + r2.ID + `","tunnel_ips":["192.0.2.2"],"management_ip":"192.0.2.99","management_port":6640}`)
	gVLAN, gVTEP, gFixed, gUsed := w.l2gateway(vlan.ID, ""), w.l2gateway(vtep.ID, ""), w.l2gateway(vtep.ID, `,"segmentation_id":9`), w.l2gateway(vlan.ID, "")
	again := w.l2gateway(vlan.ID, "")
	ports := must[*neutron.L2Gateway](w, w.admin, neutron.L2Gateways, `{"devices":[{"device_name":"sw0","interfaces":[{"name":"p0"},{"name":"p1"}]}]}`)
	w.connect(gUsed.ID, joined.ID, "30")
	entry, err := w.remoteMAC(vtep.ID, `{"mac_address":"fa:16:3e:00:00:01","vtep_address":"192.0.2.9","segmentation_id":9}`)
	if err != nil {
		t.Fatal(err)
	}
	start := w.dump()
	device := func(rest string) string { return `{"type":"router_vtep","resource_id":"` + free.ID + `"` + rest + `}` }
	connection := func(g *neutron.L2Gateway, network, rest string) string {
		return `{"l2_gateway_id":"` + g.ID + `","network_id":"` + network + `"` + rest + `}`
	}
	const tunnels = "Unable to complete operation for gateway device. "
	for _, c := range []struct {
		name neutron.Resource
		text string
		want string
	}{
		{neutron.GatewayDevices, `{}`, "InvalidInput: Invalid input for operation: gateway devices of type hw_vtep are not supported: type is router_vtep or network_vlan, " +
			"and a switch is named by management_ip and management_port of a router_vtep."},
		{neutron.GatewayDevices, `{"type":"router_vtep"}`, "ResourceIdRequired: Gateway device router_vtep must be specified with resource_id"},
		{neutron.GatewayDevices, `{"type":"vtep"}`, "HTTPBadRequest: Invalid input for type. Reason: vtep is not in valid_values."},
		{neutron.GatewayDevices, `{"type":"router_vtep","resource_id":"` + n.ID + `","tunnel_ips":["192.0.2.3"]}`, "ResourceNotFound: specified resource " + n.ID + " does not exist"},
		{neutron.GatewayDevices, `{"type":"network_vlan","resource_id":"` + r.ID + `"}`, "ResourceNotFound: specified resource " + r.ID + " does not exist"},
		{neutron.GatewayDevices, `{"type":"router_vtep","resource_id":"` + r.ID + `","tunnel_ips":["192.0.2.3"]}`, "DeviceInUseByGatewayDevice: device " + r.ID + " (router) is in use by gateway device"},
		{neutron.GatewayDevices, `{"type":"network_vlan","resource_id":"` + trunk.ID + `"}`, "DeviceInUseByGatewayDevice: device " + trunk.ID + " (network) is in use by gateway device"},
		{neutron.GatewayDevices, `{"type":"network_vlan","resource_id":"` + other.ID + `","tunnel_ips":["192.0.2.3"]}`, "TunnelIPsNotSupported: " + tunnels + "A device of type network_vlan has no tunnel ips."},
		{neutron.GatewayDevices, device(``), "TunnelIPsRequired: " + tunnels + "The tunnel ips are required for router_vtep type."},
		{neutron.GatewayDevices, device(`,"tunnel_ips":["192.0.2.3","192.0.2.4"]`), "TunnelIPsExhausted: " + tunnels + "The number of tunnel ips exceeds the maximum 1."},
		{neutron.GatewayDevices, device(`,"tunnel_ips":["192.0.2.1"]`), "TunnelIPInUse: Tunnel ip 192.0.2.1 is in use by gateway device " + vtep.ID + "."},
		{neutron.GatewayDevices, device(`,"tunnel_ips":["2001:db8::1"]`), "HTTPBadRequest: Invalid input for tunnel_ips. Reason: '2001:db8::1' is not the IPv4 address of a machine."},
		{neutron.GatewayDevices, device(`,"tunnel_ips":["192.0.2.3"],"management_ip":"192.0.2.98"`), "InvalidInput: Invalid input for operation: management_ip and management_port go together: both or neither."},
		{neutron.GatewayDevices, device(`,"tunnel_ips":["192.0.2.3"],"management_ip":"192.0.2.99","management_port":6640`), "ManagementIPInUse: Management ip 192.0.2.99 is in use by gateway device " + managed.ID + "."},
		{neutron.GatewayDevices, `{"type":"network_vlan","resource_id":"` + provider.ID + `"}`, "InvalidInput: Invalid input for operation: network " + provider.ID +
			" is on physical network public, where machines outside are reached without a gateway."},

		{neutron.L2Gateways, `{"devices":[]}`, "HTTPBadRequest: Invalid input for devices. Reason: Cannot create a gateway with an empty device list."},
		{neutron.L2Gateways, `{"devices":[{"device_id":"` + vtep.ID + `"},{"device_id":"` + vlan.ID + `"}]}`, "HTTPBadRequest: Invalid input for devices. Reason: Exactly one device must be specified to create a gateway."},
		{neutron.L2Gateways, `{"devices":[{"device_id":""}]}`, "HTTPBadRequest: Invalid input for devices. Reason: Cannot create a gateway with an empty device_id."},
		{neutron.L2Gateways, `{"devices":[{"device_id":"` + vtep.ID + `","interfaces":[]}]}`, "HTTPBadRequest: Invalid input for devices. Reason: Interfaces are not allowed for a gateway device named by device_id: name it by device_name."},
		{neutron.L2Gateways, `{"devices":[{"device_id":"` + r.ID + `"}]}`, "GatewayDeviceNotFound: Gateway device " + r.ID + " does not exist"},
		{neutron.L2Gateways, `{"devices":[{"device_id":"` + vlan.ID + `","segmentation_id":4095}]}`, "InvalidInput: Invalid input for operation: Segmentation id is out of range."},
		{neutron.L2Gateways, `{"devices":[{"device_id":"` + vlan.ID + `","segmentation_id":0}]}`, "InvalidInput: Invalid input for operation: Segmentation id is out of range."},
		{neutron.L2Gateways, `{"devices":[{"device_id":"` + vtep.ID + `","segmentation_id":16777215}]}`, "InvalidInput: Invalid input for operation: Segmentation id is out of range."},
		{neutron.L2Gateways, `{"devices":[{"device_name":"sw1","interfaces":[{"name":"p0"}]}]}`, "L2GatewayDeviceNotFound: L2 Gateway Device sw1 could not be found."},
		{neutron.L2Gateways, `{"devices":[{"device_name":"` + vtep.ID + `","interfaces":[{"name":"p0"}]}]}`, "InvalidInput: Invalid input for operation: interfaces are ports of a switch, and gateway device " +
			vtep.ID + " has no management_ip: name the device by device_id, without interfaces."},
		{neutron.L2Gateways, `{"devices":[{"device_name":"sw0","interfaces":[{"name":"p0","segmentation_id":[1]},{"name":"p1"}]}]}`, "L2GatewaySegmentationRequired: L2 gateway segmentation id must be consistent for all the interfaces"},

		{neutron.L2GatewayConnections, connection(gVLAN, n.ID, ``), "InvalidInput: Invalid input for operation: Segmentation id must be specified in create l2gateway connections."},
		{neutron.L2GatewayConnections, connection(gFixed, n.ID, `,"segmentation_id":8`), "InvalidInput: Invalid input for operation: default segmentation_id should not be provided when segmentation_id is assigned during l2gateway creation."},
		{neutron.L2GatewayConnections, connection(gVLAN, n.ID, `,"segmentation_id":0`), "InvalidInput: Invalid input for operation: Segmentation id is out of range."},
		{neutron.L2GatewayConnections, connection(gVLAN, n.ID, `,"segmentation_id":4095`), "InvalidInput: Invalid input for operation: Segmentation id is out of range."},
		{neutron.L2GatewayConnections, connection(gVTEP, n.ID, `,"segmentation_id":"16777215"`), "InvalidInput: Invalid input for operation: Segmentation id is out of range."},
		{neutron.L2GatewayConnections, connection(gVLAN, n.ID, `,"segmentation_id":"ten"`), "InvalidInput: Invalid input for operation: Segmentation id must be a valid integer."},
		{neutron.L2GatewayConnections, connection(gVLAN, trunk.ID, `,"segmentation_id":10`), "InvalidInput: Invalid input for operation: network " + trunk.ID + " is that of gateway device " + vlan.ID + " itself."},
		{neutron.L2GatewayConnections, connection(gVTEP, trunk.ID, `,"segmentation_id":10`), "NetworkInUseByGatewayDevice: Network " + trunk.ID + " is the trunk of gateway device " + vlan.ID + ", and has networks connected already."},
		{neutron.L2GatewayConnections, connection(gVTEP, external, `,"segmentation_id":10`), "InvalidInput: Invalid input for operation: network " + external + " is external: an L2 gateway joins tenants' networks."},
		{neutron.L2GatewayConnections, connection(gVTEP, provider.ID, `,"segmentation_id":10`), "InvalidInput: Invalid input for operation: network " + provider.ID +
			" is on physical network public, where machines outside are reached without a gateway."},
		{neutron.L2GatewayConnections, connection(gUsed, n.ID, `,"segmentation_id":31`), "L2GatewayConnectionExists: L2 Gateway Connection related to specified L2 Gateway " + gUsed.ID + " already exists"},
		{neutron.L2GatewayConnections, connection(gVTEP, joined.ID, `,"segmentation_id":31`), "NetworkInUseByL2Gateway: Network " + joined.ID + " is connected to L2 Gateway " + gUsed.ID + " already."},
		{neutron.L2GatewayConnections, connection(again, n.ID, `,"segmentation_id":30`), "SegmentationIdInUse: Segmentation id 30 of gateway device " + vlan.ID + " is that of network " + joined.ID + " already."},
		{neutron.L2GatewayConnections, connection(ports, n.ID, ``), "InvalidInput: Invalid input for operation: Segmentation id must be specified in create l2gateway connections."},
		{neutron.L2GatewayConnections, connection(ports, n.ID, `,"segmentation_id":4095`), "InvalidInput: Invalid input for operation: Segmentation id is out of range."},
	} {
		_, err := w.create(w.admin, c.name, c.text)
		if got := problem(err); got != c.want {
			t.Errorf("create %s %s:\ngot  %q\nwant %q", c.name, c.text, got, c.want)
		}
	}
	_, err = w.remoteMAC(vtep.ID, `{"mac_address":"fa:16:3e:00:00:01","vtep_address":"192.0.2.8","segmentation_id":3}`)
	w.expect(err, "DuplicateRemoteMacAddress: Request contains duplicate remote mac address entry: mac_address fa:16:3e:00:00:01.")
	_, err = w.remoteMAC(vlan.ID, `{"mac_address":"fa:16:3e:00:00:01","vtep_address":"192.0.2.8","segmentation_id":3}`)
	w.expect(err, "OperationRemoteMacEntryNotSupported: Unable to operate remote_mac_entry for gateway device network_vlan type.")
	_, err = w.RemoteMACEntries(managed.ID).Show(t.Context(), w.admin, entry.ID)
	w.expect(err, "RemoteMacEntryWrongGatewayDevice: Remote MAC entry "+entry.ID+" does not belong to gateway device "+managed.ID)
	w.expect(w.RemoteMACEntries(managed.ID).Delete(t.Context(), w.admin, entry.ID, nil), "RemoteMacEntryWrongGatewayDevice: Remote MAC entry "+entry.ID+" does not belong to gateway device "+managed.ID)
	_, err = w.change(w.admin, neutron.L2Gateways, gVTEP.ID, `{"devices":[{"device_id":"`+vlan.ID+`"}]}`)
	w.expect(err, "L2GatewayUpdateNotSupported: The devices of L2 Gateway "+gVTEP.ID+" cannot be updated: create another gateway.")
	_, err = w.change(w.admin, neutron.GatewayDevices, vtep.ID, `{"tunnel_ips":["192.0.2.7","192.0.2.8"]}`)
	w.expect(err, "TunnelIPsExhausted: "+tunnels+"The number of tunnel ips exceeds the maximum 1.")
	_, err = w.change(w.admin, neutron.Networks, joined.ID, `{"router:external":true}`)
	if got := problem(err); !strings.HasPrefix(got, "NetworkInUseByL2Gateway: ") {
		t.Errorf("a network was made external while a gateway joins it: %q", got)
	}
	_, err = w.create(w.member, neutron.GatewayDevices, device(`,"tunnel_ips":["192.0.2.3"]`))
	w.expect(err, "PolicyNotAuthorized: rule:create_gateway_device is disallowed by policy")
	if d := cmp.Diff(start, w.dump()); d != "" {
		t.Errorf("a refused request left something (-want +got):\n%s", d)
	}
}

// TestSwitchConnection: where a gateway has ports of a switch, the VNI is the network's own, and
// gateway or connection have the VLAN at the ports.
func TestSwitchConnection(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n, r := w.network(`{}`), w.router(`{}`)
	w.gatewayDevice(`{"type":"router_vtep","name":"sw0","resource_id":"` + r.ID + `","tunnel_ips":["192.0.2.2"],"management_ip":"192.0.2.99","management_port":6640}`)
	g := must[*neutron.L2Gateway](w, w.admin, neutron.L2Gateways, `{"devices":[{"device_name":"sw0","interfaces":[{"name":"p0"}]}]}`)
	c := w.connect(g.ID, n.ID, `"0"`)
	network, err := w.Networks().Show(t.Context(), w.admin, n.ID)
	if err != nil {
		t.Fatal(err)
	}
	gw := w.linked().Ports[translate.Derive("port.l2gw.gw", n.ID)]
	if c.Segment != *network.SegmentationID || gw.VNI != uint32(c.Segment) || c.SegmentationID == nil || *c.SegmentationID != 0 {
		t.Errorf("connection %+v, port %+v, want the VNI %d of the network", c, gw, *network.SegmentationID)
	}
}

// TestL2GatewaysLeaveNothing: creates and then deletes in any order return the store to its start.
func TestL2GatewaysLeaveNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := inMemory(t)
		subnets := []*neutron.SubnetView{w.subnetOn("10.0.0.0/24"), w.subnetOn("10.0.1.0/24"), w.subnetOn("10.0.2.0/24")}
		trunk, r := w.network(`{}`), w.router(`{}`)
		start := w.dump()
		type made struct {
			name neutron.Resource
			id   string
		}
		var all []made
		keep := func(name neutron.Resource, id string) { all = append(all, made{name, id}) }
		vlan := w.gatewayDevice(`{"type":"network_vlan","resource_id":"` + trunk.ID + `"}`)
		vtep := w.vtepOf(r.ID, "192.0.2.1")
		keep(neutron.GatewayDevices, vlan.ID)
		keep(neutron.GatewayDevices, vtep.ID)
		entry := func(i int) {
			m := packet.MAC{0xfa, 0x16, 0x3e, 0, 1, byte(i)}
			e, err := w.remoteMAC(vtep.ID, fmt.Sprintf(`{"mac_address":"%s","vtep_address":"192.0.2.9","segmentation_id":%d}`, m, 10+i%3))
			if err != nil {
				rt.Fatal(err)
			}
			keep(neutron.RemoteMACEntries, e.ID)
		}
		entry(0)
		for i, s := range subnets {
			device := rapid.SampledFrom([]*neutron.GatewayDeviceView{vlan, vtep}).Draw(rt, "device")
			g := w.l2gateway(device.ID, "")
			keep(neutron.L2Gateways, g.ID)
			keep(neutron.L2GatewayConnections, w.connect(g.ID, s.NetworkID, fmt.Sprint(10+i)).ID)
			p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+s.NetworkID+`","project_id":"mine","device_owner":"network:remote_site"}`)
			keep(neutron.Ports, p.ID)
			entry(1 + i)
		}
		w.change(w.admin, neutron.GatewayDevices, vtep.ID, `{"tunnel_ips":["192.0.2.2"]}`)
		order := rapid.Permutation(all).Draw(rt, "order")
		for round := 0; len(order) > 0 && round < 5; round++ {
			order = slices.DeleteFunc(order, func(m made) bool {
				err := w.remove(w.admin, m.name, m.id)
				got := problem(err)
				return err == nil || strings.Contains(got, "NotFound")
			})
		}
		if len(order) > 0 {
			rt.Fatalf("cannot be deleted: %v", order)
		}
		if d := cmp.Diff(start, w.dump()); d != "" {
			rt.Errorf("left behind (-want +got):\n%s", d)
		}
	})
}
