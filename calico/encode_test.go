package calico

import (
	"math"
	"net/netip"
	"strings"
	"testing"
)

// TestEncodeRefuses shows what programs cannot write.
func TestEncodeRefuses(t *testing.T) {
	endpoint := WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: "e"}
	valid := func(change func(*WorkloadEndpoint)) *WorkloadEndpoint {
		e := &WorkloadEndpoint{State: Active, Name: "tap1"}
		change(e)
		return e
	}
	infinite := math.Inf(1)
	for _, c := range []struct {
		name   string
		key    Key
		object any
		want   string
	}{
		{"another type", endpoint, &HostEndpoint{Name: "eth0"}, "WorkloadEndpoint: want an object of type *calico.WorkloadEndpoint, not *calico.HostEndpoint"},
		{"no pointer", endpoint, WorkloadEndpoint{State: Active, Name: "tap1"}, "want an object of type *calico.WorkloadEndpoint, not calico.WorkloadEndpoint"},
		{"nothing", endpoint, nil, "want an object of type *calico.WorkloadEndpoint, not <nil>"},
		{"nil", endpoint, (*WorkloadEndpoint)(nil), "the object is nil"},
		{"nil of a key that names its object", PoolKey{cidr("10.0.0.0/8")}, (*Pool)(nil), "the object is nil"},
		{"raw of another type", ReadyKey{}, "true", "want an object of type bool, not string"},
		{"zero", endpoint, &WorkloadEndpoint{}, "state: is missing"},
		{"label", endpoint, valid(func(e *WorkloadEndpoint) { e.Labels = map[string]string{"a": "\xff"} }), `labels["a"]: `},
		{"text", endpoint, valid(func(e *WorkloadEndpoint) { e.FQDN = "\xff" }), `fqdn: `},
		{"known among unknown", endpoint, valid(func(e *WorkloadEndpoint) { e.Unknown = Unknown{"mac": []byte(`"x"`)} }), `mac: is a known member`},
		{"legacy among unknown", endpoint, valid(func(e *WorkloadEndpoint) { e.Unknown = Unknown{"profile_id": []byte(`"x"`)} }), `profile_id: is a known member`},
		{"no JSON among unknown", endpoint, valid(func(e *WorkloadEndpoint) { e.Unknown = Unknown{"x": []byte(`{"y":1,}`)} }), `x.y: not JSON`},
		{"name among unknown", endpoint, valid(func(e *WorkloadEndpoint) { e.Unknown = Unknown{"\xff": []byte(`1`)} }), `is not UTF-8 text`},
		{"no net", endpoint, valid(func(e *WorkloadEndpoint) { e.IPv4Nets = make([]netip.Prefix, 1) }), `ipv4_nets[0]: is missing`},
		{"zone", endpoint, valid(func(e *WorkloadEndpoint) { e.IPv6Gateway = addr("fe80::1%eth0") }), `ipv6_gateway: "fe80::1%eth0"`},
		{"order", TierKey{"t"}, &Tier{Order: &infinite}, `order: +Inf: want a finite number`},
		{"selector forgotten", PolicyKey{"t", "p"}, &Policy{}, `selector: is missing; "all()" selects everything`},
		{"selector", PolicyKey{"t", "p"}, &Policy{Selector: "a"}, `selector: "a": `},
		{"pool", PoolKey{cidr("10.0.0.0/8")}, &Pool{}, `cidr: `},
		{"block", BlockKey{cidr("10.0.0.0/26")}, &Block{CIDR: cidr("10.0.0.0/26"), Affinity: "h"}, `affinity: "h"`},
		{"handle", HandleKey{"x"}, &Handle{Block: map[netip.Prefix]int{cidr("10.0.0.0/26"): 0}}, `block["10.0.0.0/26"]: 0`},
		{"AS number", BGPGlobalConfigKey{"as_num"}, uint32(0), `"0": want an AS number`},
		{"address", HostIPKey{"h"}, netip.Addr{}, `want an IPv4 address`},
		{"tags", ProfileTagsKey{Profile: "p"}, &ProfileTags{"a b"}, `[0]: "a b"`},
		{"labels", ProfileLabelsKey{"p"}, &ProfileLabels{"a b": ""}, `["a b"]`},
	} {
		if text, err := Encode(c.key, c.object); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: is written as %s, %v; want an error that says %q", c.name, text, err, c.want)
		}
	}
}

// TestLegacyForm shows what is written into the legacy tree: the members of seed 000 alone.
func TestLegacyForm(t *testing.T) {
	key := WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: "e", Legacy: true}
	e := &WorkloadEndpoint{State: Active, Name: "tap1", ProfileIDs: []string{"p"}, IPv4Nets: []netip.Prefix{cidr("10.0.0.1/32")}, IPv4Gateway: addr("10.0.0.254")}
	text, err := Encode(key, e)
	want := `{"state":"active","name":"tap1","profile_id":"p","ipv4_nets":["10.0.0.1/32"],"ipv6_nets":[],"ipv4_gateway":"10.0.0.254"}`
	if err != nil || string(text) != want {
		t.Errorf("a legacy endpoint is written as %s, %v; want %s", text, err, want)
	}
	for member, change := range map[string]func(*WorkloadEndpoint){
		"profile_ids[1]": func(e *WorkloadEndpoint) { e.ProfileIDs = []string{"p", "q"} },
		"labels":         func(e *WorkloadEndpoint) { e.Labels = map[string]string{"a": "b"} },
		"ipv4_nat":       func(e *WorkloadEndpoint) { e.IPv4NAT = []NAT{{addr("10.0.0.1"), addr("192.0.2.1")}} },
	} {
		e := *e
		change(&e)
		if text, err := Encode(key, &e); err == nil || !strings.Contains(err.Error(), member+": ") {
			t.Errorf("a legacy endpoint with %s is written as %s, %v", member, text, err)
		}
	}

	rules := ProfileRulesKey{Profile: "p", Legacy: true}
	for value, member := range map[string]string{
		`{"protocol":"icmp","icmp_type":8,"src_tag":"a","dst_net":"10.0.0.0/8","action":"deny"}`: "",
		`{"protocol":"tcp","src_ports":[1],"dst_ports":["2:3"],"dst_tag":"a","src_net":"::/0"}`:  "",
		`{"protocol":"sctp"}`: "protocol", `{"protocol":47}`: "protocol", `{"action":"log"}`: "action", `{"action":"next-tier"}`: "action",
		`{"ip_version":4}`: "ip_version", `{"!src_tag":"a"}`: "!src_tag", `{"src_selector":"all()"}`: "src_selector", `{"log_prefix":"a"}`: "log_prefix",
		`{"src_nets":["10.0.0.0/8","11.0.0.0/8"]}`: "src_nets", `{"protocol":"icmp","icmp_type":8,"icmp_code":0}`: "icmp_code",
		`{"protocol":"icmp","!icmp_type":8}`: "!icmp_type", `{"protocol":"tcp","!dst_ports":[1]}`: "!dst_ports", `{"!protocol":"tcp"}`: "!protocol",
	} {
		object, err := Decode(rules, []byte(`{"outbound_rules":[`+value+`]}`))
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		text, err := Encode(rules, object)
		switch {
		case member == "" && err != nil:
			t.Errorf("%s: %v", value, err)
		case member != "" && (err == nil || !strings.Contains(err.Error(), "outbound_rules[0]."+member+": ")):
			t.Errorf("%s is written as %s, %v; want %s refused", value, text, err, member)
		}
	}
}
