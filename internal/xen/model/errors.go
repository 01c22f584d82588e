package model

// errorCodes are all errors known to the model, by subject, with the names that xe gives to their parameters.
var errorCodes = []ErrorCode{
	// Calls and values.
	{Code: "HANDLE_INVALID", Text: "An object that the call speaks of does not exist, or does no more.", Params: []ErrorParam{{Name: "class"}, {Name: "handle"}}},
	{Code: "UUID_INVALID", Text: "No object of this class has this UUID.", Params: []ErrorParam{{Name: "type"}, {Name: "uuid"}}},
	{Code: "INVALID_VALUE", Text: "The value given for this field is not one that it may have.", Params: []ErrorParam{{Name: "field"}, {Name: "value"}}},
	{Code: "FIELD_TYPE_ERROR", Text: "The value given for this parameter is of another type than it must have.", Params: []ErrorParam{{Name: "field"}}},
	{Code: "MAP_DUPLICATE_KEY", Text: "The map holds this key already; remove it first.", Params: []ErrorParam{{Name: "type"}, {Name: "param_name"}, {Name: "uuid"}, {Name: "key"}}},
	{Code: "MESSAGE_METHOD_UNKNOWN", Text: "There is no such call.", Params: []ErrorParam{{Name: "method"}}},
	{Code: "MESSAGE_PARAMETER_COUNT_MISMATCH", Text: "The call takes another number of parameters, the session not counted.", Params: []ErrorParam{{Name: "method"}, {Name: "expected"}, {Name: "received"}}},
	{Code: "NOT_IMPLEMENTED", Text: "The call is known, but not built.", Params: []ErrorParam{{Name: "function"}}},
	{Code: "OPERATION_NOT_ALLOWED", Text: "This may not be done.", Params: []ErrorParam{{Name: "reason"}}},
	{Code: "INTERNAL_ERROR", Text: "The server failed; its log says more.", Params: []ErrorParam{{Name: "message"}}},
	// Sessions and events.
	{Code: "SESSION_INVALID", Text: "The session does not exist or has ended; log in again.", Params: []ErrorParam{{Name: "handle"}}},
	{Code: "SESSION_AUTHENTICATION_FAILED", Text: "The name or the password is wrong.", Params: []ErrorParam{{Name: "user"}, {Name: "message"}}},
	{Code: "SESSION_NOT_REGISTERED", Text: "The session has not registered for events; call event.register first.", Params: []ErrorParam{{"handle", "session"}}},
	{Code: "HOST_IS_SLAVE", Text: "This host is not the coordinator of its pool; log in at the address given.", Params: []ErrorParam{{Name: "Master IP address"}}},
	{Code: "RBAC_PERMISSION_DENIED", Text: "The role of this account does not allow the call.", Params: []ErrorParam{{Name: "permission"}, {Name: "message"}}},
	{Code: "EVENTS_LOST", Text: "The server no longer has all events since the last; read everything again."},
	{Code: "EVENT_FROM_TOKEN_PARSE_FAILURE", Text: "The token is not one that event.from gave.", Params: []ErrorParam{{Name: "token"}}},
	// Tunnels and other PIFs.
	{Code: "OPENVSWITCH_NOT_ACTIVE", Text: "The host's network backend is not Open vSwitch, which tunnels need."},
	{Code: "TRANSPORT_PIF_NOT_CONFIGURED", Text: "The tunnel's transport PIF has no IP configuration; give it one with PIF.reconfigure_ip.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "IS_TUNNEL_ACCESS_PIF", Text: "The PIF is the access PIF of a tunnel: tunnels, VLANs and bonds go on physical, VLAN and bond PIFs.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "PIF_TUNNEL_STILL_EXISTS", Text: "A tunnel still uses the PIF; destroy the tunnel first.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "CANNOT_ADD_TUNNEL_TO_BOND_SLAVE", Text: "The PIF is a member of a bond; put the tunnel on the bond's master.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "CANNOT_ADD_VLAN_TO_BOND_SLAVE", Text: "The PIF is a member of a bond; put the VLAN on the bond's master.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "CANNOT_PLUG_BOND_SLAVE", Text: "The PIF is a member of a bond; plug the bond's master.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "PIF_UNMANAGED", Text: "The PIF is not managed by the pool.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "PIF_IS_VLAN", Text: "The PIF is one of a VLAN.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "PIF_IS_PHYSICAL", Text: "The PIF is a physical one.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "PIF_ALREADY_BONDED", Text: "The PIF is in a bond already.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "PIF_VLAN_STILL_EXISTS", Text: "A VLAN still uses the PIF; destroy the VLAN first.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "PIF_VLAN_EXISTS", Text: "This device has a VLAN with this tag already.", Params: []ErrorParam{{Name: "device"}}},
	{Code: "VLAN_TAG_INVALID", Text: "The VLAN's tag must be from 0 to 4094.", Params: []ErrorParam{{Name: "VLAN"}}},
	{Code: "PIF_DOES_NOT_ALLOW_UNPLUG", Text: "The PIF has disallow_unplug set.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "PIF_IS_MANAGEMENT_INTERFACE", Text: "The PIF carries the host's management; move that first with host.management_reconfigure.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "DUPLICATE_PIF_DEVICE_NAME", Text: "The host has a PIF with this device name already.", Params: []ErrorParam{{Name: "device"}}},
	{Code: "INVALID_IP_ADDRESS_SPECIFIED", Text: "The address given for this parameter is not one.", Params: []ErrorParam{{Name: "parameter"}}},
	{Code: "MAC_INVALID", Text: "The MAC address is not one.", Params: []ErrorParam{{Name: "MAC"}}},
	{Code: "PIF_HAS_NO_NETWORK_CONFIGURATION", Text: "The PIF has no IP configuration; give it one with PIF.reconfigure_ip.", Params: []ErrorParam{{"PIF", "PIF"}}},
	{Code: "PIF_BOND_NEEDS_MORE_MEMBERS", Text: "A bond needs two members or more."},
	{Code: "PIF_CANNOT_BOND_CROSS_HOST", Text: "The members of a bond must be of one host."},
	// Networks and VIFs.
	{Code: "NETWORK_ALREADY_CONNECTED", Text: "The host has a PIF on this network already.", Params: []ErrorParam{{"host", "host"}, {"connected PIF", "PIF"}}},
	{Code: "NETWORK_UNMANAGED", Text: "The network is not managed by the pool.", Params: []ErrorParam{{"network", "network"}}},
	{Code: "NETWORK_CONTAINS_PIF", Text: "The network still has PIFs; destroy their tunnels and VLANs first.", Params: []ErrorParam{{"pifs", "PIF"}}, Many: true},
	{Code: "NETWORK_CONTAINS_VIF", Text: "VIFs are still attached to the network.", Params: []ErrorParam{{"vifs", "VIF"}}, Many: true},
	{Code: "BRIDGE_NAME_EXISTS", Text: "Another network has a bridge of this name.", Params: []ErrorParam{{Name: "bridge"}}},
	{Code: "VIF_IN_USE", Text: "A running VM uses the network through this VIF.", Params: []ErrorParam{{"network", "network"}, {"VIF", "VIF"}}},
	{Code: "DEVICE_ALREADY_EXISTS", Text: "The VM has a device of this number already.", Params: []ErrorParam{{Name: "device"}}},
	{Code: "INVALID_DEVICE", Text: "The device's number is not one that the VM may have.", Params: []ErrorParam{{Name: "device"}}},
	{Code: "DEVICE_ALREADY_ATTACHED", Text: "The device is attached already.", Params: []ErrorParam{{"device", "VIF"}}},
	{Code: "DEVICE_ALREADY_DETACHED", Text: "The device is not attached.", Params: []ErrorParam{{"device", "VIF"}}},
	// Hosts, pools and VMs.
	{Code: "HOST_OFFLINE", Text: "The host is not live.", Params: []ErrorParam{{"host", "host"}}},
	{Code: "CANNOT_CONTACT_HOST", Text: "The host does not answer.", Params: []ErrorParam{{Name: "host"}}},
	{Code: "HOST_DISABLED", Text: "The host is disabled; enable it first.", Params: []ErrorParam{{"host", "host"}}},
	{Code: "HOST_CANNOT_ATTACH_NETWORK", Text: "The host has no PIF on a network that the VM needs.", Params: []ErrorParam{{"host", "host"}, {"network", "network"}}},
	{Code: "HA_IS_ENABLED", Text: "The pool has high availability enabled, which forbids this."},
	{Code: "POOL_JOINING_HOST_MUST_HAVE_SAME_API_VERSION", Text: "The joining host speaks another version of the API than the pool.", Params: []ErrorParam{{Name: "host_api_version"}, {Name: "master_api_version"}}},
	{Code: "VM_BAD_POWER_STATE", Text: "The VM is not in the power state that this needs.", Params: []ErrorParam{{"VM", "VM"}, {Name: "expected"}, {Name: "actual"}}},
	{Code: "VM_IS_TEMPLATE", Text: "The VM is a template.", Params: []ErrorParam{{"VM", "VM"}}},
	{Code: "NO_HOSTS_AVAILABLE", Text: "No host can run the VM now."},
	// What only other servers answer.
	{Code: "EVENT_SUBSCRIPTION_PARSE_FAILURE", Text: "The server cannot make out which events are wanted.", Params: []ErrorParam{{Name: "subscription"}}},
	{Code: "NETWORK_INCOMPATIBLE_WITH_TUNNEL", Text: "The network cannot be a tunnel's.", Params: []ErrorParam{{"network", "network"}}},
	{Code: "POOL_JOINING_HOST_HAS_TUNNELS", Text: "The joining host has tunnels."},
}

// LookupError is the error with that code; nil when the model does not know it.
func LookupError(code string) *ErrorCode {
	for i := range errorCodes {
		if errorCodes[i].Code == code {
			return &errorCodes[i]
		}
	}
	return nil
}
