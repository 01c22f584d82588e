package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// getTopology calls for the topology.
func (w *world) getTopology(t *testing.T, query string) (v topologyView) {
	t.Helper()
	code, text := w.get(t, "admin", "/v1/topology"+query)
	if err := json.Unmarshal([]byte(text), &v); err != nil || code != http.StatusOK {
		t.Fatalf("got %d %s: %v", code, text, err)
	}
	return v
}

// lines returns nodes and edges by name, one a line.
func (v *topologyView) lines() (all []string) {
	names := map[string]string{}
	for _, n := range v.Nodes {
		names[n.ID] = n.Name
		line := strings.TrimSpace(strings.Join([]string{string(n.Kind), n.Name, string(n.State)}, " "))
		if n.Ports != nil {
			line += fmt.Sprintf(" %+v", *n.Ports)
		}
		all = append(all, line)
	}
	for _, e := range v.Edges {
		all = append(all, names[e.From]+" > "+names[e.To])
	}
	slices.Sort(all)
	return all
}

const (
	testRouter  = "55555555-0000-4000-8000-000000000001"
	testProject = "66666666000040008000000000000001"
	worldNet    = "22222222-0000-4000-8000-00000000000a"
	blueNet     = "22222222-0000-4000-8000-00000000000b"
)

// addRouted makes an external network on physnet1, and behind a router a network with ports of
// machines.
func (w *world) addRouted(t *testing.T, ports int) {
	t.Helper()
	w.update(t, func(tx *records.Tx) error {
		mac := func(n int) packet.MAC { return packet.MAC{2, 0, 0, 0, byte(n >> 8), byte(n)} }
		err := errors.Join(
			schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}),
			schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: worldNet, Name: "world"}, AdminStateUp: true, External: true, NetworkType: "flat", PhysicalNetwork: "physnet1"}),
			schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: blueNet, Name: "blue", ProjectID: testProject}, AdminStateUp: true, NetworkType: "vxlan"}),
			schema.Subnets.Put(tx, &neutron.Subnet{Standard: neutron.Standard{ID: "s", Name: "blue4"}, NetworkID: blueNet, CIDR: netip.MustParsePrefix("10.0.0.0/24")}),
			schema.Routers.Put(tx, &neutron.Router{Standard: neutron.Standard{ID: testRouter, Name: "r1", ProjectID: testProject}, AdminStateUp: true, Gateways: []neutron.RouterGateway{{NetworkID: worldNet, PortID: "gw", EnableSNAT: true}}}),
			schema.Ports.Put(tx, &neutron.Port{Standard: neutron.Standard{ID: "gw"}, NetworkID: worldNet, DeviceOwner: "network:router_gateway", MACAddress: mac(1)}),
			schema.Ports.Put(tx, &neutron.Port{Standard: neutron.Standard{ID: "if"}, NetworkID: blueNet, DeviceOwner: "network:router_interface", MACAddress: mac(2)}),
			schema.RouterPorts.Put(tx, &neutron.RouterPort{PortID: "gw", RouterID: testRouter, Gateway: true}),
			schema.RouterPorts.Put(tx, &neutron.RouterPort{PortID: "if", RouterID: testRouter}),
			schema.SecurityGroups.Put(tx, &neutron.SecurityGroup{Standard: neutron.Standard{ID: group, Name: "web"}, Rules: []neutron.SecurityGroupRule{
				{Standard: neutron.Standard{ID: "r1"}, Direction: "ingress", Ethertype: "IPv4", Protocol: "tcp", PortRangeMin: new(80), PortRangeMax: new(81), RemoteIPPrefix: "192.0.2.0/24"},
				{Standard: neutron.Standard{ID: "r2"}, Direction: "egress", Ethertype: "IPv4", RemoteGroupID: group},
			}}),
		)
		for i := range ports {
			p := &neutron.Port{Standard: neutron.Standard{ID: fmt.Sprintf("p%04d", i), Name: fmt.Sprintf("vm%04d", i)}, NetworkID: blueNet, AdminStateUp: i != 0, MACAddress: mac(10 + i), SecurityGroups: []string{group}}
			if i > 1 {
				p.BoundHostID, p.InterfaceName = host, fmt.Sprintf("eth%d", i)
			}
			err = errors.Join(err, schema.Ports.Put(tx, p))
			if i > 2 {
				err = errors.Join(err, schema.PortStates.Put(tx, &topology.PortState{PortID: p.ID, HostID: host}))
			}
		}
		return errors.Join(err, schema.FloatingIPs.Put(tx, &neutron.FloatingIP{Standard: neutron.Standard{ID: "f"}, FloatingNetworkID: worldNet,
			FloatingIPAddress: netip.MustParseAddr("203.0.113.9"), FloatingPortID: "gw", PortID: "p0003", RouterID: testRouter}))
	})
}

