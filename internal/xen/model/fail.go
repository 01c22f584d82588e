package model

import "strconv"

// Each error has a function here that knows the order of its parameters; those that are called host, network, pif, vif, vm
// and session are references.

// HandleInvalid: an object that the call speaks of does not exist, or does no more.
func HandleInvalid(class, ref string) *Error { return &Error{"HANDLE_INVALID", []string{class, ref}} }

// UUIDInvalid: no object of this class has this UUID.
func UUIDInvalid(class, uuid string) *Error { return &Error{"UUID_INVALID", []string{class, uuid}} }

// InvalidValue: the value given for this field is not one that it may have.
func InvalidValue(field, value string) *Error { return &Error{"INVALID_VALUE", []string{field, value}} }

// FieldTypeError: the value given for this parameter is of another type than it must have.
func FieldTypeError(field string) *Error { return &Error{"FIELD_TYPE_ERROR", []string{field}} }

// MapDuplicateKey: the map holds this key already; remove it first.
func MapDuplicateKey(class, field, ref, key string) *Error {
	return &Error{"MAP_DUPLICATE_KEY", []string{class, field, ref, key}}
}

// MessageMethodUnknown: there is no such call.
func MessageMethodUnknown(call string) *Error {
	return &Error{"MESSAGE_METHOD_UNKNOWN", []string{call}}
}

// MessageParameterCountMismatch: the call takes another number of parameters, the session not counted.
func MessageParameterCountMismatch(call string, expected, received int) *Error {
	return &Error{"MESSAGE_PARAMETER_COUNT_MISMATCH", []string{call, strconv.Itoa(expected), strconv.Itoa(received)}}
}

// NotImplemented: the call is known, but not built.
func NotImplemented(call string) *Error { return &Error{"NOT_IMPLEMENTED", []string{call}} }

// OperationNotAllowed: this may not be done.
func OperationNotAllowed(reason string) *Error {
	return &Error{"OPERATION_NOT_ALLOWED", []string{reason}}
}

// InternalError: the server failed; its log says more.
func InternalError(text string) *Error { return &Error{"INTERNAL_ERROR", []string{text}} }

// SessionInvalid: the session does not exist or has ended; log in again.
func SessionInvalid(ref string) *Error { return &Error{"SESSION_INVALID", []string{ref}} }

// SessionAuthenticationFailed: the name or the password is wrong.
func SessionAuthenticationFailed(user, message string) *Error {
	return &Error{"SESSION_AUTHENTICATION_FAILED", []string{user, message}}
}

// SessionNotRegistered: the session has not registered for events; call event.register first.
func SessionNotRegistered(session string) *Error {
	return &Error{"SESSION_NOT_REGISTERED", []string{session}}
}

// HostIsSlave: this host is not the coordinator of its pool; log in at the address given.
func HostIsSlave(address string) *Error { return &Error{"HOST_IS_SLAVE", []string{address}} }

// RBACPermissionDenied: the role of this account does not allow the call.
func RBACPermissionDenied(permission, message string) *Error {
	return &Error{"RBAC_PERMISSION_DENIED", []string{permission, message}}
}

// EventsLost: the server no longer has all events since the last; read everything again.
func EventsLost() *Error { return &Error{Code: "EVENTS_LOST"} }

// EventFromTokenParseFailure: the token is not one that event.from gave.
func EventFromTokenParseFailure(token string) *Error {
	return &Error{"EVENT_FROM_TOKEN_PARSE_FAILURE", []string{token}}
}

// OpenvswitchNotActive: the host's network backend is not Open vSwitch, which tunnels need.
func OpenvswitchNotActive() *Error { return &Error{Code: "OPENVSWITCH_NOT_ACTIVE"} }

// TransportPIFNotConfigured: the tunnel's transport PIF has no IP configuration; give it one with PIF.reconfigure_ip.
func TransportPIFNotConfigured(pif string) *Error {
	return &Error{"TRANSPORT_PIF_NOT_CONFIGURED", []string{pif}}
}

