package xapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// machine is the report of a host with two interfaces, one of them on a bridge.
func machine(n int, can ...string) *objects.HostReport {
	id := fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", n)
	return &objects.HostReport{Host: refPrefix + id, ID: id, Name: fmt.Sprint("m", n), Address: fmt.Sprint("192.0.2.", n), Backend: "openvswitch", Version: "1", Started: time.Unix(1, 0),
		Memory: [2]int64{100, 50}, Can: can, Interfaces: []objects.Interface{
			{Device: "ens3", MAC: fmt.Sprintf("02:00:00:00:01:0%d", n), MTU: 1600, Bridge: "br-phy", Carrier: true, Speed: 1000, Duplex: true, Physical: true, Mode: "Static", IP: fmt.Sprint("192.0.2.", n), Netmask: "255.255.255.0"},
			{Device: "ens4", MAC: fmt.Sprintf("02:00:00:00:02:0%d", n), MTU: 1500, Physical: true, Mode: "None"},
		}}
}

// report puts a report in the store, and waits until the keeper has seen it.
func report(t testing.TB, s *Server, r *objects.HostReport) {
	t.Helper()
	err := s.update(t.Context(), func(tx *records.Tx) error { return objects.HostReports.Put(tx, r) })
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the keeper makes the host", func() bool {
		h, ok := objects.Table("host").Peek(s.now(), r.Host)
		return ok && h.Map("other_config")[startedKey] == r.Started.UTC().Format(time.RFC3339Nano)
	})
}

