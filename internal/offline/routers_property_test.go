package offline

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const (
	kindRouter = iota + 100
	kindFloatingIP
	kindFirewall
	kindFirewallRule
	kindSpeaker
	kindPeer
)

// routerSteps draws steps around two routers, between a tenant's network, an external one and an
// uplink.
type routerSteps struct {
	*history
	t *rapid.T
}

func (r routerSteps) pick(what string, values ...any) any {
	return rapid.SampledFrom(values).Draw(r.t, what)
}

// id draws one of the two ids of a kind, or with more of that many.
func (r routerSteps) id(kind int, of ...int) string {
	most := 1
	if len(of) > 0 {
		most = of[0] - 1
	}
	return uuidOf(kind, rapid.IntRange(0, most).Draw(r.t, fmt.Sprint("which of kind ", kind)))
}

// furnishRouting makes networks and a router with a gateway, an interface, a floating IP and
// a firewall.
func furnishRouting(t *rapid.T, h *history) {
	h.must(t, "create", "host", map[string]any{"id": uuidOf(kindHost, 0), "name": "host0"})
	for i, network := range []map[string]any{{}, {"router:external": true}, {"provider:network_type": "uplink"}} {
		h.must(t, "create", "network", with(network, map[string]any{"id": uuidOf(kindNetwork, i)}))
		h.must(t, "create", "subnet", map[string]any{
			"id": uuidOf(kindSubnet, i), "network_id": uuidOf(kindNetwork, i), "cidr": fmt.Sprintf("10.%d.0.0/29", i),
			"allocation_pools": []any{map[string]any{"start": fmt.Sprintf("10.%d.0.3", i), "end": fmt.Sprintf("10.%d.0.5", i)}},
		})
	}
	for i, p := range []struct{ owner, address string }{
		{"network:router_gateway", "10.1.0.3"}, {"network:router_interface", "10.0.0.1"}, {"network:dhcp", "10.0.0.2"}, {"", "10.0.0.3"},
	} {
		data := map[string]any{"id": uuidOf(kindPort, i), "network_id": uuidOf(kindNetwork, 0), "device_owner": p.owner}
		if i == 0 {
			data["network_id"] = uuidOf(kindNetwork, 1)
		}
		h.must(t, "create", "port", with(data, map[string]any{"fixed_ips": []any{map[string]any{"ip_address": p.address}}}))
	}
	h.must(t, "create", "router", map[string]any{"id": uuidOf(kindRouter, 0), "gw_port_id": uuidOf(kindPort, 0)})
	h.must(t, "create", "router", map[string]any{"id": uuidOf(kindRouter, 1)})
	h.must(t, "create", "router_interface", map[string]any{"id": uuidOf(kindRouter, 0), "port_id": uuidOf(kindPort, 1)})
	h.must(t, "create", "floatingip", map[string]any{
		"id": uuidOf(kindFloatingIP, 0), "floating_network_id": uuidOf(kindNetwork, 1), "port_id": uuidOf(kindPort, 3), "router_id": uuidOf(kindRouter, 0),
	})
	h.must(t, "create", "firewall", map[string]any{
		"id": uuidOf(kindFirewall, 0), addRouterIDs: []any{uuidOf(kindRouter, 0)},
		firewallRuleList: []any{map[string]any{"id": uuidOf(kindFirewallRule, 0), "action": "allow"}},
	})
	h.must(t, "create", "bgp_peer", map[string]any{
		"id": uuidOf(kindPeer, 0), "peer_ip": "10.1.0.6", "remote_as": 65001,
		peerSpeaker: map[string]any{"id": uuidOf(kindSpeaker, 0), "local_as": 64512, "router_id": uuidOf(kindRouter, 0)},
	})
}

