package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/apitest"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// world is a Service over a store, and who asks it.
type world struct {
	*control.Service
	t                    testing.TB
	st                   store.Store
	db                   *records.DB
	member, other, admin neutron.Caller
}

// open returns a world over the store.
func open(t testing.TB, st store.Store, o control.Options) *world {
	t.Helper()
	return openBefore(t, st, o, func(*control.Service, *replica.Replica) {})
}

// openBefore is open for who has to register at the replica before it runs.
func openBefore(t testing.TB, st store.Store, o control.Options, register func(*control.Service, *replica.Replica)) *world {
	t.Helper()
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	db := records.NewDB(st, rep)
	if o.PhysicalNetworks == nil {
		o.PhysicalNetworks = map[string]control.PhysicalNetwork{
			"physnet1": {VLANs: []control.IDRange{{Min: 100, Max: 199}}}, "public": {Flat: true},
		}
	}
	s, err := control.New(db, o)
	if err != nil {
		t.Fatal(err)
	}
	register(s, rep)
	apitest.Run(t, rep)
	who := func(project string, roles ...string) neutron.Caller {
		return neutron.Caller{UserID: "u-" + project, ProjectID: project, Roles: roles}
	}
	return &world{
		Service: s, t: t, st: st, db: db,
		member: who("mine", "member", "reader"), other: who("other", "member", "reader"), admin: who("ops", "admin", "member", "reader"),
	}
}

// inMemory returns a world over a store of its own.
func inMemory(t testing.TB) *world {
	t.Helper()
	return open(t, store.NewMemory(), control.Options{})
}

