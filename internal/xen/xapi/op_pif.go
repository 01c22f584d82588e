package xapi

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

func pifMessages() map[string]handler {
	return map[string]handler{
		"PIF.plug":                     func(c *call) (any, error) { return nil, c.plug(c.text("self")) },
		"PIF.unplug":                   func(c *call) (any, error) { return nil, c.unplug(c.text("self")) },
		"PIF.forget":                   pifForget,
		"PIF.scan":                     pifScan,
		"PIF.introduce":                pifIntroduce,
		"PIF.reconfigure_ip":           pifReconfigureIP,
		"PIF.reconfigure_ipv6":         pifReconfigureIPv6,
		"PIF.set_primary_address_type": pifSetPrimaryAddressType,
		"PIF.set_disallow_unplug": func(c *call) (any, error) {
			return nil, c.edit("PIF", c.text("self"), model.Record{"disallow_unplug": c.truth("value")})
		},
		"PIF.set_property": pifSetProperty,
	}
}

// edit gives fields of an object other values.
func (c *call) edit(class, ref string, fields model.Record) error {
	return c.change(func(p *pool) { p.edit(p.get(class, ref), fields) })
}

// pifForget removes the record of an interface (spec 7.5). The interface stays as it is, and
// PIF.scan finds it again.
func pifForget(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		pif := p.get("PIF", c.text("self"))
		p.checkForget(pif)
		host := p.get("host", pif.Text("host"))
		forgotten := append(strings.Fields(host.Map("other_config")[forgottenKey]), deviceOf(pif))
		slices.Sort(forgotten)
		p.edit(host, model.Record{"other_config": with(host.Map("other_config"), forgottenKey, strings.Join(slices.Compact(forgotten), " "))})
		p.removePIF(pif)
	})
}

// checkForget fails if a PIF may not be removed.
func (p *pool) checkForget(pif *objects.Object) {
	p.alone(pif.Ref, pif.Text("network"))
	switch {
	case pif.Bool("management"):
		p.fail(model.PIFIsManagementInterface(pif.Ref))
	case isSlave(pif) || bondOf(p, pif.Ref) != nil:
		p.fail(model.PIFAlreadyBonded(pif.Ref))
	case vlanOf(p, pif.Ref) != nil || first(p, "VLAN", "tagged_PIF", pif.Ref) != nil:
		p.fail(model.PIFVLANStillExists(pif.Ref))
	case tunnelOf(p, pif.Ref) != nil || first(p, "tunnel", "transport_PIF", pif.Ref) != nil:
		p.fail(model.PIFTunnelStillExists(pif.Ref))
	}
	if vif := vifOn(p, pif); vif != nil && pif.Bool("currently_attached") {
		p.fail(model.VIFInUse(pif.Text("network"), vif.Ref))
	}
}

// removePIF removes a PIF, and its metrics unless another PIF shares them.
func (p *pool) removePIF(pif *objects.Object) {
	p.remove("PIF", pif.Ref)
	if metrics := pif.Text("metrics"); !null(metrics) && first(p, "PIF", "metrics", metrics) == nil {
		p.remove("PIF_metrics", metrics)
	}
}

// deviceOf names the interface of a PIF as reports do. None has VLAN 0: that gets its own name.
func deviceOf(pif *objects.Object) string {
	if pif.Int("VLAN") == 0 {
		return pif.Text("device") + ".0"
	}
	return objects.DeviceKey(pif.Text("device"), int(pif.Int("VLAN")))
}

// pifScan makes PIFs of the host's interfaces that have none, forgotten ones too.
func pifScan(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		report := p.alive(c.text("host"))
		host := p.get("host", c.text("host"))
		if host.Map("other_config")[forgottenKey] != "" {
			p.edit(host, model.Record{"other_config": without(host.Map("other_config"), forgottenKey)})
		}
		p.introduceAll(report, c.server.time())
	})
}

