package control_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
)

// gatewayState is a state of a router's gateway. Without an address it keeps the one that it has
// on the network.
type gatewayState struct {
	network, address string
	snat             bool
}

// request returns the external_gateway_info that asks for the state; networks are ids by name.
func (s gatewayState) request(networks map[string]string) string {
	if s.network == "" {
		return `{"external_gateway_info":null}`
	}
	text := `{"external_gateway_info":{"network_id":"` + networks[s.network] + `"`
	if !s.snat {
		text += `,"enable_snat":false`
	}
	if s.address != "" {
		text += `,"external_fixed_ips":[{"ip_address":"` + s.address + `"}]`
	}
	return text + `}}`
}

func gatewayStates() map[string]gatewayState {
	return map[string]gatewayState{
		"none":           {},
		"SNAT":           {network: "a", snat: true},
		"no SNAT":        {network: "a"},
		"moved":          {network: "a", snat: true, address: "203.0.113.20"},
		"moved, no SNAT": {network: "a", address: "203.0.113.21"},
		"elsewhere":      {network: "b", snat: true},
	}
}

// TestGatewayCombinations goes from every state of a gateway to every other (midonet-translations
// §8.2): set, changed and cleared, SNAT switched, its address changed. While it serves a floating
// IP it cannot leave its network, and what the floating IP means does not change.
func TestGatewayCombinations(t *testing.T) {
	t.Parallel()
	for before, from := range gatewayStates() {
		for after, to := range gatewayStates() {
			t.Run(before+" to "+after, func(t *testing.T) {
				t.Parallel()
				w := inMemory(t)
				networks := map[string]string{"a": w.pooledNetwork("203.0.113"), "b": w.pooledNetwork("198.51.100")}
				r := must[*neutron.RouterView](w, w.admin, neutron.Routers, strings.Replace(from.request(networks), `null`, `{}`, 1))
				tenant := w.subnetOn("10.0.0.0/24")
				w.addInterface(r.ID, tenant.ID)
				w.changeGateway(r, to, networks)
				if from.network == "a" {
					w.changeGatewayThatServes(from, to, networks)
				}
				w.checkDerived(t)
			})
		}
	}
}

// pooledNetwork makes an external network with a /24, whose first 99 addresses are only given to
// requests that name them.
func (w *world) pooledNetwork(prefix string) string {
	w.t.Helper()
	n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`)
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n.ID+`","ip_version":4,"cidr":"`+prefix+`.0/24",`+
		`"allocation_pools":[{"start":"`+prefix+`.100","end":"`+prefix+`.199"}]}`)
	return n.ID
}

// changeGateway brings a router to a state, and checks what becomes of its gateway's port.
func (w *world) changeGateway(r *neutron.RouterView, to gatewayState, networks map[string]string) {
	w.t.Helper()
	v, err := w.change(w.admin, neutron.Routers, r.ID, to.request(networks))
	if err != nil {
		w.t.Fatal(err)
	}
	now := v.(*neutron.RouterView)
	switch had := len(r.Gateways) > 0; {
	case to.network == "":
		if len(now.Gateways) > 0 || now.ExternalFixedIPs != nil {
			w.t.Errorf("cleared: %+v", now)
		}
	default:
		g := now.Gateways[0]
		if g.NetworkID != networks[to.network] || g.EnableSNAT != to.snat {
			w.t.Errorf("gateway %+v", g)
		}
		if same := had && g.PortID == r.Gateways[0].PortID; same != (had && r.Gateways[0].NetworkID == g.NetworkID) {
			w.t.Errorf("port %s, before that %+v", g.PortID, r.Gateways)
		}
		w.checkGatewayBundle(now, to)
	}
	if len(r.Gateways) == 0 || len(now.Gateways) > 0 && now.Gateways[0].PortID == r.Gateways[0].PortID {
		return
	}
	if left := strings.Join(w.dump(), "\n"); strings.Contains(left, r.Gateways[0].PortID) {
		w.t.Errorf("something is left of the gateway before")
	}
}

