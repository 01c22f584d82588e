package policy

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/calico"
	"heddle/internal/hostnet"
	"heddle/internal/policy/calc"
	"heddle/internal/policy/nft"
	"heddle/internal/store"
	"heddle/internal/store/follow"
)

// bench is a loop over a network and an nftables that behave like the kernel's, with a clock of its
// own.
type bench struct {
	*loop
	t        *testing.T
	net      *hostnet.Fake
	reads    *countedNet
	nft      *nft.Fake
	reports  *reportLog
	logText  *strings.Builder
	time     time.Time
	events   <-chan hostnet.Event
	commits  []string // the routes of workloads at each commit
	inRules  map[calico.WorkloadEndpointKey]*calc.Workload
	bound    map[string]bool // interfaces of the virtual topology
	relisted int             // how often the store was to be listed again
	revision int64
	written  map[string]store.KV // what the store holds
	fatalf   func(string, ...any)
	next     time.Time // when the last pass wants the next one
}

// watchedRules records what the ruleset gets, and what the network has at each commit.
type watchedRules struct {
	ruleset
	b *bench
}

func (w watchedRules) Update(c *calc.Changes) {
	for key, workload := range c.Workloads {
		setOrDelete(w.b.inRules, key, workload, workload != nil)
	}
	w.ruleset.Update(c)
}

func (w watchedRules) Commit(ctx context.Context) error {
	err := w.ruleset.Commit(ctx)
	w.b.commits = append(w.b.commits, w.b.routes())
	return err
}

// reportLog records reports.
type reportLog struct {
	statuses map[string]string
	last     statusReport
}

func (r *reportLog) configure(Settings) {}
func (r *reportLog) recheck()           {}

func (r *reportLog) write(report statusReport) {
	r.last = report
	for path, status := range report.changed {
		setOrDelete(r.statuses, path, status, status != "")
	}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return buildBench(t, hostnet.NewFake(nil), &nft.Fake{})
}

func buildBench(t *testing.T, network *hostnet.Fake, tables *nft.Fake) *bench {
	t.Helper()
	b := &bench{t: t, fatalf: t.Fatalf, net: network, reads: &countedNet{Net: network}, nft: tables, time: time.Unix(1000, 0),
		reports: &reportLog{statuses: map[string]string{}}, logText: &strings.Builder{},
		inRules: map[calico.WorkloadEndpointKey]*calc.Workload{}, written: map[string]store.KV{}}
	table, err := nft.New(b.nft, usual(t).Rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(b.logText, nil))
	b.loop = newLoop("h1", b.reads, watchedRules{table, b}, b.reports, func() time.Time { return b.time }, log)
	b.relist = func() { b.relisted++ }
	if b.events, err = b.net.Watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.list(); err != nil {
		t.Fatal(err)
	}
	b.bind(map[string]bool{})
	return b
}

// bind makes interfaces those of the virtual topology.
func (b *bench) bind(names map[string]bool) {
	b.bound = names
	b.core.setOverlay(names)
}

// link makes an interface that is up.
func (b *bench) link(name string) {
	b.t.Helper()
	_, err := b.net.AddLink(hostnet.LinkSpec{Name: name, Kind: hostnet.Tap})
	if err := errors.Join(err, b.net.SetUp(name, true)); err != nil {
		b.t.Fatal(err)
	}
}

// change writes keys and values in one transaction; an empty value deletes its key.
func (b *bench) change(pairs ...string) {
	b.t.Helper()
	b.revision++
	u := follow.Update{Revision: b.revision}
	for i := 0; i < len(pairs); i += 2 {
		kv := store.KV{Key: pairs[i], Value: []byte(pairs[i+1]), ModRevision: b.revision}
		setOrDelete(b.written, kv.Key, kv, pairs[i+1] != "")
		u.Events = append(u.Events, store.Event{KV: kv, Deleted: pairs[i+1] == ""})
	}
	b.applyStore(u)
	b.act()
}

// snapshot lists the store, which holds just these keys and values. Those that it held before keep
// their revision.
func (b *bench) snapshot(pairs ...string) {
	b.t.Helper()
	b.revision++
	u := follow.Update{Revision: b.revision, Full: true}
	held := b.written
	b.written = map[string]store.KV{}
	for i := 0; i < len(pairs); i += 2 {
		kv := store.KV{Key: pairs[i], Value: []byte(pairs[i+1]), ModRevision: b.revision}
		if old, ok := held[kv.Key]; ok && string(old.Value) == pairs[i+1] {
			kv = old
		}
		b.written[kv.Key] = kv
		u.All = append(u.All, kv)
	}
	b.applyStore(u)
	b.act()
}