// step draws a step, many of which are refused.
func (r routerSteps) step() (op, typ string, data map[string]any) {
	op = r.pick("op", "create", "create", "update", "update", "delete").(string)
	typ = r.pick("type", "port", "port", "router", "router_interface", "router_interface", "floatingip", "floatingip", "firewall", "subnet", "bgp_speaker", "bgp_peer", "bgp_peer").(string)
	switch typ {
	case "port":
		i := rapid.IntRange(0, 2).Draw(r.t, "network")
		data = map[string]any{"id": r.id(kindPort, 6)}
		if op == "create" {
			data["network_id"] = uuidOf(kindNetwork, i)
			data["device_owner"] = r.pick("owner", "", "network:router_gateway", "network:router_interface", "network:dhcp", "network:floatingip")
		}
		if op != "delete" && rapid.Bool().Draw(r.t, "addresses") {
			data["fixed_ips"] = []any{map[string]any{"ip_address": fmt.Sprintf("10.%d.0.%d", i, rapid.IntRange(1, 6).Draw(r.t, "address"))}}
		}
		if op != "delete" && rapid.Bool().Draw(r.t, "bound") {
			data["binding:host_id"], data["binding:profile"] = "host0", map[string]any{"interface_name": r.pick("interface", "eth0", "eth1")}
		}
	case "router":
		data = map[string]any{"id": r.id(kindRouter, 3)}
		if op != "delete" && rapid.Bool().Draw(r.t, "gateway") {
			data["gw_port_id"] = r.pick("gateway port", nil, uuidOf(kindPort, 0), uuidOf(kindPort, 1), uuidOf(kindPort, 2))
		}
		if op == "update" && rapid.Bool().Draw(r.t, "info") {
			data["external_gateway_info"] = map[string]any{"network_id": uuidOf(kindNetwork, 1), "enable_snat": rapid.Bool().Draw(r.t, "SNAT")}
		}
		if op == "update" && rapid.Bool().Draw(r.t, "routes") {
			data["routes"] = []any{map[string]any{"destination": "192.0.2.0/24", "nexthop": r.pick("hop", "10.0.0.6", "10.1.0.6", "10.2.0.1")}}
		}
	case "router_interface":
		if op == "update" {
			op = "create"
		}
		data = map[string]any{"id": r.id(kindRouter), "port_id": r.id(kindPort, 6)}
	case "floatingip":
		data = map[string]any{"id": r.id(kindFloatingIP)}
		if op == "create" {
			data["floating_network_id"] = r.id(kindNetwork, 3)
		}
		if op != "delete" && rapid.Bool().Draw(r.t, "associated") {
			data["port_id"] = r.pick("port", nil, uuidOf(kindPort, 3), uuidOf(kindPort, 3), uuidOf(kindPort, 4), uuidOf(kindPort, 5))
			data["router_id"] = r.pick("router", nil, nil, uuidOf(kindRouter, 0), uuidOf(kindRouter, 1))
		}
	case "firewall":
		data = map[string]any{"id": r.id(kindFirewall)}
		if op != "delete" {
			data["admin_state_up"] = rapid.Bool().Draw(r.t, "up")
			data[firewallRuleList] = []any{map[string]any{
				"id": r.id(kindFirewallRule), "action": r.pick("action", "allow", "deny"), "destination_port": r.pick("port", nil, "80"), "protocol": r.pick("protocol", nil, "tcp"),
			}}
			data[addRouterIDs] = []any{r.id(kindRouter)}
		}
		if op == "update" {
			data[delRouterIDs], data[lastRouter] = []any{r.id(kindRouter)}, rapid.Bool().Draw(r.t, "last")
		}
	case "bgp_speaker":
		data = map[string]any{"id": r.id(kindSpeaker)}
		if op != "delete" {
			data["advertise_tenant_networks"] = rapid.Bool().Draw(r.t, "networks")
		}
		if op == "create" {
			data["local_as"], data["router_id"] = 64513, r.id(kindRouter)
		}
		if op == "update" && rapid.Bool().Draw(r.t, "loses peers") {
			data[deletedPeers] = []any{r.id(kindPeer), r.id(kindPeer)}
		}
	case "bgp_peer":
		data = map[string]any{"id": r.id(kindPeer)}
		if op == "create" {
			data["peer_ip"], data["remote_as"] = r.pick("peer", "10.0.0.6", "10.1.0.6", "10.2.0.6", "192.0.2.9"), 65001
			data[peerSpeaker] = map[string]any{"id": r.id(kindSpeaker), "local_as": 64512, "router_id": r.id(kindRouter)}
		}
	case "subnet":
		op, data = "update", map[string]any{"id": r.id(kindSubnet, 3), "gateway_ip": r.pick("gateway", nil, "10.0.0.1", "10.0.0.6", "10.1.0.1", "10.1.0.6")}
	}
	return op, typ, data
}

// clear deletes what the steps have made, dependants first.
func (r routerSteps) clear() {
	for i := range 2 {
		r.must(r.t, "delete", "bgp_peer", map[string]any{"id": uuidOf(kindPeer, i)})
		r.must(r.t, "delete", "bgp_speaker", map[string]any{"id": uuidOf(kindSpeaker, i)})
		r.must(r.t, "delete", "firewall", map[string]any{"id": uuidOf(kindFirewall, i)})
		r.must(r.t, "delete", "floatingip", map[string]any{"id": uuidOf(kindFloatingIP, i)})
	}
	for i := range 3 {
		if err := r.do("update", "router", map[string]any{"id": uuidOf(kindRouter, i), "routes": []any{}}); err != nil {
			r.t.Logf("router %d is not there: %v", i, err)
		}
	}
	for i := range 6 {
		r.must(r.t, "delete", "port", map[string]any{"id": uuidOf(kindPort, i)})
	}
	for i := range 3 {
		r.must(r.t, "delete", "router", map[string]any{"id": uuidOf(kindRouter, i)})
		r.must(r.t, "delete", "network", map[string]any{"id": uuidOf(kindNetwork, i)})
	}
	r.must(r.t, "delete", "host", map[string]any{"id": uuidOf(kindHost, 0)})
}

// TestRouterSteps: around routers a refused step changes nothing, and once all is deleted nothing
// is left in the topology.
func TestRouterSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		empty := h.text(t)
		furnishRouting(t, h)
		r := routerSteps{h, t}
		for range rapid.IntRange(5, 25).Draw(t, "steps") {
			before := h.text(t)
			op, typ, data := r.step()
			err := h.do(op, typ, data)
			t.Logf("%s %s %v: %v", op, typ, data, err)
			if err == nil {
				continue
			}
			if _, err := refusalOf(err); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, h.text(t)); diff != "" {
				t.Fatalf("refused, but changed:\n%s", diff)
			}
		}
		r.clear()
		if diff := cmp.Diff(empty, h.text(t)); diff != "" {
			t.Fatalf("left behind:\n%s", diff)
		}
	})
}
