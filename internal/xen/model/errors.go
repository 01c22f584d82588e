package model

import "strconv"

// The errors known to the model, by subject. Each has a function that takes its parameters in
// order; of parameters with a class, the references.
var (
	// Calls and values.
	HandleInvalid        = two("HANDLE_INVALID", "An object that the call speaks of does not exist, or does no more.", word("class"), word("handle"))
	UUIDInvalid          = two("UUID_INVALID", "No object of this class has this UUID.", word("type"), word("uuid"))
	InvalidValue         = two("INVALID_VALUE", "The value given for this field is not one that it may have.", word("field"), word("value"))
	FieldTypeError       = one("FIELD_TYPE_ERROR", "The value given for this parameter is of another type than it must have.", word("field"))
	MapDuplicateKey      = four("MAP_DUPLICATE_KEY", "The map holds this key already; remove it first.", word("type"), word("param_name"), word("uuid"), word("key"))
	MessageMethodUnknown = one("MESSAGE_METHOD_UNKNOWN", "There is no such call.", word("method"))
	countMismatch        = three("MESSAGE_PARAMETER_COUNT_MISMATCH", "The call takes another number of parameters, the session not counted.", word("method"), word("expected"), word("received"))
	NotImplemented       = one("NOT_IMPLEMENTED", "The call is known, but not built.", word("function"))
	OperationNotAllowed  = one("OPERATION_NOT_ALLOWED", "This may not be done.", word("reason"))
	InternalError        = one("INTERNAL_ERROR", "The server failed; its log says more.", word("message"))
	// Sessions and events.
	SessionInvalid              = one("SESSION_INVALID", "The session does not exist or has ended; log in again.", word("handle"))
	SessionAuthenticationFailed = two("SESSION_AUTHENTICATION_FAILED", "The name or the password is wrong.", word("user"), word("message"))
	SessionNotRegistered        = one("SESSION_NOT_REGISTERED", "The session has not registered for events; call event.register first.", object("handle", "session"))
	HostIsSlave                 = one("HOST_IS_SLAVE", "This host is not the coordinator of its pool; log in at the address given.", word("Master IP address"))
	RBACPermissionDenied        = two("RBAC_PERMISSION_DENIED", "The role of this account does not allow the call.", word("permission"), word("message"))
	EventsLost                  = none("EVENTS_LOST", "The server no longer has all events since the last; read everything again.")
	EventFromTokenParseFailure  = one("EVENT_FROM_TOKEN_PARSE_FAILURE", "The token is not one that event.from gave.", word("token"))
	// Tunnels and other PIFs.
	OpenvswitchNotActive         = none("OPENVSWITCH_NOT_ACTIVE", "The host's network backend is not Open vSwitch, which tunnels need.")
	TransportPIFNotConfigured    = one("TRANSPORT_PIF_NOT_CONFIGURED", "The tunnel's transport PIF has no IP configuration; give it one with PIF.reconfigure_ip.", object("PIF", "PIF"))
	IsTunnelAccessPIF            = one("IS_TUNNEL_ACCESS_PIF", "The PIF is the access PIF of a tunnel: tunnels, VLANs and bonds go on physical, VLAN and bond PIFs.", object("PIF", "PIF"))
	PIFTunnelStillExists         = one("PIF_TUNNEL_STILL_EXISTS", "A tunnel still uses the PIF; destroy the tunnel first.", object("PIF", "PIF"))
	CannotAddTunnelToBondSlave   = one("CANNOT_ADD_TUNNEL_TO_BOND_SLAVE", "The PIF is a member of a bond; put the tunnel on the bond's master.", object("PIF", "PIF"))
	CannotAddVLANToBondSlave     = one("CANNOT_ADD_VLAN_TO_BOND_SLAVE", "The PIF is a member of a bond; put the VLAN on the bond's master.", object("PIF", "PIF"))
	CannotPlugBondSlave          = one("CANNOT_PLUG_BOND_SLAVE", "The PIF is a member of a bond; plug the bond's master.", object("PIF", "PIF"))
	PIFUnmanaged                 = one("PIF_UNMANAGED", "The PIF is not managed by the pool.", object("PIF", "PIF"))
	PIFIsVLAN                    = one("PIF_IS_VLAN", "The PIF is one of a VLAN.", object("PIF", "PIF"))
	PIFIsPhysical                = one("PIF_IS_PHYSICAL", "The PIF is a physical one.", object("PIF", "PIF"))
	PIFAlreadyBonded             = one("PIF_ALREADY_BONDED", "The PIF is in a bond already.", object("PIF", "PIF"))
	PIFVLANStillExists           = one("PIF_VLAN_STILL_EXISTS", "A VLAN still uses the PIF; destroy the VLAN first.", object("PIF", "PIF"))
	PIFVLANExists                = one("PIF_VLAN_EXISTS", "This device has a VLAN with this tag already.", word("device"))
	tagInvalid                   = one("VLAN_TAG_INVALID", "The VLAN's tag must be from 0 to 4094.", word("VLAN"))
	PIFDoesNotAllowUnplug        = one("PIF_DOES_NOT_ALLOW_UNPLUG", "The PIF has disallow_unplug set.", object("PIF", "PIF"))
	PIFIsManagementInterface     = one("PIF_IS_MANAGEMENT_INTERFACE", "The PIF carries the host's management; move that first with host.management_reconfigure.", object("PIF", "PIF"))
	DuplicatePIFDeviceName       = one("DUPLICATE_PIF_DEVICE_NAME", "The host has a PIF with this device name already.", word("device"))
	InvalidIPAddressSpecified    = one("INVALID_IP_ADDRESS_SPECIFIED", "The address given for this parameter is not one.", word("parameter"))
	MACInvalid                   = one("MAC_INVALID", "The MAC address is not one.", word("MAC"))
	PIFHasNoNetworkConfiguration = one("PIF_HAS_NO_NETWORK_CONFIGURATION", "The PIF has no IP configuration; give it one with PIF.reconfigure_ip.", object("PIF", "PIF"))
	PIFBondNeedsMoreMembers      = none("PIF_BOND_NEEDS_MORE_MEMBERS", "A bond needs two members or more.")
	PIFCannotBondCrossHost       = none("PIF_CANNOT_BOND_CROSS_HOST", "The members of a bond must be of one host.")
	// Networks and VIFs.
	NetworkAlreadyConnected = two("NETWORK_ALREADY_CONNECTED", "The host has a PIF on this network already.", object("host", "host"), object("connected PIF", "PIF"))
	NetworkUnmanaged        = one("NETWORK_UNMANAGED", "The network is not managed by the pool.", object("network", "network"))
	NetworkContainsPIF      = several("NETWORK_CONTAINS_PIF", "The network still has PIFs; destroy their tunnels and VLANs first.", object("pifs", "PIF"))
	NetworkContainsVIF      = several("NETWORK_CONTAINS_VIF", "VIFs are still attached to the network.", object("vifs", "VIF"))
	BridgeNameExists        = one("BRIDGE_NAME_EXISTS", "Another network has a bridge of this name.", word("bridge"))
	VIFInUse                = two("VIF_IN_USE", "A running VM uses the network through this VIF.", object("network", "network"), object("VIF", "VIF"))
	DeviceAlreadyExists     = one("DEVICE_ALREADY_EXISTS", "The VM has a device of this number already.", word("device"))
	InvalidDevice           = one("INVALID_DEVICE", "The device's number is not one that the VM may have.", word("device"))
	DeviceAlreadyAttached   = one("DEVICE_ALREADY_ATTACHED", "The device is attached already.", object("device", "VIF"))
	DeviceAlreadyDetached   = one("DEVICE_ALREADY_DETACHED", "The device is not attached.", object("device", "VIF"))
	// Hosts, pools and VMs.
	HostOffline                           = one("HOST_OFFLINE", "The host is not live.", object("host", "host"))
	CannotContactHost                     = one("CANNOT_CONTACT_HOST", "The host does not answer.", word("host"))
	HostDisabled                          = one("HOST_DISABLED", "The host is disabled; enable it first.", object("host", "host"))
	HostCannotAttachNetwork               = two("HOST_CANNOT_ATTACH_NETWORK", "The host has no PIF on a network that the VM needs.", object("host", "host"), object("network", "network"))
	HAIsEnabled                           = none("HA_IS_ENABLED", "The pool has high availability enabled, which forbids this.")
	PoolJoiningHostMustHaveSameAPIVersion = two("POOL_JOINING_HOST_MUST_HAVE_SAME_API_VERSION", "The joining host speaks another version of the API than the pool.", word("host_api_version"), word("master_api_version"))
	VMBadPowerState                       = three("VM_BAD_POWER_STATE", "The VM is not in the power state that this needs.", object("VM", "VM"), word("expected"), word("actual"))
	VMIsTemplate                          = one("VM_IS_TEMPLATE", "The VM is a template.", object("VM", "VM"))
	NoHostsAvailable                      = none("NO_HOSTS_AVAILABLE", "No host can run the VM now.")
	// Those that only other servers answer.
	_ = one("EVENT_SUBSCRIPTION_PARSE_FAILURE", "The server cannot make out which events are wanted.", word("subscription"))
	_ = one("NETWORK_INCOMPATIBLE_WITH_TUNNEL", "The network cannot be a tunnel's.", object("network", "network"))
	_ = none("POOL_JOINING_HOST_HAS_TUNNELS", "The joining host has tunnels.")
)

