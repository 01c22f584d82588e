package xen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// TestAddresses: an order configures an interface's holder, for good; what the agent cannot do is refused.
func TestAddresses(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.options.Addresses = filepath.Join(t.TempDir(), "addresses.json")
	h.ready()
	l.write(func(tx *records.Tx) error {
		return objects.Table("PIF").Put(tx, l.object("PIF", model.Record{"device": "leg", "host": h.ref, "network": "OpaqueRef:n", "physical": true}))
	})
	order := func(id string, a objects.Address) string {
		a.Device = "leg"
		l.write(func(tx *records.Tx) error {
			return objects.Orders.Put(tx, &objects.Order{Host: h.ref, ID: id, Address: &a})
		})
		var r *objects.OrderReport
		l.until("the answer", func() bool { r, _ = objects.OrderReports.Peek(l.view(), h.ref+"/"+id); return r != nil })
		l.write(func(tx *records.Tx) error { return objects.Orders.Delete(tx, h.ref+"/"+id) })
		l.until("the answer to go", func() bool { _, there := objects.OrderReports.Peek(l.view(), h.ref+"/"+id); return !there })
		return r.Error
	}
	reports := func(mode, ip, gateway, ipv6 string) {
		t.Helper()
		l.until("interface of mode "+mode+" with "+ip, func() bool {
			r := h.report()
			return r != nil && len(r.Interfaces) == 1 && r.Interfaces[0].Mode == mode && r.Interfaces[0].IP == ip && r.Interfaces[0].Gateway == gateway && strings.Join(r.Interfaces[0].IPv6, ",") == ipv6
		})
	}
	static := objects.Address{Family: 4, Mode: "Static", IP: "198.18.0.77", Netmask: "255.255.0.0", Gateway: "198.18.0.254"}
	if err := order("o1", static); err != "" {
		t.Error(err)
	}
	reports("Static", "198.18.0.77", "198.18.0.254", "")
	if err := order("o2", objects.Address{Family: 6, Mode: "Static", IPv6: []string{"2001:db8::7/64"}}); err != "" {
		t.Error(err)
	}
	reports("Static", "198.18.0.77", "198.18.0.254", "2001:db8::7/64")
	for mode, want := range map[string]string{"DHCP": "DHCP", "Autoconf": "Autoconf"} {
		if err := order("o3", objects.Address{Family: 4, Mode: mode}); !strings.Contains(err, want) {
			t.Errorf("mode %s: %q", mode, err)
		}
	}

	// It is so after a start of the host, and when its bridge is another.
	h.kill()
	h.Space.MustIP(t, "addr flush dev br-phy", "addr add 198.18.0.1/24 dev br-phy")
	h.start()
	reports("Static", "198.18.0.77", "198.18.0.254", "2001:db8::7/64")
	h.vsctl("del-br", "br-phy", "--", "add-br", "br-new", "--", "set", "bridge", "br-new", "datapath_type=netdev", "--", "add-port", "br-new", "leg")
	reports("Static", "198.18.0.77", "198.18.0.254", "2001:db8::7/64")

	if err := order("o4", objects.Address{Family: 4, Mode: "None"}); err != "" {
		t.Error(err)
	}
	reports("None", "", "", "2001:db8::7/64")
	raw, err := os.ReadFile(h.options.Addresses)
	if err != nil || strings.Count(string(raw), `"device"`) != 2 {
		t.Errorf("%v: %s", err, raw)
	}
}

// TestAddressOrders: what no agent can carry out.
func TestAddressOrders(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]objects.Address{
		"want 4 or 6": {Device: "eth0", Mode: "None"},
		"netmask":     {Device: "eth0", Family: 4, Mode: "Static", IP: "192.0.2.1", Netmask: "255.0.255.0"},
		"192.0.2/24":  {Device: "eth0", Family: 4, Mode: "Static", IP: "192.0.2", Netmask: "255.255.255.0"},
		"gateway":     {Device: "eth0", Family: 4, Mode: "Static", IP: "192.0.2.1", Netmask: "255.255.255.0", Gateway: "2001:db8::1"},
		"DNS":         {Device: "eth0", Family: 4, Mode: "Static", IP: "192.0.2.1", Netmask: "255.255.255.0", DNS: "192.0.2.53"},
		"2001:db8::1": {Device: "eth0", VLAN: 7, Family: 6, Mode: "Static", IPv6: []string{"2001:db8::1"}},
		"192.0.2.1/8": {Device: "eth0", VLAN: 7, Family: 6, Mode: "Static", IPv6: []string{"192.0.2.1/8"}},
		"mode DHCP":   {Device: "eth0", Family: 4, Mode: "DHCP"},
	} {
		if _, err := prefixesOf(o); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "eth0") {
			t.Errorf("%+v: %v, want something about %s", o, err, want)
		}
	}
}
