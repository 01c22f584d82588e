package agent

import (
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"

	"heddle/internal/hostnet"
	"heddle/internal/xen/objects"
)

// machine holds the state of this host's interfaces, in the kernel and in Open vSwitch.
type machine struct {
	links     []hostnet.Link
	addresses map[int][]netip.Prefix // by index of the link
	leased    map[int][]netip.Prefix // those of them that will end: see hostnet.Linux.Leased
	routes    []hostnet.Route
	speeds    map[string]hostnet.Speed
	dns       []string // servers that this host asks

	ports map[string]switchPort // of Open vSwitch, by name
}

// switchPort is a port of Open vSwitch that has at least one interface of the kernel's.
type switchPort struct {
	bridge     string
	ours       bool     // the bridge, or the port, is this agent's
	interfaces []string // two or more: a bond
}

// guests begin the names of interfaces that belong to virtual machines.
var guests = []string{"vif", "tap"}

// interfaces are those of the host itself, by device and VLAN: what its PIFs are made of.
//
//   - Network cards (links that the kernel gives no kind), bonds, and VLANs on these.
//   - The end of a veth whose other end is elsewhere, as a host that is a container has for a card:
//     if it has an address, or the bridge of Open vSwitch that it is a port of has one and is not
//     ours.
//   - Any other that known names: a PIF of the host is called so, or the operator has named it.
//
// An interface on a bridge has the bridge's addresses. It has no IPv4 address: mode None. The
// address expires unless it is renewed: DHCP. It was set for good: Static. The same of IPv6, with
// Autoconf for what ends and is not a single address.
func (m *machine) interfaces(known func(device string) bool) []objects.Interface {
	byIndex := map[int]hostnet.Link{}
	for _, l := range m.links {
		byIndex[l.Index] = l
	}
	var all []objects.Interface
	for _, l := range m.links {
		holder := m.holder(l, byIndex)
		if !m.own(l, holder, known) {
			continue
		}
		i := objects.Interface{Device: l.Name, MAC: macOf(l), MTU: l.MTU, Carrier: l.Running,
			Speed: m.speeds[l.Name].Megabits, Duplex: m.speeds[l.Name].Duplex, Physical: l.Kind != hostnet.Bond && l.Kind != hostnet.VLAN}
		switch l.Kind {
		case hostnet.VLAN:
			parent := byIndex[l.Parent]
			if !m.own(parent, m.holder(parent, byIndex), known) {
				continue
			}
			i.Device, i.VLAN = parent.Name, l.Tag
		case hostnet.Bond:
			i.Members = m.members(l)
		}
		if holder.Index != l.Index {
			i.Bridge = holder.Name
		}
		m.configure(&i, holder)
		all = append(all, i)
	}
	all = append(all, m.switchBonds(all)...)
	slices.SortFunc(all, func(a, b objects.Interface) int {
		if c := strings.Compare(a.Device, b.Device); c != 0 {
			return c
		}
		return a.VLAN - b.VLAN
	})
	return all
}

// holder is the link that has an interface's addresses: its bridge, or itself.
func (m *machine) holder(l hostnet.Link, byIndex map[int]hostnet.Link) hostnet.Link {
	if p, ok := m.portOf(l.Name); ok {
		for _, bridge := range m.links {
			if bridge.Name == p.bridge {
				return bridge
			}
		}
		return hostnet.Link{Name: p.bridge, Index: -1} // its internal port is not there yet
	}
	if master, ok := byIndex[l.Master]; ok && master.Kind == hostnet.Bridge {
		return master
	}
	return l
}

// portOf finds the port of Open vSwitch that has the interface.
func (m *machine) portOf(device string) (switchPort, bool) {
	if p, ok := m.ports[device]; ok && p.bridge != device {
		return p, true
	}
	for _, p := range m.ports {
		if len(p.interfaces) > 1 && slices.Contains(p.interfaces, device) {
			return p, true
		}
	}
	return switchPort{}, false
}

// own reports whether the link is one of the host's interfaces.
func (m *machine) own(l, holder hostnet.Link, known func(string) bool) bool {
	for _, prefix := range guests {
		if strings.HasPrefix(l.Name, prefix) {
			return false
		}
	}
	port, switched := m.portOf(l.Name)
	if switched && port.ours || l.Kind == hostnet.Loopback || l.Index == 0 {
		return false
	}
	switch l.Kind {
	case hostnet.Device, hostnet.Bond, hostnet.VLAN:
		return true
	case hostnet.Veth:
		if known(l.Name) {
			return true
		}
		return l.Elsewhere && (switched || holder.Index == l.Index) && len(m.addresses[holder.Index]) > 0
	}
	return known(l.Name)
}

