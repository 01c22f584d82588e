package model

var tunnelClass = Class{
	Name: "tunnel", Role: PoolOperator,
	Doc: "A tunnel joins a host to a private network: its access PIF is on the network, its traffic leaves by the transport PIF. The controller links the hosts of a network and says so in status.",
	Fields: []Field{
		uuid(),
		fixed("access_PIF", ref("PIF")).says("the PIF on the private network"),
		fixed("transport_PIF", ref("PIF")).says("the PIF that the traffic leaves by"),
		{Name: "status", Type: pairs, Access: Writable, Default: map[string]string{"active": "false"}, SetRole: TunnelController,
			Doc: "written by the controller: active always; key, error, heddle:role, heddle:center when they apply"},
		open("other_config", pairs),
		fixed("protocol", enum("gre", "vxlan"), "gre").says("fixed for the life of the tunnel"),
	},
	Messages: []Message{
		{Name: "create", Doc: "Make a tunnel for the transport PIF's host on a network, with a new access PIF, and plug that. On failure nothing is left.",
			Params: []Param{need("transport_PIF", ref("PIF")), need("network", ref("network")), may("protocol", enum("gre", "vxlan"), "gre")}, Result: ref("tunnel"), Async: true,
			Errors: []string{"HOST_OFFLINE", "NETWORK_UNMANAGED", "NETWORK_ALREADY_CONNECTED", "PIF_UNMANAGED", "CANNOT_ADD_TUNNEL_TO_BOND_SLAVE", "IS_TUNNEL_ACCESS_PIF", "OPENVSWITCH_NOT_ACTIVE", "TRANSPORT_PIF_NOT_CONFIGURED"}},
		{Name: "destroy", Doc: "Unplug the access PIF, then remove it and the tunnel.",
			Params: self("tunnel"), Async: true, Errors: unplugErrors},
	},
}

// unplugErrors lists the errors of PIF.unplug.
var unplugErrors = []string{"PIF_UNMANAGED", "HA_IS_ENABLED", "PIF_IS_MANAGEMENT_INTERFACE", "VIF_IN_USE", "PIF_DOES_NOT_ALLOW_UNPLUG", "HOST_OFFLINE"}

var (
	ipModes   = enum("None", "DHCP", "Static")
	ipv6Modes = enum("None", "DHCP", "Static", "Autoconf")

	addressTypes = enum("IPv4", "IPv6")
)

