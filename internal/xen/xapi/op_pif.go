package xapi

import (
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/store/records"
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
	return c.update(func(tx *records.Tx) error {
		o, err := object(tx, class, ref)
		if err != nil {
			return err
		}
		return put(tx, edited(o, fields))
	})
}

// pifForget takes the record of an interface away (spec 7.5). The interface stays as it is, and PIF.scan finds it again.
func pifForget(c *call) (any, error) {
	return nil, c.update(func(tx *records.Tx) error {
		pif, err := object(tx, "PIF", c.text("self"))
		if err != nil {
			return err
		}
		if err := forgettable(tx, pif); err != nil {
			return err
		}
		host, err := object(tx, "host", pif.Text("host"))
		if err != nil {
			return err
		}
		forgotten := append(strings.Fields(host.Map("other_config")[forgottenKey]), deviceOf(pif))
		slices.Sort(forgotten)
		config := with(host.Map("other_config"), forgottenKey, strings.Join(slices.Compact(forgotten), " "))
		if err := put(tx, edited(host, model.Record{"other_config": config})); err != nil {
			return err
		}
		return removePIF(tx, pif)
	})
}

// forgettable says whether a PIF may go.
func forgettable(tx *records.Tx, pif *objects.Object) error {
	alone(tx, pif.Ref)
	alone(tx, pif.Text("network"))
	switch {
	case pif.Bool("management"):
		return model.PIFIsManagementInterface(pif.Ref)
	case isSlave(pif) || first(tx, "Bond", "master", pif.Ref) != nil:
		return model.PIFAlreadyBonded(pif.Ref)
	case vlanOf(tx, pif.Ref) != nil || first(tx, "VLAN", "tagged_PIF", pif.Ref) != nil:
		return model.PIFVLANStillExists(pif.Ref)
	case tunnelOf(tx, pif.Ref) != nil || first(tx, "tunnel", "transport_PIF", pif.Ref) != nil:
		return model.PIFTunnelStillExists(pif.Ref)
	}
	if vif := vifOn(tx, pif); vif != nil && pif.Bool("currently_attached") {
		return model.VIFInUse(pif.Text("network"), vif.Ref)
	}
	return nil
}

// removePIF takes a PIF away, and its metrics when it shares them with none that stays.
func removePIF(tx *records.Tx, pif *objects.Object) error {
	if err := remove(tx, "PIF", pif.Ref); err != nil {
		return err
	}
	metrics := pif.Text("metrics")
	if null(metrics) || first(tx, "PIF", "metrics", metrics) != nil {
		return nil
	}
	return remove(tx, "PIF_metrics", metrics)
}

// deviceOf names the interface of a PIF as reports do; that of a VLAN 0, which no report has, is one of its own.
func deviceOf(pif *objects.Object) string {
	if pif.Int("VLAN") == 0 {
		return pif.Text("device") + ".0"
	}
	return objects.DeviceKey(pif.Text("device"), int(pif.Int("VLAN")))
}

// pifScan makes PIFs of the host's interfaces that have none, forgotten ones too.
func pifScan(c *call) (any, error) {
	return nil, c.update(func(tx *records.Tx) error {
		report, err := alive(tx, c.text("host"))
		if err != nil {
			return err
		}
		host, err := object(tx, "host", c.text("host"))
		if err != nil {
			return err
		}
		if host.Map("other_config")[forgottenKey] != "" {
			if err := put(tx, edited(host, model.Record{"other_config": without(host.Map("other_config"), forgottenKey)})); err != nil {
				return err
			}
		}
		return introduceAll(tx, report, c.server.opts.Now())
	})
}

// pifIntroduce makes a PIF of one interface.
func pifIntroduce(c *call) (any, error) {
	var made string
	err := c.update(func(tx *records.Tx) error {
		report, err := alive(tx, c.text("host"))
		if err != nil {
			return err
		}
		i, err := introducible(tx, report, c.text("MAC"), c.text("device"))
		if err != nil {
			return err
		}
		pif, err := introduce(tx, report, i, c.server.opts.Now())
		if err != nil {
			return err
		}
		made = pif.Ref
		return put(tx, edited(pif, model.Record{"managed": c.truth("managed")}))
	})
	return made, err
}

// introducible is the host's interface with that name and address. An empty address stands for whatever it has.
func introducible(r records.Reader, report *objects.HostReport, mac, device string) (objects.Interface, error) {
	if mac != "" && !validMAC(mac) {
		return objects.Interface{}, model.MACInvalid(mac)
	}
	if device == "" {
		return objects.Interface{}, model.InvalidValue("device", device)
	}
	for _, pif := range by(r, "PIF", "host", report.Host) {
		if pif.Text("device") == device && pif.Int("VLAN") < 0 {
			return objects.Interface{}, model.DuplicatePIFDeviceName(device)
		}
	}
	for _, i := range report.Interfaces {
		if i.Device == device && i.VLAN == 0 && (mac == "" || strings.EqualFold(mac, i.MAC)) {
			return i, nil
		}
	}
	if !imagined(r, report.Host) {
		return objects.Interface{}, model.OperationNotAllowed("host " + report.Name + " has no interface " + device + " with the MAC address " + mac)
	}
	if mac == "" {
		mac = randomMAC()
	}
	return objects.Interface{Device: device, MAC: strings.ToLower(mac), MTU: 1500, Physical: true, Carrier: true, Duplex: true, Speed: 1000, Mode: "None"}, nil
}

