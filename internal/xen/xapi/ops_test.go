package xapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"heddle/internal/xen/model"
)

// TestTunnelCreate: what a tunnel is made of, and what it does to the objects around it.
func TestTunnelCreate(t *testing.T) {
	t.Parallel()
	u := lab(t)
	transport, h1, net := u.pif("h1", "eth1"), u.named("host", "h1"), u.network("priv")
	tunnel := u.ref("tunnel.create", transport, net)
	r := u.records("tunnel")[tunnel]
	access := r["access_PIF"].(string)
	if r["transport_PIF"] != transport || r["protocol"] != "gre" || fmt.Sprint(r["status"]) != "map[active:false]" || len(r["other_config"].(map[string]string)) > 0 {
		t.Errorf("tunnel %v", r)
	}
	pif := u.records("PIF")[access]
	for field, want := range map[string]any{"device": "tunnel0", "network": net, "host": h1, "VLAN": int64(-1), "MTU": int64(1500), "physical": false, "managed": true, "currently_attached": true,
		"ip_configuration_mode": "None", "IP": "", "netmask": "", "gateway": "", "DNS": "", "metrics": u.get("PIF", transport, "metrics"), "primary_address_type": "IPv4"} {
		if pif[field] != want {
			t.Errorf("access PIF: %s is %v, want %v", field, pif[field], want)
		}
	}
	if !validMAC(pif["MAC"].(string)) || pif["MAC"].(string)[1] != '2' && pif["MAC"].(string)[1] != '6' && pif["MAC"].(string)[1] != 'a' && pif["MAC"].(string)[1] != 'e' {
		t.Errorf("the MAC address %v is not local", pif["MAC"])
	}
	for _, c := range []struct{ ref, field string }{{access, "tunnel_access_PIF_of"}, {transport, "tunnel_transport_PIF_of"}} {
		if got := u.get("PIF", c.ref, c.field).([]string); !slices.Equal(got, []string{tunnel}) {
			t.Errorf("%s is %v", c.field, got)
		}
	}
	second := u.ref("tunnel.create", transport, u.network("priv2"), "vxlan")
	if u.get("tunnel", second, "protocol") != "vxlan" || u.get("PIF", u.get("tunnel", second, "access_PIF").(string), "device") != "tunnel1" {
		t.Error("the second tunnel is not vxlan on tunnel1")
	}
	u.must("tunnel.destroy", tunnel)
	u.fails("HANDLE_INVALID tunnel "+tunnel, "tunnel.get_record", tunnel)
	u.fails("HANDLE_INVALID PIF "+access, "PIF.get_record", access)
	u.get("network", net, "uuid")
	third := u.ref("tunnel.create", transport, net)
	if got := u.get("PIF", u.get("tunnel", third, "access_PIF").(string), "device"); got != "tunnel0" {
		t.Errorf("the lowest free device is %v", got)
	}
}

