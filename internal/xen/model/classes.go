package model

import "time"

// Types that the table below is written with.
var (
	text   = Type{Kind: String}
	number = Type{Kind: Int}
	float  = Type{Kind: Float}
	truth  = Type{Kind: Bool}
	moment = Type{Kind: Time}
	texts  = setOf(text)
	pairs  = mapOf(text)
)

func ref(class string) Type      { return Type{Kind: Ref, Class: class} }
func refs(class string) Type     { return setOf(ref(class)) }
func setOf(t Type) Type          { return Type{Kind: Set, Elem: &t} }
func mapOf(t Type) Type          { return Type{Kind: Map, Elem: &t} }
func enum(values ...string) Type { return Type{Kind: Enum, Values: values} }

// Fields by their access: fixed at creation, kept by the system, written by clients; far is the other side of a field.
func fixed(name string, t Type, def ...any) Field { return field(name, t, Constructed, def) }
func kept(name string, t Type, def ...any) Field  { return field(name, t, Dynamic, def) }
func open(name string, t Type, def ...any) Field  { return field(name, t, Writable, def) }
func far(name string, t Type, class, of string) Field {
	return Field{Name: name, Type: t, Access: Dynamic, Far: &Far{class, of}}
}

func field(name string, t Type, a Access, def []any) Field {
	f := Field{Name: name, Type: t, Access: a}
	if len(def) > 0 {
		f.Default = def[0]
	}
	return f
}

// operators is the field, which only a pool's operators may write.
func operators(f Field) Field {
	f.SetRole = PoolOperator
	return f
}

// uuid is the field that every class has.
func uuid() Field { return fixed("uuid", text) }

// operations are the fields of what may be done with an object and what is under way.
func operations() []Field {
	return []Field{kept("allowed_operations", texts), kept("current_operations", pairs)}
}

