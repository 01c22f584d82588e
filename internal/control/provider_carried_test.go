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

// TestNetworkOfOneSegment is the network with the same provider attributes.
func TestNetworkOfOneSegment(t *testing.T) {
	t.Parallel()
	w := open(t, store.NewMemory(), control.Options{PhysicalNetworks: map[string]control.PhysicalNetwork{}})
	w.carry("trunk")
	n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"segments":[`+vlanOnTrunk+`]}`)
	if n.NetworkType != "vlan" || n.PhysicalNetwork != "trunk" || *n.SegmentationID != 7 {
		t.Errorf("a vlan network is on %s %s %d", n.NetworkType, n.PhysicalNetwork, *n.SegmentationID)
	}
	for _, none := range []string{`[]`, `null`} {
		if n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"segments":`+none+`}`); n.NetworkType != "vxlan" {
			t.Errorf("with the segments %s, a network is of type %s", none, n.NetworkType)
		}
	}
	changed, err := w.change(w.admin, neutron.Networks, n.ID, `{"segments":[{"provider:network_type":"vlan","provider:segmentation_id":"8"}]}`)
	if err != nil || *changed.(*neutron.NetworkView).SegmentationID != 8 {
		t.Errorf("changed to %+v, %v", changed, err)
	}
	for text, want := range map[string]string{
		`{"segments":[{"provider:segmentation_id":9}]}`:                                  refused + "network_type required.",
		`{"segments":[` + vlanOnTrunk + `],"provider:network_type":"vlan"}`:              "SegmentsSetInConjunctionWithProviders: Segments and provider values cannot both be set.",
		`{"segments":[{"provider:network_type":"vlan","provider:segmentation_id":8}]}`:   refused + "segmentation_id requires physical_network for VLAN provider network.",
		`{"segments":[{"provider:network_type":"vxlan"},{"provider:network_type":"x"}]}`: "HTTPBadRequest: Invalid input for segments. Reason: 2 segments are not supported: a network is one LAN or one overlay, and so has one segment.",
	} {
		_, err := w.create(w.admin, neutron.Networks, text)
		w.expect(err, want)
	}
}

// TestFlatExternalNetwork is on the physical network that hosts carry, and is refused if there is
// none, or one that is not external.
func TestFlatExternalNetwork(t *testing.T) {
	t.Parallel()
	w := open(t, store.NewMemory(), control.Options{PhysicalNetworks: map[string]control.PhysicalNetwork{}})
	flat := `{"router:external":true,"provider:network_type":"flat"}`
	_, err := w.create(w.admin, neutron.Networks, flat)
	w.expect(err, refused+"physical_network required for flat provider network, and no host carries one that an external network could be on: "+
		"start an agent with --physical NETWORK=INTERFACE and try again, or ask for provider:network_type vxlan, which leads nowhere outside.")
	w.carry("public")
	if n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, flat); n.NetworkType != "flat" || n.PhysicalNetwork != "public" {
		t.Errorf("the network is on %s %s", n.NetworkType, n.PhysicalNetwork)
	}
	_, err = w.create(w.admin, neutron.Networks, flat)
	w.expect(err, "FlatNetworkInUse: Unable to create the flat network. Physical network public is in use.")
	_, err = w.create(w.admin, neutron.Networks, `{"provider:network_type":"flat"}`)
	w.expect(err, refused+"physical_network required for flat provider network.")
	w.carry("public", "trunk")
	_, err = w.create(w.admin, neutron.Networks, flat)
	w.expect(err, refused+"hosts carry the physical networks public, trunk: say which the external network is on with provider:network_type flat and provider:physical_network, or provider:network_type vxlan for none of them.")
}

// TestDefaultExternalNetwork: one external network at most is the default.
func TestDefaultExternalNetwork(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	change := func(id, text string) error { _, err := w.change(w.admin, neutron.Networks, id, text); return err }
	isDefault := func(id string) bool {
		n, err := w.Networks().Show(t.Context(), w.admin, id)
		if err != nil {
			t.Fatal(err)
		}
		return n.Default
	}
	first := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true,"is_default":true}`)
	exists := "DefaultExternalNetworkExists: A default external network already exists: " + first.ID + "."
	second := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`)
	inside := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{}`)
	if !first.Default || second.Default {
		t.Fatalf("default: %v and %v", first.Default, second.Default)
	}
	_, err := w.create(w.admin, neutron.Networks, `{"is_default":true}`)
	w.expect(err, exists)
	w.expect(change(second.ID, `{"is_default":true}`), exists)
	w.expect(change(first.ID, `{"is_default":true}`), "")
	_, err = w.create(w.member, neutron.Networks, `{"is_default":true}`)
	w.expect(err, "PolicyNotAuthorized: (rule:create_network and rule:create_network:is_default) is disallowed by policy")

	w.expect(change(first.ID, `{"router:external":false}`), "")
	w.expect(change(first.ID, `{"router:external":true}`), "")
	w.expect(change(inside.ID, `{"is_default":true}`), "")
	if isDefault(first.ID) || isDefault(inside.ID) {
		t.Errorf("default: a network that was internal, %v, or is, %v", isDefault(first.ID), isDefault(inside.ID))
	}
	w.expect(change(second.ID, `{"is_default":true}`), "")
	w.expect(change(second.ID, `{"is_default":false}`), "")
	w.expect(change(first.ID, `{"is_default":true}`), "")
	w.expect(w.remove(w.admin, neutron.Networks, first.ID), "")
	w.expect(change(second.ID, `{"is_default":true}`), "")
	if !isDefault(second.ID) {
		t.Error("the network left is not the default")
	}
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
		{"two carried", []string{"public", "trunk"}, nil},
	} {
		w := open(t, store.NewMemory(), control.Options{PhysicalNetworks: map[string]control.PhysicalNetwork{}})
		w.carry(tt.carried...)
		for i, want := range tt.types {
			n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`)
			if n.NetworkType != want {
				t.Errorf("%s: network %d is of type %s, want %s", tt.name, i+1, n.NetworkType, want)
			}
		}
		if len(tt.carried) > 1 {
			_, err := w.create(w.admin, neutron.Networks, `{"router:external":true}`)
			w.expect(err, "InvalidInput: Invalid input for operation: hosts carry the physical networks public, trunk: say which the external network is on with provider:network_type flat and provider:physical_network, or provider:network_type vxlan for none of them.")
			must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true,"provider:network_type":"vxlan"}`)
		}
		if n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{}`); n.NetworkType != "vxlan" {
			t.Errorf("%s: a network that is not external is of type %s", tt.name, n.NetworkType)
		}
	}
}
