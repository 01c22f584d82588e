package offline

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/topology/flow"
)

func TestTraceText(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	file := tracedFile{Scenarios: []traced{
		{ID: "one", title: "a title", Steps: []tracedStep{
			{
				what: "from a", OK: &yes, Captured: map[string]any{"p": 80},
				Deliveries: []delivery{{Port: "b", Frame: fields{"type": "ipv4", "dport": 80, "inner": fields{"proto": "udp"}}}},
				Walk:       []flow.Step{{Device: "a", Text: "in"}, {Device: "a", Chain: "OS_PORT_a_INBOUND", Rule: "1: drop", Text: "denied"}},
			},
			{what: "update"},
			{what: "3 times from a", OK: &no, Drops: []dropped{{"b", "it is down"}}},
		}},
		{ID: 2, Error: "there is no network"},
	}}
	var out bytes.Buffer
	if err := file.text(&out); err != nil {
		t.Fatal(err)
	}
	want := strings.TrimPrefix(`
scenario one a title
step 1: from a: as expected
  a: in
  a, OS_PORT_a_INBOUND 1: drop: denied
  delivered to b: type ipv4, dport 80, inner {proto udp}
  $p = 80
step 2: update
step 3: 3 times from a: NOT as expected
  dropped by b: it is down
scenario 2
  cannot be built: there is no network
1 of 2 expectations met
`, "\n")
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// ParseFrame fills in what follows from the rest.
func TestParseFrame(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{`{type: arp, eth_src: "02:00:00:00:00:01", spa: 192.0.2.1, tpa: 192.0.2.2}`,
			"type arp, eth_dst ff:ff:ff:ff:ff:ff, eth_src 02:00:00:00:00:01, op request, sha 02:00:00:00:00:01, spa 192.0.2.1, tha 00:00:00:00:00:00, tpa 192.0.2.2"},
		{`{type: ipv6, eth_src: "02:00:00:00:00:01", ip_src: "fe80::1", ip_dst: "ff02::1:ff00:2", nd_target: "fe80::2"}`,
			"type ipv6, eth_dst 33:33:ff:00:00:02, eth_src 02:00:00:00:00:01, icmp_code 0, icmp_type 135, ip_dst ff02::1:ff00:2, ip_src fe80::1, nd_target fe80::2, proto icmpv6, ttl 255"},
		{`{type: ipv4, eth_src: "02:00:00:00:00:01", dhcp: {}}`,
			"type ipv4, dhcp {type discover, chaddr 02:00:00:00:00:01}, dport 67, eth_dst ff:ff:ff:ff:ff:ff, eth_src 02:00:00:00:00:01, ip_dst 255.255.255.255, ip_src 0.0.0.0, proto udp, sport 68, ttl 64"},
	} {
		raw, err := ParseFrame([]byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if diff := cmp.Diff(tt.want, showFrame(raw).String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, diff)
		}
	}
	for text, want := range map[string]string{
		`{type: ipv4, eth_src: "@a"}`: "eth_src: @a names nothing in the topology",
		`{type: ipv5}`:                `type: "ipv5" is not one of ipv4, ipv6, arp`,
		`{kind: ipv4}`:                "kind: unknown field",
		`{type: arp}`:                 "eth_src is missing",
		`{type: ipv4, eth_src: "02:00:00:00:00:01", eth_dst: "@bcast", ip_src: 192.0.2.1, ip_dst: 192.0.2.2}`:                           "proto is missing",
		`{type: ipv4, eth_src: "02:00:00:00:00:01", eth_dst: "@bcast", ip_src: 192.0.2.1, ip_dst: 192.0.2.2, proto: tcp, dport: 65536}`: "dport: 65536 is not a whole number up to 65535",
		`{type: ipv4, eth_src: "02:00:00:00:00:01", eth_dst: "@bcast", ip_src: 192.0.2.1, ip_dst: 192.0.2.2, inner: {}}`:                "inner: proto is missing",
	} {
		if _, err := ParseFrame([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}