// TestTunnelChecks: each refusal of tunnel.create by its code, and that the first in order wins.
func TestTunnelChecks(t *testing.T) {
	t.Parallel()
	s, users := simulated(t, twoPools, "secret", "other")
	u := users[0]
	h1, h2 := u.named("host", "h1"), u.named("host", "h2")
	eth1, spare, net := u.pif("h1", "eth1"), u.pif("h1", "eth2"), u.network("n")
	foreign := u.ref("network.create", map[string]any{"name_label": "foreign", "managed": false})
	dead := "OpaqueRef:00000000-0000-0000-0000-000000000000"
	u.fails("HANDLE_INVALID PIF "+dead, "tunnel.create", dead, net)
	u.fails("HANDLE_INVALID network "+dead, "tunnel.create", eth1, dead)
	u.fails("NETWORK_UNMANAGED "+foreign, "tunnel.create", eth1, foreign)
	u.fails("NETWORK_ALREADY_CONNECTED "+h1+" "+eth1, "tunnel.create", eth1, u.named("network", "data"))
	u.fails("TRANSPORT_PIF_NOT_CONFIGURED "+spare, "tunnel.create", spare, net)
	u.fails("OPENVSWITCH_NOT_ACTIVE", "tunnel.create", u.pif("h3", "eth1"), net)
	unmanaged := u.ref("PIF.introduce", h1, "02:00:00:00:00:09", "eth9", false)
	u.fails("PIF_UNMANAGED "+unmanaged, "tunnel.create", unmanaged, net)
	tunnel := u.ref("tunnel.create", eth1, net)
	access := u.get("tunnel", tunnel, "access_PIF").(string)
	u.fails("IS_TUNNEL_ACCESS_PIF "+access, "tunnel.create", access, u.network("n2"))
	u.fails("NETWORK_ALREADY_CONNECTED "+h1+" "+access, "tunnel.create", eth1, net)
	u.fails("NETWORK_ALREADY_CONNECTED "+h1+" "+access, "tunnel.create", spare, net) // before what is wrong with the transport
	u.must("PIF.reconfigure_ip", u.pif("h1", "eth3"), "Static", "198.51.100.8", "255.255.255.0", "", "")
	bond := u.ref("Bond.create", u.network("bonded"), []string{spare, u.pif("h1", "eth3")}, "")
	u.fails("CANNOT_ADD_TUNNEL_TO_BOND_SLAVE "+spare, "tunnel.create", spare, u.network("n3"))
	u.ref("tunnel.create", u.get("Bond", bond, "master"), u.network("n4"))
	vlan := u.ref("VLAN.create", eth1, 7, u.network("vlan7"))
	untagged := u.get("VLAN", vlan, "untagged_PIF").(string)
	u.fails("TRANSPORT_PIF_NOT_CONFIGURED "+untagged, "tunnel.create", untagged, u.network("n5"))
	u.must("PIF.reconfigure_ip", untagged, "DHCP", "", "", "", "")
	u.ref("tunnel.create", untagged, u.named("network", "n5"))
	if err := s.Control(t.Context(), "host h2 dead"); err != nil {
		t.Fatal(err)
	}
	u.fails("HOST_OFFLINE "+h2, "tunnel.create", u.pif("h2", "eth1"), foreign)
	u.fails("MESSAGE_PARAMETER_COUNT_MISMATCH tunnel.create 2 1", "tunnel.create", eth1)
}

// TestTunnelAtomic: a tunnel that cannot be plugged leaves nothing behind.
func TestTunnelAtomic(t *testing.T) {
	t.Parallel()
	u := lab(t)
	net := u.network("n")
	before := fmt.Sprint(len(u.records("PIF")), len(u.records("tunnel")))
	u.fails("TRANSPORT_PIF_NOT_CONFIGURED *", "tunnel.create", u.pif("h1", "eth2"), net)
	if after := fmt.Sprint(len(u.records("PIF")), len(u.records("tunnel"))); after != before {
		t.Errorf("PIFs and tunnels: %s before, %s after", before, after)
	}
	u.must("network.destroy", net)
}

// TestPlug: plugging and unplugging access and transport PIFs.
func TestPlug(t *testing.T) {
	t.Parallel()
	u := lab(t)
	eth1, net := u.pif("h1", "eth1"), u.network("n")
	tunnel := u.ref("tunnel.create", eth1, net)
	access := u.get("tunnel", tunnel, "access_PIF").(string)
	attached := func(ref string, want bool) {
		t.Helper()
		if u.get("PIF", ref, "currently_attached") != want {
			t.Fatalf("currently_attached is %v", !want)
		}
	}
	u.must("PIF.plug", access) // again: nothing happens
	u.must("PIF.unplug", access)
	attached(access, false)
	u.must("PIF.unplug", access) // again
	attached(eth1, true)
	u.must("network.set_MTU", net, int64(1400))
	u.must("PIF.plug", access)
	attached(access, true)
	if u.get("PIF", access, "MTU") != int64(1400) {
		t.Error("a plugged access PIF does not have its network's MTU")
	}
	u.must("PIF.unplug", eth1) // takes the access PIF along
	attached(eth1, false)
	attached(access, false)
	u.must("PIF.plug", access) // takes the transport along
	attached(eth1, true)
	attached(access, true)

	vm := u.ref("VM.create", map[string]any{"name_label": "vm"})
	vif := u.ref("VIF.create", map[string]any{"device": "0", "network": net, "VM": vm, "MAC": ""})
	u.must("VM.start_on", vm, u.named("host", "h1"), false, false)
	for _, call := range [][2]string{{"PIF.unplug", access}, {"PIF.unplug", eth1}, {"tunnel.destroy", tunnel}} {
		u.fails("VIF_IN_USE "+net+" "+vif, call[0], call[1])
	}
	attached(access, true)
	u.must("VIF.unplug", vif)
	u.must("PIF.set_disallow_unplug", access, true)
	u.fails("PIF_DOES_NOT_ALLOW_UNPLUG "+access, "PIF.unplug", access)
	u.fails("PIF_DOES_NOT_ALLOW_UNPLUG "+access, "PIF.unplug", eth1)
	u.must("PIF.set_disallow_unplug", access, false)
	u.fails("PIF_IS_MANAGEMENT_INTERFACE *", "PIF.unplug", u.pif("h1", "eth0"))

	u.must("PIF.unplug", access)
	u.must("PIF.reconfigure_ip", eth1, "None", "", "", "", "")
	u.fails("TRANSPORT_PIF_NOT_CONFIGURED "+eth1, "PIF.plug", access)
	u.must("PIF.reconfigure_ipv6", eth1, "Static", "2001:db8::1/64", "", "")
	u.fails("TRANSPORT_PIF_NOT_CONFIGURED "+eth1, "PIF.plug", access)
	u.must("PIF.set_primary_address_type", eth1, "IPv6")
	u.must("PIF.plug", access)
}

