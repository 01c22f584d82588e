package addresses

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/neutron"
	"heddle/internal/topology/packet"
)

// taken is a Used over a set; it counts how often its list was asked for.
type taken struct {
	set   map[netip.Addr]bool
	lists int
}

func (t *taken) Has(_ string, a netip.Addr) (bool, error) { return t.set[a], nil }

func (t *taken) Between(_ string, first, last netip.Addr) ([]netip.Addr, error) {
	t.lists++
	var in []netip.Addr
	for a := range t.set {
		if !a.Less(first) && !last.Less(a) {
			in = append(in, a)
		}
	}
	slices.SortFunc(in, netip.Addr.Compare)
	return in, nil
}

func use(addrs ...string) *taken {
	t := &taken{set: map[netip.Addr]bool{}}
	for _, a := range addrs {
		t.set[netip.MustParseAddr(a)] = true
	}
	return t
}

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func subnet(id, cidr, gateway string) *neutron.Subnet {
	s := &neutron.Subnet{CIDR: netip.MustParsePrefix(cidr), IPVersion: 4}
	s.ID = id
	if s.CIDR.Addr().Is6() {
		s.IPVersion = 6
	}
	if gateway != "" {
		g := netip.MustParseAddr(gateway)
		s.GatewayIP = &g
	}
	s.AllocationPools = DefaultPools(s.CIDR, s.GatewayIP)
	return s
}

func TestDefaultGateway(t *testing.T) {
	t.Parallel()
	for cidr, want := range map[string]string{
		"10.0.0.0/24": "10.0.0.1", "10.0.0.0/8": "10.0.0.1", "10.0.0.128/31": "10.0.0.129", "10.0.0.1/32": "",
		"fd00:20::/64": "fd00:20::", "fd00::1/128": "",
	} {
		got, ok := DefaultGateway(netip.MustParsePrefix(cidr))
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("DefaultGateway(%s) = %s, %t; want %q", cidr, got, ok, want)
		}
	}
}

func TestDefaultPools(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ cidr, gateway, want string }{
		{"10.0.0.0/24", "10.0.0.1", "10.0.0.2-10.0.0.254"},
		{"10.0.0.0/24", "10.0.0.254", "10.0.0.1-10.0.0.253"},
		{"10.0.0.0/24", "10.0.0.100", "10.0.0.1-10.0.0.99 10.0.0.101-10.0.0.254"},
		{"10.0.0.0/24", "", "10.0.0.1-10.0.0.254"},
		{"10.0.0.0/24", "10.9.9.9", "10.0.0.1-10.0.0.254"},
		{"10.0.0.0/8", "10.0.0.1", "10.0.0.2-10.255.255.254"},
		{"10.0.0.0/31", "", "10.0.0.0-10.0.0.1"},
		{"10.0.0.0/31", "10.0.0.1", "10.0.0.0-10.0.0.0"},
		{"10.0.0.5/32", "", "10.0.0.5-10.0.0.5"},
		{"10.0.0.0/30", "10.0.0.1", "10.0.0.2-10.0.0.2"},
		{"fd00:20::/64", "fd00:20::", "fd00:20::1-fd00:20::ffff:ffff:ffff:ffff"},
		{"fd00:20::/64", "fd00:20::1", "fd00:20::2-fd00:20::ffff:ffff:ffff:ffff"},
		{"fd00:20::/127", "", "fd00:20::1-fd00:20::1"},
	} {
		got := ""
		for i, p := range subnet("s", tt.cidr, tt.gateway).AllocationPools {
			if i > 0 {
				got += " "
			}
			got += fmt.Sprintf("%s-%s", p.Start, p.End)
		}
		if got != tt.want {
			t.Errorf("DefaultPools(%s, gateway %q) = %s; want %s", tt.cidr, tt.gateway, got, tt.want)
		}
	}
}

func TestUsable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cidr, ip, owner string
		want            bool
	}{
		{"10.0.0.0/24", "10.0.0.1", "", true},
		{"10.0.0.0/24", "10.0.0.0", "", false},
		{"10.0.0.0/24", "10.0.0.255", "", false},
		{"10.0.0.0/24", "10.0.1.1", "", false},
		{"10.0.0.0/24", "fd00::1", "", false},
		{"10.0.0.0/31", "10.0.0.0", "", true},
		{"10.0.0.7/32", "10.0.0.7", "", true},
		{"fd00::/64", "fd00::", "", false},
		{"fd00::/64", "fd00::", "network:router_interface", true},
		{"fd00::/64", "fd00::ffff:ffff:ffff:ffff", "", true},
	} {
		if got := Usable(netip.MustParsePrefix(tt.cidr), netip.MustParseAddr(tt.ip), tt.owner); got != tt.want {
			t.Errorf("Usable(%s, %s, %q) = %t", tt.cidr, tt.ip, tt.owner, got)
		}
	}
}

