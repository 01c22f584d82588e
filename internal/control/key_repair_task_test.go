package control_test

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/api/apitest"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

// keeping returns a world whose server puts keys right once its keys run.
func keeping(t testing.TB, st store.Store, o control.Options) (*world, *control.Keys) {
	t.Helper()
	w, keys := starting(t, st, o)
	return w, keys()
}

// starting returns a world and what makes its keys, as a server does that starts.
func starting(t testing.TB, st store.Store, o control.Options) (*world, func() *control.Keys) {
	t.Helper()
	var keys func() *control.Keys
	w := openBefore(t, st, o, func(s *control.Service, r *replica.Replica) {
		keys = func() *control.Keys { return control.NewKeys(s, r, slog.New(slog.DiscardHandler)) }
	})
	return w, keys
}

// once has a server look at all keys.
func once(t fataler, keys *control.Keys) {
	t.Helper()
	if err := keys.Once(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// site has a bound port, an unbound one, a subnet with DHCP and one without.
type site struct {
	network, dhcp, still, port, unbound, group string
}

func (w *world) site() site {
	w.t.Helper()
	w.hosts("h1", "h2")
	n := w.routed()
	s := site{network: n,
		dhcp:  must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"10.65.0.0/24"}`).ID,
		still: must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":6,"cidr":"fd00:65::/64","enable_dhcp":false}`).ID,
	}
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n+`","device_id":"vm","binding:host_id":"h1","fixed_ips":[{"ip_address":"10.65.0.4"}],
		"extra_dhcp_opts":[{"opt_name":"tftp-server","opt_value":"10.65.0.9"}]}`)
	s.port, s.group = p.ID, p.SecurityGroups[0]
	s.unbound = must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n+`","device_id":"vm"}`).ID
	return s
}

func endpointPath(host, workload, port string) string {
	return "/calico/v1/host/" + host + "/workload/" + workload + "/endpoint/" + port
}

const (
	someEndpoint = `{"state":"active","name":"tap7","profile_ids":[],"ipv4_nets":["10.65.0.7/32"],"ipv6_nets":[],"labels":{}}`
	someSubnet   = `{"cidr":"10.99.0.0/24","gateway_ip":"10.99.0.1"}`
)

// harm returns changes by other writers to Neutron's keys.
func (s site) harm() map[string]string {
	return map[string]string{
		endpointPath("h1", "openstack/vm", s.port):                     "", // deleted
		endpointPath("h2", "openstack/vm", s.port):                     someEndpoint,
		endpointPath("h1", "openstack/vm", s.unbound):                  someEndpoint,
		endpointPath("h1", "openstack/other", "nobody"):                "{",
		"/calico/dhcp/v1/subnet/" + s.dhcp:                             someSubnet,
		"/calico/dhcp/v1/subnet/" + s.still:                            someSubnet,
		"/calico/v1/policy/profile/openstack-sg-" + s.group + "/rules": `{"inbound_rules":[{}],"outbound_rules":[{}]}`,
		"/calico/v1/policy/profile/openstack-sg-" + s.group + "/tags":  "",
		"/calico/v1/policy/profile/openstack-sg-gone/tags":             `["gone"]`,
	}
}

// foreign are keys that are somebody else's.
func (s site) foreign() map[string]string {
	return map[string]string{
		endpointPath("h1", "k8s/vm", s.port):                                someEndpoint,
		"/calico/host/h1/workload/openstack/vm/endpoint/" + s.port:          someEndpoint,
		"/calico/v1/host/h1/endpoint/" + s.port:                             `{"name":"eth0"}`,
		"/calico/dhcp/v1/subnet/lab":                                        someSubnet,
		"/calico/policy/profile/openstack-sg-" + s.group + "/tags":          `[]`,
		"/calico/v1/policy/profile/web/rules":                               `{}`,
		"/calico/v1/policy/profile/openstack-sg-" + s.group + "/labels":     `{}`,
		"/calico/felix/v1/host/h2/workload/openstack/vm/endpoint/" + s.port: `{"status":"up"}`,
		"/calico/v1/policy/tier/default/policy/openstack-sg-" + s.group:     `{"selector":"all()"}`,
	}
}