// TestHighAvailability: with it on, nothing is unplugged or configured anew.
func TestHighAvailability(t *testing.T) {
	t.Parallel()
	_, users := simulated(t, strings.Replace(twoPools, "password: secret", "password: secret\n  ha: true", 1), "secret", "other")
	u := users[0]
	eth1 := u.pif("h1", "eth1")
	tunnel := u.ref("tunnel.create", eth1, u.network("n"))
	u.fails("HA_IS_ENABLED", "PIF.unplug", eth1)
	u.fails("HA_IS_ENABLED", "tunnel.destroy", tunnel)
	u.fails("HA_IS_ENABLED", "PIF.reconfigure_ip", eth1, "DHCP", "", "", "", "")
	u.fails("HA_IS_ENABLED", "host.management_reconfigure", eth1)
}

// TestForget: the order of PIF.forget's refusals, and that a scan finds what was forgotten.
func TestForget(t *testing.T) {
	t.Parallel()
	u := lab(t)
	eth1, eth2, eth3, h1 := u.pif("h1", "eth1"), u.pif("h1", "eth2"), u.pif("h1", "eth3"), u.named("host", "h1")
	u.fails("PIF_IS_MANAGEMENT_INTERFACE "+u.pif("h1", "eth0"), "PIF.forget", u.pif("h1", "eth0"))
	tunnel := u.ref("tunnel.create", eth1, u.network("n"))
	access := u.get("tunnel", tunnel, "access_PIF").(string)
	u.fails("PIF_TUNNEL_STILL_EXISTS "+access, "PIF.forget", access)
	u.fails("PIF_TUNNEL_STILL_EXISTS "+eth1, "PIF.forget", eth1)
	vlan := u.ref("VLAN.create", eth1, 5, u.network("v5"))
	u.fails("PIF_VLAN_STILL_EXISTS "+eth1, "PIF.forget", eth1)
	u.fails("PIF_VLAN_STILL_EXISTS *", "PIF.forget", u.get("VLAN", vlan, "untagged_PIF"))
	bond := u.ref("Bond.create", u.network("b"), []string{eth2, eth3}, "")
	u.fails("PIF_ALREADY_BONDED "+eth2, "PIF.forget", eth2)
	u.fails("PIF_ALREADY_BONDED *", "PIF.forget", u.get("Bond", bond, "master"))
	u.must("Bond.destroy", bond)
	metrics := u.get("PIF", eth2, "metrics").(string)
	u.must("PIF.forget", eth2)
	u.fails("HANDLE_INVALID PIF "+eth2, "PIF.get_uuid", eth2)
	u.fails("HANDLE_INVALID PIF_metrics "+metrics, "PIF_metrics.get_uuid", metrics)
	u.fails("DUPLICATE_PIF_DEVICE_NAME eth1", "PIF.introduce", h1, "", "eth1")
	u.fails("MAC_INVALID zz", "PIF.introduce", h1, "zz", "eth2")
	u.must("PIF.scan", h1)
	again := u.pif("h1", "eth2")
	if u.get("PIF", again, "network") != u.named("network", "spare") {
		t.Error("the PIF is on another network after it was forgotten and found")
	}
	u.must("PIF.forget", again)
	back := u.ref("PIF.introduce", h1, "", "eth2")
	if u.get("PIF", back, "managed") != true || u.get("PIF", back, "physical") != true {
		t.Error("an introduced PIF is not physical and managed")
	}
}