// IsTunnelAccessPIF: the PIF is the access PIF of a tunnel: tunnels, VLANs and bonds go on physical, VLAN and bond PIFs.
func IsTunnelAccessPIF(pif string) *Error { return &Error{"IS_TUNNEL_ACCESS_PIF", []string{pif}} }

// PIFTunnelStillExists: a tunnel still uses the PIF; destroy the tunnel first.
func PIFTunnelStillExists(pif string) *Error { return &Error{"PIF_TUNNEL_STILL_EXISTS", []string{pif}} }

// CannotAddTunnelToBondSlave: the PIF is a member of a bond; put the tunnel on the bond's master.
func CannotAddTunnelToBondSlave(pif string) *Error {
	return &Error{"CANNOT_ADD_TUNNEL_TO_BOND_SLAVE", []string{pif}}
}

// CannotAddVLANToBondSlave: the PIF is a member of a bond; put the VLAN on the bond's master.
func CannotAddVLANToBondSlave(pif string) *Error {
	return &Error{"CANNOT_ADD_VLAN_TO_BOND_SLAVE", []string{pif}}
}

// CannotPlugBondSlave: the PIF is a member of a bond; plug the bond's master.
func CannotPlugBondSlave(pif string) *Error { return &Error{"CANNOT_PLUG_BOND_SLAVE", []string{pif}} }

// PIFUnmanaged: the PIF is not managed by the pool.
func PIFUnmanaged(pif string) *Error { return &Error{"PIF_UNMANAGED", []string{pif}} }

// PIFIsVLAN: the PIF is one of a VLAN.
func PIFIsVLAN(pif string) *Error { return &Error{"PIF_IS_VLAN", []string{pif}} }

// PIFIsPhysical: the PIF is a physical one.
func PIFIsPhysical(pif string) *Error { return &Error{"PIF_IS_PHYSICAL", []string{pif}} }

// PIFAlreadyBonded: the PIF is in a bond already.
func PIFAlreadyBonded(pif string) *Error { return &Error{"PIF_ALREADY_BONDED", []string{pif}} }

// PIFVLANStillExists: a VLAN still uses the PIF; destroy the VLAN first.
func PIFVLANStillExists(pif string) *Error { return &Error{"PIF_VLAN_STILL_EXISTS", []string{pif}} }

// PIFVLANExists: this device has a VLAN with this tag already.
func PIFVLANExists(device string) *Error { return &Error{"PIF_VLAN_EXISTS", []string{device}} }

// VLANTagInvalid: the VLAN's tag must be from 0 to 4094.
func VLANTagInvalid(tag int64) *Error {
	return &Error{"VLAN_TAG_INVALID", []string{strconv.FormatInt(tag, 10)}}
}

// PIFDoesNotAllowUnplug: the PIF has disallow_unplug set.
func PIFDoesNotAllowUnplug(pif string) *Error {
	return &Error{"PIF_DOES_NOT_ALLOW_UNPLUG", []string{pif}}
}

// PIFIsManagementInterface: the PIF carries the host's management; move that first with host.management_reconfigure.
func PIFIsManagementInterface(pif string) *Error {
	return &Error{"PIF_IS_MANAGEMENT_INTERFACE", []string{pif}}
}

// DuplicatePIFDeviceName: the host has a PIF with this device name already.
func DuplicatePIFDeviceName(device string) *Error {
	return &Error{"DUPLICATE_PIF_DEVICE_NAME", []string{device}}
}

// InvalidIPAddressSpecified: the address given for this parameter is not one.
func InvalidIPAddressSpecified(parameter string) *Error {
	return &Error{"INVALID_IP_ADDRESS_SPECIFIED", []string{parameter}}
}

// MACInvalid: the MAC address is not one.
func MACInvalid(mac string) *Error { return &Error{"MAC_INVALID", []string{mac}} }

// PIFHasNoNetworkConfiguration: the PIF has no IP configuration; give it one with PIF.reconfigure_ip.
func PIFHasNoNetworkConfiguration(pif string) *Error {
	return &Error{"PIF_HAS_NO_NETWORK_CONFIGURATION", []string{pif}}
}

