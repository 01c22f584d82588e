package control

import (
	"maps"
	"strconv"

	"heddle/internal/topology/packet"
)

// Values of ip_allocation: of a port that was asked to have no addresses, and of one that gets them
// with its host.
const (
	allocationNone     = "none"
	allocationDeferred = "deferred"
)

// Keys of binding:profile that stand for attributes of the port.
const (
	profileTrusted   = "trusted"
	profileDeviceMAC = "device_mac_address"
)

// applyDevice sets what a request says for those who make the port's device: the agents here serve
// tap devices, which none of it concerns.
func (e portEdit) applyDevice() {
	p, v := e.p, e.v
	if v.Has("propagate_uplink_status") {
		p.KeepsLinkUp = !v.Flag("propagate_uplink_status")
	}
	setText(&p.DeviceProfile, v, "device_profile")
	setText(&p.NUMAAffinityPolicy, v, "numa_affinity_policy")
	if v.Has("hints") {
		p.Hints, _ = v["hints"].(map[string]any)
	}
	if v.Has("trusted") {
		p.Trusted = nil
		if trusted, ok := v["trusted"].(bool); ok {
			p.Trusted = &trusted
		}
	}
}

// mirrorTrusted has binding:profile say whether the port is trusted, where Nova looks for it.
func (e portEdit) mirrorTrusted() {
	if e.p.Profile == nil || e.p.Trusted == nil && !e.v.Has("trusted") {
		return
	}
	profile := maps.Clone(e.p.Profile)
	delete(profile, profileTrusted)
	if e.p.Trusted != nil {
		profile[profileTrusted] = strconv.FormatBool(*e.p.Trusted)
	}
	e.p.Profile = profile
}

// deviceMAC returns the MAC address of the physical device that a port of vnic_type direct-physical
// stands for, if its profile has one.
func deviceMAC(vnicType string, profile map[string]any) (packet.MAC, bool) {
	text, ok := profile[profileDeviceMAC].(string)
	if !ok || vnicType != "direct-physical" {
		return packet.MAC{}, false
	}
	m, err := packet.ParseMAC(text)
	return m, err == nil && !m.IsZero() && !m.IsMulticast()
}

// withDeviceMAC returns e with the MAC address that a change of the binding brings, if it brings
// one: a physical device's own, or another one than the device's once the port leaves it.
func (e portEdit) withDeviceMAC() (edit portEdit, changes bool) {
	vnicType, profile := e.p.VNICType, e.p.Profile
	had, was := deviceMAC(vnicType, profile)
	if e.v.Text("binding:vnic_type") != "" {
		vnicType = e.v.Text("binding:vnic_type")
	}
	if e.v.Has("binding:profile") {
		profile, _ = e.v["binding:profile"].(map[string]any)
	}
	want, is := deviceMAC(vnicType, profile)
	switch {
	case is && want != e.p.MACAddress:
		e.v = maps.Clone(e.v)
		e.v["mac_address"] = want
		return e, true
	case !is && was && had == e.p.MACAddress && !e.v.Has("mac_address"):
		e.v = maps.Clone(e.v)
		e.v["mac_address"] = nil
		return e, true
	}
	return e, false
}
