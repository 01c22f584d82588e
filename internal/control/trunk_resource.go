package control

import (
	"cmp"
	"context"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// trunks are the operations on trunks.
type trunks struct {
	*resource[neutron.Trunk, neutron.TrunkView]
}

// TrunkOperations are the operations on trunks.
type TrunkOperations struct {
	Operations[*neutron.TrunkView]
	// AddSubports and RemoveSubports change the subports of a trunk, all or none of a request.
	AddSubports, RemoveSubports func(ctx context.Context, c neutron.Caller, id string, subports []neutron.SubportRequest) (*neutron.TrunkView, error)
}

// Trunks returns the operations on trunks.
func (s *Service) Trunks() TrunkOperations {
	t := trunks{newTrunks(s)}
	o := TrunkOperations{Operations: t.operations(), AddSubports: t.addSubports, RemoveSubports: t.removeSubports}
	o.Update, o.Delete = t.update, t.delete
	return o
}

func newTrunks(s *Service) *resource[neutron.Trunk, neutron.TrunkView] {
	t := schema.Trunks
	return &resource[neutron.Trunk, neutron.TrunkView]{
		service: s, name: neutron.Trunks, make: (*operation).createTrunk,
		finder: ofProject(t,
			by(t, "port", func(q *neutron.Query) []string { return q.PortIDs }),
			byName(t),
			byProject(t)),
		standard:   func(t *neutron.Trunk) *neutron.Standard { return &t.Standard },
		attributes: func(o *neutron.TrunkView) *neutron.Standard { return &o.Standard },
		answer: func(r records.Reader, t *neutron.Trunk, q neutron.Query) *neutron.TrunkView {
			if q.WithoutComputed {
				return &neutron.TrunkView{Trunk: t}
			}
			return trunkView(r, t)
		},
	}
}

// Statuses of trunks.
const (
	statusBuild    = "BUILD"
	statusDegraded = "DEGRADED"
)

// trunkView returns a trunk with its subports, and what the hosts make of them.
func trunkView(r records.Reader, t *neutron.Trunk) *neutron.TrunkView {
	v := &neutron.TrunkView{Trunk: t, Status: statusDown}
	missing, unbound := false, false
	for sub := range schema.Subports.By(r, "trunk", t.ID) {
		v.Subports = append(v.Subports, *sub)
		if p, ok := schema.Ports.Peek(r, sub.PortID); ok {
			unbound = unbound || p.BoundHostID == ""
			missing = missing || !served(r, p)
		}
	}
	slices.SortFunc(v.Subports, func(a, b neutron.Subport) int { return cmp.Compare(a.SegmentationID, b.SegmentationID) })
	parent, ok := schema.Ports.Peek(r, t.PortID)
	switch {
	case !ok || !served(r, parent):
	case unbound:
		v.Status = statusDegraded
	case missing:
		v.Status = statusBuild
	default:
		v.Status = statusActive
	}
	return v
}

// trunkDetails returns what the parent of a trunk shows of it.
func trunkDetails(r records.Reader, trunkID string) *neutron.TrunkDetails {
	d := &neutron.TrunkDetails{TrunkID: trunkID}
	for sub := range schema.Subports.By(r, "trunk", trunkID) {
		if p, ok := schema.Ports.Peek(r, sub.PortID); ok {
			d.Subports = append(d.Subports, neutron.SubportDetails{Subport: *sub, MACAddress: p.MACAddress.String()})
		}
	}
	slices.SortFunc(d.Subports, func(a, b neutron.SubportDetails) int { return cmp.Compare(a.SegmentationID, b.SegmentationID) })
	return d
}
