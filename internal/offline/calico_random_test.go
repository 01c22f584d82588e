package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// Cases made by chance are judged alike by thinking and by a kernel.
func TestCheckRandomInKernel(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const cases = 6
	for range cases {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			input, err := json.Marshal(randomCase(seed))
			if err != nil {
				t.Fatal(err)
			}
			thought, real := verdictsOf(t, input, CheckOptions{JSON: true}), verdictsOf(t, input, CheckOptions{JSON: true, Kernel: true})
			for i := range thought {
				if thought[i].Verdict != real[i].Verdict {
					t.Errorf("packet %d: %s\nof %s", i, real[i].DecidedBy, input)
				}
			}
		})
	}
}

type verdictOf struct {
	Verdict   string
	OK        *bool
	DecidedBy string `json:"decided_by"`
}

func verdictsOf(t *testing.T, input []byte, opts CheckOptions) []verdictOf {
	t.Helper()
	var out bytes.Buffer
	if err := Check(t.Context(), bytes.NewReader(input), opts, &out); err != nil && !errors.Is(err, ErrExpectation) {
		t.Fatalf("%v\n%s", err, input)
	}
	var answer struct {
		Cases []struct{ Packets []verdictOf }
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Cases[0].Packets
}

// chooser chooses by chance.
type chooser struct{ *rand.Rand }

func (c chooser) one(of ...any) any { return of[c.IntN(len(of))] }
func (c chooser) maybe() bool       { return c.IntN(3) == 0 }

// Three workloads, of both families, one of them with a floating address, and two host endpoints.
const (
	randomWorkloads = 3
	randomPackets   = 40
)

func randomCase(seed uint64) map[string]any {
	c := chooser{rand.New(rand.NewPCG(seed, 0))}
	profiles, policies, endpoints := map[string]any{}, map[string]any{}, map[string]any{}
	for i := range 3 {
		profiles[fmt.Sprintf("p%d", i)] = map[string]any{"rules": map[string]any{"inbound_rules": c.rules(), "outbound_rules": c.rules()},
			"tags": []string{fmt.Sprintf("t%d", i)}, "labels": c.labels()}
	}
	for i := range 1 + c.IntN(8) {
		p := map[string]any{"selector": c.selector(), "inbound_rules": c.rules(), "outbound_rules": c.rules(), "order": c.one(1, 2, 3, "default")}
		switch {
		case c.maybe():
			p["untracked"] = true
		case c.maybe():
			p["pre_dnat"] = true
			delete(p, "outbound_rules")
		case c.maybe():
			p["types"] = []any{c.one("ingress", "egress")}
		}
		policies[fmt.Sprintf("%v/q%d", c.one("default", "first", "last"), i)] = p
	}
	for i := range randomWorkloads {
		e := map[string]any{"state": "active", "name": fmt.Sprintf("cali-%d", i), "mac": fmt.Sprintf("02:00:00:00:00:%02x", i+1),
			"ipv4_nets": []string{fmt.Sprintf("10.65.0.%d/32", i+1)}, "ipv6_nets": []string{fmt.Sprintf("fd00:65::%d/128", i+1)}, "labels": c.labels(), "profile_ids": c.profileIDs()}
		if i == 2 {
			e["state"] = c.one("active", "active", "inactive")
		}
		if i == 0 {
			e["ipv4_nat"] = []any{map[string]string{"int_ip": "10.65.0.1", "ext_ip": "192.0.2.80"}}
		}
		endpoints[fmt.Sprintf("w%d", i)] = e
	}
	for i := range 2 {
		endpoints[fmt.Sprintf("h%d", i)] = map[string]any{"name": fmt.Sprintf("eth%d", i), "expected_ipv4_addrs": []string{fmt.Sprintf("198.51.100.%d", i+1)},
			"expected_ipv6_addrs": []string{fmt.Sprintf("2001:db8:100::%d", i+1)}, "labels": c.labels(), "profile_ids": c.profileIDs()}
	}
	var packets []any
	for range randomPackets {
		packets = append(packets, c.packet())
	}
	return map[string]any{"id": fmt.Sprint(seed), "tiers": map[string]any{"first": map[string]any{"order": 1}, "last": map[string]any{}},
		"config": map[string]any{"DefaultEndpointToHostAction": c.one("DROP", "RETURN"), "FailsafeInboundHostPorts": c.one("tcp:2", "none"),
			"DisableConntrackInvalidCheck": c.one("true", "false", "false"), "DropActionOverride": c.one("DROP", "DROP", "DROP", "LOG-and-ACCEPT"),
			"ClusterType": c.one("", "openstack")},
		"profiles": profiles, "policies": policies, "endpoints": endpoints, "packets": packets}
}

func (c chooser) labels() map[string]string {
	labels := map[string]string{}
	for _, name := range []string{"a", "b"} {
		if c.maybe() {
			labels[name] = fmt.Sprint(c.IntN(2))
		}
	}
	return labels
}

func (c chooser) profileIDs() []string {
	var ids []string
	for range c.IntN(3) {
		ids = append(ids, fmt.Sprintf("p%d", c.IntN(4))) // p3 does not exist
	}
	return ids
}

func (c chooser) selector() any {
	return c.one("all()", "has(a)", "!has(a)", "a == '0'", "b == '1' || a == '1'", "b != '0'")
}

func (c chooser) rules() []any {
	rules := []any{}
	for range c.IntN(4) {
		rules = append(rules, c.rule())
	}
	return rules
}

// rule is a valid rule of few criteria, each of which some packets meet.
func (c chooser) rule() map[string]any {
	r := map[string]any{"action": c.one("allow", "allow", "deny", "next-tier", "log")}
	add := func(name string, values ...any) {
		if c.maybe() {
			r[name] = c.one(values...)
		}
	}
	switch c.IntN(4) {
	case 0:
		r["protocol"] = c.one("tcp", "udp")
		add("dst_ports", []any{1}, []any{"1:2"}, []any{2, 3})
		add("!dst_ports", []any{1}, []any{"2:3"})
		add("src_ports", []any{"40000:50000"}, []any{1})
	case 1:
		r["protocol"] = "icmp"
		add("icmp_type", 8, 13)
		add("!icmp_type", 8)
	case 2:
		add("!protocol", "tcp", "udp")
	}
	add("src_selector", "has(a)", "b == '1'", "")
	add("!src_selector", "has(b)", "!has(a)")
	add("dst_tag", "t0", "t1")
	add("!dst_tag", "t1", "t2")
	add("src_net", "10.65.0.0/31", "192.0.2.0/24", "fd00:65::/64")
	add("!dst_net", "10.65.0.2", "fd00:65::1", "198.51.100.0/24")
	return r
}

// packet is one whose addresses lead where it says.
func (c chooser) packet() map[string]any {
	six := c.maybe()
	of := func(place string, index int) string {
		format := map[string]string{"w": "10.65.0.%d", "h": "198.51.100.%d", "external": "192.0.2.%d", "local-host": "203.0.113.%d"}[place]
		if six {
			format = map[string]string{"w": "fd00:65::%d", "h": "2001:db8:100::%d", "external": "2001:db8:2::%d", "local-host": "2001:db8:113::%d"}[place]
		}
		return fmt.Sprintf(format, index+1)
	}
	i, j := c.IntN(randomWorkloads), c.IntN(2)
	w, h := fmt.Sprintf("w%d", i), fmt.Sprintf("h%d", j)
	ways := []struct{ from, to, src, dst string }{
		{"external", w, of("external", 8), of("w", i)},
		{w, "external", of("w", i), of("external", 8)},
		{w, "local-host", of("w", i), of("local-host", 8)},
		{w, "external", of("w", (i+1)%randomWorkloads), of("external", 8)},
		{w, fmt.Sprintf("w%d", (i+1)%randomWorkloads), of("w", i), of("w", (i+1)%randomWorkloads)},
		{"external", h, of("external", 8), of("h", j)},
		{h, "external", of("h", j), of("external", 8)},
		{h, w, of("external", 9), of("w", i)},
		{w, h, of("w", i), of("external", 9)},
		{"h0", "h1", of("external", 9), of("external", 10)},
		{"local-host", w, of("local-host", 8), of("w", i)},
		{h, "local-host", of("external", 9), of("local-host", 8)},
	}
	way := ways[c.IntN(len(ways))]
	if way.to == "w0" && !six && c.maybe() {
		way.dst = "192.0.2.80"
	}
	p := map[string]any{"from": way.from, "to": way.to, "src": way.src, "dst": way.dst, "proto": c.one("tcp", "udp"), "dport": 1 + c.IntN(3),
		"state": c.one("new", "new", "new", "established", "invalid")}
	if way.from == w && c.IntN(6) == 0 {
		p["src_mac"] = "02:00:00:00:00:99"
	}
	if !six && c.maybe() {
		p["proto"], p["icmp_type"] = "icmp", c.one(8, 13)
		delete(p, "dport")
		if own := way.from == "local-host" || way.from == h && way.to == "external"; own && p["state"] == "invalid" {
			p["icmp_type"] = 0 // an answer that nobody asked for: questions of the host itself are never invalid
		}
	}
	return p
}
