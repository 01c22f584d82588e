package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// TestAddresses: an order configures an interface's holder, for good; what the agent cannot do is
// refused.
func TestAddresses(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.options.Addresses = filepath.Join(t.TempDir(), "addresses.json")
	h.ready()
	l.write(func(tx *records.Tx) error {
		return objects.Table("PIF").Put(tx, l.object("PIF", model.Record{"device": "leg", "host": h.ref, "network": "OpaqueRef:n", "physical": true}))
	})
	order := h.configure
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

// TestAddressWithinSubnet moves a host to another address of its subnet, which the kernel would
// delete along with the old one, and leaves everything as it was when an order fails.
func TestAddressWithinSubnet(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	dir := t.TempDir()
	h.options.Addresses = filepath.Join(dir, "addresses.json")
	h.ready()
	l.write(func(tx *records.Tx) error {
		return objects.Table("PIF").Put(tx, l.object("PIF", model.Record{"device": "leg", "host": h.ref, "network": "OpaqueRef:n", "physical": true}))
	})
	h.Space.MustIP(t, "route add 203.0.113.0/24 via 198.18.0.250", "route add 100.64.0.0/10 via 198.18.0.251 src 198.18.0.1")
	static := objects.Address{Family: 4, Mode: "Static", IP: "198.18.0.77", Netmask: "255.255.255.0"}
	if err := h.configure("o1", static); err != "" {
		t.Fatal(err)
	}
	want := "198.18.0.77/24\n100.64.0.0/10 via 198.18.0.251 dev br-phy src 198.18.0.77\n198.18.0.0/24 dev br-phy proto kernel scope link src 198.18.0.77\n203.0.113.0/24 via 198.18.0.250 dev br-phy"
	if got := h.configuration(); got != want {
		t.Errorf("the host has\n%s\nwant\n%s", got, want)
	}

	unreachable := objects.Address{Family: 4, Mode: "Static", IP: "198.18.0.78", Netmask: "255.255.255.0", Gateway: "192.0.2.1"}
	if err := h.configure("o2", unreachable); !strings.Contains(err, "192.0.2.1") && !strings.Contains(err, "default") && !strings.Contains(err, "0.0.0.0/0") {
		t.Errorf("a gateway that the host does not reach: %q", err)
	}
	if got := h.configuration(); got != want {
		t.Errorf("after an order that failed the host has\n%s\nwant\n%s", got, want)
	}
	// What cannot be kept for the next start is not done now.
	if err := os.Mkdir(h.options.Addresses+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	static.IP = "198.18.0.79"
	if err := h.configure("o3", static); !strings.Contains(err, "addresses.json") {
		t.Errorf("an order that cannot be kept: %q", err)
	}
	if got := h.configuration(); got != want {
		t.Errorf("after an order that could not be kept the host has\n%s\nwant\n%s", got, want)
	}
	if err := os.Remove(h.options.Addresses + ".new"); err != nil {
		t.Fatal(err)
	}
	if err := h.configure("o4", static); err != "" {
		t.Error(err)
	}
}

// configure gives the agent an order for the interface leg, and returns the error that it reports.
func (h *host) configure(id string, a objects.Address) string {
	h.lab.t.Helper()
	l := h.lab
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

// configuration returns the IPv4 addresses and routes of the host's bridge.
func (h *host) configuration() string {
	h.lab.t.Helper()
	addresses, err := h.Space.Output(h.lab.t.Context(), "ip", "-br", "-4", "addr", "show", "br-phy")
	if err != nil {
		h.lab.t.Fatal(err)
	}
	routes, err := h.Space.Output(h.lab.t.Context(), "ip", "-4", "route", "show")
	if err != nil {
		h.lab.t.Fatal(err)
	}
	words := strings.Fields(addresses)
	lines := words[min(2, len(words)):]
	for line := range strings.Lines(routes) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
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
