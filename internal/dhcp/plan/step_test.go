package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"heddle/calico"
)

// machine is an endpoint of the steps' tests.
type machine struct {
	id, mac, v4, v6, fqdn string
}

func endpoint(m machine) (calico.WorkloadEndpointKey, *calico.WorkloadEndpoint) {
	key := calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: m.id}
	value := map[string]any{"state": "active", "name": "tap" + m.id, "mac": m.mac, "profile_ids": []string{}, "fqdn": m.fqdn}
	add := func(version, address string) {
		if address != "" {
			value[version+"_nets"], value[version+"_subnet_ids"] = []string{address}, []string{map[bool]string{true: "b", false: version}[strings.HasPrefix(address, "10.66.")]}
		}
	}
	add("ipv4", m.v4)
	add("ipv6", m.v6)
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	object, err := calico.Decode(key, raw)
	if err != nil {
		panic(err)
	}
	return key, object.(*calico.WorkloadEndpoint)
}

func subnetOf(t testing.TB, text string) *calico.DHCPSubnet {
	t.Helper()
	object, err := calico.Decode(calico.DHCPSubnetKey{Subnet: "x"}, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return object.(*calico.DHCPSubnet)
}

func planOf(t testing.TB, dns string, o Options, machines ...machine) *Plan {
	t.Helper()
	subnets := map[calico.DHCPSubnetKey]*calico.DHCPSubnet{
		{Subnet: "ipv4"}: subnetOf(t, `{"cidr": "10.65.0.0/24", "gateway_ip": "10.65.0.1", "dns_servers": [`+dns+`]}`),
		{Subnet: "b"}:    subnetOf(t, `{"cidr": "10.66.0.0/24", "gateway_ip": "10.66.0.1"}`),
		{Subnet: "ipv6"}: subnetOf(t, `{"cidr": "fd65::/64", "gateway_ip": "fd65::1"}`),
	}
	endpoints := map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint{}
	for _, m := range machines {
		key, e := endpoint(m)
		endpoints[key] = e
	}
	p := New(o, endpoints, subnets)
	if len(p.Waiting) > 0 {
		t.Fatalf("waiting: %v", p.Waiting)
	}
	return p
}

// TestStep walks from one plan to others, and says what each change asks for.
func TestStep(t *testing.T) {
	t.Parallel()
	a := machine{"a", "02:00:00:00:00:0a", "10.65.0.10", "", "a.x"}
	b := machine{"b", "02:00:00:00:00:0b", "10.65.0.11", "fd65::b", "b.x"}
	c := machine{"c", "02:00:00:00:00:0c", "10.65.0.12", "fd65::c", "c.x"}
	six := machine{"6", "02:00:00:00:00:06", "", "fd65::6", "six.x"}
	second := machine{"z", "02:00:00:00:00:0d", "10.66.0.10", "", "z.x"}
	with := func(m machine, change func(*machine)) machine { change(&m); return m }
	type state struct {
		machines []machine
		dns      string
		mtu      int
	}
	for _, test := range []struct {
		name  string
		walk  []state
		want  Urgency // of the last step
		files string  // written and removed in it
	}{
		{"nothing changed", []state{{machines: []machine{a, b}}, {machines: []machine{a, b}}}, Never, ""},
		{"new port", []state{{machines: []machine{a, b}}, {machines: []machine{a, b, c}}}, Never, "+addn_hosts/tapc +hosts/tapc"},
		{"another address", []state{{machines: []machine{a, b}},
			{machines: []machine{with(a, func(m *machine) { m.v4 = "10.65.0.77" }), b}}}, Never, "+addn_hosts/tapa +hosts/tapa"},
		{"another address and back", []state{{machines: []machine{a, b}},
			{machines: []machine{with(a, func(m *machine) { m.v4 = "10.65.0.77" }), b}}, {machines: []machine{a, b}}}, Now, "+addn_hosts/tapa +hosts/tapa"},
		{"an address that a machine gave up", []state{{machines: []machine{a, b}},
			{machines: []machine{with(a, func(m *machine) { m.v4 = "10.65.0.77" }), b}},
			{machines: []machine{with(a, func(m *machine) { m.v4 = "10.65.0.77" }), b, with(c, func(m *machine) { m.v4 = "10.65.0.10" })}}}, Now, "+addn_hosts/tapc +hosts/tapc"},
		{"port removed", []state{{machines: []machine{a, b}}, {machines: []machine{a}}}, Soon, "-addn_hosts/tapb -hosts/tapb -opts/subnet-ipv6"},
		{"removed earlier", []state{{machines: []machine{a, b, c}}, {machines: []machine{a, c}}, {machines: []machine{a, c}}}, Soon, ""},
		{"removed and back", []state{{machines: []machine{a, b, c}}, {machines: []machine{a, c}}, {machines: []machine{a, b, c}}}, Never, "+addn_hosts/tapb +hosts/tapb"},
		{"another machine has the address", []state{{machines: []machine{a, b}},
			{machines: []machine{with(a, func(m *machine) { m.mac = "02:00:00:00:00:99" }), b}}}, Now, "+hosts/tapa"},
		{"another name", []state{{machines: []machine{a, b}},
			{machines: []machine{with(a, func(m *machine) { m.fqdn = "new.x" }), b}}}, Soon, "+addn_hosts/tapa +hosts/tapa"},
		{"another IPv6 address beside that of IPv4", []state{{machines: []machine{a, b}},
			{machines: []machine{a, with(b, func(m *machine) { m.v6 = "fd65::77" })}}}, Now, "+addn_hosts/tapb +hosts/tapb"},
		{"another name with IPv6 alone", []state{{machines: []machine{six}},
			{machines: []machine{with(six, func(m *machine) { m.fqdn = "new.x" })}}}, Never, "+addn_hosts/tap6 +hosts/tap6"},
		{"another machine has the IPv6 address", []state{{machines: []machine{six}},
			{machines: []machine{with(six, func(m *machine) { m.mac = "02:00:00:00:00:99" })}}}, Now, "+hosts/tap6"},
		{"first port of a subnet", []state{{machines: []machine{a}}, {machines: []machine{a, second}}}, Now,
			"+addn_hosts/tapz +hosts/tapz +opts/subnet-b"},
		{"last port of a subnet", []state{{machines: []machine{a, second}}, {machines: []machine{a}}}, Soon,
			"-addn_hosts/tapz -hosts/tapz -opts/subnet-b"},
		{"other DNS servers", []state{{machines: []machine{a}, dns: `"9.9.9.9"`}, {machines: []machine{a}, dns: `"8.8.8.8"`}}, Never, "+opts/subnet-ipv4"},
		{"first DNS servers", []state{{machines: []machine{a}}, {machines: []machine{a}, dns: `"8.8.8.8"`}}, Never, "+opts/subnet-ipv4"},
		{"no DNS servers any longer", []state{{machines: []machine{a}, dns: `"8.8.8.8"`}, {machines: []machine{a}}}, Never, "+opts/subnet-ipv4"},
		{"no DNS at all", []state{{machines: []machine{a}}, {machines: []machine{a}, dns: `"0.0.0.0"`}}, Soon, "+opts/subnet-ipv4"},
		{"MTU of the network", []state{{machines: []machine{a}, dns: `"8.8.8.8"`}, {machines: []machine{a}, dns: `"8.8.8.8"], "mtu": 1400, "host_routes": [`}}, Soon, ""},
		{"MTU", []state{{machines: []machine{a}}, {machines: []machine{a}, mtu: 1400}}, Now, ""},
		{"started", []state{{}, {machines: []machine{a}}}, Now, "+addn_hosts/tapa +hosts/tapa +opts/subnet-ipv4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var running *Running
			var s Step
			for i, state := range test.walk {
				o := defaults()
				o.MTU = state.mtu
				p := planOf(t, state.dns, o, state.machines...)
				if i == 0 {
					running = Started(p)
					if s := running.Step(p); !s.Nothing() {
						t.Fatalf("just started: %+v", s)
					}
					continue
				}
				s = running.Step(p)
			}
			if s.Restart != test.want || (s.Restart != Never) != (len(s.Reasons) > 0) || s.Stop {
				t.Errorf("got %s because of %q, want %s", s.Restart, s.Reasons, test.want)
			}
			if got := filesOf(s); got != test.files {
				t.Errorf("files: got %q, want %q", got, test.files)
			}
		})
	}
}

