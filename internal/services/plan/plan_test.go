package plan

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

func kinds(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

func TestPlace(t *testing.T) {
	able := func(id string, weight, limit int) Host {
		return Host{ID: id, Weight: weight, Limit: limit, Able: kinds("K")}
	}
	lacking := Host{ID: "c", Weight: 9, Unable: kinds("K")}
	homeless := func(id string) Placed { return Placed{ID: id, Kind: "K"} }
	on := func(id, host string) Placed { return Placed{ID: id, Kind: "K", Host: host} }
	for _, c := range []struct {
		name       string
		hosts      []Host
		containers []Placed
		want       []Move
	}{
		{"nobody", nil, []Placed{homeless("1")}, nil},
		{"the lowest id", []Host{able("b", 1, 0), able("a", 1, 0)}, []Placed{homeless("1")}, []Move{{"1", "", "a"}}},
		{"the fewest", []Host{able("a", 1, 0), able("b", 1, 0)}, []Placed{on("1", "a"), homeless("2")}, []Move{{"2", "", "b"}}},
		{"by weight", []Host{able("a", 3, 0), able("b", 1, 0)}, []Placed{on("1", "a"), on("2", "b"), homeless("3")}, []Move{{"3", "", "a"}}},
		{"none that is new", []Host{able("a", 0, 0)}, []Placed{on("1", "a"), homeless("2")}, nil},
		{"the limit", []Host{able("a", 1, 1)}, []Placed{on("1", "a"), homeless("2")}, nil},
		{"it stays", []Host{able("a", 1, 0), able("b", 9, 0)}, []Placed{on("1", "b"), on("2", "b"), on("3", "b")}, nil},
		{"the host is lost", []Host{able("a", 1, 0)}, []Placed{on("1", "b")}, []Move{{"1", "b", "a"}}},
		{"the last host is lost", nil, []Placed{on("1", "b")}, []Move{{"1", "b", ""}}},
		{"another kind", []Host{able("a", 1, 0)}, []Placed{{ID: "1", Kind: "other"}}, nil},
		{"among hosts", []Host{able("a", 1, 0), able("b", 1, 0)}, []Placed{{ID: "1", Kind: "K", Among: kinds("b")}}, []Move{{"1", "", "b"}}},
		{"no longer among hosts", []Host{able("a", 1, 0), able("b", 1, 0)}, []Placed{{ID: "1", Kind: "K", Host: "a", Among: kinds("b")}}, []Move{{"1", "a", "b"}}},
		{"without the program, where nobody has it", []Host{lacking}, []Placed{homeless("1"), on("2", "c")}, []Move{{"1", "", "c"}}},
		{"to one with the program", []Host{lacking, able("a", 1, 0)}, []Placed{on("1", "c"), homeless("2")}, []Move{{"1", "c", "a"}, {"2", "", "a"}}},
	} {
		if got := Place(c.hosts, c.containers, nil); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: moves %v, want %v", c.name, got, c.want)
		}
	}
}

// TestPlaceBesideOthers: containers that are not among those to place count for weights and limits.
func TestPlaceBesideOthers(t *testing.T) {
	hosts := []Host{{ID: "a", Weight: 1, Able: kinds("K")}, {ID: "b", Weight: 1, Limit: 2, Able: kinds("K")}}
	two := []Placed{{ID: "1", Kind: "K"}, {ID: "2", Kind: "K"}}
	want := []Move{{"1", "", "b"}, {"2", "", "a"}} // then b is full
	if got := Place(hosts, two, map[string]int{"a": 9, "b": 1}); !reflect.DeepEqual(got, want) {
		t.Errorf("moves %v, want %v", got, want)
	}
}