// A choice is in a pool and free; it fails only when every address of every pool is taken.
func TestPickAnyState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := subnet("s", rapid.SampledFrom([]string{"10.0.0.0/28", "10.0.0.0/30", "fd00::/124", "10.0.0.0/29"}).Draw(t, "cidr"), "")
		gateway := offset(s.CIDR.Addr(), u128{lo: rapid.Uint64Range(0, 15).Draw(t, "gateway")})
		s.AllocationPools = DefaultPools(s.CIDR, &gateway)
		used := use()
		free := map[netip.Addr]bool{}
		for _, p := range s.AllocationPools {
			for a := p.Start; !p.End.Less(a); a = a.Next() {
				if rapid.Bool().Draw(t, a.String()) {
					used.set[a] = true
				} else {
					free[a] = true
				}
			}
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		got, ok, err := Pick(s, used, random)
		if err != nil || ok != (len(free) > 0) || ok && !free[got] {
			t.Fatalf("Pick = %s, %t, %v with %d free of %v", got, ok, err, len(free), s.AllocationPools)
		}
	})
}

// Every free address of a crowded pool can be chosen, however the taken ones lie.
func TestPickReachesEveryGap(t *testing.T) {
	t.Parallel()
	s := subnet("s", "10.0.0.0/27", "10.0.0.1")
	used := use()
	for a := netip.MustParseAddr("10.0.0.2"); s.CIDR.Contains(a); a = a.Next() {
		used.set[a] = true
	}
	want := []string{"10.0.0.2", "10.0.0.9", "10.0.0.30"}
	for _, a := range want {
		delete(used.set, netip.MustParseAddr(a))
	}
	seen := map[string]bool{}
	random := seeded()
	for range 200 {
		a, _, err := pickFromGaps(s, used, random)
		if err != nil {
			t.Fatal(err)
		}
		seen[a.String()] = true
	}
	if len(seen) != len(want) {
		t.Errorf("chose %v; want each of %v", seen, want)
	}
}

// Choosing from a pool of any size asks for a few addresses and never for a list.
func TestPickLargePools(t *testing.T) {
	t.Parallel()
	random := seeded()
	for _, cidr := range []string{"10.0.0.0/8", "fd00::/64", "fd00::/8", "0.0.0.0/1"} {
		s := subnet("s", cidr, "")
		used := use()
		for range 1000 {
			a, ok, err := Pick(s, used, random)
			if !ok || err != nil || !Usable(s.CIDR, a, "") || used.set[a] {
				t.Fatalf("%s: Pick = %s, %t, %v", cidr, a, ok, err)
			}
			used.set[a] = true
		}
		if used.lists > 0 {
			t.Errorf("%s: listed %d times", cidr, used.lists)
		}
	}
}

