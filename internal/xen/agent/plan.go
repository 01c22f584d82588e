package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"heddle/internal/store/records"
	"heddle/internal/store/snapshot"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/ovs"
)

// tables returns the tables of the pool that the agent of a host reads: no more than its role
// allows (store.AllowHost).
func tables(host string) []snapshot.Table {
	all := []snapshot.Table{}
	for _, class := range []string{"pool", "network", "PIF", "VLAN", "tunnel", "VM", "VIF"} {
		all = append(all, objects.Table(class))
	}
	orders := objects.Orders.Source()
	orders.Prefix = objects.Orders.Key(host + "/")
	orders.ID = func(key string) (string, bool) { return strings.CutPrefix(key, objects.Orders.Key("")) }
	own := objects.HostReports.Source()
	own.Prefix = objects.HostReports.Key(host)
	return append(all, orders, own)
}

// wanted is all that this host's Open vSwitch is to have because of the pool.
type wanted struct {
	bridges []bridge
	ports   []port
	orders  map[string][]string // ids by the bridge's name
}

// bridge is one with what the pool's and the network's other_config add to it.
type bridge struct {
	objects.Bridge
	other map[string]string // of the row's other_config, without hwaddr
}

// port is one on a bridge, ours or another.
type port struct {
	ovs.PortSpec
	bridge string
}

// plan returns what is wanted. bridgeOf returns the bridge that an interface is on, "" for none.
func plan(r records.Reader, host string, bridgeOf func(device string) string) wanted {
	bridges, orders := objects.Wanted(r, host)
	w := wanted{orders: orders}
	ours := map[string]string{} // bridges by network
	for _, b := range bridges {
		w.bridges = append(w.bridges, bridge{b, otherConfig(r, b.NetworkUUID)})
		ours[b.NetworkUUID] = b.Name
		if b.Parent != "" {
			w.ports = append(w.ports, patch(r, host, b, bridgeOf)...)
		}
	}
	for vm := range objects.Table("VM").By(r, "resident_on", host) {
		for vif := range objects.Table("VIF").By(r, "VM", vm.Ref) {
			network, ok := objects.Table("network").Peek(r, vif.Text("network"))
			if !ok || !vif.Bool("currently_attached") || vm.Int("domid") < 0 {
				continue
			}
			on, ok := ours[network.UUID()]
			if !ok {
				on = cardBridge(r, host, network, bridgeOf)
			}
			if on != "" {
				w.ports = append(w.ports, vifPort(vm, vif, network, on))
			}
		}
	}
	return w
}

// otherConfig returns the settings of a bridge by keys of the pool's and the network's
// other_config; the network's win.
func otherConfig(r records.Reader, networkUUID string) map[string]string {
	all := map[string]string{}
	take := func(config map[string]string) {
		if v, ok := config["vswitch-disable-in-band"]; ok && (v == "true" || v == "false") {
			all["disable-in-band"] = v
		}
		if v, ok := config["mac-table-size"]; ok {
			if n, err := strconv.Atoi(v); err == nil && n > 0 {
				all["mac-table-size"] = v
			}
		}
	}
	for pool := range objects.Table("pool").All(r) {
		take(pool.Map("other_config"))
	}
	for network := range objects.Table("network").By(r, "uuid", networkUUID) {
		take(network.Map("other_config"))
	}
	return all
}

// cardBridge is the bridge that a network has on this host because one of the host's interfaces is
// on it: whatever it is called here.
func cardBridge(r records.Reader, host string, network *objects.Object, bridgeOf func(string) string) string {
	for pif := range objects.Table("PIF").By(r, "host_network", host+"/"+network.Ref) {
		return bridgeOf(pif.Text("device"))
	}
	return ""
}

// vifPort is the port of a machine's interface. It may be there before the interface is: that is
// switched as soon as it exists.
func vifPort(vm, vif, network *objects.Object, bridge string) port {
	return port{bridge: bridge, PortSpec: ovs.PortSpec{Name: fmt.Sprintf("vif%d.%s", vm.Int("domid"), vif.Text("device")), InterfaceIDs: map[string]string{
		"xs-vif-uuid": vif.UUID(), "xs-vm-uuid": vm.UUID(), "xs-network-uuid": network.UUID(), "attached-mac": vif.Text("MAC")}}}
}

// patch joins a VLAN's bridge to its parent: what the parent carries with the tag belongs to it.
//
//	VLAN's bridge ── (pv…) ═══ (pp…, tag) ── parent
func patch(r records.Reader, host string, b objects.Bridge, bridgeOf func(string) string) []port {
	parent := b.Parent
	for network := range objects.Table("network").By(r, "bridge", b.Parent) {
		if on := cardBridge(r, host, network, bridgeOf); on != "" {
			parent = on
		}
	}
	sum := sha256.Sum256([]byte(b.NetworkUUID))
	digits := hex.EncodeToString(sum[:6])
	inner, outer := "pv-"+digits, "pp-"+digits
	return []port{
		{bridge: b.Name, PortSpec: ovs.PortSpec{Name: inner, Type: "patch", Options: map[string]string{"peer": outer}}},
		{bridge: parent, PortSpec: ovs.PortSpec{Name: outer, Type: "patch", Options: map[string]string{"peer": inner}, Tag: int64(b.Tag)}},
	}
}

// bridgeOf finds the bridge of Open vSwitch that an interface is on.
func bridgeOf(s *ovs.Snapshot) func(device string) string {
	return func(device string) string {
		i := s.Interface(device)
		if i == nil {
			return ""
		}
		p := s.PortOf(i.UUID)
		if p == nil {
			return ""
		}
		if b := s.BridgeOf(p.UUID); b != nil {
			return b.Name
		}
		return ""
	}
}
