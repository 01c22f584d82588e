package control_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/api/apitest"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/sealing"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// instances returns a world whose server gives hosts the metadata of ports, by the key in a file.
func instances(t *testing.T, st store.Store, keyFile string) following {
	t.Helper()
	key, err := sealing.LoadServerKey(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	f := following{changed: make(chan struct{}, 1)}
	var task *control.Instances
	f.world = openBefore(t, st, control.Options{SecretsKey: key, DNSDomain: "example.org"}, func(s *control.Service, r *replica.Replica) {
		task = control.NewInstances(s, r, slog.New(slog.NewTextHandler(t.Output(), nil)))
		r.OnChange(func(snapshot.Update) {
			select {
			case f.changed <- struct{}{}:
			default:
			}
		})
	})
	apitest.Run(t, task)
	return f
}

// instance waits until a host has an instance of a port for which holds is true, and returns it.
func (f following) instance(what, host, port string, holds func(*topology.Instance) bool) (i *topology.Instance) {
	f.t.Helper()
	f.until(what, func(r records.Reader) bool {
		found, ok := schema.Instances.Peek(r, host+"/"+port)
		i = found
		return ok && holds(found)
	})
	return i
}

// portFor makes a port as an admin, who may bind it and give it to a project.
func (f following) portFor(network, rest string) *neutron.PortView {
	f.t.Helper()
	return must[*neutron.PortView](f.world, f.admin, neutron.Ports, `{"network_id":"`+network+`",`+rest+`}`)
}

// hostKey makes the key of a host and publishes it.
func (f following) hostKey(host string) *sealing.HostKey {
	f.t.Helper()
	k, err := sealing.LoadHostKey(filepath.Join(f.t.TempDir(), "key"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.edit(func(tx *records.Tx) error {
		return schema.MetadataKeys.Put(tx, &topology.MetadataKey{HostID: host, Key: k.Public()})
	})
	return k
}

// give sets metadata of a port.
func (f following) give(c neutron.Caller, port, text string) error {
	f.t.Helper()
	var body map[string]any
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		f.t.Fatal(err)
	}
	change, err := neutron.ParsePortMetadata(body)
	if err != nil {
		f.t.Fatal(err)
	}
	_, err = f.ChangePortMetadata(f.t.Context(), c, port, change)
	return err
}

func sealed(i *topology.Instance) bool { return i.Secrets != nil && i.Secrets.Box != nil }

// openSecrets decrypts the secrets of an instance.
func openSecrets(k *sealing.HostKey, i *topology.Instance) (m topology.InstanceSecrets, err error) {
	if i.Secrets == nil {
		return m, errors.New("no secrets")
	}
	secret, err := k.Open(schema.Instances.ID(i), i.Secrets.Box)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(secret, &m)
}

// TestInstances follows a machine's facts to its host: what they are, and what changes them.
func TestInstances(t *testing.T) {
	t.Parallel()
	f := instances(t, store.NewMemory(), filepath.Join(t.TempDir(), "key"))
	f.putHost("h1", "one")
	f.putHost("h2", "two")
	n := f.network(`{"mtu":1400}`)
	sub := f.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24","dns_nameservers":["192.0.2.53"],"host_routes":[{"destination":"172.16.0.0/12","nexthop":"10.0.0.9"}]`)
	g := must[*neutron.SecurityGroupView](f.world, f.admin, neutron.SecurityGroups, `{"name":"web"}`)
	p := f.portFor(n.ID, fmt.Sprintf(`"name":"db 1","device_id":"m1","security_groups":[%q],"mac_address":"fa:16:3e:00:00:01","fixed_ips":[{"ip_address":"10.0.0.5"}],"binding:host_id":"one"`, g.ID))
	always := func(*topology.Instance) bool { return true }
	got := f.instance("the host has the port's instance", "h1", p.ID, always)
	want := &topology.Instance{
		HostID: "h1", PortID: p.ID, DeviceID: "m1", ProjectID: p.ProjectID, Name: "db 1", Domain: "example.org", Zone: "nova", Groups: []string{"web"},
		Links: []topology.InstanceLink{{PortID: p.ID, MAC: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}, MTU: 1400, NetworkID: n.ID, Subnets: []topology.InstanceSubnet{{
			Address: netip.MustParsePrefix("10.0.0.5/24"), Gateway: netip.MustParseAddr("10.0.0.1"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, DHCP: true,
			Routes: []topology.Opt121Route{{DstSubnet: netip.MustParsePrefix("172.16.0.0/12"), Gateway: netip.MustParseAddr("10.0.0.9")}},
		}}}},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}

	for what, change := range map[string]struct {
		resource neutron.Resource
		id, text string
		holds    func(*topology.Instance) bool
	}{
		"a name":           {neutron.Ports, p.ID, `{"name":"payroll-host"}`, func(i *topology.Instance) bool { return i.Name == "payroll-host" }},
		"a group's name":   {neutron.SecurityGroups, g.ID, `{"name":"db"}`, func(i *topology.Instance) bool { return i.Groups[0] == "db" }},
		"a network's MTU":  {neutron.Networks, n.ID, `{"mtu":1300}`, func(i *topology.Instance) bool { return i.Links[0].MTU == 1300 }},
		"DNS of a subnet":  {neutron.Subnets, sub.ID, `{"dns_nameservers":[]}`, func(i *topology.Instance) bool { return len(i.Links[0].Subnets[0].DNS) == 0 }},
		"DHCP of a subnet": {neutron.Subnets, sub.ID, `{"enable_dhcp":false}`, func(i *topology.Instance) bool { return !i.Links[0].Subnets[0].DHCP }},
	} {
		if _, err := f.change(f.admin, change.resource, change.id, change.text); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		f.instance(what+" reaches the host", "h1", p.ID, change.holds)
	}
	f.edit(func(tx *records.Tx) error {
		return schema.Underlays.Put(tx, &topology.HostUnderlay{HostID: "h1", AvailabilityZone: "east"})
	})
	f.instance("the host's zone", "h1", p.ID, func(i *topology.Instance) bool { return i.Zone == "east" })

	second := f.portFor(n.ID, `"device_id":"m1","binding:host_id":"two"`)
	f.instance("a second port of the machine", "h1", p.ID, func(i *topology.Instance) bool { return len(i.Links) == 2 })
	f.instance("the second port's own", "h2", second.ID, func(i *topology.Instance) bool { return len(i.Links) == 2 })
	other := f.portFor(n.ID, `"device_id":"m1","project_id":"stranger","binding:host_id":"two"`)
	f.instance("a port of another project with the same device", "h2", other.ID, func(i *topology.Instance) bool { return len(i.Links) == 1 })

	f.edit(func(tx *records.Tx) error { return schema.Instances.Delete(tx, "h1/"+p.ID) })
	f.instance("an instance that someone deleted", "h1", p.ID, always)
	if _, err := f.change(f.admin, neutron.Ports, p.ID, `{"device_owner":"network:dhcp"}`); err != nil {
		t.Fatal(err)
	}
	f.until("ports of the network's own have none", func(r records.Reader) bool { return schema.Instances.CountBy(r, "port", p.ID) == 0 })
	if err := f.remove(f.admin, neutron.Ports, second.ID); err != nil {
		t.Fatal(err)
	}
	f.until("a port that is gone has none", func(r records.Reader) bool { return schema.Instances.CountBy(r, "port", second.ID) == 0 })
}

// TestPortMetadata: what users give reaches the hosts that serve the port and no other, who may set
// it, and where it goes.
func TestPortMetadata(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	f := instances(t, st, filepath.Join(t.TempDir(), "key"))
	f.putHost("h1", "one")
	f.putHost("h2", "two")
	n := f.network(`{}`)
	f.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	tenant := neutron.Caller{ProjectID: "acme", Roles: []string{"member"}}
	reader := neutron.Caller{ProjectID: "acme", Roles: []string{"reader"}}
	stranger := neutron.Caller{ProjectID: "stranger", Roles: []string{"member"}}
	p := f.portFor(n.ID, `"project_id":"acme","device_id":"m1","binding:host_id":"one"`)
	const userData = "c2VjcmV0" // secret
	if err := f.give(tenant, p.ID, `{"user_data":"`+userData+`","hostname":"db"}`); err != nil {
		t.Fatal(err)
	}
	f.instance("without a key of the host nothing is sealed, and that shows", "h1", p.ID, func(i *topology.Instance) bool {
		return i.Secrets != nil && i.Secrets.Box == nil && i.Secrets.Key == ""
	})
	key := f.hostKey("h1")
	i := f.instance("the host's key", "h1", p.ID, sealed)
	if m, err := openSecrets(key, i); err != nil || string(m.UserData) != "secret" || m.Hostname != "db" {
		t.Errorf("the host opens %+v, %v", m, err)
	}

	if v, err := f.PortMetadata(t.Context(), reader, p.ID); err != nil || v.Hostname != "db" || string(v.UserData) != "secret" {
		t.Errorf("a reader of the project sees %+v, %v", v, err)
	}
	for what, err := range map[string]error{
		"reader sets":           f.give(reader, p.ID, `{"hostname":"x"}`),
		"stranger sets":         f.give(stranger, p.ID, `{"hostname":"x"}`),
		"stranger deletes":      f.DeletePortMetadata(t.Context(), stranger, p.ID),
		"reader deletes":        f.DeletePortMetadata(t.Context(), reader, p.ID),
		"network's owner sets":  f.give(neutron.Caller{ProjectID: n.ProjectID, Roles: []string{"member"}}, p.ID, `{"hostname":"x"}`),
		"of a port that is not": f.give(tenant, "none", `{"hostname":"x"}`),
	} {
		if e := (*neutron.Error)(nil); !errors.As(err, &e) || e.Kind != neutron.Forbidden && e.Kind != neutron.NotFound {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
	}
	if _, err := f.PortMetadata(t.Context(), stranger, p.ID); err == nil {
		t.Error("a stranger sees the metadata")
	}
	if err := f.give(tenant, p.ID, `{"hostname":"payroll-host"}`); err != nil {
		t.Fatal(err)
	}
	i = f.instance("a change", "h1", p.ID, func(now *topology.Instance) bool {
		return sealed(now) && string(now.Secrets.Digest) != string(i.Secrets.Digest)
	})
	if m, err := openSecrets(key, i); err != nil || string(m.UserData) != "secret" || m.Hostname != "payroll-host" {
		t.Errorf("after a change the host opens %+v, %v", m, err)
	}

	second := f.portFor(n.ID, `"project_id":"acme","device_id":"m1","binding:host_id":"one"`)
	i = f.instance("another port of the machine", "h1", second.ID, sealed)
	if m, err := openSecrets(key, i); err != nil || m.Hostname != "payroll-host" {
		t.Errorf("for another port of the machine the host opens %+v, %v", m, err)
	}
	stolen := f.portFor(n.ID, `"project_id":"stranger","device_id":"m1","binding:host_id":"one"`)
	f.instance("a port of another project with the same device gets nothing", "h1", stolen.ID, func(i *topology.Instance) bool { return i.Secrets == nil })

	key2 := f.hostKey("h2")
	if _, err := f.change(f.admin, neutron.Ports, p.ID, `{"binding:host_id":"two"}`); err != nil {
		t.Fatal(err)
	}
	i = f.instance("moved", "h2", p.ID, sealed)
	if m, err := openSecrets(key2, i); err != nil || m.Hostname != "payroll-host" {
		t.Errorf("the next host opens %+v, %v", m, err)
	}
	if _, err := openSecrets(key, i); err == nil {
		t.Error("another host opens it")
	}
	again := f.hostKey("h2") // it has joined anew
	i = f.instance("another key of the host", "h2", p.ID, func(i *topology.Instance) bool {
		return sealed(i) && i.Secrets.Key == sealing.Fingerprint(again.Public())
	})
	if _, err := openSecrets(again, i); err != nil {
		t.Errorf("with its new key the host opens nothing: %v", err)
	}

	kvs, _, err := st.List(t.Context(), schema.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		if strings.Contains(string(kv.Value), userData) || strings.Contains(string(kv.Value), "payroll-host") {
			t.Errorf("%s has a secret as it is: %s", kv.Key, kv.Value)
		}
	}
	if err := f.DeletePortMetadata(t.Context(), tenant, p.ID); err != nil {
		t.Fatal(err)
	}
	f.instance("removed", "h2", p.ID, func(i *topology.Instance) bool { return i.Secrets == nil })
	if err := f.DeletePortMetadata(t.Context(), tenant, p.ID); err != nil {
		t.Errorf("removed again: %v", err)
	}
	if err := f.give(tenant, p.ID, `{"hostname":"db"}`); err != nil {
		t.Fatal(err)
	}
	if err := f.remove(f.admin, neutron.Ports, p.ID); err != nil {
		t.Fatal(err)
	}
	f.until("metadata goes with its port", func(r records.Reader) bool { return schema.PortMetadatas.Count(r) == 0 })
}

// TestServersWithTwoKeys: a server that was given another key says so, and leaves what the others
// have sealed.
func TestServersWithTwoKeys(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	f := instances(t, st, filepath.Join(t.TempDir(), "key"))
	f.putHost("h1", "one")
	key := f.hostKey("h1")
	n := f.network(`{}`)
	f.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	p, q := f.portFor(n.ID, `"binding:host_id":"one"`), f.portFor(n.ID, `"binding:host_id":"one"`)
	if err := f.give(f.admin, p.ID, `{"hostname":"db"}`); err != nil {
		t.Fatal(err)
	}
	f.instance("sealed", "h1", p.ID, sealed)
	other := instances(t, st, filepath.Join(t.TempDir(), "key"))
	for what, err := range map[string]error{"the same port": other.give(f.admin, p.ID, `{"hostname":"x"}`), "another port": other.give(f.admin, q.ID, `{"hostname":"x"}`)} {
		for _, want := range []string{"secrets.key", "keep the one that you replace", p.ID, "heddle metadata unset --port"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an error with %q", what, err, want)
			}
		}
	}
	if _, err := other.change(f.admin, neutron.Ports, p.ID, `{"name":"db"}`); err != nil {
		t.Fatal(err)
	}
	i := f.instance("a change by the other server", "h1", p.ID, func(i *topology.Instance) bool { return i.Name == "db" })
	if m, err := openSecrets(key, i); err != nil || m.Hostname != "db" {
		t.Errorf("the host opens %+v, %v", m, err)
	}

	keyless := open(t, st, control.Options{})
	if err := (following{world: keyless}).give(f.admin, q.ID, `{"hostname":"x"}`); err == nil || !strings.Contains(err.Error(), "copy the file secrets.key") {
		t.Errorf("without a key: %v, want an error that says what to do", err)
	}
	if err := keyless.DeletePortMetadata(t.Context(), f.admin, p.ID); err != nil {
		t.Errorf("giving up what a lost key has sealed: %v", err)
	}
	if err := other.give(f.admin, q.ID, `{"hostname":"x"}`); err != nil {
		t.Errorf("once nothing is sealed with the lost key: %v", err)
	}
}