// agent plays the agents of a server's hosts until the test ends: f is called after each change, in
// transactions.
func agent(t testing.TB, s *Server, f func(tx *records.Tx) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for {
			rung := s.bell.Next()
			if err := s.update(ctx, f); err != nil && ctx.Err() == nil {
				done <- err
				return
			}
			select {
			case <-rung:
			case <-ctx.Done():
				done <- nil
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestKeeper: reports become hosts, PIFs and networks, and go on being them.
func TestKeeper(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	first, second := machine(1), machine(2)
	report(t, s, first)
	report(t, s, second)
	pool, err := thePool(s.now())
	if err != nil || pool.Text("master") != first.Host {
		t.Fatalf("the coordinator is %v, %v", pool, err)
	}
	host := c.records("host")[first.Host].(map[string]any)
	if software := host["software_version"].(map[string]any); software["network_backend"] != "openvswitch" || host["address"] != "192.0.2.1" || host["uuid"] != first.ID || host["name_label"] != "m1" {
		t.Errorf("host %v", host)
	}
	for _, device := range []string{"ens3", "ens4"} {
		a, b := pifOf(s, first.Host, device), pifOf(s, second.Host, device)
		if a.Text("network") != b.Text("network") {
			t.Errorf("the hosts' %s are on different networks", device)
		}
	}
	ens3 := pifOf(s, first.Host, "ens3")
	network, _ := objects.Table("network").Peek(s.now(), ens3.Text("network"))
	if network.Text("bridge") != "br-phy" || !ens3.Bool("management") || ens3.Int("MTU") != 1600 || ens3.Text("IP") != "192.0.2.1" || !ens3.Bool("currently_attached") {
		t.Errorf("PIF %v on %v", ens3.Fields, network.Fields)
	}
	metrics, _ := objects.Table("PIF_metrics").Peek(s.now(), ens3.Text("metrics"))
	if !metrics.Bool("carrier") || metrics.Int("speed") != 1000 {
		t.Errorf("metrics %v", metrics.Fields)
	}

	changed := *first
	changed.Interfaces = slices.Clone(first.Interfaces)
	changed.Interfaces[1].Mode, changed.Interfaces[1].IP, changed.Interfaces[1].Carrier = "DHCP", "198.51.100.1", true
	changed.Interfaces = append(changed.Interfaces, objects.Interface{Device: "ens5", MAC: "02:00:00:00:03:01", MTU: 1500, Physical: true, Mode: "None"})
	changed.Started = time.Unix(2, 0)
	report(t, s, &changed)
	if ens4 := pifOf(s, first.Host, "ens4"); ens4.Text("ip_configuration_mode") != "DHCP" || ens4.Text("IP") != "198.51.100.1" {
		t.Errorf("PIF %v", ens4.Fields)
	}
	if pifOf(s, first.Host, "ens5") == nil {
		t.Error("a new interface has no PIF")
	}
	ens5 := pifOf(s, first.Host, "ens5")
	c.must("PIF.forget", ens5.Ref)
	changed.Memory[1]++
	changed.Started = time.Unix(3, 0)
	report(t, s, &changed)
	if pifOf(s, first.Host, "ens5") != nil {
		t.Error("a forgotten interface came back by itself")
	}
	c.must("PIF.scan", first.Host)
	if pifOf(s, first.Host, "ens5") == nil {
		t.Error("a scan does not find a forgotten interface")
	}
}

func pifOf(s *Server, host, device string) *objects.Object {
	return first(s.now(), "PIF", "host_device", hostDevice(host, device))
}

// TestKeeperIPv6: a host that is reached by IPv6 alone, on an interface with a long name.
func TestKeeperIPv6(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	m := machine(1)
	m.Address = "2001:db8::1"
	m.Interfaces = []objects.Interface{{Device: "enp0s31f6np0d12", MAC: "02:00:00:00:01:01", MTU: 1500, Physical: true, Mode: "None", IPv6: []string{"2001:db8::1/64"}}}
	report(t, s, m)
	pif := pifOf(s, m.Host, "enp0s31f6np0d12")
	if !pif.Bool("management") || pif.Text("primary_address_type") != "IPv6" || pif.Text("ipv6_configuration_mode") != "Static" {
		t.Errorf("PIF %v", pif.Fields)
	}
	network, _ := objects.Table("network").Peek(s.now(), pif.Text("network"))
	if name := network.Text("bridge"); len(name) > maxBridgeName || !strings.HasPrefix(name, "br") {
		t.Errorf("bridge %q", name)
	}
	agent(t, s, changing(reportBridges))
	c.must("tunnel.create", pif.Ref, c.must("network.create", map[string]any{"name_label": "n"}))
}

// TestKeeperIdle: what is done is done, however many servers look at it.
func TestKeeperIdle(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	t.Cleanup(func() { st.Close() })
	s := started(t, Options{Store: st})
	report(t, s, machine(1))
	for range 3 {
		other := started(t, Options{Store: st})
		if n := objects.Table("pool").Count(other.now()); n != 1 {
			t.Fatalf("%d pools", n)
		}
		if n := objects.Table("PIF").Count(other.now()); n != 2 {
			t.Fatalf("%d PIFs", n)
		}
	}
	before, err := st.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.update(t.Context(), changing(func(p *pool) { p.keepHost(machine(1).Host, "", time.Unix(9, 0)) })); err != nil {
		t.Fatal(err)
	}
	if after, _ := st.Revision(t.Context()); after != before {
		t.Error("looking after a host that has not changed writes")
	}
}

// TestKeeperServersAtOnce: servers that see the same first reports at the same time make each
// object once.
func TestKeeperServersAtOnce(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	t.Cleanup(func() { st.Close() })
	servers := []*Server{started(t, Options{Store: st}), started(t, Options{Store: st}), started(t, Options{Store: st})}
	for n := 1; n <= 5; n++ {
		report(t, servers[n%3], machine(n))
	}
	for _, s := range servers {
		for class, want := range map[string]int{"pool": 1, "host": 5, "host_metrics": 5, "PIF": 10, "PIF_metrics": 10, "network": 2} {
			eventually(t, "every server has every object once", func() bool { return objects.Table(class).Count(s.now()) == want })
		}
	}
	var tables []records.Target
	for _, c := range model.Classes() {
		if table := objects.Table(c.Name); table != nil {
			tables = append(tables, table)
		}
	}
	if err := records.Verify(t.Context(), st, tables...); err != nil {
		t.Error(err)
	}
}

// TestKeeperBondAndVLAN: a bond and a VLAN that the host has itself.
func TestKeeperBondAndVLAN(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	m := machine(1)
	m.Interfaces[0].Mode, m.Interfaces[0].IP, m.Interfaces[0].Bridge = "None", "", ""
	m.Interfaces = append([]objects.Interface{
		{Device: "bond0", VLAN: 7, MAC: m.Interfaces[0].MAC, MTU: 1500, Mode: "Static", IP: "198.51.100.1", Netmask: "255.255.255.0"},
		{Device: "bond0", Members: []string{"ens3", "ens4"}, MAC: m.Interfaces[0].MAC, MTU: 1500, Mode: "Static", IP: "192.0.2.1", Netmask: "255.255.255.0"},
	}, m.Interfaces...)
	report(t, s, m)
	bond := first(s.now(), "Bond", "master", pifOf(s, m.Host, "bond0").Ref)
	if bond == nil || bond.Text("primary_slave") != pifOf(s, m.Host, "ens3").Ref || pifOf(s, m.Host, "ens4").Text("bond_slave_of") != bond.Ref {
		t.Fatalf("bond %v", bond)
	}
	vlan := by(s.now(), "VLAN", "tagged_PIF", pifOf(s, m.Host, "bond0").Ref)
	if len(vlan) != 1 || vlan[0].Int("tag") != 7 {
		t.Fatalf("VLANs %v", vlan)
	}
	c.fails("OPERATION_NOT_ALLOWED", "Bond.destroy", bond.Ref)
	c.fails("OPERATION_NOT_ALLOWED", "VLAN.destroy", vlan[0].Ref)
	untagged, _ := objects.Table("PIF").Peek(s.now(), vlan[0].Text("untagged_PIF"))
	if untagged.Text("IP") != "198.51.100.1" || untagged.Text("metrics") != pifOf(s, m.Host, "bond0").Text("metrics") {
		t.Errorf("the VLAN's PIF is %v", untagged.Fields)
	}
	gone := *m
	gone.Interfaces, gone.Started = m.Interfaces[1:], time.Unix(2, 0)
	report(t, s, &gone)
	c.must("VLAN.destroy", vlan[0].Ref)
}

// TestOrders: a tunnel is there once the host has made its bridge, and gone once the host has taken
// it away.
func TestOrders(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	m := machine(1)
	report(t, s, m)
	agent(t, s, changing(reportBridges))
	net := c.must("network.create", map[string]any{"name_label": "n"}).(string)
	tunnel := c.must("tunnel.create", pifOf(s, m.Host, "ens3").Ref, net).(string)
	access := c.must("tunnel.get_access_PIF", tunnel).(string)
	bridge, ok := objects.BridgeReports.Peek(s.now(), m.Host+"/xapi0")
	if mac := c.must("PIF.get_MAC", access); !ok || bridge.Bridge.MAC != mac || bridge.Bridge.MTU != 1500 || bridge.Bridge.FailMode != "standalone" {
		t.Errorf("bridge %v, access PIF's MAC %v", bridge, mac)
	}
	if n := objects.Orders.Count(s.now()); n != 0 {
		t.Errorf("%d orders are left", n)
	}
	c.must("PIF.unplug", access)
	if _, there := objects.BridgeReports.Peek(s.now(), m.Host+"/xapi0"); there {
		t.Error("the bridge is there after the PIF was unplugged")
	}
	c.must("PIF.plug", access)
	if _, there := objects.BridgeReports.Peek(s.now(), m.Host+"/xapi0"); !there {
		t.Error("the bridge is not there after the PIF was plugged")
	}
	c.must("tunnel.destroy", tunnel)
	if _, there := objects.BridgeReports.Peek(s.now(), m.Host+"/xapi0"); there {
		t.Error("the bridge is there after the tunnel was destroyed")
	}
}

// TestOrderFails: a host that cannot make the bridge, or dies before it has, leaves nothing of the
// tunnel behind.
func TestOrderFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent func(tx *records.Tx, o *objects.Order) error
		code  string
	}{
		"cannot": {func(tx *records.Tx, o *objects.Order) error {
			return objects.BridgeReports.Put(tx, &objects.BridgeReport{Host: o.Host, Bridge: o.Bridge, Orders: []string{o.ID}, Error: "no room"})
		}, "OPERATION_NOT_ALLOWED"},
		"dies": {func(tx *records.Tx, o *objects.Order) error { return changing(func(p *pool) { p.silence(o.Host) })(tx) }, "HOST_OFFLINE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, user := served(t)
			m := machine(1)
			report(t, s, m)
			agent(t, s, func(tx *records.Tx) error {
				for o := range objects.Orders.All(tx) {
					if err := c.agent(tx, o); err != nil {
						return err
					}
				}
				return nil
			})
			net := user.must("network.create", map[string]any{"name_label": "n"}).(string)
			params := user.fails(c.code, "tunnel.create", pifOf(s, m.Host, "ens3").Ref, net)
			if name == "cannot" && !strings.Contains(params[0], "host m1 cannot make the bridge xapi0: no room") {
				t.Errorf("the error says %v", params)
			}
			if n := objects.Table("tunnel").Count(s.now()) + objects.Orders.Count(s.now()); n != 0 || objects.Table("PIF").Count(s.now()) != 2 {
				t.Errorf("%d tunnels and orders are left", n)
			}
		})
	}
}

