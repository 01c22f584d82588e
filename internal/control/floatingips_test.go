package control_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/topology"
)

// routedWorld has a router r between an external network and the tenant's.
type routedWorld struct {
	*world
	external, tenant, subnetID, routerID string
}

// behindRouter adds a router with a gateway to an external network, and an interface on a network.
func behindRouter(w *world) *routedWorld {
	w.t.Helper()
	r := &routedWorld{world: w, external: w.externalNetwork("203.0.113.0/24")}
	r.tenant = w.network(`{}`).ID
	r.subnetID = w.subnet(r.tenant, `"ip_version":4,"cidr":"10.0.0.0/24"`).ID
	r.routerID = w.routerTo(w.member, r.external)
	w.addInterface(r.routerID, r.subnetID)
	return r
}

// externalNetwork makes an external network with a subnet.
func (w *world) externalNetwork(cidr string) string {
	w.t.Helper()
	n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`)
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n.ID+`","ip_version":4,"cidr":"`+cidr+`"}`)
	return n.ID
}

// routerTo makes a router, with a gateway to a network unless that is "".
func (w *world) routerTo(c neutron.Caller, external string) string {
	w.t.Helper()
	text := `{}`
	if external != "" {
		text = `{"external_gateway_info":{"network_id":"` + external + `"}}`
	}
	return must[*neutron.RouterView](w, c, neutron.Routers, text).ID
}

// addInterface joins a router with a subnet, and returns the port.
func (w *world) addInterface(router, subnet string) string {
	w.t.Helper()
	v, err := w.Routers().AddInterface(w.t.Context(), w.admin, router, neutron.InterfaceRequest{SubnetID: subnet})
	if err != nil {
		w.t.Fatal(err)
	}
	return v.PortID
}

// floatingIP makes a floating IP on the external network.
func (w *routedWorld) floatingIP(rest string) *neutron.FloatingIPView {
	w.t.Helper()
	if rest != "" {
		rest = "," + rest
	}
	return must[*neutron.FloatingIPView](w.world, w.member, neutron.FloatingIPs, `{"floating_network_id":"`+w.external+`"`+rest+`}`)
}

// update changes a floating IP, which has to be possible.
func (w *routedWorld) update(id, text string) *neutron.FloatingIPView {
	w.t.Helper()
	v, err := w.change(w.member, neutron.FloatingIPs, id, text)
	if err != nil {
		w.t.Fatalf("update %s: %v", text, err)
	}
	return v.(*neutron.FloatingIPView)
}

// meaning returns what a floating IP does to packets: its entry in the ARP table, and its rules.
func (w *routedWorld) meaning(id string) (arp string, chains []string) {
	w.t.Helper()
	b := w.bundle("floating-ip", id)
	for _, n := range b.Neighbours {
		arp += n.NetworkID + " " + n.IP.String() + " " + n.MAC.String()
	}
	for _, r := range b.Rules {
		chains = append(chains, r.ChainID)
	}
	return arp, chains
}

