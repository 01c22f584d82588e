package xapi

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

// TestPoolJoin: the host that joins gets the coordinator's tunnels by the networks' names, whatever
// its devices are called; its own tunnels go; whoever logs in at its old server is sent to the
// coordinator.
func TestPoolJoin(t *testing.T) {
	t.Parallel()
	s, users := simulated(t, twoPools, "secret", "other")
	u, joiner := users[0], users[1]
	priv, spare := u.network("priv"), u.network("priv2")
	u.ref("tunnel.create", u.pif("h1", "eth1"), priv, "vxlan")
	u.must("PIF.reconfigure_ip", u.pif("h1", "eth2"), "DHCP", "", "", "", "")
	u.ref("tunnel.create", u.pif("h1", "eth2"), spare) // its transport's network is not on the joiner: skipped
	own := joiner.network("own")
	joiner.ref("tunnel.create", joiner.pif("j1", "nic7"), own)
	joiner.ref("VLAN.create", joiner.pif("j1", "nic0"), 9, joiner.network("v9"))

	join := func(address, name, password string) []any { return []any{address, name, password} }
	joiner.fails("SESSION_AUTHENTICATION_FAILED **", "pool.join", join("192.0.2.1", "root", "wrong")...)
	joiner.fails("CANNOT_CONTACT_HOST 127.0.0.1:1", "pool.join", join("127.0.0.1:1", "root", "secret")...)
	joiner.fails("OPERATION_NOT_ALLOWED *", "pool.join", join("203.0.113.1", "root", "other")...)
	u.fails("OPERATION_NOT_ALLOWED *", "pool.join", join("203.0.113.1", "root", "other")...)
	joiner.must("pool.join", join(strings.TrimPrefix(s.Pools()[0].URL, "http://"), "root", "secret")...)

	j1 := u.named("host", "j1")
	if u.get("host_metrics", u.get("host", j1, "metrics").(string), "live") != true {
		t.Error("the host does not live in the pool")
	}
	for device, network := range map[string]string{"nic0": "mgmt", "nic7": "data"} {
		if got := u.get("PIF", u.pif("j1", device), "network"); got != u.named("network", network) {
			t.Errorf("%s is on network %v, want %s", device, got, network)
		}
	}
	if u.get("PIF", u.pif("j1", "nic0"), "management") != true {
		t.Error("the management's PIF is not")
	}
	inherited := u.tunnelOn("j1", priv)
	if inherited["transport_PIF"] != u.pif("j1", "nic7") || inherited["protocol"] != "vxlan" {
		t.Errorf("inherited %v", inherited)
	}
	if u.get("PIF", inherited["access_PIF"].(string), "currently_attached") != true {
		t.Error("the inherited tunnel is not plugged, though the host is enabled and its transport configured")
	}
	if u.findTunnel("j1", spare) != nil {
		t.Error("a tunnel without a transport was inherited")
	}
	if u.findTunnel("h3", priv) != nil {
		t.Error("a host that was in the pool all the time has got a tunnel")
	}
	arrived := u.named("network", "own")
	if pifs := u.get("network", arrived, "PIFs").([]string); len(pifs) != 0 {
		t.Errorf("the joiner's tunnel network has PIFs %v, want none: internal", pifs)
	}
	if got := u.get("network", u.named("network", "v9"), "PIFs").([]string); len(got) != 1 {
		t.Errorf("the joiner's VLAN network has PIFs %v", got)
	}

	old := &clientOf{t: t, url: s.Pools()[1].URL}
	if got := old.fails("HOST_IS_SLAVE", "session.login_with_password", "root", "other"); got[0] != "192.0.2.1" {
		t.Errorf("the old server sends its clients to %v", got)
	}

	u.fails("OPERATION_NOT_ALLOWED *", "pool.eject", u.named("host", "h1"))
	u.must("pool.eject", j1)
	u.fails("HANDLE_INVALID host "+j1, "host.get_uuid", j1)
	if u.findTunnelHost(priv, "h1") == nil {
		t.Error("the coordinator's own tunnel went")
	}
	for _, class := range []string{"PIF", "VLAN"} {
		for _, r := range u.records(class) {
			if r["host"] == j1 {
				t.Errorf("left of the ejected host: %v", r)
			}
		}
	}
}

func (u user) findTunnelHost(network, host string) any {
	if r := u.findTunnel(host, network); r != nil {
		return r
	}
	return nil
}

