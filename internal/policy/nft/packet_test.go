package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/calico"
	"heddle/internal/policy/calc"
	"heddle/internal/topology/packet"
)

// The lab's addresses, and what becomes of probes.
const (
	w1, w2, w9       = "10.65.0.1", "10.65.0.2", "10.65.0.9"
	w1v6, w2v6, w9v6 = "fd65::1", "fd65::2", "fd65::9"
	net1, net2       = "198.51.100.2", "203.0.113.2"
	net1v6, net2v6   = "2001:db8:1::2", "2001:db8:2::2"
	host1, host2     = "198.51.100.1", "203.0.113.1"
	host1v6          = "2001:db8:1::1"

	forwarded = "forwarded"
	in        = "in"
	sent      = "sent"
	byPolicy  = "by-policy"
	unknown   = "unknown-interface"
	inactive  = "inactive-endpoint"
	missing   = "missing-rules"
	toHost    = "workload-to-host"
	spoofed   = "source"
	loopback  = "loopback"
	hostsOnly = "tunnel-port"
)

// both are the lab's workloads, which a profile opens to everything.
func both() store {
	return store{workloadAt("w1"): workload(1, ""), workloadAt("w2"): workload(2, ""), rulesAt("p"): allowAll}
}

// An interface with a workload's prefix passes what its active endpoint's policy allows, and
// nothing without one.
func TestWorkloadInterfaces(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.expect(
		tcp("w1", w1, net1, 80, unknown),
		tcp("net1", net1, w1, 80, unknown),
		tcp("host", host1, w1, 80, unknown),
		tcp("net1", net1, net2, 80, forwarded), // the rest is none of ours
		tcp("net1", net1, host1, 80, in),
		tcp("host", host1, net1, 80, sent),
	)
	l.apply(both())
	l.expect(
		tcp("w1", w1, net1, 80, forwarded),
		tcp("w1", w1v6, net1v6, 80, forwarded),
		tcp("net1", net1, w1, 80, forwarded),
		tcp("net1", net1v6, w1v6, 80, forwarded),
		tcp("w1", w1, w2, 80, forwarded),
		tcp("w1", w1v6, w2v6, 80, forwarded),
		tcp("host", host1, w1, 80, sent),
		tcp("w9", w9, net1, 80, unknown),
		tcp("w9", w9, host1, 80, unknown),
		tcp("net1", net1, w9, 80, unknown),
		tcp("w1", w1, w9, 80, unknown),
	)
	l.apply(store{workloadAt("w1"): inactiveWorkload(1)})
	l.expect(
		tcp("w1", w1, net1, 80, inactive),
		tcp("w1", w1, host1, 80, inactive),
		tcp("net1", net1, w1, 80, inactive),
		tcp("w2", w2, w1, 80, inactive),
		tcp("host", host1, w1, 80, inactive),
		tcp("w2", w2, net1, 80, forwarded),
	)
	l.apply(store{workloadAt("w1"): ""})
	l.expect(tcp("w1", w1, net1, 80, unknown), tcp("net1", net1, w1, 80, unknown))
}

func inactiveWorkload(n int) string {
	return fmt.Sprintf(`{"state": "inactive", "name": "cali%d", "ipv4_nets": ["10.65.0.%d/32"], "profile_ids": ["p"]}`, n, n)
}

// A rule may name as many prefixes as the largest address group of Neutron has, overlapping or not.
func TestManyPrefixes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	profile := func(last string) string {
		prefixes := []string{`"198.51.96.0/20"`, `"198.51.0.0/16"`, last}
		for i := range 100_000 - len(prefixes) { // every second address: nothing can be merged
			prefixes = append(prefixes, fmt.Sprintf(`"172.%d.%d.%d/32"`, 16+i>>15, i>>7&255, i<<1&255))
		}
		return `{"inbound_rules": [{"ip_version": 4, "src_nets": [` + strings.Join(prefixes, ",") + `]}], "outbound_rules": [{}]}`
	}
	l.apply(store{rulesAt("p"): profile(`"192.0.2.0/24"`)})
	l.expect(tcp("net1", net1, w1, 80, forwarded), tcp("net2", net2, w1, 80, byPolicy))
	l.apply(store{rulesAt("p"): profile(`"203.0.113.2/32"`)})
	l.expect(tcp("net1", net1, w1, 80, forwarded), tcp("net2", net2, w1, 80, forwarded))
}