// configurable says whether the IP configuration of a PIF may become of this mode (spec 7.6).
func configurable(r records.Reader, pif *objects.Object, mode string) error {
	pool, err := thePool(r)
	if err != nil {
		return err
	}
	switch {
	case !pif.Bool("managed"):
		return model.PIFUnmanaged(pif.Ref)
	case pif.Bool("currently_attached") && pool.Bool("ha_enabled"):
		return model.HAIsEnabled()
	case tunnelOf(r, pif.Ref) != nil:
		return model.OperationNotAllowed("PIF " + pif.UUID() + " is the access PIF of a tunnel: the host has no address on a tunnel's network")
	case isSlave(pif) && mode != "None":
		return model.OperationNotAllowed("PIF " + pif.UUID() + " is a member of a bond: configure the bond's master")
	case pif.Bool("management") && mode == "None":
		return model.PIFIsManagementInterface(pif.Ref)
	}
	return nil
}

// reconfigure has the host of a PIF take a configuration over, and then notes it.
func (c *call) reconfigure(mode string, want objects.Address, fields model.Record) error {
	r, err := c.view()
	if err != nil {
		return err
	}
	ref := c.text("self")
	pif, err := object(r, "PIF", ref)
	if err != nil {
		return err
	}
	if err := configurable(r, pif, mode); err != nil {
		return err
	}
	host := pif.Text("host")
	if err := able(r, host, objects.CanAddress, "its agent does not configure interfaces: configure "+pif.Text("device")+" on the host itself, the pool follows"); err != nil {
		return err
	}
	var orders []*objects.Order
	if !imagined(r, host) {
		want.Device, want.VLAN = pif.Text("device"), int(max(0, pif.Int("VLAN")))
		orders = append(orders, &objects.Order{Host: host, ID: newUUID(), Address: &want})
	}
	return c.fulfil(orders, func(tx *records.Tx) error {
		pif, err := object(tx, "PIF", ref)
		if err != nil {
			return err
		}
		if err := configurable(tx, pif, mode); err != nil {
			return err
		}
		return put(tx, edited(pif, fields))
	})
}

func pifReconfigureIP(c *call) (any, error) {
	mode, ip, mask, gateway, dns := c.text("mode"), c.text("IP"), c.text("netmask"), c.text("gateway"), c.text("DNS")
	if mode != "Static" {
		ip, mask, gateway, dns = "", "", "", ""
	} else if err := checkIPv4(ip, mask, gateway, dns); err != nil {
		return nil, c.rather(err)
	}
	return nil, c.reconfigure(mode, objects.Address{Family: 4, Mode: mode, IP: ip, Netmask: mask, Gateway: gateway, DNS: dns},
		model.Record{"ip_configuration_mode": mode, "IP": ip, "netmask": mask, "gateway": gateway, "DNS": dns})
}

func pifReconfigureIPv6(c *call) (any, error) {
	mode, ip, gateway, dns := c.text("mode"), c.text("IPv6"), c.text("gateway"), c.text("DNS")
	addresses := []string{}
	if mode != "Static" {
		ip, gateway, dns = "", "", ""
	} else if err := checkIPv6(ip, gateway, dns); err != nil {
		return nil, c.rather(err)
	} else {
		addresses = append(addresses, ip)
	}
	fields := model.Record{"ipv6_configuration_mode": mode, "IPv6": addresses, "ipv6_gateway": gateway}
	if dns != "" {
		fields["DNS"] = dns
	}
	return nil, c.reconfigure(mode, objects.Address{Family: 6, Mode: mode, IPv6: addresses, Gateway: gateway, DNS: dns}, fields)
}

// rather is what is wrong with the PIF, which counts before what is wrong with the addresses given.
func (c *call) rather(otherwise error) error {
	r, err := c.view()
	if err != nil {
		return err
	}
	pif, err := object(r, "PIF", c.text("self"))
	if err != nil {
		return err
	}
	if err := configurable(r, pif, c.text("mode")); err != nil {
		return err
	}
	return otherwise
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

// isMask says whether the netmask has its ones before its zeros, and some of them.
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

// pifSetPrimaryAddressType chooses the family by which the PIF is reached; the PIF must be configured for it.
func pifSetPrimaryAddressType(c *call) (any, error) {
	family := c.text("primary_address_type")
	return nil, c.update(func(tx *records.Tx) error {
		pif, err := object(tx, "PIF", c.text("self"))
		if err != nil {
			return err
		}
		if !pif.Bool("managed") {
			return model.PIFUnmanaged(pif.Ref)
		}
		changed := edited(pif, model.Record{"primary_address_type": family})
		if !configured(changed) {
			return model.OperationNotAllowed("PIF " + pif.UUID() + " has no " + family + " configuration: give it one first")
		}
		return put(tx, changed)
	})
}

// pifSetProperty sets gro, the only property that PIFs have.
func pifSetProperty(c *call) (any, error) {
	name, value := c.text("name"), c.text("value")
	return nil, c.update(func(tx *records.Tx) error {
		pif, err := object(tx, "PIF", c.text("self"))
		if err != nil {
			return err
		}
		switch _, has := pif.Map("properties")[name]; {
		case !pif.Bool("managed"):
			return model.PIFUnmanaged(pif.Ref)
		case !has:
			return model.InvalidValue("name", name)
		case value != "on" && value != "off":
			return model.InvalidValue("value", value)
		case !imagined(tx, pif.Text("host")):
			return model.OperationNotAllowed("the host's agent does not change " + name + ": use ethtool on the host")
		}
		return put(tx, edited(pif, model.Record{"properties": with(pif.Map("properties"), name, value)}))
	})
}
