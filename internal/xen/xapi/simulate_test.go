package xapi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/task"
	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// twoPools has what most tests need: a pool of three hosts, and a pool of one that may join it.
const twoPools = `
pools:
- name: lab
  password: secret
  hosts:
  - {name: h1, address: 192.0.2.1, pifs: [
      {device: eth0, network: mgmt, ip: 192.0.2.1, netmask: 255.255.255.0, management: true},
      {device: eth1, network: data, ip: 198.51.100.1, netmask: 255.255.255.0},
      {device: eth2, network: spare}, {device: eth3, network: more}]}
  - {name: h2, address: 192.0.2.2, pifs: [
      {device: eth0, network: mgmt, ip: 192.0.2.2, netmask: 255.255.255.0, management: true},
      {device: eth1, network: data, mode: DHCP}]}
  - {name: h3, address: 192.0.2.3, backend: bridge, pifs: [
      {device: eth0, network: mgmt, ip: 192.0.2.3, netmask: 255.255.255.0, management: true},
      {device: eth1, network: data, ip: 198.51.100.3, netmask: 255.255.255.0}]}
  vms: [{name: busy, host: h1, power_state: Running}, {name: idle}]
- name: single
  password: other
  hosts:
  - {name: j1, address: 203.0.113.1, pifs: [
      {device: nic0, network: mgmt, ip: 203.0.113.1, netmask: 255.255.255.0, management: true},
      {device: nic7, network: data, ip: 198.51.100.9, netmask: 255.255.255.0}]}
`

// user is a session at a simulated pool.
type user struct {
	t  testing.TB
	at *client.Session
}