// PIFBondNeedsMoreMembers: a bond needs two members or more.
func PIFBondNeedsMoreMembers() *Error { return &Error{Code: "PIF_BOND_NEEDS_MORE_MEMBERS"} }

// PIFCannotBondCrossHost: the members of a bond must be of one host.
func PIFCannotBondCrossHost() *Error { return &Error{Code: "PIF_CANNOT_BOND_CROSS_HOST"} }

// NetworkAlreadyConnected: the host has a PIF on this network already.
func NetworkAlreadyConnected(host, pif string) *Error {
	return &Error{"NETWORK_ALREADY_CONNECTED", []string{host, pif}}
}

// NetworkUnmanaged: the network is not managed by the pool.
func NetworkUnmanaged(network string) *Error { return &Error{"NETWORK_UNMANAGED", []string{network}} }

// NetworkContainsPIF: the network still has PIFs; destroy their tunnels and VLANs first.
func NetworkContainsPIF(pifs ...string) *Error { return &Error{"NETWORK_CONTAINS_PIF", pifs} }

// NetworkContainsVIF: VIFs are still attached to the network.
func NetworkContainsVIF(vifs ...string) *Error { return &Error{"NETWORK_CONTAINS_VIF", vifs} }

// BridgeNameExists: another network has a bridge of this name.
func BridgeNameExists(bridge string) *Error { return &Error{"BRIDGE_NAME_EXISTS", []string{bridge}} }

// VIFInUse: a running VM uses the network through this VIF.
func VIFInUse(network, vif string) *Error { return &Error{"VIF_IN_USE", []string{network, vif}} }

// DeviceAlreadyExists: the VM has a device of this number already.
func DeviceAlreadyExists(device string) *Error {
	return &Error{"DEVICE_ALREADY_EXISTS", []string{device}}
}

// InvalidDevice: the device's number is not one that the VM may have.
func InvalidDevice(device string) *Error { return &Error{"INVALID_DEVICE", []string{device}} }

// DeviceAlreadyAttached: the device is attached already.
func DeviceAlreadyAttached(vif string) *Error {
	return &Error{"DEVICE_ALREADY_ATTACHED", []string{vif}}
}

// DeviceAlreadyDetached: the device is not attached.
func DeviceAlreadyDetached(vif string) *Error {
	return &Error{"DEVICE_ALREADY_DETACHED", []string{vif}}
}

// HostOffline: the host is not live.
func HostOffline(host string) *Error { return &Error{"HOST_OFFLINE", []string{host}} }

// CannotContactHost: the host does not answer.
func CannotContactHost(host string) *Error { return &Error{"CANNOT_CONTACT_HOST", []string{host}} }

// HostDisabled: the host is disabled; enable it first.
func HostDisabled(host string) *Error { return &Error{"HOST_DISABLED", []string{host}} }

// HostCannotAttachNetwork: the host has no PIF on a network that the VM needs.
func HostCannotAttachNetwork(host, network string) *Error {
	return &Error{"HOST_CANNOT_ATTACH_NETWORK", []string{host, network}}
}

// HAIsEnabled: the pool has high availability enabled, which forbids this.
func HAIsEnabled() *Error { return &Error{Code: "HA_IS_ENABLED"} }

// PoolJoiningHostMustHaveSameAPIVersion: the joining host speaks another version of the API than the pool.
func PoolJoiningHostMustHaveSameAPIVersion(host, pool string) *Error {
	return &Error{"POOL_JOINING_HOST_MUST_HAVE_SAME_API_VERSION", []string{host, pool}}
}

// VMBadPowerState: the VM is not in the power state that this needs.
func VMBadPowerState(vm, expected, actual string) *Error {
	return &Error{"VM_BAD_POWER_STATE", []string{vm, expected, actual}}
}

// VMIsTemplate: the VM is a template.
func VMIsTemplate(vm string) *Error { return &Error{"VM_IS_TEMPLATE", []string{vm}} }

// NoHostsAvailable: no host can run the VM now.
func NoHostsAvailable() *Error { return &Error{Code: "NO_HOSTS_AVAILABLE"} }
