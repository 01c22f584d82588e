package xapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// introduceAll makes PIFs of the host's interfaces that have none, but for those that were forgotten. What others are on
// comes first.
func introduceAll(tx *records.Tx, report *objects.HostReport, now time.Time) error {
	host, err := object(tx, "host", report.Host)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, device := range strings.Fields(host.Map("other_config")[forgottenKey]) {
		known[device] = true
	}
	for pif := range objects.Table("PIF").By(tx, "host", report.Host) {
		known[deviceOf(pif)] = true
	}
	for _, i := range basesFirst(report.Interfaces) {
		if key := objects.DeviceKey(i.Device, i.VLAN); !known[key] {
			if _, err := introduce(tx, report, i, now); err != nil {
				return err
			}
			known[key] = true
		}
	}
	absent := (*records.NotFoundError)(nil)
	if err := objects.Joining.Delete(tx, report.Name); err != nil && !errors.As(err, &absent) {
		return err
	}
	return nil
}

// basesFirst orders interfaces so that bonds come after what they may have as members, and VLANs after what they are on.
func basesFirst(all []objects.Interface) []objects.Interface {
	rank := func(i objects.Interface) int {
		switch {
		case i.VLAN > 0:
			return 2
		case len(i.Members) > 0:
			return 1
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(all), func(a, b objects.Interface) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(objects.DeviceKey(a.Device, a.VLAN), objects.DeviceKey(b.Device, b.VLAN)))
	})
}

// introduce makes the PIF of an interface, with its network, its metrics, and its VLAN or bond.
func introduce(tx *records.Tx, report *objects.HostReport, i objects.Interface, now time.Time) (*objects.Object, error) {
	network, err := networkFor(tx, report, i)
	if err != nil {
		return nil, err
	}
	pif := newObject("PIF", model.Record{"device": i.Device, "network": network.Ref, "host": report.Host, "physical": i.Physical,
		"currently_attached": true, "VLAN": int64(-1)})
	if i.Physical || len(i.Members) > 0 {
		pif.Fields["properties"] = map[string]string{"gro": "on"}
	}
	if i.Mode == "None" && len(i.IPv6) > 0 {
		pif.Fields["primary_address_type"] = "IPv6"
	}
	uses(tx, network.Ref)
	uses(tx, report.Host)
	var made *objects.Object
	var base *objects.Object
	if i.VLAN > 0 {
		base = first(tx, "PIF", "host_device", hostDevice(report.Host, i.Device))
	}
	if base != nil {
		pif.Fields["VLAN"], pif.Fields["metrics"] = int64(i.VLAN), base.Text("metrics")
		made = newObject("VLAN", model.Record{"tagged_PIF": base.Ref, "untagged_PIF": pif.Ref, "tag": int64(i.VLAN)})
		uses(tx, base.Ref)
	} else {
		metrics := newObject("PIF_metrics", model.Record{"last_updated": now.UTC().Truncate(time.Second)})
		pif.Fields["metrics"] = metrics.Ref
		pif.Fields["device"] = objects.DeviceKey(i.Device, i.VLAN)
		if err := put(tx, metrics); err != nil {
			return nil, err
		}
	}
	pif = edited(pif, interfaceFields(report, &i))
	if err := put(tx, pif); err != nil {
		return nil, err
	}
	if made != nil {
		err = put(tx, made)
	} else {
		err = renewMetrics(tx, pif, &i, now)
	}
	if err == nil && len(i.Members) > 0 {
		err = bondOf(tx, report.Host, pif, i.Members)
	}
	return pif, err
}

// hostDevice is a PIF that is no VLAN's, as the table's index has it.
func hostDevice(host, device string) string { return host + "/" + device + "/-1" }

// bondOf makes the object of a bond that the host has.
func bondOf(tx *records.Tx, host string, master *objects.Object, devices []string) error {
	bond := newObject("Bond", model.Record{"master": master.Ref, "links_up": int64(len(devices))})
	for _, device := range devices {
		member := first(tx, "PIF", "host_device", hostDevice(host, device))
		if member == nil || isSlave(member) {
			continue
		}
		if null(bond.Text("primary_slave")) {
			bond.Fields["primary_slave"] = member.Ref
		}
		slave := noIP()
		slave["bond_slave_of"] = bond.Ref
		if err := put(tx, edited(member, slave)); err != nil {
			return err
		}
	}
	if null(bond.Text("primary_slave")) {
		return nil // none of its members is known
	}
	return put(tx, bond)
}

