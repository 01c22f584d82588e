package control_test

import (
	"strings"

	"heddle/internal/neutron"
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

// externalNetwork makes an external network with a subnet. One of 256 addresses gives away 100 to
// 199: others are for peers and for what a test names.
func (w *world) externalNetwork(cidr string) string {
	w.t.Helper()
	n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`)
	text := `{"network_id":"` + n.ID + `","ip_version":4,"cidr":"` + cidr + `"`
	if network, whole := strings.CutSuffix(cidr, ".0/24"); whole {
		text += `,"allocation_pools":[{"start":"` + network + `.100","end":"` + network + `.199"}]`
	}
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, text+`}`)
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
