package control_test

import (
	"reflect"
	"testing"

	"heddle/internal/control"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/topology"
)

const (
	flatOnPublic = `{"provider:network_type":"flat","provider:physical_network":"public"}`
	vlanOnTrunk  = `{"provider:network_type":"vlan","provider:physical_network":"trunk","provider:segmentation_id":7}`
	refused      = "InvalidInput: Invalid input for operation: "
)

// TestNetworksThatNoHostCarries are refused, and the answer says what to start.
func TestNetworksThatNoHostCarries(t *testing.T) {
	t.Parallel()
	configured := inMemory(t)
	_, err := configured.create(configured.admin, neutron.Networks, flatOnPublic)
	configured.expect(err, refused+"physical_network 'public' unknown for flat provider network: no host carries it; "+
		"start an agent with --physical public=INTERFACE.")
	_, err = configured.create(configured.admin, neutron.Networks, vlanOnTrunk)
	configured.expect(err, refused+"physical_network 'trunk' unknown for VLAN provider network.")
	configured.carry("public")
	must[*neutron.NetworkView](configured, configured.admin, neutron.Networks, flatOnPublic)

	open := open(t, store.NewMemory(), control.Options{PhysicalNetworks: map[string]control.PhysicalNetwork{}})
	_, err = open.create(open.admin, neutron.Networks, vlanOnTrunk)
	open.expect(err, refused+"physical_network 'trunk' unknown for VLAN provider network: no host carries it; "+
		"start an agent with --physical trunk=INTERFACE.")
	open.carry("trunk")
	n := must[*neutron.NetworkView](open, open.admin, neutron.Networks, vlanOnTrunk)
	_, err = open.change(open.admin, neutron.Networks, n.ID, `{"provider:segmentation_id":8}`)
	open.expect(err, "")
	_, err = open.create(open.admin, neutron.Networks, `{"provider:network_type":"vlan","provider:physical_network":"trunk"}`)
	open.expect(err, refused+"Physical network trunk requires segmentation_id to be specified when creating a provider network: "+
		"it has no VLAN ids to choose from; start the servers with --physical-network trunk:MIN-MAX.")
	_, err = open.create(open.admin, neutron.Networks, `{"provider:network_type":"vlan"}`)
	open.expect(err, refused+"provider:physical_network and provider:segmentation_id are required for a VLAN provider network: "+
		"no physical network that hosts carry has VLAN ids to choose from; start the servers with --physical-network NAME:MIN-MAX.")
}

// TestLocalnetPort: a network on a physical network has one, with a tunnel key of its own that is
// kept as the network changes.
func TestLocalnetPort(t *testing.T) {
	t.Parallel()
	w := open(t, store.NewMemory(), control.Options{PhysicalNetworks: map[string]control.PhysicalNetwork{}})
	w.carry("public", "trunk")
	port := func(n *neutron.NetworkView) topology.Port {
		t.Helper()
		ports := w.bundle("network", n.ID).Ports
		if len(ports) != 1 {
			t.Fatalf("%s has the ports %+v", n.ID, ports)
		}
		return ports[0]
	}
	flat := must[*neutron.NetworkView](w, w.admin, neutron.Networks, flatOnPublic)
	vlan := must[*neutron.NetworkView](w, w.admin, neutron.Networks, vlanOnTrunk)
	a, b := port(flat), port(vlan)
	if want := (topology.Port{ID: translate.Derive("port.localnet", flat.ID), NetworkID: flat.ID, AdminStateUp: true,
		TunnelKey: a.TunnelKey, PhysicalNetwork: "public"}); !reflect.DeepEqual(a, want) {
		t.Errorf("got  %+v\nwant %+v", a, want)
	}
	if b.PhysicalNetwork != "trunk" || b.VlanID != 7 || b.TunnelKey == a.TunnelKey || a.TunnelKey>>20 != 4 || b.TunnelKey>>20 != 4 {
		t.Errorf("got %v beside %v", b, a)
	}
	if _, err := w.change(w.admin, neutron.Networks, vlan.ID, `{"provider:segmentation_id":8,"name":"x"}`); err != nil {
		t.Fatal(err)
	}
	if got := port(vlan); got.VlanID != 8 || got.TunnelKey != b.TunnelKey {
		t.Errorf("after the change of the VLAN id: %v", got)
	}
}

// TestExternalNetworkWithoutType is flat on the physical network that hosts carry, if that is one.
func TestExternalNetworkWithoutType(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		carried []string
		types   []string // of external networks made one after another
	}{
		{"none carried", nil, []string{"vxlan"}},
		{"one carried", []string{"public"}, []string{"flat", "vxlan"}},
		{"two carried", []string{"public", "trunk"}, []string{"vxlan"}},
	} {
		w := open(t, store.NewMemory(), control.Options{PhysicalNetworks: map[string]control.PhysicalNetwork{}})
		w.carry(tt.carried...)
		for i, want := range tt.types {
			n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`)
			if n.NetworkType != want {
				t.Errorf("%s: network %d is of type %s, want %s", tt.name, i+1, n.NetworkType, want)
			}
		}
		if n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{}`); n.NetworkType != "vxlan" {
			t.Errorf("%s: a network that is not external is of type %s", tt.name, n.NetworkType)
		}
	}
}