func TestFloatingIPLife(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	before := w.dump()
	p := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.9"}]`)
	f := w.floatingIP("")
	if f.Status() != "DOWN" || f.PortID != "" || f.Port != nil || f.FixedIPAddress.IsValid() || f.RouterID != "" {
		t.Errorf("not associated: %+v", f.FloatingIP)
	}
	holder, err := w.Ports().Show(t.Context(), w.admin, f.FloatingPortID)
	if err != nil || holder.DeviceOwner != "network:floatingip" || holder.DeviceID != f.ID || holder.ProjectID != "" ||
		holder.FixedIPs[0].IPAddress != f.FloatingIPAddress || holder.Status != "N/A" || len(holder.SecurityGroups) > 0 {
		t.Errorf("the port that holds the address: %+v, %v", holder, err)
	}
	if _, err := w.Ports().Show(t.Context(), w.member, f.FloatingPortID); problem(err) == "" {
		t.Error("a member sees the port that holds the address")
	}
	if arp, rules := w.meaning(f.ID); arp != "" || len(rules) > 0 {
		t.Errorf("not associated: %s, %v", arp, rules)
	}

	a := w.update(f.ID, `{"port_id":"`+p.ID+`"}`)
	if a.Status() != "ACTIVE" || a.PortID != p.ID || a.Port.ID != p.ID || a.FixedIPAddress.String() != "10.0.0.9" || a.RouterID != w.routerID ||
		a.RevisionNumber <= f.RevisionNumber {
		t.Errorf("associated: %+v", a.FloatingIP)
	}
	gateway := must2(w.Ports().Show(t.Context(), w.admin, a.ServedBy))
	if gateway.DeviceOwner != "network:router_gateway" || gateway.NetworkID != w.external {
		t.Errorf("served by %+v", gateway.Port)
	}
	arp, rules := w.meaning(f.ID)
	if want := w.external + " " + f.FloatingIPAddress.String() + " " + gateway.MACAddress.String(); arp != want || len(rules) != 5 {
		t.Errorf("ARP %s, want %s; rules in %v", arp, want, rules)
	}
	if same := w.update(f.ID, `{"port_id":"`+p.ID+`"}`); same.RevisionNumber != a.RevisionNumber {
		t.Error("the same port again changed something")
	}
	if d := w.update(f.ID, `{"description":"x"}`); d.PortID != p.ID || d.Description != "x" {
		t.Errorf("after an update of something else: %+v", d.FloatingIP)
	}
	if gone := w.update(f.ID, `{"port_id":null}`); gone.PortID != "" || gone.Status() != "DOWN" || gone.ServedBy != "" {
		t.Errorf("disassociated: %+v", gone.FloatingIP)
	}
	if arp, rules := w.meaning(f.ID); arp != "" || len(rules) > 0 {
		t.Errorf("disassociated: %s, %v", arp, rules)
	}

	w.update(f.ID, `{"port_id":"`+p.ID+`"}`)
	if err := w.remove(w.member, neutron.Ports, p.ID); err != nil {
		t.Fatal(err)
	}
	if gone, err := w.FloatingIPs().Show(t.Context(), w.member, f.ID); err != nil || gone.PortID != "" || gone.RouterID != "" {
		t.Errorf("after its port was deleted: %+v, %v", gone, err)
	}
	if err := w.remove(w.member, neutron.FloatingIPs, f.ID); err != nil {
		t.Fatal(err)
	}
	if left := missing(w.dump(), before); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// must2 drops the error of an answer that has to come.
func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// missing returns the lines that are not among others, but for the default group of the first use.
func missing(lines, others []string) []string {
	had := map[string]bool{}
	for _, line := range others {
		had[line] = true
	}
	var out []string
	for _, line := range lines {
		if !had[line] {
			out = append(out, line)
		}
	}
	return out
}

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

// TestRoutedNetworksHaveNoFloatingIPs: no router can be on a routed network or have its gateway on
// an uplink, so floating IPs are neither of them nor for their machines.
func TestRoutedNetworksHaveNoFloatingIPs(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	routed := w.routed()
	s := must[*neutron.SubnetView](w.world, w.admin, neutron.Subnets, `{"network_id":"`+routed+`","ip_version":4,"cidr":"10.65.0.0/24"}`).ID
	machine := must[*neutron.PortView](w.world, w.admin, neutron.Ports, `{"network_id":"`+routed+`"}`).ID
	before := w.dump()
	_, err := w.create(w.admin, neutron.FloatingIPs, `{"floating_network_id":"`+w.external+`","port_id":"`+machine+`"}`)
	w.expect(err, "ExternalGatewayForFloatingIPNotFound: External network "+w.external+" is not reachable from subnet "+s+
		".  Therefore, cannot associate Port "+machine+" with a Floating IP.")
	_, err = w.join(w.admin, w.routerID, neutron.InterfaceRequest{PortID: machine})
	w.expect(err, "BadRequest: Bad router request: Network "+routed+" is of type routed: its hosts route between all such networks, and no router can be attached to it.")
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("refused, but the store changed:\n%s", d)
	}
	for _, kind := range []string{"routed", "uplink"} {
		n := must[*neutron.NetworkView](w.world, w.admin, neutron.Networks, `{"provider:network_type":"`+kind+`","router:external":true}`).ID
		must[*neutron.SubnetView](w.world, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"192.0.2.0/24"}`)
		_, err := w.create(w.member, neutron.FloatingIPs, `{"floating_network_id":"`+n+`"}`)
		w.expect(err, "BadRequest: Bad floatingip request: Network "+n+" is of type "+kind+": routers translate only to networks with a layer 2.")
		if _, err := w.create(w.member, neutron.Routers, `{"external_gateway_info":{"network_id":"`+n+`"}}`); !strings.HasPrefix(problem(err), "BadRequest: Bad router request: Network "+n+" is ") {
			t.Errorf("a gateway on a network of type %s: %v", kind, err)
		}
	}
}

func TestFloatingIPRefusals(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	p := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.9"}]`).ID
	bare := w.port(w.tenant, `"fixed_ips":[]`).ID
	double := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.20"},{"ip_address":"10.0.0.21"}]`).ID
	dhcp := must[*neutron.PortView](w.world, w.admin, neutron.Ports, `{"network_id":"`+w.tenant+`","project_id":"mine","device_owner":"network:dhcp"}`).ID
	foreign := must[*neutron.PortView](w.world, w.admin, neutron.Ports, `{"network_id":"`+w.tenant+`"}`).ID
	lonely := w.network(`{}`).ID
	island := w.subnet(lonely, `"ip_version":4,"cidr":"10.5.0.0/24"`).ID
	islander := w.port(lonely, "").ID
	empty := must[*neutron.NetworkView](w.world, w.admin, neutron.Networks, `{"router:external":true}`).ID
	used := w.floatingIP(`"port_id":"` + p + `"`)
	free := w.floatingIP("")

	create := func(rest string) string { return `{"floating_network_id":"` + w.external + `"` + rest + `}` }
	for _, tt := range []struct {
		c          neutron.Caller
		text, want string
	}{
		{w.member, `{}`, "HTTPBadRequest: Failed to parse request. Required attribute 'floating_network_id' not specified"},
		{w.member, `{"floating_network_id":"` + w.tenant + `"}`, "BadRequest: Bad floatingip request: Network " + w.tenant + " is not a valid external network."},
		{w.member, `{"floating_network_id":"` + empty + `"}`, "BadRequest: Bad floatingip request: Network " + empty + " does not contain any IPv4 subnet."},
		{w.member, create(`,"floating_ip_address":"203.0.113.77"`),
			"PolicyNotAuthorized: (rule:create_floatingip and rule:create_floatingip:floating_ip_address) is disallowed by policy"},
		{w.admin, create(`,"floating_ip_address":"198.51.100.1"`), "InvalidIpForNetwork: IP address 198.51.100.1 is not a valid IP for any of the subnets on the specified network."},
		{w.member, create(`,"subnet_id":"` + island + `"`), "InvalidInput: Invalid input for operation: Failed to create port on network " + w.external +
			", because fixed_ips included invalid subnet " + island + "."},
		{w.member, create(`,"qos_policy_id":"` + w.tenant + `"`), "QosPolicyNotFound: QoS policy " + w.tenant + " could not be found."},
		{w.member, create(`,"fixed_ip_address":"10.0.0.9"`), "BadRequest: Bad floatingip request: fixed_ip_address cannot be specified without a port_id."},
		{w.member, create(`,"port_id":"` + islander + `"`), "ExternalGatewayForFloatingIPNotFound: External network " + w.external +
			" is not reachable from subnet " + island + ".  Therefore, cannot associate Port " + islander + " with a Floating IP."},
	} {
		before := w.dump()
		_, err := w.create(tt.c, neutron.FloatingIPs, tt.text)
		w.expect(err, tt.want)
		if after := missing(w.dump(), before); len(after) > 0 {
			t.Errorf("%s: refused, and left\n%s", tt.text, strings.Join(after, "\n"))
		}
	}
	_, err := w.create(w.admin, neutron.FloatingIPs, create(`,"floating_ip_address":"`+free.FloatingIPAddress.String()+`"`))
	w.expect(err, "IpAddressAlreadyAllocated: IP address "+free.FloatingIPAddress.String()+" already allocated in subnet "+holderSubnet(w, free))

	for _, tt := range []struct{ text, want string }{
		{`{"floating_ip_address":"203.0.113.9"}`, "HTTPBadRequest: Cannot update read-only attribute floating_ip_address"},
		{`{"port_id":"11111111-1111-1111-1111-111111111111"}`, "PortNotFound: Port 11111111-1111-1111-1111-111111111111 could not be found."},
		{`{"fixed_ip_address":"10.0.0.9"}`, "BadRequest: Bad floatingip request: fixed_ip_address cannot be specified without a port_id."},
		{`{"port_id":"` + p + `"}`, "FloatingIPPortAlreadyAssociated: Cannot associate floating IP " + free.FloatingIPAddress.String() + " (" + free.ID +
			") with port " + p + " using fixed IP 10.0.0.9, as that fixed IP already has a floating IP on external network " + w.external + "."},
		{`{"port_id":"` + bare + `"}`, "BadRequest: Bad floatingip request: Cannot add floating IP to port " + bare + " that has no fixed IPv4 addresses."},
		{`{"port_id":"` + double + `"}`, "BadRequest: Bad floatingip request: Port " + double +
			" has multiple fixed IPv4 addresses.  Must provide a specific IPv4 address when assigning a floating IP."},
		{`{"port_id":"` + double + `","fixed_ip_address":"10.0.0.22"}`, "BadRequest: Bad floatingip request: Port " + double + " does not have fixed ip 10.0.0.22."},
		{`{"port_id":"` + double + `","fixed_ip_address":"fd00::1"}`, "BadRequest: Bad floatingip request: Floating IP " + free.ID +
			" is associated with non-IPv4 address fd00::1 and therefore cannot be bound."},
		{`{"port_id":"` + dhcp + `"}`, "BadRequest: Bad floatingip request: Port " + dhcp + " is unable to be assigned a floating IP."},
		{`{"port_id":"` + foreign + `"}`, "BadRequest: Bad floatingip request: Port " + foreign + " is associated with a different tenant than Floating IP " +
			free.ID + " and therefore cannot be bound."},
	} {
		_, err := w.change(w.member, neutron.FloatingIPs, free.ID, tt.text)
		w.expect(err, tt.want)
	}
	_, err = w.change(w.other, neutron.FloatingIPs, free.ID, `{}`)
	w.expect(err, "FloatingIPNotFound: Floating IP "+free.ID+" could not be found")
	w.expect(w.remove(w.other, neutron.FloatingIPs, free.ID), "FloatingIPNotFound: Floating IP "+free.ID+" could not be found")
	refusedForRouter(w, used)
}

