package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// entries reads lines of "path value".
func entries(text string) []Entry {
	var all []Entry
	for line := range strings.Lines(text) {
		if path, value, _ := strings.Cut(strings.TrimSpace(line), " "); path != "" {
			all = append(all, Entry{path, []byte(strings.TrimSpace(value))})
		}
	}
	return all
}

func prefixes(text string) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range strings.Fields(text) {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// show writes sessions as people would: origin, addresses, AS of the peer.
func show(p *Plan) string {
	var b strings.Builder
	for _, s := range p.Sessions {
		fmt.Fprintf(&b, "%s %s from %s as %d\n", s.Origin, s.Peer, s.Local, s.ASNumber)
	}
	return b.String()
}

const threeHosts = `
	/calico/bgp/v1/host/a/ip_addr_v4 192.0.2.1
	/calico/bgp/v1/host/a/ip_addr_v6 2001:db8::1
	/calico/bgp/v1/host/b/ip_addr_v4 192.0.2.2
	/calico/bgp/v1/host/b/ip_addr_v6
	/calico/bgp/v1/host/c/ip_addr_v4 192.0.2.3
	/calico/bgp/v1/host/c/ip_addr_v6 2001:db8::3
`

func TestSessions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more, want string
		as         uint32
	}{
		"mesh by default, with those who have the family": {
			"", "mesh 192.0.2.2 from 192.0.2.1 as 64512\nmesh 192.0.2.3 from 192.0.2.1 as 64512\nmesh 2001:db8::3 from 2001:db8::1 as 64512\n", 64512},
		"mesh off":                              {"/calico/bgp/v1/global/node_mesh {\"enabled\": false}", "", 64512},
		"mesh off in the seed's other spelling": {"/calico/v1/config/bgp_node_mesh {\"enabled\": false}", "", 64512},
		"the first spelling wins":               {"/calico/v1/config/bgp_node_mesh {\"enabled\": true}\n/calico/bgp/v1/global/node_mesh {\"enabled\": false}", "", 64512},
		"a mesh that cannot be read is off":     {"/calico/bgp/v1/global/node_mesh yes", "", 64512},
		"AS numbers: host over global": {`
			/calico/bgp/v1/global/as_num 65000
			/calico/bgp/v1/host/a/as_num 1.10
			/calico/bgp/v1/host/c/as_num 65003`,
			"mesh 192.0.2.2 from 192.0.2.1 as 65000\nmesh 192.0.2.3 from 192.0.2.1 as 65003\nmesh 2001:db8::3 from 2001:db8::1 as 65003\n", 65546},
		"peers in all spellings, own over global over mesh": {`
			/calico/bgp/v1/global/node_mesh {"enabled": true}
			/calico/bgp/v1/global/peer_v4/192.0.2.2 {"ip": "192.0.2.2", "as_num": "65100"}
			/calico/v1/config/bgp_peer_v4/192.0.2.3 {"ip": "192.0.2.3", "as_num": 65100}
			/calico/bgp/v1/host/a/peer_v4/192.0.2.3 {"ip": "192.0.2.3", "as_num": "65101"}
			/calico/v1/host/a/bgp_peer_v6/2001:db8::3 {"ip": "2001:db8::3", "as_num": "0.65102"}
			/calico/v1/host/b/bgp_peer_v4/192.0.2.9 {"ip": "192.0.2.9", "as_num": "65103"}`,
			"global 192.0.2.2 from 192.0.2.1 as 65100\nhost 192.0.2.3 from 192.0.2.1 as 65101\nhost 2001:db8::3 from 2001:db8::1 as 65102\n", 64512},
		"no session with itself": {`
			/calico/bgp/v1/global/node_mesh {"enabled": false}
			/calico/bgp/v1/global/peer_v4/192.0.2.1 {"ip": "192.0.2.1", "as_num": "64512"}`, "", 64512},
		"a bad peer harms no other": {`
			/calico/bgp/v1/global/node_mesh {"enabled": false}
			/calico/bgp/v1/global/peer_v4/192.0.2.7 {"ip": "192.0.2.7"}
			/calico/bgp/v1/global/peer_v4/192.0.2.8 {"ip": "192.0.2.8", "as_num": "64999"}`,
			"global 192.0.2.8 from 192.0.2.1 as 64999\n", 64512},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New(Host{Name: "a"}, entries(threeHosts+c.more), nil)
			if got := show(p); got != c.want || p.ASNumber != c.as {
				t.Errorf("AS %d, sessions\n%swant AS %d,\n%s", p.ASNumber, got, c.as, c.want)
			}
		})
	}
}

