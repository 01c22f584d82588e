package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// history is a world with the steps that made it.
type history struct {
	world *world
	steps int
}

func newHistory(t *rapid.T) *history {
	w, end, err := newWorld(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return &history{world: w}
}

// do applies one step and returns its refusal.
func (h *history) do(op, typ string, data map[string]any) error {
	h.steps++
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	n, err := parseText(b)
	if err != nil {
		return err
	}
	o, err := n.anyObject()
	if err != nil {
		return err
	}
	s := step{number: h.steps, op: op, typ: typ, data: o}
	if err := s.check(); err != nil {
		return err
	}
	return h.world.apply(&s)
}

func (h *history) must(t *rapid.T, op, typ string, data map[string]any) {
	t.Helper()
	if err := h.do(op, typ, data); err != nil {
		t.Fatalf("%s %s %v: %v", op, typ, data, err)
	}
}

func (h *history) topology(t *rapid.T) *topology.View {
	v, err := h.world.topology()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (h *history) text(t *rapid.T) string {
	b, err := json.MarshalIndent(h.topology(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func uuidOf(kind, i int) string { return fmt.Sprintf("%04d%04d-0000-4000-8000-000000000000", kind, i) }

const (
	kindHost = iota + 1
	kindNetwork
	kindSubnet
	kindGroup
	kindPort
	kindRule
)

// groups is the number of groups; number 1 is stateless, and so in no port with another.
const groups = 3

// furnish makes what ports and rules refer to.
func furnish(t *rapid.T, h *history) {
	for i := range 2 {
		h.must(t, "create", "host", map[string]any{"id": uuidOf(kindHost, i), "name": fmt.Sprint("host", i)})
	}
	for i := range groups {
		h.must(t, "create", "security_group", map[string]any{"id": uuidOf(kindGroup, i), "stateful": i != 1})
	}
	h.must(t, "create", "network", map[string]any{"id": uuidOf(kindNetwork, 0)})
	h.must(t, "create", "subnet", map[string]any{"id": uuidOf(kindSubnet, 0), "network_id": uuidOf(kindNetwork, 0), "cidr": "192.0.2.0/24"})
	h.must(t, "create", "subnet", map[string]any{"id": uuidOf(kindSubnet, 1), "network_id": uuidOf(kindNetwork, 0), "cidr": "2001:db8::/64"})
}

// anyPort draws attributes of a port; owner is one that can be kept for life.
func anyPort(t *rapid.T, i int) map[string]any {
	octet := func() int { return 10*(i+1) + rapid.IntRange(0, 4).Draw(t, "octet") }
	all := map[string]func() any{
		"name":                  func() any { return rapid.StringMatching("[a-z]{0,3}").Draw(t, "name") },
		"admin_state_up":        func() any { return rapid.Bool().Draw(t, "up") },
		"mac_address":           func() any { return fmt.Sprintf("fa:16:3e:00:%02x:%02x", i, octet()) },
		"port_security_enabled": func() any { return rapid.Bool().Draw(t, "security") },
		"binding:host_id":       func() any { return rapid.SampledFrom([]string{"host0", "host1", ""}).Draw(t, "host") },
		"binding:profile": func() any {
			return rapid.SampledFrom([]any{map[string]any{}, map[string]any{"interface_name": fmt.Sprint("eth", i)}}).Draw(t, "profile")
		},
		"security_groups": func() any {
			return rapid.SampledFrom([][]string{{}, {uuidOf(kindGroup, 0)}, {uuidOf(kindGroup, 1)}, {uuidOf(kindGroup, 2), uuidOf(kindGroup, 0)}}).Draw(t, "groups")
		},
		"fixed_ips": func() any {
			return rapid.SampledFrom([]any{
				[]any{},
				[]any{map[string]any{"ip_address": fmt.Sprint("192.0.2.", octet())}},
				[]any{map[string]any{"ip_address": fmt.Sprintf("2001:db8::%x", octet())}, map[string]any{"ip_address": fmt.Sprint("192.0.2.", octet())}},
			}).Draw(t, "ips")
		},
		"allowed_address_pairs": func() any {
			return rapid.SampledFrom([]any{
				[]any{}, []any{map[string]any{"ip_address": "203.0.113.0/24"}},
				[]any{map[string]any{"ip_address": "2001:db8:9::1", "mac_address": "02:00:00:00:00:01"}},
			}).Draw(t, "pairs")
		},
		"extra_dhcp_opts": func() any {
			return rapid.SampledFrom([]any{
				[]any{}, []any{map[string]any{"opt_name": "mtu", "opt_value": "1400"}, map[string]any{"opt_name": "x", "opt_value": "y", "ip_version": 6}},
			}).Draw(t, "options")
		},
	}
	data := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if rapid.Bool().Draw(t, "has "+name) {
			data[name] = all[name]()
		}
	}
	// Groups and pairs need port security: a request says all of them or none.
	security := []string{"port_security_enabled", "security_groups", "allowed_address_pairs"}
	if slices.ContainsFunc(security, func(name string) bool { return data[name] != nil }) {
		for _, name := range security {
			data[name] = all[name]()
		}
		if data["port_security_enabled"] == false {
			data["security_groups"], data["allowed_address_pairs"] = []any{}, []any{}
		}
	}
	return data
}

func with(data map[string]any, more map[string]any) map[string]any {
	data = maps.Clone(data)
	maps.Copy(data, more)
	return data
}

// Whatever is created and then deleted leaves the topology as it was, in any order of deletion that
// is allowed.
func TestCreateThenDelete(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		furnish(t, h)
		before := h.text(t)
		type made struct{ typ, id string }
		var all []made
		for i := range rapid.IntRange(1, 5).Draw(t, "ports") {
			data := with(anyPort(t, i), map[string]any{"id": uuidOf(kindPort, i), "network_id": uuidOf(kindNetwork, 0)})
			data["device_owner"] = rapid.SampledFrom([]string{
				"", "compute:nova", "network:dhcp", "network:router_interface", "network:router_gateway", "network:floatingip",
				"neutron:LOADBALANCER", "neutron:LOADBALANCERV2", "network:other", "trunk:subport",
			}).Draw(t, "owner")
			h.must(t, "create", "port", data)
			all = append(all, made{"port", uuidOf(kindPort, i)})
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "rules") {
			var refused *neutron.Error
			switch err := h.do("create", "security_group_rule", anyRule(t, i)); {
			case errors.As(err, &refused) && refused.Type == "SecurityGroupRuleExists": // under another id
			case err != nil:
				t.Fatal(err)
			default:
				all = append(all, made{"security_group_rule", uuidOf(kindRule, i)})
			}
		}
		for _, m := range rapid.Permutation(all).Draw(t, "order") {
			h.must(t, "delete", m.typ, map[string]any{"id": m.id})
		}
		if diff := cmp.Diff(before, h.text(t)); diff != "" {
			t.Fatalf("left behind:\n%s", diff)
		}
		h.must(t, "delete", "network", map[string]any{"id": uuidOf(kindNetwork, 0)})
		for i := range groups {
			h.must(t, "delete", "security_group", map[string]any{"id": uuidOf(kindGroup, i)})
		}
		for i := range 2 {
			h.must(t, "delete", "host", map[string]any{"id": uuidOf(kindHost, i)})
		}
		if diff := cmp.Diff(newHistory(t).text(t), h.text(t)); diff != "" {
			t.Fatalf("not empty in the end:\n%s", diff)
		}
	})
}

func anyRule(t *rapid.T, i int) map[string]any {
	data := map[string]any{
		"id":                uuidOf(kindRule, i),
		"security_group_id": uuidOf(kindGroup, rapid.IntRange(0, 1).Draw(t, "group")),
		"direction":         rapid.SampledFrom([]string{"ingress", "egress"}).Draw(t, "direction"),
		"ethertype":         rapid.SampledFrom([]string{"IPv4", "IPv6"}).Draw(t, "ethertype"),
		"protocol":          rapid.SampledFrom([]any{nil, "tcp", "udp", "icmp", 132, "0"}).Draw(t, "protocol"),
	}
	if data["protocol"] != nil && data["protocol"] != "0" && rapid.Bool().Draw(t, "ports") {
		data["port_range_min"] = rapid.IntRange(1, 100).Draw(t, "min")
		data["port_range_max"] = rapid.IntRange(100, 255).Draw(t, "max")
	}
	if rapid.Bool().Draw(t, "remote") {
		data["remote_group_id"] = uuidOf(kindGroup, rapid.IntRange(0, 1).Draw(t, "remote group"))
	}
	return data
}

// A port that got where it is by any updates has the topology of one created so.
func TestUpdatesEqualCreate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := map[string]any{"id": uuidOf(kindPort, 0)}
		place := with(id, map[string]any{"network_id": uuidOf(kindNetwork, 0)})
		updated, created := newHistory(t), newHistory(t)
		furnish(t, updated)
		furnish(t, created)

		data := with(place, anyPort(t, 0))
		data["mac_address"] = "fa:16:3e:00:00:01"
		updated.must(t, "create", "port", data)
		owner := "" // may go between a machine's port and a router's
		for range rapid.IntRange(0, 5).Draw(t, "updates") {
			change := anyPort(t, 0)
			delete(change, "mac_address")     // that of a bound port stays
			delete(change, "extra_dhcp_opts") // an update adds to them
			if rapid.Bool().Draw(t, "convert") {
				owner = rapid.SampledFrom([]string{"", "compute:nova", "network:router_interface"}).Draw(t, "owner")
				change["device_owner"] = owner
			}
			// A change of owner alone does not bind or unbind: say where the port is, as the create
			// does.
			change["binding:host_id"] = rapid.SampledFrom([]string{"host0", "host1", ""}).Draw(t, "host")
			updated.must(t, "update", "port", with(id, change))
			data = with(data, change)
		}
		data["binding:host_id"] = rapid.SampledFrom([]string{"host0", ""}).Draw(t, "last host")
		updated.must(t, "update", "port", with(id, map[string]any{"binding:host_id": data["binding:host_id"]}))
		created.must(t, "create", "port", data)

		// Where a port was before is its history, not its state.
		forget := func(h *history) string {
			v := h.topology(t)
			for _, p := range v.Ports {
				p.PreviousHostID = ""
			}
			return pretty(t, v)
		}
		if diff := cmp.Diff(forget(created), forget(updated)); diff != "" {
			t.Fatalf("created %v (-) and updated to it (+):\n%s", data, diff)
		}
	})
}

