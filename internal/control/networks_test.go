package control_test

import (
	"testing"

	"heddle/internal/neutron"
)

func TestFirstPath(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{"name":"n"}`)
	if n.MTU != 1450 || n.NetworkType != "vxlan" || n.SegmentationID == nil || n.RevisionNumber != 1 {
		t.Errorf("network %+v", n.Network)
	}
	s := w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	p := w.port(n.ID, "")
	if len(p.FixedIPs) != 1 || p.FixedIPs[0].SubnetID != s.ID || len(p.SecurityGroups) != 1 || p.Status != "DOWN" || p.VIFType != "unbound" {
		t.Errorf("port %+v", p.Port)
	}
	got, err := w.Network(t.Context(), w.member, n.ID)
	if err != nil || len(got.Subnets) != 1 || got.RevisionNumber != 2 {
		t.Errorf("network after its subnet: %+v, %v", got, err)
	}
	b := w.bundle("port", p.ID)
	if len(b.Ports) != 1 || len(b.Chains) != 3 || len(b.Memberships) != 1 || len(b.DhcpHosts) != 1 {
		t.Errorf("bundle %+v", b)
	}
	for _, step := range []struct {
		r  neutron.Resource
		id string
	}{{neutron.Ports, p.ID}, {neutron.Subnets, s.ID}, {neutron.Networks, n.ID}} {
		if err := w.remove(w.member, step.r, step.id); err != nil {
			t.Errorf("delete %s: %v", step.r, err)
		}
	}
}