// pifIntroduce makes a PIF of one interface.
func pifIntroduce(c *call) (any, error) {
	var made string
	err := c.change(func(p *pool) {
		report := p.alive(c.text("host"))
		i := p.introducible(report, c.text("MAC"), c.text("device"))
		if p.err != nil {
			return
		}
		pif := p.introduce(report, i, c.server.time())
		made = pif.Ref
		p.edit(pif, model.Record{"managed": c.truth("managed")})
	})
	return made, err
}

// introducible returns the host's interface with that name, and with that address if any.
func (p *pool) introducible(report *objects.HostReport, mac, device string) objects.Interface {
	if mac != "" && !validMAC(mac) {
		p.fail(model.MACInvalid(mac))
	}
	if device == "" {
		p.fail(model.InvalidValue("device", device))
	}
	for _, pif := range by(p, "PIF", "host", report.Host) {
		if pif.Text("device") == device && pif.Int("VLAN") < 0 {
			p.fail(model.DuplicatePIFDeviceName(device))
		}
	}
	for _, i := range report.Interfaces {
		if i.Device == device && i.VLAN == 0 && (mac == "" || strings.EqualFold(mac, i.MAC)) {
			return i
		}
	}
	if !imagined(p, report.Host) {
		p.fail(model.OperationNotAllowed("host " + report.Name + " has no interface " + device + " with the MAC address " + mac))
	}
	return objects.Interface{Device: device, MAC: strings.ToLower(cmp.Or(mac, randomMAC())), MTU: defaultMTU, Physical: true, Carrier: true, Duplex: true, Speed: 1000, Mode: "None"}
}

// configurable returns a PIF, and fails if its IP configuration may not get this mode (spec 7.6).
func (p *pool) configurable(ref, mode string) *objects.Object {
	pif, own := p.get("PIF", ref), p.own()
	switch {
	case !pif.Bool("managed"):
		p.fail(model.PIFUnmanaged(pif.Ref))
	case pif.Bool("currently_attached") && own.Bool("ha_enabled"):
		p.fail(model.HAIsEnabled())
	case tunnelOf(p, pif.Ref) != nil:
		p.fail(model.OperationNotAllowed("PIF " + pif.UUID() + " is the access PIF of a tunnel: the host has no address on a tunnel's network"))
	case isSlave(pif) && mode != "None":
		p.fail(model.OperationNotAllowed("PIF " + pif.UUID() + " is a member of a bond: configure the bond's master"))
	case pif.Bool("management") && mode == "None":
		p.fail(model.PIFIsManagementInterface(pif.Ref))
	}
	return pif
}

// reconfigure has the host of a PIF take a configuration over, and then notes it. invalid is what
// is wrong with the addresses given: what is wrong with the PIF counts before that.
func (c *call) reconfigure(mode string, want objects.Address, fields model.Record, invalid error) error {
	p := c.look()
	ref := c.text("self")
	pif := p.configurable(ref, mode)
	p.fail(invalid)
	host := pif.Text("host")
	p.able(host, objects.CanAddress, "its agent does not configure interfaces: configure "+pif.Text("device")+" on the host itself, the pool follows")
	if p.err != nil {
		return p.err
	}
	var orders []*objects.Order
	if !imagined(p, host) {
		want.Device, want.VLAN = pif.Text("device"), int(max(0, pif.Int("VLAN")))
		orders = append(orders, &objects.Order{Host: host, ID: newUUID(), Address: &want})
	}
	return c.fulfil(orders, func(p *pool) { p.edit(p.configurable(ref, mode), fields) })
}

func pifReconfigureIP(c *call) (any, error) {
	mode, ip, mask, gateway, dns := c.text("mode"), c.text("IP"), c.text("netmask"), c.text("gateway"), c.text("DNS")
	var invalid error
	if mode == "Static" {
		invalid = checkIPv4(ip, mask, gateway, dns)
	} else {
		ip, mask, gateway, dns = "", "", "", ""
	}
	return nil, c.reconfigure(mode, objects.Address{Family: 4, Mode: mode, IP: ip, Netmask: mask, Gateway: gateway, DNS: dns},
		model.Record{"ip_configuration_mode": mode, "IP": ip, "netmask": mask, "gateway": gateway, "DNS": dns}, invalid)
}