var pifClass = Class{
	Name: "PIF", Role: PoolOperator,
	Doc: "A host's interface on a network: a physical one, a bond's master, a VLAN, or the access PIF of a tunnel.",
	Fields: []Field{
		uuid(),
		fixed("device", text),
		fixed("network", ref("network")),
		fixed("host", ref("host")),
		fixed("MAC", text),
		fixed("MTU", number).says("bytes; -1 on an access PIF until it is first plugged"),
		fixed("VLAN", number, int64(-1)).says("the tag; -1 for none"),
		kept("metrics", ref("PIF_metrics")).says("an access PIF has those of its transport"),
		kept("physical", truth),
		kept("currently_attached", truth).says("whether it is plugged"),
		kept("ip_configuration_mode", ipModes, "None"),
		kept("IP", text),
		kept("netmask", text),
		kept("gateway", text),
		kept("DNS", text).says("separated by commas"),
		kept("bond_slave_of", ref("Bond")),
		far("bond_master_of", refs("Bond"), "Bond", "master"),
		far("VLAN_master_of", ref("VLAN"), "VLAN", "untagged_PIF"),
		far("VLAN_slave_of", refs("VLAN"), "VLAN", "tagged_PIF"),
		kept("management", truth),
		open("other_config", pairs),
		kept("disallow_unplug", truth).says("changed by set_disallow_unplug"),
		far("tunnel_access_PIF_of", refs("tunnel"), "tunnel", "access_PIF"),
		far("tunnel_transport_PIF_of", refs("tunnel"), "tunnel", "transport_PIF"),
		kept("ipv6_configuration_mode", ipv6Modes, "None"),
		kept("IPv6", texts),
		kept("ipv6_gateway", text),
		kept("primary_address_type", addressTypes, "IPv4"),
		fixed("managed", truth, true),
		kept("properties", pairs),
		kept("capabilities", texts),
		kept("igmp_snooping_status", enum("enabled", "disabled", "unknown"), "unknown"),
		kept("sriov_physical_PIF_of", refs("network_sriov")),
		kept("sriov_logical_PIF_of", refs("network_sriov")),
		kept("PCI", ref("PCI")),
	},
	Messages: []Message{
		{Name: "plug", Doc: "Attach it; of an access PIF, plug the transport first and then make the network's bridge on the host.",
			Params: self("PIF"), Async: true, Errors: []string{"PIF_UNMANAGED", "CANNOT_PLUG_BOND_SLAVE", "TRANSPORT_PIF_NOT_CONFIGURED", "HOST_OFFLINE"}},
		{Name: "unplug", Doc: "Detach it; of a transport, unplug the access PIFs above it first. The bridge of an access PIF goes.",
			Params: self("PIF"), Async: true, Errors: unplugErrors},
		{Name: "forget", Doc: "Remove the record of a physical interface.",
			Params: self("PIF"), Async: true, Errors: forgetErrors},
		{Name: "scan", Doc: "Make PIFs for the host's interfaces that have none.",
			Params: []Param{need("host", ref("host"))}, Async: true, Errors: []string{"HOST_OFFLINE"}},
		{Name: "introduce", Doc: "Make the PIF of an interface that the host has, on a new network.",
			Params: []Param{need("host", ref("host")), need("MAC", text), need("device", text), may("managed", truth, true)}, Result: ref("PIF"), Async: true,
			Errors: []string{"MAC_INVALID", "DUPLICATE_PIF_DEVICE_NAME"}},
		{Name: "reconfigure_ip", Doc: "Change how it has its IPv4 address; at once if it is attached. IP, netmask and gateway are read in mode Static.",
			Params: append(self("PIF"), need("mode", ipModes), need("IP", text), need("netmask", text), need("gateway", text), need("DNS", text)), Async: true,
			Errors: []string{"PIF_UNMANAGED", "HA_IS_ENABLED", "INVALID_IP_ADDRESS_SPECIFIED", "PIF_IS_MANAGEMENT_INTERFACE"}},
		{Name: "reconfigure_ipv6", Doc: "Change how it has its IPv6 address; at once if it is attached.",
			Params: append(self("PIF"), need("mode", ipv6Modes), need("IPv6", text), need("gateway", text), need("DNS", text)), Async: true,
			Errors: []string{"PIF_UNMANAGED", "HA_IS_ENABLED", "INVALID_IP_ADDRESS_SPECIFIED", "PIF_IS_MANAGEMENT_INTERFACE"}},
		{Name: "set_primary_address_type", Doc: "Say which kind of address the host is spoken to by.",
			Params: append(self("PIF"), need("primary_address_type", addressTypes)), Async: true},
		{Name: "set_disallow_unplug", Doc: "Say whether unplugging it is refused.",
			Params: append(self("PIF"), need("value", truth))},
		{Name: "set_property", Doc: "Set one of its properties.",
			Params: append(self("PIF"), need("name", text), need("value", text)), Async: true, Errors: []string{"INVALID_VALUE"}},
		{Name: "db_introduce", Doc: "Make a record alone; the host is not asked, and what it reports counts.",
			Params: pifRecord, Result: ref("PIF"), Async: true, Errors: []string{"MAC_INVALID", "INVALID_VALUE", "VLAN_TAG_INVALID", "NETWORK_ALREADY_CONNECTED", "DUPLICATE_PIF_DEVICE_NAME"}},
		{Name: "db_forget", Doc: "Remove a record alone; the host is not asked.",
			Params: self("PIF"), Async: true, Errors: forgetErrors},
		{Name: "create_VLAN", Doc: "Make a VLAN on the device of a host. Deprecated: use VLAN.create.",
			Params: []Param{need("device", text), need("network", ref("network")), need("host", ref("host")), need("VLAN", number)}, Result: ref("PIF"), Async: true, Errors: vlanErrors},
		{Name: "destroy", Doc: "Remove a VLAN's PIF and the VLAN. Deprecated: use VLAN.destroy.",
			Params: self("PIF"), Async: true, Errors: append([]string{"PIF_IS_PHYSICAL", "IS_TUNNEL_ACCESS_PIF", "PIF_TUNNEL_STILL_EXISTS"}, unplugErrors...)},
	},
}

// forgetErrors lists the errors of PIF.forget, in the order of its checks.
var forgetErrors = []string{"PIF_IS_MANAGEMENT_INTERFACE", "PIF_ALREADY_BONDED", "PIF_VLAN_STILL_EXISTS", "PIF_TUNNEL_STILL_EXISTS", "VIF_IN_USE"}

// pifRecord lists the parameters of PIF.db_introduce.
var pifRecord = []Param{
	need("device", text), need("network", ref("network")), need("host", ref("host")), need("MAC", text), need("MTU", number), need("VLAN", number), need("physical", truth),
	need("ip_configuration_mode", ipModes), need("IP", text), need("netmask", text), need("gateway", text), need("DNS", text), need("bond_slave_of", ref("Bond")),
	need("VLAN_master_of", ref("VLAN")), need("management", truth), may("other_config", pairs, map[string]string{}), may("disallow_unplug", truth, false),
	may("ipv6_configuration_mode", ipv6Modes, "None"), may("IPv6", texts, []string{""}), may("ipv6_gateway", text, ""), may("primary_address_type", addressTypes, "IPv4"),
	may("managed", truth, true), may("properties", pairs, map[string]string{}),
}

