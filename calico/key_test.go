package calico

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func cidr(text string) netip.Prefix { return netip.MustParsePrefix(text) }
func addr(text string) netip.Addr   { return netip.MustParseAddr(text) }

// everyKey has each row of spec 2.1 to 2.3.
var everyKey = []struct {
	path string
	key  Key
}{
	{"/calico/host/h/workload/docker/w/endpoint/e", WorkloadEndpointKey{"h", "docker", "w", "e", true}},
	{"/calico/policy/profile/p/rules", ProfileRulesKey{"p", true}},
	{"/calico/policy/profile/p/tags", ProfileTagsKey{"p", true}},
	{"/calico/policy/profile/p/refcount", ProfileRefcountKey{"p"}},
	{"/calico/v1/Ready", ReadyKey{}},
	{"/calico/v1/config/InterfacePrefix", GlobalConfigKey{"InterfacePrefix"}},
	{"/calico/v1/config/a/b", GlobalConfigKey{"a/b"}},
	{"/calico/v1/config/marker", GlobalConfigKey{"marker"}},
	{"/calico/v1/host/h/config/LogSeverityScreen", HostConfigKey{"h", "LogSeverityScreen"}},
	{"/calico/v1/host/h/metadata", HostMetadataKey{"h"}},
	{"/calico/v1/host/h/bird_ip", HostIPKey{"h"}},
	{"/calico/v1/host/h/orchestrator_refs", OrchRefsKey{"h"}},
	{"/calico/v1/host/h/workload/openstack/a%2fb%25c/endpoint/e", WorkloadEndpointKey{"h", "openstack", "a/b%c", "e", false}},
	{"/calico/v1/host/h/endpoint/eth0%2f1", HostEndpointKey{"h", "eth0/1"}},
	{"/calico/v1/policy/profile/web%2f1/rules", ProfileRulesKey{"web/1", false}},
	{"/calico/v1/policy/profile/web/tags", ProfileTagsKey{"web", false}},
	{"/calico/v1/policy/profile/web/labels", ProfileLabelsKey{"web"}},
	{"/calico/v1/policy/tier/t/metadata", TierKey{"t"}},
	{"/calico/v1/policy/tier/default/policy/p%252f", PolicyKey{"default", "p%2f"}},
	{"/calico/v1/ipam/v4/pool/10.0.0.0-8", PoolKey{cidr("10.0.0.0/8")}},
	{"/calico/v1/ipam/v6/pool/fd80:24e2::-64", PoolKey{cidr("fd80:24e2::/64")}},
	{"/calico/ipam/v2/config", IPAMConfigKey{}},
	{"/calico/ipam/v2/assignment/ipv4/block/10.0.0.64-26", BlockKey{cidr("10.0.0.64/26")}},
	{"/calico/ipam/v2/assignment/ipv6/block/fd80::40-122", BlockKey{cidr("fd80::40/122")}},
	{"/calico/ipam/v2/handle/x", HandleKey{"x"}},
	{"/calico/ipam/v2/host/h", IPAMHostKey{"h"}},
	{"/calico/ipam/v2/host/h/ipv4/block/10.0.0.64-26", BlockAffinityKey{"h", cidr("10.0.0.64/26")}},
	{"/calico/ipam/v2/host/h/ipv6/block/fd80::-122", BlockAffinityKey{"h", cidr("fd80::/122")}},
	{"/calico/bgp/v1/global/as_num", BGPGlobalConfigKey{"as_num"}},
	{"/calico/bgp/v1/global/node_mesh", BGPGlobalConfigKey{"node_mesh"}},
	{"/calico/bgp/v1/global/loglevel", BGPGlobalConfigKey{"loglevel"}},
	{"/calico/bgp/v1/global/custom_filters/v4/f", BGPGlobalConfigKey{"custom_filters/v4/f"}},
	{"/calico/bgp/v1/global/peer_v4/192.0.2.1", BGPGlobalPeerKey{addr("192.0.2.1")}},
	{"/calico/bgp/v1/global/peer_v6/2001:db8::1", BGPGlobalPeerKey{addr("2001:db8::1")}},
	{"/calico/bgp/v1/host/h/ip_addr_v4", BGPNodeConfigKey{"h", "ip_addr_v4"}},
	{"/calico/bgp/v1/host/h/network_v6", BGPNodeConfigKey{"h", "network_v6"}},
	{"/calico/bgp/v1/host/h/as_num", BGPNodeConfigKey{"h", "as_num"}},
	{"/calico/bgp/v1/host/h/peer_v4/192.0.2.1", BGPNodePeerKey{"h", addr("192.0.2.1")}},
	{"/calico/bgp/v1/host/h/peer_v6/2001:db8::1", BGPNodePeerKey{"h", addr("2001:db8::1")}},
	{"/calico/felix/v1/host/h/status", AgentStatusKey{"h"}},
	{"/calico/felix/v1/host/h/last_reported_status", AgentLastStatusKey{"h"}},
	{"/calico/felix/v1/host/h/workload/o/w/endpoint/e", WorkloadEndpointStatusKey{"h", "o", "w", "e"}},
	{"/calico/felix/v1/host/h/endpoint/e", HostEndpointStatusKey{"h", "e"}},
	{"/calico/dhcp/v1/subnet/s", DHCPSubnetKey{"s"}},
	{"/calico/openstack/v1/neutron_election", NeutronElectionKey{}},
}