// act passes all events to the loop and makes passes until nothing happens any more.
func (b *bench) act() {
	b.t.Helper()
	turns := 0
	for more := true; more; {
		if turns++; turns > 100 {
			b.fatalf("what the loop does makes it do more, without end")
		}
		b.next = b.pass(b.t.Context())
		for more = false; ; more = true {
			select {
			case e := <-b.events:
				if err := b.applyKernel(e, true); err != nil {
					b.t.Fatal(err)
				}
				continue
			default:
			}
			break
		}
	}
}

// after lets time pass.
func (b *bench) after(d time.Duration) {
	b.time = b.time.Add(d)
	b.act()
}

// metric returns one of the agent's figures.
func (b *bench) metric(name string) float64 {
	for _, v := range b.metrics() {
		if v.Name == "heddle_policy_"+name {
			return v.Value
		}
	}
	b.t.Fatalf("there is no metric %s", name)
	return 0
}

// status returns the reported status of the endpoint at a path.
func (b *bench) status(path string) string {
	return b.reports.statuses[strings.Replace(path, "/calico/v1/", "/calico/felix/v1/", 1)]
}

// routes returns the destinations with their links, in order.
func (b *bench) routes() string {
	all, err := b.net.Routes()
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, r := range all {
		out = append(out, r.Dst.Addr().String()+"@"+r.Link)
	}
	return strings.Join(out, " ")
}

func keyOf(t *testing.T, path string) calico.WorkloadEndpointKey {
	t.Helper()
	k, ok := calico.ParseKey(path)
	if !ok {
		t.Fatalf("%s is no key", path)
	}
	return k.(calico.WorkloadEndpointKey)
}

func (b *bench) want(what, routes string) {
	b.t.Helper()
	if got := b.routes(); got != routes {
		b.t.Errorf("%s: routes %q, want %q", what, got, routes)
	}
}

const (
	ready     = "/calico/v1/Ready"
	reporting = "/calico/v1/config/EndpointReportingEnabled"
	epA       = "/calico/v1/host/h1/workload/o/a/endpoint/e"
	epB       = "/calico/v1/host/h1/workload/o/b/endpoint/e"
	valueA    = `{"state": "active", "name": "cali1", "mac": "02:00:00:00:00:01", "ipv4_nets": ["10.0.0.1"], "ipv6_gateway": "2001:db8::1"}`
	valueA2   = `{"state": "active", "name": "cali1", "ipv4_nets": ["10.0.0.2"]}`
	valueB    = `{"state": "active", "name": "cali2", "ipv4_nets": ["10.0.0.1"]}`
)

// TestOrder: policy is in force before a new endpoint's routes, and an endpoint's routes are gone
// before its policy is.
func TestOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.link("cali1")
	b.link("cali2")
	b.snapshot(ready, "true")
	b.commits = nil
	b.change(epA, valueA)
	b.want("with the endpoint", "10.0.0.1@cali1")
	b.change(epA, "", epB, valueB)
	b.want("with another that has its address", "10.0.0.1@cali2")
	if got := strings.Join(b.commits, ", "); got != ", " {
		t.Errorf("routes at the commits: %q, want none at either", got)
	}
}

// TestRefusedCommit: while the kernel refuses the rules nothing new is routed, what was there goes
// on, and the commit is tried again with growing pauses.
func TestRefusedCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.link("cali1")
	b.link("cali2")
	b.snapshot(ready, "true", reporting, "true", epA, valueA)
	refused := errors.New("no")
	b.nft.Refuse(func(string) error { return refused })
	b.change(epB, strings.Replace(valueB, "10.0.0.1", "10.0.0.9", 1))
	b.want("refused", "10.0.0.1@cali1")
	tried := b.metric("failed_commits_total")
	for range 3 {
		b.after(time.Millisecond)
	}
	if n := b.metric("failed_commits_total") - tried; n != 0 {
		t.Errorf("%v commits within 3 ms", n)
	}
	b.after(retryMax)
	if n := b.metric("failed_commits_total") - tried; n != 1 || b.status(epB) != "down" {
		t.Errorf("%v more failures, the endpoint is %q; want 1, and down", n, b.status(epB))
	}
	b.nft.Refuse(nil)
	b.after(retryMax)
	b.want("accepted", "10.0.0.1@cali1 10.0.0.9@cali2")
}