// refusedForRouter: what serves a floating IP stays.
func refusedForRouter(w *routedWorld, f *neutron.FloatingIPView) {
	w.t.Helper()
	_, err := w.change(w.member, neutron.Routers, w.routerID, `{"external_gateway_info":null}`)
	w.expect(err, "RouterExternalGatewayInUseByFloatingIp: Gateway cannot be updated for router "+w.routerID+", since a gateway to external network "+
		w.external+" is required by one or more floating IPs.")
	_, err = w.Routers().RemoveInterface(w.t.Context(), w.member, w.routerID, neutron.InterfaceRequest{SubnetID: w.subnetID})
	w.expect(err, "RouterInterfaceInUseByFloatingIP: Router interface for subnet "+w.subnetID+" on router "+w.routerID+
		" cannot be deleted, as it is required by one or more floating IPs.")
	for _, id := range []string{f.ServedBy, f.FloatingPortID} {
		err := w.remove(w.admin, neutron.Ports, id)
		if got := problem(err); !strings.HasPrefix(got, "ServicePortInUse: Port "+id) {
			w.t.Errorf("deleting port %s: %s", id, got)
		}
	}
	_, err = w.change(w.admin, neutron.Ports, f.FloatingPortID, `{"fixed_ips":[]}`)
	w.expect(err, "BadRequest: Bad port request: Port "+f.FloatingPortID+" holds the address of floating IP "+f.ID+". Delete that instead of changing fixed_ips.")
	if _, err := w.change(w.admin, neutron.Ports, f.FloatingPortID, `{"device_owner":"","device_id":""}`); err != nil {
		w.t.Fatal(err)
	}
	w.expect(w.remove(w.admin, neutron.Ports, f.FloatingPortID),
		"ServicePortInUse: Port "+f.FloatingPortID+" cannot be deleted directly via the port API: has device owner .")
}

