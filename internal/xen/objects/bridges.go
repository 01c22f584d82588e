package objects

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"heddle/internal/store/records"
)

// failModeKey in the other_config of the pool, a network or a PIF says what the bridge does without
// an OpenFlow controller; the last of them wins (spec 7.3).
const failModeKey = "vswitch-controller-fail-mode"

// DeviceKey names an interface of a host: "eth0", or "eth0.7" for its VLAN 7.
func DeviceKey(device string, vlan int) string {
	if vlan <= 0 {
		return device
	}
	return fmt.Sprintf("%s.%d", device, vlan)
}

// BridgeFor returns a network's bridge on the host of a PIF, or for no PIF if that is nil.
func BridgeFor(r records.Reader, network, pif *Object) Bridge {
	b := Bridge{Name: network.Text("bridge"), NetworkUUID: network.UUID(), MTU: int(network.Int("MTU")), FailMode: "standalone"}
	var configs []map[string]string
	for pool := range Table("pool").All(r) {
		configs = append(configs, pool.Map("other_config"))
	}
	configs = append(configs, network.Map("other_config"))
	if pif != nil {
		configs = append(configs, pif.Map("other_config"))
		b.MAC = pif.Text("MAC")
	}
	for _, c := range configs {
		if mode := c[failModeKey]; mode == "standalone" || mode == "secure" {
			b.FailMode = mode
		}
	}
	return b
}

// Wanted are the bridges that a host is to have, by name: of its attached tunnel access PIFs, of
// its attached VLAN PIFs where it makes those itself, of networks that attached VIFs here use
// without any PIF, and those that it has orders for. Everything else that a host calls its own is
// to go. The orders are by the bridge's name.
func Wanted(r records.Reader, host string) (bridges []Bridge, orders map[string][]string) {
	all, orders := map[string]Bridge{}, map[string][]string{}
	for o := range Orders.By(r, "host", host) {
		if o.Bridge.Name != "" {
			all[o.Bridge.Name] = o.Bridge
			orders[o.Bridge.Name] = append(orders[o.Bridge.Name], o.ID)
		}
	}
	for pif := range Table("PIF").By(r, "host", host) {
		if b, ok := pifBridge(r, pif); ok {
			all[b.Name] = b
		}
	}
	for vm := range Table("VM").By(r, "resident_on", host) {
		for vif := range Table("VIF").By(r, "VM", vm.Ref) {
			if b, ok := internalBridge(r, host, vif); ok {
				all[b.Name] = b
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b Bridge) int { return cmp.Compare(a.Name, b.Name) }), orders
}

// pifBridge returns the bridge that an attached PIF needs; the host's own interfaces need none.
func pifBridge(r records.Reader, pif *Object) (Bridge, bool) {
	network, ok := Table("network").Peek(r, pif.Text("network"))
	if !ok || !pif.Bool("currently_attached") {
		return Bridge{}, false
	}
	for range Table("tunnel").By(r, "access_PIF", pif.Ref) {
		return BridgeFor(r, network, pif), true
	}
	for vlan := range Table("VLAN").By(r, "untagged_PIF", pif.Ref) {
		return VLANBridge(r, network, vlan.Text("tagged_PIF"), int(vlan.Int("tag")))
	}
	return Bridge{}, false
}

// VLANBridge is the bridge of a VLAN on a PIF; false: the host makes none, because it has the VLAN
// as an interface of its own, or cannot.
func VLANBridge(r records.Reader, network *Object, tagged string, tag int) (Bridge, bool) {
	pif, ok := Table("PIF").Peek(r, tagged)
	if !ok {
		return Bridge{}, false
	}
	report, ok := HostReports.Peek(r, pif.Text("host"))
	if !ok || !slices.Contains(report.Can, CanVLAN) {
		return Bridge{}, false
	}
	for _, i := range report.Interfaces {
		if i.Device == pif.Text("device") && i.VLAN == tag {
			return Bridge{}, false
		}
	}
	parent, ok := Table("network").Peek(r, pif.Text("network"))
	if !ok {
		return Bridge{}, false
	}
	b := BridgeFor(r, network, nil)
	b.Parent, b.Tag = parent.Text("bridge"), tag
	return b, true
}

// internalBridge returns the bridge that an attached VIF needs on a host without a PIF.
func internalBridge(r records.Reader, host string, vif *Object) (Bridge, bool) {
	network, ok := Table("network").Peek(r, vif.Text("network"))
	if !ok || !vif.Bool("currently_attached") {
		return Bridge{}, false
	}
	for range Table("PIF").By(r, "host_network", host+"/"+network.Ref) {
		return Bridge{}, false
	}
	return BridgeFor(r, network, nil), true
}