// interfaceFields are the fields of a PIF that its interface decides.
func interfaceFields(report *objects.HostReport, i *objects.Interface) model.Record {
	ipv6Mode := cmp.Or(i.IPv6Mode, "None")
	if ipv6Mode == "None" && len(i.IPv6) > 0 {
		ipv6Mode = "Static"
	}
	return model.Record{
		"MAC": i.MAC, "MTU": int64(i.MTU), "ip_configuration_mode": cmp.Or(i.Mode, "None"), "IP": i.IP, "netmask": i.Netmask, "gateway": i.Gateway, "DNS": i.DNS,
		"ipv6_configuration_mode": ipv6Mode, "IPv6": append([]string{}, i.IPv6...), "management": manages(report, i),
	}
}

// manages says that the interface has the address that the host goes by.
func manages(report *objects.HostReport, i *objects.Interface) bool {
	if report.Address == "" {
		return false
	}
	return i.IP == report.Address || slices.ContainsFunc(i.IPv6, func(p string) bool {
		address, _, _ := strings.Cut(p, "/")
		return address == report.Address
	})
}

// renewPIFs has the PIFs of a host's own interfaces say what the report does. One whose interface is gone stays as it is,
// until it is forgotten; a member of a bond has no address of its own.
func renewPIFs(tx *records.Tx, report *objects.HostReport, now time.Time) error {
	for _, pif := range by(tx, "PIF", "host", report.Host) {
		i := reported(report, deviceOf(pif))
		if i == nil || tunnelOf(tx, pif.Ref) != nil {
			continue
		}
		fields := interfaceFields(report, i)
		if isSlave(pif) {
			fields = givenBy(fields, "MAC", "MTU")
		}
		pif, err := renew(tx, pif, fields)
		if err != nil {
			return err
		}
		if vlanOf(tx, pif.Ref) == nil {
			if err := renewMetrics(tx, pif, i, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// renewMetrics has a PIF's metrics say what its interface does.
func renewMetrics(tx *records.Tx, pif *objects.Object, i *objects.Interface, now time.Time) error {
	metrics, err := object(tx, "PIF_metrics", pif.Text("metrics"))
	if err != nil {
		return err
	}
	fields := model.Record{"carrier": i.Carrier, "speed": int64(i.Speed), "duplex": i.Duplex}
	changed, err := renew(tx, metrics, fields)
	if err != nil || changed == metrics {
		return err
	}
	return put(tx, edited(changed, model.Record{"last_updated": now.UTC().Truncate(time.Second)}))
}

// networkFor is the network of an interface: what a host that joins has brought along for it, else the one with the
// interface's bridge, else a new one. Hosts share a network by its bridge, as they do on XenServer.
func networkFor(tx *records.Tx, report *objects.HostReport, i objects.Interface) (*objects.Object, error) {
	key := objects.DeviceKey(i.Device, i.VLAN)
	if joiner, ok := objects.Joining.Peek(tx, report.Name); ok {
		if n, ok := objects.Table("network").Peek(tx, joiner.Networks[key]); ok && on(tx, report.Host, n.Ref) == nil {
			return object(tx, "network", n.Ref)
		}
	}
	bridge := cmp.Or(i.Bridge, bridgeOf(key))
	if n := first(tx, "network", "bridge", bridge); n != nil {
		if on(tx, report.Host, n.Ref) == nil {
			return object(tx, "network", n.Ref)
		}
		bridge = freeBridge(tx) // a second interface on the same bridge: no host has two PIFs on one network
	}
	network := newObject("network", model.Record{"name_label": "Pool-wide network associated with " + key, "bridge": bridge})
	if i.MTU > 0 {
		network.Fields["MTU"] = int64(i.MTU)
	}
	return network, put(tx, network)
}

// ethernet are the devices whose bridges XenServer numbers.
var ethernet = regexp.MustCompile(`^eth([0-9]{1,4})$`)

// bridgeOf is the name by which hosts share the network of a device: xenbr0 for eth0, else br and the device.
func bridgeOf(device string) string {
	if m := ethernet.FindStringSubmatch(device); m != nil {
		return "xenbr" + m[1]
	}
	name := "br" + device
	if len(name) <= maxBridgeName {
		return name
	}
	sum := sha256.Sum256([]byte(device))
	return "br" + hex.EncodeToString(sum[:])[:maxBridgeName-len("br")]
}
