package agent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/hostnet"
	"heddle/internal/xen/objects"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

func defaultRoute(link, gateway string) hostnet.Route {
	return hostnet.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: link, Gateway: netip.MustParseAddr(gateway)}
}

// TestInterfaces: what of a machine's links are a host's PIFs, and how they are configured.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	const eth0, br0, gone = 2, 3, 99
	mac := hostnet.MAC{2, 0, 0, 0, 0, 1}
	card := func(index int, name string) hostnet.Link {
		return hostnet.Link{Index: index, Name: name, Kind: hostnet.Device, MTU: 1500, Up: true, Running: true, MAC: mac}
	}
	veth := func(index int, name string) hostnet.Link {
		l := card(index, name)
		l.Kind, l.Elsewhere = hostnet.Veth, true
		return l
	}
	plain := objects.Interface{Device: "eth0", MAC: "02:00:00:00:00:01", MTU: 1500, Carrier: true, Physical: true, Mode: "None"}
	with := func(change func(*objects.Interface)) []objects.Interface {
		i := plain
		change(&i)
		return []objects.Interface{i}
	}
	bridge := hostnet.Link{Index: br0, Name: "br0", Kind: hostnet.Bridge, MAC: mac}
	internal := hostnet.Link{Index: br0, Name: "br-phy", Kind: hostnet.Tap, MAC: mac}
	bonded := func(index int, name string) hostnet.Link { l := card(index, name); l.Master = 9; return l }
	for name, c := range map[string]struct {
		m    machine
		want []objects.Interface
	}{
		"a card without address": {machine{links: []hostnet.Link{{Index: 1, Name: "lo", Kind: hostnet.Loopback}, card(eth0, "eth0")}}, with(func(*objects.Interface) {})},
		"static, with the default route": {machine{links: []hostnet.Link{card(eth0, "eth0")}, dns: []string{"192.0.2.53", "192.0.2.54"},
			addresses: map[int][]netip.Prefix{eth0: prefixes("10.0.0.9/8", "192.0.2.9/24")}, routes: []hostnet.Route{defaultRoute("eth0", "192.0.2.1")}},
			with(func(i *objects.Interface) {
				i.Mode, i.IP, i.Netmask, i.Gateway, i.DNS = "Static", "192.0.2.9", "255.255.255.0", "192.0.2.1", "192.0.2.53,192.0.2.54"
			})},
		"by DHCP, with router advertisements": {machine{links: []hostnet.Link{card(eth0, "eth0")}, speeds: map[string]hostnet.Speed{"eth0": {Megabits: 1000, Duplex: true}},
			addresses: map[int][]netip.Prefix{eth0: prefixes("192.0.2.9/24", "2001:db8::9/64")},
			leased:    map[int][]netip.Prefix{eth0: prefixes("192.0.2.9/24", "2001:db8::9/64")}},
			with(func(i *objects.Interface) {
				i.Mode, i.IP, i.Netmask, i.IPv6, i.IPv6Mode = "DHCP", "192.0.2.9", "255.255.255.0", []string{"2001:db8::9/64"}, "Autoconf"
				i.Speed, i.Duplex = 1000, true
			})},
		"on a bridge of the kernel": {machine{links: []hostnet.Link{func() hostnet.Link { l := card(eth0, "eth0"); l.Master = br0; return l }(), bridge},
			addresses: map[int][]netip.Prefix{br0: prefixes("192.0.2.9/24")}},
			with(func(i *objects.Interface) {
				i.Bridge, i.Mode, i.IP, i.Netmask = "br0", "Static", "192.0.2.9", "255.255.255.0"
			})},
		"on a bridge of Open vSwitch": {machine{links: []hostnet.Link{card(eth0, "eth0"), internal},
			addresses: map[int][]netip.Prefix{br0: prefixes("192.0.2.9/24")},
			ports:     map[string]switchPort{"eth0": {bridge: "br-phy"}, "br-phy": {bridge: "br-phy"}}},
			with(func(i *objects.Interface) {
				i.Bridge, i.Mode, i.IP, i.Netmask = "br-phy", "Static", "192.0.2.9", "255.255.255.0"
			})},
		"on a bridge of Open vSwitch that is not there yet": {machine{links: []hostnet.Link{card(eth0, "eth0")}, ports: map[string]switchPort{"eth0": {bridge: "br-phy"}}},
			with(func(i *objects.Interface) { i.Bridge = "br-phy" })},
		"a container's veth": {machine{links: []hostnet.Link{veth(eth0, "eth0")}, addresses: map[int][]netip.Prefix{eth0: prefixes("192.0.2.9/24")}}, with(func(i *objects.Interface) { i.Mode, i.IP, i.Netmask = "Static", "192.0.2.9", "255.255.255.0" })},
		"a container's veth on Open vSwitch": {machine{links: []hostnet.Link{veth(eth0, "eth0"), internal}, addresses: map[int][]netip.Prefix{br0: prefixes("192.0.2.9/24")}, ports: map[string]switchPort{"eth0": {bridge: "br-phy"}}}, with(func(i *objects.Interface) {
			i.Bridge, i.Mode, i.IP, i.Netmask = "br-phy", "Static", "192.0.2.9", "255.255.255.0"
		})},
		"a workload's veth":                        {machine{links: []hostnet.Link{veth(eth0, "cali0")}}, nil},
		"a workload's veth on the kernel's bridge": {machine{links: []hostnet.Link{func() hostnet.Link { l := veth(eth0, "veth1"); l.Master = br0; return l }(), bridge}, addresses: map[int][]netip.Prefix{br0: prefixes("172.17.0.1/16")}}, nil},
		"a workload's veth on a bridge of ours":    {machine{links: []hostnet.Link{veth(eth0, "w1"), internal}, addresses: map[int][]netip.Prefix{br0: prefixes("192.0.2.9/24")}, ports: map[string]switchPort{"w1": {bridge: "br-phy", ours: true}}}, nil},
		"a machine's tap":                          {machine{links: []hostnet.Link{card(gone, "vif1.0"), card(98, "tap0")}}, nil},
		"a veth that is a PIF":                     {machine{links: []hostnet.Link{veth(eth0, "known0")}}, with(func(i *objects.Interface) { i.Device = "known0" })},
		"a bond of the kernel": {machine{links: []hostnet.Link{bonded(eth0, "eth0"), {Index: 9, Name: "bond0", Kind: hostnet.Bond, MTU: 1500, Running: true, MAC: mac}}, addresses: map[int][]netip.Prefix{9: prefixes("192.0.2.9/24")}},
			[]objects.Interface{
				{Device: "bond0", Members: []string{"eth0"}, MAC: plain.MAC, MTU: 1500, Carrier: true, Mode: "Static", IP: "192.0.2.9", Netmask: "255.255.255.0"}, plain}},
		"a bond of Open vSwitch": {machine{links: []hostnet.Link{card(eth0, "eth0"), card(4, "eth1"), internal}, addresses: map[int][]netip.Prefix{br0: prefixes("192.0.2.9/24")},
			ports: map[string]switchPort{"bond0": {bridge: "br-phy", interfaces: []string{"eth0", "eth1"}}}},
			[]objects.Interface{
				{Device: "bond0", Members: []string{"eth0", "eth1"}, MAC: plain.MAC, MTU: 1500, Carrier: true, Bridge: "br-phy", Mode: "Static", IP: "192.0.2.9", Netmask: "255.255.255.0"},
				{Device: "eth0", MAC: plain.MAC, MTU: 1500, Carrier: true, Physical: true, Mode: "None", Bridge: "br-phy"},
				{Device: "eth1", MAC: plain.MAC, MTU: 1500, Carrier: true, Physical: true, Mode: "None", Bridge: "br-phy"}}},
		"a VLAN": {machine{links: []hostnet.Link{card(eth0, "eth0"), {Index: 5, Name: "eth0.7", Kind: hostnet.VLAN, Parent: eth0, Tag: 7, MTU: 1500, MAC: mac}}, addresses: map[int][]netip.Prefix{5: prefixes("192.0.2.9/24")}},
			[]objects.Interface{plain, {Device: "eth0", VLAN: 7, MAC: plain.MAC, MTU: 1500, Mode: "Static", IP: "192.0.2.9", Netmask: "255.255.255.0"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.m.interfaces(func(device string) bool { return device == "known0" })
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestManagement: the address by which a host is known.
func TestManagement(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][]objects.Interface{
		"":            {{Device: "eth0"}},
		"192.0.2.1":   {{Device: "eth0", IP: "192.0.2.1"}, {Device: "eth1", IP: "198.51.100.1"}},
		"192.0.2.2":   {{Device: "eth0", IP: "198.51.100.1"}, {Device: "eth1", IP: "192.0.2.2", Gateway: "192.0.2.254"}},
		"2001:db8::1": {{Device: "eth0", IPv6: []string{"2001:db8::1/64"}}},
	} {
		if got := management(all); got != want {
			t.Errorf("%+v: %q, want %q", all, got, want)
		}
	}
}