// TestOrderLeased: an order ends with the server that gave it.
func TestOrderLeased(t *testing.T) {
	t.Parallel()
	s, user := served(t)
	m := machine(1)
	report(t, s, m)
	net := user.must("network.create", map[string]any{"name_label": "n"}).(string)
	done := make(chan error, 1)
	go func() {
		_, err := user.call("tunnel.create", pifOf(s, m.Host, "ens3").Ref, net)
		done <- err
	}()
	eventually(t, "there is an order", func() bool { return objects.Orders.Count(s.now()) == 1 })
	if err := s.opts.Store.Revoke(t.Context(), s.lease.current()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the order is gone", func() bool { return objects.Orders.Count(s.now()) == 0 })
	if err := s.update(t.Context(), changing(func(p *pool) { p.silence(m.Host) })); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the tunnel was made without a bridge")
	}
}

// TestRealHosts: what a host's agent does not do is refused with what to do instead; what it does
// is ordered.
func TestRealHosts(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	plain, able := machine(1), machine(2, objects.CanVLAN, objects.CanAddress)
	report(t, s, plain)
	report(t, s, able)
	agent(t, s, func(tx *records.Tx) error {
		for o := range objects.Orders.All(tx) {
			if o.Address == nil {
				continue
			}
			failure := ""
			if r, said := objects.OrderReports.Peek(tx, o.Host+"/"+o.ID); said && r.Error == "" {
				if err := configure(tx, o); err != nil { // the host's report follows its answer
					return err
				}
				continue
			}
			if o.Address.IP == "192.0.2.66" {
				failure = "the address is another's"
			}
			if err := objects.OrderReports.Put(tx, &objects.OrderReport{Host: o.Host, ID: o.ID, Error: failure}); err != nil {
				return err
			}
		}
		return changing(reportBridges)(tx)
	})
	ens3, other := pifOf(s, plain.Host, "ens3").Ref, pifOf(s, able.Host, "ens4").Ref
	for _, call := range [][]any{
		{"PIF.reconfigure_ip", ens3, "Static", "192.0.2.9", "255.255.255.0", "", ""}, {"VLAN.create", ens3, "5", c.must("network.create", map[string]any{"name_label": "v"})},
		{"Bond.create", c.must("network.create", map[string]any{"name_label": "b"}), []any{ens3, pifOf(s, plain.Host, "ens4").Ref}, ""}, {"PIF.introduce", plain.Host, "", "ens9"},
		{"PIF.set_property", ens3, "gro", "off"}, {"pool.join", "192.0.2.1", "root", "x"},
	} {
		c.fails("OPERATION_NOT_ALLOWED", call[0].(string), call[1:]...)
	}
	c.fails("INVALID_VALUE", "network.create", map[string]any{"bridge": "ens4"}) // a host's own interface
	said := c.fails("OPERATION_NOT_ALLOWED", "PIF.reconfigure_ip", other, "Static", "192.0.2.66", "255.255.255.0", "", "")
	if !strings.Contains(said[0], "host m2: the address is another's") || c.must("PIF.get_IP", other) != "" {
		t.Errorf("%v; the PIF has %v", said, c.must("PIF.get_IP", other))
	}
	c.must("PIF.reconfigure_ip", other, "Static", "192.0.2.65", "255.255.255.0", "", "")
	if c.must("PIF.get_IP", other) != "192.0.2.65" {
		t.Error("the PIF does not have the address that its host took over")
	}
	c.fails("OPERATION_NOT_ALLOWED", "host.management_reconfigure", other)
	net := c.must("network.create", map[string]any{"name_label": "w"}).(string)
	vlan := c.must("VLAN.create", pifOf(s, able.Host, "ens3").Ref, "5", net).(string)
	made, ok := objects.BridgeReports.Peek(s.now(), able.Host+"/"+c.must("network.get_bridge", net).(string))
	if !ok || made.Bridge.Parent != "br-phy" || made.Bridge.Tag != 5 {
		t.Errorf("the VLAN's bridge is %v", made)
	}
	c.must("VLAN.destroy", vlan)
	if objects.BridgeReports.Count(s.now()) != 0 {
		t.Error("the VLAN's bridge is there after it was destroyed")
	}
}

