package policy

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/backend"
)

// TestReadyGate: without Ready nothing is touched and the agent says what it waits for; when Ready
// goes away again, everything stays as it is and changes wait.
func TestReadyGate(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a := l.machine(1)
	listen(t, a.Namespace, 80)
	before := l.text()
	l.put("/calico/v1/policy/profile/open/rules", open, a.key(), a.endpoint("{}", `["open"]`), "/calico/v1/Ready", "TRUE")
	l.run()
	l.wait("the agent to say what it waits for", func() bool { return strings.Contains(l.log.String(), "/calico/v1/Ready is not") })
	if rules := l.nft("list", "ruleset"); rules != "" || l.text() != before {
		t.Errorf("an agent that waits has touched the kernel:\n%s%s", rules, l.text())
	}
	l.put("/calico/v1/Ready", "true")
	l.mustReach(l.outside, a.v4, 80)
	<-l.agent.Ready()

	l.put("/calico/v1/Ready", "")
	l.wait("the agent to wait again", func() bool { return l.metric("heddle_policy_waiting") == 1 })
	l.put("/calico/v1/policy/profile/open/rules", `{"inbound_rules": [{"action": "deny"}]}`, "/calico/v1/config/LogPrefix", "x")
	l.wait("the change to be known", func() bool { return l.metric("heddle_policy_revision") >= float64(l.revision()) })
	if !reaches(l.outside, a.v4, 80) {
		t.Error("a change was applied while the agent was to wait")
	}
	l.put("/calico/v1/Ready", "true")
	l.mustNotReach(l.outside, a.v4, 80)
}

func (l *lab) revision() int64 {
	l.t.Helper()
	rev, err := l.st.Revision(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return rev
}

// metric is one of the agent's figures, -1 when it has none yet.
func (l *lab) metric(name string) float64 {
	for _, v := range l.agent.Metrics() {
		if v.Name == name {
			return v.Value
		}
	}
	return -1
}

// TestBadObjects: unreadable objects count as absent or close traffic, are named in the log, and
// affect no others.
func TestBadObjects(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a, b := l.machine(1), l.machine(2)
	listen(t, a.Namespace, 80)
	listen(t, b.Namespace, 80)
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open,
		a.key(), a.endpoint(`{"role": "a"}`, `["open"]`), b.key(), b.endpoint("{}", `["open"]`),
		"/calico/v1/ipam/v4/pool/10.0.0.0", "{}", "/calico/v1/ipam/v4/pool/10.66.0.0-16", `{"cidr": 7}`, "/calico/v1/host/h2/bird_ip", "nobody",
		"/calico/v1/host/h1/workload/o/w9/endpoint/e", `{"state": "act`, "/calico/v1/policy/profile/other/rules", "[]", "/calico/v1//x", "y")
	l.start()
	l.mustReach(l.outside, a.v4, 80)
	l.mustReach(l.outside, b.v4, 80)
	for _, key := range []string{"/calico/v1/ipam/v4/pool/10.66.0.0-16", "/calico/v1/host/h2/bird_ip", "/calico/v1/host/h1/workload/o/w9/endpoint/e", "/calico/v1/policy/profile/other/rules"} {
		if !strings.Contains(l.log.String(), key) {
			t.Errorf("the log does not name %s", key)
		}
	}
	if got := l.metric("heddle_policy_unreadable_objects"); got != 4 {
		t.Errorf("%v unreadable objects, want 4", got)
	}

	// A policy that cannot be read closes what it selects.
	l.put("/calico/v1/policy/tier/default/policy/p", `{"selector": "role == 'a'", "inbound_rules": [{"action": "perhaps"}], "outbound_rules": []}`)
	l.mustNotReach(l.outside, a.v4, 80)
	l.mustReach(l.outside, b.v4, 80)
	l.put("/calico/v1/policy/tier/default/policy/p", "")
	l.mustReach(l.outside, a.v4, 80)

	// An endpoint that can no longer be read loses its traffic, and a profile too.
	l.put(a.key(), `{"state": "active"}`)
	l.mustNotReach(l.outside, a.v4, 80)
	l.put("/calico/v1/policy/profile/open/rules", "nonsense")
	l.mustNotReach(l.outside, b.v4, 80)
	l.put("/calico/v1/policy/profile/open/rules", open, a.key(), a.endpoint("{}", `["open"]`))
	l.mustReach(l.outside, a.v4, 80)
	l.mustReach(l.outside, b.v4, 80)
}

