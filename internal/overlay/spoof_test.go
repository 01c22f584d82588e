package overlay

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/topology/packet"
)

// TestNeighbourDiscoverySpoofed sends neighbour discovery of all kinds from a port with port
// security: what speaks for another's address, or names a MAC address that is not the port's own,
// does not reach the neighbour; what hosts send does.
func TestNeighbourDiscoverySpoofed(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	victim := n.machine(l.hosts[0], g)
	m := n.port(l.hosts[0], g)
	shared := netip.MustParseAddr("2001:db8::77")
	sharedMAC := packet.MAC{0, 0, 0x5e, 0, 2, 7} // RFC 5798 §7.3
	m.port.AllowedAddressPairs = []neutron.AddressPair{{IPAddress: shared.String(), MACAddress: sharedMAC}, {IPAddress: "2001:db8:5::/64"}}
	m.plug()
	m.bind()
	m.served()
	for _, x := range []*machine{victim, m} {
		x.MustIP(t, "link set eth0 promisc on")
	}
	from, err := m.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := victim.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()

	own, other, foreign := m.port.MACAddress, victim.port.MACAddress, packet.MAC{2, 0, 0, 0, 0, 9}
	linkLocal, pair := packet.LinkLocal(own), netip.MustParseAddr("2001:db8:5::5")
	nobody, allNodes := netip.IPv6Unspecified(), netip.MustParseAddr("ff02::1")
	unknown := netip.MustParseAddr("2001:db8::99")
	advert := func(src packet.MAC, target netip.Addr, link packet.MAC) []byte {
		b := packet.NeighborAdvert(other, src, victim.v6, target, packet.NDSolicited|packet.NDOverride)
		copy(b[80:], link[:])
		return resum(b)
	}
	unsolicited := func(target netip.Addr, link packet.MAC) []byte {
		b := packet.NeighborAdvert(packet.MulticastMAC(allNodes), own, allNodes, target, packet.NDOverride)
		copy(b[80:], link[:])
		return resum(b)
	}
	solicit := func(src netip.Addr, link packet.MAC) []byte { // to the victim alone, who is not asked for: it gets that
		b := packet.NeighborSolicit(other, own, src, victim.v6, unknown)
		copy(b[80:], link[:])
		return resum(b)
	}
	dad := func(mac packet.MAC, target netip.Addr) []byte {
		group := packet.SolicitedNode(target)
		return packet.NeighborSolicit(packet.MulticastMAC(group), mac, nobody, group, target)
	}
	twice := func(frame []byte, link packet.MAC) []byte { // a second link-layer address option
		b := append(bytes.Clone(frame), frame[78:86]...)
		copy(b[88:], link[:])
		b[19] += 8
		return resum(b)
	}
	// A router advertisement in two fragments.
	advertisement := func(header uint8, before []byte) (parts [2][]byte) {
		ra := packet.ICMP{Type: packet.ICMPv6RouterAdvert, Rest: 0x40000708}.AppendV6(nil, linkLocal, allNodes, make([]byte, 8))
		all := append(bytes.Clone(before), ra...)
		for i, part := range [][]byte{all[:8], all[8:]} {
			b := packet.Ethernet{Dst: other, Src: own, Type: packet.TypeIPv6}.Append(nil)
			b = packet.IPv6{HopLimit: 255, Next: header, Src: linkLocal, Dst: allNodes, Fragment: true, MoreFragments: i == 0, Offset: uint16(i), ID: 9}.Append(b, len(part))
			parts[i] = append(b, part...)
		}
		return parts
	}
	padding := []byte{packet.ProtoICMPv6, 0, 1, 4, 0, 0, 0, 0} // destination options
	inFirst, inSecond := advertisement(packet.ProtoICMPv6, nil), advertisement(60, padding)
	// The mark passes in any case; frames keep their order on the way through the agent.
	mark := advert(own, m.v6, own)
	arrives := func(frame []byte) bool {
		t.Helper()
		for _, f := range [][]byte{frame, mark} {
			if err := from.Send(f); err != nil {
				t.Fatal(err)
			}
		}
		found, err := to.Until(mark[:86], frame)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for name, frame := range map[string][]byte{
		"advertisement of its link-local address": advert(own, linkLocal, own),
		"advertisement of a pair":                 advert(own, pair, own),
		"advertisement of a pair with its MAC":    advert(sharedMAC, shared, sharedMAC),
		"unsolicited advertisement":               unsolicited(m.v6, own),
		"solicitation":                            solicit(m.v6, own),
		"solicitation from link-local":            solicit(linkLocal, own),
		"solicitation from a pair":                solicit(pair, own),
		"DAD for its address":                     dad(own, m.v6),
		"DAD for its link-local address":          dad(own, linkLocal),
		"DAD for a pair":                          dad(own, pair),
		"DAD for a pair with its MAC":             dad(sharedMAC, shared),
	} {
		if !arrives(frame) {
			t.Errorf("%s did not arrive", name)
		}
	}
	for name, frame := range map[string][]byte{
		"advertisement of the victim's address":                advert(own, victim.v6, own),
		"advertisement of an unused address":                   advert(own, unknown, own),
		"advertisement from a foreign MAC":                     advert(foreign, m.v6, foreign),
		"advertisement from a foreign MAC, own option":         advert(foreign, m.v6, own),
		"advertisement with a foreign option":                  advert(own, m.v6, foreign),
		"advertisement with the victim's MAC":                  advert(own, m.v6, other),
		"advertisement with a second, foreign option":          twice(advert(own, m.v6, own), foreign),
		"advertisement of a pair with the port's MAC":          advert(own, shared, own),
		"advertisement of the port's with the pair's MAC":      advert(sharedMAC, m.v6, sharedMAC),
		"unsolicited advertisement of the victim's address":    unsolicited(victim.v6, own),
		"unsolicited advertisement with a foreign option":      unsolicited(m.v6, foreign),
		"solicitation from the victim's address":               solicit(victim.v6, own),
		"solicitation from an unused address":                  solicit(unknown, own),
		"solicitation with a foreign option":                   solicit(m.v6, foreign),
		"solicitation with a second, foreign option":           twice(solicit(m.v6, own), foreign),
		"DAD for the victim's address":                         dad(own, victim.v6),
		"DAD for the victim's link-local address":              dad(own, packet.LinkLocal(other)),
		"DAD from a foreign MAC":                               dad(foreign, m.v6),
		"DAD for a pair with the port's MAC":                   dad(own, shared),
		"fragment of a router advertisement":                   inFirst[0],
		"fragment before the header of a router advertisement": inSecond[0],
	} {
		if arrives(frame) {
			t.Errorf("%s arrived", name)
		}
	}
	if _, err := m.Output(t.Context(), "ping", "-n", "-c", "1", "-W", "5", victim.v6.String()); err != nil {
		t.Errorf("a host's own neighbour discovery: %v", err)
	}
}

// TestSourceRoutedPackets: a router drops packets with a source route, though others of the same
// connection go by a flow in the kernel; a network passes them.
func TestSourceRoutedPackets(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	r := l.routed()
	l.start()
	from, neighbour, outside := r.machine(l.hosts[0]), r.machine(l.hosts[0]), r.external.machine(l.hosts[0])
	sender, err := from.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	datagram := func(mac packet.MAC, to netip.Addr, port uint16, options []byte, content string) []byte {
		body := packet.UDP{SrcPort: 1000, DstPort: port}.Append(nil, from.v4, to, []byte(content))
		b := packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: from.v4, Dst: to}.Append(nil, len(options)+len(body))
		b = append(b, options...)
		b[0] += byte(len(options) / 4)
		b[10], b[11] = 0, 0
		sum := packet.Fold(packet.Sum(0, b))
		b[10], b[11] = byte(sum>>8), byte(sum)
		return slices.Concat(packet.Ethernet{Dst: mac, Src: from.port.MACAddress, Type: packet.TypeIPv4}.Append(nil), b, body)
	}
	loose := []byte{131, 7, 4, 10, 0, 0, 1, 0}
	for _, c := range []struct {
		name   string
		to     *machine
		mac    packet.MAC
		passes bool
	}{
		{"through the router", outside, r.inside.Port.MACAddress, false},
		{"within the network", neighbour, neighbour.port.MACAddress, true},
	} {
		receiver, err := c.to.Wire("eth0")
		if err != nil {
			t.Fatal(err)
		}
		defer receiver.Close()
		for i := range uint16(3) { // the later packets without options go by a flow
			frames := [][]byte{
				datagram(c.mac, c.to.v4, 53, nil, fmt.Sprint("plain ", i)),
				datagram(c.mac, c.to.v4, 53, loose, fmt.Sprint("source-routed ", i)),
				datagram(c.mac, c.to.v4, 2000+i, nil, fmt.Sprint("mark ", i)), // by the agent too, behind the others
			}
			l.wait(fmt.Sprintf("packets %d %s", i, c.name), func() bool { // one may be lost
				for _, f := range frames {
					if err := sender.Send(f); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := receiver.Until([]byte(fmt.Sprint("plain ", i)), nil); err != nil {
					return false
				}
				found, err := receiver.Until([]byte(fmt.Sprint("mark ", i)), []byte(fmt.Sprint("source-routed ", i)))
				if found && !c.passes {
					t.Fatalf("%s: source-routed packet %d arrives", c.name, i)
				}
				return err == nil && found == c.passes
			})
		}
	}
}

// resum puts the checksum of an ICMPv6 frame right.
func resum(b []byte) []byte {
	b[56], b[57] = 0, 0
	sum := packet.Sum(0, slices.Concat(b[22:54], b[18:20], []byte{0, packet.ProtoICMPv6}, b[54:]))
	c := packet.Fold(sum)
	b[56], b[57] = byte(c>>8), byte(c)
	return b
}

// TestDHCPServerSpoofed: with port security a machine is no DHCP server, whether a flow of its was
// decided before or not; without, it may be one. What Heddle answers itself still comes.
func TestDHCPServerSpoofed(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	victim, rogue, server := n.machine(l.hosts[0], g), n.machine(l.hosts[0], g), n.machine(l.hosts[0])
	to, err := victim.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	for _, m := range []*machine{rogue, server} {
		from, err := m.Wire("eth0")
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		datagram := func(src, dst uint16, content string) []byte {
			body := packet.UDP{SrcPort: src, DstPort: dst}.Append(nil, m.v4, victim.v4, []byte(content))
			b := packet.Ethernet{Dst: victim.port.MACAddress, Src: m.port.MACAddress, Type: packet.TypeIPv4}.Append(nil)
			b = packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: m.v4, Dst: victim.v4}.Append(b, len(body))
			return append(b, body...)
		}
		datagram6 := func(src, dst uint16, content string) []byte {
			body := packet.UDP{SrcPort: src, DstPort: dst}.Append(nil, m.v6, victim.v6, []byte(content))
			b := packet.Ethernet{Dst: victim.port.MACAddress, Src: m.port.MACAddress, Type: packet.TypeIPv6}.Append(nil)
			b = append(b, 0x60, 0, 0, 0, 0, byte(len(body)), packet.ProtoUDP, 64)
			return append(append(append(b, m.v6.AsSlice()...), victim.v6.AsSlice()...), body...)
		}
		marks := uint16(1000)
		for name, frame := range map[string][]byte{"DHCP": datagram(67, 68, "offer of "+m.port.ID), "DHCPv6": datagram6(547, 546, "advertise of "+m.port.ID)} {
			for range 3 { // what arrives is sent on by the kernel from the second on
				marks++
				mark := datagram(67, marks, fmt.Sprint("mark ", marks, " of ", m.port.ID)) // a new flow: it goes through the agent, behind the frame
				for _, f := range [][]byte{frame, mark} {
					if err := from.Send(f); err != nil {
						t.Fatal(err)
					}
				}
				found, err := to.Until(mark, frame)
				if err != nil {
					t.Fatal(err)
				}
				if want := m == server; found != want {
					t.Errorf("%s answer of a port with security %v arrives: %v, want %v", name, m.port.PortSecurityEnabled, found, want)
				}
			}
		}
	}
}