func TestKeys(t *testing.T) {
	for _, c := range everyKey {
		for _, path := range []string{c.path, c.path[1:]} {
			if got, ok := ParseKey(path); !ok || got != c.key {
				t.Errorf("ParseKey(%q) = %#v, %v; want %#v", path, got, ok, c.key)
			}
		}
		if got, err := c.key.Path(); err != nil || got != c.path {
			t.Errorf("%#v.Path() = %q, %v; want %q", c.key, got, err, c.path)
		}
		if got := KindOf(c.path); got != c.key.Kind() {
			t.Errorf("KindOf(%q) = %s; want %s", c.path, got, c.key.Kind())
		}
		if empty := EmptyKey(c.key.Kind()); !Matches(empty, c.key) && !partsOf(c.key).legacy {
			t.Errorf("the empty key of kind %s does not match %#v", c.key.Kind(), c.key)
		}
		if IsAlias(c.path) {
			t.Errorf("IsAlias(%q); it is the path that is written", c.path)
		}
	}
}

func TestKinds(t *testing.T) {
	has := map[Kind]bool{}
	for _, c := range everyKey {
		has[c.key.Kind()] = true
	}
	for _, kind := range Kinds() {
		if !has[kind] || EmptyKey(kind) == nil {
			t.Errorf("kind %s: no key above is of it, or it has no empty key", kind)
		}
		delete(has, kind)
	}
	if len(has) > 0 {
		t.Errorf("Kinds lacks %v", has)
	}
	if key := EmptyKey(KindBGPPeer); key != nil {
		t.Errorf("EmptyKey(BGPPeer) = %#v; no key is of that kind", key)
	}
}

// TestAliases shows both spellings of seed 001 (spec 2.3).
func TestAliases(t *testing.T) {
	for _, c := range []struct{ write, also string }{
		{"/calico/ipam/v2/handle/x", "/calico/ipam/v2/assignment/handle/x"},
		{"/calico/bgp/v1/global/node_mesh", "/calico/v1/config/bgp_node_mesh"},
		{"/calico/bgp/v1/global/peer_v4/192.0.2.1", "/calico/v1/config/bgp_peer_v4/192.0.2.1"},
		{"/calico/bgp/v1/global/peer_v6/2001:db8::1", "/calico/v1/config/bgp_peer_v6/2001:db8::1"},
		{"/calico/bgp/v1/host/h/peer_v4/192.0.2.1", "/calico/v1/host/h/bgp_peer_v4/192.0.2.1"},
		{"/calico/bgp/v1/host/h/peer_v6/2001:db8::1", "/calico/v1/host/h/bgp_peer_v6/2001:db8::1"},
	} {
		key, ok := ParseKey(c.also)
		if !ok || !IsAlias(c.also) {
			t.Errorf("%s: not recognised as an alias", c.also)
			continue
		}
		if path, err := key.Path(); err != nil || path != c.write {
			t.Errorf("%s: path %q, %v; want %q", c.also, path, err, c.write)
		}
		if also, ok := Alias(key); !ok || also != c.also {
			t.Errorf("Alias(%s) = %q; want %q", c.write, also, c.also)
		}
	}
	for _, key := range []Key{ReadyKey{}, BGPGlobalConfigKey{"as_num"}, HandleKey{}} {
		if also, ok := Alias(key); ok || also != "" {
			t.Errorf("%#v has the alias %q, %v; want none", key, also, ok)
		}
	}
}