// inEtcd returns an embedded etcd. Its commits are durable if fsync is set.
func inEtcd(t testing.TB, fsync bool) store.Store {
	t.Helper()
	st, err := backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: t.TempDir(), NoFsync: !fsync, Tick: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// parse reads one object of a request as the API does.
func parse(c neutron.Caller, r neutron.Resource, op neutron.Op, text string) (neutron.Values, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	body := map[string]any{}
	if err := d.Decode(&body); err != nil {
		return nil, err
	}
	return neutron.Parse(c, r, op, body)
}

// operations are those of any resource, with views as they come.
type operations struct {
	create func(c neutron.Caller, vs []neutron.Values) ([]any, error)
	update func(c neutron.Caller, id string, v neutron.Values) (any, error)
	delete func(c neutron.Caller, id string) error
	tags   func(c neutron.Caller, id string, change func([]string) ([]string, error)) ([]string, error)
}

func anyOf[V any](o control.Operations[*V]) operations {
	ctx := context.Background()
	return operations{
		create: func(c neutron.Caller, vs []neutron.Values) ([]any, error) {
			views, err := o.Create(ctx, c, vs)
			all := make([]any, len(views))
			for i, v := range views {
				all[i] = v
			}
			return all, err
		},
		update: func(c neutron.Caller, id string, v neutron.Values) (any, error) { return o.Update(ctx, c, id, v, nil) },
		delete: func(c neutron.Caller, id string) error { return o.Delete(ctx, c, id, nil) },
		tags: func(c neutron.Caller, id string, change func([]string) ([]string, error)) ([]string, error) {
			return o.ChangeTags(ctx, c, id, change)
		},
	}
}

// on returns the operations on a resource.
func (w *world) on(r neutron.Resource) operations {
	return map[neutron.Resource]operations{
		neutron.Networks: anyOf(w.Networks()), neutron.Subnets: anyOf(w.Subnets()), neutron.Ports: anyOf(w.Ports()),
		neutron.SecurityGroups: anyOf(w.SecurityGroups()), neutron.SecurityGroupRules: anyOf(w.SecurityGroupRules()),
		neutron.AddressGroups:  anyOf(w.AddressGroups()),
		neutron.MeteringLabels: anyOf(w.MeteringLabels()), neutron.MeteringLabelRules: anyOf(w.MeteringLabelRules()), neutron.Logs: anyOf(w.Logs()),
		neutron.TapServices: anyOf(w.TapServices()), neutron.TapFlows: anyOf(w.TapFlows()),
		neutron.GatewayDevices: anyOf(w.GatewayDevices()), neutron.RemoteMACEntries: anyOf(w.RemoteMACEntries("")),
		neutron.L2Gateways: anyOf(w.L2Gateways()), neutron.L2GatewayConnections: anyOf(w.L2GatewayConnections()),

		neutron.Routers:     anyOf(w.Routers().Operations),
		neutron.FloatingIPs: anyOf(w.FloatingIPs()), neutron.PortForwardings: anyOf(w.PortForwardings("")), neutron.Firewalls: anyOf(w.Firewalls()),
		neutron.LoggingResources: anyOf(w.LoggingResources()),
		neutron.NDPProxies:       anyOf(w.NDPProxies()),
		neutron.FirewallPolicies: anyOf(w.FirewallPolicies()), neutron.FirewallRules: anyOf(w.FirewallRules()),
		neutron.FirewallGroups: anyOf(w.FirewallGroups()), neutron.FirewallGroupPolicies: anyOf(w.FirewallGroupPolicies()),
		neutron.FirewallGroupRules: anyOf(w.FirewallGroupRules()), neutron.RBACPolicies: anyOf(w.RBACPolicies()),
		neutron.Trunks:      anyOf(w.Trunks().Operations),
		neutron.QoSPolicies: anyOf(w.QoSPolicies()),
		neutron.LocalIPs:    anyOf(w.LocalIPs()),
		neutron.SubnetPools: anyOf(w.SubnetPools()), neutron.AddressScopes: anyOf(w.AddressScopes()),
		neutron.BGPSpeakers: anyOf(w.BGPSpeakers().Operations), neutron.BGPPeers: anyOf(w.BGPPeers()),
		neutron.DefaultRules: anyOf(w.DefaultSecurityGroupRules()),

		neutron.LoadBalancers: anyOf(w.LoadBalancing().LoadBalancers()), neutron.Listeners: anyOf(w.LoadBalancing().Listeners()),
		neutron.LBPools: anyOf(w.LoadBalancing().Pools()), neutron.HealthMonitors: anyOf(w.LoadBalancing().HealthMonitors()),
		neutron.VIPs: anyOf(w.LoadBalancingV1().VIPs()), neutron.V1Pools: anyOf(w.LoadBalancingV1().Pools()),
		neutron.V1Members: anyOf(w.LoadBalancingV1().Members()), neutron.V1HealthMonitors: anyOf(w.LoadBalancingV1().HealthMonitors()),
	}[r]
}

// create makes objects of one request, each given as JSON. The answers are views.
func (w *world) create(c neutron.Caller, r neutron.Resource, texts ...string) ([]any, error) {
	var vs []neutron.Values
	for _, text := range texts {
		v, err := parse(c, r, neutron.Create, text)
		if err != nil {
			return nil, err
		}
		vs = append(vs, v)
	}
	return w.on(r).create(c, vs)
}

// all walks a list.
func all[T any](list iter.Seq[*T], err error) ([]*T, error) {
	if err != nil {
		return nil, err
	}
	return slices.Collect(list), nil
}

// change updates an object with what JSON says.
func (w *world) change(c neutron.Caller, r neutron.Resource, id, text string) (any, error) {
	v, err := parse(c, r, neutron.Update, text)
	if err != nil {
		return nil, err
	}
	return w.on(r).update(c, id, v)
}

func (w *world) remove(c neutron.Caller, r neutron.Resource, id string) error {
	return w.on(r).delete(c, id)
}

// must makes one object, which has to be possible.
func must[T any](w *world, c neutron.Caller, r neutron.Resource, text string) T {
	w.t.Helper()
	views, err := w.create(c, r, text)
	if err != nil {
		w.t.Fatalf("create %s %s: %v", r, text, err)
	}
	return views[0].(T)
}

func (w *world) network(text string) *neutron.NetworkView {
	w.t.Helper()
	return must[*neutron.NetworkView](w, w.member, neutron.Networks, text)
}

func (w *world) subnet(networkID, rest string) *neutron.SubnetView {
	w.t.Helper()
	return must[*neutron.SubnetView](w, w.member, neutron.Subnets, `{"network_id":"`+networkID+`",`+rest+`}`)
}

func (w *world) port(networkID, rest string) *neutron.PortView {
	w.t.Helper()
	if rest != "" {
		rest = "," + rest
	}
	return must[*neutron.PortView](w, w.member, neutron.Ports, `{"network_id":"`+networkID+`"`+rest+`}`)
}

// hosts registers hosts by name; their ids are "id-" and the name.
func (w *world) hosts(names ...string) {
	w.t.Helper()
	_, err := w.db.Update(context.Background(), func(tx *records.Tx) error {
		for _, name := range names {
			if err := schema.Hosts.Put(tx, &topology.Host{ID: "id-" + name, Name: name}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// carry registers a host that carries physical networks.
func (w *world) carry(networks ...string) {
	w.t.Helper()
	u := &topology.HostUnderlay{HostID: "id-carrier", PhysicalNetworks: map[string]string{}}
	for i, name := range networks {
		u.PhysicalNetworks[name] = fmt.Sprintf("eth%d", i)
	}
	w.hosts("carrier")
	if _, err := w.db.Update(context.Background(), func(tx *records.Tx) error { return schema.Underlays.Put(tx, u) }); err != nil {
		w.t.Fatal(err)
	}
}

// bundle returns an owner's present bundle.
func (w *world) bundle(kind, id string) topology.Bundle {
	w.t.Helper()
	snap, err := w.db.View(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := schema.Bundles.Get(snap, kind+"/"+id)
	if err != nil {
		w.t.Fatal(err)
	}
	return b.Bundle
}

// dump returns the whole store but guards and the given keys.
func (w *world) dump(but ...string) []string {
	w.t.Helper()
	kvs, _, err := w.st.List(context.Background(), "/")
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, kv := range kvs {
		skip := func(prefix string) bool { return strings.HasPrefix(kv.Key, prefix) }
		if !skip("/heddle/guard/") && !slices.ContainsFunc(but, skip) {
			out = append(out, kv.Key+" "+string(bytes.TrimSpace(kv.Value)))
		}
	}
	return out
}

// problem returns an error as a client sees it: its class and its text.
func problem(err error) string {
	var e *neutron.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Type + ": " + e.Message
	}
	return "not for clients: " + err.Error()
}

// expect checks an error.
func (w *world) expect(err error, want string) {
	w.t.Helper()
	if got := problem(err); got != want {
		w.t.Errorf("got  %q\nwant %q", got, want)
	}
}