// TestPlaceSettles: after the moves nothing moves, and no host has more than its limit of
// containers that it was given.
func TestPlaceSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var hosts []Host
		for i := range rapid.IntRange(0, 4).Draw(t, "hosts") {
			h := Host{ID: fmt.Sprint("h", i), Weight: rapid.IntRange(0, 3).Draw(t, "weight"), Limit: rapid.IntRange(0, 3).Draw(t, "limit")}
			if rapid.Bool().Draw(t, "able") {
				h.Able = kinds("K")
			} else {
				h.Unable = kinds("K")
			}
			hosts = append(hosts, h)
		}
		var containers []Placed
		for i := range rapid.IntRange(0, 8).Draw(t, "containers") {
			containers = append(containers, Placed{ID: fmt.Sprint(i), Kind: "K", Host: rapid.SampledFrom([]string{"", "h0", "h1", "gone"}).Draw(t, "at")})
		}
		given := map[string]bool{}
		for _, m := range Place(hosts, containers, nil) {
			for i := range containers {
				if containers[i].ID == m.ContainerID {
					containers[i].Host = m.To
					given[m.ContainerID] = true
				}
			}
		}
		if again := Place(hosts, containers, nil); len(again) > 0 {
			t.Fatalf("moves again: %v", again)
		}
		for _, h := range hosts {
			all, new := 0, 0
			for _, c := range containers {
				if c.Host == h.ID {
					all++
					if given[c.ID] {
						new++
					}
				}
			}
			if new > 0 && h.Limit > 0 && all > h.Limit {
				t.Fatalf("host %s got more than %d containers", h.ID, h.Limit)
			}
		}
	})
}

// bundles are those of a load balancer with a container, by owner.
func bundles() map[topology.Owner]*topology.Bundle {
	return map[topology.Owner]*topology.Bundle{
		{Kind: "container", ID: "c1"}: {
			ServiceContainers: []topology.ServiceContainer{{ID: "c1", ServiceType: topology.ContainerHAProxy, PortID: "p1", ConfigurationID: "lb"}},
			Ports: []topology.Port{{ID: "p1", HostID: "h", InterfaceName: "hctp1", PortMAC: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 2},
				PortAddress: netip.MustParseAddr("169.254.0.1"), PortSubnet: []netip.Prefix{netip.MustParsePrefix("169.254.0.1/30")}}},
		},
		{Kind: "pool", ID: "x"}: {
			Pools: []topology.Pool{{ID: "x", LoadBalancerID: "lb", HealthMonitorID: "m"}, {ID: "idle", LoadBalancerID: "lb", HealthMonitorID: "down"}, {ID: "other", LoadBalancerID: "lb2", HealthMonitorID: "m"}},
		},
		{Kind: "monitor", ID: "m"}: {HealthMonitors: []topology.HealthMonitor{
			{ID: "m", AdminStateUp: true, Type: topology.MonitorHTTP, Delay: 5, Timeout: 2, MaxRetries: 3, FailRetries: 4, ExpectedCodes: "200,202-204", URLPath: "/a b'c\n"},
			{ID: "down", Type: topology.MonitorTCP, Delay: 5, Timeout: 2},
		}},
		{Kind: "member", ID: "1"}: {PoolMembers: []topology.PoolMember{
			{ID: "1", PoolID: "x", AdminStateUp: true, Address: netip.MustParseAddr("10.0.0.1"), ProtocolPort: 80, MonitorPort: 81, MonitorAddress: netip.MustParseAddr("10.0.1.1")},
			{ID: "2", PoolID: "x", Address: netip.MustParseAddr("10.0.0.2"), ProtocolPort: 80},
		}},
		{Kind: "vip", ID: "v"}: {Vips: []topology.Vip{{ID: "v", PoolID: "x", Address: netip.MustParseAddr("203.0.113.5")}}},
	}
}