// simulated serves the pools of a file and logs root in at each.
func simulated(t testing.TB, file string, passwords ...string) (*Simulation, []user) {
	t.Helper()
	s, err := NewSimulation([]byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- task.Run(ctx, s) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	var users []user
	for i, p := range s.Pools() {
		at, err := client.Dial(t.Context(), client.Options{URL: p.URL, User: "root", Password: passwords[i], JSON: i%2 == 1})
		if err != nil {
			t.Fatal(err)
		}
		users = append(users, user{t, at})
	}
	t.Cleanup(func() {
		for _, u := range users {
			_ = u.at.Close(context.Background())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, users
}

// lab is the first of twoPools.
func lab(t testing.TB) user {
	_, users := simulated(t, twoPools, "secret", "other")
	return users[0]
}

func (u user) call(method string, args ...any) (any, error) {
	return u.at.Call(u.t.Context(), method, args...)
}

func (u user) must(method string, args ...any) any {
	u.t.Helper()
	v, err := u.call(method, args...)
	if err != nil {
		u.t.Fatalf("%s %v: %v", method, args, err)
	}
	return v
}

// ref is like must, of calls that answer a reference.
func (u user) ref(method string, args ...any) string {
	u.t.Helper()
	return u.must(method, args...).(string)
}

// fails makes a call that is to fail with "CODE param param…"; of params "*" stands for any.
func (u user) fails(want, method string, args ...any) {
	u.t.Helper()
	v, err := u.call(method, args...)
	failure := (*model.Error)(nil)
	if !errors.As(err, &failure) {
		u.t.Fatalf("%s %v: got %v, %v; want %s", method, args, v, err, want)
	}
	words := strings.Fields(want)
	ok := failure.Code == words[0] && (len(words) > 1 && words[1] == "**" || len(failure.Params) == len(words)-1)
	for i, p := range failure.Params {
		ok = ok && (words[1] == "**" || words[i+1] == "*" || words[i+1] == p)
	}
	if !ok {
		u.t.Fatalf("%s %v: got %v; want %s", method, args, err, want)
	}
}

func (u user) named(class, name string) string {
	u.t.Helper()
	for ref, r := range u.records(class) {
		if r["name_label"] == name {
			return ref
		}
	}
	u.t.Fatalf("no %s named %s", class, name)
	return ""
}

func (u user) records(class string) map[string]model.Record {
	u.t.Helper()
	all, err := u.at.Records(u.t.Context(), class)
	if err != nil {
		u.t.Fatal(err)
	}
	return all
}

// get is one field.
func (u user) get(class, ref, field string) any {
	u.t.Helper()
	return u.must(class+".get_"+field, ref)
}

// pif is a host's PIF by its device.
func (u user) pif(host, device string) string {
	u.t.Helper()
	h := u.named("host", host)
	for ref, r := range u.records("PIF") {
		if r["host"] == h && r["device"] == device && r["VLAN"] == int64(-1) {
			return ref
		}
	}
	u.t.Fatalf("host %s has no PIF %s", host, device)
	return ""
}

// network makes a network.
func (u user) network(name string) string {
	u.t.Helper()
	return u.ref("network.create", map[string]any{"name_label": name})
}

// TestSimulatedPool: everything is made as the file says.
func TestSimulatedPool(t *testing.T) {
	t.Parallel()
	u := lab(t)
	pools := u.records("pool")
	if len(pools) != 1 {
		t.Fatalf("%d pools", len(pools))
	}
	for _, p := range pools {
		if p["name_label"] != "lab" || p["master"] != u.named("host", "h1") {
			t.Errorf("pool %v", p)
		}
	}
	for name, backend := range map[string]string{"h1": "openvswitch", "h2": "openvswitch", "h3": "bridge"} {
		h := u.named("host", name)
		if got := u.get("host", h, "software_version").(map[string]string)["network_backend"]; got != backend {
			t.Errorf("%s: network_backend %s, want %s", name, got, backend)
		}
		if u.get("host_metrics", u.get("host", h, "metrics").(string), "live") != true {
			t.Errorf("%s is not live", name)
		}
	}
	data := u.records("PIF")[u.pif("h1", "eth1")]
	for field, want := range map[string]any{"IP": "198.51.100.1", "netmask": "255.255.255.0", "ip_configuration_mode": "Static", "currently_attached": true, "management": false,
		"physical": true, "network": u.named("network", "data"), "VLAN": int64(-1)} {
		if data[field] != want {
			t.Errorf("PIF eth1: %s is %v, want %v", field, data[field], want)
		}
	}
	if got := u.get("network", u.named("network", "mgmt"), "bridge"); got != "xenbr0" {
		t.Errorf("bridge of mgmt is %v", got)
	}
	if u.get("PIF", u.pif("h1", "eth2"), "ip_configuration_mode") != "None" || u.get("PIF", u.pif("h2", "eth1"), "ip_configuration_mode") != "DHCP" {
		t.Error("modes are not those of the file")
	}
	if u.get("VM", u.named("VM", "busy"), "resident_on") != u.named("host", "h1") {
		t.Error("the VM does not run where the file says")
	}
}

// TestSimulatedFileRefused: mistakes are named with their place.
func TestSimulatedFileRefused(t *testing.T) {
	t.Parallel()
	host := func(rest string) string {
		return `{"pools": [{"name": "p", "password": "x", "hosts": [{"name": "h", "address": "192.0.2.1", ` + rest + `}]}]}`
	}
	for _, c := range []struct{ file, want string }{
		{`{`, "neither YAML nor JSON"},
		{`[]`, "file: want an object"},
		{`{}`, "file.pools: want at least one pool"},
		{`{"pools": [{"name": "p", "password": "x", "colour": 1, "hosts": []}]}`, "file.pools[0].colour: unknown field"},
		{`{"pools": [{"name": "p", "hosts": [{}]}]}`, "file.pools[0].password: want"},
		{`{"pools": [{"name": "p", "password": "x"}]}`, "file.pools[0].hosts: want at least one host"},
		{`{"pools": [{"name": "p", "password": "x", "hosts": [{"name": "h", "address": "192.0.2.1"}, {"name": "h", "address": "192.0.2.2"}]}]}`, "file.pools[0].hosts[1].name: h is there twice"},
		{host(`"backend": "ovs"`), `file.pools[0].hosts[0].backend: is "ovs", want openvswitch, bridge`},
		{host(`"live": 3`), "file.pools[0].hosts[0].live: want true or false"},
		{host(`"pifs": [{"device": "eth0", "network": "a", "mode": "static"}]`), `hosts[0].pifs[0].mode: is "static", want None, DHCP, Static`},
		{host(`"pifs": [{"device": "eth0", "network": "a", "ip": "1.2.3"}]`), `pifs[0].ip: "1.2.3" is no IPv4 address`},
		{host(`"pifs": [{"device": "eth0", "network": "a", "mac": "x"}]`), `pifs[0].mac: "x" is no MAC address`},
		{host(`"pifs": [{"device": "eth0", "network": "a"}, {"device": "eth1", "network": "a"}]`), "pifs[1].network: another PIF of the host is on network a"},
		{host(`"pifs": [{"device": "eth0", "network": "a", "vlan": 5000}]`), "pifs[0].vlan: want 1 to 4094, or none"},
		{host(`"pifs": [{"device": "bond0", "network": "a", "bond_slaves": ["bond0"]}]`), "pifs[0].bond_slaves[0]: want another interface"},
	} {
		if _, err := NewSimulation([]byte(c.file), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot  %v\nwant %s", c.file, err, c.want)
		}
	}
}

// FuzzSimulatedFile: no file brings the reader down, and one that it takes makes a pool.
func FuzzSimulatedFile(f *testing.F) {
	f.Add(twoPools)
	f.Add(`{"pools": [{"name": "p", "password": "x", "hosts": [{"name": "h", "address": "::1", "pifs": [{"device": "b", "bond_slaves": ["e", "e"]}, {"device": "e", "vlan": 3}]}]}]}`)
	f.Add(`{"pools": [{"name": null, "hosts": [null]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		pools, err := parseSimulated([]byte(text))
		if err != nil {
			return
		}
		st := store.NewMemory()
		defer st.Close()
		rep := replica.New(st, replica.Options{}, append(objects.Tables(), accounts)...)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- rep.Run(ctx) }()
		<-rep.Ready()
		s := &Simulation{now: time.Now, asleep: map[string]*objects.HostReport{}}
		_, err = records.NewDB(st, rep).Update(ctx, func(tx *records.Tx) error {
			if err := ensurePool(tx); err != nil {
				return err
			}
			return changing(func(p *pool) { s.buildPool(p, pools[0], "hash", newRefs(pools[0])) })(tx)
		})
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		cancel()
		<-done
	})
}

// TestSimulatedInterfaces: bonds and VLANs of a file, with what they are on though the file leaves
// it out; PIFs that are not attached.
func TestSimulatedInterfaces(t *testing.T) {
	t.Parallel()
	_, users := simulated(t, `{"pools": [{"name": "p", "password": "x", "hosts": [{"name": "h", "address": "192.0.2.1", "live": null, "pifs": [
		{"device": "bond0", "network": "lan", "mode": "Static", "ip": "192.0.2.1", "netmask": "255.255.255.0", "bond_slaves": ["eth1", "eth0"], "vlan": -1},
		{"device": "eth0", "network": "lan"}, {"device": "eth5", "network": "v", "vlan": 9, "mode": "DHCP"}, {"device": "eth6", "network": "off", "attached": false, "bridge": "br-off"}]}]}]}`, "x")
	u := users[0]
	bond, eth0 := u.records("PIF")[u.pif("h", "bond0")], u.records("PIF")[u.pif("h", "eth0")]
	of := bond["bond_master_of"].([]string)
	if len(of) != 1 || u.get("Bond", of[0], "primary_slave") != u.pif("h", "eth1") || eth0["bond_slave_of"] != of[0] || bond["IP"] != "192.0.2.1" || bond["physical"] != false {
		t.Errorf("bond %v\nmember %v", bond, eth0)
	}
	if bond["network"] != u.named("network", "lan") || eth0["network"] == bond["network"] {
		t.Error("the bond's network is not the file's")
	}
	for _, vlan := range u.records("VLAN") {
		if vlan["tag"] != int64(9) || vlan["tagged_PIF"] != u.pif("h", "eth5") {
			t.Errorf("VLAN %v", vlan)
		}
		u.ref("tunnel.create", vlan["untagged_PIF"], u.network("n"))
		u.fails("PIF_TUNNEL_STILL_EXISTS *", "VLAN.destroy", u.must("VLAN.get_by_uuid", vlan["uuid"]))
	}
	if u.get("PIF", u.pif("h", "eth6"), "currently_attached") != false || u.get("network", u.named("network", "off"), "bridge") != "br-off" {
		t.Error("eth6 is not as the file says")
	}
	u.ref("tunnel.create", u.pif("h", "bond0"), u.network("m"))
	u.must("Bond.destroy", of[0])
}

// TestControlFile: hosts die and come back as a control file says, one that is written to and one
// that is a pipe.
func TestControlFile(t *testing.T) {
	t.Parallel()
	s, users := simulated(t, twoPools, "secret", "other")
	u := users[0]
	file := filepath.Join(t.TempDir(), "control")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.FollowControl(ctx, file) }()
	h2 := u.named("host", "h2")
	metrics := u.get("host", h2, "metrics").(string)
	is := func(live bool) func() bool {
		return func() bool { return u.get("host_metrics", metrics, "live") == live }
	}
	for i, line := range []string{"host h2 dead\n", "host nobody dead\nrubbish\nhost h2 live\n", "host h2 dead\n"} {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, line, is(i == 1))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	n := u.network("n")
	u.fails("HOST_OFFLINE "+h2, "tunnel.create", u.pif("h2", "eth1"), n)
	if err := s.Control(t.Context(), "host h2 live"); err != nil {
		t.Fatal(err)
	}
	u.ref("tunnel.create", u.pif("h2", "eth1"), n)
	if err := s.Control(t.Context(), "host h2 asleep"); err == nil {
		t.Error("a mistaken line was taken")
	}
}

// TestControlPipe: nobody has to write to a pipe for the simulation to end.
func TestControlPipe(t *testing.T) {
	t.Parallel()
	s, err := NewSimulation([]byte(twoPools), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.FollowControl(ctx, pipe); err != nil {
		t.Error(err)
	}
}