// TestJoinRefused: who cannot join.
func TestJoinRefused(t *testing.T) {
	t.Parallel()
	s, users := simulated(t, twoPools, "secret", "other")
	u, joiner := users[0], users[1]
	vm := joiner.ref("VM.create", map[string]any{"name_label": "vm"})
	joiner.must("VM.start", vm, false, false)
	joiner.fails("OPERATION_NOT_ALLOWED *", "pool.join", "192.0.2.1", "root", "secret")
	joiner.must("VM.hard_shutdown", vm)
	if err := s.Control(t.Context(), "host j1 dead"); err != nil {
		t.Fatal(err)
	}
	joiner.fails("HOST_OFFLINE *", "pool.join", "192.0.2.1", "root", "secret")
	if err := s.Control(t.Context(), "host j1 live"); err != nil {
		t.Fatal(err)
	}
	u.fails("INVALID_VALUE **", "pool.admit", "x", map[string]string{"id": "{"}, map[string]string{})
	u.fails("OPERATION_NOT_ALLOWED *", "pool.admit", "h1", map[string]string{}, map[string]string{})
	joiner.must("pool.join", "192.0.2.1", "root", "secret")
}

// TestJoinWithBond: a bond that carries the joiner's transport comes along, with its members and
// its primary one.
func TestJoinWithBond(t *testing.T) {
	t.Parallel()
	file := strings.Replace(twoPools, "{device: nic7, network: data, ip: 198.51.100.9, netmask: 255.255.255.0}",
		"{device: nic7}, {device: nic8}, {device: bond0, network: data, ip: 198.51.100.9, netmask: 255.255.255.0, bond_slaves: [nic8, nic7]}", 1)
	_, users := simulated(t, file, "secret", "other")
	u, joiner := users[0], users[1]
	priv := u.network("priv")
	u.ref("tunnel.create", u.pif("h1", "eth1"), priv)
	joiner.must("pool.join", "192.0.2.1", "root", "secret")
	master := u.pif("j1", "bond0")
	bonds := u.get("PIF", master, "bond_master_of").([]string)
	if len(bonds) != 1 || u.get("Bond", bonds[0], "primary_slave") != u.pif("j1", "nic8") || u.get("PIF", u.pif("j1", "nic7"), "bond_slave_of") != bonds[0] {
		t.Errorf("bonds %v", bonds)
	}
	if r := u.tunnelOn("j1", priv); r["transport_PIF"] != master {
		t.Errorf("inherited %v, want it on the bond", r)
	}
}

// TestJoinCertificate: a coordinator whose certificate nobody vouches for is joined when its
// fingerprint is given, and the refusal says how.
func TestJoinCertificate(t *testing.T) {
	t.Parallel()
	s, users := simulated(t, twoPools, "secret", "other")
	u, joiner := users[0], users[1]
	secured := httptest.NewTLSServer(s.pools[0].server.Handler())
	t.Cleanup(secured.Close)
	_, err := joiner.call("pool.join", secured.URL, "root", "secret")
	if client.Code(err) != "OPERATION_NOT_ALLOWED" {
		t.Fatal(err)
	}
	text := err.Error()
	known := text[strings.LastIndex(text, secured.URL+"#"):]
	joiner.fails("CANNOT_CONTACT_HOST *", "pool.join", secured.URL+"#"+strings.Repeat("0", 64), "root", "secret")
	joiner.must("pool.join", known, "root", "secret")
	u.named("host", "j1")
}

// TestHostDies: what can be done with a host that does not report, and what its return brings.
func TestHostDies(t *testing.T) {
	t.Parallel()
	s, users := simulated(t, twoPools, "secret", "other")
	u := users[0]
	control := func(line string) {
		t.Helper()
		if err := s.Control(t.Context(), line); err != nil {
			t.Fatal(err)
		}
	}
	h1, h2, net := u.named("host", "h1"), u.named("host", "h2"), u.network("n")
	tunnel := u.ref("tunnel.create", u.pif("h2", "eth1"), net)
	access := u.get("tunnel", tunnel, "access_PIF").(string)
	vm := u.ref("VM.create", map[string]any{"name_label": "vm"})
	vif := u.ref("VIF.create", map[string]any{"device": "0", "network": net, "VM": vm})
	u.must("VM.start_on", vm, h2, false, false)
	u.fails("OPERATION_NOT_ALLOWED *", "host.declare_dead", h2)
	u.fails("OPERATION_NOT_ALLOWED *", "host.destroy", h2)
	control("host h2 dead")
	for _, call := range []string{"PIF.plug", "PIF.unplug"} {
		u.fails("HOST_OFFLINE "+h2, call, access)
	}
	u.fails("HOST_OFFLINE "+h2, "tunnel.destroy", tunnel)
	u.fails("HOST_OFFLINE "+h2, "PIF.scan", h2)
	u.fails("HOST_OFFLINE "+h2, "pool.designate_new_master", h2)
	control("host h2 live")
	if u.get("PIF", access, "currently_attached") != true || u.get("VM", vm, "resident_on") != h2 {
		t.Error("what was on the host is not as it was when it returns")
	}
	u.ref("tunnel.create", u.pif("h1", "eth1"), u.network("later"))
	control("host h2 dead")
	control("host h2 live") // a start: the coordinator's tunnels are inherited
	eventually(t, "the tunnel is inherited at the host's start", func() bool { return u.findTunnel("h2", u.named("network", "later")) != nil })
	control("host h2 dead")
	u.must("host.declare_dead", h2)
	if u.get("VM", vm, "power_state") != "Halted" || u.get("VIF", vif, "currently_attached") != false {
		t.Error("the dead host's VM is not halted")
	}
	u.fails("OPERATION_NOT_ALLOWED *", "host.destroy", h1)
	u.must("host.destroy", h2)
	u.fails("HANDLE_INVALID tunnel "+tunnel, "tunnel.get_uuid", tunnel)
	u.fails("HANDLE_INVALID host "+h2, "host.get_uuid", h2)
	u.must("network.destroy", net)
}

