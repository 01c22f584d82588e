package control_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// associate associates a local IP with a port, or returns the refusal.
func (w *world) associate(c neutron.Caller, localIP, text string) (*neutron.LocalIPAssociationView, error) {
	v, err := parse(c, neutron.LocalIPAssociations, neutron.Create, text)
	if err != nil {
		return nil, err
	}
	made, err := w.LocalIPAssociations(localIP).Create(w.t.Context(), c, []neutron.Values{v})
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

// TestLocalIPs: a local IP holds the port with its address, associations are in the bundles of
// their ports and hold the local IP, and when all is deleted, the store is as it was.
func TestLocalIPs(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{"name":"n"}`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	before := w.dump()
	p := w.port(n.ID, `"fixed_ips":[{"ip_address":"10.0.0.5"}]`)
	own := must[*neutron.LocalIP](w, w.member, neutron.LocalIPs, `{"name":"cache","network_id":"`+n.ID+`","local_ip_address":"10.0.0.77","ip_mode":"passthrough"}`)
	holder := w.showPort(own.LocalPortID)
	if holder.DeviceOwner != "network:local_ip" || holder.DeviceID != own.ID || own.Address.String() != "10.0.0.77" || own.Mode != "passthrough" {
		t.Errorf("local IP %+v, its port %+v", own, holder.Port)
	}
	l := must[*neutron.LocalIP](w, w.member, neutron.LocalIPs, `{"local_port_id":"`+holder.ID+`"}`)
	if l.NetworkID != n.ID || l.Address != own.Address || l.Mode != "translate" {
		t.Errorf("local IP of a port: %+v", l)
	}
	homes := w.bundle("port", holder.ID).LocalIPs
	if len(homes) != 2 || homes[0].FixedIP.IsValid() || homes[0].Address != l.Address || homes[0].MAC != holder.MACAddress {
		t.Errorf("in the bundle of the port with the address: %+v", homes)
	}
	w.expect(w.remove(w.member, neutron.Ports, holder.ID), "ServicePortInUse: Port "+holder.ID+" cannot be deleted directly via the port API: still referenced by Local IPs.")
	_, err := w.change(w.member, neutron.Ports, holder.ID, `{"fixed_ips":[{"ip_address":"10.0.0.78"}]}`)
	w.expect(err, "BadRequest: Bad port request: Port "+holder.ID+" has the address 10.0.0.77 of local IP "+min(l.ID, own.ID)+
		". Delete that before you take the address from the port.")

	a, err := w.associate(w.member, l.ID, `{"fixed_port_id":"`+p.ID+`"}`)
	if err != nil || a.Address != l.Address || a.FixedIP.String() != "10.0.0.5" || a.HostID != "" {
		t.Fatalf("association %+v, %v", a, err)
	}
	want := []topology.LocalIP{{ID: w.bundle("port", p.ID).LocalIPs[0].ID, NetworkID: n.ID, Address: l.Address, PortID: p.ID, MAC: p.MACAddress, FixedIP: a.FixedIP}}
	if got := w.bundle("port", p.ID).LocalIPs; !slices.Equal(got, want) {
		t.Errorf("in the port's bundle: %+v, want %+v", got, want)
	}
	if _, err := w.change(w.member, neutron.LocalIPs, l.ID, `{"name":"x","description":"y"}`); err != nil {
		t.Error(err)
	}
	w.expect(w.remove(w.member, neutron.LocalIPs, l.ID), "LocalIPInUse: Local IP "+l.ID+" is still associated with one or more ports.")
	if _, err := w.change(w.member, neutron.Ports, p.ID, `{"fixed_ips":[{"ip_address":"10.0.0.5"},{"ip_address":"10.0.0.6"}]}`); err != nil {
		t.Fatal(err)
	}
	if got := len(w.bundle("port", p.ID).LocalIPs); got != 1 {
		t.Errorf("with another address the port has %d local IPs, want 1", got)
	}
	if _, err := w.change(w.member, neutron.Ports, p.ID, `{"fixed_ips":[{"ip_address":"10.0.0.6"}]}`); err != nil {
		t.Fatal(err)
	}
	if got := len(w.bundle("port", p.ID).LocalIPs); got != 0 {
		t.Errorf("without the address the port has %d local IPs, want none", got)
	}
	gone := "LocalIPAssociationNotFound: Local IP " + l.ID + " association with port " + p.ID + " could not be found."
	w.expect(w.LocalIPAssociations(l.ID).Delete(t.Context(), w.member, p.ID, nil), gone)
	if _, err := w.change(w.member, neutron.Ports, p.ID, `{"fixed_ips":[{"ip_address":"10.0.0.5"}]}`); err != nil {
		t.Fatal(err)
	}

	if _, err := w.associate(w.member, l.ID, `{"fixed_port_id":"`+p.ID+`","fixed_ip":"10.0.0.5"}`); err != nil {
		t.Fatal(err)
	}
	_, err = w.associate(w.member, l.ID, `{"fixed_port_id":"`+p.ID+`"}`)
	w.expect(err, "LocalIPAssociationExists: Local IP "+l.ID+" association with port "+p.ID+" already exists.")
	if err := w.LocalIPAssociations(l.ID).Delete(t.Context(), w.member, p.ID, nil); err != nil {
		t.Fatal(err)
	}
	_, err = w.LocalIPAssociations(l.ID).Show(t.Context(), w.member, p.ID)
	w.expect(err, gone)

	q := w.port(n.ID, "")
	if _, err := w.associate(w.member, own.ID, `{"fixed_port_id":"`+q.ID+`"}`); err != nil {
		t.Fatal(err)
	}
	if x := w.bundle("port", q.ID).LocalIPs[0]; !x.Passthrough {
		t.Errorf("of mode passthrough: %+v", x)
	}
	for _, x := range []struct {
		neutron.Resource
		id string
	}{{neutron.Ports, q.ID}, {neutron.LocalIPs, l.ID}, {neutron.LocalIPs, own.ID}, {neutron.Ports, p.ID}} {
		if err := w.remove(w.member, x.Resource, x.id); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("left in the store (+) or lost (-):\n%s", d)
	}
}

// TestLocalIPRefusals: what does not fit is refused in the reference's words.
func TestLocalIPRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n, elsewhere := w.network(`{"name":"n"}`), w.network(`{"name":"e"}`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	p, bare := w.port(n.ID, `"fixed_ips":[{"ip_address":"10.0.0.7"}]`), w.port(n.ID, `"fixed_ips":[]`)
	two := w.port(n.ID, `"fixed_ips":[{"ip_address":"10.0.0.208"},{"ip_address":"10.0.0.209"}]`)
	only6 := w.network(`{"name":"six"}`)
	w.subnet(only6.ID, `"ip_version":6,"cidr":"2001:db8::/64"`)
	p6 := w.port(only6.ID, "")
	nothing := "5e7a04b4-84a4-4bd9-a51c-3d9c6d9c0b4f"
	for text, want := range map[string]string{
		``:                                    "LocalIPPortOrNetworkRequired: Either Port ID or Network ID must be specified for Local IP create.",
		`"local_port_id":"` + nothing + `"`:   "BadRequest: Bad local_ip request: Port " + nothing + " not found.",
		`"local_port_id":"` + bare.ID + `"`:   "LocalIPNoIP: Specified Port " + bare.ID + " has no fixed IPs configured.",
		`"local_port_id":"` + two.ID + `"`:    "LocalIPNoRequestedIP: Specified Port " + two.ID + " has several IPs, should specify exact IP address to use for Local IP.",
		`"local_port_id":"` + p6.ID + `"`:     "BadRequest: Bad local_ip request: Local IPs are IPv4 addresses, and " + p6.FixedIPs[0].IPAddress.String() + " is not.",
		`"network_id":"` + elsewhere.ID + `"`: "BadRequest: Bad local_ip request: Network " + elsewhere.ID + " does not contain any IPv4 subnet.",
		`"network_id":"` + nothing + `"`:      "NetworkNotFound: Network " + nothing + " could not be found.",
		`"local_port_id":"` + p.ID + `","local_ip_address":"10.0.0.200"`: "LocalIPRequestedIPNotFound: Specified Port " + p.ID +
			" does not have requested IP address: 10.0.0.200.",
		`"network_id":"` + n.ID + `","ip_mode":"x"`: "HTTPBadRequest: Invalid input for ip_mode. Reason: x is not in valid_values.",
	} {
		_, err := w.create(w.member, neutron.LocalIPs, `{`+text+`}`)
		w.expect(err, want)
	}
	_, err := w.create(w.other, neutron.LocalIPs, `{"local_port_id":"`+p.ID+`"}`)
	w.expect(err, "BadRequest: Bad local_ip request: Port "+p.ID+" not found.")

	l := must[*neutron.LocalIP](w, w.member, neutron.LocalIPs, `{"network_id":"`+n.ID+`"}`)
	for text, want := range map[string]string{
		`"fixed_port_id":"` + nothing + `"`: "BadRequest: Bad local_ip_port_association request: Port " + nothing + " not found.",
		`"fixed_port_id":"` + bare.ID + `"`: "LocalIPNoIP: Specified Port " + bare.ID + " has no fixed IPs configured.",
		`"fixed_port_id":"` + two.ID + `"`:  "LocalIPNoRequestedIP: Specified Port " + two.ID + " has several IPs, should specify exact IP address to use for Local IP.",
		`"fixed_port_id":"` + p6.ID + `"`: "BadRequest: Bad local_ip_port_association request: Port " + p6.ID + " is on network " + only6.ID +
			", and local IP " + l.ID + " on network " + n.ID + ".",
		`"fixed_port_id":"` + p.ID + `","fixed_ip":"10.0.0.200"`: "LocalIPRequestedIPNotFound: Specified Port " + p.ID +
			" does not have requested IP address: 10.0.0.200.",
	} {
		_, err := w.associate(w.member, l.ID, `{`+text+`}`)
		w.expect(err, want)
	}
	_, err = w.associate(w.other, l.ID, `{"fixed_port_id":"`+p.ID+`"}`)
	w.expect(err, "LocalIPNotFound: Local IP "+l.ID+" could not be found.")
}

// TestLocalIPOnForeignNetwork: who may not choose the address of a port may not choose that of a
// local IP either, such as the gateway's.
func TestLocalIPOnForeignNetwork(t *testing.T) {
	t.Parallel()
	n := newSharedNetwork(t)
	for _, network := range []string{n.id, n.external} {
		_, err := n.create(n.member, neutron.LocalIPs, `{"network_id":"`+network+`","local_ip_address":"10.9.0.1"}`)
		n.expect(err, "PolicyNotAuthorized: (rule:create_port and (rule:create_port:fixed_ips and (rule:create_port:fixed_ips:ip_address))) is disallowed by policy")
	}
	must[*neutron.LocalIP](n.world, n.member, neutron.LocalIPs, `{"network_id":"`+n.id+`"}`)
	must[*neutron.LocalIP](n.world, n.admin, neutron.LocalIPs, `{"network_id":"`+n.id+`","local_ip_address":"10.9.0.1"}`)
}

// TestManyLocalIPs: a port has the addresses of so many local IPs, and stands for so many.
func TestManyLocalIPs(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{"name":"n"}`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	holder, backend := w.port(n.ID, ""), w.port(n.ID, "")
	tooMany := "HTTPBadRequest: Invalid input for local_ips. Reason: '101' entries are too many - there may be no more than '100'."
	var last *neutron.LocalIP
	for range neutron.MaxList {
		last = must[*neutron.LocalIP](w, w.member, neutron.LocalIPs, `{"local_port_id":"`+holder.ID+`"}`)
		if _, err := w.associate(w.member, last.ID, `{"fixed_port_id":"`+backend.ID+`"}`); err != nil {
			t.Fatal(err)
		}
	}
	_, err := w.create(w.member, neutron.LocalIPs, `{"local_port_id":"`+holder.ID+`"}`)
	w.expect(err, tooMany)
	one := must[*neutron.LocalIP](w, w.member, neutron.LocalIPs, `{"network_id":"`+n.ID+`"}`)
	_, err = w.associate(w.member, one.ID, `{"fixed_port_id":"`+backend.ID+`"}`)
	w.expect(err, tooMany)
}