func pifReconfigureIPv6(c *call) (any, error) {
	mode, ip, gateway, dns := c.text("mode"), c.text("IPv6"), c.text("gateway"), c.text("DNS")
	var invalid error
	addresses := []string{}
	if mode == "Static" {
		invalid = checkIPv6(ip, gateway, dns)
		addresses = append(addresses, ip)
	} else {
		gateway, dns = "", ""
	}
	fields := model.Record{"ipv6_configuration_mode": mode, "IPv6": addresses, "ipv6_gateway": gateway}
	if dns != "" {
		fields["DNS"] = dns
	}
	return nil, c.reconfigure(mode, objects.Address{Family: 6, Mode: mode, IPv6: addresses, Gateway: gateway, DNS: dns}, fields, invalid)
}

// checkIPv4 checks the arguments of a static configuration.
func checkIPv4(ip, mask, gateway, dns string) error {
	if !usable4(ip) {
		return model.InvalidIPAddressSpecified("IP")
	}
	if !isMask(mask) {
		return model.InvalidIPAddressSpecified("netmask")
	}
	if gateway != "" && !usable4(gateway) {
		return model.InvalidIPAddressSpecified("gateway")
	}
	return checkDNS(dns)
}

func usable4(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is4() && !a.IsUnspecified() && !a.IsMulticast()
}

// isMask reports whether the netmask has its ones before its zeros, and some of them.
func isMask(s string) bool {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() || a.IsUnspecified() {
		return false
	}
	b := a.As4()
	zeros := ^(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]))
	return zeros&(zeros+1) == 0
}

func checkIPv6(ip, gateway, dns string) error {
	if p, err := netip.ParsePrefix(ip); err != nil || !p.Addr().Is6() || p.Addr().IsUnspecified() || p.Addr().IsMulticast() {
		return model.InvalidIPAddressSpecified("IPv6")
	}
	if a, err := netip.ParseAddr(gateway); gateway != "" && (err != nil || !a.Is6()) {
		return model.InvalidIPAddressSpecified("gateway")
	}
	return checkDNS(dns)
}

func checkDNS(dns string) error {
	if dns == "" {
		return nil
	}
	for _, server := range strings.Split(dns, ",") {
		if _, err := netip.ParseAddr(strings.TrimSpace(server)); err != nil {
			return model.InvalidIPAddressSpecified("DNS")
		}
	}
	return nil
}

// pifSetPrimaryAddressType sets the family by which the PIF is reached, which it must have.
func pifSetPrimaryAddressType(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		pif, family := p.get("PIF", c.text("self")), c.text("primary_address_type")
		if !pif.Bool("managed") {
			p.fail(model.PIFUnmanaged(pif.Ref))
		}
		changed := edited(pif, model.Record{"primary_address_type": family})
		if !configured(changed) {
			p.fail(model.OperationNotAllowed("PIF " + pif.UUID() + " has no " + family + " configuration: give it one first"))
		}
		p.put(changed)
	})
}

// pifSetProperty sets gro, the only property that PIFs have.
func pifSetProperty(c *call) (any, error) {
	name, value := c.text("name"), c.text("value")
	return nil, c.change(func(p *pool) {
		pif := p.get("PIF", c.text("self"))
		switch _, has := pif.Map("properties")[name]; {
		case !pif.Bool("managed"):
			p.fail(model.PIFUnmanaged(pif.Ref))
		case !has:
			p.fail(model.InvalidValue("name", name))
		case value != "on" && value != "off":
			p.fail(model.InvalidValue("value", value))
		case !imagined(p, pif.Text("host")):
			p.fail(model.OperationNotAllowed("the host's agent does not change " + name + ": use ethtool on the host"))
		}
		p.edit(pif, model.Record{"properties": with(pif.Map("properties"), name, value)})
	})
}