// checkGatewayBundle checks that rules and routes of a router's gateway have its present address.
func (w *world) checkGatewayBundle(r *neutron.RouterView, to gatewayState) {
	w.t.Helper()
	address := r.ExternalFixedIPs[0].IPAddress
	if to.address != "" && address.String() != to.address {
		w.t.Errorf("address %s, want %s", address, to.address)
	}
	b := w.bundle("router-gateway", r.Gateways[0].PortID)
	if q := b.Ports[0]; q.PortAddress != address || q.RouterID != r.ID {
		w.t.Errorf("the router's port: %+v", q)
	}
	if rules := len(b.Rules); to.snat && rules != 7 || !to.snat && rules != 0 {
		w.t.Errorf("%d rules with SNAT %t", rules, to.snat)
	}
	for _, e := range b.Rules {
		for _, target := range e.Rule.NatTargets {
			if target.NwStart != address {
				w.t.Errorf("%s: not to %s", &e.Rule, address)
			}
		}
		for _, p := range []*netip.Prefix{e.Rule.Condition.NwSrcIP, e.Rule.Condition.NwDstIP} {
			if p != nil && *p != netip.PrefixFrom(address, 32) {
				w.t.Errorf("%s: a condition on %s", &e.Rule, p)
			}
		}
	}
	var destinations []string
	for _, route := range b.Routes {
		destinations = append(destinations, route.DstSubnet.String())
	}
	slices.Sort(destinations)
	if want := []string{"0.0.0.0/0", address.String() + "/32"}; !slices.Equal(destinations, want) {
		w.t.Errorf("routes to %v, want %v: none to the external subnet", destinations, want)
	}
}

// changeGatewayThatServes is changeGateway of another router, which serves a floating IP.
func (w *world) changeGatewayThatServes(from, to gatewayState, networks map[string]string) {
	w.t.Helper()
	from.address, to.address = strings.Replace(from.address, ".2", ".3", 1), strings.Replace(to.address, ".2", ".3", 1)
	serving := must[*neutron.RouterView](w, w.admin, neutron.Routers, from.request(networks))
	s := w.subnetOn("10.7.0.0/24")
	w.addInterface(serving.ID, s.ID)
	f := must[*neutron.FloatingIPView](w, w.member, neutron.FloatingIPs,
		`{"floating_network_id":"`+networks["a"]+`","port_id":"`+w.port(s.NetworkID, "").ID+`"}`)
	meaning, stored := text(w.bundle("floating-ip", f.ID)), w.dump()
	if to.network == "a" {
		w.changeGateway(serving, to, networks)
		if now := text(w.bundle("floating-ip", f.ID)); now != meaning {
			w.t.Errorf("the floating IP changed:\n%s", cmp.Diff(meaning, now))
		}
		return
	}
	_, err := w.change(w.admin, neutron.Routers, serving.ID, to.request(networks))
	w.expect(err, "RouterExternalGatewayInUseByFloatingIp: Gateway cannot be updated for router "+serving.ID+", since a gateway to external network "+
		networks["a"]+" is required by one or more floating IPs.")
	if d := cmp.Diff(stored, w.dump()); d != "" {
		w.t.Errorf("refused, but the store changed:\n%s", d)
	}
}