// TestBadSetting: a setting whose default could open traffic makes the agent hold still; others
// fall back.
func TestBadSetting(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a := l.machine(1)
	listen(t, a.Namespace, 80)
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open, a.key(), a.endpoint("{}", `["open"]`),
		"/calico/v1/config/IpInIpMtu", "wide", "/calico/v1/config/Colour", "red", "/calico/v1/host/h1/config/marker", "x")
	l.start()
	l.mustReach(l.outside, a.v4, 80)
	for _, want := range []string{"ipinipmtu", "colour"} {
		if !strings.Contains(l.log.String(), want) {
			t.Errorf("the log does not name %s", want)
		}
	}
	l.put("/calico/v1/config/InterfacePrefix", "tap,,")
	l.wait("the agent to wait", func() bool { return l.metric("heddle_policy_waiting") == 1 })
	l.mustReach(l.outside, a.v4, 80)
	l.put("/calico/v1/config/InterfacePrefix", "tap,cali")
	l.wait("the agent to go on", func() bool { return l.metric("heddle_policy_waiting") == 0 })
	l.mustReach(l.outside, a.v4, 80)
	l.put("/calico/v1/config/InterfacePrefix", "tap")
	l.wait("the endpoint to be refused", func() bool { return l.metric("heddle_policy_refused_endpoints") == 1 })

	o := l.options
	o.Environment = map[string]string{"FAILSAFEINBOUNDHOSTPORTS": "ssh"}
	if err := New(o).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "failsafeinboundhostports") {
		t.Errorf("a bad setting of this host: %v", err)
	}
}

// TestMend: changes by other programs to our rules, routes, neighbours and parameters are undone.
func TestMend(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a := l.machine(1)
	listen(t, a.Namespace, 80)
	listen(t, a.Namespace, 81)
	l.put("/calico/v1/Ready", "true", "/calico/v1/config/RouteRefreshInterval", "0.2",
		"/calico/v1/policy/profile/web/rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}]}`, a.key(), a.endpoint("{}", `["web"]`))
	l.start()
	l.mustReach(l.outside, a.v4, 80)
	rules := func() string {
		lines := strings.Split(l.nft("-s", "list", "ruleset"), "\n") // without what counters have counted
		slices.Sort(lines)                                           // tables made anew are in another order
		return strings.Join(lines, "\n")
	}
	want := rules()
	for what, do := range map[string]func(){
		"flush of the table":    func() { l.nft("flush", "table", "inet", "heddle") },
		"deletion of the table": func() { l.nft("delete", "table", "inet", "heddle") },
	} {
		do()
		l.wait(what+" to be mended", func() bool { return rules() == want })
	}
	l.mustNotReach(l.outside, a.v4, 81)
	text := l.text()
	for _, do := range []string{"route del 10.65.0.1/32 dev cali1", "route del 2001:db8:65::1/128 dev cali1", "neigh del 10.65.0.1 dev cali1",
		"neigh replace 10.65.0.1 dev cali1 lladdr 02:00:00:00:00:99 nud permanent", "route replace 10.65.0.1/32 dev eth0"} {
		l.host.MustIP(t, do)
		l.wait(do+" to be undone", func() bool { return textOf(l.text()) == textOf(text) })
	}
	for _, name := range []string{"net/ipv4/conf/cali1/proxy_arp", "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := l.host.Sysctl(name, "0"); err != nil {
			t.Fatal(err)
		}
		l.wait(name+" to be set again", func() bool {
			out, err := l.host.Output(t.Context(), "cat", "/proc/sys/"+name)
			return err == nil && strings.TrimSpace(out) == "1"
		})
	}
	l.host.MustIP(t, "link set cali1 down", "link set cali1 up", "addr add fe80::1/64 dev cali1 nodad")
	l.mustReach(l.outside, a.v4, 80)
	l.mustReach(l.outside, a.v6, 80)
}