// TestPassive: of two hosts one connects; to whoever is no host, the host does.
func TestPassive(t *testing.T) {
	t.Parallel()
	all := entries(threeHosts + `
		/calico/bgp/v1/global/peer_v4/192.0.2.0 {"ip": "192.0.2.0", "as_num": "65001"}
		/calico/bgp/v1/global/peer_v4/192.0.2.3 {"ip": "192.0.2.3", "as_num": "65001"}`)
	passive := map[string]bool{}
	for _, host := range []string{"a", "b", "c"} {
		for _, s := range New(Host{Name: host}, all, nil).Sessions {
			passive[s.Local.String()+" "+s.Peer.String()] = s.Passive
		}
	}
	for pair, got := range passive {
		local, peer, _ := strings.Cut(pair, " ")
		if back, both := passive[peer+" "+local]; both && back == got || !both && got {
			t.Errorf("%s: passive %v, the other way %v", pair, got, back)
		}
	}
	if len(passive) != 3*2+2+3 {
		t.Errorf("sessions %v", passive)
	}
	ten := entries("/calico/bgp/v1/host/a/ip_addr_v4 192.0.2.9\n/calico/bgp/v1/host/b/ip_addr_v4 192.0.2.10")
	if a, b := New(Host{Name: "a"}, ten, nil), New(Host{Name: "b"}, ten, nil); a.Sessions[0].Passive || !b.Sessions[0].Passive {
		t.Errorf("192.0.2.9 is to connect to 192.0.2.10, as text has it: %+v, %+v", a.Sessions, b.Sessions)
	}
}

func TestRouterID(t *testing.T) {
	t.Parallel()
	if got := New(Host{Name: "a"}, entries(threeHosts), nil).RouterID; got != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("router ID %s, want the host's IPv4 address", got)
	}
	own := netip.MustParseAddr("198.51.100.1")
	if got := New(Host{Name: "a", RouterID: own}, entries(threeHosts), nil).RouterID; got != own {
		t.Errorf("router ID %s, want the configured one", got)
	}
	six := entries("/calico/bgp/v1/host/a/ip_addr_v6 2001:db8::1")
	first, other := New(Host{Name: "a"}, six, nil).RouterID, New(Host{Name: "b"}, six, nil).RouterID
	if !first.Is4() || first == other {
		t.Errorf("router IDs of hosts without IPv4: %s and %s, want two IPv4 addresses", first, other)
	}
}

func TestExport(t *testing.T) {
	t.Parallel()
	p := New(Host{Name: "a"}, entries(`
		/calico/v1/ipam/v4/pool/10.1.0.0-16 {"cidr": "10.1.0.0/16"}
		/calico/v1/ipam/v4/pool/10.2.0.0-16 {"cidr": "10.2.0.0/16", "disabled": true}
		/calico/v1/ipam/v6/pool/fd00:1::-64 {"cidr": "fd00:1::/64"}
		/calico/bgp/v1/global/custom_filters/v4/no-lab if ( net ~ 10.1.9.0/24 ) then { reject; }
		/calico/bgp/v1/global/custom_filters/v4/service if net ~ [ 10.96.0.0/12{12,24} ] then accept;
		/calico/bgp/v1/global/custom_filters/v6/broken if bgp_path ~ [= * 65000 * =] then accept; if net ~ fd00:1::/80 then reject;
	`), prefixes("10.1.4.0/26 fd00:1::40/122"))
	for dst, want := range map[string]bool{
		"10.1.4.0/26": true, "10.1.4.7/32": false, "10.1.4.64/32": true, "10.1.5.0/26": true, "10.1.0.0/16": true,
		"10.2.3.4/32": true, "10.3.0.0/26": false, "10.0.0.0/8": false, "0.0.0.0/0": false, "192.0.2.0/24": false,
		"10.1.9.0/24": false, "10.1.9.9/32": false, "10.96.3.0/24": true, "10.96.3.1/32": false,
		"fd00:1::40/122": true, "fd00:1::41/128": false, "fd00:1:0:0:1::1/128": true, "fd00:1::81/128": false, "fd00:2::1/128": false,
	} {
		if got := p.Exports(netip.MustParsePrefix(dst)); got != want {
			t.Errorf("%s: exported %v, want %v", dst, got, want)
		}
	}
	if len(p.Problems) != 1 || !strings.HasSuffix(p.Problems[0].Key, "custom_filters/v6/broken") {
		t.Errorf("problems %v, want one of the filter that cannot be read", p.Problems)
	}
}