// Tiers, policies and profiles judge in their order; what no rule decides is refused (spec §6.1 to
// §6.3).
func TestOrder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	port := func(n int, action string) string {
		return fmt.Sprintf(`{"protocol": "tcp", "dst_ports": [%d], "action": "%s"}`, n, action)
	}
	policy := func(order string, inbound string) string {
		return fmt.Sprintf(`{"selector": "w == \"1\"", "order": %s, "inbound_rules": [%s], "outbound_rules": [{}]}`, order, inbound)
	}
	l.expect(tcp("net1", net1, w1, 80, forwarded), tcp("net1", net1, w1, 81, forwarded))

	l.apply(store{policyAt("b"): policy("20", port(80, "deny")+","+port(81, "allow"))})
	l.expect(
		tcp("net1", net1, w1, 80, byPolicy),
		tcp("net1", net1, w1, 81, forwarded),
		tcp("net1", net1, w1, 82, byPolicy), // default deny, though the profile would allow it
		tcp("net1", net1, w2, 80, forwarded),
		tcp("w1", w1, net1, 80, forwarded),
	)
	l.apply(store{policyAt("a"): policy("10", port(80, "allow"))})
	l.expect(tcp("net1", net1, w1, 80, forwarded), tcp("net1", net1, w1, 81, forwarded), tcp("net1", net1, w1, 82, byPolicy))
	l.apply(store{policyAt("a"): policy("30", port(80, "allow"))})
	l.expect(tcp("net1", net1, w1, 80, byPolicy))

	// To the next tier, and from the last one to the profiles.
	l.apply(store{policyAt("a"): policy("10", port(82, "next-tier")+","+port(83, "next-tier")),
		"/calico/v1/policy/tier/late/metadata": `{}`, "/calico/v1/policy/tier/late/policy/x": policy("1", port(83, "deny")+","+port(82, "next-tier"))})
	l.expect(
		tcp("net1", net1, w1, 80, byPolicy),
		tcp("net1", net1, w1, 81, forwarded), // allowed in the first tier: the second is not asked
		tcp("net1", net1, w1, 82, forwarded), // passed by both: the profile allows it
		tcp("net1", net1, w1, 83, byPolicy),
		tcp("net1", net1, w1, 84, byPolicy),
	)
	// A policy changes while it is in force, from passing packets on to not.
	l.apply(store{policyAt("a"): policy("10", port(82, "deny"))})
	l.expect(tcp("net1", net1, w1, 82, byPolicy), tcp("net1", net1, w1, 81, forwarded))

	// Profiles: in order, next-tier is to allow, and missing ones refuse everything where they are.
	l.apply(store{policyAt("a"): "", policyAt("b"): "", "/calico/v1/policy/tier/late/policy/x": "",
		workloadAt("w1"): `{"state": "active", "name": "cali1", "profile_ids": ["q", "r"], "ipv4_nets": ["10.65.0.1/32"]}`,
		rulesAt("q"):     `{"inbound_rules": [` + port(80, "deny") + "," + port(81, "next-tier") + `]}`,
		rulesAt("r"):     `{"inbound_rules": [` + port(80, "allow") + "," + port(82, "allow") + `]}`})
	l.expect(
		tcp("net1", net1, w1, 80, byPolicy),
		tcp("net1", net1, w1, 81, forwarded),
		tcp("net1", net1, w1, 82, forwarded),
		tcp("net1", net1, w1, 83, byPolicy),
		tcp("w1", w1, net1, 80, byPolicy),
	)
	l.apply(store{rulesAt("r"): ""})
	l.expect(tcp("net1", net1, w1, 81, forwarded), tcp("net1", net1, w1, 82, missing))
	l.apply(store{rulesAt("q"): ""})
	l.expect(tcp("net1", net1, w1, 81, missing), tcp("w1", w1, net1, 80, missing))
}