func holderSubnet(w *routedWorld, f *neutron.FloatingIPView) string {
	return must2(w.Ports().Show(w.t.Context(), w.admin, f.FloatingPortID)).FixedIPs[0].SubnetID
}

// TestServedByInterface: without a gateway to the floating network an interface on it will do.
func TestServedByInterface(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	other := must[*neutron.NetworkView](w.world, w.admin, neutron.Networks, `{"router:external":true}`).ID
	s := must[*neutron.SubnetView](w.world, w.admin, neutron.Subnets, `{"network_id":"`+other+`","ip_version":4,"cidr":"198.51.100.0/24"}`).ID
	link := w.addInterface(w.routerID, s)
	p := w.port(w.tenant, "").ID
	f := must[*neutron.FloatingIPView](w.world, w.member, neutron.FloatingIPs, `{"floating_network_id":"`+other+`","port_id":"`+p+`"}`)
	if f.RouterID != w.routerID || f.ServedBy != link {
		t.Errorf("by an interface: %+v", f.FloatingIP)
	}
	if second := w.floatingIP(`"port_id":"` + p + `"`); second.RouterID != w.routerID || second.ServedBy == link {
		t.Errorf("of the other network: %+v", second.FloatingIP)
	}
	_, err := w.Routers().RemoveInterface(t.Context(), w.admin, w.routerID, neutron.InterfaceRequest{PortID: link})
	w.expect(err, "RouterInterfaceInUseAsGatewayByFloatingIP: Router interface for subnet "+s+" on router "+w.routerID+
		" cannot be deleted, as it is required, as a gateway, by one or more floating IPs.")
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

// TestExternalNetworkDeleted: floating IPs without a port go with their network; one that has a
// port keeps it.
func TestExternalNetworkDeleted(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	used, free := w.floatingIP(`"port_id":"`+w.port(w.tenant, "").ID+`"`), w.floatingIP("")
	err := w.remove(w.admin, neutron.Networks, w.external)
	if got := problem(err); !strings.HasPrefix(got, "NetworkInUse") || !strings.Contains(got, used.FloatingPortID) || strings.Contains(got, free.FloatingPortID) {
		t.Errorf("with a floating IP in use: %s", got)
	}
	w.update(used.ID, `{"port_id":null}`)
	if _, err := w.change(w.member, neutron.Routers, w.routerID, `{"external_gateway_info":null}`); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.admin, neutron.Networks, w.external); err != nil {
		t.Fatal(err)
	}
	if left, err := all(w.FloatingIPs().List(t.Context(), w.admin, neutron.Query{})); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	w.verifyStore()
}