// TestReconfigureIP: the arguments that are refused, by their names, and what a PIF shows after.
func TestReconfigureIP(t *testing.T) {
	t.Parallel()
	u := lab(t)
	eth1, eth2, h1 := u.pif("h1", "eth1"), u.pif("h1", "eth2"), u.named("host", "h1")
	for _, c := range [][5]string{
		{"IP", "", "255.255.255.0", "", ""}, {"IP", "192.0.2.300", "255.255.255.0", "", ""}, {"IP", "2001:db8::1", "255.255.255.0", "", ""}, {"netmask", "192.0.2.9", "", "", ""},
		{"netmask", "192.0.2.9", "255.0.255.0", "", ""}, {"gateway", "192.0.2.9", "255.255.255.0", "x", ""}, {"DNS", "192.0.2.9", "255.255.255.0", "192.0.2.1", "192.0.2.1,nobody"},
	} {
		u.fails("INVALID_IP_ADDRESS_SPECIFIED "+c[0], "PIF.reconfigure_ip", eth2, "Static", c[1], c[2], c[3], c[4])
	}
	for _, c := range [][4]string{{"IPv6", "2001:db8::1", "", ""}, {"IPv6", "192.0.2.1/24", "", ""}, {"gateway", "2001:db8::1/64", "192.0.2.1", ""}, {"DNS", "2001:db8::1/64", "", "x"}} {
		u.fails("INVALID_IP_ADDRESS_SPECIFIED "+c[0], "PIF.reconfigure_ipv6", eth2, "Static", c[1], c[2], c[3])
	}
	u.must("PIF.reconfigure_ip", eth2, "Static", "192.0.2.9", "255.255.255.0", "192.0.2.1", "192.0.2.1,192.0.2.2")
	r := u.records("PIF")[eth2]
	if got := fmt.Sprint(r["ip_configuration_mode"], r["IP"], r["netmask"], r["gateway"], r["DNS"]); got != "Static192.0.2.9255.255.255.0192.0.2.1192.0.2.1,192.0.2.2" {
		t.Error(got)
	}
	u.must("PIF.reconfigure_ip", eth2, "None", "", "", "", "")
	if r := u.records("PIF")[eth2]; r["IP"] != "" || r["netmask"] != "" || r["DNS"] != "" {
		t.Errorf("a PIF without configuration has %v", r)
	}
	u.must("PIF.reconfigure_ipv6", eth2, "Static", "2001:db8::1/64", "2001:db8::ff", "")
	if got := fmt.Sprint(u.get("PIF", eth2, "IPv6")); got != "[2001:db8::1/64]" {
		t.Error(got)
	}
	management := u.pif("h1", "eth0")
	u.fails("PIF_IS_MANAGEMENT_INTERFACE "+management, "PIF.reconfigure_ip", management, "None", "", "", "", "")
	unmanaged := u.ref("PIF.introduce", h1, "02:00:00:00:00:09", "eth9", false)
	u.fails("PIF_UNMANAGED "+unmanaged, "PIF.reconfigure_ip", unmanaged, "Static", "", "", "", "") // before the address
	u.fails("PIF_UNMANAGED "+unmanaged, "PIF.plug", unmanaged)
	u.fails("PIF_UNMANAGED "+unmanaged, "PIF.unplug", unmanaged)
	u.must("PIF.set_property", eth1, "gro", "off")
	u.fails("INVALID_VALUE name tso", "PIF.set_property", eth1, "tso", "off")
	u.fails("INVALID_VALUE value maybe", "PIF.set_property", eth1, "gro", "maybe")

	u.must("host.management_reconfigure", eth1)
	if u.ref("host.get_management_interface", h1) != eth1 || u.get("host", h1, "address") != "198.51.100.1" {
		t.Error("the management is not where it was put")
	}
	u.fails("PIF_HAS_NO_NETWORK_CONFIGURATION *", "host.management_reconfigure", u.pif("h1", "eth3"))
}