func fields(lists ...[]Field) []Field {
	var all []Field
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// naming are the fields by which people know an object.
func naming() []Field { return []Field{open("name_label", text), open("name_description", text)} }

var tunnelClass = Class{
	Name: "tunnel", Role: PoolOperator,
	Fields: []Field{
		uuid(),
		fixed("access_PIF", ref("PIF")),
		fixed("transport_PIF", ref("PIF")),
		{Name: "status", Type: pairs, Access: Writable, Default: map[string]string{"active": "false"}, SetRole: TunnelController},
		open("other_config", pairs),
		fixed("protocol", enum("gre", "vxlan"), "gre"),
	},
	Messages: []Message{
		{Name: "create", Params: []Param{need("transport_PIF", ref("PIF")), need("network", ref("network")), may("protocol", enum("gre", "vxlan"), "gre")}, Result: ref("tunnel"), Async: true,
			Errors: []string{"HOST_OFFLINE", "NETWORK_UNMANAGED", "NETWORK_ALREADY_CONNECTED", "PIF_UNMANAGED", "CANNOT_ADD_TUNNEL_TO_BOND_SLAVE", "IS_TUNNEL_ACCESS_PIF", "OPENVSWITCH_NOT_ACTIVE", "TRANSPORT_PIF_NOT_CONFIGURED"}},
		{Name: "destroy", Params: self("tunnel"), Async: true, Errors: unplugErrors},
	},
}

// unplugErrors are what PIF.unplug may answer.
var unplugErrors = []string{"PIF_UNMANAGED", "HA_IS_ENABLED", "PIF_IS_MANAGEMENT_INTERFACE", "VIF_IN_USE", "PIF_DOES_NOT_ALLOW_UNPLUG", "HOST_OFFLINE"}

func need(name string, t Type) Param { return Param{Name: name, Type: t} }
func may(name string, t Type, def any) Param {
	return Param{Name: name, Type: t, Optional: true, Default: def}
}
func self(class string) []Param { return []Param{need("self", ref(class))} }

var (
	ipModes   = enum("None", "DHCP", "Static")
	ipv6Modes = enum("None", "DHCP", "Static", "Autoconf")

	addressTypes = enum("IPv4", "IPv6")
)

var pifClass = Class{
	Name: "PIF", Role: PoolOperator,
	Fields: []Field{
		uuid(),
		fixed("device", text),
		fixed("network", ref("network")),
		fixed("host", ref("host")),
		fixed("MAC", text),
		fixed("MTU", number),
		fixed("VLAN", number, int64(-1)),
		kept("metrics", ref("PIF_metrics")),
		kept("physical", truth),
		kept("currently_attached", truth),
		kept("ip_configuration_mode", ipModes, "None"),
		kept("IP", text),
		kept("netmask", text),
		kept("gateway", text),
		kept("DNS", text),
		kept("bond_slave_of", ref("Bond")),
		far("bond_master_of", refs("Bond"), "Bond", "master"),
		far("VLAN_master_of", ref("VLAN"), "VLAN", "untagged_PIF"),
		far("VLAN_slave_of", refs("VLAN"), "VLAN", "tagged_PIF"),
		kept("management", truth),
		open("other_config", pairs),
		kept("disallow_unplug", truth),
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
		{Name: "plug", Params: self("PIF"), Async: true, Errors: []string{"PIF_UNMANAGED", "CANNOT_PLUG_BOND_SLAVE", "TRANSPORT_PIF_NOT_CONFIGURED", "HOST_OFFLINE"}},
		{Name: "unplug", Params: self("PIF"), Async: true, Errors: unplugErrors},
		{Name: "forget", Params: self("PIF"), Async: true, Errors: []string{"PIF_IS_MANAGEMENT_INTERFACE", "PIF_ALREADY_BONDED", "PIF_VLAN_STILL_EXISTS", "PIF_TUNNEL_STILL_EXISTS"}},
		{Name: "scan", Params: []Param{need("host", ref("host"))}, Async: true, Errors: []string{"HOST_OFFLINE"}},
		{Name: "introduce", Params: []Param{need("host", ref("host")), need("MAC", text), need("device", text), may("managed", truth, true)}, Result: ref("PIF"), Async: true,
			Errors: []string{"MAC_INVALID", "DUPLICATE_PIF_DEVICE_NAME"}},
		{Name: "reconfigure_ip", Params: append(self("PIF"), need("mode", ipModes), need("IP", text), need("netmask", text), need("gateway", text), need("DNS", text)), Async: true,
			Errors: []string{"PIF_UNMANAGED", "HA_IS_ENABLED", "INVALID_IP_ADDRESS_SPECIFIED", "PIF_IS_MANAGEMENT_INTERFACE"}},
		{Name: "reconfigure_ipv6", Params: append(self("PIF"), need("mode", ipv6Modes), need("IPv6", text), need("gateway", text), need("DNS", text)), Async: true,
			Errors: []string{"PIF_UNMANAGED", "HA_IS_ENABLED", "INVALID_IP_ADDRESS_SPECIFIED", "PIF_IS_MANAGEMENT_INTERFACE"}},
		{Name: "set_primary_address_type", Params: append(self("PIF"), need("primary_address_type", addressTypes)), Async: true},
		{Name: "set_disallow_unplug", Params: append(self("PIF"), need("value", truth))},
		{Name: "set_property", Params: append(self("PIF"), need("name", text), need("value", text)), Async: true, Errors: []string{"INVALID_VALUE"}},
		{Name: "db_introduce", Params: pifRecord, Result: ref("PIF"), Async: true, Errors: []string{"MAC_INVALID", "DUPLICATE_PIF_DEVICE_NAME"}},
		{Name: "db_forget", Params: self("PIF"), Async: true, Errors: []string{"PIF_TUNNEL_STILL_EXISTS"}},
		{Name: "create_VLAN", Params: []Param{need("device", text), need("network", ref("network")), need("host", ref("host")), need("VLAN", number)}, Result: ref("PIF"), Async: true, Errors: vlanErrors},
		{Name: "destroy", Params: self("PIF"), Async: true, Errors: append([]string{"PIF_IS_PHYSICAL"}, unplugErrors...)},
	},
}

// pifRecord is what PIF.db_introduce takes, in order: all that a record needs from the first to the management flag.
var pifRecord = []Param{
	need("device", text), need("network", ref("network")), need("host", ref("host")), need("MAC", text), need("MTU", number), need("VLAN", number), need("physical", truth),
	need("ip_configuration_mode", ipModes), need("IP", text), need("netmask", text), need("gateway", text), need("DNS", text), need("bond_slave_of", ref("Bond")),
	need("VLAN_master_of", ref("VLAN")), need("management", truth), may("other_config", pairs, map[string]string{}), may("disallow_unplug", truth, false),
	may("ipv6_configuration_mode", ipv6Modes, "None"), may("IPv6", texts, []string{""}), may("ipv6_gateway", text, ""), may("primary_address_type", addressTypes, "IPv4"),
	may("managed", truth, true), may("properties", pairs, map[string]string{}),
}

// vlanErrors are what VLAN.create may answer, in the order of its checks.
var vlanErrors = []string{"HOST_OFFLINE", "NETWORK_UNMANAGED", "NETWORK_ALREADY_CONNECTED", "PIF_UNMANAGED", "CANNOT_ADD_VLAN_TO_BOND_SLAVE", "PIF_IS_VLAN", "IS_TUNNEL_ACCESS_PIF", "VLAN_TAG_INVALID", "PIF_VLAN_EXISTS"}

var pifMetricsClass = Class{
	Name: "PIF_metrics", Role: PoolOperator,
	Fields: []Field{
		uuid(), kept("io_read_kbs", float), kept("io_write_kbs", float), kept("carrier", truth), kept("vendor_id", text), kept("vendor_name", text),
		kept("device_id", text), kept("device_name", text), kept("speed", number), kept("duplex", truth), kept("pci_bus_path", text),
		kept("last_updated", moment), open("other_config", pairs),
	},
}

var networkClass = Class{
	Name: "network", Role: VMAdmin,
	Fields: fields([]Field{uuid()}, naming(), operations(), []Field{
		far("VIFs", refs("VIF"), "VIF", "network"),
		far("PIFs", refs("PIF"), "PIF", "network"),
		open("MTU", number, int64(1500)),
		open("other_config", pairs),
		fixed("bridge", text),
		fixed("managed", truth, true),
		kept("blobs", pairs),
		open("tags", texts),
		kept("default_locking_mode", enum("unlocked", "disabled"), "unlocked"),
		kept("assigned_ips", pairs),
		kept("purpose", setOf(enum("nbd", "insecure_nbd"))),
	}),
	Messages: []Message{
		{Name: "create", Params: []Param{need("args", Type{Kind: RecordOf, Class: "network"})}, Result: ref("network"), Async: true, Errors: []string{"INVALID_VALUE", "BRIDGE_NAME_EXISTS"}},
		{Name: "destroy", Params: self("network"), Async: true, Errors: []string{"NETWORK_CONTAINS_VIF", "NETWORK_CONTAINS_PIF"}},
		{Name: "set_default_locking_mode", Params: append([]Param{need("network", ref("network"))}, need("value", enum("unlocked", "disabled"))), Async: true},
		{Name: "add_purpose", Params: append(self("network"), need("value", enum("nbd", "insecure_nbd"))), Async: true},
		{Name: "attach", Params: []Param{need("network", ref("network")), need("host", ref("host"))}, Role: PoolOperator, Async: true, Errors: []string{"HOST_OFFLINE"}},
		{Name: "remove_purpose", Params: append(self("network"), need("value", enum("nbd", "insecure_nbd"))), Async: true},
	},
}

var vlanClass = Class{
	Name: "VLAN", Role: PoolOperator,
	Fields: []Field{
		uuid(), fixed("tagged_PIF", ref("PIF")), kept("untagged_PIF", ref("PIF")), fixed("tag", number, int64(-1)), open("other_config", pairs),
	},
	Messages: []Message{
		{Name: "create", Params: []Param{need("tagged_PIF", ref("PIF")), need("tag", number), need("network", ref("network"))}, Result: ref("VLAN"), Async: true,
			Errors: vlanErrors},
		{Name: "destroy", Params: self("VLAN"), Async: true, Errors: unplugErrors},
	},
}

var bondModes = enum("balance-slb", "active-backup", "lacp")

var bondClass = Class{
	Name: "Bond", Role: PoolOperator,
	Fields: []Field{
		uuid(), fixed("master", ref("PIF")), far("slaves", refs("PIF"), "PIF", "bond_slave_of"), open("other_config", pairs), kept("primary_slave", ref("PIF")),
		kept("mode", bondModes, "balance-slb"), kept("properties", pairs), kept("links_up", number), kept("auto_update_mac", truth, true),
	},
	Messages: []Message{
		{Name: "create", Params: []Param{need("network", ref("network")), need("members", refs("PIF")), need("MAC", text), may("mode", bondModes, "balance-slb"), may("properties", pairs, map[string]string{})},
			Result: ref("Bond"), Async: true, Errors: []string{"NETWORK_ALREADY_CONNECTED", "PIF_ALREADY_BONDED", "PIF_VLAN_STILL_EXISTS", "IS_TUNNEL_ACCESS_PIF", "MAC_INVALID", "PIF_UNMANAGED"}},
		{Name: "destroy", Params: self("Bond"), Async: true, Errors: unplugErrors},
		{Name: "set_mode", Params: append(self("Bond"), need("value", bondModes)), Async: true},
		{Name: "set_property", Params: append(self("Bond"), need("name", text), need("value", text)), Async: true},
	},
}

var vifClass = Class{
	Name: "VIF", Role: VMAdmin,
	Fields: fields([]Field{uuid()}, operations(), []Field{
		fixed("device", text), fixed("network", ref("network")), fixed("VM", ref("VM")), fixed("MAC", text), fixed("MTU", number), open("other_config", pairs),
		kept("currently_attached", truth), kept("status_code", number), kept("status_detail", text), kept("runtime_properties", pairs),
		open("qos_algorithm_type", text), open("qos_algorithm_params", pairs), kept("qos_supported_algorithms", texts), kept("metrics", ref("VIF_metrics")), kept("MAC_autogenerated", truth),
		operators(open("locking_mode", enum("network_default", "locked", "unlocked", "disabled"), "network_default")), operators(open("ipv4_allowed", texts)), operators(open("ipv6_allowed", texts)),
		kept("ipv4_configuration_mode", enum("None", "Static"), "None"), kept("ipv4_addresses", texts), kept("ipv4_gateway", text),
		kept("ipv6_configuration_mode", enum("None", "Static"), "None"), kept("ipv6_addresses", texts), kept("ipv6_gateway", text), kept("trunks", setOf(number)),
	}),
	Messages: []Message{
		{Name: "create", Params: []Param{need("args", Type{Kind: RecordOf, Class: "VIF"})}, Result: ref("VIF"), Async: true, Errors: []string{"DEVICE_ALREADY_EXISTS", "INVALID_DEVICE", "MAC_INVALID"}},
		{Name: "destroy", Params: self("VIF"), Async: true, Errors: []string{"OPERATION_NOT_ALLOWED"}},
		{Name: "plug", Params: self("VIF"), Async: true, Errors: []string{"OPERATION_NOT_ALLOWED"}},
		{Name: "unplug", Params: self("VIF"), Async: true},
		{Name: "unplug_force", Params: self("VIF"), Async: true},
		{Name: "move", Params: append(self("VIF"), need("network", ref("network"))), Async: true},
	},
}

var hostClass = Class{
	Name: "host", Role: PoolOperator,
	Fields: fields([]Field{uuid()}, naming(), operations(), []Field{
		kept("API_version_major", number, int64(2)), kept("API_version_minor", number, int64(21)), kept("API_version_vendor", text, "Heddle"), kept("API_version_vendor_implementation", pairs),
		kept("enabled", truth, true), fixed("software_version", pairs), open("other_config", pairs), kept("capabilities", texts), kept("cpu_configuration", pairs), kept("sched_policy", text),
		kept("supported_bootloaders", texts), far("resident_VMs", refs("VM"), "VM", "resident_on"), open("logging", pairs), far("PIFs", refs("PIF"), "PIF", "host"),
		open("suspend_image_sr", ref("SR")), open("crash_dump_sr", ref("SR")), kept("crashdumps", refs("host_crashdump")), kept("patches", refs("host_patch")), kept("updates", refs("pool_update")), kept("PBDs", refs("PBD")),
		kept("host_CPUs", refs("host_cpu")), kept("cpu_info", pairs), kept("hostname", text), kept("address", text), kept("metrics", ref("host_metrics")), kept("license_params", pairs),
		kept("ha_statefiles", texts), kept("ha_network_peers", texts), kept("blobs", pairs), open("tags", texts), kept("external_auth_type", text), kept("external_auth_service_name", text),
		kept("edition", text), open("license_server", pairs), kept("bios_strings", pairs), kept("power_on_mode", text), kept("power_on_config", pairs), kept("local_cache_sr", ref("SR")),
		kept("chipset_info", pairs), kept("virtual_hardware_platform_versions", setOf(number)), kept("control_domain", ref("VM")), kept("display", enum("enabled", "disable_on_reboot", "disabled", "enable_on_reboot"), "disabled"),
		kept("ssl_legacy", truth), kept("iscsi_iqn", text), kept("multipathing", truth),
	}),
	Messages: []Message{
		{Name: "enable", Params: []Param{need("host", ref("host"))}, Async: true},
		{Name: "disable", Params: []Param{need("host", ref("host"))}, Async: true},
		{Name: "get_management_interface", Params: []Param{need("host", ref("host"))}, Result: ref("PIF"), Role: ReadOnly},
		{Name: "management_reconfigure", Params: []Param{need("pif", ref("PIF"))}, Async: true, Errors: []string{"PIF_UNMANAGED"}},
		{Name: "destroy", Params: self("host"), Async: true, Errors: []string{"OPERATION_NOT_ALLOWED"}},
		{Name: "declare_dead", Params: []Param{need("host", ref("host"))}, Async: true, Errors: []string{"OPERATION_NOT_ALLOWED"}},
		{Name: "sync_vlans", Params: []Param{need("host", ref("host"))}, Errors: []string{"HOST_OFFLINE"}},
		{Name: "sync_tunnels", Params: []Param{need("host", ref("host"))}, Errors: []string{"HOST_OFFLINE"}},
	},
}

var hostMetricsClass = Class{
	Name: "host_metrics", Role: PoolOperator,
	Fields: []Field{uuid(), kept("memory_total", number), kept("memory_free", number), kept("live", truth), kept("last_updated", moment), open("other_config", pairs)},
}

var poolClass = Class{
	Name: "pool", Role: PoolOperator,
	Fields: fields([]Field{uuid()}, naming(), []Field{
		kept("master", ref("host")), open("default_SR", ref("SR")), open("suspend_image_SR", ref("SR")), open("crash_dump_SR", ref("SR")), open("other_config", pairs),
		kept("ha_enabled", truth), kept("ha_configuration", pairs), kept("ha_statefiles", texts), kept("ha_host_failures_to_tolerate", number), kept("ha_plan_exists_for", number), open("ha_allow_overcommit", truth),
		kept("ha_overcommitted", truth), kept("blobs", pairs), open("tags", texts), open("gui_config", pairs), kept("wlb_url", text), kept("wlb_username", text), kept("wlb_enabled", truth), kept("wlb_verify_cert", truth),
		kept("redo_log_enabled", truth), kept("redo_log_vdi", ref("VDI")), kept("vswitch_controller", text), kept("restrictions", pairs), kept("metadata_VDIs", refs("VDI")), kept("ha_cluster_stack", text),
	}, operations(), []Field{
		kept("guest_agent_config", pairs), kept("cpu_info", pairs), kept("policy_no_vendor_device", truth), kept("live_patching_disabled", truth), kept("igmp_snooping_enabled", truth),
	}),
	Messages: []Message{
		{Name: "join", Params: []Param{need("master_address", text), need("master_username", text), need("master_password", text)}, Role: PoolOperator, Async: true,
			Errors: []string{"POOL_JOINING_HOST_MUST_HAVE_SAME_API_VERSION", "CANNOT_CONTACT_HOST", "SESSION_AUTHENTICATION_FAILED"}},
		{Name: "join_force", Params: []Param{need("master_address", text), need("master_username", text), need("master_password", text)}, Role: PoolOperator, Async: true},
		{Name: "eject", Params: []Param{need("host", ref("host"))}, Async: true, Errors: []string{"OPERATION_NOT_ALLOWED"}},
		{Name: "create_VLAN_from_PIF", Params: []Param{need("pif", ref("PIF")), need("network", ref("network")), need("VLAN", number)}, Result: refs("PIF"), Async: true},
		{Name: "create_VLAN", Params: []Param{need("device", text), need("network", ref("network")), need("VLAN", number)}, Result: refs("PIF"), Async: true},
		{Name: "designate_new_master", Params: []Param{need("host", ref("host"))}, Async: true, Errors: []string{"HOST_OFFLINE"}},
		{Name: "set_vswitch_controller", Params: []Param{need("address", text)}, Async: true},
	},
}

var vmClass = Class{
	Name: "VM", Role: VMAdmin,
	Fields: fields([]Field{uuid()}, naming(), operations(), []Field{
		kept("power_state", enum("Halted", "Paused", "Running", "Suspended"), "Halted"), fixed("user_version", number), open("is_a_template", truth), kept("is_a_snapshot", truth), kept("is_control_domain", truth),
		kept("resident_on", ref("host")), open("affinity", ref("host")), far("VIFs", refs("VIF"), "VIF", "VM"), kept("domid", number, int64(-1)), open("other_config", pairs), open("tags", texts),
	}),
	Messages: []Message{
		{Name: "create", Params: []Param{need("args", Type{Kind: RecordOf, Class: "VM"})}, Result: ref("VM"), Async: true},
		{Name: "destroy", Params: self("VM"), Async: true, Errors: []string{"VM_BAD_POWER_STATE"}},
		{Name: "start", Params: []Param{need("vm", ref("VM")), need("start_paused", truth), need("force", truth)}, Role: VMOperator, Async: true, Errors: []string{"VM_BAD_POWER_STATE", "NO_HOSTS_AVAILABLE"}},
		{Name: "start_on", Params: []Param{need("vm", ref("VM")), need("host", ref("host")), need("start_paused", truth), need("force", truth)}, Role: VMPowerAdmin, Async: true, Errors: []string{"VM_BAD_POWER_STATE", "HOST_OFFLINE"}},
		{Name: "hard_shutdown", Params: []Param{need("vm", ref("VM"))}, Role: VMOperator, Async: true, Errors: []string{"VM_BAD_POWER_STATE"}},
		{Name: "clean_shutdown", Params: []Param{need("vm", ref("VM"))}, Role: VMOperator, Async: true, Errors: []string{"VM_BAD_POWER_STATE"}},
	},
}

var taskClass = Class{
	Name: "task", Role: ReadOnly,
	Fields: fields([]Field{uuid()}, []Field{fixed("name_label", text), fixed("name_description", text)}, operations(), []Field{
		kept("created", moment), kept("finished", moment, time.Unix(0, 0).UTC()), kept("status", enum("pending", "success", "failure", "cancelling", "cancelled"), "pending"), kept("resident_on", ref("host")),
		kept("progress", float), kept("type", text), kept("result", text), kept("error_info", texts), open("other_config", pairs), kept("subtask_of", ref("task")), far("subtasks", refs("task"), "task", "subtask_of"), kept("backtrace", text, "()"),
	}),
	Messages: []Message{
		{Name: "create", Params: []Param{need("label", text), need("description", text)}, Result: ref("task")},
		{Name: "destroy", Params: self("task")},
		{Name: "cancel", Params: []Param{need("task", ref("task"))}, Errors: []string{"OPERATION_NOT_ALLOWED"}},
	},
}

var sessionClass = Class{
	Name: "session", Role: ReadOnly, NoList: true,
	Fields: []Field{
		uuid(), kept("this_host", ref("host")), kept("this_user", ref("user")), kept("last_active", moment), kept("pool", truth), open("other_config", pairs), kept("is_local_superuser", truth),
		kept("subject", ref("subject")), kept("validation_time", moment), kept("auth_user_sid", text), kept("auth_user_name", text), kept("rbac_permissions", texts), kept("tasks", refs("task")),
		kept("parent", ref("session")), kept("originator", text), kept("client_certificate", truth),
	},
	Messages: []Message{
		{Name: "login_with_password", NoLogin: true, Params: []Param{need("uname", text), need("pwd", text), may("version", text, ""), may("originator", text, "")}, Result: ref("session"),
			Errors: []string{"SESSION_AUTHENTICATION_FAILED", "HOST_IS_SLAVE"}},
		{Name: "logout"},
	},
}

var eventClass = Class{
	Name: "event", Role: ReadOnly, NoList: true, Value: true,
	Fields: []Field{
		kept("id", number), kept("timestamp", text, "0.0"), kept("class", text), kept("operation", enum("add", "mod", "del")), kept("ref", text),
		{Name: "snapshot", Type: Type{Kind: RecordOf}, Access: Dynamic},
	},
	Messages: []Message{
		{Name: "register", Params: []Param{need("classes", texts)}, Errors: []string{"EVENT_SUBSCRIPTION_PARSE_FAILURE"}},
		{Name: "unregister", Params: []Param{need("classes", texts)}},
		{Name: "next", Result: setOf(Type{Kind: RecordOf, Class: "event"}), Errors: []string{"SESSION_NOT_REGISTERED", "EVENTS_LOST"}},
		{Name: "from", Params: []Param{need("classes", texts), need("token", text), need("timeout", float)}, Result: Type{Kind: RecordOf, Class: "event_batch"}, Errors: []string{"EVENT_FROM_TOKEN_PARSE_FAILURE", "EVENT_SUBSCRIPTION_PARSE_FAILURE"}},
		{Name: "inject", Params: []Param{need("class", text), need("ref", text)}, Result: text},
		{Name: "get_current_id", Result: number},
	},
}

// eventBatchClass is what event.from answers. Its counts are by class, in lower case.
var eventBatchClass = Class{
	Name: "event_batch", Role: ReadOnly, NoList: true, Value: true,
	Fields: []Field{
		kept("events", setOf(Type{Kind: RecordOf, Class: "event"})), kept("token", text), kept("valid_ref_counts", mapOf(number)),
	},
}

// systemClass holds the calls that are of no object.
var systemClass = Class{
	Name: "system", Role: ReadOnly, NoList: true,
	Messages: []Message{
		{Name: "listMethods", NoLogin: true, Result: texts},
		{Name: "isAlive", NoLogin: true, Result: truth},
	},
}

var roleClass = Class{
	Name: "role", Role: ReadOnly,
	Fields: []Field{uuid(), fixed("name_label", text), fixed("name_description", text), fixed("subroles", refs("role")), kept("is_internal", truth)},
}

var userClass = Class{
	Name: "user", Role: PoolAdmin,
	Fields: []Field{uuid(), fixed("short_name", text), open("fullname", text), open("other_config", pairs)},
}