// write puts values at keys, and deletes keys without one.
func (w *world) write(t fataler, values map[string]string) {
	t.Helper()
	var ops []store.Op
	for key, value := range values {
		ops = append(ops, store.Op{Key: key, Value: []byte(value), Delete: value == ""})
	}
	if _, err := w.st.Commit(context.Background(), nil, ops); err != nil {
		t.Fatal(err)
	}
}

// keysAre waits until all keys are those that objects mean, and foreign ones.
func (w *world) keysAre(t fataler, foreign map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	from, err := w.st.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	changes, _ := w.st.Watch(ctx, from, "/calico/")
	for {
		snap, err := w.db.View(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want := calicoOf(t, snap)
		maps.Copy(want, foreign)
		d := cmp.Diff(want, w.calico())
		if d == "" {
			return
		}
		if _, more := <-changes; !more {
			t.Fatal("keys are not what their objects mean (-want +got):\n" + d)
		}
	}
}

// TestKeysComeBack: whatever others do to Neutron's keys is put right, while servers run or at
// their next start; what is not Neutron's stays.
func TestKeysComeBack(t *testing.T) {
	t.Parallel()
	w, keys := keeping(t, store.NewMemory(), control.Options{})
	s := w.site()
	w.write(t, s.foreign())
	w.write(t, s.harm())
	apitest.Run(t, keys)
	w.keysAre(t, s.foreign())
	for key, value := range s.harm() { // also one by one
		w.write(t, map[string]string{key: value})
	}
	w.keysAre(t, s.foreign())
	if err := w.remove(w.admin, neutron.Ports, s.port); err != nil {
		t.Fatal(err)
	}
	w.write(t, map[string]string{endpointPath("h1", "openstack/vm", s.port): someEndpoint})
	w.keysAre(t, s.foreign())
}

// TestKeysOfAnother: where no network is routed, keys under Neutron's names are those of another
// Neutron.
func TestKeysOfAnother(t *testing.T) {
	t.Parallel()
	w, keys := keeping(t, store.NewMemory(), control.Options{})
	w.network(`{}`)
	another := map[string]string{
		endpointPath("h1", "openstack/vm", "p"): someEndpoint, "/calico/v1/policy/profile/openstack-sg-g/tags": `["g"]`, "/calico/dhcp/v1/subnet/s": someSubnet,
	}
	w.write(t, another)
	before := w.calico()
	once(t, keys)
	if d := cmp.Diff(before, w.calico()); d != "" {
		t.Errorf("keys changed:\n%s", d)
	}
}

// TestKeysOfInconsistentStore: a key whose desired value cannot be derived stays as it is and is
// tried again until it can; other keys are put right meanwhile.
func TestKeysOfInconsistentStore(t *testing.T) {
	t.Parallel()
	for _, there := range []string{someEndpoint, ""} {
		w, keys := keeping(t, store.NewMemory(), control.Options{})
		s := w.site()
		endpoint, tags := endpointPath("h1", "openstack/vm", s.port), "/calico/v1/policy/profile/openstack-sg-"+s.group+"/tags"
		right := w.calico()
		subnet := schema.Subnets.Key(s.dhcp)
		record, err := w.st.Get(t.Context(), subnet)
		if err != nil {
			t.Fatal(err)
		}
		w.write(t, map[string]string{subnet: "", endpoint: there, tags: `["wrong"]`})
		if err := keys.Once(t.Context()); err == nil || !strings.Contains(err.Error(), endpoint+" cannot be derived") {
			t.Errorf("a port without its subnet: %v", err)
		}
		if got := w.calico(); got[endpoint] != there || got[tags] != right[tags] {
			t.Errorf("endpoint %q, want %q; tags %s, want %s", got[endpoint], there, got[tags], right[tags])
		}
		w.write(t, map[string]string{subnet: string(record.Value)})
		if _, err := w.db.View(t.Context()); err != nil { // the replica has it
			t.Fatal(err)
		}
		if err := keys.Again(t.Context()); err != nil {
			t.Error(err)
		}
		w.keysAre(t, nil)
	}
}

// TestNewDNSDomain: names in endpoints have the domain of the server that started last. One that
// has another does not fight it, but puts right what else is wrong.
func TestNewDNSDomain(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	w, keys := keeping(t, st, control.Options{})
	s := w.site()
	endpoint, subnet := endpointPath("h1", "openstack/vm", s.port), "/calico/dhcp/v1/subnet/"+s.dhcp
	usual := w.calico()
	harmed := func() { // and put right, so that the server has seen all before it
		t.Helper()
		w.write(t, map[string]string{subnet: someSubnet})
		want := maps.Clone(usual)
		want[endpoint] = w.calico()[endpoint]
		awaitKeys(t, w, want)
	}
	apitest.Run(t, keys)
	harmed()
	_, renaming := keeping(t, st, control.Options{DNSDomain: "example.org."})
	once(t, renaming)
	renamed := strings.Replace(usual[endpoint], "host-10-65-0-4.openstacklocal", "host-10-65-0-4.example.org", 1)
	harmed()
	if got := w.calico()[endpoint]; got != renamed || renamed == usual[endpoint] {
		t.Errorf("endpoint %s\nwant %s", got, renamed)
	}
	w.write(t, map[string]string{endpoint: strings.Replace(renamed, "host-", "guest-", 1)})
	awaitKeys(t, w, usual)
}

// awaitKeys waits until the keys are those wanted.
func awaitKeys(t *testing.T, w *world, want map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	from, err := w.st.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	changes, _ := w.st.Watch(ctx, from, "/calico/")
	for {
		d := cmp.Diff(want, w.calico())
		if d == "" {
			return
		}
		if _, more := <-changes; !more {
			t.Fatalf("keys (-want +got):\n%s", d)
		}
	}
}

// TestKeysAtTwoServers: servers that put the same keys right while both change their objects end at
// the same.
func TestKeysAtTwoServers(t *testing.T) {
	t.Parallel()
	st := inEtcd(t, false)
	w, keys := keeping(t, st, control.Options{})
	other, otherKeys := keeping(t, st, control.Options{})
	s := w.site()
	apitest.Run(t, keys)
	apitest.Run(t, otherKeys)
	w.write(t, s.foreign())
	got := together(24, func(i int) error {
		at := []*world{w, other}[i%2]
		switch i % 4 {
		case 0:
			_, err := at.create(at.admin, neutron.Ports, `{"network_id":"`+s.network+`","device_id":"vm","binding:host_id":"h2"}`)
			return err
		case 1:
			_, err := at.change(at.admin, neutron.Ports, s.port, []string{`{"binding:host_id":"h1"}`, `{"binding:host_id":"h2"}`, `{"device_id":"x"}`}[i%3])
			return err
		}
		at.write(at.t, s.harm())
		return nil
	})
	if got[""] != 24 {
		t.Errorf("outcomes %v", got)
	}
	w.keysAre(t, s.foreign())
}

// TestRivalIsNotFought: against somebody who always writes something else a key is put right less
// and less often.
func TestRivalIsNotFought(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, keys := keeping(t, store.NewMemory(), control.Options{})
		s := w.site()
		apitest.Run(t, keys)
		key := "/calico/dhcp/v1/subnet/" + s.dhcp
		rival := func() { w.write(t, map[string]string{key: someSubnet}) }
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		from, err := w.st.Revision(ctx)
		if err != nil {
			t.Fatal(err)
		}
		changes, _ := w.st.Watch(ctx, from, key)
		repairs := 0
		rival()
		for c := range changes {
			if len(c.Events) > 0 && string(c.Events[len(c.Events)-1].Value) != someSubnet {
				repairs++
				rival()
			}
		}
		if repairs < 10 || repairs > 40 {
			t.Errorf("put right %d times in ten minutes", repairs)
		}
		w.keysAre(t, nil)
	})
}
