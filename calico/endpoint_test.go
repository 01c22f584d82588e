package calico

import (
	"errors"
	"strings"
	"testing"
)

// valueCase is a value as it is stored, and its canonical form, or what the error must say.
type valueCase struct {
	name, in string
	want     string // the canonical form; empty: as in
	err      string // the field and reason; empty: valid
}

func checkValues(t *testing.T, kind Kind, cases []valueCase) {
	t.Helper()
	for _, c := range cases {
		object, err := DecodeAs(kind, []byte(c.in))
		if c.err != "" {
			var refused *Error
			switch {
			case err == nil:
				t.Errorf("%s: %s: %s is taken; want an error that says %q", kind, c.name, c.in, c.err)
			case !errors.As(err, &refused) || refused.Object != string(kind) || !strings.Contains(err.Error(), c.err):
				t.Errorf("%s: %s: error %q; want one of %s that says %q", kind, c.name, err, kind, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %s: %s: %v", kind, c.name, c.in, err)
			continue
		}
		want := c.want
		if want == "" {
			want = c.in
		}
		text, err := EncodeAs(kind, object)
		if err != nil || string(text) != want {
			t.Errorf("%s: %s: canonical form\n %s, %v; want\n %s", kind, c.name, text, err, want)
		}
	}
}

func TestWorkloadEndpoint(t *testing.T) {
	with := func(members string) string { return `{"state":"active","name":"tap1",` + members + `}` }
	form := func(profiles, nets4, nets6, rest string) string {
		return `{"state":"active","name":"tap1","profile_ids":[` + profiles + `],"ipv4_nets":[` + nets4 + `],"ipv6_nets":[` + nets6 + `]` + rest + `}`
	}
	checkValues(t, KindWorkloadEndpoint, []valueCase{
		{"least", `{"state":"active","name":"tap1"}`, form("", "", "", `,"labels":{}`), ""},
		{"inactive", `{"state":"inactive","name":"tap1"}`, `{"state":"inactive","name":"tap1","profile_ids":[],"ipv4_nets":[],"ipv6_nets":[],"labels":{}}`, ""},
		{"state missing", `{"name":"tap1"}`, "", "state: is missing; want active or inactive"},
		{"state null", `{"state":null,"name":"tap1"}`, "", "state: is missing"},
		{"state unknown", `{"state":"up","name":"tap1"}`, "", `state: "up": want active or inactive`},
		{"state's case", `{"state":"Active","name":"tap1"}`, "", `state: "Active"`},
		{"state no string", `{"state":true,"name":"tap1"}`, "", `state: true: want a string`},
		{"name missing", `{"state":"active"}`, "", "name: is missing"},
		{"name with a dot", `{"state":"active","name":"eth0.100"}`, `{"state":"active","name":"eth0.100","profile_ids":[],"ipv4_nets":[],"ipv6_nets":[],"labels":{}}`, ""},
		{"name of 16", `{"state":"active","name":"tap4567890123456"}`, "", "1 to 15 of"},
		{"name with a slash", `{"state":"active","name":"a/b"}`, "", `name: "a/b": want the name of an interface`},
		{"name that is a path", `{"state":"active","name":".."}`, "", `name: ".."`},
		{"MAC in other spelling", with(`"mac":"CA-FE-00-1B-2c-03"`), `{"state":"active","name":"tap1","mac":"ca:fe:00:1b:2c:03","profile_ids":[],"ipv4_nets":[],"ipv6_nets":[],"labels":{}}`, ""},
		{"MAC null", with(`"mac":null`), form("", "", "", `,"labels":{}`), ""},
		{"MAC of one digit", with(`"mac":"a:fe:00:1b:2c:03"`), "", `mac: "a:fe:00:1b:2c:03": want a MAC address`},
		{"MAC with both separators", with(`"mac":"ca:fe-00:1b:2c:03"`), "", "want a MAC address"},
		{"MAC without separators", with(`"mac":"cafe001b2c03"`), "", "want a MAC address"},
		{"MAC of 8", with(`"mac":"ca:fe:00:1b:2c:03:04:05"`), "", "want a MAC address"},
		{"profiles in order", with(`"profile_ids":["b","a","x/y"]`), form(`"b","a","x/y"`, "", "", `,"labels":{}`), ""},
		{"a legacy profile", with(`"profile_id":"p"`), form(`"p"`, "", "", `,"labels":{}`), ""},
		{"a legacy profile beside the list", with(`"profile_id":"p","profile_ids":["a"]`), form(`"a"`, "", "", `,"labels":{}`), ""},
		{"a legacy profile beside an empty list", with(`"profile_ids":[],"profile_id":"p"`), form("", "", "", `,"labels":{}`), ""},
		{"a legacy profile beside null", with(`"profile_ids":null,"profile_id":"p"`), form(`"p"`, "", "", `,"labels":{}`), ""},
		{"no legacy profile", with(`"profile_id":null`), form("", "", "", `,"labels":{}`), ""},
		{"a legacy profile of another type", with(`"profile_id":5`), "", "profile_id: 5: want a string"},
		{"an empty legacy profile", with(`"profile_id":""`), "", `profile_ids[0]: "": want a profile's name`},
		{"profile's characters", with(`"profile_ids":["a","b c"]`), "", `profile_ids[1]: "b c": want a profile's name`},
		{"profile's length", with(`"profile_ids":["` + strings.Repeat("a", 129) + `"]`), "", `profile_ids[0]`},
		{"profile null", with(`"profile_ids":[null]`), "", `profile_ids[0]: null: want a string`},
		{"profiles no list", with(`"profile_ids":"a"`), "", `profile_ids: "a": want a list`},
		{"addresses", with(`"ipv4_nets":["10.0.0.1","10.0.0.2/32"],"ipv6_nets":["2001:DB8:0:0::1/128"]`),
			form("", `"10.0.0.1/32","10.0.0.2/32"`, `"2001:db8::1/128"`, `,"labels":{}`), ""},
		{"a wider net", with(`"ipv4_nets":["10.0.0.1/32","10.0.0.0/31"]`), "", `ipv4_nets[1]: "10.0.0.0/31": want the prefix of one address, /32`},
		{"a wider IPv6 net", with(`"ipv6_nets":["2001:db8::/64"]`), "", `ipv6_nets[0]: "2001:db8::/64": want the prefix of one address, /128`},
		{"IPv6 among IPv4", with(`"ipv4_nets":["2001:db8::1/128"]`), "", `ipv4_nets[0]: "2001:db8::1/128": want an IPv4 address`},
		{"IPv4 among IPv6", with(`"ipv6_nets":["10.0.0.1"]`), "", `ipv6_nets[0]`},
		{"no address", with(`"ipv4_nets":["10.0.0"]`), "", `ipv4_nets[0]: "10.0.0": want a CIDR`},
		{"a zone", with(`"ipv6_nets":["fe80::1%eth0"]`), "", `ipv6_nets[0]: "fe80::1%eth0"`},
		{"NAT", with(`"ipv4_nets":["10.0.0.1"],"ipv4_nat":[{"int_ip":"10.0.0.1","ext_ip":"192.0.2.1","x":1}],"ipv6_nets":["2001:db8::1"],"ipv6_nat":[{"ext_ip":"2001:db8:1::1","int_ip":"2001:DB8::1"}]`),
			form("", `"10.0.0.1/32"`, `"2001:db8::1/128"`, `,"ipv4_nat":[{"int_ip":"10.0.0.1","ext_ip":"192.0.2.1"}],"ipv6_nat":[{"int_ip":"2001:db8::1","ext_ip":"2001:db8:1::1"}],"labels":{}`), ""},
		{"NAT before the nets", with(`"ipv4_nat":[{"int_ip":"10.0.0.1","ext_ip":"192.0.2.1"}],"ipv4_nets":["10.0.0.1"]`),
			form("", `"10.0.0.1/32"`, "", `,"ipv4_nat":[{"int_ip":"10.0.0.1","ext_ip":"192.0.2.1"}],"labels":{}`), ""},
		{"NAT to a stranger", with(`"ipv4_nets":["10.0.0.1"],"ipv4_nat":[{"int_ip":"10.0.0.2","ext_ip":"192.0.2.1"}]`), "", `ipv4_nat[0].int_ip: "10.0.0.2": want one of the endpoint's own ipv4_nets`},
		{"NAT without ext_ip", with(`"ipv4_nets":["10.0.0.1"],"ipv4_nat":[{"int_ip":"10.0.0.1"}]`), "", `ipv4_nat[0].ext_ip: is missing`},
		{"NAT without int_ip", with(`"ipv4_nat":[{"ext_ip":"10.0.0.1"}]`), "", `ipv4_nat[0].int_ip: is missing`},
		{"NAT of the other family", with(`"ipv6_nat":[{"int_ip":"10.0.0.1","ext_ip":"192.0.2.1"}]`), "", `ipv6_nat[0].int_ip: "10.0.0.1": want an IPv6 address`},
		{"NAT of both families", with(`"ipv4_nets":["10.0.0.1"],"ipv4_nat":[{"int_ip":"10.0.0.1","ext_ip":"2001:db8::1"}]`), "", `ipv4_nat[0].ext_ip`},
		{"NAT of a CIDR", with(`"ipv4_nat":[{"int_ip":"10.0.0.1/32","ext_ip":"192.0.2.1"}]`), "", `ipv4_nat[0].int_ip: "10.0.0.1/32": want an IP address`},
		{"gateways", with(`"ipv4_gateway":"10.0.0.254","ipv6_gateway":"FE80::1"`), form("", "", "", `,"ipv4_gateway":"10.0.0.254","ipv6_gateway":"fe80::1","labels":{}`), ""},
		{"gateways null", with(`"ipv4_gateway":null,"ipv6_gateway":null`), form("", "", "", `,"labels":{}`), ""},
		{"gateway of the other family", with(`"ipv4_gateway":"fe80::1"`), "", `ipv4_gateway: "fe80::1": want an IPv4 address`},
		{"gateway empty", with(`"ipv4_gateway":""`), "", `ipv4_gateway: "": want an IP address`},
		{"labels", with(`"labels":{"b/x.y_z-0":"any \"text\" <&> \u00e9\n","a":""}`), form("", "", "", `,"labels":{"a":"","b/x.y_z-0":"any \"text\" <&> é\n"}`), ""},
		{"label's name", with(`"labels":{"a b":"x"}`), "", `labels["a b"]: want a label's name`},
		{"label's name empty", with(`"labels":{"":"x"}`), "", `labels[""]`},
		{"label's name too long", with(`"labels":{"` + strings.Repeat("a", 513) + `":"x"}`), "", `want a label's name: 1 to 512`},
		{"label no string", with(`"labels":{"a":1}`), "", `labels.a: 1: want a string`},
		{"label null", with(`"labels":{"a":null}`), "", `labels.a: null: want a string`},
		{"label twice", with(`"labels":{"a":"1","\u0061":"1"}`), "", `labels.a: is there twice`},
		{"labels no object", with(`"labels":["a"]`), "", `labels: ["a"]: want an object`},
		{"DHCP members", with(`"ipv4_subnet_ids":["s","t"],"ipv6_subnet_ids":["u"],"fqdn":"a.example.org","active_instance_id":"i"`),
			form("", "", "", `,"labels":{},"active_instance_id":"i","ipv4_subnet_ids":["s","t"],"ipv6_subnet_ids":["u"],"fqdn":"a.example.org"`), ""},
		{"expected addresses", with(`"expected_ipv4_addrs":["10.0.0.1"]`), "", `expected_ipv4_addrs: ["10.0.0.1"]: is for host endpoints alone`},
		{"unknown members", with(`"z":null,"ports":[ {"name": "http", "port": 80} ],"Name":" a "`), form("", "", "", `,"labels":{},"Name":" a ","ports":[{"name":"http","port":80}],"z":null`), ""},
		{"duplicate in an unknown member", with(`"x":{"a":1,"a":2}`), "", `x.a: is there twice`},
	})
}

func TestHostEndpoint(t *testing.T) {
	checkValues(t, KindHostEndpoint, []valueCase{
		{"by name", `{"name":"eth0"}`, `{"name":"eth0","profile_ids":[],"labels":{}}`, ""},
		{"by address", `{"expected_ipv4_addrs":["192.0.2.1"],"expected_ipv6_addrs":["2001:DB8::1"],"profile_ids":["p"],"labels":{"a":"b"}}`,
			`{"expected_ipv4_addrs":["192.0.2.1"],"expected_ipv6_addrs":["2001:db8::1"],"profile_ids":["p"],"labels":{"a":"b"}}`, ""},
		{"by neither", `{"labels":{}}`, "", "name: is missing, and so are expected addresses"},
		{"by an empty list", `{"expected_ipv4_addrs":[]}`, "", "name: is missing"},
		{"name", `{"name":"an-interface-0123"}`, "", `name: "an-interface-0123": want the name of an interface`},
		{"a CIDR", `{"expected_ipv4_addrs":["192.0.2.1/32"]}`, "", `expected_ipv4_addrs[0]: "192.0.2.1/32": want an IP address`},
		{"the other family", `{"expected_ipv6_addrs":["192.0.2.1"]}`, "", `expected_ipv6_addrs[0]: "192.0.2.1": want an IPv6 address`},
		{"null", `{"expected_ipv6_addrs":[null]}`, "", `expected_ipv6_addrs[0]: null: want an IP address`},
		{"state", `{"name":"eth0","state":"active"}`, "", `state: "active": is for workload endpoints alone`},
		{"MAC", `{"name":"eth0","mac":"ca:fe:00:00:00:01"}`, "", `mac`},
		{"nets", `{"name":"eth0","ipv4_nets":[]}`, "", `ipv4_nets: []: is for workload endpoints alone`},
		{"IPv6 nets", `{"name":"eth0","ipv6_nets":[]}`, "", `ipv6_nets`},
		{"NAT", `{"name":"eth0","ipv4_nat":[]}`, "", `ipv4_nat`},
		{"IPv6 NAT", `{"name":"eth0","ipv6_nat":[]}`, "", `ipv6_nat`},
		{"gateway", `{"name":"eth0","ipv4_gateway":"192.0.2.1"}`, "", `ipv4_gateway`},
		{"IPv6 gateway", `{"name":"eth0","ipv6_gateway":"2001:db8::1"}`, "", `ipv6_gateway`},
		{"profile", `{"name":"eth0","profile_ids":["a b"]}`, "", `profile_ids[0]: "a b"`},
		{"unknown member", `{"name":"eth0","x":1}`, `{"name":"eth0","profile_ids":[],"labels":{},"x":1}`, ""},
	})
}
