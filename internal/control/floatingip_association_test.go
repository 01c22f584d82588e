package control_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// TestAssociations goes through the changes of midonet-translations §10.
func TestAssociations(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	second := w.subnet(w.tenant, `"ip_version":4,"cidr":"10.0.1.0/24"`).ID
	w.addInterface(w.routerID, second)
	other := w.network(`{}`).ID
	far := w.subnet(other, `"ip_version":4,"cidr":"10.9.0.0/24"`).ID
	router2 := w.routerTo(w.member, w.external)
	w.addInterface(router2, far)

	one := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.9"},{"ip_address":"10.0.1.9"}]`).ID
	two := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.8"}]`).ID
	three := w.port(other, `"fixed_ips":[{"ip_address":"10.9.0.7"}]`).ID
	f := w.floatingIP("")
	for _, step := range []struct{ text, port, fixed, router string }{
		{`{"port_id":"` + two + `"}`, two, "10.0.0.8", w.routerID},
		{`{"port_id":"` + one + `","fixed_ip_address":"10.0.1.9"}`, one, "10.0.1.9", w.routerID},
		{`{"port_id":"` + one + `","fixed_ip_address":"10.0.0.9"}`, one, "10.0.0.9", w.routerID},
		{`{"port_id":"` + three + `"}`, three, "10.9.0.7", router2},
		{`{"port_id":"` + two + `"}`, two, "10.0.0.8", w.routerID},
		{`{"port_id":null}`, "", "", ""},
		{`{"port_id":null}`, "", "", ""},
	} {
		got := w.update(f.ID, step.text)
		fixed := ""
		if got.FixedIPAddress.IsValid() {
			fixed = got.FixedIPAddress.String()
		}
		if got.PortID != step.port || fixed != step.fixed || got.RouterID != step.router {
			t.Errorf("%s: %+v", step.text, got.FloatingIP)
		}
		b := w.bundle("floating-ip", f.ID)
		if (len(b.Rules) == 5 && len(b.Neighbours) == 1) != (step.port != "") {
			t.Errorf("%s: %+v", step.text, b)
		}
		for _, r := range b.Rules {
			if r.Rule.FipPortID != step.port {
				t.Errorf("%s: rule of port %s", step.text, r.Rule.FipPortID)
			}
			if r.Rule.Dnat && r.Rule.NatTargets[0].NwStart != netip.MustParseAddr(step.fixed) {
				t.Errorf("%s: translated to %s", step.text, r.Rule.NatTargets[0].NwStart)
			}
		}
	}
}

// TestFloatingIPCombinations goes from every association to every other (midonet-translations
// §10): none, a port at either of its addresses, another port, and one behind another router. The
// old router keeps nothing of it.
func TestFloatingIPCombinations(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	far := w.subnetOn("10.9.0.0/24")
	router2 := w.routerTo(w.member, w.external)
	w.addInterface(router2, far.ID)
	a := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.9"},{"ip_address":"10.0.0.10"}]`).ID
	b := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.8"}]`).ID
	c := w.port(far.NetworkID, `"fixed_ips":[{"ip_address":"10.9.0.7"}]`).ID
	type association struct{ text, port, fixed, router string }
	all := []association{
		{text: `{"port_id":null}`},
		{`{"port_id":"` + a + `","fixed_ip_address":"10.0.0.9"}`, a, "10.0.0.9", w.routerID},
		{`{"port_id":"` + a + `","fixed_ip_address":"10.0.0.10"}`, a, "10.0.0.10", w.routerID},
		{`{"port_id":"` + b + `"}`, b, "10.0.0.8", w.routerID},
		{`{"port_id":"` + c + `"}`, c, "10.9.0.7", router2},
	}
	f := w.floatingIP("")
	for _, from := range all {
		for _, to := range all {
			w.update(f.ID, from.text)
			got := w.update(f.ID, to.text)
			if got.PortID != to.port || got.RouterID != to.router {
				t.Errorf("%s to %s: %+v", from.text, to.text, got.FloatingIP)
			}
			w.checkAssociation(got, to.fixed)
		}
	}
	w.checkDerived(t)
}

// checkAssociation checks that a floating IP has its rules in the chains of its router and nowhere
// else, for its fixed address, and its entry in the ARP table of the network.
func (w *routedWorld) checkAssociation(f *neutron.FloatingIPView, fixed string) {
	w.t.Helper()
	arp, chains := w.meaning(f.ID)
	if f.PortID == "" {
		if arp != "" || len(chains) > 0 {
			w.t.Errorf("not associated: %s, %v", arp, chains)
		}
		return
	}
	var want []string
	for _, role := range []string{"chain.in", "chain.skipsnat", "chain.skipsnat", "chain.floatsnatexact", "chain.floatsnat"} {
		want = append(want, translate.Derive(role, f.RouterID))
	}
	if !slices.Equal(chains, want) {
		w.t.Errorf("rules in %v, want %v", chains, want)
	}
	server := must2(w.Ports().Show(w.t.Context(), w.admin, f.ServedBy))
	if want := w.external + " " + f.FloatingIPAddress.String() + " " + server.MACAddress.String(); arp != want || server.DeviceID != f.RouterID {
		w.t.Errorf("ARP %s, want %s", arp, want)
	}
	for _, e := range w.bundle("floating-ip", f.ID).Rules {
		dnat := e.Rule.Dnat && e.Rule.NatTargets[0].NwStart.String() == fixed
		snat := e.Rule.Condition.NwSrcIP != nil && e.Rule.Condition.NwSrcIP.Addr().String() == fixed
		if e.Rule.Type == topology.NAT && !dnat && !snat || e.Rule.FipPortID != f.PortID {
			w.t.Errorf("%s is not about %s of port %s", &e.Rule, fixed, f.PortID)
		}
	}
}