// TestTopology: the graph goes from the outside in, and networks fold their ports.
func TestTopology(t *testing.T) {
	w := newWorld(t, time.Second)
	w.addRouted(t, 30)
	want := []string{
		"blue > ports", "external world", "network blue", "outside > physnet1", "outside outside", "physnet1 > world",
		"ports ports {Total:30 Active:27 Down:1 Unbound:1 Off:1 Routed:0}", "r1 > blue", "router r1", "uplink physnet1 down", "world > r1",
	}
	v := w.getTopology(t, "?scope="+testProject)
	if got := v.lines(); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for _, scope := range []string{blueNet, testRouter, worldNet} {
		v := w.getTopology(t, "?scope="+scope)
		if got := v.lines(); !slices.Equal(got, want) {
			t.Errorf("around %s: got %q\nwant %q", scope, got, want)
		}
	}
	v = w.getTopology(t, "?scope="+testProject+"&expand="+blueNet+":2")
	if got := v.lines(); !slices.Contains(got, "blue > ports") || !slices.Contains(got, "port vm0000 off") || !slices.Contains(got, "port vm0001 unbound") || slices.Contains(got, "port vm0002 down") {
		t.Errorf("expanded: %q", got)
	}
	v = w.getTopology(t, "?expand="+blueNet)
	if got := v.lines(); !slices.Contains(got, "ports ports {Total:10 Active:10 Down:0 Unbound:0 Off:0 Routed:0}") || !slices.Contains(got, "network  off") {
		t.Errorf("all, and 20 ports of blue: %q", got)
	}
	if code, text := w.get(t, "admin", "/v1/topology?scope=nope"); code != http.StatusNotFound || !strings.Contains(text, "has the id nope") {
		t.Errorf("an unknown scope: %d %s", code, text)
	}
	if code, text := w.get(t, "admin", "/v1/topology?expand=a:x"); code != http.StatusBadRequest || !strings.Contains(text, "NETWORK:COUNT") {
		t.Errorf("a wrong count: %d %s", code, text)
	}
	if code, _ := w.get(t, "member", "/v1/topology"); code != http.StatusForbidden {
		t.Errorf("a member: %d", code)
	}
}

// TestLargeTopologyFolds: of more than a picture holds, projects stand for what they have.
func TestLargeTopologyFolds(t *testing.T) {
	w := newWorld(t, time.Second)
	w.addRouted(t, 4)
	w.update(t, func(tx *records.Tx) error {
		var err error
		for i := range mostNodes {
			err = errors.Join(err, schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: fmt.Sprintf("n%03d", i), ProjectID: fmt.Sprintf("project%d", i%3)}, NetworkType: "vxlan"}))
		}
		return err
	})
	v := w.getTopology(t, "")
	if got := v.lines(); !v.Folded || v.LeftOut != 0 || !slices.Contains(got, "world > "+testProject) || len(v.Nodes) != 8 {
		t.Errorf("got %d nodes, folded %v: %q", len(v.Nodes), v.Folded, got)
	}
	i := slices.IndexFunc(v.Nodes, func(n topologyNode) bool { return n.ID == "project1" })
	if i < 0 || v.Nodes[i].Networks != 100 {
		t.Errorf("got %+v", v.Nodes)
	}
	if v := w.getTopology(t, "?scope=project1"); v.Folded || len(v.Nodes) != 100 {
		t.Errorf("a project: %d nodes, folded %v", len(v.Nodes), v.Folded)
	}
}