func pretty(t *rapid.T, v *topology.View) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A refused step changes nothing.
func TestRefusedChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		furnish(t, h)
		h.must(t, "create", "port", with(anyPort(t, 0), map[string]any{"id": uuidOf(kindPort, 0), "network_id": uuidOf(kindNetwork, 0)}))
		for range 10 {
			before := h.text(t)
			op := rapid.SampledFrom([]string{"create", "update", "delete"}).Draw(t, "op")
			typ := rapid.SampledFrom([]string{"port", "subnet", "security_group", "security_group_rule", "port_binding", "host"}).Draw(t, "type")
			kind := map[string]int{"port": kindPort, "subnet": kindSubnet, "security_group": kindGroup, "security_group_rule": kindRule, "port_binding": kindPort, "host": kindHost}[typ]
			data := map[string]any{"id": uuidOf(kind, rapid.IntRange(0, 2).Draw(t, "which"))}
			if typ == "port" {
				i := rapid.IntRange(0, 1).Draw(t, "i")
				data = with(anyPort(t, i), map[string]any{"id": uuidOf(kindPort, i), "network_id": uuidOf(kindNetwork, rapid.IntRange(0, 1).Draw(t, "network"))})
			}
			if err := h.do(op, typ, data); err != nil && h.text(t) != before {
				t.Fatalf("%s %s %v was refused (%v) and changed:\n%s", op, typ, data, err, cmp.Diff(before, h.text(t)))
			}
		}
	})
}