// members are the devices of a bond of the kernel.
func (m *machine) members(bond hostnet.Link) []string {
	var all []string
	for _, l := range m.links {
		if l.Master == bond.Index {
			all = append(all, l.Name)
		}
	}
	return all
}

// switchBonds are the bonds that Open vSwitch makes of interfaces found: ports with several.
func (m *machine) switchBonds(found []objects.Interface) []objects.Interface {
	var all []objects.Interface
	for name, p := range m.ports {
		if len(p.interfaces) < 2 || p.ours {
			continue
		}
		bond := objects.Interface{Device: name, Bridge: p.bridge, Mode: "None"}
		for i := range found {
			member := &found[i]
			if !slices.Contains(p.interfaces, member.Device) || member.VLAN != 0 {
				continue
			}
			if bond.Members == nil || member.MTU < bond.MTU {
				bond.MTU = member.MTU
			}
			bond.Members = append(bond.Members, member.Device)
			bond.Carrier = bond.Carrier || member.Carrier
			bond.Speed, bond.Duplex = max(bond.Speed, member.Speed), bond.Duplex || member.Duplex
			withAddresses(&bond, member)
			withAddresses(member, &objects.Interface{Mode: "None"})
		}
		for _, l := range m.links {
			if l.Name == p.bridge {
				bond.MAC = macOf(l)
			}
		}
		if bond.Members != nil {
			all = append(all, bond)
		}
	}
	return all
}

// withAddresses gives one interface the configuration of another.
func withAddresses(i, from *objects.Interface) {
	i.Mode, i.IP, i.Netmask, i.Gateway, i.DNS, i.IPv6, i.IPv6Mode = from.Mode, from.IP, from.Netmask, from.Gateway, from.DNS, from.IPv6, from.IPv6Mode
}

// configure fills in how the interface is configured, from the link that has its addresses.
func (m *machine) configure(i *objects.Interface, holder hostnet.Link) {
	i.Mode = "None"
	for _, r := range m.routes {
		if r.Link == holder.Name && r.Dst.Bits() == 0 && r.Dst.Addr().Is4() && r.Gateway.IsValid() {
			i.Gateway, i.DNS = r.Gateway.String(), strings.Join(m.dns, ",")
		}
	}
	if address, ok := m.chosen(holder, i.Gateway); ok {
		i.IP, i.Netmask = address.Addr().String(), net.IP(net.CIDRMask(address.Bits(), 32)).String()
		i.Mode = "Static"
		if slices.Contains(m.leased[holder.Index], address) {
			i.Mode = "DHCP"
		}
	}
	for _, a := range m.addresses[holder.Index] {
		if !a.Addr().Is6() {
			continue
		}
		i.IPv6 = append(i.IPv6, a.String())
		switch {
		case !slices.Contains(m.leased[holder.Index], a):
			i.IPv6Mode = "Static"
		case i.IPv6Mode == "" && a.IsSingleIP():
			i.IPv6Mode = "DHCP"
		case i.IPv6Mode == "":
			i.IPv6Mode = "Autoconf"
		}
	}
}

// chosen is the IPv4 address that stands for a link: that of the gateway's network, else the first.
func (m *machine) chosen(l hostnet.Link, gateway string) (first netip.Prefix, ok bool) {
	to, _ := netip.ParseAddr(gateway)
	for _, a := range m.addresses[l.Index] {
		if !a.Addr().Is4() || a.Addr().IsLinkLocalUnicast() {
			continue
		}
		if to.IsValid() && a.Contains(to) {
			return a, true
		}
		if !ok {
			first, ok = a, true
		}
	}
	return first, ok
}

// management returns a host's address: of the interface with the default route, else the first.
func management(all []objects.Interface) string {
	for _, i := range all {
		if i.Gateway != "" && i.IP != "" {
			return i.IP
		}
	}
	for _, i := range all {
		if i.IP != "" {
			return i.IP
		}
	}
	for _, i := range all {
		for _, a := range i.IPv6 {
			return netip.MustParsePrefix(a).Addr().String()
		}
	}
	return ""
}

func macOf(l hostnet.Link) string { return net.HardwareAddr(l.MAC[:]).String() }

// matches reports whether a name matches one of the patterns, as path.Match does.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}