// TestConnectionsAreForgotten: when an address leaves an endpoint, so do its connections, and no
// others.
func TestConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.link("cali1")
	b.snapshot(ready, "true", epA, valueA)
	b.net.Connect(hostnet.Connection{Source: ip("192.0.2.7"), Destination: ip("203.0.113.1"), ReplySource: ip("10.0.0.1"), ReplyDestination: ip("192.0.2.7")})
	b.net.Connect(hostnet.Connection{Source: ip("10.0.0.3"), Destination: ip("192.0.2.7"), ReplySource: ip("192.0.2.7"), ReplyDestination: ip("10.0.0.3")})
	b.change(epA, strings.Replace(valueA, "01", "02", 1))
	if n := len(b.net.Connections()); n != 2 {
		t.Errorf("%d connections after another MAC, want 2", n)
	}
	b.change(epA, valueA2)
	b.want("with another address", "10.0.0.2@cali1")
	if all := b.net.Connections(); len(all) != 1 || all[0].Source != ip("10.0.0.3") {
		t.Errorf("connections %v, want that of 10.0.0.3", all)
	}
}

// TestWiring: parameters, neighbours and proxies come and go with endpoint and interface; a
// gateway's too.
func TestWiring(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.snapshot(ready, "true", epA, valueA)
	b.want("before the interface", "")
	b.link("cali1")
	b.act()
	has := func(when, want string) {
		t.Helper()
		neighbours, err := b.net.Neighbours()
		if err != nil {
			t.Fatal(err)
		}
		proxies, err := b.net.Proxies()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, n := range neighbours {
			out = append(out, n.IP.String())
		}
		for _, p := range proxies {
			out = append(out, p.IP.String())
		}
		if got := strings.Join(out, " "); got != want {
			t.Errorf("%s: neighbours and proxies %q, want %q", when, got, want)
		}
	}
	has("with the interface", "10.0.0.1 2001:db8::1")
	for name, want := range map[string]string{"ipv4/conf/cali1/rp_filter": "1", "ipv4/conf/cali1/route_localnet": "1", "ipv4/conf/cali1/proxy_arp": "1",
		"ipv4/neigh/cali1/proxy_delay": "0", "ipv4/conf/cali1/forwarding": "1", "ipv6/conf/cali1/proxy_ndp": "1", "ipv6/conf/cali1/forwarding": "1",
		"ipv4/ip_forward": "1", "ipv4/conf/default/rp_filter": "1", "ipv6/conf/all/forwarding": "0"} {
		if got, err := b.net.Setting(name); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	if err := b.net.DeleteLink("cali1"); err != nil {
		t.Fatal(err)
	}
	b.act()
	b.link("cali1")
	b.act()
	has("with the interface again", "10.0.0.1 2001:db8::1")
	if got, _ := b.net.Setting("ipv4/conf/cali1/proxy_arp"); got != "1" {
		t.Errorf("proxy_arp is %q on the interface that came back", got)
	}
	b.change(epA, valueA2)
	has("with neither MAC nor gateway", "")
	b.change(epA, valueA)
	if err := errors.Join(b.net.DeleteNeighbour("cali1", ip("10.0.0.1")), b.net.Set(hostnet.Setting{Name: "ipv4/conf/cali1/proxy_arp", Value: "0"})); err != nil {
		t.Fatal(err)
	}
	b.act()
	has("when somebody took the neighbour", "10.0.0.1 2001:db8::1")
	b.after(time.Minute)
	if got, _ := b.net.Setting("ipv4/conf/cali1/proxy_arp"); got != "1" {
		t.Errorf("proxy_arp is %q after a minute", got)
	}
	b.change(epA, `{"state": "inactive", "name": "cali1", "mac": "02:00:00:00:00:01", "ipv4_nets": ["10.0.0.1"]}`)
	has("inactive", "")
	b.want("inactive", "")
}

// TestStrangeRoutes: routes that no endpoint explains go from workloads' interfaces, but not while
// these are new.
func TestStrangeRoutes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.link("cali1")
	b.link("eth0")
	route := func(dst, link string, protocol uint8) {
		t.Helper()
		if err := b.net.SetRoute(hostnet.Route{Dst: netip.MustParsePrefix(dst), Link: link, Protocol: protocol}); err != nil {
			t.Fatal(err)
		}
	}
	route("10.0.0.1/32", "cali1", 4) // somebody has prepared it
	route("10.0.0.5/32", "cali1", 4)
	route("10.0.0.6/32", "eth0", 4)
	route("10.0.0.7/32", "cali1", RouteProtocol) // of an earlier life
	b.net.Connect(hostnet.Connection{Source: ip("10.0.0.7"), Destination: ip("192.0.2.7"), ReplySource: ip("192.0.2.7"), ReplyDestination: ip("10.0.0.7")})
	b.snapshot(epA, valueA)
	b.want("before Ready", "10.0.0.1@cali1 10.0.0.5@cali1 10.0.0.6@eth0 10.0.0.7@cali1")
	b.change(ready, "true")
	b.want("at first", "10.0.0.1@cali1 10.0.0.5@cali1 10.0.0.6@eth0")
	if len(b.net.Connections()) != 0 {
		t.Error("the connections of an address that left while there was no agent are there")
	}
	b.after(grace + time.Second)
	b.after(time.Minute)
	b.want("later", "10.0.0.1@cali1 10.0.0.6@eth0")
	route("10.0.0.8/32", "cali1", 4)
	b.act()
	b.after(time.Second)
	b.want("a new one on an old interface", "10.0.0.1@cali1 10.0.0.6@eth0")
	route("10.0.0.1/32", "eth0", 4)
	b.act()
	b.want("ours taken by somebody", "10.0.0.1@cali1 10.0.0.6@eth0")
}

