package tunnel

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
	"heddle/internal/xen/xapi"
)

// password is root's in simulated pools.
const password = "secret"

// timeout bounds what a test waits for.
const timeout = 2 * time.Minute // bounds hanging alone

// lab is a pool whose hosts are namespaces with real switches, and whose XenAPI is simulated:
// bridges are made by hand.
type lab struct {
	t        testing.TB
	ctx      context.Context
	ovs      *netlab.OVSLab
	sim      *xapi.Simulation
	url      string
	session  *client.Session
	hosts    []*netlab.OVSHost
	machines map[string]*netlab.Namespace // by host and network
	log      *netlab.Log
	bfdEvery time.Duration // of its controllers
}

// newLab makes a pool of hosts h1, h2, ….
func newLab(t testing.TB, hosts int) *lab {
	t.Helper()
	l := &lab{t: t, ovs: netlab.OVSForTest(t, hosts), machines: map[string]*netlab.Namespace{}, log: &netlab.Log{}, bfdEvery: defaultBFDEvery}
	l.hosts = l.ovs.Hosts()
	var members []map[string]any
	for _, h := range l.hosts {
		members = append(members, map[string]any{"name": h.Name, "address": h.Address.String(), "backend": "openvswitch",
			"pifs": []map[string]any{{"device": "eth0", "network": "fabric", "mode": "Static", "ip": h.Address.String(), "netmask": "255.255.255.0", "management": true}}})
	}
	l.simulate(members)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", l.log)
		}
	})
	return l
}

func (l *lab) simulate(members []map[string]any) {
	l.t.Helper()
	file, err := json.Marshal(map[string]any{"pools": []map[string]any{{"name": "pool", "password": password, "hosts": members}}})
	if err != nil {
		l.t.Fatal(err)
	}
	if l.sim, err = xapi.NewSimulation(file, nil); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- l.sim.Run(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			l.t.Errorf("simulated pool: %v", err)
		}
	})
	l.ctx = ctx
	select {
	case <-l.sim.Ready():
	case err := <-over:
		over <- err
		l.t.Fatal(err)
	}
	l.url = l.sim.Pools()[0].URL
	if l.session, err = client.Dial(ctx, client.Options{URL: l.url, User: "root", Password: password, JSON: true}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) call(method string, args ...any) any {
	l.t.Helper()
	v, err := l.session.Call(l.ctx, method, args...)
	if err != nil {
		l.t.Fatalf("%s %v: %v", method, args, err)
	}
	return v
}