// TestVLANs: refusals in their order, and what a VLAN is made of.
func TestVLANs(t *testing.T) {
	t.Parallel()
	u := lab(t)
	eth1, h1, net := u.pif("h1", "eth1"), u.named("host", "h1"), u.network("v")
	tunnel := u.ref("tunnel.create", eth1, u.network("n"))
	access := u.get("tunnel", tunnel, "access_PIF").(string)
	u.fails("NETWORK_ALREADY_CONNECTED "+h1+" "+access, "VLAN.create", eth1, 9999, u.named("network", "n"))
	u.fails("IS_TUNNEL_ACCESS_PIF "+access, "VLAN.create", access, 9999, net)
	u.fails("VLAN_TAG_INVALID 4095", "VLAN.create", eth1, 4095, net)
	u.fails("VLAN_TAG_INVALID -1", "VLAN.create", eth1, -1, net)
	foreign := u.ref("network.create", map[string]any{"name_label": "foreign", "managed": false})
	u.fails("NETWORK_UNMANAGED "+foreign, "VLAN.create", eth1, 5, foreign)
	vlan := u.ref("VLAN.create", eth1, 5, net)
	untagged := u.get("VLAN", vlan, "untagged_PIF").(string)
	r := u.records("PIF")[untagged]
	if r["device"] != "eth1" || r["VLAN"] != int64(5) || r["MAC"] != vlanMAC || r["MTU"] != int64(1500) || r["currently_attached"] != true || r["VLAN_master_of"] != vlan {
		t.Errorf("the VLAN's PIF is %v", r)
	}
	u.fails("PIF_VLAN_EXISTS eth1", "VLAN.create", eth1, 5, u.network("w"))
	u.fails("PIF_IS_VLAN "+untagged, "VLAN.create", untagged, 6, u.named("network", "w"))
	bond := u.ref("Bond.create", u.network("b"), []string{u.pif("h1", "eth2"), u.pif("h1", "eth3")}, "")
	u.fails("CANNOT_ADD_VLAN_TO_BOND_SLAVE *", "VLAN.create", u.pif("h1", "eth2"), 6, u.named("network", "w"))
	u.fails("CANNOT_PLUG_BOND_SLAVE *", "PIF.plug", u.pif("h1", "eth2"))
	u.ref("VLAN.create", u.get("Bond", bond, "master"), 6, u.named("network", "w"))
	u.must("PIF.reconfigure_ip", untagged, "DHCP", "", "", "", "")
	on := u.ref("tunnel.create", untagged, u.network("over"))
	u.fails("PIF_TUNNEL_STILL_EXISTS "+untagged, "VLAN.destroy", vlan)
	u.must("tunnel.destroy", on)
	u.must("VLAN.destroy", vlan)
	u.fails("HANDLE_INVALID PIF "+untagged, "PIF.get_uuid", untagged)
	u.must("network.destroy", net)

	all := u.must("pool.create_VLAN_from_PIF", u.pif("h1", "eth0"), u.network("everywhere"), 12).([]string)
	if len(all) != 3 {
		t.Errorf("a VLAN on %d hosts, want 3", len(all))
	}
	u.fails("PIF_VLAN_EXISTS eth0", "pool.create_VLAN", "eth0", u.network("again"), 12)
	if got := u.must("pool.create_VLAN", "eth1", u.named("network", "again"), 13).([]string); len(got) != 3 {
		t.Errorf("a VLAN on %d hosts, want 3", len(got))
	}
}

// TestPoolVLANUndone: a VLAN that cannot be made on one host is on none.
func TestPoolVLANUndone(t *testing.T) {
	t.Parallel()
	u := lab(t)
	net := u.network("v")
	for _, h := range []string{"h1", "h2", "h3"} {
		if h != "h1" {
			u.ref("VLAN.create", u.pif(h, "eth1"), 40, u.network("taken "+h))
		}
	}
	before := len(u.records("VLAN"))
	u.fails("PIF_VLAN_EXISTS eth1", "pool.create_VLAN", "eth1", net, 40)
	if got := len(u.records("VLAN")); got != before {
		t.Errorf("%d VLANs, %d before", got, before)
	}
}

