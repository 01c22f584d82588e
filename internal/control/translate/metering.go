package translate

import (
	"net/netip"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// MeteringLabel translates a metering label with its rules. The remote prefix of a rule is that of
// the machines inside: what comes in goes to it, as in the reference's iptables.
func MeteringLabel(l *neutron.MeteringLabel, rules []*neutron.MeteringLabelRule) topology.Bundle {
	m := topology.Meter{ID: l.ID, TenantID: l.ProjectID, Shared: l.Shared}
	for _, r := range rules {
		x := topology.MeterRule{Ingress: r.Direction == neutron.DirectionIngress, Excluded: r.Excluded, Src: masked(r.Source), Dst: masked(r.Destination)}
		switch {
		case r.Remote.IsValid() && x.Ingress:
			x.Dst = masked(r.Remote)
		case r.Remote.IsValid():
			x.Src = masked(r.Remote)
		}
		m.Rules = append(m.Rules, x)
	}
	return topology.Bundle{Meters: []topology.Meter{m}}
}

// masked returns a prefix without host bits, nil for none.
func masked(p netip.Prefix) *netip.Prefix {
	if !p.IsValid() {
		return nil
	}
	p = p.Masked()
	return &p
}