func TestLogLevel(t *testing.T) {
	t.Parallel()
	const global, own = "/calico/bgp/v1/global/loglevel ", "\n/calico/bgp/v1/host/a/loglevel "
	for text, want := range map[string][2]bool{
		"": {}, global + "info": {false, true}, global + "debug": {true, true}, global + "none": {},
		global + "debug" + own + "none": {}, own + "debug": {true, true}, "/calico/bgp/v1/host/b/loglevel debug": {},
	} {
		if p := New(Host{Name: "a"}, entries(text), nil); [2]bool{p.Debug, p.Verbose} != want {
			t.Errorf("%q: debug %v, verbose %v, want %v", text, p.Debug, p.Verbose, want)
		}
	}
}

func TestTunnels(t *testing.T) {
	t.Parallel()
	p := New(Host{Name: "a"}, entries(threeHosts+`
		/calico/bgp/v1/host/a/network_v4 192.0.2.1/24
		/calico/v1/ipam/v4/pool/10.1.0.0-16 {"cidr": "10.1.0.0/16", "ipip": "tunl0"}
		/calico/v1/ipam/v4/pool/10.1.8.0-24 {"cidr": "10.1.8.0/24"}
		/calico/v1/ipam/v4/pool/10.2.0.0-16 {"cidr": "10.2.0.0/16", "ipip": "tunl0", "ipip_mode": "cross-subnet"}
		/calico/v1/ipam/v4/pool/10.3.0.0-16 {"cidr": "10.3.0.0/16", "ipip": "vxlan0", "ipip_mode": "always", "disabled": true}
		/calico/v1/ipam/v4/pool/10.4.0.0-16 {"cidr": "10.4.0.0/16"}
	`), nil)
	for _, c := range []struct{ dst, hop, want string }{
		{"10.1.0.0/26", "192.0.2.2", "tunl0"}, {"10.1.0.0/15", "192.0.2.2", ""}, {"10.1.8.64/26", "192.0.2.2", ""},
		{"10.2.0.0/26", "192.0.2.2", ""}, {"10.2.0.0/26", "198.51.100.2", "tunl0"},
		{"10.3.0.1/32", "192.0.2.2", "vxlan0"}, {"10.4.0.1/32", "198.51.100.2", ""}, {"172.16.0.0/12", "192.0.2.2", ""},
		{"fd00::/64", "2001:db8::3", ""},
	} {
		if got := p.Device(netip.MustParsePrefix(c.dst), netip.MustParseAddr(c.hop)); got != c.want {
			t.Errorf("%s over %s: device %q, want %q", c.dst, c.hop, got, c.want)
		}
	}
	unknown := New(Host{Name: "b"}, entries(`/calico/v1/ipam/v4/pool/10.2.0.0-16 {"cidr": "10.2.0.0/16", "ipip": "tunl0", "ipip_mode": "cross-subnet"}`), nil)
	if got := unknown.Device(netip.MustParsePrefix("10.2.0.0/26"), netip.MustParseAddr("192.0.2.2")); got != "tunl0" {
		t.Errorf("a host whose network nobody knows uses device %q, want the tunnel", got)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	p := New(Host{Name: "a"}, entries(`
		/calico/bgp/v1/host/a/ip_addr_v4 127.0.0.1
		/calico/bgp/v1/host/b/ip_addr_v4 2001:db8::2
		/calico/bgp/v1/host/c/as_num zero
		/calico/v1/ipam/v4/pool/10.1.0.0-16 {"cidr": "10.2.0.0/16"}
		/calico/bgp/v1/global/peer_v4/not-an-address {"ip": "192.0.2.9", "as_num": "1"}
		/calico/v1/ipam/v4/pool/10.1.0.0 {}
		/calico/bgp/v1/host/c/loglevel info
	`), nil)
	var keys []string
	for _, x := range p.Problems {
		keys = append(keys, x.Key)
		if x.Reason == "" {
			t.Errorf("no reason for %s", x.Key)
		}
	}
	want := []string{"/calico/bgp/v1/host/a/ip_addr_v4", "/calico/bgp/v1/host/b/ip_addr_v4", "/calico/bgp/v1/host/c/as_num", "/calico/v1/ipam/v4/pool/10.1.0.0-16"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("problems (-want +got)\n%s", diff)
	}
	if len(p.Sessions) > 0 || len(p.Addresses) > 0 {
		t.Errorf("sessions %v from %v, want none", p.Sessions, p.Addresses)
	}
}

// TestOrder: a plan depends on what lies in etcd alone, not on the order in which it came.
func TestOrder(t *testing.T) {
	t.Parallel()
	all := entries(threeHosts + `
		/calico/bgp/v1/global/peer_v4/192.0.2.2 {"ip": "192.0.2.2", "as_num": "65100"}
		/calico/v1/config/bgp_peer_v4/192.0.2.2 {"ip": "192.0.2.2", "as_num": "65200"}
		/calico/bgp/v1/host/a/peer_v4/192.0.2.3 {"ip": "192.0.2.3", "as_num": "65101"}
		/calico/bgp/v1/host/d/ip_addr_v4 192.0.2.3
		/calico/bgp/v1/host/d/as_num 65004
		/calico/bgp/v1/host/e/ip_addr_v4 bad
		/calico/v1/ipam/v4/pool/10.1.0.0-16 {"cidr": "10.1.0.0/16", "ipip": "tunl0"}
		/calico/v1/ipam/v4/pool/10.2.0.0-16 {"cidr": "10.2.0.0/16"}
		/calico/bgp/v1/global/custom_filters/v4/b reject;
		/calico/bgp/v1/global/custom_filters/v4/a if net ~ 10.2.0.0/24 then accept;
		/calico/bgp/v1/global/custom_filters/v4/c what;
	`)
	blocks := prefixes("10.1.4.0/26 10.1.5.0/26 10.1.4.0/26")
	want := New(Host{Name: "a"}, all, blocks)
	rapid.Check(t, func(t *rapid.T) {
		got := New(Host{Name: "a"}, rapid.Permutation(all).Draw(t, "entries"), rapid.Permutation(blocks).Draw(t, "blocks"))
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Fatalf("in another order (-want +got)\n%s", diff)
		}
	})
}