// TestGatewayOfSubnetFirst: of two routers on the subnet, the one that is its gateway translates.
func TestGatewayOfSubnetFirst(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		w := inMemory(t)
		external := w.externalNetwork("203.0.113.0/24")
		tenant := w.network(`{}`).ID
		s := w.subnet(tenant, `"ip_version":4,"cidr":"10.0.0.0/24"`).ID
		join := func(address string) string {
			r := w.routerTo(w.member, external)
			port := w.port(tenant, `"fixed_ips":[{"ip_address":"`+address+`"}]`).ID
			if _, err := w.Routers().AddInterface(t.Context(), w.member, r, neutron.InterfaceRequest{PortID: port}); err != nil {
				t.Fatal(err)
			}
			return r
		}
		addresses := []string{"10.0.0.1", "10.0.0.2"}
		routers := map[string]string{addresses[i%2]: join(addresses[i%2]), addresses[1-i%2]: join(addresses[1-i%2])}
		f := must[*neutron.FloatingIPView](w, w.member, neutron.FloatingIPs,
			`{"floating_network_id":"`+external+`","port_id":"`+w.port(tenant, `"fixed_ips":[{"subnet_id":"`+s+`"}]`).ID+`"}`)
		if f.RouterID != routers["10.0.0.1"] {
			t.Errorf("made %v: router %s", addresses, f.RouterID)
		}
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

// TestServingMAC: a floating IP's entry in the ARP table follows the MAC address of the port that
// serves it.
func TestServingMAC(t *testing.T) {
	t.Parallel()
	w := behindRouter(open(t, store.NewMemory(), control.Options{ServiceMACs: true}))
	f := w.floatingIP(`"port_id":"` + w.port(w.tenant, "").ID + `"`)
	if _, err := w.change(w.admin, neutron.Ports, f.ServedBy, `{"mac_address":"fa:16:3e:00:00:77"}`); err != nil {
		t.Fatal(err)
	}
	want := w.external + " " + f.FloatingIPAddress.String() + " fa:16:3e:00:00:77"
	if arp, rules := w.meaning(f.ID); arp != want || len(rules) != 5 {
		t.Errorf("ARP %s, want %s; rules in %v", arp, want, rules)
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

// TestServedOrGone: with floating IPs associated while their router loses gateway, interface or the
// port is deleted, either side loses, and no floating IP is served by what is gone.
func TestServedOrGone(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	for round := range 6 {
		w := behindRouter(ws[0])
		var ids, ports []string
		for range 3 {
			ids, ports = append(ids, w.floatingIP("").ID), append(ports, w.port(w.tenant, "").ID)
		}
		together(4, func(i int) error {
			switch {
			case i < 3:
				_, err := ws[i%2].change(w.member, neutron.FloatingIPs, ids[i], `{"port_id":"`+ports[i]+`"}`)
				return err
			case round%3 == 0:
				_, err := ws[1].change(w.member, neutron.Routers, w.routerID, `{"external_gateway_info":null}`)
				return err
			case round%3 == 1:
				_, err := ws[1].Routers().RemoveInterface(t.Context(), w.member, w.routerID, neutron.InterfaceRequest{SubnetID: w.subnetID})
				return err
			}
			return ws[1].remove(w.member, neutron.Ports, ports[0])
		})
		for _, id := range ids {
			f := must2(w.FloatingIPs().Show(t.Context(), w.member, id))
			if f.PortID == "" {
				continue
			}
			if _, err := w.Ports().Show(t.Context(), w.admin, f.ServedBy); err != nil {
				t.Errorf("served by what is gone: %v", err)
			}
			if f.Port == nil {
				t.Errorf("associated with a deleted port: %+v", f.FloatingIP)
			}
		}
	}
}

// TestFloatingIPQuotaAndLists counts and finds floating IPs.
func TestFloatingIPQuotaAndLists(t *testing.T) {
	t.Parallel()
	w := behindRouter(open(t, inMemory(t).st, control.Options{Quotas: map[string]int{"floatingip": 2}}))
	p := w.port(w.tenant, "").ID
	a, b := w.floatingIP(`"port_id":"`+p+`"`), w.floatingIP("")
	_, err := w.create(w.member, neutron.FloatingIPs, `{"floating_network_id":"`+w.external+`"}`)
	w.expect(err, "OverQuota: Quota exceeded for resources: ['floatingip'].")
	for _, tt := range []struct {
		c    neutron.Caller
		q    neutron.Query
		want int
	}{
		{w.member, neutron.Query{}, 2}, {w.other, neutron.Query{}, 0}, {w.admin, neutron.Query{}, 2},
		{w.member, neutron.Query{PortIDs: []string{p}}, 1}, {w.member, neutron.Query{RouterIDs: []string{w.routerID}}, 1},
		{w.member, neutron.Query{FloatingIPs: []string{b.FloatingIPAddress.String()}}, 1}, {w.other, neutron.Query{IDs: []string{a.ID}}, 0},
		{w.admin, neutron.Query{FloatingNetworkIDs: []string{w.external}}, 2}, {w.member, neutron.Query{IDs: []string{a.ID}, PortIDs: []string{"x"}}, 0},
	} {
		if got, err := all(w.FloatingIPs().List(t.Context(), tt.c, tt.q)); err != nil || len(got) != tt.want {
			t.Errorf("%s asks for %+v: %d, %v; want %d", tt.c.ProjectID, tt.q, len(got), err, tt.want)
		}
	}
}

// BenchmarkAssociate associates floating IPs of a router that has many.
func BenchmarkAssociate(b *testing.B) {
	for _, has := range []int{0, 1000} {
		b.Run(fmt.Sprint(has), func(b *testing.B) {
			w := behindRouter(open(b, inEtcd(b, true), control.Options{Quotas: map[string]int{"floatingip": -1, "port": -1}}))
			w.fillFloating(has)
			f, p := w.floatingIP(""), w.port(w.tenant, "").ID
			for b.Loop() {
				text := `{"port_id":"` + p + `"}`
				if must2(w.FloatingIPs().Show(b.Context(), w.member, f.ID)).PortID != "" {
					text = `{"port_id":null}`
				}
				w.update(f.ID, text)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

// fillFloating makes n floating IPs with a port each.
func (w *routedWorld) fillFloating(n int) {
	w.t.Helper()
	must[*neutron.SubnetView](w.world, w.admin, neutron.Subnets, `{"network_id":"`+w.external+`","ip_version":4,"cidr":"198.18.0.0/16"}`)
	big := w.subnet(w.tenant, `"ip_version":4,"cidr":"10.1.0.0/16"`).ID
	w.addInterface(w.routerID, big)
	for done := 0; done < n; done += 100 {
		var texts []string
		for range 100 {
			texts = append(texts, `{"network_id":"`+w.tenant+`","fixed_ips":[{"subnet_id":"`+big+`"}]}`)
		}
		ports, err := w.create(w.member, neutron.Ports, texts...)
		if err != nil {
			w.t.Fatal(err)
		}
		for i, p := range ports {
			texts[i] = `{"floating_network_id":"` + w.external + `","port_id":"` + p.(*neutron.PortView).ID + `"}`
		}
		if _, err := w.create(w.member, neutron.FloatingIPs, texts...); err != nil {
			w.t.Fatal(err)
		}
	}
}