func TestNotKeys(t *testing.T) {
	for _, path := range []string{
		"", "/", "//", "calico", "/calico", "/calico/", "//calico/v1/Ready", "/calico/v1/Ready/", "/calico/v1/ready", "/calico/v1/Ready/x", "/other/v1/Ready",
		"/calico/v1/config", "/calico/v1/config/", "/calico/v1/config/a//b", "/calico/v1/config//a",
		"/calico/v1/host/h", "/calico/v1/host/h/config", "/calico/v1/host/h/config/marker", "/calico/v1/host//metadata", "/calico/v1/host/h/metadata/x", "/calico/v1/host/h/unknown",
		"/calico/v1/host/h/workload/o/w/endpoint", "/calico/v1/host/h/workload/o/w/endpoint/e/x", "/calico/v1/host/h/workload/o//endpoint/e", "/calico/v1/host/h/workload/o/w/endpoints/e",
		"/calico/v1/host/h/endpoint", "/calico/v1/host/h/endpoint/a/b", "/calico/host/h/endpoint/e", "/calico/host/h/metadata",
		"/calico/v1/policy/profile/p", "/calico/v1/policy/profile/p/refcount", "/calico/policy/profile/p/labels", "/calico/policy/profile/p/rules/x", "/calico/policy/tier/t/metadata",
		"/calico/v1/policy/tier/t", "/calico/v1/policy/tier/t/policy", "/calico/v1/policy/tier/t/policy/a/b", "/calico/v1/policy/tier/t/policy/p/labels", "/calico/v1/policy/tier/t/policy/p/tags", "/calico/v1/policy/tier/t/metadata/x",
		// The peer panicked here.
		"/calico/v1/ipam/v4/pool/10.0.0.0", "/calico/v1/ipam/v4/pool", "/calico/v1/ipam/v4/pool/10.0.0.0-", "/calico/v1/ipam/v4/pool/-8", "/calico/v1/ipam/v4/pool/10.0.0.0-8-8",
		"/calico/v1/ipam/v4/pool/10.0.0.0/8", "/calico/v1/ipam/v4/pool/10.0.0.0-33", "/calico/v1/ipam/v4/pool/10.0.0.0--8", "/calico/v1/ipam/v4/pool/10.0.0.0-+8", "/calico/v1/ipam/v4/pool/10.0.0.0-08",
		"/calico/v1/ipam/v4/pool/10.0.0.1-8", "/calico/v1/ipam/v4/pool/fd80::-64", "/calico/v1/ipam/v6/pool/10.0.0.0-8", "/calico/v1/ipam/v5/pool/10.0.0.0-8", "/calico/v1/ipam/v6/pool/fe80::%25eth0-64",
		"/calico/ipam/v2/assignment/ipv4/block/x", "/calico/ipam/v2/assignment/v4/block/10.0.0.0-26", "/calico/ipam/v2/host", "/calico/ipam/v2/host/h/ipv4", "/calico/ipam/v2/host/h/ipv4/block/", "/calico/ipam/v1/config",
		"/calico/ipam/v2/handle", "/calico/ipam/v2/handle/a/b", "/calico/ipam/v2/assignment/handle", "/calico/ipam/v2/config/x",
		"/calico/v1/config/bgp_peer_v4", "/calico/v1/config/bgp_peer_v4/x", "/calico/v1/config/bgp_peer_v4/2001:db8::1", "/calico/v1/config/bgp_peer_v4/192.0.2.1/x", "/calico/v1/config/bgp_peer_v5/192.0.2.1",
		"/calico/v1/host/h/bgp_peer_v6/192.0.2.1", "/calico/v1/host/h/bgp_peer_v6", "/calico/bgp/v1/global", "/calico/bgp/v1/global/peer_v4", "/calico/bgp/v1/global/peer_v4/x", "/calico/bgp/v1/global/peer_v6/fe80::1%eth0",
		"/calico/bgp/v1/global/a/b", "/calico/bgp/v1/global/custom_filters/v5/f", "/calico/bgp/v1/global/custom_filters/v4", "/calico/bgp/v1/global/custom_filters/v4/f/g", "/calico/bgp/v1/host/h", "/calico/bgp/v1/host/h/peer_v4/192.0.2",
		"/calico/felix/v1/host/h", "/calico/felix/v1/host/h/status/x", "/calico/felix/v2/host/h/status", "/calico/dhcp/v1/subnet", "/calico/dhcp/v1/subnet/a/b", "/calico/openstack/v1/neutron_election/x", "/calico/openstack/v1",
	} {
		if key, ok := ParseKey(path); ok {
			t.Errorf("ParseKey(%q) = %#v; want none", path, key)
		}
		if kind := KindOf(path); kind != "" {
			t.Errorf("KindOf(%q) = %s; want none", path, kind)
		}
		if key, ok := ParseAs[GlobalConfigKey](path); ok {
			t.Errorf("ParseAs[GlobalConfigKey](%q) = %v; want none", path, key)
		}
	}
}