func (l *lab) records(class string) map[string]model.Record {
	l.t.Helper()
	r, err := l.session.Records(l.ctx, class)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// named is the ref of a host.
func (l *lab) named(host string) string {
	l.t.Helper()
	refs := l.call("host.get_by_name_label", host).([]string)
	if len(refs) != 1 {
		l.t.Fatalf("%d hosts are called %s", len(refs), host)
	}
	return refs[0]
}

// network makes a network.
func (l *lab) network(name string) string {
	l.t.Helper()
	return l.call("network.create", model.Record{"name_label": name, "MTU": int64(1400)}).(string)
}

// tunnel makes a tunnel on a host, and the bridge as the host's agent would.
func (l *lab) tunnel(h *netlab.OVSHost, network string, protocol string) string {
	l.t.Helper()
	l.bridge(h, network)
	return l.call("tunnel.create", l.transport(h), network, protocol).(string)
}

// transport is the host's PIF.
func (l *lab) transport(h *netlab.OVSHost) string {
	l.t.Helper()
	host := l.named(h.Name)
	for ref, r := range l.records("PIF") {
		if r["host"] == host && r["device"] == "eth0" {
			return ref
		}
	}
	l.t.Fatalf("%s has no PIF eth0", h.Name)
	return ""
}

// bridge makes a network's bridge on a host.
func (l *lab) bridge(h *netlab.OVSHost, network string) string {
	l.t.Helper()
	r := l.call("network.get_record", network).(model.Record)
	name := r["bridge"].(string)
	l.vsctl(h, "--may-exist", "add-br", name, "--", "set", "bridge", name, "datapath_type=netdev", "fail_mode=standalone",
		"external_ids:xs-network-uuids="+r["uuid"].(string))
	return name
}

func (l *lab) vsctl(h *netlab.OVSHost, args ...string) string {
	l.t.Helper()
	out, err := h.Vsctl(args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// machine puts a machine on a network's bridge, with an address that tells the host.
func (l *lab) machine(i int, network string) *netlab.Namespace {
	l.t.Helper()
	h := l.hosts[i]
	space, port, err := h.Machine(fmt.Sprintf("m%d", i+1), address(i)+"/24")
	if err != nil {
		l.t.Fatal(err)
	}
	l.vsctl(h, "add-port", l.bridge(h, network), port)
	l.machines[h.Name] = space
	return space
}

func address(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }

// star makes a network with a tunnel and a machine on each host, the first being the preferred
// center, and returns its ref and the tunnels' by host.
func (l *lab) star(protocol string) (network string, tunnels []string) {
	l.t.Helper()
	network = l.network("private")
	l.prefer(network, 0)
	for i, h := range l.hosts {
		tunnels = append(tunnels, l.tunnel(h, network, protocol))
		l.machine(i, network)
	}
	return network, tunnels
}

// prefer makes a host the preferred center.
func (l *lab) prefer(network string, host int) {
	l.t.Helper()
	l.call("network.remove_from_other_config", network, "heddle:preferred-center")
	l.call("network.add_to_other_config", network, "heddle:preferred-center", l.uuid(host))
}

// controller starts one over a store; stop ends it.
func (l *lab) controller(st store.Store, change ...func(*Options)) (c *Controller, stop func()) {
	l.t.Helper()
	o := Options{Store: st, Name: "test", BFDEvery: l.bfdEvery, XenAPI: client.Options{URL: l.url, User: "root", Password: password, JSON: true},
		Log: slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if l.ovs != nil {
		o.OVSDB = "unix:" + strings.TrimSuffix(l.hosts[0].Dir, l.hosts[0].Name) + "{host}/db.sock"
	}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-over; err != nil {
			l.t.Errorf("controller: %v", err)
		}
	}
	l.t.Cleanup(stop)
	select {
	case <-c.Ready():
	case <-time.After(timeout):
		l.t.Fatal("the controller is not ready")
	}
	return c, stop
}

// until waits for something.
func (l *lab) until(what string, cond func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		l.t.Fatal(err)
	}
}

// statuses are those of tunnels.
func (l *lab) statuses(tunnels []string) []map[string]string {
	l.t.Helper()
	var all []map[string]string
	records := l.records("tunnel")
	for _, t := range tunnels {
		m, _ := records[t]["status"].(map[string]string)
		all = append(all, m)
	}
	return all
}

// active waits until these tunnels are said to be active, and no others of them.
func (l *lab) active(tunnels []string, want ...int) {
	l.t.Helper()
	var last []map[string]string
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	err := netlab.Until(ctx, "statuses", func() (bool, error) {
		last = l.statuses(tunnels)
		for i, s := range last {
			if (s["active"] == "true") != slices.Contains(want, i) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		l.t.Fatalf("%v: %v, want %v active", err, last, want)
	}
}

// reach has every machine ping every other.
func (l *lab) reach() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	for i, from := range l.hosts {
		for j := range l.hosts {
			if i != j {
				if err := l.machines[from.Name].Reach(ctx, address(j)); err != nil {
					l.t.Fatal(err)
				}
			}
		}
	}
}

// rows are the switches' ports of ours, with their interfaces: what must not change without reason.
func (l *lab) rows() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	for _, h := range l.hosts {
		for _, table := range []string{"Port", "Interface", "Bridge"} {
			columns := map[string]string{"Port": "_uuid,name,external_ids,interfaces", "Interface": "_uuid,name,options,type,bfd", "Bridge": "_uuid,name,ports"}[table]
			all[h.Name+" "+table] = l.vsctl(h, "--no-headings", "--columns="+columns, "list", table)
		}
	}
	return all
}

// pinging is a ping every 10 ms under way.
type pinging struct{ *netlab.Ping }

// ping begins to ping from one machine to another.
func (l *lab) ping(from, to int) pinging {
	l.t.Helper()
	p, err := l.machines[l.hosts[from].Name].Ping(address(to))
	if err != nil {
		l.t.Fatal(err)
	}
	return pinging{p}
}

// gap ends it after one more answer, and returns the longest time without one, and how many had
// none.
func (p pinging) gap(t testing.TB) (longest time.Duration, lost int) {
	t.Helper()
	longest, lost, err := p.End()
	if err != nil {
		t.Fatal(err)
	}
	return longest, lost
}

// same fails the test if something has changed.
func (l *lab) same(before map[string]string) {
	l.t.Helper()
	if after := l.rows(); !maps.Equal(before, after) {
		for k := range before {
			if before[k] != after[k] {
				l.t.Errorf("%s was\n%s\nand is\n%s", k, before[k], after[k])
			}
		}
	}
}