func filesOf(s Step) string {
	var list []string
	for _, f := range s.Write {
		list = append(list, "+"+f.Path)
	}
	for _, f := range s.Remove {
		list = append(list, "-"+f)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestStepWritesOptionsBeforeHosts(t *testing.T) {
	t.Parallel()
	p := planOf(t, "", defaults(), machine{"a", "02:00:00:00:00:0a", "10.65.0.10", "", ""})
	s := Found(nil, nil).Step(p)
	want := []string{"opts/subnet-ipv4", "addn_hosts/tapa", "hosts/tapa"}
	var got []string
	for _, f := range s.Write {
		got = append(got, f.Path)
		if f.Content != p.Files[f.Path] {
			t.Errorf("%s: %q", f.Path, f.Content)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLastPortStops(t *testing.T) {
	t.Parallel()
	p := planOf(t, "", defaults(), machine{"a", "02:00:00:00:00:0a", "10.65.0.10", "", ""})
	running := Started(p)
	s := running.Step(planOf(t, "", defaults()))
	if !s.Stop || s.Restart != Never || len(s.Remove) != len(p.Files) {
		t.Errorf("got %+v", s)
	}
	if s := running.Step(planOf(t, "", defaults())); !s.Nothing() {
		t.Errorf("again: %+v", s)
	}
	if s := running.Step(p); s.Restart != Now || len(s.Write) != len(p.Files) {
		t.Errorf("a port comes again: %+v", s)
	}
}

// TestRemovalsGather removes many and sees one restart asked for, with all of them as reasons.
func TestRemovalsGather(t *testing.T) {
	t.Parallel()
	var all []machine
	for i := range 20 {
		all = append(all, machine{fmt.Sprint(i), fmt.Sprintf("02:00:00:00:00:%02x", i+1), fmt.Sprintf("10.65.0.%d", i+10), "", ""})
	}
	running := Started(planOf(t, "", defaults(), all...))
	for n := 19; n > 0; n-- {
		p := planOf(t, "", defaults(), all[:n]...)
		s := running.Step(p)
		if s.Restart != Soon || len(s.Reasons) != 20-n {
			t.Fatalf("%d left: %+v", n, s)
		}
	}
	p := planOf(t, "", defaults(), all[:1]...)
	running = Started(p)
	if s := running.Step(p); !s.Nothing() {
		t.Errorf("after the restart: %+v", s)
	}
}

func TestFoundServesOnUnchanged(t *testing.T) {
	t.Parallel()
	p := planOf(t, `"9.9.9.9"`, defaults(), machine{"a", "02:00:00:00:00:0a", "10.65.0.10", "fd65::a", ""})
	if s := Found(slices.Clone(p.Arguments), maps.Clone(p.Files)).Step(p); !s.Nothing() {
		t.Errorf("got %+v", s)
	}
}