// TestBonds: what is on members moves to the bond and back.
func TestBonds(t *testing.T) {
	t.Parallel()
	u := lab(t)
	h1, eth1, eth2 := u.named("host", "h1"), u.pif("h1", "eth1"), u.pif("h1", "eth2")
	priv, net := u.network("priv"), u.network("bond")
	tunnel := u.ref("tunnel.create", eth1, priv, "vxlan")
	access := u.get("tunnel", tunnel, "access_PIF").(string)
	second := u.ref("tunnel.create", eth1, u.network("down"))
	u.must("PIF.unplug", u.get("tunnel", second, "access_PIF"))
	vlan := u.ref("VLAN.create", eth2, 5, u.network("v"))
	vm := u.ref("VM.create", map[string]any{"name_label": "vm"})
	vif := u.ref("VIF.create", map[string]any{"device": "0", "network": u.named("network", "data"), "VM": vm})
	u.must("VM.start_on", vm, h1, false, false)

	u.fails("PIF_BOND_NEEDS_MORE_MEMBERS", "Bond.create", net, []string{eth1}, "")
	u.fails("MAC_INVALID x", "Bond.create", net, []string{eth1, eth2}, "x")
	u.fails("NETWORK_ALREADY_CONNECTED "+h1+" *", "Bond.create", priv, []string{eth1, eth2}, "")
	u.fails("IS_TUNNEL_ACCESS_PIF "+access, "Bond.create", net, []string{eth1, access}, "")
	u.fails("PIF_VLAN_STILL_EXISTS *", "Bond.create", net, []string{eth1, u.get("VLAN", vlan, "untagged_PIF").(string)}, "")
	u.fails("PIF_CANNOT_BOND_CROSS_HOST", "Bond.create", net, []string{eth1, u.pif("h2", "eth1")}, "")

	bond := u.ref("Bond.create", net, []string{eth2, eth1}, "", "active-backup", map[string]string{"miimon": "100"})
	master := u.get("Bond", bond, "master").(string)
	r, slave := u.records("PIF")[master], u.records("PIF")[eth1]
	if r["device"] != "bond0" || r["IP"] != "198.51.100.1" || r["ip_configuration_mode"] != "Static" || r["currently_attached"] != true || fmt.Sprint(r["bond_master_of"]) != "["+bond+"]" {
		t.Errorf("the bond's master is %v", r)
	}
	if slave["bond_slave_of"] != bond || slave["ip_configuration_mode"] != "None" || slave["IP"] != "" {
		t.Errorf("a member is %v", slave)
	}
	if u.get("Bond", bond, "primary_slave") != eth1 || u.get("Bond", bond, "mode") != "active-backup" {
		t.Error("the bond's primary member is not the one with the address")
	}
	u.fails("HANDLE_INVALID tunnel "+tunnel, "tunnel.get_uuid", tunnel)
	u.fails("HANDLE_INVALID PIF "+access, "PIF.get_uuid", access)
	moved := u.tunnelOn("h1", priv)
	if moved["transport_PIF"] != master || moved["protocol"] != "vxlan" || u.get("PIF", moved["access_PIF"].(string), "currently_attached") != true {
		t.Errorf("the tunnel became %v", moved)
	}
	if down := u.tunnelOn("h1", u.named("network", "down")); u.get("PIF", down["access_PIF"].(string), "currently_attached") != false {
		t.Error("a tunnel that was unplugged is plugged on the bond")
	}
	if u.get("VLAN", vlan, "tagged_PIF") != master || u.get("PIF", u.get("VLAN", vlan, "untagged_PIF").(string), "device") != "bond0" {
		t.Error("the VLAN is not on the bond")
	}
	if u.get("VIF", vif, "network") != net {
		t.Error("the VIF is not on the bond's network")
	}
	u.fails("PIF_ALREADY_BONDED "+eth1, "Bond.create", u.network("other"), []string{eth1, u.pif("h1", "eth3")}, "")
	u.must("Bond.set_mode", bond, "lacp")
	u.must("Bond.set_property", bond, "lacp-time", "fast")
	if u.get("Bond", bond, "mode") != "lacp" || u.get("Bond", bond, "properties").(map[string]string)["lacp-time"] != "fast" {
		t.Error("mode and property are not as set")
	}

	u.must("Bond.destroy", bond)
	if back := u.tunnelOn("h1", priv); back["transport_PIF"] != eth1 {
		t.Errorf("the tunnel came back as %v", back)
	}
	if r := u.records("PIF")[eth1]; r["IP"] != "198.51.100.1" || r["bond_slave_of"] != model.NullRef {
		t.Errorf("the primary member came back as %v", r)
	}
	if u.get("VLAN", vlan, "tagged_PIF") != eth1 {
		t.Error("the VLAN is not on the primary member")
	}
	u.fails("HANDLE_INVALID PIF "+master, "PIF.get_uuid", master)
	u.must("network.destroy", net)
}