// textOf are the routes and IPv4 neighbours of workloads in a host's text.
func textOf(text string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "route 10.65.") || strings.HasPrefix(line, "route 2001:db8:65:") || strings.HasPrefix(line, "neighbour 10.65.") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// TestInterfaceReturns: an interface that is made again gets everything again.
func TestInterfaceReturns(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a := l.machine(1)
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open, a.key(), a.endpoint("{}", `["open"]`))
	l.start()
	listen(t, a.Namespace, 80)
	l.mustReach(l.outside, a.v4, 80)
	for range 3 {
		l.host.MustIP(t, "link del cali1")
		l.mustNotReach(l.outside, a.v4, 80)
		a.plug()
		l.mustReach(l.outside, a.v4, 80)
	}
	// The same endpoint on an interface of another name.
	l.host.MustIP(t, "link set cali1 down", "link set cali1 name cali77", "link set cali77 up", "addr add fe80::1/64 dev cali77 nodad")
	l.put(a.key(), strings.ReplaceAll(a.endpoint("{}", `["open"]`), "cali1", "cali77"))
	l.mustReach(l.outside, a.v4, 80)
	l.mustReach(l.outside, a.v6, 80)
}

// TestStoreAway: enforcement goes on while etcd is away, also for an agent that was started
// meanwhile, and what was missed is caught up with; so is everything when another etcd answers
// instead.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	nl := netlab.ForTest(t)
	address := freeAddress(t)
	serve := func(dir string) *backend.Etcd {
		t.Helper()
		st, err := backend.Open(context.Background(), backend.Options{Embedded: &backend.Embedded{DataDir: dir, Listen: address, Tick: 10 * time.Millisecond, NoFsync: true}})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	dir := t.TempDir()
	server := serve(dir)
	defer func() { server.Close() }()
	st, err := backend.Open(t.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{"http://" + address}, SkipLimits: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	l := buildLab(t, nl, st)
	a, b := l.machine(1), l.machine(2)
	listen(t, a.Namespace, 80)
	listen(t, a.Namespace, 81)
	web := func(port string) string {
		return `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [` + port + `]}], "outbound_rules": [{}]}`
	}
	all := []string{"/calico/v1/Ready", "true", "/calico/v1/policy/profile/web/rules", web("80"), a.key(), a.endpoint("{}", `["web"]`),
		b.key(), b.endpoint("{}", `["web"]`), "/calico/v1/config/EndpointReportingEnabled", "true", "/calico/v1/config/EndpointReportingDelaySecs", "0.05"}
	told := func() bool {
		return l.value("/calico/felix/v1/host/h1/status") != "" && l.value("/calico/felix/v1/host/h1/workload/o/w1/endpoint/e") == `{"status":"up"}`
	}
	l.put(all...)
	l.start()
	l.mustReach(b.Namespace, a.v4, 80)
	l.wait("statuses to be told", told)
	server.Close()
	holds := func(when string) {
		t.Helper()
		if !reaches(b.Namespace, a.v4, 80) || reaches(b.Namespace, a.v4, 81) {
			t.Errorf("%s: policy is not what it was", when)
		}
	}
	holds("without the store")
	l.host.MustIP(t, "route del 10.65.0.1/32 dev cali1")
	l.wait("the route to be put back without the store", func() bool { return hasRoute(l.text(), "10.65.0.1/32", "cali1") })
	l.stop()
	l.run()
	holds("with an agent that has no store")
	server = serve(dir)
	if _, err := server.Commit(t.Context(), nil, []store.Op{{Key: "/calico/v1/policy/profile/web/rules", Value: []byte(web("81"))}}); err != nil {
		t.Fatal(err)
	}
	l.mustReach(b.Namespace, a.v4, 81)
	l.mustNotReach(b.Namespace, a.v4, 80)
	server.Close()
	server = serve(t.TempDir()) // another cluster, with other revisions
	l.wait("the other store to answer", func() bool { _, err := st.Revision(t.Context()); return err == nil })
	l.put(all...)
	l.mustReach(b.Namespace, a.v4, 80)
	l.mustNotReach(b.Namespace, a.v4, 81)
	l.wait("statuses to be told to the other store", told)
}

// TestCleanup: nothing of ours is left, and what is others' is.
func TestCleanup(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a, b := l.machine(1), l.machine(2)
	before := l.text()
	l.nft("add", "table", "inet", "theirs")
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open, a.key(), a.endpoint("{}", `["open"]`),
		"/calico/v1/host/h1/bird_ip", "198.51.100.1", "/calico/v1/ipam/v4/pool/10.65.0.0-16", `{"cidr": "10.65.0.0/16", "ipip": "vxlan0", "masquerade": true}`)
	l.start()
	l.wait("the tunnel device", func() bool { return strings.Contains(l.text(), "link vxlan0") })
	l.put(b.key(), b.endpoint("{}", `["open"]`))
	l.wait("the route of b", func() bool { return hasRoute(l.text(), "10.65.0.2/32", "cali2") })
	l.put(b.key(), "")
	l.wait("the route of b to go", func() bool { return !hasRoute(l.text(), "10.65.0.2/32", "cali2") })
	l.stop()
	if err := Cleanup(l.hostNS); err != nil {
		t.Fatal(err)
	}
	if rules := l.nft("list", "ruleset"); strings.TrimSpace(rules) != "table inet theirs {\n}" {
		t.Errorf("left in nftables:\n%s", rules)
	}
	if after := withoutNeighbours(l.text()); after != withoutNeighbours(before) {
		t.Errorf("left in the network:\n%s\nwant\n%s", after, before)
	}
	neighbours, err := hostNet(t, l).Neighbours()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range neighbours {
		if n.Permanent {
			t.Errorf("left: neighbour %+v", n)
		}
	}
	for _, w := range []*machine{a, b} {
		for _, name := range []string{"route_localnet", "proxy_arp"} {
			if got, err := hostNet(t, l).Setting("ipv4/conf/" + w.name() + "/" + name); err != nil || got != "0" {
				t.Errorf("left: %s of %s is %q, %v", name, w.name(), got, err)
			}
		}
	}
}