// TestGatewayPortMoves: another address by the port's own update, on any subnet of its network: the
// router can have no interface there.
func TestGatewayPortMoves(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	network := w.externalNetwork("203.0.113.0/24")
	r := w.router(`{"external_gateway_info":{"network_id":"` + network + `"}}`)
	second := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+network+`","ip_version":4,"cidr":"198.51.100.0/24"}`)
	gateway := r.Gateways[0].PortID
	for _, address := range []string{"203.0.113.77", "198.51.100.77"} {
		if _, err := w.change(w.admin, neutron.Ports, gateway, `{"fixed_ips":[{"ip_address":"`+address+`"}]}`); err != nil {
			t.Fatal(err)
		}
		now := w.showRouter(r.ID)
		if now.ExternalFixedIPs[0].IPAddress.String() != address {
			t.Errorf("the router is at %v, want %s", now.ExternalFixedIPs, address)
		}
		w.checkGatewayBundle(now, gatewayState{snat: true})
	}
	if _, err := w.change(w.admin, neutron.Ports, gateway, `{"fixed_ips":[{"ip_address":"203.0.113.77"}]}`); err != nil {
		t.Fatal(err)
	}
	before := w.dump()
	_, err := w.join(w.admin, r.ID, neutron.InterfaceRequest{SubnetID: second.ID})
	w.expect(err, "BadRequest: Bad router request: Cidr 198.51.100.0/24 of subnet "+second.ID+" overlaps with cidr 198.51.100.0/24 of subnet "+second.ID+".")
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("refused, but the store changed:\n%s", d)
	}
	w.checkDerived(t)
}

// TestGatewayNamedAgain: a request that names the subnet and address that a gateway has changes
// nothing, though it names the subnet twice, as in the reference; one that names another does.
func TestGatewayNamedAgain(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	network, subnet := w.external()
	r := w.router(`{"external_gateway_info":{"network_id":"` + network + `"}}`)
	had, other := r.ExternalFixedIPs[0].IPAddress.String(), "172.24.4.77"
	if had == other {
		other = "172.24.4.78"
	}
	for _, step := range []struct {
		ips     string
		changed bool
	}{
		{`{"subnet_id":"` + subnet + `","ip_address":"` + had + `"},{"subnet_id":"` + subnet + `"}`, false},
		{`{"ip_address":"` + had + `"}`, false},
		{`{"subnet_id":"` + subnet + `","ip_address":"` + had + `"},{"ip_address":"` + other + `"}`, true},
	} {
		before := w.showRouter(r.ID)
		if _, err := w.change(w.admin, neutron.Routers, r.ID, `{"external_gateway_info":{"network_id":"`+network+`","external_fixed_ips":[`+step.ips+`]}}`); err != nil {
			t.Fatal(err)
		}
		now := w.showRouter(r.ID)
		if changed := !slices.Equal(now.ExternalFixedIPs, before.ExternalFixedIPs) || now.RevisionNumber != before.RevisionNumber; changed != step.changed {
			t.Errorf("%s: from %v to %v, revision %d to %d", step.ips, before.ExternalFixedIPs, now.ExternalFixedIPs, before.RevisionNumber, now.RevisionNumber)
		}
	}
}

// TestSubnetLosesItsGateway: default routes lead to the new address, or on the link to anywhere.
func TestSubnetLosesItsGateway(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	network, subnet := w.external()
	r := w.router(`{"external_gateway_info":{"network_id":"` + network + `"}}`)
	for _, step := range []struct{ gateway, want string }{{`"172.24.4.254"`, "172.24.4.254"}, {`null`, "invalid IP"}, {`"172.24.4.1"`, "172.24.4.1"}} {
		text := `{"gateway_ip":` + step.gateway + `,"allocation_pools":[{"start":"172.24.4.2","end":"172.24.4.99"}]}`
		if _, err := w.change(w.admin, neutron.Subnets, subnet, text); err != nil {
			t.Fatal(err)
		}
		var hops []string
		for _, route := range w.bundle("router-gateway", r.Gateways[0].PortID).Routes {
			if route.DstSubnet.Bits() == 0 {
				hops = append(hops, route.NextHopGateway.String())
			}
		}
		if !slices.Equal(hops, []string{step.want}) {
			t.Errorf("gateway %s: default routes by %v", step.gateway, hops)
		}
	}
	w.checkDerived(t)
}