// Each rule has a counter, which other changes leave alone; with too many of them none has.
func TestRuleCounts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	policy := func(rules string) string {
		return `{"selector": "w == \"1\"", "inbound_rules": [` + rules + `], "outbound_rules": [{}]}`
	}
	const two = `{"protocol": "tcp", "dst_ports": [80], "action": "deny"}, {"protocol": "tcp", "dst_ports": [81, 82, "90:99"]}`
	l.apply(store{policyAt("a"): policy(two)})
	counted := func(want string) {
		t.Helper()
		counts, err := l.table.Counts(t.Context())
		must(t, err)
		var got []string
		for _, c := range counts.Rules {
			if c.List.Tier != "" && c.List.Direction == calc.Inbound {
				got = append(got, fmt.Sprintf("%s %d %s: %d", c.List.Name, c.Rule, c.Action, c.Packets))
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("counted %s, want %s", text, want)
		}
	}
	counted("a 1 deny: 0, a 2 allow: 0")
	l.expect(tcp("net1", net1, w1, 80, byPolicy), tcp("net1", net1, w1, 81, forwarded), tcp("net1", net1, w1, 95, forwarded), tcp("net1", net1, w1, 70, byPolicy))
	counted("a 1 deny: 1, a 2 allow: 2")
	l.apply(store{policyAt("b"): policy(`{"protocol": "tcp", "dst_ports": [70]}`)})
	l.expect(tcp("net1", net1, w1, 80, byPolicy), tcp("net1", net1, w1, 70, forwarded))
	counted("a 1 deny: 2, a 2 allow: 2, b 1 allow: 1")
	l.apply(store{policyAt("a"): policy(two + `, {"protocol": "udp"}`)}) // its own rules keep theirs
	counted("a 1 deny: 2, a 2 allow: 2, a 3 allow: 0, b 1 allow: 1")
	l.apply(store{policyAt("a"): ""})
	counted("b 1 allow: 1")
	l.apply(store{policyAt("a"): policy(two + strings.Repeat(`, {"protocol": "udp"}`, 8))})
	counted("")
	l.expect(tcp("net1", net1, w1, 80, byPolicy), tcp("net1", net1, w1, 81, forwarded))
	l.apply(store{policyAt("a"): policy(two)})
	counted("a 1 deny: 0, a 2 allow: 0, b 1 allow: 0")
}

