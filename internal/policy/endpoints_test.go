package policy

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
	"heddle/internal/hostnet"
	"heddle/internal/policy/calc"
)

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

// workload is an active local endpoint with addresses.
func workload(name string, addresses ...string) *calc.Workload {
	ep := &calico.WorkloadEndpoint{State: calico.Active, Name: name}
	for _, a := range addresses {
		if p := host(ip(a)); p.Addr().Is4() {
			ep.IPv4Nets = append(ep.IPv4Nets, p)
		} else {
			ep.IPv6Nets = append(ep.IPv6Nets, p)
		}
	}
	return &calc.Workload{Endpoint: ep}
}

func endpoint(id string) calico.WorkloadEndpointKey {
	return calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: id}
}

func TestAssign(t *testing.T) {
	t.Parallel()
	s := usual(t)
	s.Rules.WorkloadPrefixes = []string{"cali", "tap"}
	floating := func(w *calc.Workload, inner, outer string) *calc.Workload {
		w.Endpoint.IPv4NAT = append(w.Endpoint.IPv4NAT, calico.NAT{IntIP: ip(inner), ExtIP: ip(outer)})
		return w
	}
	inactive := workload("cali9", "192.0.2.9")
	inactive.Endpoint.State = calico.Inactive
	all := map[calico.WorkloadEndpointKey]*calc.Workload{
		endpoint("1"): workload("cali1", "192.0.2.2", "2001:db8::2"),
		endpoint("2"): floating(floating(workload("cali2", "192.0.2.4", "192.0.2.2"), "192.0.2.4", "203.0.113.1"), "192.0.2.4", "203.0.113.2"),
		endpoint("3"): floating(workload("cali3", "192.0.2.3"), "192.0.2.3", "203.0.113.1"),
		endpoint("4"): workload("cali1", "192.0.2.5"),
		endpoint("5"): workload("eth0", "192.0.2.6"),
		endpoint("6"): workload("tapover", "192.0.2.7"),
		endpoint("7"): inactive,
		endpoint("8"): workload("cali8", "203.0.113.2"),
	}
	a := assign(all, &s, func(name string) bool { return name == "tapover" })
	routed := map[string][]string{}
	for name, w := range a.wirings {
		for _, r := range w.Routed {
			routed[name] = append(routed[name], r.String())
		}
	}
	if diff := cmp.Diff(map[string][]string{"cali1": {"192.0.2.2", "2001:db8::2"}, "cali2": {"192.0.2.4"},
		"cali3": {"192.0.2.3", "203.0.113.1"}, "cali8": {"203.0.113.2"}}, routed); diff != "" {
		t.Error(diff)
	}
	refused := map[string]string{}
	for k, why := range a.refused {
		refused[k.Endpoint] = why
	}
	if diff := cmp.Diff(map[string]string{
		"4": "interface cali1 is that of endpoint o/w/1",
		"5": `interface "eth0" begins with none of the prefixes of workload interfaces [cali tap]`,
		"6": "interface tapover belongs to a port of the virtual topology"}, refused); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[netip.Addr]string{ip("192.0.2.2"): "cali1", ip("203.0.113.1"): "cali3", ip("203.0.113.2"): "cali8"}, a.contested, byValue); diff != "" {
		t.Error(diff)
	}
	if len(a.workloads) != 5 || a.workloads[endpoint("7")] == nil {
		t.Errorf("%d endpoints have their interface, want 5 with the inactive one", len(a.workloads))
	}
}

func TestGoverned(t *testing.T) {
	t.Parallel()
	devices := map[string]*device{}
	for name, addresses := range map[string][]string{"lo": {"127.0.0.1", "192.0.2.9"}, "eth0": {"192.0.2.1", "2001:db8::1"}, "eth1": {"192.0.2.2"}, "cali1": {"192.0.2.1"}} {
		d := &device{Link: hostnet.Link{Name: name, Kind: hostnet.Device}, addresses: map[netip.Addr]bool{}}
		if name == "lo" {
			d.Kind = hostnet.Loopback
		}
		for _, a := range addresses {
			d.addresses[ip(a)] = true
		}
		devices[name] = d
	}
	s := usual(t)
	key := func(id string) calico.HostEndpointKey { return calico.HostEndpointKey{Host: "h", Endpoint: id} }
	named := func(name string, expected ...string) *calico.HostEndpoint {
		ep := &calico.HostEndpoint{Name: name}
		for _, a := range expected {
			ep.ExpectedIPv4Addrs = append(ep.ExpectedIPv4Addrs, ip(a))
		}
		return ep
	}
	for what, c := range map[string]struct {
		hosts map[calico.HostEndpointKey]*calico.HostEndpoint
		want  map[string]string
	}{
		"by name":                         {map[calico.HostEndpointKey]*calico.HostEndpoint{key("a"): named("eth0")}, map[string]string{"eth0": "a"}},
		"by name, never by address":       {map[calico.HostEndpointKey]*calico.HostEndpoint{key("a"): named("eth9", "192.0.2.1")}, map[string]string{}},
		"by address, each that has one":   {map[calico.HostEndpointKey]*calico.HostEndpoint{key("a"): named("", "192.0.2.2", "192.0.2.1")}, map[string]string{"eth0": "a", "eth1": "a"}},
		"the lowest id":                   {map[calico.HostEndpointKey]*calico.HostEndpoint{key("b"): named("eth0"), key("a"): named("", "192.0.2.1")}, map[string]string{"eth0": "a"}},
		"the loser keeps other ones":      {map[calico.HostEndpointKey]*calico.HostEndpoint{key("a"): named("eth0"), key("b"): named("", "192.0.2.1", "192.0.2.2")}, map[string]string{"eth0": "a", "eth1": "b"}},
		"never a workload's":              {map[calico.HostEndpointKey]*calico.HostEndpoint{key("a"): named("cali1")}, map[string]string{}},
		"the loopback by name alone":      {map[calico.HostEndpointKey]*calico.HostEndpoint{key("a"): named("", "192.0.2.9")}, map[string]string{}},
		"the loopback where it is wanted": {map[calico.HostEndpointKey]*calico.HostEndpoint{key("a"): named("lo")}, map[string]string{"lo": "a"}},
	} {
		got := map[string]string{}
		for name, k := range governed(devices, s.isWorkload, c.hosts) {
			got[name] = k.Endpoint
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
}