// MessageParameterCountMismatch is countMismatch with numbers.
func MessageParameterCountMismatch(call string, expected, received int) *Error {
	return countMismatch(call, strconv.Itoa(expected), strconv.Itoa(received))
}

// VLANTagInvalid is tagInvalid with a number.
func VLANTagInvalid(tag int64) *Error { return tagInvalid(strconv.FormatInt(tag, 10)) }

// errorCodes lists the errors above, in their order.
var errorCodes []ErrorCode

// known adds an error to errorCodes.
func known(code, text string, params ...ErrorParam) {
	errorCodes = append(errorCodes, ErrorCode{Code: code, Text: text, Params: params})
}

// word is a parameter that is text, object one that is a reference, by xe's name for it.
func word(name string) ErrorParam          { return ErrorParam{Name: name} }
func object(name, class string) ErrorParam { return ErrorParam{name, class} }

// none, one, two, three and four add an error with so many parameters, and return its function;
// several adds one with any number of the same.
func none(code, text string) func() *Error {
	known(code, text)
	return func() *Error { return &Error{Code: code} }
}

func one(code, text string, p ErrorParam) func(v string) *Error {
	known(code, text, p)
	return func(v string) *Error { return &Error{code, []string{v}} }
}

func two(code, text string, p, q ErrorParam) func(v, w string) *Error {
	known(code, text, p, q)
	return func(v, w string) *Error { return &Error{code, []string{v, w}} }
}

func three(code, text string, p, q, r ErrorParam) func(v, w, x string) *Error {
	known(code, text, p, q, r)
	return func(v, w, x string) *Error { return &Error{code, []string{v, w, x}} }
}

func four(code, text string, p, q, r, s ErrorParam) func(v, w, x, y string) *Error {
	known(code, text, p, q, r, s)
	return func(v, w, x, y string) *Error { return &Error{code, []string{v, w, x, y}} }
}

func several(code, text string, p ErrorParam) func(all ...string) *Error {
	errorCodes = append(errorCodes, ErrorCode{Code: code, Text: text, Params: []ErrorParam{p}, Many: true})
	return func(all ...string) *Error { return &Error{code, all} }
}

// LookupError returns the error with that code, nil when the model does not know it.
func LookupError(code string) *ErrorCode {
	for i := range errorCodes {
		if errorCodes[i].Code == code {
			return &errorCodes[i]
		}
	}
	return nil
}
