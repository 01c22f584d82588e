package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/calico"
)

// world is a possible content of etcd: few names and addresses, so that objects stand in each
// other's way.
type world struct {
	endpoints map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint
	subnets   map[calico.DHCPSubnetKey]*calico.DHCPSubnet
}

func drawWorld(t *rapid.T) world {
	w := world{map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint{}, map[calico.DHCPSubnetKey]*calico.DHCPSubnet{}}
	for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "x y"}), 0, 6, rapid.ID).Draw(t, "subnets") {
		w.subnets[calico.DHCPSubnetKey{Subnet: id}] = drawSubnet(t)
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "endpoints") {
		key := calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: fmt.Sprint(i)}
		w.endpoints[key] = drawEndpoint(t)
	}
	return w
}

func drawSubnet(t *rapid.T) *calico.DHCPSubnet {
	if rapid.IntRange(0, 9).Draw(t, "undecodable") == 0 {
		return nil
	}
	cidr := netip.MustParsePrefix(rapid.SampledFrom([]string{"10.65.0.0/24", "10.65.0.0/16", "10.66.0.0/24", "fd65::/64", "fd66::/64", "fd00::/48", "fd67::/96"}).Draw(t, "cidr"))
	s := &calico.DHCPSubnet{CIDR: cidr, GatewayIP: cidr.Addr().Next(), MTU: rapid.SampledFrom([]int{0, 68, 1450}).Draw(t, "mtu"), NetworkID: rapid.SampledFrom([]string{"", "n", "m\n,x"}).Draw(t, "network")}
	if cidr.Addr().Is6() {
		s.GatewayIP = rapid.SampledFrom([]netip.Addr{s.GatewayIP, cidr.Addr(), netip.MustParseAddr("fe80::1")}).Draw(t, "gateway")
		s.IPv6AddressMode = rapid.SampledFrom([]string{"", calico.SLAAC, calico.DHCPv6Stateless, calico.DHCPv6Stateful}).Draw(t, "mode")
	}
	for range rapid.IntRange(0, 70).Draw(t, "servers") {
		s.DNSServers = append(s.DNSServers, s.GatewayIP)
	}
	if cidr.Addr().Is4() {
		for range rapid.IntRange(0, 50).Draw(t, "routes") {
			bits := rapid.IntRange(0, 32).Draw(t, "bits")
			s.HostRoutes = append(s.HostRoutes, calico.HostRoute{
				Destination: netip.PrefixFrom(netip.MustParseAddr("200.200.200.200"), bits).Masked(), NextHop: netip.MustParseAddr("200.200.200.200")})
		}
	}
	return s
}

func drawEndpoint(t *rapid.T) *calico.WorkloadEndpoint {
	if rapid.IntRange(0, 9).Draw(t, "undecodable") == 0 {
		return nil
	}
	ids := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "x y", "unknown"}), 0, 3)
	e := &calico.WorkloadEndpoint{
		State: calico.Active,
		Name:  "tap" + rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6"}).Draw(t, "name"),
		FQDN: rapid.OneOf(rapid.Just(""), rapid.SampledFrom([]string{"vm.example.org", "x", "10.0.0.1", "a\nb", "a,b", "infinite", "7h", "set:x", "a\tb c", "é.org", "#a", "\"a"}),
			rapid.String().Filter(func(s string) bool { return len(s) < 300 })).Draw(t, "fqdn"),
		IPv4SubnetIDs: ids.Draw(t, "ids4"), IPv6SubnetIDs: ids.Draw(t, "ids6"),
	}
	if rapid.Bool().Draw(t, "extras") {
		value, err := json.Marshal([]map[string]any{
			{"opt_name": rapid.SampledFrom([]string{"bootfile-name", "67", "router", "a,b", "", "0", "x\n"}).Draw(t, "option"), "opt_value": rapid.String().Draw(t, "value"),
				"ip_version": rapid.SampledFrom([]any{4, 6, "4", nil, 5}).Draw(t, "version")}})
		if err != nil {
			t.Fatalf("%v", err)
		}
		e.Unknown = calico.Unknown{extraMember: value}
	}
	if n := rapid.IntRange(0, 6).Draw(t, "mac"); n < 6 {
		e.MAC = &calico.MAC{2, 0, 0, 0, 0, byte(n)}
	}
	for _, a := range rapid.SliceOfN(rapid.SampledFrom([]string{"10.65.0.7", "10.65.0.8", "10.65.0.9", "10.66.0.7", "10.65.9.9", "10.65.0.1"}), 0, 3).Draw(t, "v4") {
		e.IPv4Nets = append(e.IPv4Nets, netip.PrefixFrom(netip.MustParseAddr(a), 32))
	}
	for _, a := range rapid.SliceOfN(rapid.SampledFrom([]string{"fd65::7", "fd65::8", "fd66::7", "fd67::8", "fd00::9"}), 0, 3).Draw(t, "v6") {
		e.IPv6Nets = append(e.IPv6Nets, netip.PrefixFrom(netip.MustParseAddr(a), 128))
	}
	return e
}