// vlanErrors lists the errors of VLAN.create, in the order of its checks.
var vlanErrors = []string{"HOST_OFFLINE", "NETWORK_UNMANAGED", "NETWORK_ALREADY_CONNECTED", "PIF_UNMANAGED", "CANNOT_ADD_VLAN_TO_BOND_SLAVE", "PIF_IS_VLAN", "IS_TUNNEL_ACCESS_PIF", "VLAN_TAG_INVALID", "PIF_VLAN_EXISTS"}

var pifMetricsClass = Class{
	Name: "PIF_metrics", Role: PoolOperator,
	Doc: "What a host measures of a PIF.",
	Fields: []Field{
		uuid(),
		kept("io_read_kbs", float),
		kept("io_write_kbs", float),
		kept("carrier", truth).says("whether the link is up"),
		kept("vendor_id", text),
		kept("vendor_name", text),
		kept("device_id", text),
		kept("device_name", text),
		kept("speed", number).says("Mbit/s"),
		kept("duplex", truth),
		kept("pci_bus_path", text),
		kept("last_updated", moment),
		open("other_config", pairs),
	},
}

var networkClass = Class{
	Name: "network", Role: VMAdmin,
	Doc: "A network that PIFs and VIFs are on. One without PIFs joins the VMs of one host alone.",
	Fields: fields([]Field{uuid()}, naming(), operations(), []Field{
		far("VIFs", refs("VIF"), "VIF", "network"),
		far("PIFs", refs("PIF"), "PIF", "network"),
		open("MTU", number, int64(1500)).says("bytes"),
		open("other_config", pairs).says("heddle:preferred-center and xo:sdn-controller:preferred-center name the host (UUID) to switch at; heddle:auto-revert=true goes back to it"),
		fixed("bridge", text).says("the name of the bridge on each host; \"\" at creation: the server picks xapiN"),
		fixed("managed", truth, true),
		kept("blobs", pairs),
		open("tags", texts),
		kept("default_locking_mode", enum("unlocked", "disabled"), "unlocked"),
		kept("assigned_ips", pairs),
		kept("purpose", setOf(enum("nbd", "insecure_nbd"))),
	}),
	Messages: []Message{
		{Name: "create", Doc: "Make a network. Members that are left out have the fields' defaults; an MTU of 0 or less means 1500.",
			Params: []Param{need("args", Type{Kind: RecordOf, Class: "network"})}, Result: ref("network"), Async: true, Errors: []string{"INVALID_VALUE", "BRIDGE_NAME_EXISTS"}},
		{Name: "destroy", Doc: "Remove a network that has neither PIFs nor VIFs.",
			Params: self("network"), Async: true, Errors: []string{"NETWORK_CONTAINS_VIF", "NETWORK_CONTAINS_PIF"}},
		{Name: "set_default_locking_mode", Doc: "Say how VIFs behave whose locking mode is network_default.",
			Params: append([]Param{need("network", ref("network"))}, need("value", enum("unlocked", "disabled"))), Async: true},
		{Name: "add_purpose", Doc: "Add a purpose, unless it is there.",
			Params: append(self("network"), need("value", enum("nbd", "insecure_nbd"))), Async: true},
		{Name: "attach", Doc: "Make the network's bridge on a host.",
			Params: []Param{need("network", ref("network")), need("host", ref("host"))}, Role: PoolOperator, Async: true, Errors: []string{"HOST_OFFLINE"}},
		{Name: "remove_purpose", Doc: "Remove a purpose, if it is there.",
			Params: append(self("network"), need("value", enum("nbd", "insecure_nbd"))), Async: true},
	},
}

var vlanClass = Class{
	Name: "VLAN", Role: PoolOperator,
	Doc: "A VLAN: frames of its untagged PIF have the tag on the tagged PIF.",
	Fields: []Field{
		uuid(),
		fixed("tagged_PIF", ref("PIF")),
		kept("untagged_PIF", ref("PIF")),
		fixed("tag", number, int64(-1)),
		open("other_config", pairs),
	},
	Messages: []Message{
		{Name: "create", Doc: "Make a VLAN on a PIF, with a new PIF on the network, and plug that.",
			Params: []Param{need("tagged_PIF", ref("PIF")), need("tag", number), need("network", ref("network"))}, Result: ref("VLAN"), Async: true,
			Errors: vlanErrors},
		{Name: "destroy", Doc: "Unplug the untagged PIF, then remove it and the VLAN.",
			Params: self("VLAN"), Async: true, Errors: unplugErrors},
	},
}