// A rule matches what its criteria say (spec §3.5, §6.4, §6.9).
func TestRules(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	l.apply(store{ // who else there is: endpoints of other hosts
		"/calico/v1/host/other/workload/o/a/endpoint/e": `{"state": "active", "name": "cali1", "ipv4_nets": ["198.51.100.2/32"], "ipv6_nets": ["2001:db8:1::2/128"],
			"profile_ids": ["t"], "labels": {"role": "web"}}`,
		"/calico/v1/policy/profile/t/tags": `["tagged"]`,
	})
	yes := func(p probe) probe { p.want = forwarded; return p }
	no := func(p probe) probe { p.want = byPolicy; return p }
	in4, other4 := tcp("net1", net1, w1, 80, ""), tcp("net2", net2, w1, 80, "")
	in6, other6 := tcp("net1", net1v6, w1v6, 80, ""), tcp("net2", net2v6, w1v6, 80, "")
	ping4, ping6 := icmp("net1", net1, w1, 8, 0, ""), icmp("net1", net1v6, w1v6, 128, 0, "")
	udp4, udp6 := udp("net1", net1, w1, 40000, 80, ""), udp("net1", net1v6, w1v6, 40000, 80, "")
	to := func(p probe, port uint16) probe { p.dport = port; return p }
	from := func(p probe, port uint16) probe { p.sport = port; return p }
	var list string
	for i := range 40 {
		list += fmt.Sprintf(`%d, "%d:%d", `, 1000+10*i, 1003+10*i, 1005+10*i)
	}
	var nets, ports string // more than fits into one netlink attribute
	for i := range 5000 {
		nets += fmt.Sprintf(`"172.%d.%d.%d/31", `, 16+i/4096, i/16%256, i%16*16)
		ports += fmt.Sprintf(`"%d:%d", `, 1+4*i, 2+4*i)
	}
	for _, c := range []struct {
		rule   string
		probes []probe
	}{
		{`{"src_nets": [` + nets + `"198.51.100.2/32"]}`, []probe{yes(in4), no(other4), no(in6)}},
		{`{"!src_nets": [` + nets + `"198.51.100.2/32"]}`, []probe{no(in4), yes(other4), no(in6)}},
		{`{"protocol": "tcp", "dst_ports": [` + ports + `65535]}`, []probe{no(in4), yes(to(in4, 65535)), yes(to(in6, 81)), no(to(in4, 19999))}},
		{`{}`, []probe{yes(in4), yes(in6), yes(ping4), yes(ping6), yes(udp4), yes(udp6)}},
		{`{"ip_version": 4}`, []probe{yes(in4), no(in6)}},
		{`{"ip_version": 6}`, []probe{no(in4), yes(in6)}},
		{`{"protocol": "tcp"}`, []probe{yes(in4), yes(in6), no(udp4), no(udp6), no(ping4)}},
		{`{"protocol": 17}`, []probe{no(in4), yes(udp4), yes(udp6)}},
		{`{"protocol": "sctp"}`, []probe{yes(probe{from: "net1", src: net1, dst: w1, proto: 132, sport: 7, dport: 9}), no(in4)}},
		{`{"protocol": "47"}`, []probe{yes(probe{from: "net1", src: net1, dst: w1, proto: 47}), yes(probe{from: "net1", src: net1v6, dst: w1v6, proto: 47}), no(in4)}},
		{`{"!protocol": "udp"}`, []probe{yes(in4), yes(ping6), no(udp4), no(udp6)}},
		{`{"protocol": "tcp", "!protocol": "tcp"}`, []probe{no(in4), no(udp4)}},
		{`{"src_net": "198.51.100.0/24"}`, []probe{yes(in4), no(other4), no(in6)}},
		{`{"src_net": "198.51.100.99/24"}`, []probe{yes(in4), no(other4)}},
		{`{"src_net": "198.51.100.2"}`, []probe{yes(in4), no(other4)}},
		{`{"src_net": "0.0.0.0/0"}`, []probe{yes(in4), yes(other4), no(in6)}},
		{`{"!src_net": "198.51.100.0/24"}`, []probe{no(in4), yes(other4), no(in6), no(other6)}},
		{`{"!src_net": "0.0.0.0/0"}`, []probe{no(in4), no(other4), no(in6)}},
		{`{"src_net": "2001:db8:1::/48"}`, []probe{no(in4), yes(in6), no(other6)}},
		{`{"src_nets": ["192.0.2.0/24", "198.51.100.0/25", "198.51.100.0/24", "2001:db8:1::/49"]}`, []probe{yes(in4), no(other4), yes(in6), no(other6)}},
		{`{"src_nets": ["128.0.0.0/1", "10.0.0.0/8"]}`, []probe{yes(in4), yes(other4)}},
		{`{"!src_nets": ["198.51.100.0/24", "192.0.2.1/32"]}`, []probe{no(in4), yes(other4), no(in6)}},
		{`{"dst_net": "10.65.0.0/31"}`, []probe{yes(in4)}},
		{`{"dst_net": "10.65.0.2/31"}`, []probe{no(in4)}},
		{`{"src_net": "198.51.100.0/24", "dst_net": "fd65::/16"}`, []probe{no(in4), no(in6)}},
		{`{"src_tag": "tagged"}`, []probe{yes(in4), yes(in6), no(other4), no(other6)}},
		{`{"!src_tag": "tagged"}`, []probe{no(in4), no(in6), yes(other4), yes(other6)}},
		{`{"src_selector": "role == \"web\""}`, []probe{yes(in4), yes(in6), no(other4), no(other6)}},
		{`{"src_selector": "!has(role)"}`, []probe{no(in4), no(other4), yes(tcp("w2", w2, w1, 80, ""))}},
		{`{"!src_selector": "has(role)"}`, []probe{no(in4), yes(other4), yes(tcp("w2", w2, w1, 80, ""))}},
		{`{"src_selector": "role == \"web\"", "!src_tag": "tagged"}`, []probe{no(in4), no(other4)}},
		{`{"dst_selector": "w == \"1\""}`, []probe{yes(in4), yes(in6)}},
		{`{"dst_selector": "w == \"2\""}`, []probe{no(in4), no(in6)}},
		{`{"src_selector": "role == \"web\"", "dst_selector": "w == \"1\"", "protocol": "tcp", "src_ports": ["1:1023"], "dst_ports": [80, 443]}`,
			[]probe{no(in4), yes(from(in4, 1023)), no(to(from(in4, 1023), 81)), yes(from(in6, 1)), no(from(other4, 1023))}},
		{`{"protocol": "tcp", "dst_ports": [80]}`, []probe{yes(in4), yes(in6), no(to(in4, 81)), no(udp4)}},
		{`{"protocol": "tcp", "dst_ports": ["79:80"]}`, []probe{yes(in4), yes(to(in6, 79)), no(to(in4, 81)), no(to(in4, 78))}},
		{`{"protocol": "udp", "dst_ports": [80, "1:5", "5:9", 65535]}`, []probe{yes(udp4), yes(to(udp6, 9)), yes(to(udp4, 65535)), no(to(udp4, 10)), no(in4)}},
		{`{"protocol": "tcp", "!dst_ports": [80, "90:99"]}`, []probe{no(in4), no(to(in4, 95)), yes(to(in4, 81)), no(to(udp4, 81))}},
		{`{"protocol": "tcp", "!dst_ports": ["90:99"]}`, []probe{yes(in4), no(to(in4, 90)), no(to(in6, 99))}},
		{`{"protocol": "tcp", "!src_ports": [7]}`, []probe{yes(in4), no(from(in4, 7))}},
		{`{"protocol": "tcp", "dst_ports": [` + list + `2000], "!dst_ports": [1010]}`,
			[]probe{yes(to(in4, 1000)), no(to(in4, 1001)), yes(to(in4, 1394)), yes(to(in6, 2000)), no(to(in4, 1010)), no(in4)}},
		{`{"protocol": "icmp"}`, []probe{yes(ping4), no(ping6), no(in4)}},
		{`{"protocol": "icmpv6"}`, []probe{no(ping4), yes(ping6), no(in6)}},
		{`{"protocol": "icmp", "icmp_type": 8}`, []probe{yes(ping4), no(icmp("net1", net1, w1, 13, 0, ""))}},
		{`{"protocol": "icmp", "icmp_type": 8, "icmp_code": 1}`, []probe{no(ping4), yes(icmp("net1", net1, w1, 8, 1, ""))}},
		{`{"protocol": "icmpv6", "icmp_type": 128, "icmp_code": 0}`, []probe{yes(ping6), no(icmp("net1", net1v6, w1v6, 128, 1, ""))}},
		{`{"protocol": "icmp", "!icmp_type": 8}`, []probe{no(ping4), yes(icmp("net1", net1, w1, 13, 0, ""))}},
		{`{"protocol": "icmp", "!icmp_type": 8, "!icmp_code": 0}`, []probe{no(ping4), yes(icmp("net1", net1, w1, 8, 1, "")), yes(icmp("net1", net1, w1, 13, 0, ""))}},
		{`{"protocol": "icmpv6", "!icmp_type": 128, "!icmp_code": 0}`, []probe{no(ping6), yes(icmp("net1", net1v6, w1v6, 128, 1, "")), no(ping4)}},
		{`{"action": "log", "log_prefix": "x"}, {"protocol": "tcp", "log_prefix": "a prefix that is much too long for it"}`, []probe{yes(in4), no(udp4)}},
	} {
		l.apply(store{policyAt("r"): `{"selector": "w == \"1\"", "inbound_rules": [` + c.rule + `], "outbound_rules": [{}]}`})
		for _, p := range c.probes {
			if got := l.send(p); got != p.want {
				t.Errorf("%s: %s: %s, want %s", c.rule, p, got, p.want)
			}
		}
	}
	// Members come and go while the rule stays.
	l.apply(store{policyAt("r"): `{"selector": "w == \"1\"", "inbound_rules": [{"src_selector": "role == \"web\""}], "outbound_rules": [{}]}`})
	l.expect(yes(in4), no(other4), yes(in6))
	l.apply(store{"/calico/v1/host/other/workload/o/a/endpoint/e": `{"state": "active", "name": "cali1", "ipv4_nets": ["203.0.113.2/32"], "labels": {"role": "web"}}`})
	l.expect(no(in4), yes(other4), no(in6))
}