// TestBondOfVLANs: members that have the same VLAN are not bonded: one of the two would be lost.
func TestBondOfVLANs(t *testing.T) {
	t.Parallel()
	u := lab(t)
	eth2, eth3 := u.pif("h1", "eth2"), u.pif("h1", "eth3")
	u.ref("VLAN.create", eth2, 5, u.network("v2"))
	second := u.ref("VLAN.create", eth3, 5, u.network("v3"))
	u.fails("OPERATION_NOT_ALLOWED *", "Bond.create", u.network("b"), []string{eth2, eth3}, "")
	if u.get("PIF", eth2, "bond_slave_of") != model.NullRef {
		t.Error("a bond that was refused has a member")
	}
	u.must("VLAN.destroy", second)
	u.ref("Bond.create", u.named("network", "b"), []string{eth2, eth3}, "")
}

// tunnelOn is a host's tunnel on a network.
func (u user) tunnelOn(host, network string) model.Record {
	u.t.Helper()
	if r := u.findTunnel(host, network); r != nil {
		return r
	}
	u.t.Fatalf("host %s has no tunnel on the network", host)
	return nil
}

func (u user) findTunnel(host, network string) model.Record {
	h, pifs := u.named("host", host), u.records("PIF")
	for _, r := range u.records("tunnel") {
		if access := pifs[r["access_PIF"].(string)]; access["host"] == h && access["network"] == network {
			return r
		}
	}
	return nil
}

// TestNetworks: bridges' names, and what keeps a network.
func TestNetworks(t *testing.T) {
	t.Parallel()
	u := lab(t)
	a, b := u.network("a"), u.network("b")
	if u.get("network", a, "bridge") != "xapi0" || u.get("network", b, "bridge") != "xapi1" {
		t.Errorf("bridges %v and %v", u.get("network", a, "bridge"), u.get("network", b, "bridge"))
	}
	u.must("network.destroy", a)
	if c := u.network("c"); u.get("network", c, "bridge") != "xapi0" {
		t.Error("the lowest free bridge was not taken")
	}
	mine := u.ref("network.create", map[string]any{"name_label": "d", "bridge": "mine", "MTU": int64(-5), "other_config": map[string]string{"k": "v"}, "unknown": "member"})
	if u.get("network", mine, "MTU") != int64(1500) || u.get("network", mine, "bridge") != "mine" {
		t.Error("the network is not as asked for")
	}
	u.fails("BRIDGE_NAME_EXISTS mine", "network.create", map[string]any{"bridge": "mine"})
	for _, name := range []string{"xenbr9", "xapi9", "vif1", "tap1", "eth1", "sixteen-letters-", "lo"} {
		u.fails("INVALID_VALUE bridge "+name, "network.create", map[string]any{"bridge": name})
	}
	u.fails("NETWORK_CONTAINS_PIF **", "network.destroy", u.named("network", "data"))
	vm := u.ref("VM.create", map[string]any{"name_label": "vm"})
	vif := u.ref("VIF.create", map[string]any{"device": "0", "network": mine, "VM": vm})
	u.must("VM.start", vm, false, false)
	u.fails("NETWORK_CONTAINS_VIF "+vif, "network.destroy", mine)
	u.must("VM.hard_shutdown", vm)
	u.must("network.destroy", mine) // a VIF that is not attached goes along
	u.fails("HANDLE_INVALID VIF "+vif, "VIF.get_uuid", vif)
	u.must("network.add_purpose", b, "nbd")
	u.must("network.add_purpose", b, "nbd")
	if got := fmt.Sprint(u.get("network", b, "purpose")); got != "[nbd]" {
		t.Error(got)
	}
	u.must("network.remove_purpose", b, "nbd")
	u.must("network.set_default_locking_mode", b, "disabled")

	tunnel := u.ref("tunnel.create", u.pif("h1", "eth1"), b)
	access := u.get("tunnel", tunnel, "access_PIF").(string)
	u.must("PIF.unplug", access)
	u.must("network.attach", b, u.named("host", "h2")) // which has no PIF there
	u.must("network.attach", b, u.named("host", "h1"))
	if u.get("PIF", access, "currently_attached") != true {
		t.Error("network.attach does not plug the host's PIF")
	}
}

