package control_test

import (
	"testing"

	"heddle/internal/control/addresses"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// TestContainerKeepsItsPlace: a container that is derived again keeps its host, and what names its
// port; one that is deleted leaves nothing.
func TestContainerKeepsItsPlace(t *testing.T) {
	w := inMemory(t)
	bundle := func(routes ...topology.Route) topology.Bundle {
		return topology.Bundle{
			ServiceContainers: []topology.ServiceContainer{{ID: "c", ServiceType: topology.ContainerHAProxy, PortID: "p"}},
			Ports:             []topology.Port{{ID: "p", RouterID: "r"}}, Routes: routes,
		}
	}
	stored := func() topology.Port {
		t.Helper()
		snap, err := w.db.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, ok := schema.Bundles.Peek(snap, schema.ContainerBundleID("c"))
		if !ok {
			t.Fatal("the container has no bundle")
		}
		return b.Bundle.Ports[0]
	}
	put := func(b topology.Bundle) {
		t.Helper()
		if err := w.PutContainer(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	put(bundle())
	first := stored()
	if first.TunnelKey <= addresses.ContainerKeys || first.TunnelKey >= addresses.LocalnetKeys || first.PortMAC == (packet.MAC{}) || first.HostID != "" || first.ServiceContainerID != "c" {
		t.Errorf("a new container has the port %+v", first)
	}
	if _, err := w.db.Update(t.Context(), func(tx *records.Tx) error {
		return schema.ContainerBindings.Put(tx, &topology.ContainerBinding{ContainerID: "c", HostID: "h", InterfaceName: "hctp"})
	}); err != nil {
		t.Fatal(err)
	}
	put(bundle(topology.Route{ID: "1"}))
	if got := stored(); got.HostID != "h" || got.InterfaceName != "hctp" || got.PortMAC != first.PortMAC || got.TunnelKey != first.TunnelKey {
		t.Errorf("derived again it has the port %+v, before %+v", got, first)
	}
	for range 2 {
		if err := w.DropContainer(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
	}
	for prefix := range map[string]bool{schema.TopologyPrefix: true, schema.ContainersPrefix: true} {
		if left := w.under(prefix); len(left) > 0 {
			t.Errorf("left below %s: %v", prefix, left)
		}
	}
}