// configure has the host of an order for an address report it.
func configure(tx *records.Tx, o *objects.Order) error {
	old, err := objects.HostReports.Get(tx, o.Host)
	if err != nil {
		return err
	}
	changed := *old
	changed.Interfaces = slices.Clone(old.Interfaces)
	for i := range changed.Interfaces {
		if one := &changed.Interfaces[i]; one.Device == o.Address.Device {
			one.Mode, one.IP, one.Netmask = o.Address.Mode, o.Address.IP, o.Address.Netmask
		}
	}
	return objects.HostReports.Put(tx, &changed)
}

// TestExpelled: a host that was taken out of the pool does not come back by reporting.
func TestExpelled(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	report(t, s, machine(1))
	gone := machine(2)
	report(t, s, gone)
	c.must("pool.eject", gone.Host)
	again := *gone
	again.Memory[1]++
	if err := s.update(t.Context(), func(tx *records.Tx) error { return objects.HostReports.Put(tx, &again) }); err != nil {
		t.Fatal(err)
	}
	report(t, s, machine(3)) // the keeper has then seen the one before too
	if n := objects.Table("host").Count(s.now()); n != 2 {
		t.Errorf("%d hosts", n)
	}
	again.Started = time.Unix(5, 0)
	report(t, s, &again) // let in again
	if n := objects.Expelled.Count(s.now()); n != 0 {
		t.Error("the host is back, and still expelled")
	}
}

// TestKeeperTrustsTheRegistration: a host that joined has the name and the id of its registration,
// whatever it reports.
func TestKeeperTrustsTheRegistration(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	t.Cleanup(func() { st.Close() })
	s := started(t, Options{Store: st})
	victim, thief := machine(1), machine(2)
	report(t, s, victim)
	id := thief.ID
	thief.Name, thief.ID = victim.Name, victim.ID
	registered := store.Op{Key: schema.Hosts.Key(id), Value: []byte(`{"id":"` + id + `","name":"m2"}`)}
	if _, err := st.Commit(t.Context(), nil, []store.Op{registered}); err != nil {
		t.Fatal(err)
	}
	report(t, s, thief)
	h, ok := objects.Table("host").Peek(s.now(), thief.Host)
	if !ok || h.Text("hostname") != "m2" || h.Text("name_label") != "m2" || h.Text("uuid") != id {
		t.Errorf("the host that reports another's name and id is %q, %q with uuid %s", h.Text("hostname"), h.Text("name_label"), h.Text("uuid"))
	}
}