// TestFloatingIPOfMovedMachine: where a machine's port is bound, and what else it may change but
// its addresses, does not concern its floating IP.
func TestFloatingIPOfMovedMachine(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	w.hosts("h1", "h2")
	p := must[*neutron.PortView](w.world, w.admin, neutron.Ports, `{"network_id":"`+w.tenant+`","project_id":"mine","binding:host_id":"h1"}`)
	f := w.floatingIP(`"port_id":"` + p.ID + `"`)
	meaning := text(w.bundle("floating-ip", f.ID))
	for _, change := range []string{
		`{"binding:host_id":"h2"}`, `{"binding:profile":{"interface_name":"eth1"}}`, `{"binding:host_id":"nowhere"}`, `{"binding:profile":null}`,
		`{"mac_address":"fa:16:3e:00:00:77"}`, `{"admin_state_up":false}`, `{"port_security_enabled":false,"security_groups":[]}`,
		`{"device_id":"other"}`, `{"fixed_ips":[{"ip_address":"` + f.FixedIPAddress.String() + `"},{"subnet_id":"` + w.subnetID + `"}]}`,
	} {
		if _, err := w.change(w.admin, neutron.Ports, p.ID, change); err != nil {
			t.Fatalf("%s: %v", change, err)
		}
		if now := must2(w.FloatingIPs().Show(t.Context(), w.member, f.ID)); now.PortID != p.ID || now.RevisionNumber != f.RevisionNumber {
			t.Errorf("%s: %+v", change, now.FloatingIP)
		}
		if now := text(w.bundle("floating-ip", f.ID)); now != meaning {
			t.Errorf("%s: now %s", change, now)
		}
		w.checkDerived(t)
	}
}

// TestAddressHolderOfAnotherPurpose: a floating IP goes with the port that holds its address, even
// if that has been made a DHCP server.
func TestAddressHolderOfAnotherPurpose(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	before := w.dump()
	f := w.floatingIP("")
	if _, err := w.change(w.admin, neutron.Ports, f.FloatingPortID, `{"device_owner":"network:dhcp"}`); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.member, neutron.FloatingIPs, f.ID); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("left behind:\n%s", d)
	}
}

// TestUpdateOfNothing: it takes a floating IP from its port, as in the reference; an update of
// something else does not.
func TestUpdateOfNothing(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	p := w.port(w.tenant, "").ID
	f := w.floatingIP(`"port_id":"` + p + `"`)
	if after := w.update(f.ID, `{"description":"d"}`); after.PortID != p {
		t.Errorf("with another description: %+v", after.FloatingIP)
	}
	if after := w.update(f.ID, `{}`); after.PortID != "" || after.Status() != "DOWN" {
		t.Errorf("with nothing: %+v", after.FloatingIP)
	}
	if arp, rules := w.meaning(f.ID); arp != "" || len(rules) > 0 {
		t.Errorf("with nothing: %s, %v", arp, rules)
	}
}

// TestAddressLeavesPort: a floating IP does not outlive the fixed address that it stands for.
func TestAddressLeavesPort(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	p := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.9"}]`).ID
	f := w.floatingIP(`"port_id":"` + p + `"`)
	change := func(text string) *neutron.FloatingIPView {
		if _, err := w.change(w.member, neutron.Ports, p, text); err != nil {
			t.Fatal(err)
		}
		return must2(w.FloatingIPs().Show(t.Context(), w.member, f.ID))
	}
	if got := change(`{"fixed_ips":[{"ip_address":"10.0.0.9"},{"ip_address":"10.0.0.10"}]}`); got.PortID != p {
		t.Errorf("with another address beside: %+v", got.FloatingIP)
	}
	if got := change(`{"fixed_ips":[{"ip_address":"10.0.0.10"}]}`); got.PortID != "" {
		t.Errorf("without its address: %+v", got.FloatingIP)
	}
	if b := w.bundle("floating-ip", f.ID); len(b.Rules)+len(b.Neighbours) > 0 {
		t.Errorf("without its address: %+v", b)
	}
}

// TestOneFloatingIPForAnAddress: of many that want one fixed address at two servers, one gets it.
func TestOneFloatingIPForAnAddress(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	w := behindRouter(ws[0])
	p := w.port(w.tenant, "").ID
	var ids []string
	for range 8 {
		ids = append(ids, w.floatingIP("").ID)
	}
	got := together(len(ids), func(i int) error {
		_, err := ws[i%2].change(w.member, neutron.FloatingIPs, ids[i], `{"port_id":"`+p+`"}`)
		return err
	})
	if got[""] != 1 || got["FloatingIPPortAlreadyAssociated"] != 7 {
		t.Errorf("outcomes %v", got)
	}
}
