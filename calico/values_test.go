package calico

import (
	"net/netip"
	"strings"
	"testing"
)

func TestBGPPeer(t *testing.T) {
	peer := func(as string) string { return `{"ip":"192.0.2.1","as_num":` + as + `}` }
	checkValues(t, KindBGPPeer, []valueCase{
		{"canonical", peer(`"64512"`), "", ""},
		{"number", peer(`64512`), peer(`"64512"`), ""},
		{"high.low", peer(`"1.10"`), peer(`"65546"`), ""},
		{"highest", peer(`"65535.65535"`), peer(`"4294967295"`), ""},
		{"IPv6", `{"ip":"2001:DB8::1","as_num":"1","x":"y"}`, `{"ip":"2001:db8::1","as_num":"1","x":"y"}`, ""},
		{"0", peer(`0`), "", `as_num: 0: want an AS number`},
		{"0 as text", peer(`"0"`), "", `as_num: "0": want an AS number`},
		{"too large", peer(`4294967296`), "", `as_num: 4294967296`},
		{"parts too large", peer(`"65536.0"`), "", `as_num: "65536.0"`},
		{"three parts", peer(`"1.2.3"`), "", `as_num: "1.2.3"`},
		{"fraction", peer(`1.5`), "", `as_num: 1.5`},
		{"text", peer(`"AS1"`), "", `as_num: "AS1"`},
		{"missing", `{"ip":"192.0.2.1"}`, "", `as_num: is missing`},
		{"null", peer(`null`), "", `as_num: is missing`},
		{"address missing", `{"as_num":"1"}`, "", `ip: is missing`},
		{"no address", `{"ip":"192.0.2","as_num":"1"}`, "", `ip: "192.0.2": want an IP address`},
		{"zone", `{"ip":"fe80::1%eth0","as_num":"1"}`, "", `ip: "fe80::1%eth0"`},
	})
	checkValues(t, KindNodeMesh, []valueCase{
		{"on", `{"enabled":true}`, "", ""},
		{"off", `{"enabled":false,"x":1}`, "", ""},
		{"missing", `{}`, "", `enabled: is missing`},
		{"null", `{"enabled":null}`, "", `enabled: is missing`},
		{"text", `{"enabled":"true"}`, "", `enabled: "true": want true or false`},
		{"unparseable", `true`, "", `true: want an object`},
	})
}

func TestStatus(t *testing.T) {
	for _, kind := range []Kind{KindAgentStatus, KindAgentLastStatus} {
		checkValues(t, kind, []valueCase{
			{"canonical", `{"time":"2015-08-14T10:37:54Z","uptime":12.5,"first_update":true}`, "", ""},
			{"fraction of a second", `{"uptime":0,"time":"2015-08-14T10:37:54.123456Z","x":1}`, `{"time":"2015-08-14T10:37:54.123456Z","uptime":0,"first_update":false,"x":1}`, ""},
			{"time missing", `{"uptime":1,"first_update":true}`, "", `time: is missing`},
			{"another zone", `{"time":"2015-08-14T10:37:54+00:00","uptime":1}`, "", `time: "2015-08-14T10:37:54+00:00": want a time of UTC`},
			{"no time", `{"time":"now","uptime":1}`, "", `time: "now"`},
			{"uptime negative", `{"time":"2015-08-14T10:37:54Z","uptime":-1}`, "", `uptime: -1: want seconds from 0`},
			{"uptime as text", `{"time":"2015-08-14T10:37:54Z","uptime":"1"}`, "", `uptime: "1": want a number`},
			{"first_update as text", `{"time":"2015-08-14T10:37:54Z","uptime":1,"first_update":"yes"}`, "", `first_update: "yes"`},
		})
	}
	for _, kind := range []Kind{KindWorkloadEndpointStatus, KindHostEndpointStatus} {
		checkValues(t, kind, []valueCase{
			{"up", `{"status":"up"}`, "", ""}, {"down", `{"status":"down"}`, "", ""}, {"error", `{"status":"error","why":"x"}`, "", ""},
			{"another", `{"status":"Up"}`, "", `status: "Up": want up, down or error`},
			{"missing", `{}`, "", `status: is missing`},
		})
	}
}