// TestPlannerRemembers: after whatever changes, what a planner remembers makes the plan that one
// without memory makes.
func TestPlannerRemembers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, o := drawWorld(t), defaults()
		var planner Planner
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			next := drawWorld(t)
			o.NoIPv6 = rapid.IntRange(0, 9).Draw(t, "no IPv6") == 0
			for key, e := range next.endpoints { // some change, some go
				if rapid.Bool().Draw(t, "changes") {
					w.endpoints[key] = e
				} else if rapid.Bool().Draw(t, "goes") {
					delete(w.endpoints, key)
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "subnets change") == 0 {
				w.subnets = next.subnets
			}
			got, want := planner.Plan(o, w.endpoints, w.subnets), New(o, w.endpoints, w.subnets)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("made\n%+v\nwant\n%+v", got, want)
			}
		}
	})
}

// TestPlanProperties holds for whatever lies in etcd: every endpoint is served or waits with a
// reason, once; no two hold the same; a plan made again is the same, and asks for nothing.
func TestPlanProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		o := defaults()
		o.Advertise, o.NoIPv6 = rapid.Bool().Draw(t, "advertise"), rapid.IntRange(0, 4).Draw(t, "no IPv6") == 0
		p := New(o, w.endpoints, w.subnets)
		seen := map[calico.WorkloadEndpointKey]bool{}
		held := map[any]bool{}
		hold := func(what any) {
			if held[what] {
				t.Fatalf("%v is held twice", what)
			}
			held[what] = true
		}
		for _, port := range p.Ports {
			seen[port.Key] = true
			hold(port.MAC)
			hold(port.Interface)
			for _, a := range port.Addresses {
				hold(a.IP)
			}
			if len(port.Addresses) == 0 {
				t.Fatalf("%v is served without an address", port.Key)
			}
		}
		for _, waiting := range p.Waiting {
			if seen[waiting.Key] || waiting.Reason == "" {
				t.Fatalf("%+v is served too, or waits without a reason", waiting)
			}
			seen[waiting.Key] = true
		}
		if len(seen) != len(w.endpoints) {
			t.Fatalf("%d of %d endpoints are served or wait", len(seen), len(w.endpoints))
		}
		checkFiles(t, p)
		if again := New(o, maps.Clone(w.endpoints), maps.Clone(w.subnets)); !reflect.DeepEqual(p, again) {
			t.Fatalf("again:\n%s\nwas:\n%s", text(again), text(p))
		}
		if s := Started(p).Step(p); !s.Nothing() {
			t.Fatalf("a running plan asks for %+v", s)
		}
	})
}