// A workload sends only under its own addresses and MAC (spec §7.5).
func TestSources(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	l.apply(store{workloadAt("w1"): workload(1, `"ipv4_nat": [{"int_ip": "10.65.0.1", "ext_ip": "192.0.2.7"}], `)})
	l.host.MustIP(t, "route add 192.0.2.7/32 dev cali1")
	l.expect(
		tcp("w1", w1, net1, 80, forwarded),
		tcp("w1", w2, net1, 80, spoofed),
		tcp("w1", "192.0.2.7", net1, 80, spoofed), // its floating address is routed to it, and still not its own
		tcp("w1", w2v6, net1v6, 80, spoofed),
		tcp("w1", w1v6, net1v6, 80, forwarded),
		tcp("w1", host1, net1, 80, spoofed),
		udp("w1", "0.0.0.0", net1, 68, 68, spoofed),
		probe{from: "w1", src: w1, dst: net1, proto: 6, sport: 1, dport: 80, mac: "02:00:00:00:02:01", want: spoofed},
		probe{from: "w1", src: w1v6, dst: net1v6, proto: 6, sport: 1, dport: 80, mac: "02:00:00:00:02:01", want: spoofed},
		icmp("w1", "fe80::1:1", "fe80::1", 135, 0, in),
		icmp("w1", "::", "ff02::1", 135, 0, in),
		udp("w1", "::", "ff02::1:2", 546, 547, spoofed),
	)
	// IPv6 must be routed back to where it comes from.
	l.host.MustIP(t, "route del fd65::1/128 dev cali1", "route add fd65::1/128 dev eth1")
	l.expect(tcp("w1", w1v6, net1v6, 80, spoofed), tcp("w1", w1, net1, 80, forwarded))
	// Without a MAC none is asked for.
	l.apply(store{workloadAt("w1"): `{"state": "active", "name": "cali1", "profile_ids": ["p"], "ipv4_nets": ["10.65.0.1/32", "10.65.0.8/32"]}`})
	l.expect(
		probe{from: "w1", src: w1, dst: net1, proto: 6, sport: 2, dport: 80, mac: "02:00:00:00:02:01", want: forwarded},
		tcp("w1", "10.65.0.8", net1, 80, forwarded),
		tcp("w1", "10.65.0.9", net1, 80, spoofed),
		tcp("w1", w1v6, net1v6, 80, spoofed),
	)
}