// TestObjects: an object comes with what belongs to it.
func TestObjects(t *testing.T) {
	w := newWorld(t, time.Second)
	w.addRouted(t, 60)
	for _, c := range []struct {
		path string
		has  []string
	}{
		{"ports/p0003", []string{`"name":"vm0003"`, `"network":{"id":"` + blueNet + `","name":"blue"}`, `"host":{"id":"` + host + `","name":"h1"}`, `"state":"active"`,
			`"floating_ips":[{"id":"f","name":"203.0.113.9"}]`, `"name":"web"`, `"ports":"80-81","remote":"192.0.2.0/24","remote_group":null`}},
		{"ports/if", []string{`"router":{"id":"` + testRouter + `","name":"r1"}`}},
		{"networks/" + blueNet, []string{`"cidr":"10.0.0.0/24"`, `"routers":[{"id":"` + testRouter + `","name":"r1"}]`, `"from":0,"total":61`}},
		{"networks/" + blueNet + "?from=60", []string{`"name":"vm0059"`, `"from":60,"total":61`}},
		{"networks/" + blueNet + "?from=1000", []string{`"ports":[]`}},
		{"routers/" + testRouter, []string{`"routes":[]`, `"gateways":[{"port":{"id":"gw","name":"gw"},"network":{"id":"` + worldNet + `","name":"world"},"addresses":[],"snat":true}]`,
			`"floating_ips":[{"address":"203.0.113.9","port":{"id":"p0003","name":"vm0003"}}]`}},
		{"groups/" + group, []string{`"remote_group":{"id":"` + group + `","name":"web"}`, `"total":60`}},
		{"search?q=203.0.113", []string{`"kind":"port","id":"p0003"`, `"total":1`}},
		{"search?q=VM00", []string{`"name":"vm0019"`, `"total":60`}},
		{"search?q=blue", []string{`{"kind":"network","id":"` + blueNet + `","name":"blue","detail":"10.0.0.0/24"}`}},
		{"search?q=02:00:00:00:00:0d", []string{`"id":"p0003"`}},
		{"search?q=", []string{`"found":[],"total":0`}},
	} {
		code, text := w.get(t, "admin", "/v1/"+c.path)
		for _, words := range c.has {
			if code != http.StatusOK || !strings.Contains(text, words) {
				t.Errorf("%s: %d, no %s in %s", c.path, code, words, text)
			}
		}
	}
	for path, says := range map[string]string{
		"ports/nope": "port nope could not be found", "groups/nope": "security group nope could not be found", "networks/" + blueNet + "?from=x": "want the index",
	} {
		if code, text := w.get(t, "admin", "/v1/"+path); code < 400 || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s, want %q", path, code, text, says)
		}
	}
}

// TestHealth: the health is the status with hosts and ports counted.
func TestHealth(t *testing.T) {
	w := newWorld(t, time.Millisecond)
	w.writeFormat(t)
	w.addRouted(t, 5)
	code, text := w.get(t, "admin", "/v1/health")
	var v healthView
	if err := json.Unmarshal([]byte(text), &v); err != nil || code != http.StatusOK {
		t.Fatalf("got %d %s: %v", code, text, err)
	}
	if v.Hosts != (hostCounts{1, 0}) || v.Ports != (portCounts{Bound: 3, Active: 2, Down: 1}) || len(v.Problems) == 0 || v.Revision == 0 {
		t.Errorf("got %s", text)
	}
}