// A frame shows the fields it was built from.
func TestFrameRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := anyFrame(t)
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := ParseFrame(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		want, err := references{}.read(node{value: decoded(t, b)}, frameSchema())
		if err != nil {
			t.Fatal(err)
		}
		if shown := showFrame(raw); !want.matches(shown, map[string]any{}) {
			t.Fatalf("built from %s, shows %s", b, shown)
		}
	})
}

func decoded(t *rapid.T, b []byte) any {
	n, err := parseText(b)
	if err != nil {
		t.Fatal(err)
	}
	return n.value
}

func anyFrame(t *rapid.T) map[string]any {
	number := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	f := map[string]any{"eth_src": "fa:16:3e:00:00:01", "eth_dst": "fa:16:3e:00:00:02"}
	if rapid.Bool().Draw(t, "tagged") {
		f["vlan"] = number("vlan", 4095)
	}
	if rapid.IntRange(0, 4).Draw(t, "arp") == 0 {
		return with(f, map[string]any{
			"type": "arp", "op": rapid.SampledFrom([]string{"request", "reply"}).Draw(t, "op"),
			"spa": "192.0.2.1", "tpa": "192.0.2.2", "sha": "fa:16:3e:00:00:03", "tha": "fa:16:3e:00:00:04",
		})
	}
	src, dst := "192.0.2.1", "192.0.2.2"
	f["type"] = "ipv4"
	if rapid.Bool().Draw(t, "v6") {
		f["type"], src, dst = "ipv6", "2001:db8::1", "2001:db8::2"
	}
	f["ip_src"], f["ip_dst"], f["ttl"] = src, dst, rapid.IntRange(1, 255).Draw(t, "ttl")
	inner := map[string]any{"ip_src": dst, "ip_dst": src, "proto": "udp", "sport": 1, "dport": 2}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return with(f, map[string]any{"proto": "icmp", "icmp_id": number("id", 65535)})
	case 1:
		return with(f, map[string]any{"inner": inner, "icmp_code": number("code", 4)})
	case 2:
		if f["type"] == "ipv6" {
			return with(f, map[string]any{
				"icmp_type": rapid.SampledFrom([]int{135, 136}).Draw(t, "nd"), "nd_target": "2001:db8::9", "nd_lladdr": "fa:16:3e:00:00:09",
			})
		}
		return with(f, map[string]any{"dhcp": map[string]any{
			"type": rapid.SampledFrom(dhcpTypes()).Draw(t, "dhcp"), "chaddr": "fa:16:3e:00:00:05", "requested_ip": "192.0.2.9",
			"mtu": number("mtu", 9000), "lease": number("lease", 1<<30), "dns": []string{"192.0.2.53", "192.0.2.54"}, "router": "192.0.2.1",
			"classless_routes": []any{[]string{"203.0.113.0/24", "192.0.2.9"}, []string{"0.0.0.0/0", "192.0.2.1"}}, "tftp_server_name": "boot",
		}})
	case 3:
		if f["type"] == "ipv6" {
			return with(f, map[string]any{"ra": map[string]any{
				"prefixes": []string{"2001:db8:1::/64", "2001:db8:2::/64"}, "mtu": 1400, "managed": rapid.Bool().Draw(t, "managed"), "other": true, "lifetime": 1800,
			}})
		}
	case 4:
		return with(f, map[string]any{"proto": "gre"})
	}
	f["proto"] = rapid.SampledFrom([]string{"tcp", "udp", "sctp", "dccp", "udplite"}).Draw(t, "proto")
	f["frag"] = rapid.SampledFrom([]string{"none", "first", "later"}).Draw(t, "frag")
	if f["frag"] != "later" {
		f["sport"], f["dport"] = number("sport", 65535), number("dport", 65535)
	}
	return f
}