// TestKeysInOtherSpelling shows what reads as a key that is written in another way.
func TestKeysInOtherSpelling(t *testing.T) {
	for path, want := range map[string]string{
		"/calico/v1/ipam/v6/pool/FD80:24E2:0::-64":        "/calico/v1/ipam/v6/pool/fd80:24e2::-64",
		"/calico/bgp/v1/global/peer_v6/2001:DB8:0:0::1":   "/calico/bgp/v1/global/peer_v6/2001:db8::1",
		"/calico/v1/policy/tier/default/policy/100%":      "/calico/v1/policy/tier/default/policy/100%25",
		"/calico/v1/policy/profile/a%2Fb/tags":            "/calico/v1/policy/profile/a%252Fb/tags",
		"/calico/v1/host/a%2fb/endpoint/e":                "/calico/v1/host/a%2fb/endpoint/e", // hosts have no escapes
		"/calico/v1/policy/tier/default/policy/a%252fb":   "/calico/v1/policy/tier/default/policy/a%252fb",
		"/calico/v1/policy/tier/default/policy/%25%2f%2f": "/calico/v1/policy/tier/default/policy/%25%2f%2f",
	} {
		key, ok := ParseKey(path)
		if !ok {
			t.Errorf("ParseKey(%q): no key", path)
		} else if got, err := key.Path(); err != nil || got != want {
			t.Errorf("ParseKey(%q).Path() = %q, %v; want %q", path, got, err, want)
		}
	}
}

func TestUnwritableKeys(t *testing.T) {
	for _, c := range []struct {
		key  Key
		want string
	}{
		{WorkloadEndpointKey{}, "host is missing"},
		{WorkloadEndpointKey{Host: "h", Workload: "w", Endpoint: "e"}, "orchestrator is missing"},
		{HostEndpointKey{Host: "a/b", Endpoint: "e"}, `host "a/b": a slash cannot be written`},
		{PolicyKey{Tier: "a/b", Policy: "p"}, `tier "a/b"`},
		{HandleKey{"a/b"}, `handle "a/b"`},
		{DHCPSubnetKey{"a/b"}, `subnet "a/b"`},
		{ProfileRulesKey{}, "profile is missing"},
		{PoolKey{}, "address is missing"},
		{PoolKey{netip.PrefixFrom(addr("10.0.0.1"), 8)}, "want 10.0.0.0/8"},
		{BGPGlobalPeerKey{addr("fe80::1%eth0")}, "zone"},
		{GlobalConfigKey{"bgp_node_mesh"}, `name "bgp_node_mesh"`},
		{GlobalConfigKey{"bgp_peer_v4/192.0.2.1"}, "is none of a GlobalConfig"},
		{GlobalConfigKey{"a//b"}, `name "a//b"`},
		{HostConfigKey{"h", "marker"}, `name "marker"`},
		{BGPNodeConfigKey{"h", "peer_v4"}, `name "peer_v4"`},
		{BGPGlobalConfigKey{"a/b"}, `name "a/b"`},
	} {
		path, err := c.key.Path()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%#v.Path() = %q, %v; want an error that says %q", c.key, path, err, c.want)
		}
	}
}