// TestVIFs: VIFs of machines that run and that do not.
func TestVIFs(t *testing.T) {
	t.Parallel()
	u := lab(t)
	net, h1 := u.network("n"), u.named("host", "h1")
	tunnel := u.ref("tunnel.create", u.pif("h1", "eth1"), net)
	access := u.get("tunnel", tunnel, "access_PIF").(string)
	u.must("PIF.unplug", access)
	vm := u.ref("VM.create", map[string]any{"name_label": "vm"})
	create := func(device, mac string) map[string]any {
		return map[string]any{"device": device, "network": net, "VM": vm, "MAC": mac}
	}
	vif := u.ref("VIF.create", create("0", ""))
	if !validMAC(u.get("VIF", vif, "MAC").(string)) || u.get("VIF", vif, "MAC_autogenerated") != true || u.get("VIF", vif, "MTU") != int64(1500) {
		t.Errorf("VIF %v", u.records("VIF")[vif])
	}
	u.fails("DEVICE_ALREADY_EXISTS 0", "VIF.create", create("0", ""))
	for _, device := range []string{"", "x", "-1", "01", "4000"} {
		u.fails(strings.TrimSuffix("INVALID_DEVICE "+cmpOr(device, "*"), " "), "VIF.create", create(device, ""))
	}
	u.fails("MAC_INVALID 01:00:00:00:00:01", "VIF.create", create("1", "01:00:00:00:00:01"))
	u.fails("VM_BAD_POWER_STATE "+vm+" running halted", "VIF.plug", vif)
	u.must("VM.start", vm, false, false) // to h1, the only one on the network
	if u.get("VM", vm, "resident_on") != h1 || u.get("PIF", access, "currently_attached") != true || u.get("VIF", vif, "currently_attached") != true {
		t.Error("starting a VM does not plug its network's access PIF")
	}
	u.fails("OPERATION_NOT_ALLOWED *", "VIF.destroy", vif)
	u.fails("DEVICE_ALREADY_ATTACHED "+vif, "VIF.plug", vif)
	u.must("VIF.unplug", vif)
	u.fails("DEVICE_ALREADY_DETACHED "+vif, "VIF.unplug", vif)
	u.must("VIF.unplug_force", vif)
	u.must("PIF.unplug", access)
	u.must("VIF.plug", vif)
	if u.get("PIF", access, "currently_attached") != true {
		t.Error("plugging a VIF does not plug its network's access PIF")
	}
	other := u.network("other")
	u.must("VIF.move", vif, other)
	if u.get("VIF", vif, "network") != other || u.get("VIF", vif, "currently_attached") != true {
		t.Error("the VIF did not move")
	}
	u.must("PIF.unplug", access)
	u.fails("VM_BAD_POWER_STATE "+vm+" halted running", "VM.start", vm, false, false)
	u.fails("VM_BAD_POWER_STATE "+vm+" halted running", "VM.destroy", vm)
	u.must("VM.clean_shutdown", vm)
	u.fails("VM_BAD_POWER_STATE "+vm+" running halted", "VM.clean_shutdown", vm)
	u.must("VM.destroy", vm)
	u.fails("HANDLE_INVALID VIF "+vif, "VIF.get_uuid", vif)
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// TestVMHosts: where VMs may run.
func TestVMHosts(t *testing.T) {
	t.Parallel()
	s, users := simulated(t, twoPools, "secret", "other")
	u := users[0]
	h1, h2 := u.named("host", "h1"), u.named("host", "h2")
	net := u.network("n")
	u.ref("tunnel.create", u.pif("h2", "eth1"), net)
	vm := u.ref("VM.create", map[string]any{"name_label": "vm", "affinity": h1})
	vif := u.ref("VIF.create", map[string]any{"device": "0", "network": net, "VM": vm})
	u.fails("HOST_CANNOT_ATTACH_NETWORK "+h1+" "+net, "VM.start_on", vm, h1, false, false)
	u.must("host.disable", h2)
	u.fails("HOST_DISABLED "+h2, "VM.start_on", vm, h2, false, false)
	u.fails("NO_HOSTS_AVAILABLE", "VM.start", vm, false, false)
	u.must("host.enable", h2)
	if err := s.Control(t.Context(), "host h2 dead"); err != nil {
		t.Fatal(err)
	}
	u.fails("HOST_OFFLINE "+h2, "VM.start_on", vm, h2, false, false)
	if err := s.Control(t.Context(), "host h2 live"); err != nil {
		t.Fatal(err)
	}
	u.must("VM.start", vm, true, false)
	if u.get("VM", vm, "resident_on") != h2 || u.get("VM", vm, "power_state") != "Paused" {
		t.Error("the VM did not start, paused, where its network is")
	}
	u.must("VM.hard_shutdown", vm)
	u.must("VIF.destroy", vif)
	u.must("VM.start", vm, false, false)
	if u.get("VM", vm, "resident_on") != h1 {
		t.Error("the VM is not on the host of its affinity")
	}
}