func FuzzTranslate(f *testing.F) {
	f.Add([]byte(`{"steps":[{"op":"create","type":"network","data":{"id":"b0000000-0000-4000-8000-000000000001"}}]}`))
	f.Add([]byte("steps:\n- {op: create, type: port, data: {id: x, fixed_ips: [1], binding:profile: {a: [b]}}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if bounded(b) {
			_ = Translate(t.Context(), strings.NewReader(string(b)), TranslateOptions{Each: true, JSON: true}, discard{})
		}
	})
}

func FuzzTrace(f *testing.F) {
	f.Add([]byte(`{"topology":{"networks":[{"name":"blue"}],"ports":[{"name":"a","network":"blue"}]},"steps":[{"send":{"port":"a","frame":{"type":"arp","eth_dst":"@bcast"}},"expect":[]}]}`))
	f.Add([]byte(`{"scenarios":[{"id":1,"topology":{},"steps":[{"update":{"port":"a"}}]}]}`))
	f.Add([]byte(`{topology: {address_groups: [{name: h, addresses: [192.0.2.0/24]}], security_groups: [{name: g, rules: [{direction: ingress, remote_address_group: h}]}]},
  steps: [{update: {address_group: h, addresses: ["2001:db8::/64"]}}]}`))
	f.Add([]byte(`{topology: {networks: [{name: n}], ports: [{name: a, network: n}, {name: b, network: n}], trunks: [{name: t, port: a, subports: [{port: b, segmentation_id: 5}]}]},
  steps: [{send: {port: a, frame: {type: arp, vlan: 5, spa: 192.0.2.1, tpa: 192.0.2.2}}}, {update: {trunk: t, subports: []}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if bounded(b) {
			_ = Trace(t.Context(), strings.NewReader(string(b)), TraceOptions{EachHost: true}, discard{})
		}
	})
}

// bounded keeps the fuzzer from spending its time on repeats.
func bounded(b []byte) bool { return len(b) < 4096 && !strings.Contains(string(b), "repeat") }

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func FuzzParseFrame(f *testing.F) {
	f.Add([]byte(`{"type":"ipv4","eth_src":"02:00:00:00:00:01","eth_dst":"02:00:00:00:00:02","dhcp":{"type":"discover"}}`))
	f.Add([]byte(`{type: ipv6, eth_src: "02:00:00:00:00:01", ip_src: "fe80::1", ip_dst: "ff02::1", ra: {prefixes: ["2001:db8::/64"]}}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if raw, err := ParseFrame(b); err == nil {
			showFrame(raw)
		}
	})
}

func FuzzShowFrame(f *testing.F) {
	raw, err := ParseFrame([]byte(`{"type":"ipv4","eth_src":"02:00:00:00:00:01","eth_dst":"02:00:00:00:00:02","dhcp":{"type":"ack","dns":["192.0.2.1"]}}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(_ *testing.T, b []byte) { showFrame(b) })
}
