package control_test

import (
	"strings"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
)

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