func TestPrefixes(t *testing.T) {
	for _, c := range []struct {
		partial Key
		want    []string
	}{
		{WorkloadEndpointKey{}, []string{"/calico/v1/host/"}},
		{WorkloadEndpointKey{Legacy: true}, []string{"/calico/host/"}},
		{WorkloadEndpointKey{Host: "h"}, []string{"/calico/v1/host/h/workload/"}},
		{WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "a/b"}, []string{"/calico/v1/host/h/workload/o/a%2fb/endpoint/"}},
		{HostEndpointKey{Host: "h"}, []string{"/calico/v1/host/h/endpoint/"}},
		{PolicyKey{}, []string{"/calico/v1/policy/tier/"}},
		{PolicyKey{Tier: "t"}, []string{"/calico/v1/policy/tier/t/policy/"}},
		{ReadyKey{}, []string{"/calico/v1/Ready"}},
		{PoolKey{}, []string{"/calico/v1/ipam/v4/pool/", "/calico/v1/ipam/v6/pool/"}},
		{PoolKey{cidr("fd80::/64")}, []string{"/calico/v1/ipam/v6/pool/fd80::-64"}},
		{BlockAffinityKey{Host: "h"}, []string{"/calico/ipam/v2/host/h/ipv4/block/", "/calico/ipam/v2/host/h/ipv6/block/"}},
		{HandleKey{}, []string{"/calico/ipam/v2/handle/", "/calico/ipam/v2/assignment/handle/"}},
		{BGPGlobalConfigKey{}, []string{"/calico/bgp/v1/global/", "/calico/v1/config/bgp_node_mesh"}},
		{BGPGlobalPeerKey{}, []string{"/calico/bgp/v1/global/peer_v4/", "/calico/bgp/v1/global/peer_v6/",
			"/calico/v1/config/bgp_peer_v4/", "/calico/v1/config/bgp_peer_v6/"}},
		{BGPNodePeerKey{Host: "h"}, []string{"/calico/bgp/v1/host/h/peer_v4/", "/calico/bgp/v1/host/h/peer_v6/",
			"/calico/v1/host/h/bgp_peer_v4/", "/calico/v1/host/h/bgp_peer_v6/"}},
	} {
		got, err := Prefixes(c.partial)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("Prefixes(%#v) = %q, %v; want %q", c.partial, got, err, c.want)
		}
	}
	if got, err := Prefixes(HostEndpointKey{Host: "a/b"}); err == nil {
		t.Errorf("Prefixes of a host a/b = %q; want an error", got)
	}
}

func TestMatches(t *testing.T) {
	web := WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: "e"}
	for _, c := range []struct {
		partial, key Key
		want         bool
	}{
		{WorkloadEndpointKey{}, web, true},
		{WorkloadEndpointKey{Endpoint: "e"}, web, true},
		{web, web, true},
		{WorkloadEndpointKey{Host: "g"}, web, false},
		{WorkloadEndpointKey{Endpoint: "e1"}, web, false},
		{WorkloadEndpointKey{Legacy: true}, web, false},
		{HostEndpointKey{}, web, false},
		{PoolKey{}, PoolKey{cidr("10.0.0.0/8")}, true},
	} {
		if got := Matches(c.partial, c.key); got != c.want {
			t.Errorf("Matches(%#v, %#v) = %v", c.partial, c.key, got)
		}
	}
}

// drawKey draws a key like another, with any names that can be written.
func drawKey(t *rapid.T, like Key) Key {
	p := partsOf(like)
	free := rapid.StringOfN(rapid.SampledFrom([]rune("ab.%/-25fFé")), 1, 8, -1)
	plain := rapid.StringOfN(rapid.SampledFrom([]rune("ab.%-25é")), 1, 8, -1)
	for _, next := range piecesOf(like, p.legacy, false) {
		switch next.form {
		case formPlain:
			p.names[next.index] = plain.Draw(t, next.name)
		case formEscaped:
			p.names[next.index] = free.Draw(t, next.name)
		case formCIDR:
			p.cidr, _ = genAddr(p.cidr.Addr().Is6()).Draw(t, "address").Prefix(rapid.IntRange(0, p.cidr.Addr().BitLen()).Draw(t, "bits"))
		case formIP:
			p.ip = genAddr(p.ip.Is6()).Draw(t, "ip")
		}
	}
	return shapeByType[reflect.TypeOf(like)].key(p)
}