// TestModel: the containers of a host do not depend on the order of changes, and follow what is
// taken away.
func TestModel(t *testing.T) {
	m := NewModel()
	all := bundles()
	for owner, b := range all { // in any order
		if !m.Apply(owner, b) {
			t.Errorf("the bundle of %v concerns no container", owner)
		}
	}
	if m.Apply(topology.Owner{Kind: "port", ID: "p"}, &topology.Bundle{Ports: []topology.Port{{ID: "p"}}}) {
		t.Error("a port concerns containers")
	}
	got := m.Containers("h")
	if len(got) != 1 {
		t.Fatalf("containers of h: %v", got)
	}
	c := got[0]
	if len(c.Pools) != 1 || c.Pools[0].ID != "x" || len(c.Pools[0].Members) != 1 || c.Pools[0].Members[0].ID != "1" {
		t.Errorf("checks %+v, want member 1 of pool x", c.Pools)
	}
	if c.Namespace != "heddle-haproxy-c1" || c.Address.String() != "169.254.0.2/30" || c.Gateway.String() != "169.254.0.1" || c.MAC.String() != "fa:16:3e:00:00:03" {
		t.Errorf("namespace %s, address %v, gateway %v, MAC %v", c.Namespace, c.Address, c.Gateway, c.MAC)
	}
	if len(c.Addresses) != 1 || c.Addresses[0].String() != "203.0.113.5" {
		t.Errorf("addresses %v, want that of the VIP of v1", c.Addresses)
	}
	if hold := c.Pools[0].Hold().Seconds(); hold != 3*(5*4+2) {
		t.Errorf("verdicts count for %v s more", hold)
	}
	if got := m.Containers("another"); len(got) != 0 {
		t.Errorf("containers of another host: %v", got)
	}
	for owner := range all {
		m.Apply(owner, nil)
	}
	if got := m.Containers("h"); len(got) != 0 || len(m.owners) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestRender(t *testing.T) {
	m := NewModel()
	for owner, b := range bundles() {
		m.Apply(owner, b)
	}
	c := m.Containers("h")[0]
	_, got, ok := strings.Cut(Render(&c), "timeout server 10s\n")
	want := `backend 'x'
	timeout connect 2s
	timeout check 2s
	source 203.0.113.5:0
	option httpchk
	http-check send meth 'GET' uri '/a b'\''c%0A' ver 'HTTP/1.0'
	http-check expect status '200,202-204'
	server '1' 10.0.0.1:80 check inter 5s fall 4 rise 3 addr 10.0.1.1 port 81
`
	if !ok || got != want {
		t.Errorf("diff (-want +got):\n%s", cmp.Diff(want, got))
	}
	c.Pools[0].Monitor.Type = topology.MonitorPing
	if got := Render(&c); got != "" {
		t.Errorf("for checks of the agent haproxy has:\n%s", got)
	}
	if len(c.Probed()) != 1 {
		t.Error("the agent checks nothing")
	}
}

// FuzzRender: no value adds a line to the configuration.
func FuzzRender(f *testing.F) {
	f.Add("/", "200", "GET", "example.com", "1.1")
	f.Add("/\nbackend x", "200'", "\x00", "a b", "\\")
	f.Fuzz(func(t *testing.T, path, codes, method, domain, version string) {
		c := Container{Pools: []Pool{{ID: path, Members: []topology.PoolMember{{ID: codes, Address: netip.MustParseAddr("10.0.0.1")}},
			Monitor: topology.HealthMonitor{Type: topology.MonitorHTTPS, URLPath: path, ExpectedCodes: codes, HTTPMethod: method, DomainName: domain, HTTPVersion: version}}}}
		text := Render(&c)
		if got := strings.Count(text, "\n"); got != 22 {
			t.Errorf("%d lines:\n%s", got, text)
		}
	})
}

func TestKept(t *testing.T) {
	state := "1\n# be_id be_name srv_id srv_name srv_addr\n2 x 1 1 10.0.0.1 0\n2 x 2 2 10.0.0.2 0\n"
	with := func(first uint16) Container {
		one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		return Container{Pools: []Pool{{Members: []topology.PoolMember{{ID: "1", Address: one, ProtocolPort: first}, {ID: "2", Address: two, ProtocolPort: 80}}}}}
	}
	before, after := with(80), with(81)
	if got, want := Kept(state, &before, &after), "1\n# be_id be_name srv_id srv_name srv_addr\n2 x 2 2 10.0.0.2 0\n"; got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
}

// TestBegin: members without a saved state begin with their last verdict, or up if there is none.
func TestBegin(t *testing.T) {
	member := func(id string) topology.PoolMember {
		return topology.PoolMember{ID: id, Address: netip.MustParseAddr("10.0.0." + id), ProtocolPort: 80}
	}
	c := Container{Pools: []Pool{
		{ID: "p", Monitor: topology.HealthMonitor{MaxRetries: 2, FailRetries: 3}, Members: []topology.PoolMember{member("1"), member("2"), member("3"), member("4")}},
		{ID: "q", Monitor: topology.HealthMonitor{Type: topology.MonitorPing}, Members: []topology.PoolMember{member("5")}},
	}}
	known := map[string]string{"1": topology.MemberActive, "2": topology.MemberInactive, "4": topology.MemberActive}
	saved := NoState + "2 p 1 4 10.0.0.4 0\n"
	got := Begin(saved, &c, func(member string) string { return known[member] })
	want := saved +
		"0 p 0 1 10.0.0.1 2 0 1 1 0 1 0 4 6 0 0 0 - 80 - 0 0 - - 0\n" +
		"0 p 0 2 10.0.0.2 0 0 1 1 0 1 0 0 6 0 0 0 - 80 - 0 0 - - 0\n" +
		"0 p 0 3 10.0.0.3 2 0 1 1 0 1 0 4 6 0 0 0 - 80 - 0 0 - - 0\n"
	if got != want {
		t.Errorf("diff (-want +got):\n%s", cmp.Diff(want, got))
	}
}

func TestRaise(t *testing.T) {
	c := Container{Pools: []Pool{
		{ID: "p", Members: []topology.PoolMember{{ID: "1"}, {ID: "2"}}},
		{ID: "q", Monitor: topology.HealthMonitor{Type: topology.MonitorPing}, Members: []topology.PoolMember{{ID: "1"}}},
	}}
	got := Raise(&c, func(member string) bool { return member == "1" })
	if want := []string{"set server p/1 health up"}; !reflect.DeepEqual(got, want) {
		t.Errorf("commands %q, want %q", got, want)
	}
}

func TestParseHealthLine(t *testing.T) {
	for line, want := range map[string]Verdict{
		"Server p/m is DOWN, reason: Layer4 timeout, check duration: 1001ms. 0 active": {"m", topology.MemberInactive},
		"Server p/m is DOWN. 1 active and 0 backup servers left.\n":                    {"m", topology.MemberInactive},
		"Server p/m is UP. 2 active":                                                   {"m", topology.MemberActive},
		"Server p/m is UP":                                                             {"m", topology.MemberActive},
		"Server p/m is UPSIDE":                                                         {},
		"Server p/ is UP.":                                                             {},
		"Server p is UP.":                                                              {},
		"Server p/m/n is UP.":                                                          {},
		"backend p has no server":                                                      {},
		"Health check for server p/m":                                                  {},
		"":                                                                             {},
	} {
		if got, ok := ParseHealthLine(line); got.Status != want.Status || ok != (want != Verdict{}) {
			t.Errorf("%q: %v, %v, want %v", line, got, ok, want)
		}
	}
}

func TestParseStats(t *testing.T) {
	got, err := ParseStats("# pxname,svname,status,check_status,last_chk\np,a,UP,L4OK,\np,b,DOWN,* L4CON,\"a, b\"\np,c,UP,INI,\np,d,UP 1/3,L7STS,\np,f,DOWN 1/2,L7OK,\np,BACKEND,UP,,\np,e,MAINT,L4OK,\n\n")
	want := []Verdict{{"a", topology.MemberActive}, {"b", topology.MemberInactive}, {"f", topology.MemberInactive}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, text := range []string{"", "# pxname,svname\n", "Unknown command"} {
		if got, err := ParseStats(text); err == nil {
			t.Errorf("%q: %v without an error", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("Server p/m is DOWN, reason", "# svname,status,check_status\nm,UP,L4OK\n")
	f.Fuzz(func(t *testing.T, line, stats string) {
		if v, ok := ParseHealthLine(line); ok && (v.MemberID == "" || v.Status == "") {
			t.Errorf("%q: %v", line, v)
		}
		all, _ := ParseStats(stats)
		for _, v := range all {
			if v.MemberID == "" || v.Status != topology.MemberActive && v.Status != topology.MemberInactive {
				t.Errorf("%q: %v", stats, v)
			}
		}
	})
}

func TestCounter(t *testing.T) {
	for _, c := range []struct {
		status, results, want string
	}{
		{"", "+", "A"},
		{"", "-+", ".A"},
		{"", "--", ".I"},
		{"A", "-+--", "AAAI"},
		{"I", "+-++", "IIIA"},
	} {
		counter := NewCounter(2, 2, map[string]string{"A": topology.MemberActive, "I": topology.MemberInactive}[c.status])
		got := ""
		for _, r := range c.results {
			got += map[string]string{"": ".", topology.MemberActive: "A", topology.MemberInactive: "I"}[counter.Add(r == '+')]
		}
		if got != c.want {
			t.Errorf("from %q after %s: %s, want %s", c.status, c.results, got, c.want)
		}
	}
}