// TestOrderDoesNotMatter walks through other states first: the files come out the same, and once
// what is asked for has been done nothing is left to do.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		last := New(defaults(), drawWorld(t).endpoints, drawWorld(t).subnets)
		running, disk := Found(nil, nil), map[string]string{}
		apply := func(p *Plan) {
			s := running.Step(p)
			for _, f := range s.Write {
				disk[f.Path] = f.Content
			}
			for _, name := range s.Remove {
				if _, there := disk[name]; !there {
					t.Fatalf("%s is removed, but is not there", name)
				}
				delete(disk, name)
			}
			if s.Restart == Now || s.Restart == Soon && rapid.Bool().Draw(t, "gathered") {
				running = Started(p)
			}
		}
		for range rapid.IntRange(0, 4).Draw(t, "detours") {
			w := drawWorld(t)
			apply(New(defaults(), w.endpoints, w.subnets))
		}
		apply(last)
		if !maps.Equal(disk, last.Files) {
			t.Fatalf("got %v, want %v", disk, last.Files)
		}
		if s := running.Step(last); s.Restart == Now || len(s.Write)+len(s.Remove) > 0 {
			t.Fatalf("still asks for %+v", s)
		}
	})
}

// The shapes that lines have. Whatever else would stand in a file would mean something to dnsmasq
// that nobody decided.
var (
	label     = `[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_-])?`
	name      = label + `(\.` + label + `)*`
	v4        = `[0-9.]{7,15}`
	v6        = `[0-9a-f:.]{2,45}`
	lineShape = map[string]*regexp.Regexp{
		HostsDir: regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5},(set:port-[A-Za-z0-9_.-]{1,15},)?` + name + `(,` + v4 + `)?(,\[` + v6 + `\])*$`),
		NamesDir: regexp.MustCompile(`^(` + v4 + `|` + v6 + `)\t` + name + `( ` + label + `)?$`),
		OptionsDir: regexp.MustCompile(`^tag:port-[A-Za-z0-9_.-]{1,15},(option6?:)?[a-z0-9-]{1,64}(,[ !$-\[\]-~]*)?$|^tag:subnet-[A-Za-z0-9_.-]{1,64},(option:router,` + v4 + `|option:dns-server(,` + v4 + `)+|option6:dns-server(,\[` + v6 + `\])+` +
			`|option6:domain-search,` + name + `|(option:classless-static-route|249)(,` + v4 + `/[0-9]{1,2},` + v4 + `)+)$`),
	}
	argumentShape = regexp.MustCompile(`^--[a-z6-]+(=[A-Za-z0-9:._,*/#-]*)?$`)
	fileShape     = regexp.MustCompile(`^(hosts|opts|addn_hosts)/[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
)

// checkFiles finds lines, fields and arguments that input has brought in.
func checkFiles(t interface{ Fatalf(string, ...any) }, p *Plan) {
	for _, a := range slices.Concat(p.Arguments, p.Resolver) {
		if !argumentShape.MatchString(a) {
			t.Fatalf("argument %q", a)
		}
	}
	lines := map[string]int{}
	for path, content := range p.Files {
		if !fileShape.MatchString(path) || !strings.HasSuffix(content, "\n") {
			t.Fatalf("file %q: %q", path, content)
		}
		dir := filepath.Dir(path)
		for line := range strings.Lines(content) {
			lines[dir]++
			if line = strings.TrimSuffix(line, "\n"); !lineShape[dir].MatchString(line) || len(line) > 1023 {
				t.Fatalf("%s has the line %q", path, line)
			}
		}
	}
	for _, g := range p.Gateways {
		if g.Addr().IsLinkLocalUnicast() {
			t.Fatalf("gateway %s", g)
		}
	}
	addresses := 0
	for _, port := range p.Ports {
		addresses += len(port.Addresses)
	}
	if lines[NamesDir] != addresses || lines[HostsDir] > addresses {
		t.Fatalf("%d lines of names and %d of hosts for %d addresses", lines[NamesDir], lines[HostsDir], addresses)
	}
}

// FuzzInjection feeds texts from etcd and the operator into all places that reach files and
// arguments.
func FuzzInjection(f *testing.F) {
	f.Add("vm.example.org", "tap1", "s", "n", "example.org", []byte("endpoint"))
	f.Add("vm,10.0.0.1\n02:00:00:00:00:01,x", "tap1,x", "s,10.0.0.0\n", "n\n", "a b", []byte(`{"state":"active","name":"tap1"}`))
	f.Add("ignore", "tap\n", "s/../..", "..", "x,y", []byte(`{"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.1"}`))
	f.Fuzz(func(t *testing.T, fqdn, iface, id, network, domain string, raw []byte) {
		v4, v6 := netip.MustParsePrefix("10.65.0.0/24"), netip.MustParsePrefix("fd65::/64")
		subnets := map[calico.DHCPSubnetKey]*calico.DHCPSubnet{
			{Subnet: id}:       {CIDR: v4, GatewayIP: v4.Addr().Next(), NetworkID: network},
			{Subnet: id + "6"}: {CIDR: v6, GatewayIP: v6.Addr().Next(), NetworkID: network},
		}
		key := calico.WorkloadEndpointKey{Host: "h", Orchestrator: fqdn, Workload: id, Endpoint: iface}
		endpoints := map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint{key: {
			State: calico.Active, Name: iface, MAC: &calico.MAC{2}, FQDN: fqdn,
			IPv4Nets: []netip.Prefix{netip.MustParsePrefix("10.65.0.7/32")}, IPv4SubnetIDs: []string{id},
			IPv6Nets: []netip.Prefix{netip.MustParsePrefix("fd65::7/128")}, IPv6SubnetIDs: []string{id + "6"},
		}}
		key.Endpoint += "2"
		if object, err := calico.Decode(key, raw); err == nil {
			endpoints[key] = object.(*calico.WorkloadEndpoint)
		}
		if object, err := calico.Decode(calico.DHCPSubnetKey{Subnet: "raw"}, raw); err == nil {
			subnets[calico.DHCPSubnetKey{Subnet: "raw"}] = object.(*calico.DHCPSubnet)
		}
		o := defaults()
		if o.Domain = domain; o.Check() != nil {
			o.Domain = ""
		}
		checkFiles(t, New(o, endpoints, subnets))
	})
}

// FuzzFound reads files and leases that somebody else has changed.
func FuzzFound(f *testing.F) {
	f.Add("02:00:00:00:00:0a,a,10.65.0.10\n", "tag:subnet-ipv4,option:router,10.65.0.1\n", "duid 00\n1 02:00:00:00:00:0a 10.65.0.10 * *\n")
	f.Fuzz(func(t *testing.T, hosts, options, leases string) {
		p := planOf(t, "", defaults(), machine{"a", "02:00:00:00:00:0a", "10.65.0.10", "fd65::a", ""})
		files := map[string]string{"hosts/tapa": hosts, "opts/x": options}
		running := Found(p.Arguments, files)
		running.Step(p)
		if s := Started(p).Step(p); !s.Nothing() {
			t.Fatalf("%+v", s)
		}
		for line := range strings.Lines(p.Leases(leases, Holders(files), midnight)) {
			fields := strings.Fields(line)
			if len(fields) == 2 && fields[0] == "duid" {
				continue
			}
			if len(fields) != 5 || !slices.Contains([]string{"10.65.0.10", "fd65::a"}, netip.MustParseAddr(fields[2]).String()) {
				t.Fatalf("lease %q", line)
			}
		}
	})
}

// TestDnsmasqTakesArguments has the real program check the arguments of all golden files.
func TestDnsmasqTakesArguments(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("dnsmasq")
	if err != nil {
		t.Skip("dnsmasq is not installed")
	}
	for file, p := range goldenPlans(t) {
		if len(p.Arguments) == 0 {
			continue
		}
		dir := t.TempDir()
		for _, d := range []string{HostsDir, OptionsDir, NamesDir} {
			if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, list := range [][]string{p.Arguments, p.Resolver} {
			arguments := []string{"--test"}
			for _, a := range list {
				if !strings.HasPrefix(a, "--conf-file=/etc") {
					arguments = append(arguments, strings.ReplaceAll(a, defaults().Dir, dir))
				}
			}
			if out, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", file, err, out)
			}
		}
	}
}