var bondModes = enum("balance-slb", "active-backup", "lacp")

var bondClass = Class{
	Name: "Bond", Role: PoolOperator,
	Doc: "Several physical PIFs of a host joined to one.",
	Fields: []Field{
		uuid(),
		fixed("master", ref("PIF")),
		far("slaves", refs("PIF"), "PIF", "bond_slave_of"),
		open("other_config", pairs),
		kept("primary_slave", ref("PIF")),
		kept("mode", bondModes, "balance-slb"),
		kept("properties", pairs),
		kept("links_up", number).says("how many members have a link"),
		kept("auto_update_mac", truth, true),
	},
	Messages: []Message{
		{Name: "create", Doc: "Join PIFs of one host to a bond on a network. Tunnels on a member move to the bond. An empty MAC means that of the primary member.",
			Params: []Param{need("network", ref("network")), need("members", refs("PIF")), need("MAC", text), may("mode", bondModes, "balance-slb"), may("properties", pairs, map[string]string{})},
			Result: ref("Bond"), Async: true, Errors: []string{"NETWORK_ALREADY_CONNECTED", "PIF_ALREADY_BONDED", "PIF_VLAN_STILL_EXISTS", "IS_TUNNEL_ACCESS_PIF", "MAC_INVALID", "PIF_UNMANAGED", "PIF_BOND_NEEDS_MORE_MEMBERS", "PIF_CANNOT_BOND_CROSS_HOST"}},
		{Name: "destroy", Doc: "Take a bond apart. Its tunnels move to the primary member.",
			Params: self("Bond"), Async: true, Errors: unplugErrors},
		{Name: "set_mode", Doc: "Change how the members share the traffic.",
			Params: append(self("Bond"), need("value", bondModes)), Async: true},
		{Name: "set_property", Doc: "Set one of its properties.",
			Params: append(self("Bond"), need("name", text), need("value", text)), Async: true},
	},
}

var vifClass = Class{
	Name: "VIF", Role: VMAdmin,
	Doc: "A VM's interface on a network.",
	Fields: fields([]Field{uuid()}, operations(), []Field{
		fixed("device", text).says("its number, in decimal"),
		fixed("network", ref("network")),
		fixed("VM", ref("VM")),
		fixed("MAC", text),
		fixed("MTU", number).says("bytes"),
		open("other_config", pairs),
		kept("currently_attached", truth),
		kept("status_code", number),
		kept("status_detail", text),
		kept("runtime_properties", pairs),
		open("qos_algorithm_type", text),
		open("qos_algorithm_params", pairs),
		kept("qos_supported_algorithms", texts),
		kept("metrics", ref("VIF_metrics")),
		kept("MAC_autogenerated", truth),
		operators(open("locking_mode", enum("network_default", "locked", "unlocked", "disabled"), "network_default")),
		operators(open("ipv4_allowed", texts)),
		operators(open("ipv6_allowed", texts)),
		kept("ipv4_configuration_mode", enum("None", "Static"), "None"),
		kept("ipv4_addresses", texts),
		kept("ipv4_gateway", text),
		kept("ipv6_configuration_mode", enum("None", "Static"), "None"),
		kept("ipv6_addresses", texts),
		kept("ipv6_gateway", text),
		kept("trunks", setOf(number)),
	}),
	Messages: []Message{
		{Name: "create", Doc: "Make a VIF. An empty MAC is made up.",
			Params: []Param{need("args", Type{Kind: RecordOf, Class: "VIF"})}, Result: ref("VIF"), Async: true, Errors: []string{"DEVICE_ALREADY_EXISTS", "INVALID_DEVICE", "MAC_INVALID"}},
		{Name: "destroy", Doc: "Remove a VIF that is not attached.",
			Params: self("VIF"), Async: true, Errors: []string{"OPERATION_NOT_ALLOWED"}},
		{Name: "plug", Doc: "Attach it to its network's bridge on the VM's host. On a tunnel network this plugs the host's access PIF first if need be.",
			Params: self("VIF"), Async: true, Errors: []string{"VM_BAD_POWER_STATE", "DEVICE_ALREADY_ATTACHED"}},
		{Name: "unplug", Doc: "Detach it.",
			Params: self("VIF"), Async: true, Errors: []string{"VM_BAD_POWER_STATE", "DEVICE_ALREADY_DETACHED"}},
		{Name: "unplug_force", Doc: "Detach it without asking the VM.",
			Params: self("VIF"), Async: true},
		{Name: "move", Doc: "Take it to another network.",
			Params: append(self("VIF"), need("network", ref("network"))), Async: true},
	},
}
