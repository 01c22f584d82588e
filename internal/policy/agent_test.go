package policy

import (
	"strings"
	"testing"
	"time"
)

// open are profiles that let everything through.
const open = `{"inbound_rules": [{}], "outbound_rules": [{}]}`

// TestEndpoint: an endpoint and a profile in etcd let packets through, and no others; everything
// that an interface is to have is there, whether it comes before its endpoint or after.
func TestEndpoint(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	l.put("/calico/v1/Ready", "true",
		"/calico/v1/policy/profile/web/rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{}]}`)
	l.start()
	a := l.machine(1)
	listen(t, a.Namespace, 80)
	listen(t, a.Namespace, 81)
	l.mustNotReach(l.outside, a.v4, 80)
	l.put(a.key(), a.endpoint("{}", `["web"]`))
	l.mustReach(l.outside, a.v4, 80)
	l.mustReach(l.outside, a.v6, 80)
	l.mustNotReach(l.outside, a.v4, 81)
	l.mustNotReach(l.outside, a.v6, 81)
	refused := 0.0
	for _, v := range l.agent.Metrics() {
		if v.Name == "heddle_policy_refused_packets_total" && v.Label("reason") == "by-policy" {
			refused = v.Value
		}
	}
	if refused == 0 {
		t.Error("no metric tells of the packets that policy has refused")
	}

	b := &machine{Namespace: l.MustNamespace(t, "w2"), lab: l, number: 2, v4: "10.65.0.2", v6: "2001:db8:65::2"}
	l.put(b.key(), b.endpoint("{}", `["web"]`))
	b.plug()
	listen(t, b.Namespace, 80)
	l.mustReach(a.Namespace, b.v4, 80)
	l.mustReach(a.Namespace, b.v6, 80)
	l.mustReach(b.Namespace, a.v4, 80)
	l.mustNotReach(b.Namespace, a.v4, 81)

	text := l.text()
	for _, want := range []string{"route 10.65.0.1/32 link cali1\n", "route 2001:db8:65::1/128 link cali1\n", "route 10.65.0.2/32 link cali2\n",
		"neighbour 10.65.0.1 link cali1 mac 02:00:00:00:00:01\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the host lacks %q:\n%s", want, text)
		}
	}
	l.put(a.key(), "")
	l.mustNotReach(l.outside, a.v4, 80)
	l.wait("the routes to go", func() bool {
		return !strings.Contains(l.text(), "cali1\n  route") && !hasRoute(l.text(), "10.65.0.1/32", "cali1")
	})
	l.mustReach(l.outside, b.v4, 80)
}

// TestLabelChange: a label that changes takes effect on new connections under traffic, and only
// where it is meant.
func TestLabelChange(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a, b, c := l.machine(1), l.machine(2), l.machine(3)
	listen(t, a.Namespace, 80)
	l.put("/calico/v1/Ready", "true",
		"/calico/v1/policy/profile/open/rules", open,
		"/calico/v1/policy/tier/default/policy/web", `{"selector": "role == 'server'", "inbound_rules": [{"src_selector": "role == 'client'"}], "outbound_rules": []}`,
		a.key(), a.endpoint(`{"role": "server"}`, `["open"]`), b.key(), b.endpoint(`{"role": "client"}`, `["open"]`), c.key(), c.endpoint(`{}`, `["open"]`))
	l.start()
	l.mustReach(b.Namespace, a.v4, 80)
	l.mustReach(b.Namespace, a.v6, 80)
	l.mustNotReach(c.Namespace, a.v4, 80)
	l.put(c.key(), c.endpoint(`{"role": "client"}`, `["open"]`), b.key(), b.endpoint(`{}`, `["open"]`))
	l.mustReach(c.Namespace, a.v4, 80)
	l.mustNotReach(b.Namespace, a.v4, 80)
	l.put(a.key(), a.endpoint(`{"role": "none"}`, `["open"]`))
	l.mustReach(b.Namespace, a.v4, 80)
}

// TestRestart: a stream goes on while the agent stops, while there is none, and while another
// starts; stale rules of an earlier agent go then.
func TestRestart(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a, b := l.machine(1), l.machine(2)
	listen(t, a.Namespace, 80)
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open, a.key(), a.endpoint("{}", `["open"]`), b.key(), b.endpoint("{}", `["open"]`))
	l.start()
	l.mustReach(b.Namespace, a.v4, 80)
	c, err := dial(b.Namespace, a.v4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	goesOn := func(when string) {
		t.Helper()
		if err := exchange(c, 100000, 2*time.Second); err != nil {
			t.Errorf("%s: the stream broke: %v", when, err)
		}
	}
	goesOn("at first")
	l.stop()
	goesOn("without an agent")
	l.run()
	for ready := false; !ready; {
		goesOn("while an agent starts")
		select {
		case <-l.agent.Ready():
			ready = true
		default:
		}
	}
	goesOn("with another agent")
	l.stop()
	l.put(a.key(), "")
	l.start()
	l.wait("what has left meanwhile to go", func() bool { return !hasRoute(l.text(), "10.65.0.1/32", "cali1") })
	if exchange(c, 10, short) == nil {
		t.Error("a stream to an endpoint that left while there was no agent goes on")
	}
}

// TestGateways: the host answers for whatever gateway a workload uses: for any IPv4 address by
// proxy ARP, for the IPv6 gateway of its endpoint by proxy neighbour discovery.
func TestGateways(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a := l.machine(1)
	l.host.MustIP(t, "addr del fe80::1/64 dev cali1")
	a.MustIP(t, "route del default", "route del default via fe80::1 dev eth0", "route add 10.65.0.254 dev eth0", "route add default via 10.65.0.254 dev eth0",
		"route add 2001:db8:65::fffe dev eth0", "route add default via 2001:db8:65::fffe dev eth0")
	listen(t, l.outside, 80)
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open, a.key(), a.endpoint("{}", `["open"]`))
	l.start()
	l.mustReach(a.Namespace, "198.51.100.254", 80)
	if reaches(a.Namespace, "2001:db8:1::254", 80) {
		t.Error("somebody answers for an IPv6 gateway that the endpoint does not name")
	}
	l.put(a.key(), strings.Replace(a.endpoint("{}", `["open"]`), `"labels"`, `"ipv6_gateway": "2001:db8:65::fffe", "labels"`, 1))
	l.mustReach(a.Namespace, "2001:db8:1::254", 80)
}

// TestSettingsAreApplied: settings of the datastore are in force as soon as they are written; a
// host's own go first.
func TestSettingsAreApplied(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a := l.machine(1)
	listen(t, l.host, 80)
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open, a.key(), a.endpoint("{}", `["open"]`))
	l.start()
	l.mustReach(l.outside, "198.51.100.1", 80)
	l.mustNotReach(a.Namespace, "198.51.100.1", 80)
	l.put("/calico/v1/config/DefaultEndpointToHostAction", "ACCEPT")
	l.mustReach(a.Namespace, "198.51.100.1", 80)
	l.put("/calico/v1/host/h1/config/DefaultEndpointToHostAction", "DROP")
	l.mustNotReach(a.Namespace, "198.51.100.1", 80)
	l.put("/calico/v1/host/h1/config/DefaultEndpointToHostAction", "", "/calico/v1/host/h2/config/DefaultEndpointToHostAction", "DROP")
	l.mustReach(a.Namespace, "198.51.100.1", 80)
}