func TestDHCPSubnet(t *testing.T) {
	with := func(members string) string {
		return `{"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.1",` + members + `}`
	}
	checkValues(t, KindDHCPSubnet, []valueCase{
		{"least", `{"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.1"}`, "", ""},
		{"all", with(`"dns_servers":["10.0.0.2"],"host_routes":[{"destination":"0.0.0.0/0","nexthop":"10.0.0.3"}],"network_id":"n","mtu":1400,"x":1`), "", ""},
		{"IPv6", `{"cidr":"2001:DB8::/64","gateway_ip":"2001:DB8::1","ipv6_address_mode":"slaac","ipv6_ra_mode":"dhcpv6-stateless","dns_servers":[]}`,
			`{"cidr":"2001:db8::/64","gateway_ip":"2001:db8::1","ipv6_address_mode":"slaac","ipv6_ra_mode":"dhcpv6-stateless"}`, ""},
		{"modes null", with(`"ipv6_address_mode":null,"ipv6_ra_mode":null,"network_id":null,"mtu":null`), `{"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.1"}`, ""},
		{"cidr missing", `{"gateway_ip":"10.0.0.1"}`, "", `cidr: is missing`},
		{"gateway missing", `{"cidr":"10.0.0.0/24"}`, "", `gateway_ip: is missing`},
		{"gateway null", `{"cidr":"10.0.0.0/24","gateway_ip":null}`, "", `gateway_ip: is missing`},
		{"not masked", `{"cidr":"10.0.0.1/24","gateway_ip":"10.0.0.1"}`, "", `cidr: "10.0.0.1/24": has bits beyond`},
		{"gateway of the other family", `{"cidr":"10.0.0.0/24","gateway_ip":"fd80::1"}`, "", `gateway_ip: "fd80::1": want an IPv4 address`},
		{"server of the other family", with(`"dns_servers":["10.0.0.2","fd80::1"]`), "", `dns_servers[1]: "fd80::1": want an IPv4 address`},
		{"route of the other family", with(`"host_routes":[{"destination":"fd80::/64","nexthop":"10.0.0.3"}]`), "", `host_routes[0].destination: "fd80::/64": want a CIDR of IPv4`},
		{"next hop missing", with(`"host_routes":[{"destination":"10.0.0.0/8"}]`), "", `host_routes[0].nexthop: is missing`},
		{"destination missing", with(`"host_routes":[{"nexthop":"10.0.0.3"}]`), "", `host_routes[0].destination: is missing`},
		{"mode", `{"cidr":"2001:db8::/64","gateway_ip":"2001:db8::1","ipv6_ra_mode":"SLAAC"}`, "", `ipv6_ra_mode: "SLAAC": want dhcpv6-stateful, dhcpv6-stateless or slaac`},
		{"least MTU", with(`"mtu":68`), "", ""},
		{"too small an MTU", with(`"mtu":67`), "", `mtu: 67: want 68 to 65535 bytes`},
		{"too large an MTU", with(`"mtu":65536`), "", `mtu: 65536: want 68 to 65535 bytes`},
		{"MTU as text", with(`"mtu":"1400"`), "", `mtu: "1400": want 68 to 65535 bytes`},
		{"mode of IPv4", with(`"ipv6_ra_mode":"slaac"`), "", `ipv6_ra_mode: "slaac": want none in an IPv4 subnet`},
	})
}

func TestHostParts(t *testing.T) {
	checkValues(t, KindHostMetadata, []valueCase{
		{"empty", `{}`, "", ""}, {"unknown member", `{"a": 1}`, `{"a":1}`, ""}, {"no object", `[]`, "", `[]: want an object`},
	})
	checkValues(t, KindOrchRefs, []valueCase{
		{"some", `[{"orchestrator":"k8s","nodeName":"n","x":1},{"orchestrator":"openstack"}]`, "", ""},
		{"none", `[]`, "", ""},
		{"orchestrator missing", `[{"nodeName":"n"}]`, "", `[0].orchestrator: is missing`},
		{"no list", `{}`, "", `{}: want a list`},
	})
}

