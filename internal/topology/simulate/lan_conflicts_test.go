package simulate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// claimOf is an ARP message of the outsider to all that an address is its own.
func claimOf(op uint16, a netip.Addr) []byte {
	return arp(packet.Broadcast, packet.ARP{Op: op, SHA: mac(outsider), SPA: a, TPA: a})
}

// TestLANConflicts: a machine on the LAN that sends from a MAC address at home at a host, or claims
// an address behind one, is noticed there and nowhere else; others are not.
func TestLANConflicts(t *testing.T) {
	t.Parallel()
	router := onLAN().home(t, routerMAC(7))
	gateway := ip("10.0.0.254")
	all := packet.MulticastMAC(allNodes)
	announce := func(from packet.MAC, a netip.Addr) []byte {
		return packet.NeighborAdvert(all, from, allNodes, a, packet.NDOverride)
	}
	for _, c := range []struct {
		name, at string
		frame    []byte
		want     string
	}{
		{"broadcast from a machine's address", "h1", toMAC(tcp(1, 2, 1, 2), packet.Broadcast), "01"},
		{"the same where that is not at home", "h2", toMAC(tcp(1, 2, 1, 2), packet.Broadcast), ""},
		{"to a machine of the same home", "h1", tcp(1, 4, 1, 2), "01"},
		{"between machines of two homes", "h2", tcp(1, 2, 1, 2), ""},
		{"broadcast from the router's address", router, fromMAC(toMAC(tcp(1, 2, 1, 2), packet.Broadcast), routerMAC(7)), "07"},
		{"the same at the other host", other(router), fromMAC(toMAC(tcp(1, 2, 1, 2), packet.Broadcast), routerMAC(7)), ""},
		{"claim of a machine's address", "h1", claimOf(packet.ARPRequest, addr(1)), "01 10.0.0.1"},
		{"the same by a reply", "h1", claimOf(packet.ARPReply, addr(1)), "01 10.0.0.1"},
		{"the same where that is not at home", "h2", claimOf(packet.ARPRequest, addr(1)), ""},
		{"claim of the router's address", router, claimOf(packet.ARPRequest, gateway), "07 10.0.0.254"},
		{"question in the router's name", router, arp(packet.Broadcast, packet.ARP{Op: packet.ARPRequest, SHA: mac(outsider), SPA: gateway, TPA: addr(8)}), "07 10.0.0.254"},
		{"claim from the router's MAC address too", router, fromMAC(claimOf(packet.ARPRequest, gateway), routerMAC(7)), "07, 07 10.0.0.254"},
		{"claim of its own address", "h1", claimOf(packet.ARPRequest, addr(outsider)), ""},
		{"question", "h1", request(outsider, addr(1)), ""},
		{"probe for a duplicate", "h1", arp(packet.Broadcast, packet.ARP{Op: packet.ARPRequest, SHA: mac(outsider), SPA: netip.IPv4Unspecified(), TPA: addr(1)}), ""},
		{"advertisement of a machine's address", "h1", announce(mac(outsider), addr6(4)), "04 " + addr6(4).String()},
		{"advertisement of its own", "h1", announce(mac(outsider), addr6(outsider)), ""},
		{"solicitation from a machine's address", "h1", packet.NeighborSolicit(all, mac(outsider), addr6(4), allNodes, addr6(1)), "04 " + addr6(4).String()},
		{"probe for a duplicate by IPv6", "h1", packet.NeighborSolicit(all, mac(outsider), netip.IPv6Unspecified(), allNodes, addr6(4)), ""},
		{"from an address that was only learned", "h1", toMAC(tcp(5, 2, 1, 2), packet.Broadcast), ""},
	} {
		l := onLAN()
		four := on("h1", open(4))
		four.ips = append(four.ips, addr6(4))
		l.port(four)
		l.LearnMAC(topology.LearnedMAC{HostID: "h1", NetworkID: "net", MAC: mac(5), PortID: "p1"}, 1)
		d := l.arrives("net", c.at, c.frame)
		var got []string
		for _, x := range d.Conflicts {
			text := fmt.Sprintf("%02x", x.MAC[5])
			if x.IP.IsValid() {
				text += " " + x.IP.String()
			}
			got = append(got, text)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: conflicts %q, want %q\n%s", c.name, got, c.want, walk(d))
		}
	}
	l := onLAN()
	if d := l.arrives("net", "h1", tcp(1, 4, 1, 2)); d.Verdict != flow.ErrorDrop || !d.Cacheable {
		t.Errorf("a frame in the name of a machine at home: want it dropped for a moment\n%s", walk(d))
	}
	if d := l.send("p1", toMAC(tcp(1, 4, 1, 2), packet.Broadcast)); len(d.Conflicts) > 0 {
		t.Errorf("a machine conflicts with itself\n%s", walk(d))
	}
}
