package xapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// introduceAll makes PIFs of the host's interfaces that have none, but for those that were
// forgotten, in an order in which those that carry others come first.
func (p *pool) introduceAll(report *objects.HostReport, now time.Time) {
	known := map[string]bool{}
	for _, device := range strings.Fields(p.get("host", report.Host).Map("other_config")[forgottenKey]) {
		known[device] = true
	}
	for pif := range objects.Table("PIF").By(p, "host", report.Host) {
		known[deviceOf(pif)] = true
	}
	for _, i := range basesFirst(report.Interfaces) {
		if key := objects.DeviceKey(i.Device, i.VLAN); !known[key] {
			p.introduce(report, i, now)
			known[key] = true
		}
	}
	discard(p, objects.Joining, report.Name)
}

// basesFirst orders interfaces so that bonds come after what they may have as members, and VLANs
// after what they are on.
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
func (p *pool) introduce(report *objects.HostReport, i objects.Interface, now time.Time) *objects.Object {
	network := p.networkFor(report, i)
	pif := newObject("PIF", model.Record{"device": i.Device, "network": network.Ref, "host": report.Host, "physical": i.Physical,
		"currently_attached": true, "VLAN": int64(-1)})
	maps.Copy(pif.Fields, interfaceFields(report, &i))
	if i.Physical || len(i.Members) > 0 {
		pif.Fields["properties"] = map[string]string{"gro": "on"}
	}
	if i.Mode == "None" && len(i.IPv6) > 0 {
		pif.Fields["primary_address_type"] = "IPv6"
	}
	p.uses(network.Ref, report.Host)
	var base *objects.Object
	if i.VLAN > 0 {
		base = first(p, "PIF", "host_device", hostDevice(report.Host, i.Device))
	}
	if base != nil {
		pif.Fields["VLAN"], pif.Fields["metrics"] = int64(i.VLAN), base.Text("metrics")
		p.uses(base.Ref)
		p.put(pif, newObject("VLAN", model.Record{"tagged_PIF": base.Ref, "untagged_PIF": pif.Ref, "tag": int64(i.VLAN)}))
	} else {
		metrics := newObject("PIF_metrics", model.Record{"last_updated": now})
		pif.Fields["metrics"], pif.Fields["device"] = metrics.Ref, objects.DeviceKey(i.Device, i.VLAN)
		p.put(metrics, pif)
		p.renewMetrics(pif, &i, now)
	}
	if len(i.Members) > 0 {
		p.introduceBond(report.Host, pif, i.Members)
	}
	return pif
}

// hostDevice names a PIF that is no VLAN's, as the table's index has it.
func hostDevice(host, device string) string { return host + "/" + device + "/-1" }

// introduceBond makes the object of a bond that the host has, if any of its members is known.
func (p *pool) introduceBond(host string, master *objects.Object, devices []string) {
	bond := newObject("Bond", model.Record{"master": master.Ref, "links_up": int64(len(devices))})
	for _, device := range devices {
		member := first(p, "PIF", "host_device", hostDevice(host, device))
		if member == nil || isSlave(member) {
			continue
		}
		if null(bond.Text("primary_slave")) {
			bond.Fields["primary_slave"] = member.Ref
		}
		slave := noIP()
		slave["bond_slave_of"] = bond.Ref
		p.edit(member, slave)
	}
	if !null(bond.Text("primary_slave")) {
		p.put(bond)
	}
}

// interfaceFields returns the fields of a PIF that its interface decides.
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

// manages reports whether the interface has the address by which the host is known.
func manages(report *objects.HostReport, i *objects.Interface) bool {
	if report.Address == "" {
		return false
	}
	return i.IP == report.Address || slices.ContainsFunc(i.IPv6, func(p string) bool {
		address, _, _ := strings.Cut(p, "/")
		return address == report.Address
	})
}

// renewPIFs has the PIFs of a host's own interfaces follow the report. One whose interface is gone
// stays as it is, until it is forgotten; a member of a bond has no address of its own.
func (p *pool) renewPIFs(report *objects.HostReport, now time.Time) {
	for _, pif := range by(p, "PIF", "host", report.Host) {
		i := reported(report, deviceOf(pif))
		if i == nil || tunnelOf(p, pif.Ref) != nil {
			continue
		}
		fields := interfaceFields(report, i)
		if isSlave(pif) {
			fields = givenBy(fields, "MAC", "MTU")
		}
		pif = p.renew(pif, fields)
		if vlanOf(p, pif.Ref) == nil {
			p.renewMetrics(pif, i, now)
		}
	}
}

// renewMetrics has a PIF's metrics follow its interface.
func (p *pool) renewMetrics(pif *objects.Object, i *objects.Interface, now time.Time) {
	metrics := p.get("PIF_metrics", pif.Text("metrics"))
	changed := p.renew(metrics, model.Record{"carrier": i.Carrier, "speed": int64(i.Speed), "duplex": i.Duplex})
	if changed != metrics {
		p.edit(changed, model.Record{"last_updated": now})
	}
}

// networkFor returns the network of an interface: what a host that joins has brought along for it,
// else the one with the interface's bridge, else a new one. Hosts share a network by its bridge, as
// they do on XenServer.
func (p *pool) networkFor(report *objects.HostReport, i objects.Interface) *objects.Object {
	key := objects.DeviceKey(i.Device, i.VLAN)
	if joiner, ok := objects.Joining.Peek(p, report.Name); ok {
		if n, ok := objects.Table("network").Peek(p, joiner.Networks[key]); ok && on(p, report.Host, n.Ref) == nil {
			return p.get("network", n.Ref)
		}
	}
	bridge := cmp.Or(i.Bridge, bridgeOf(key))
	if n := first(p, "network", "bridge", bridge); n != nil {
		if on(p, report.Host, n.Ref) == nil {
			return p.get("network", n.Ref)
		}
		bridge = p.freeBridge() // a second interface on the same bridge: no host has two PIFs on one network
	}
	network := newObject("network", model.Record{"name_label": "Pool-wide network associated with " + key, "bridge": bridge})
	if i.MTU > 0 {
		network.Fields["MTU"] = int64(i.MTU)
	}
	p.put(network)
	return network
}

// ethernet matches the devices whose bridges XenServer numbers.
var ethernet = regexp.MustCompile(`^eth([0-9]{1,4})$`)

// bridgeOf returns the bridge's name for a device's network: xenbr0 for eth0, else br and the
// device.
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
