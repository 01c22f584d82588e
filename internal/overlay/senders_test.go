package overlay

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
)

// bits are the datapath's: who may send to which port. A peer that is not there has none.
type bits map[datapath.Port]map[netip.Addr]bool

func (b bits) AllowSender(port datapath.Port, remote netip.Addr, allowed bool) {
	if b[port] == nil {
		b[port] = map[netip.Addr]bool{}
	}
	if b[port][remote] = true; !allowed {
		delete(b[port], remote)
	}
}

func (b bits) SetSenders(port datapath.Port, remotes map[netip.Addr]bool) {
	b[port] = map[netip.Addr]bool{}
	for a := range remotes {
		b[port][a] = true
	}
}

// TestSendersFollow: after any changes of ports, hosts and attachments, the peers that may send to
// a port are those with a port in a device that links lead to, and nobody is let go of in between
// who stays.
func TestSendersFollow(t *testing.T) {
	const self = "h0"
	own := func(p *topology.Port) bool { return p.HostID == self && p.Exterior() }
	rapid.Check(t, func(t *rapid.T) {
		b := bits{}
		s := newSenders(nil)
		s.dp = b
		bundles := map[int][]topology.Port{}
		addrs := map[string][]netip.Addr{}
		attached := map[string]datapath.Port{}
		number := datapath.Port(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				owner := rapid.IntRange(0, 5).Draw(t, "owner")
				var after []topology.Port
				for i := range rapid.IntRange(0, 2).Draw(t, "ports") {
					p := topology.Port{ID: fmt.Sprintf("p%d-%d", owner, i)}
					if device := rapid.SampledFrom([]string{"n1", "n2", "n3", "r1", "r2"}).Draw(t, "device"); device[0] == 'n' {
						p.NetworkID = device
					} else {
						p.RouterID = device
					}
					if rapid.Bool().Draw(t, "linked") {
						p.PeerID = fmt.Sprintf("p%d-%d", rapid.IntRange(0, 5).Draw(t, "peer's owner"), rapid.IntRange(0, 1).Draw(t, "peer"))
					} else if rapid.IntRange(0, 3).Draw(t, "bound") > 0 {
						p.HostID, p.InterfaceName = fmt.Sprintf("h%d", rapid.IntRange(0, 3).Draw(t, "host")), "tap"
					}
					after = append(after, p)
				}
				s.change(bundles[owner], after, own)
				bundles[owner] = after
			case 2:
				host := fmt.Sprintf("h%d", rapid.IntRange(1, 3).Draw(t, "host"))
				delete(addrs, host)
				if last := rapid.IntRange(0, 3).Draw(t, "address"); last > 0 {
					addrs[host] = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, byte(10*int(host[1]) + last)})}
				}
				now := map[string][]netip.Addr{}
				peers := map[netip.Addr]bool{}
				for h, a := range addrs {
					now[h] = a
					for _, x := range a {
						peers[x] = true
					}
				}
				for _, of := range b { // a peer that goes takes its bits along
					for a := range of {
						if !peers[a] {
							delete(of, a)
						}
					}
				}
				s.setHosts(now)
			case 3:
				id := fmt.Sprintf("p%d-%d", rapid.IntRange(0, 5).Draw(t, "owner"), rapid.IntRange(0, 1).Draw(t, "port"))
				if attached[id] != 0 {
					s.gone(id)
					delete(b, attached[id])
					delete(attached, id)
				} else {
					number++
					attached[id] = number
					s.attached(id, number)
				}
			}
			checkSenders(t, b, bundles, addrs, attached, own)
		}
		for owner, ports := range bundles {
			s.change(ports, nil, own)
			bundles[owner] = nil
		}
		s.setHosts(nil)
		if len(s.devices)+len(s.hosts)+len(s.ports)+len(s.ends)+len(s.namedBy) != 0 {
			t.Fatalf("left: devices %v, hosts %v, ports %v, ends %v, %v", s.devices, s.hosts, s.ports, s.ends, s.namedBy)
		}
	})
}

func checkSenders(t *rapid.T, b bits, bundles map[int][]topology.Port, addrs map[string][]netip.Addr, attached map[string]datapath.Port, own func(*topology.Port) bool) {
	t.Helper()
	want := bits{}
	for _, n := range attached {
		want[n] = map[netip.Addr]bool{}
	}
	areas := areasOf(bundles)
	for _, ports := range bundles {
		for i := range ports {
			n := attached[ports[i].ID]
			if n == 0 || !own(&ports[i]) {
				continue
			}
			for _, others := range bundles {
				for j := range others {
					if areas[deviceOf(&others[j])] == areas[deviceOf(&ports[i])] && others[j].Exterior() {
						for _, a := range addrs[others[j].HostID] {
							want[n][a] = true
						}
					}
				}
			}
		}
	}
	if fmt.Sprint(b) != fmt.Sprint(want) {
		t.Fatalf("may send: %v, want %v", b, want)
	}
}

// areasOf returns the smallest id of the devices that links lead to, by device.
func areasOf(bundles map[int][]topology.Port) map[string]string {
	ends, areas := map[string]*topology.Port{}, map[string]string{}
	for _, ports := range bundles {
		for i := range ports {
			areas[deviceOf(&ports[i])] = deviceOf(&ports[i])
			if !ports[i].Exterior() {
				ends[ports[i].ID] = &ports[i]
			}
		}
	}
	for range areas { // as many passes as a link can be far away
		for _, p := range ends {
			if q := ends[p.PeerID]; q != nil {
				a, b := deviceOf(p), deviceOf(q)
				areas[a], areas[b] = min(areas[a], areas[b]), min(areas[a], areas[b])
			}
		}
	}
	return areas
}