// TestInterfaceMoves: rules and routes of an interface follow its address and its MAC address
// (midonet-translations §7.2 step 7), where files change them, as clients cannot.
func TestInterfaceMoves(t *testing.T) {
	t.Parallel()
	w := open(t, store.NewMemory(), control.Options{ServiceMACs: true})
	n := w.network(`{}`).ID
	s := w.subnet(n, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	other := w.subnet(n, `"ip_version":4,"cidr":"10.0.1.0/24"`)
	r := w.router(`{}`)
	port := w.joined(r.ID, s.ID).PortID
	for _, step := range []struct{ address, subnet, gatewayOf string }{
		{"10.0.0.9", s.ID, ""}, {"10.0.1.1", other.ID, other.ID}, {"10.0.0.1", s.ID, s.ID},
	} {
		if _, err := w.change(w.admin, neutron.Ports, port, `{"fixed_ips":[{"ip_address":"`+step.address+`"}]}`); err != nil {
			t.Fatal(err)
		}
		b := w.bundle("router-interface", port)
		if q := b.Ports[0]; q.PortAddress.String() != step.address || q.DhcpID != step.gatewayOf {
			t.Errorf("at %s: %+v", step.address, q)
		}
		for _, e := range b.Rules {
			reply := e.Rule.Condition.NwDstIP.String() == step.address+"/32"
			hairpin := len(e.Rule.NatTargets) == 1 && e.Rule.NatTargets[0].NwStart.String() == step.address
			if !reply && !hairpin {
				t.Errorf("at %s: rule %s", step.address, &e.Rule)
			}
		}
		local := translate.Derive("route.local", translate.Derive("port.rif", port), step.address)
		if len(b.Rules) != 2 || len(b.Routes) != 2 || b.Routes[0].ID != local && b.Routes[1].ID != local {
			t.Errorf("at %s: %+v", step.address, b)
		}
		w.checkDerived(t)
	}
}

// TestSeveralGateways adds gateways, replaces and removes them, and goes on with
// external_gateway_info, which is the first. Whatever is refused leaves the store as it was.
func TestSeveralGateways(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	networks := map[string]string{
		"a": w.pooledNetwork("203.0.113"), "b": w.pooledNetwork("198.51.100"), "c": w.pooledNetwork("192.0.2"),
		"like a": w.externalNetwork("203.0.113.128/25"), "inner": w.network(`{}`).ID, "gone": "90000000-0000-4000-8000-000000000009",
	}
	s := w.subnetOn("10.0.0.0/24")
	r := must[*neutron.RouterView](w, w.member, neutron.Routers, `{}`)
	w.addInterface(r.ID, s.ID)
	f := func(network string) *neutron.FloatingIPView {
		return must[*neutron.FloatingIPView](w, w.member, neutron.FloatingIPs,
			`{"floating_network_id":"`+networks[network]+`","port_id":"`+w.port(s.NetworkID, "").ID+`"}`)
	}
	must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+networks["b"]+`","fixed_ips":[{"ip_address":"198.51.100.200"}]}`)
	snat := func(on bool) *bool { return &on }
	at := func(ip string) []neutron.FixedIPRequest {
		return []neutron.FixedIPRequest{{IPAddress: netip.MustParseAddr(ip)}}
	}
	type gateways []*neutron.GatewayRequest
	ops := w.Routers()
	for i, step := range []struct {
		do      string
		by      neutron.Caller
		request gateways
		info    string // of external_gateway_info
		serve   string // network of a floating IP made before
		want    string // the networks, with the addresses asked for and "-" for no SNAT; or the error
	}{
		{do: "add", by: w.member, request: gateways{}, want: ""},
		{do: "remove", by: w.member, request: gateways{{NetworkID: "a"}}, want: "UnableToMatchGateways: Unable to match a requested gateway port to existing gateway ports for router <router>. could not match a gateway port attached to network <a>"},
		{do: "add", by: w.member, request: gateways{{NetworkID: "a"}, {NetworkID: "b"}}, want: "a b"},
		{do: "add", by: w.member, request: gateways{{NetworkID: "c", EnableSNAT: snat(true)}}, want: "PolicyNotAuthorized: (rule:add_external_gateways and (rule:add_external_gateways:external_gateways:network_id and rule:add_external_gateways:external_gateways:enable_snat)) is disallowed by policy"},
		{do: "add", by: w.other, request: gateways{{NetworkID: "c"}}, want: "RouterNotFound: Router <router> could not be found"},
		{do: "add", by: w.admin, request: gateways{{NetworkID: "c"}, {NetworkID: "inner"}}, want: "BadRequest: Bad router request: Network <inner> is not an external network."},
		{do: "add", by: w.admin, request: gateways{{NetworkID: "c"}, {NetworkID: "gone"}}, want: "NetworkNotFound: Network <gone> could not be found."},
		{do: "add", by: w.member, request: gateways{{NetworkID: "c"}, {NetworkID: "c"}}, want: "a b c c"},
		{do: "update", by: w.admin, request: gateways{{NetworkID: "c"}, {NetworkID: "c", FixedIPs: at("192.0.2.30"), EnableSNAT: snat(false)}, {NetworkID: "a"}, {NetworkID: "b"}}, want: "c c-192.0.2.30 a b"},
		{do: "remove", by: w.member, request: gateways{{NetworkID: "c", FixedIPs: at("192.0.2.30")}}, want: "c a b"},
		{do: "remove", by: w.member, request: gateways{{NetworkID: "c"}}, want: "a b"},
		{do: "add", by: w.admin, request: gateways{{NetworkID: "c"}, {NetworkID: "like a"}}, want: "BadRequest: Bad router request: Cidr"},
		{do: "set", by: w.admin, info: "b", want: "b b"},
		{do: "update", by: w.admin, request: gateways{{NetworkID: "a"}, {NetworkID: "b"}}, want: "a b"},
		{do: "update", by: w.admin, request: gateways{{NetworkID: "a"}, {NetworkID: "b", FixedIPs: at("198.51.100.200")}}, want: "IpAddressAlreadyAllocated: IP address 198.51.100.200 already allocated"},
		{do: "update", by: w.admin, request: gateways{{NetworkID: "b", FixedIPs: at("198.51.100.9"), EnableSNAT: snat(false)}, {NetworkID: "c"}, {NetworkID: "a"}}, want: "b-198.51.100.9 c a"},
		{do: "remove", by: w.member, request: gateways{{NetworkID: "c"}, {NetworkID: "b", FixedIPs: at("198.51.100.10")}}, want: "UnableToMatchGateways: Unable to match a requested gateway port to existing gateway ports for router <router>. could not match a gateway port attached to network <b> based on the specified fixed IPs [{'ip_address': '198.51.100.10'}]"},
		{do: "remove", by: w.member, request: gateways{{NetworkID: "b", FixedIPs: at("198.51.100.9")}}, want: "c a"},
		{do: "remove", by: w.admin, serve: "a", request: gateways{{NetworkID: "c"}, {NetworkID: "a"}}, want: "RouterExternalGatewayInUseByFloatingIp: Gateway cannot be updated for router <router>, since a gateway to external network <a> is required by one or more floating IPs."},
		{do: "update", by: w.admin, request: gateways{}, want: "RouterExternalGatewayInUseByFloatingIp"},
		{do: "set", by: w.admin, want: "RouterExternalGatewayInUseByFloatingIp"},
		{do: "set", by: w.member, info: "b", want: "b a"},
		{do: "update", by: w.member, request: gateways{{NetworkID: "a"}, {NetworkID: "b"}}, want: "a b"},
		{do: "remove", by: w.member, request: gateways{{NetworkID: "b"}}, want: "a"},
		{do: "add", by: w.member, request: gateways{{NetworkID: "b"}}, want: "a b"},
		{do: "free", want: "a b"},
		{do: "set", by: w.member, want: ""},
		{do: "update", by: w.member, request: gateways{{NetworkID: "inner"}}, want: "BadRequest: Bad router request: Network <inner> is not an external network."},
		{do: "add", by: w.member, request: gateways{{NetworkID: "a"}, {NetworkID: "b"}}, want: "a b"},
		{do: "update", by: w.member, request: gateways{}, want: ""},
		{do: "add", by: w.member, request: gateways{{NetworkID: "a"}, {NetworkID: "b"}}, want: "a b"},
	} {
		if step.serve != "" {
			f(step.serve)
		}
		names := []string{"<router>", r.ID}
		for name, id := range networks {
			names = append(names, "<"+name+">", id)
		}
		for _, g := range step.request {
			g.NetworkID = networks[g.NetworkID]
		}
		before := w.dump()
		var err error
		switch step.do {
		case "add":
			_, err = ops.AddGateways(t.Context(), step.by, r.ID, step.request)
		case "update":
			_, err = ops.UpdateGateways(t.Context(), step.by, r.ID, step.request)
		case "remove":
			_, err = ops.RemoveGateways(t.Context(), step.by, r.ID, step.request)
		case "set":
			_, err = w.change(step.by, neutron.Routers, r.ID, gatewayState{network: step.info, snat: true}.request(networks))
		case "free":
			list := must2(w.FloatingIPs().List(t.Context(), w.admin, neutron.Query{}))
			for v := range list {
				err = w.remove(w.admin, neutron.FloatingIPs, v.ID)
			}
		}
		if strings.Contains(step.want, ":") || strings.HasPrefix(step.want, "Router") {
			want := strings.NewReplacer(names...).Replace(step.want)
			if err == nil || !strings.HasPrefix(problem(err), want) {
				t.Errorf("step %d, %s: %v, want %s", i, step.do, err, want)
			}
			if d := cmp.Diff(before, w.dump()); d != "" {
				t.Errorf("step %d, %s: refused, but the store changed:\n%s", i, step.do, d)
			}
			continue
		}
		if err != nil {
			t.Fatalf("step %d, %s: %v", i, step.do, err)
		}
		if got := w.gatewaysOf(r.ID, networks); got != step.want {
			t.Errorf("step %d, %s: gateways %q, want %q", i, step.do, got, step.want)
		}
		w.checkDerived(t)
	}
	if err := w.remove(w.member, neutron.Routers, r.ID); err == nil {
		t.Error("a router with an interface was deleted")
	}
	if _, err := w.part(w.member, r.ID, neutron.InterfaceRequest{SubnetID: s.ID}); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.member, neutron.Routers, r.ID); err != nil {
		t.Error(err)
	}
	if left := strings.Join(w.dump(), "\n"); strings.Contains(left, r.ID) || strings.Contains(left, "router_gateway") {
		t.Error("something is left of the router")
	}
}

// gatewaysOf writes the networks of a router's gateways by name, with "-" and the address of one
// without SNAT. It checks that each has a port there.
func (w *world) gatewaysOf(router string, networks map[string]string) string {
	w.t.Helper()
	r := w.showRouter(router)
	var texts []string
	for i, g := range r.Gateways {
		ips := r.ExternalFixedIPs
		if i > 0 {
			ips = r.OtherFixedIPs[i-1]
		}
		p := w.showPort(g.PortID)
		if p.NetworkID != g.NetworkID || !slices.Equal(p.FixedIPs, ips) || p.DeviceID != router || len(ips) != 1 {
			w.t.Errorf("gateway %+v with %v has port %+v", g, ips, p.Port)
		}
		for name, id := range networks {
			if id == g.NetworkID {
				texts = append(texts, name)
			}
		}
		if !g.EnableSNAT {
			texts[i] += "-" + ips[0].IPAddress.String()
		}
	}
	return strings.Join(texts, " ")
}
