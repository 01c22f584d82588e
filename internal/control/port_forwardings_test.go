package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/neutron"
)

// forward makes a port forwarding of a floating IP, or returns the refusal.
func (w *routedWorld) forward(c neutron.Caller, of, text string) (*neutron.PortForwarding, error) {
	v, err := parse(c, neutron.PortForwardings, neutron.Create, `{`+text+`}`)
	if err != nil {
		return nil, err
	}
	made, err := w.PortForwardings(of).Create(w.t.Context(), c, []neutron.Values{v})
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

// TestPortForwardingLife: forwardings give their floating IP a router and hold it; when the last
// one is deleted, the store is as it was.
func TestPortForwardingLife(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	f := w.floatingIP("")
	p := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.9"}]`)
	to := `"internal_port_id":"` + p.ID + `","internal_ip_address":"10.0.0.9","protocol":"tcp"`
	web, err := w.forward(w.member, f.ID, to+`,"external_port":80,"internal_port":8080`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.forward(w.member, f.ID, to+`,"external_port_range":"9000:9009","internal_port_range":"22"`); err != nil {
		t.Fatal(err)
	}
	now := must2(w.FloatingIPs().Show(t.Context(), w.member, f.ID))
	if now.Status() != "ACTIVE" || now.RouterID != w.routerID || now.PortID != "" || len(now.Forwardings) != 2 {
		t.Errorf("with forwardings: %+v", now)
	}
	w.checkDerived(t)
	refused := func(err error, want string) {
		t.Helper()
		w.expect(err, want)
	}
	inUse := "FipInUseByPortForwarding: Floating IP " + f.ID + " in use by Port Forwarding resources."
	refused(w.remove(w.member, neutron.FloatingIPs, f.ID), inUse)
	other := w.port(w.tenant, "").ID
	_, err = w.change(w.member, neutron.FloatingIPs, f.ID, `{"port_id":"`+other+`"}`)
	refused(err, inUse)
	if after := w.update(f.ID, `{"port_id":null}`); after.RouterID != w.routerID {
		t.Errorf("after an update to no port: %+v", after.FloatingIP)
	}
	_, err = w.change(w.member, neutron.Routers, w.routerID, `{"external_gateway_info":null}`)
	refused(err, "RouterExternalGatewayInUseByFloatingIp: Gateway cannot be updated for router "+w.routerID+
		", since a gateway to external network "+w.external+" is required by one or more floating IPs.")
	_, err = w.Routers().RemoveInterface(t.Context(), w.member, w.routerID, neutron.InterfaceRequest{SubnetID: w.subnetID})
	refused(err, "RouterInterfaceInUseByFloatingIP: Router interface for subnet "+w.subnetID+" on router "+w.routerID+
		" cannot be deleted, as it is required by one or more floating IPs.")
	if err := w.PortForwardings(f.ID).Delete(t.Context(), w.member, web.ID, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.member, neutron.Ports, p.ID); err != nil { // takes its forwardings along
		t.Fatal(err)
	}
	if now := must2(w.FloatingIPs().Show(t.Context(), w.member, f.ID)); now.Status() != "DOWN" || now.RouterID != "" || len(now.Forwardings) != 0 {
		t.Errorf("without forwardings: %+v", now)
	}
	for _, line := range w.dump() {
		if strings.Contains(line, "port-forwarding") {
			t.Errorf("left: %s", line)
		}
	}
	if err := w.remove(w.member, neutron.FloatingIPs, f.ID); err != nil {
		t.Error(err)
	}
}

// TestPortForwardingRefused: each refusal has the reference's name and text, and leaves no trace.
func TestPortForwardingRefused(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	f, g := w.floatingIP(""), w.floatingIP("")
	p := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.9"},{"ip_address":"10.0.0.10"}]`).ID
	floating := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.20"}]`).ID
	h := w.floatingIP(`"port_id":"` + floating + `"`)
	away := w.network(`{}`).ID
	away4 := w.subnet(away, `"ip_version":4,"cidr":"10.9.0.0/24"`).ID
	unreached := w.port(away, `"fixed_ips":[{"ip_address":"10.9.0.9"}]`).ID
	to := func(port, address, rest string) string {
		return `"internal_port_id":"` + port + `","internal_ip_address":"` + address + `","protocol":"tcp",` + rest
	}
	if _, err := w.forward(w.member, f.ID, to(p, "10.0.0.9", `"external_port_range":"80:89","internal_port_range":"8080:8089"`)); err != nil {
		t.Fatal(err)
	}
	before := w.dump()
	bad := func(text string) string { return "BadRequest: Bad port_forwarding request: " + text + "." }
	for _, tt := range []struct {
		c        neutron.Caller
		of, text string
		want     string
	}{
		{w.member, f.ID, to(p, "10.0.0.10", `"external_port":85,"internal_port":1`),
			bad("There is a port collision with the external_port_range. The following ranges collides: 80:89 and 85:85")},
		{w.member, g.ID, to(p, "10.0.0.9", `"external_port":85,"internal_port":8089`),
			bad("There is a port collision with the internal_port_range. The following ranges collides: 8080:8089 and 8089:8089")},
		{w.member, f.ID, to(p, "10.0.0.9", `"external_port":1,"internal_port_range":"1:2"`),
			bad("Invalid ranges of internal and/or external ports. The relation between internal and external ports must be N-N or 1-N")},
		{w.member, f.ID, to(p, "10.0.0.9", `"internal_port":1`), bad("external_port or external_port_range must be specified")},
		{w.member, f.ID, to(p, "10.0.0.77", `"external_port":1,"internal_port":1`),
			bad(fmt.Sprintf("Requested internal IP address 10.0.0.77 is not suitable for internal neutron port %s, as its fixed_ips are "+
				"[{'subnet_id': '%s', 'ip_address': '10.0.0.9'}, {'subnet_id': '%s', 'ip_address': '10.0.0.10'}]", p, w.subnetID, w.subnetID))},
		{w.member, f.ID, to(unreached, "10.9.0.9", `"external_port":1,"internal_port":1`),
			bad("External network " + w.external + " is not reachable from subnet " + away4 + ". Cannot set Port forwarding for port " + unreached + " with Floating IP " + f.ID)},
		{w.member, f.ID, to(floating, "10.0.0.20", `"external_port":1,"internal_port":1`),
			"PortHasBindingFloatingIP: Cannot create port forwarding to floating IP " + h.FloatingIPAddress.String() + " (" + h.ID + ") with port " + floating +
				" using fixed IP 10.0.0.20, as that port already has a binding floating IP."},
		{w.member, h.ID, to(p, "10.0.0.10", `"external_port":1,"internal_port":1`),
			"FloatingIPPortAlreadyAssociated: Cannot associate floating IP " + h.FloatingIPAddress.String() + " (" + h.ID + ") with port " + p +
				" using fixed IP 10.0.0.10, as that fixed IP already has a floating IP on external network " + w.external + "."},
		{w.member, f.ID, to(p, "10.0.0.9", `"external_port":65536,"internal_port":1`),
			"HTTPBadRequest: Invalid input for external_port. Reason: '65536' is too large - must be no larger than '65535'."},
		{w.member, f.ID, to(p, "10.0.0.9", `"external_port_range":"9:8","internal_port":1`),
			"HTTPBadRequest: Invalid input for external_port_range. Reason: First port in a port range must be lower than the second port."},
		{w.member, f.ID, to(p, "10.0.0.9", `"external_port_range":"0:8","internal_port":1`),
			"HTTPBadRequest: Invalid input for external_port_range. Reason: Invalid port: 0, the port must be in the range [1, 65535]."},
		{w.member, f.ID, `"internal_port_id":"` + p + `","protocol":"tcp"`, "HTTPBadRequest: Failed to parse request. Required attribute 'internal_ip_address' not specified"},
		{w.member, f.ID, strings.Replace(to(p, "10.0.0.9", `"external_port":1,"internal_port":1`), "tcp", "sctp", 1),
			"HTTPBadRequest: Invalid input for protocol. Reason: sctp is not in valid_values."},
		{w.member, p, to(p, "10.0.0.9", `"external_port":1,"internal_port":1`), "FloatingIPNotFound: Floating IP " + p + " could not be found"},
		{w.other, f.ID, to(p, "10.0.0.9", `"external_port":1,"internal_port":1`), "FloatingIPNotFound: Floating IP " + f.ID + " could not be found"},
		{neutron.Caller{ProjectID: w.member.ProjectID, Roles: []string{"reader"}}, f.ID, to(p, "10.0.0.9", `"external_port":1,"internal_port":1`),
			"PolicyNotAuthorized: rule:create_floatingip_port_forwarding is disallowed by policy"},
	} {
		_, err := w.forward(tt.c, tt.of, tt.text)
		w.expect(err, tt.want)
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("refused, but the store changed:\n%s", d)
	}
	_, err := w.PortForwardings(g.ID).Show(t.Context(), w.member, p)
	w.expect(err, "PortForwardingNotFound: Port Forwarding "+p+" could not be found.")
}

// TestForwardingToUnseenPort: a refusal does not name the floating IP of another project's port.
func TestForwardingToUnseenPort(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	p := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.20"}]`).ID
	w.floatingIP(`"port_id":"` + p + `"`)
	f := must[*neutron.FloatingIPView](w.world, w.other, neutron.FloatingIPs, `{"floating_network_id":"`+w.external+`"}`)
	_, err := w.forward(w.other, f.ID, `"internal_port_id":"`+p+`","internal_ip_address":"10.0.0.20","protocol":"tcp","external_port":1,"internal_port":1`)
	w.expect(err, "PortNotFound: Port "+p+" could not be found.")
}

// TestManyForwardings: a floating IP and a port have forwardings up to a limit, at which the port
// can be deleted still.
func TestManyForwardings(t *testing.T) {
	t.Parallel()
	const most = 500
	w := behindRouter(inMemory(t))
	first, second := w.floatingIP(""), w.floatingIP("")
	p := w.port(w.tenant, `"fixed_ips":[{"ip_address":"10.0.0.9"}]`)
	forward := func(of *neutron.FloatingIPView, n int) error {
		_, err := w.forward(w.member, of.ID, fmt.Sprintf(`"internal_port_id":%q,"internal_ip_address":"10.0.0.9","protocol":"tcp",
			"external_port":%d,"internal_port":%d`, p.ID, n, n))
		return err
	}
	for n := range most {
		if err := forward(first, 1+n); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
	}
	tooMany := "BadRequest: Bad port_forwarding request: There may be no more than 500 port forwardings of a floating IP, and to a port."
	w.expect(forward(first, most+1), tooMany)
	w.expect(forward(second, most+1), tooMany)
	if err := w.remove(w.member, neutron.Ports, p.ID); err != nil {
		t.Fatal(err)
	}
	if now := must2(w.FloatingIPs().Show(t.Context(), w.member, first.ID)); len(now.Forwardings) > 0 || now.Status() != "DOWN" {
		t.Errorf("without the port: %d forwardings, %s", len(now.Forwardings), now.Status())
	}
	w.checkDerived(t)
}