// What a workload sends to its own host (spec §7.2, §7.3).
func TestToHost(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	outbound := `{"outbound_rules": [{"protocol": "tcp", "dst_ports": [80]}]}`
	l.apply(both())
	l.apply(store{rulesAt("p"): outbound})
	always := []probe{
		icmp("w1", w1v6, host1v6, 135, 0, in), icmp("w1", w1v6, host1v6, 136, 0, in), icmp("w1", "fe80::1:1", "ff02::2", 133, 0, in),
	}
	l.expect(always...)
	l.expect(
		tcp("w1", w1, host1, 80, toHost), tcp("w1", w1, host1, 81, toHost), icmp("w1", w1v6, host1v6, 128, 0, toHost),
		udp("w1", w1, host1, 68, 67, toHost), udp("w1", w1, host1, 4000, 53, toHost),
	)
	for _, action := range []HostAction{ToHostReturn, ToHostAccept} {
		s := usual()
		s.ToHost = action
		must(t, l.table.Configure(s))
		l.commit()
		l.expect(always...)
		l.expect(tcp("w1", w1, host1, 80, in), tcp("w1", w1v6, host1v6, 80, in), tcp("w1", w1, host1, 81, byPolicy), tcp("w1", w2, host1, 80, spoofed),
			tcp("w1", w1, "127.0.0.1", 80, loopback)) // route_localnet is on
	}
	s := usual()
	s.OpenStack, s.Metadata = true, netip.MustParseAddrPort("127.0.0.1:8775")
	must(t, l.table.Configure(s))
	l.commit()
	l.expect(always...)
	l.expect(
		udp("w1", "0.0.0.0", "255.255.255.255", 68, 67, in), udp("w1", w1, host1, 68, 67, in), udp("w1", w2, host1, 68, 67, spoofed),
		udp("w1", "fe80::1:1", "fe80::1", 546, 547, in), udp("w1", w1, host1, 5000, 53, in), tcp("w1", w1, host1, 53, toHost),
		tcp("w1", w1, "169.254.169.254", 80, in), tcp("w1", w1, "169.254.169.254", 81, byPolicy), // not the host's: forwarded
		tcp("w1", w1, host1, 80, toHost), udp("w1", w1, "127.0.0.53", 5000, 53, loopback), tcp("w1", w1, "127.0.0.1", 8775, loopback),
	)
}