func genAddr(v6 bool) *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		n := 4
		if v6 {
			n = 16
		}
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "bytes"))
		return a
	})
}

func TestKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := drawKey(t, everyKey[rapid.IntRange(0, len(everyKey)-1).Draw(t, "kind")].key)
		path, err := key.Path()
		if err != nil {
			t.Fatal(err)
		}
		if back, ok := ParseKey(path); !ok || back != key {
			t.Fatalf("%#v is written as %q and reads as %#v, %v", key, path, back, ok)
		}
		if also, ok := Alias(key); ok {
			if back, ok := ParseKey(also); !ok || back != key || !IsAlias(also) {
				t.Fatalf("%#v has the alias %q, which reads as %#v, %v", key, also, back, ok)
			}
		}
		prefixes, err := Prefixes(key)
		if err != nil || prefixes[0] != path || !Matches(key, key) {
			t.Fatalf("%#v: prefixes %q, %v; want %q first", key, prefixes, err, path)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	for _, c := range everyKey {
		f.Add(c.path)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, ok := ParseKey(text)
		if !ok {
			if kind := KindOf(text); kind != "" {
				t.Fatalf("%q is no key, yet of kind %s", text, kind)
			}
			return
		}
		path, err := key.Path()
		if err != nil {
			t.Fatalf("%q reads as %#v, which cannot be written: %v", text, key, err)
		}
		if back, ok := ParseKey(path); !ok || back != key {
			t.Fatalf("%q reads as %#v, is written as %q and reads as %#v", text, key, path, back)
		}
	})
}

func TestParseAsOfAnotherType(t *testing.T) {
	if key, ok := ParseAs[TierKey]("/calico/v1/policy/tier/t/policy/p"); ok || key != (TierKey{}) {
		t.Errorf("a policy's path reads as %v", key)
	}
}

func TestParseAsAllocatesNothing(t *testing.T) {
	for path, parse := range map[string]func(string){
		"/calico/v1/host/node-0001/workload/openstack/4dd4d3a5-44ae/endpoint/7a1b9c2e": func(p string) { parseAs[WorkloadEndpointKey](t, p) },
		"/calico/v1/policy/tier/default/policy/web":                                    func(p string) { parseAs[PolicyKey](t, p) },
		"/calico/ipam/v2/assignment/ipv6/block/fd80:24e2::40-122":                      func(p string) { parseAs[BlockKey](t, p) },
	} {
		if n := testing.AllocsPerRun(100, func() { parse(path) }); n != 0 {
			t.Errorf("ParseAs(%q): %v allocations; want 0", path, n)
		}
		if n := testing.AllocsPerRun(100, func() { KindOf(path) }); n != 0 {
			t.Errorf("KindOf(%q): %v allocations; want 0", path, n)
		}
	}
}

func parseAs[K Key](t *testing.T, path string) {
	if _, ok := ParseAs[K](path); !ok {
		t.Errorf("%q: not read", path)
	}
}

func BenchmarkParseKey(b *testing.B) {
	const path = "/calico/v1/host/node-0001/workload/openstack/4dd4d3a5-44ae/endpoint/7a1b9c2e"
	b.Run("look-up", func(b *testing.B) {
		b.ReportAllocs()
		known := map[WorkloadEndpointKey]int{{Host: "node-0001", Orchestrator: "openstack", Workload: "4dd4d3a5-44ae", Endpoint: "7a1b9c2e"}: 1}
		for b.Loop() {
			if key, ok := ParseAs[WorkloadEndpointKey](path); !ok || known[key] != 1 {
				b.Fatal("not found")
			}
		}
	})
	b.Run("any kind", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := ParseKey(path); !ok {
				b.Fatal("no key")
			}
		}
	})
}

// TestKeysByPointer: a pointer to a key is a key too, and no call fails for it.
func TestKeysByPointer(t *testing.T) {
	key := WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: "e"}
	if got, err := Prefixes(&key); err != nil || len(got) == 0 {
		t.Errorf("the prefixes are %q, %v", got, err)
	}
	if !Matches(&key, key) || !Matches(key, &key) || Matches(&key, HostIPKey{Host: "h"}) {
		t.Error("a pointer matches otherwise than its key")
	}
}