// TestInvariants: whatever lies in etcd, no session with itself or twice, one family a session, and
// no address of an own block exported by itself.
func TestInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []Entry
		add := func(path, format string, args ...any) {
			all = append(all, Entry{path, fmt.Appendf(nil, format, args...)})
		}
		ip := rapid.Custom(func(t *rapid.T) netip.Addr {
			n := rapid.Byte().Draw(t, "n") % 6
			if rapid.Bool().Draw(t, "v6") {
				return netip.AddrFrom16([16]byte{0x20, 1, 15: n})
			}
			return netip.AddrFrom4([4]byte{192, 0, 2, n})
		})
		for _, host := range []string{"a", "b", "c", "d"} {
			for _, f := range []Family{IPv4, IPv6} {
				add(fmt.Sprintf("/calico/bgp/v1/host/%s/ip_addr_v%d", host, f), "%s", ip.Draw(t, "address"))
			}
		}
		for range rapid.IntRange(0, 8).Draw(t, "peers") {
			a := ip.Draw(t, "peer")
			where := rapid.SampledFrom([]string{"/calico/bgp/v1/global/peer_v%d/%s", "/calico/v1/config/bgp_peer_v%d/%s",
				"/calico/bgp/v1/host/a/peer_v%d/%s", "/calico/v1/host/a/bgp_peer_v%d/%s"}).Draw(t, "where")
			add(fmt.Sprintf(where, familyOf(a), a), `{"ip": "%s", "as_num": "%d"}`, a, rapid.Uint32Range(1, 5).Draw(t, "as"))
		}
		add("/calico/v1/ipam/v4/pool/10.0.0.0-8", `{"cidr": "10.0.0.0/8"}`)
		add("/calico/bgp/v1/global/custom_filters/v4/x", "%s", rapid.SampledFrom([]string{"accept;", "reject;", "", "if net ~ 10.0.0.0/8 then accept;"}).Draw(t, "filter"))
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, rapid.Byte().Draw(t, "block"), 64}), 26)
		p := New(Host{Name: "a"}, all, []netip.Prefix{block})
		seen := map[netip.Addr]bool{}
		for _, s := range p.Sessions {
			if seen[s.Peer] || s.Peer == s.Local || familyOf(s.Peer) != familyOf(s.Local) || s.ASNumber == 0 {
				t.Fatalf("session %+v", s)
			}
			seen[s.Peer] = true
		}
		inside := netip.PrefixFrom(block.Addr().Next(), rapid.IntRange(27, 32).Draw(t, "bits")).Masked()
		if !p.Exports(block) || p.Exports(inside) {
			t.Fatalf("block %s exported %v, %s inside it %v", block, p.Exports(block), inside, p.Exports(inside))
		}
	})
}