// No workload may send the packets of hosts, to this host, through it to another, or to any:
// whatever policy and settings allow, and also within an earlier connection.
func TestTunnelsOfWorkloads(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := usual()
	s.ToHost, s.OnDrop = ToHostAccept, Accept
	l.start(s)
	l.apply(both())
	l.expect(
		udp("w1", w1, host1, 5000, OverlayPort, hostsOnly),
		udp("w1", w1, host2, OverlayPort, OverlayPort, hostsOnly),
		udp("w1", w1v6, host1v6, 5000, OverlayPort, hostsOnly),
		udp("w1", w1, net1, 5000, OverlayPort, hostsOnly), // may be a host that is not known yet
		udp("w1", w1v6, net1v6, 5000, OverlayPort, hostsOnly),
		udp("w1", w1, w2, 5000, OverlayPort, hostsOnly),
		udp("w1", w2, net1, 5000, OverlayPort, hostsOnly), // whoever it says it is
		udp("w9", w9, net1, 5000, OverlayPort, hostsOnly),
		tcp("w1", w1, net1, OverlayPort, forwarded), // only UDP
		udp("w1", w1, net1, OverlayPort, 5000, forwarded),
		udp("net1", net1, host1, 5000, OverlayPort, in), // hosts among themselves
		udp("host", host1, net1, 5000, OverlayPort, sent),
		udp("net1", net1, w1, 5000, OverlayPort, forwarded),
		// Without pools that use them, the ports of their tunnels are like any other.
		udp("w1", w1, net1, 5000, 4789, forwarded),
	)
	// An answer within a connection, which the rules for connections would let pass.
	l.expect(udp("net1", net1, w1, OverlayPort, 5001, forwarded), udp("w1", w1, net1, 5001, OverlayPort, hostsOnly))

	l.around.VXLAN = &VXLAN{Port: 4789, Peers: []netip.Addr{netip.MustParseAddr(net1)}}
	l.table.Surround(l.around)
	l.commit()
	l.expect(
		udp("w1", w1, net1, 5000, 4789, hostsOnly), udp("w1", w1, host1, 5000, 4789, hostsOnly), udp("w1", w1, net1, 5000, OverlayPort, hostsOnly),
		udp("net1", net1, host1, 5000, 4789, in), udp("w1", w1, net1, 5000, 4790, forwarded),
	)
}

// A host endpoint's policy governs what its interface carries, but for fail-safe ports and
// workloads (spec §7.1, §7.4).
func TestHostEndpoints(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	eth0 := calico.HostEndpointKey{Host: labHost, Endpoint: "eth0"}
	eth1 := calico.HostEndpointKey{Host: labHost, Endpoint: "eth1"}
	l.around.HostInterfaces = map[string]calico.HostEndpointKey{"eth0": eth0}
	l.table.Surround(l.around)
	l.apply(store{hostAt("eth0"): `{"name": "eth0", "labels": {"h": "0"}}`})
	nothing := []probe{
		tcp("net1", net1, host1, 80, byPolicy), tcp("host", host1, net1, 80, byPolicy), tcp("net1", net1, net2, 80, byPolicy),
		tcp("net2", net2, net1, 80, byPolicy), icmp("net1", net1, host1, 8, 0, byPolicy),
	}
	failsafe := []probe{
		tcp("net1", net1, host1, 22, in), tcp("net1", net1v6, host1v6, 22, in), tcp("host", host1, net1, 2379, sent), tcp("host", host1, net1, 22, byPolicy),
		tcp("net1", net1, host1, 23, in), tcp("net1", "198.51.100.77", host1, 23, byPolicy), udp("net1", net1, host1, 1, 22, byPolicy),
		tcp("net1", net1, net2, 22, byPolicy), // of this host alone
		icmp("net1", net1v6, host1v6, 135, 0, in),
	}
	others := []probe{
		tcp("net2", net2, host2, 80, in), tcp("host", host2, net2, 80, sent), // eth1 has no endpoint
		tcp("net1", net1, w1, 80, forwarded), tcp("w1", w1, net1, 80, forwarded), // workloads' own policy
	}
	l.expect(nothing...)
	l.expect(failsafe...)
	l.expect(others...)

	l.apply(store{policyAt("h"): `{"selector": "h == \"0\"",
		"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}, {"protocol": "tcp", "dst_ports": [22], "action": "deny"}],
		"outbound_rules": [{"protocol": "tcp", "dst_ports": [81]}, {"action": "deny"}]}`})
	l.expect(failsafe...)
	l.expect(others...)
	l.expect(
		tcp("net1", net1, host1, 80, in), tcp("net1", net1, host1, 81, byPolicy), tcp("host", host1, net1, 81, sent), tcp("host", host1, net1, 80, byPolicy),
		tcp("net1", net1, net2, 80, forwarded), tcp("net1", net1, net2, 81, byPolicy), tcp("net2", net2, net1, 81, forwarded), tcp("net2", net2, net1, 80, byPolicy),
	)
	// With an endpoint on the other side as well, both judge.
	l.around.HostInterfaces = map[string]calico.HostEndpointKey{"eth0": eth0, "eth1": eth1}
	l.table.Surround(l.around)
	l.apply(store{hostAt("eth1"): `{"expected_ipv4_addrs": ["203.0.113.1"], "profile_ids": ["q"]}`, rulesAt("q"): `{"outbound_rules": [{"protocol": "tcp", "dst_ports": [80, 82]}]}`})
	l.expect(
		tcp("net1", net1, net2, 80, forwarded), tcp("net1", net1, net2, 82, byPolicy), tcp("net2", net2, net1, 81, byPolicy),
		tcp("net2", net2, host2, 80, byPolicy), tcp("host", host2, net2, 82, sent),
	)
	l.around.HostInterfaces = nil
	l.table.Surround(l.around)
	l.commit()
	l.expect(tcp("net1", net1, host1, 81, in), tcp("net1", net1, net2, 82, forwarded))
}