// TestRawValues shows the values without JSON: by key, what they read as and are written as.
func TestRawValues(t *testing.T) {
	for _, c := range []struct {
		key    Key
		stored string
		want   any
		text   string // when written; empty: as stored
	}{
		{ReadyKey{}, "true", true, ""},
		{ReadyKey{}, "True", false, "false"},
		{ReadyKey{}, "true\n", false, "false"},
		{ReadyKey{}, "", false, "false"},
		{HostIPKey{"h"}, "192.0.2.1", addr("192.0.2.1"), ""},
		{ProfileRefcountKey{"p"}, "0", uint64(0), ""},
		{ProfileRefcountKey{"p"}, "18446744073709551615", uint64(1<<64 - 1), ""},
		{GlobalConfigKey{"InterfacePrefix"}, "cali,tap", "cali,tap", ""},
		{GlobalConfigKey{"as_num"}, "x", "x", ""},
		{HostConfigKey{"h", "LogPrefix"}, "", "", ""},
		{BGPGlobalConfigKey{"as_num"}, "64512", uint32(64512), ""},
		{BGPNodeConfigKey{"h", "as_num"}, "1.10", uint32(65546), "65546"},
		{BGPGlobalConfigKey{"loglevel"}, "debug", "debug", ""},
		{BGPNodeConfigKey{"h", "loglevel"}, "none", "none", ""},
		{BGPGlobalConfigKey{"custom_filters/v4/f"}, "if net ~ 10.0.0.0/8 then reject;\n", "if net ~ 10.0.0.0/8 then reject;\n", ""},
		{BGPNodeConfigKey{"h", "ip_addr_v4"}, "192.0.2.1", addr("192.0.2.1"), ""},
		{BGPNodeConfigKey{"h", "ip_addr_v6"}, "", netip.Addr{}, ""},
		{BGPNodeConfigKey{"h", "ip_addr_v6"}, "2001:DB8::1", addr("2001:db8::1"), "2001:db8::1"},
		{BGPNodeConfigKey{"h", "network_v4"}, "192.0.2.1/24", cidr("192.0.2.0/24"), "192.0.2.0/24"},
		{BGPNodeConfigKey{"h", "network_v6"}, "2001:db8::/64", cidr("2001:db8::/64"), ""},
		{NeutronElectionKey{}, "server-1:4242", "server-1:4242", ""},
	} {
		got, err := Decode(c.key, []byte(c.stored))
		if err != nil || got != c.want {
			t.Errorf("%#v: %q reads as %#v, %v; want %#v", c.key, c.stored, got, err, c.want)
			continue
		}
		if c.text == "" {
			c.text = c.stored
		}
		if text, err := Encode(c.key, got); err != nil || string(text) != c.text {
			t.Errorf("%#v: %#v is written as %q, %v; want %q", c.key, got, text, err, c.text)
		}
	}
	for _, c := range []struct {
		key          Key
		stored, want string
	}{
		{HostIPKey{"h"}, "2001:db8::1", `"2001:db8::1": want an IPv4 address`},
		{HostIPKey{"h"}, "", `"": want an IPv4 address`},
		{HostIPKey{"h"}, "192.0.2.1 ", `want an IPv4 address`},
		{ProfileRefcountKey{"p"}, "", `want an unsigned decimal number`},
		{ProfileRefcountKey{"p"}, "-1", `"-1": want an unsigned decimal number`},
		{ProfileRefcountKey{"p"}, "+1", `want an unsigned`},
		{ProfileRefcountKey{"p"}, "1.0", `want an unsigned`},
		{ProfileRefcountKey{"p"}, "1\n", `want an unsigned`},
		{ProfileRefcountKey{"p"}, `"1"`, `want an unsigned`},
		{ProfileRefcountKey{"p"}, "18446744073709551616", `want an unsigned`},
		{BGPGlobalConfigKey{"as_num"}, `"64512"`, `want an AS number`},
		{BGPGlobalConfigKey{"as_num"}, ``, `want an AS number`},
		{BGPNodeConfigKey{"h", "loglevel"}, "DEBUG", `"DEBUG": want none, debug or info`},
		{BGPNodeConfigKey{"h", "ip_addr_v4"}, "2001:db8::1", `want an IPv4 address`},
		{BGPNodeConfigKey{"h", "network_v4"}, "192.0.2.1", `want the CIDR of an IPv4 network`},
		{BGPNodeConfigKey{"h", "network_v6"}, "192.0.2.0/24", `want the CIDR of an IPv6 network`},
		{BGPGlobalConfigKey{"node_mesh"}, "yes", `not JSON`},
		{GlobalConfigKey{"x"}, "\xff", `is not UTF-8 text`},
		{NeutronElectionKey{}, "server", `want SERVER:PID`},
		{NeutronElectionKey{}, ":1", `want SERVER:PID`},
		{NeutronElectionKey{}, "server:x", `want SERVER:PID`},
	} {
		if got, err := Decode(c.key, []byte(c.stored)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%#v: %q reads as %#v, %v; want an error that says %q", c.key, c.stored, got, err, c.want)
		}
	}
}

func TestParseMAC(t *testing.T) {
	if m, err := ParseMAC("CA:fe:00:1B:2c:03"); err != nil || m.String() != "ca:fe:00:1b:2c:03" {
		t.Errorf("ParseMAC = %v, %v", m, err)
	}
	for _, bad := range []string{"", "ca:fe:00:1b:2c", "ca:fe:00:1b:2c:0g", "ca.fe.00.1b.2c.03", "ca:fe:00:1b:2c-03", "cafe.001b.2c03.00"} {
		if m, err := ParseMAC(bad); err == nil {
			t.Errorf("ParseMAC(%q) = %v; want an error", bad, m)
		}
	}
}