// TestCoordinator: another host becomes the coordinator, and its tunnels are those that are
// inherited.
func TestCoordinator(t *testing.T) {
	t.Parallel()
	u := lab(t)
	h2, net := u.named("host", "h2"), u.network("n")
	u.ref("tunnel.create", u.pif("h2", "eth1"), net)
	u.must("pool.designate_new_master", h2)
	for _, p := range u.records("pool") {
		if p["master"] != h2 {
			t.Error("h2 is not the coordinator")
		}
	}
	u.must("host.disable", u.named("host", "h1"))
	u.must("host.sync_tunnels", u.named("host", "h1"))
	r := u.tunnelOn("h1", net)
	access := r["access_PIF"].(string)
	if r["transport_PIF"] != u.pif("h1", "eth1") || u.get("PIF", access, "currently_attached") != false {
		t.Errorf("h1, which is disabled, got %v", r)
	}
	u.must("host.enable", u.named("host", "h1"))
	eventually(t, "the inherited tunnel is plugged once the host is enabled", func() bool { return u.get("PIF", access, "currently_attached") == true })
	u.must("PIF.unplug", access)
	u.must("host.disable", u.named("host", "h1"))
	u.must("host.enable", u.named("host", "h1"))
	u.must("host.sync_tunnels", u.named("host", "h1"))
	if u.get("PIF", access, "currently_attached") != false {
		t.Error("a tunnel that was unplugged by hand was plugged by the pool")
	}
	u.ref("VLAN.create", u.pif("h2", "eth0"), 5, u.network("v5"))
	u.must("host.sync_vlans", u.named("host", "h1"))
	if got := u.get("network", u.named("network", "v5"), "PIFs").([]string); len(got) != 2 {
		t.Errorf("after sync_vlans the VLAN's network has PIFs %v", got)
	}
	u.fails("OPERATION_NOT_ALLOWED *", "pool.set_vswitch_controller", "192.0.2.9")
	u.must("pool.set_vswitch_controller", "")
}

// TestAsyncTunnel: the calls that change something are there as tasks too.
func TestAsyncTunnel(t *testing.T) {
	t.Parallel()
	u := lab(t)
	net := u.network("n")
	task := u.ref("Async.tunnel.create", u.pif("h1", "eth1"), net)
	eventually(t, "the task ends", func() bool { return u.get("task", task, "status") == "success" })
	if got := u.get("task", task, "result").(string); !strings.HasPrefix(got, "<value>OpaqueRef:") {
		t.Errorf("result %q", got)
	}
	failed := u.ref("Async.network.destroy", net)
	eventually(t, "the task ends", func() bool { return u.get("task", failed, "status") == "failure" })
	if got := fmt.Sprint(u.get("task", failed, "error_info")); !strings.HasPrefix(got, "[NETWORK_CONTAINS_PIF OpaqueRef:") {
		t.Errorf("error_info %s", got)
	}
}

// TestHandlersKnown: every message of the model has a handler, and every handler a message.
func TestHandlersKnown(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	for name := range s.handlers {
		if s.calls[name] == nil {
			t.Errorf("%s has a handler, but no place in the model", name)
		}
	}
	for name, c := range model.Calls() {
		if (c.Verb == model.Do || c.Verb == model.Create) && s.handlers[name] == nil && !strings.HasPrefix(name, "system.") {
			t.Errorf("%s has no handler", name)
		}
	}
}
