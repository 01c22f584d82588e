package ovs

import "heddle/internal/ovsdb"

func readRoot(id ovsdb.UUID, r *ovsdb.RowReader) *Root {
	return &Root{UUID: id, Bridges: ovsdb.List[ovsdb.UUID](r, "bridges"), Managers: ovsdb.List[ovsdb.UUID](r, "manager_options"), SSL: r.UUID("ssl"),
		NextCfg: r.Number("next_cfg", 0), CurCfg: r.Number("cur_cfg", 0), Version: r.Text("ovs_version"),
		DatapathTypes: ovsdb.List[string](r, "datapath_types"), InterfaceTypes: ovsdb.List[string](r, "iface_types"),
		ExternalIDs: r.Strings("external_ids"), OtherConfig: r.Strings("other_config")}
}

func readBridge(id ovsdb.UUID, r *ovsdb.RowReader) *Bridge {
	return &Bridge{UUID: id, Name: r.Text("name"), DatapathType: r.Text("datapath_type"), FailMode: r.Text("fail_mode"),
		Ports: ovsdb.List[ovsdb.UUID](r, "ports"), FloodVLANs: ovsdb.List[int64](r, "flood_vlans"),
		ExternalIDs: r.Strings("external_ids"), OtherConfig: r.Strings("other_config")}
}

func readPort(id ovsdb.UUID, r *ovsdb.RowReader) *Port {
	return &Port{UUID: id, Name: r.Text("name"), Interfaces: ovsdb.List[ovsdb.UUID](r, "interfaces"), Tag: r.Number("tag", -1),
		Protected: r.Truth("protected"), ExternalIDs: r.Strings("external_ids"), OtherConfig: r.Strings("other_config")}
}

func readInterface(id ovsdb.UUID, r *ovsdb.RowReader) *Interface {
	return &Interface{UUID: id, Name: r.Text("name"), Type: r.Text("type"), Options: r.Strings("options"),
		ExternalIDs: r.Strings("external_ids"), OfPort: r.Number("ofport", 0), Error: r.Text("error"),
		AdminState: r.Text("admin_state"), LinkState: r.Text("link_state"), MTU: r.Number("mtu", 0),
		MTURequest: r.Number("mtu_request", 0), MACInUse: r.Text("mac_in_use"), BFD: r.Strings("bfd"),
		BFDStatus: r.Strings("bfd_status")}
}

func readManager(id ovsdb.UUID, r *ovsdb.RowReader) *Manager {
	return &Manager{UUID: id, Target: r.Text("target"), IsConnected: r.Truth("is_connected"),
		ExternalIDs: r.Strings("external_ids")}
}

func readSSL(id ovsdb.UUID, r *ovsdb.RowReader) *SSL {
	return &SSL{UUID: id, PrivateKey: r.Text("private_key"), Certificate: r.Text("certificate"), CACert: r.Text("ca_cert"),
		ExternalIDs: r.Strings("external_ids")}
}
