package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
	"heddle/internal/neutron"
)

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
