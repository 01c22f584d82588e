package neutron

import (
	"net/netip"
	"strconv"

	"heddle/internal/topology/packet"
)

// Ranges of what a connection's segmentation_id is, less 0, by which no port has a VLAN or VNI.
const (
	maxGatewayVLAN = 4094
	maxGatewayVNI  = 1<<24 - 2
)

// gatewayDeviceTable has the attributes of networking-midonet. A network's device has no tunnels.
func gatewayDeviceTable() *Table[*GatewayDeviceView] {
	std := func(o *GatewayDeviceView) *Standard { return &o.Standard }
	ofTunnels := func(v value[*GatewayDeviceView]) value[*GatewayDeviceView] {
		v.omit = func(o *GatewayDeviceView, _ bool) bool { return o.Type == GatewayNetworkVLAN }
		return v
	}
	cols := append([]column[*GatewayDeviceView]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	return newTable(GatewayDevices, append(cols,
		row(Attribute{Name: "type", Create: true, Default: GatewayHardwareVTEP, Filter: true, Sort: true, Type: "string",
			Doc:   "router_vtep or network_vlan; hw_vtep is refused: name a switch as the management address of a router_vtep",
			parse: oneOf(GatewayHardwareVTEP, GatewayRouterVTEP, GatewayNetworkVLAN)},
			textValue(func(o *GatewayDeviceView) string { return o.Type })),
		row(Attribute{Name: "resource_id", Create: true, Filter: true, Sort: true, Type: "uuid",
			Doc: "the router of a router_vtep, the trunk network of a network_vlan; no other device has it", parse: orNull(uuid)},
			textValue(func(o *GatewayDeviceView) string { return o.ResourceID })),
		row(Attribute{Name: "management_ip", Create: true, Filter: true, Sort: true, Type: "ip address",
			Doc: "of the OVSDB server of a switch that a router_vtep is kept in step with", parse: orNull(address)},
			textOrNullValue(func(o *GatewayDeviceView) string { return addrText(o.ManagementIP) })),
		row(Attribute{Name: "management_port", Create: true, Filter: true, Sort: true, Type: "integer",
			Doc: "its TCP port, 1 to 65535", parse: orNull(between(1, 65535))},
			numberOrNullValue(func(o *GatewayDeviceView) *int { return orNil(o.ManagementPort) })),
		row(Attribute{Name: "management_protocol", Create: true, Default: ManagementOVSDB, Filter: true, Sort: true, Type: "string",
			Doc: "ovsdb", parse: nullAs(ManagementOVSDB, oneOf(ManagementOVSDB))},
			textOrNullValue(func(o *GatewayDeviceView) string { return o.ManagementProtocol })),
		row(Attribute{Name: "tunnel_ips", Create: true, Update: true, Default: []netip.Addr{}, Type: "list of ip addresses",
			Doc: "one IPv4 address of a router_vtep, which no other device has; none of a network_vlan", parse: tunnelIPs},
			ofTunnels(jsonValue(func(b []byte, o *GatewayDeviceView) []byte {
				return appendList(b, o.TunnelIPs, func(b []byte, a netip.Addr) []byte { return appendString(b, a.String()) })
			}))),
		row(Attribute{Name: "remote_mac_entries", Computed: true, Type: "list of objects", Doc: "made and deleted below the device"},
			ofTunnels(jsonValue(func(b []byte, o *GatewayDeviceView) []byte { return appendList(b, o.Entries, appendRemoteMAC) }))),
	))
}

func appendRemoteMAC(b []byte, e *RemoteMACEntry) []byte {
	return appendValue(b, map[string]any{
		"id": e.ID, "tenant_id": e.ProjectID, "mac_address": e.MACAddress.String(),
		"vtep_address": e.VTEPAddress.String(), "segmentation_id": e.SegmentationID,
	})
}

func remoteMACEntryTable() *Table[*RemoteMACEntry] {
	std := func(o *RemoteMACEntry) *Standard { return &o.Standard }
	cols := append([]column[*RemoteMACEntry]{idColumn(std)}, projectColumns(std)...)
	return newTable(RemoteMACEntries, append(cols,
		row(Attribute{Name: "mac_address", Create: true, Default: required{}, Filter: true, Sort: true, Type: "mac address",
			Doc: "a device has one entry for each; ff:ff:ff:ff:ff:ff has frames to many go to the VTEP", parse: remoteMAC},
			textValue(func(o *RemoteMACEntry) string { return o.MACAddress.String() })),
		row(Attribute{Name: "vtep_address", Create: true, Default: required{}, Filter: true, Sort: true, Type: "ip address",
			Doc: "IPv4, of the VTEP that the machine is behind", parse: unicastIPv4},
			textValue(func(o *RemoteMACEntry) string { return o.VTEPAddress.String() })),
		row(Attribute{Name: "segmentation_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "integer",
			Doc: "the VNI of the connection that it is for", parse: nonNegative},
			numberValue(func(o *RemoteMACEntry) int64 { return int64(o.SegmentationID) })),
	))
}

// remoteMAC takes the MAC address of one machine, or that of all.
func remoteMAC(v any) (any, error) {
	s, _ := v.(string)
	if m, ok := parseMAC(s); ok && (m == packet.Broadcast || !m.IsZero() && !m.IsMulticast()) {
		return m, nil
	}
	return nil, reasonf("'%s' is not a valid MAC address", pyText(v))
}

// unicastIPv4 takes the IPv4 address of one machine.
func unicastIPv4(v any) (any, error) {
	a, err := address(v)
	if err != nil {
		return nil, err
	}
	if ip := a.(netip.Addr); !ip.Is4() || ip.IsMulticast() || ip.IsUnspecified() || ip.IsLoopback() || ip.As4()[0] >= 240 {
		return nil, reasonf("'%s' is not the IPv4 address of a machine", ip)
	}
	return a, nil
}

// tunnelIPs takes a list of IPv4 addresses; how many a device has depends on its type.
func tunnelIPs(v any) (any, error) {
	if v == nil {
		return []netip.Addr{}, nil
	}
	return entries(v, "'%s' is not a list", "tunnel ip", func(x any) (netip.Addr, error) {
		a, err := unicastIPv4(x)
		if err != nil {
			return netip.Addr{}, err
		}
		return a.(netip.Addr), nil
	})
}

// l2GatewayTable has the attributes of the reference, which answers no project_id.
func l2GatewayTable() *Table[*L2Gateway] {
	std := func(o *L2Gateway) *Standard { return &o.Standard }
	return newTable(L2Gateways, append([]column[*L2Gateway]{idColumn(std), nameColumn(std),
		row(Attribute{Name: "devices", Create: true, Update: true, Default: required{}, Type: "list of objects",
			Doc: "one: {device_id, segmentation_id} of a gateway device, or {device_name, interfaces} of one with a management address: " +
				"its id or name, and ports of its switch, each {name, segmentation_id} with a list of VLANs",
			parse: l2GatewayDevices},
			jsonValue(func(b []byte, o *L2Gateway) []byte {
				return append(appendValue(append(b, '['), o.Device.answer()), ']')
			})),
	}, olderProjectColumns(std)...))
}

// olderProjectColumns returns the two names of the owner, of which answers have the older.
func olderProjectColumns[T any](get func(o T) *Standard) []column[T] {
	both := projectColumns(get)
	both[1].Hidden = true
	return both
}

// answer returns the device in the spelling of the request.
func (d *L2GatewayDevice) answer() map[string]any {
	a := map[string]any{"id": d.ID}
	if d.DeviceName == "" {
		a["device_id"] = d.DeviceID
		if d.SegmentationID != nil {
			a["segmentation_id"] = *d.SegmentationID
		}
		return a
	}
	ports := make([]any, len(d.Interfaces))
	for i, p := range d.Interfaces {
		vlans := make([]any, len(p.VLANs))
		for j, id := range p.VLANs {
			vlans[j] = strconv.Itoa(id)
		}
		ports[i] = map[string]any{"name": p.Name, "segmentation_id": vlans}
	}
	a["device_name"], a["interfaces"] = d.DeviceName, ports
	return a
}

// l2GatewayDevices takes a list of one device in either spelling, and gives a L2GatewayDevice
// without its ids, but for the DeviceID of MidoNet's.
func l2GatewayDevices(v any) (any, error) {
	list, ok := v.([]any)
	switch {
	case v == nil || ok && len(list) == 0:
		return nil, reason("Cannot create a gateway with an empty device list")
	case !ok:
		return nil, reasonf("'%s' is not a list", pyText(v))
	case len(list) > 1:
		return nil, reason("Exactly one device must be specified to create a gateway")
	}
	m, ok := list[0].(map[string]any)
	if !ok {
		return nil, reasonf("'%s' is not a dictionary", pyText(list[0]))
	}
	_, hasID := m["device_id"]
	_, hasInterfaces := m["interfaces"]
	switch {
	case hasID && hasInterfaces:
		return nil, reason("Interfaces are not allowed for a gateway device named by device_id: name it by device_name")
	case hasID:
		return midonetDevice(m)
	}
	return switchDevice(m)
}

func midonetDevice(m map[string]any) (d L2GatewayDevice, err error) {
	if err := onlyKeys(m, "device_id", "segmentation_id"); err != nil {
		return d, err
	}
	if text, _ := m["device_id"].(string); text == "" {
		return d, reason("Cannot create a gateway with an empty device_id")
	}
	id, err := uuid(m["device_id"])
	if err != nil {
		return d, err
	}
	d.DeviceID = id.(string)
	segment, err := segmentationID(m["segmentation_id"])
	if n, ok := segment.(int); ok {
		d.SegmentationID = &n
	}
	return d, err
}

// switchDevice reads the spelling of networking-l2gw, and refuses in its words.
func switchDevice(m map[string]any) (d L2GatewayDevice, err error) {
	d.DeviceName, _ = m["device_name"].(string)
	if d.DeviceName == "" {
		return d, reason("Cannot create a gateway with an empty device_name")
	}
	list, ok := m["interfaces"].([]any)
	switch {
	case m["interfaces"] == nil || ok && len(list) == 0:
		return d, reason("Cannot create a gateway with an empty interfaces")
	case !ok:
		return d, reason("interfaces format is not a type list of dicts")
	case len(list) > MaxList:
		return d, tooMany(len(list))
	}
	if err := onlyKeys(m, "device_name", "interfaces"); err != nil {
		return d, err
	}
	for _, x := range list {
		p, err := switchPort(x)
		if err != nil {
			return d, err
		}
		d.Interfaces = append(d.Interfaces, p)
	}
	for _, p := range d.Interfaces[1:] {
		if (len(p.VLANs) == 0) != (len(d.Interfaces[0].VLANs) == 0) {
			return d, Errorf(Invalid, "L2GatewaySegmentationRequired", "L2 gateway segmentation id must be consistent for all the interfaces")
		}
	}
	return d, nil
}

func switchPort(v any) (p L2GatewayInterface, err error) {
	m, ok := v.(map[string]any)
	if !ok {
		return p, reason("interfaces format is not a type dict")
	}
	if p.Name, _ = m["name"].(string); p.Name == "" {
		return p, reason("Cannot create a gateway with an empty interface name")
	}
	if err := onlyKeys(m, "name", "segmentation_id"); err != nil {
		return p, err
	}
	ids, given := m["segmentation_id"]
	if !given {
		return p, nil
	}
	list, ok := ids.([]any)
	switch {
	case ids == nil || ok && len(list) == 0:
		return p, reason("segmentation_id_list should not be empty")
	case !ok:
		return p, reason("segmentation_id type should be of list type ")
	case len(list) > MaxList:
		return p, tooMany(len(list))
	}
	for _, x := range list {
		id, err := segmentationID(x)
		if err != nil {
			return p, err
		}
		n, ok := id.(int)
		if !ok || n > maxGatewayVLAN {
			return p, OutOfSegments()
		}
		p.VLANs = append(p.VLANs, n)
	}
	return p, nil
}

// onlyKeys returns the reason why an object has another key than these, or nil.
func onlyKeys(m map[string]any, keys ...string) error {
	for k := range m {
		known := false
		for _, key := range keys {
			known = known || k == key
		}
		if !known {
			return reasonf("'%s' is not one of the keys %s", k, join(keys, pyQuote))
		}
	}
	return nil
}

func l2GatewayConnectionTable() *Table[*L2GatewayConnection] {
	std := func(o *L2GatewayConnection) *Standard { return &o.Standard }
	return newTable(L2GatewayConnections, append([]column[*L2GatewayConnection]{idColumn(std),
		row(Attribute{Name: "l2_gateway_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "of a gateway without a connection", parse: uuid}, textValue(func(o *L2GatewayConnection) string { return o.L2GatewayID })),
		row(Attribute{Name: "network_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "of a network without a connection", parse: uuid}, textValue(func(o *L2GatewayConnection) string { return o.NetworkID })),
		row(Attribute{Name: "segmentation_id", Create: true, Default: "", Filter: true, Sort: true, Type: "integer",
			Doc: "the VLAN in the trunk network (1 to 4094), the VNI (1 to 16777214), or the VLAN at a switch's ports (0 to 4094); " +
				"needed if the gateway has none, refused if it has", parse: segmentationID},
			value[*L2GatewayConnection]{
				append: func(b []byte, o *L2GatewayConnection) []byte {
					if o.SegmentationID == nil {
						return append(b, `""`...)
					}
					return strconv.AppendInt(b, int64(*o.SegmentationID), 10)
				},
				key: func(o *L2GatewayConnection) Key {
					if o.SegmentationID == nil {
						return Key{Kind: TextKey}
					}
					return Key{Kind: NumberKey, Number: int64(*o.SegmentationID)}
				},
			}),
	}, olderProjectColumns(std)...))
}

// segmentationID takes a whole number from 0; null and "" are nil.
func segmentationID(v any) (any, error) {
	if v == nil || v == "" {
		return nil, nil
	}
	n, ok := wholeNumber(v)
	switch {
	case !ok:
		return nil, invalidInput("Segmentation id must be a valid integer")
	case n < 0 || n > maxGatewayVNI:
		return nil, OutOfSegments()
	}
	return n, nil
}

// OutOfSegments is the error of a segmentation_id that is no VLAN, or no VNI.
func OutOfSegments() *Error { return invalidInput("Segmentation id is out of range") }

// CheckSegment refuses what is no VLAN or VNI of a port of a gateway device.
func (d *GatewayDevice) CheckSegment(id int) error {
	most := maxGatewayVNI
	if d.Type == GatewayNetworkVLAN {
		most = maxGatewayVLAN
	}
	if id < 1 || id > most {
		return OutOfSegments()
	}
	return nil
}

// CheckSwitchVLAN refuses what is no VLAN at a switch's port, where 0 is untagged.
func CheckSwitchVLAN(id int) error {
	if id < 0 || id > maxGatewayVLAN {
		return OutOfSegments()
	}
	return nil
}

// CheckTunnelIPs refuses a number of tunnel addresses that does not fit the device's type.
func (d *GatewayDevice) CheckTunnelIPs() error {
	const what = "Unable to complete operation for gateway device. "
	switch {
	case d.Type == GatewayNetworkVLAN && len(d.TunnelIPs) > 0:
		return Errorf(Invalid, "TunnelIPsNotSupported", what+"A device of type %s has no tunnel ips.", d.Type)
	case len(d.TunnelIPs) > 1:
		return Errorf(Invalid, "TunnelIPsExhausted", what+"The number of tunnel ips exceeds the maximum 1.")
	case d.Type == GatewayRouterVTEP && len(d.TunnelIPs) == 0:
		return Errorf(Invalid, "TunnelIPsRequired", what+"The tunnel ips are required for %s type.", d.Type)
	}
	return nil
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func orNil(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}