// TestMissedDeletions: a snapshot takes away what is not in it, and leaves alone what is as it was.
func TestMissedDeletions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.link("cali1")
	b.link("cali2")
	b.snapshot(ready, "true", epA, valueA)
	b.snapshot(ready, "true", epB, strings.Replace(valueB, "10.0.0.1", "10.0.0.9", 1))
	b.want("another snapshot", "10.0.0.9@cali2")
	b.snapshot()
	b.want("an empty snapshot closes the gate", "10.0.0.9@cali2")
}

// TestRename: an endpoint on another interface is wired there; an interface of another name is
// another one.
func TestRename(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.link("cali1")
	b.link("cali2")
	b.snapshot(ready, "true", epA, valueA)
	b.change(epA, strings.Replace(valueA, "cali1", "cali2", 1))
	b.want("renamed", "10.0.0.1@cali2")
	b.change(epA, strings.Replace(valueA, "cali1", "eth9", 1))
	b.want("renamed to no workload's interface", "")
	if b.metric("refused_endpoints") != 1 {
		t.Error("an endpoint whose interface has no prefix of workloads is not refused")
	}
}

// TestStatusOfHiddenEndpoint: an endpoint of the legacy tree that cannot be read does no harm to
// that of v1 before it.
func TestStatusOfHiddenEndpoint(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.link("cali1")
	b.snapshot(ready, "true", reporting, "true", epA, valueA, strings.Replace(epA, "/v1/", "/", 1), "{")
	if got := b.status(epA); got == "error" || got == "" {
		t.Errorf("with one of v1 the status is %q", got)
	}
	b.change(epA, "")
	if got := b.status(epA); got != "error" {
		t.Errorf("without one of v1 the status is %q", got)
	}
}

// TestConnectionsOfFormerOwners: an agent that was away forgets the connections of addresses that
// are not where they were, and of no others.
func TestConnectionsOfFormerOwners(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.link("cali1")
	b.snapshot(ready, "true", epA, valueA)
	connect := func() {
		b.net.Connect(hostnet.Connection{Source: ip("192.0.2.7"), Destination: ip("10.0.0.1"), ReplySource: ip("10.0.0.1"), ReplyDestination: ip("192.0.2.7")})
	}
	connect()
	next := b.restart()
	next.snapshot(ready, "true", epA, valueA)
	if n := len(b.net.Connections()); n != 1 {
		t.Errorf("%d connections after a restart, want 1", n)
	}
	if err := b.net.DeleteLink("cali1"); err != nil { // and its route with it
		t.Fatal(err)
	}
	b.link("cali2")
	next = b.restart()
	next.snapshot(ready, "true", epB, valueB)
	next.want("after the restart", "10.0.0.1@cali2")
	if all := b.net.Connections(); len(all) != 0 {
		t.Errorf("connections %v of the address's former owner", all)
	}
}
