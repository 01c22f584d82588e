package translate

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// TapService translates a tap service into a mirror of any packet (midonet-translations §20).
func TapService(s *neutron.TapService) topology.Bundle {
	return topology.Bundle{Mirrors: []topology.Mirror{{
		ID: s.ID, ToPortID: s.PortID, Conditions: []topology.Condition{{FragmentPolicy: topology.FragAny}},
	}}}
}

// TapFlow translates a tap flow into the entries of its service's mirror at the source port. It
// names both by id, so that changes of these concern no flow.
func TapFlow(f *neutron.TapFlow) topology.Bundle {
	var vlans []topology.VLANRange
	for _, r := range f.VLANs() {
		vlans = append(vlans, topology.VLANRange(r))
	}
	var b topology.Bundle
	attach := func(position topology.MirrorPosition) {
		b.MirrorEntries = append(b.MirrorEntries,
			topology.MirrorEntry{PortID: f.SourcePortID, MirrorID: f.TapServiceID, Position: position, VLANs: vlans})
	}
	if f.Direction != neutron.TapOut {
		attach(topology.PreOutFilter)
	}
	if f.Direction != neutron.TapIn {
		attach(topology.PostInFilter)
	}
	return b
}