func TestFixedIPs(t *testing.T) {
	t.Parallel()
	const mac = "fa:16:3e:00:00:01"
	const self = "fd00:2::f816:3eff:fe00:1"
	slaac := subnet("auto6", "fd00:2::/64", "fd00:2::1")
	slaac.IPv6AddressMode = "slaac"
	full := subnet("full", "10.3.0.0/30", "10.3.0.1")
	service := subnet("service", "10.4.0.0/24", "10.4.0.1")
	service.ServiceTypes = []string{"compute:nova"}
	four := subnet("four", "10.0.0.0/24", "10.0.0.1")
	four.AllocationPools = []neutron.Pool{{Start: netip.MustParseAddr("10.0.0.5"), End: netip.MustParseAddr("10.0.0.5")}}
	six := subnet("six", "fd00:1::/64", "fd00:1::1")
	six.AllocationPools = []neutron.Pool{{Start: netip.MustParseAddr("fd00:1::5"), End: netip.MustParseAddr("fd00:1::5")}}

	entries := func(list ...string) []Entry { // pairs of subnet and address
		var es []Entry
		for i := 0; i < len(list); i += 2 {
			e := Entry{SubnetID: list[i]}
			if list[i+1] != "" {
				e.IPAddress = netip.MustParseAddr(list[i+1])
			}
			es = append(es, e)
		}
		return es
	}
	own := func(s, a string) []neutron.FixedIP {
		return []neutron.FixedIP{{SubnetID: s, IPAddress: netip.MustParseAddr(a)}}
	}
	for _, tt := range []struct {
		name    string
		request Request
		want    string
		err     string // type of the error
	}{
		{"no subnets", Request{Automatic: true}, "", ""},
		{"one of each family", Request{Automatic: true, Subnets: []*neutron.Subnet{four, six}}, "four 10.0.0.5 six fd00:1::5", ""},
		{"next subnet when one is full", Request{Automatic: true, Subnets: []*neutron.Subnet{full, four}}, "four 10.0.0.5", ""},
		{"all full", Request{Automatic: true, Subnets: []*neutron.Subnet{full}}, "", "IpAddressGenerationFailure"},
		{"slaac besides", Request{Automatic: true, Subnets: []*neutron.Subnet{slaac, four}}, "four 10.0.0.5 auto6 " + self, ""},
		{"slaac with none asked", Request{Subnets: []*neutron.Subnet{slaac, four}}, "auto6 " + self, ""},
		{"no slaac for routers", Request{Subnets: []*neutron.Subnet{slaac}, DeviceOwner: "network:router_interface"}, "", ""},
		{"service type of another", Request{Automatic: true, Subnets: []*neutron.Subnet{service, four}}, "four 10.0.0.5", ""},
		{"by subnet", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("four", "")}, "four 10.0.0.5", ""},
		{"by subnet with slaac", Request{Subnets: []*neutron.Subnet{slaac}, Entries: entries("auto6", "")}, "auto6 " + self, ""},
		{"by subnet, full", Request{Subnets: []*neutron.Subnet{full}, Entries: entries("full", "")}, "", "IpAddressGenerationFailureForSubnet"},
		{"by address", Request{Subnets: []*neutron.Subnet{six, four}, Entries: entries("", "10.0.0.9")}, "four 10.0.0.9", ""},
		{"outside the pool", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("four", "10.0.0.200")}, "four 10.0.0.200", ""},
		{"named before chosen", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("four", "", "four", "10.0.0.5")}, "", "IpAddressGenerationFailureForSubnet"},
		{"taken", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("four", "10.0.0.77")}, "", "IpAddressAlreadyAllocated"},
		{"own is not taken", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("four", "10.0.0.77"), Own: own("four", "10.0.0.77")}, "four 10.0.0.77", ""},
		{"own is kept", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("four", ""), Own: own("four", "10.0.0.77")}, "four 10.0.0.77", ""},
		{"twice", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("", "10.0.0.9", "", "10.0.0.9")}, "", "HTTPBadRequest"},
		{"foreign subnet", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("other", "")}, "", "InvalidInput"},
		{"nothing named", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("", "")}, "", "InvalidInput"},
		{"on no subnet", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("", "10.9.0.1")}, "", "InvalidIpForNetwork"},
		{"not in the subnet", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("four", "10.9.0.1")}, "", "InvalidIpForSubnet"},
		{"broadcast", Request{Subnets: []*neutron.Subnet{four}, Entries: entries("four", "10.0.0.255")}, "", "InvalidIpForSubnet"},
		{"slaac refuses others", Request{Subnets: []*neutron.Subnet{slaac}, Entries: entries("", "fd00:2::9")}, "", "AllocationOnAutoAddressSubnet"},
		{"slaac takes its own", Request{Subnets: []*neutron.Subnet{slaac}, Entries: entries("", self)}, "auto6 " + self, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.request.MAC, _ = packet.ParseMAC(mac)
			ips, err := FixedIPs(tt.request, use("10.3.0.2", "10.0.0.77"), seeded())
			var refused *neutron.Error
			if errors.As(err, &refused) {
				if refused.Type != tt.err {
					t.Fatalf("error %s: %s; want %q", refused.Type, refused.Message, tt.err)
				}
				return
			}
			got := ""
			for i, f := range ips {
				if i > 0 {
					got += " "
				}
				got += f.SubnetID + " " + f.IPAddress.String()
			}
			if err != nil || tt.err != "" || got != tt.want {
				t.Fatalf("got %q, %v; want %q %s", got, err, tt.want, tt.err)
			}
		})
	}
}

// Several addresses of one crowded subnet differ from each other.
func TestFixedIPsDistinct(t *testing.T) {
	t.Parallel()
	s := subnet("s", "10.0.0.0/29", "10.0.0.1")
	r := Request{Subnets: []*neutron.Subnet{s}, Entries: []Entry{{SubnetID: "s"}, {SubnetID: "s"}, {SubnetID: "s"}, {SubnetID: "s"}}}
	ips, err := FixedIPs(r, use("10.0.0.4"), seeded())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range ips {
		got = append(got, f.IPAddress.String())
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6"}, got); diff != "" {
		t.Errorf("chosen (-want +got):\n%s", diff)
	}
}

func TestMACAndTunnelKey(t *testing.T) {
	t.Parallel()
	var asked []packet.MAC
	m, err := MAC("n", func(m packet.MAC) (bool, error) { asked = append(asked, m); return len(asked) < 3, nil }, seeded())
	if err != nil || m != asked[2] || m[0] != 0xfa || m[1] != 0x16 || m[2] != 0x3e {
		t.Errorf("MAC = %s, %v after %v", m, err, asked)
	}
	if _, err := MAC("n", func(packet.MAC) (bool, error) { return true, nil }, seeded()); err == nil {
		t.Error("MAC with all taken: no error")
	}
	boom := errors.New("store away")
	if _, err := TunnelKey(func(uint32) (bool, error) { return false, boom }, seeded()); !errors.Is(err, boom) {
		t.Errorf("TunnelKey = %v; want the store's error", err)
	}
	random := seeded()
	for range 1000 {
		key, err := TunnelKey(func(uint32) (bool, error) { return false, nil }, random)
		if err != nil || key == 0 || key > MaxTunnelKey {
			t.Fatalf("TunnelKey = %d, %v", key, err)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	s := subnet("s", "fd00::/64", "fd00::1")
	used := use()
	random := seeded()
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := Pick(s, used, random); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