// Untracked and pre-DNAT policy come before all other (spec §6.6, §6.7).
func TestEarlyPolicy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	l.around.HostInterfaces = map[string]calico.HostEndpointKey{"eth0": {Host: labHost, Endpoint: "eth0"}}
	l.table.Surround(l.around)
	l.apply(store{hostAt("eth0"): `{"name": "eth0", "labels": {"h": "0"}, "profile_ids": ["p"]}`, rulesAt("p"): `{"outbound_rules": [{}], "inbound_rules": [
		{"protocol": "tcp", "dst_ports": [80, 443]}]}`})
	l.expect(tcp("net1", net1, host1, 80, in), tcp("net1", net1, host1, 81, byPolicy), tcp("net1", net1, w1, 80, forwarded))

	l.apply(store{policyAt("u"): `{"selector": "h == \"0\"", "untracked": true,
		"inbound_rules": [{"protocol": "tcp", "dst_ports": [81]}, {"protocol": "tcp", "dst_ports": [80, 22], "action": "deny"}, {"protocol": "tcp", "dst_ports": [82], "action": "next-tier"}],
		"outbound_rules": [{"protocol": "udp", "action": "deny"}]}`,
		"/calico/v1/policy/tier/late/metadata": `{}`,
		"/calico/v1/policy/tier/late/policy/x": `{"selector": "h == \"0\"", "untracked": true, "inbound_rules": [{"protocol": "tcp", "dst_ports": [82]}], "outbound_rules": []}`})
	untracked := []probe{
		tcp("net1", net1, host1, 81, in),         // allowed, and the profile is not asked
		tcp("net1", net1, host1, 80, byPolicy),   // though the profile would
		tcp("net1", net1, host1, 22, in),         // fail-safe
		tcp("net1", net1, host1, 443, in),        // not decided here: the profile allows it
		tcp("net1", net1, host1, 83, byPolicy),   // nor here: nothing allows it
		tcp("net1", net1, host1, 82, in),         // by the next tier
		tcp("net1", net1, w1, 80, byPolicy),      // also what is forwarded
		udp("host", host1, net1, 5, 6, byPolicy), // also what leaves
		tcp("host", host1, net1, 80, sent),
		{from: "net1", src: net1, dst: host1, proto: 6, sport: 2379, dport: 80, flags: packet.TCPAck, want: in}, // an answer from a fail-safe port goes on
	}
	l.expect(untracked...)
	if out, err := l.host.Output(t.Context(), "conntrack", "-L", "-p", "tcp", "--orig-port-dst", "81"); err != nil {
		t.Fatal(err)
	} else if got := len(out) > 0 && out[0] == 't'; got {
		t.Errorf("packets of untracked policy are tracked:\n%s", out)
	}

	l.apply(store{policyAt("d"): `{"selector": "h == \"0\"", "pre_dnat": true, "inbound_rules": [
		{"protocol": "tcp", "dst_ports": [90]}, {"protocol": "tcp", "dst_net": "192.0.2.7/32", "dst_ports": [443], "action": "deny"}]}`,
		workloadAt("w1"): workload(1, `"ipv4_nat": [{"int_ip": "10.65.0.1", "ext_ip": "192.0.2.7"}], `)})
	l.expect(untracked...)
	l.expect(
		tcp("net1", net1, host1, 90, in),              // the profile is not asked
		tcp("net1", net1, "192.0.2.7", 443, byPolicy), // as it was on the wire
		tcp("net1", net1, w1, 443, forwarded),
		tcp("net1", net1, "192.0.2.7", 90, byPolicy), // a workload's own policy still judges
		tcp("w2", w2, "192.0.2.7", 443, forwarded),   // from a workload it is not asked
	)
	l.apply(store{policyAt("d"): "", policyAt("u"): "", "/calico/v1/policy/tier/late/policy/x": ""})
	l.expect(tcp("net1", net1, host1, 80, in), tcp("net1", net1, host1, 90, byPolicy), tcp("net1", net1, "192.0.2.7", 443, forwarded))
}