// withoutNeighbours leaves out of a host's text what comes and goes by itself.
func withoutNeighbours(text string) string {
	text, _, _ = strings.Cut(text, "\nneighbour ")
	return strings.TrimSpace(text)
}

// TestLegacyTree: the legacy tree counts beside v1, and behind it where both have an endpoint.
func TestLegacyTree(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a, b := l.machine(1), l.machine(2)
	listen(t, a.Namespace, 80)
	listen(t, b.Namespace, 80)
	legacy := strings.Replace(a.endpoint("{}", `["x"]`), `"profile_ids": ["x"]`, `"profile_id": "old"`, 1)
	legacy = strings.Replace(legacy, `, "labels": {}`, "", 1)
	old := strings.Replace(a.key(), "/calico/v1/", "/calico/", 1)
	l.put("/calico/v1/Ready", "true", old, legacy, "/calico/policy/profile/old/rules", `{"inbound_rules": [{"src_tag": "new"}], "outbound_rules": [{}]}`,
		"/calico/policy/profile/old/tags", `["old"]`, "/calico/policy/profile/old/refcount", "1",
		"/calico/v1/policy/profile/new/rules", `{"inbound_rules": [{"src_tag": "old"}], "outbound_rules": [{}]}`, "/calico/v1/policy/profile/new/tags", `["new"]`,
		b.key(), b.endpoint("{}", `["new"]`))
	l.start()
	l.mustReach(b.Namespace, a.v4, 80)
	l.mustReach(a.Namespace, b.v4, 80)
	l.mustNotReach(l.outside, a.v4, 80)
	l.put("/calico/v1/policy/profile/open/rules", open, a.key(), a.endpoint("{}", `["open"]`))
	l.mustReach(l.outside, a.v4, 80)
	l.wait("the hidden object to be told", func() bool { return l.metric("heddle_policy_hidden_legacy_objects") == 1 })
	l.put(a.key(), "")
	l.mustNotReach(l.outside, a.v4, 80)
	l.mustReach(b.Namespace, a.v4, 80)
}
