package control

import (
	"context"
	"iter"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// A network has one segment, which is its place in the underlay. A network whose subnets name it is
// a routed provider network: its ports get addresses once their host is known, which must be
// connected to the segment.

// segments are the operations on networks' segments. They are for admins.
type segments struct{ *Service }

// Segments returns the operations on segments. A network has just the one that comes and goes with
// it.
func (s *Service) Segments() Operations[*neutron.SegmentView] {
	o := segments{s}
	return Operations[*neutron.SegmentView]{Create: o.create, Update: o.update, Delete: o.delete, Show: o.show, List: o.list}
}

// segmentOn returns the segment of a network.
func segmentOn(r records.Reader, n *neutron.Network) *neutron.SegmentView {
	id := schema.SegmentID(n.ID)
	if said, ok := schema.Segments.Peek(r, id); ok {
		return &neutron.SegmentView{Segment: *said, Network: n}
	}
	return &neutron.SegmentView{Network: n, Segment: neutron.Segment{NetworkID: n.ID,
		Standard: neutron.Standard{ID: id, CreatedAt: n.CreatedAt, UpdatedAt: n.CreatedAt}}}
}

// segmentByID returns a segment, or nil.
func segmentByID(r records.Reader, id string) *neutron.SegmentView {
	for n := range schema.Networks.By(r, "segment_id", id) {
		return segmentOn(r, n)
	}
	return nil
}

func (s segments) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SegmentView], error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	if !neutron.CanSee(c, neutron.Segments, neutron.Owner{}) {
		return func(func(*neutron.SegmentView) bool) {}, nil
	}
	return func(yield func(*neutron.SegmentView) bool) {
		for _, id := range s.ids(snap, &q) {
			if v := segmentByID(snap, id); v != nil && q.InRange(id) && among(q.IDs, id) && among(q.NetworkIDs, v.NetworkID) && !yield(v) {
				return
			}
		}
	}, nil
}

// ids returns the ids of segments among which are those of a query, in order.
func (s segments) ids(r records.Reader, q *neutron.Query) []string {
	var ids []string
	switch {
	case len(q.IDs) > 0:
		return distinct(q.IDs)
	case len(q.NetworkIDs) > 0:
		for _, network := range q.NetworkIDs {
			ids = append(ids, schema.SegmentID(network))
		}
		return distinct(ids)
	}
	return schema.Networks.IndexValues(r, "segment_id")
}

func (s segments) show(ctx context.Context, c neutron.Caller, id string) (*neutron.SegmentView, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return s.find(snap, c, id)
}

func (s segments) find(r records.Reader, c neutron.Caller, id string) (*neutron.SegmentView, error) {
	if v := segmentByID(r, id); v != nil && neutron.CanSee(c, neutron.Segments, neutron.Owner{}) {
		return v, nil
	}
	return nil, neutron.Segments.NotFound(id)
}

// update sets the name and description of a segment.
func (s segments) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.SegmentView, error) {
	return transact(ctx, s.Service, c, func(o *operation) (*neutron.SegmentView, error) {
		view, err := s.find(o.tx, c, id)
		if err != nil {
			return nil, err
		}
		if _, err := schema.Networks.Need(o.tx, view.NetworkID); err != nil {
			return nil, neutron.Segments.NotFound(id)
		}
		if said, err := schema.Segments.Get(o.tx, id); err == nil { // guarded
			view.Segment = *said
		}
		if err := checkRevision(ifMatch, view.RevisionNumber); err != nil {
			return nil, err
		}
		had := [...]string{view.Name, view.Description}
		applyStandard(&view.Standard, v)
		if had == [...]string{view.Name, view.Description} {
			return view, nil
		}
		o.bump(&view.Standard)
		said := view.Segment
		return view, schema.Segments.Put(o.tx, &said)
	})
}

// create refuses: a network has a segment already.
func (s segments) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.SegmentView, error) {
	if err := neutron.AuthorizeAdmin(c, "create_segment"); err != nil {
		return nil, err
	}
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range vs {
		if _, ok := schema.Networks.Peek(snap, v.Text("network_id")); !ok {
			return nil, neutron.Networks.NotFound(v.Text("network_id"))
		}
	}
	return nil, neutron.Errorf(neutron.Invalid, "BadRequest", "Bad segment request: this server's networks have one segment each, which is there with the network.")
}

// delete refuses: a segment goes with its network.
func (s segments) delete(ctx context.Context, c neutron.Caller, id string, _ *int64) error {
	v, err := s.show(ctx, c, id)
	if err != nil {
		return err
	}
	return conflict("SegmentInUse", "Segment '%s' cannot be deleted: It is the only one of network %s, with which it goes.", id, v.NetworkID)
}

// checkSubnetSegment checks the segment that a subnet is to name; old is the subnet before an
// update, or nil. Subnets that are made at once are held against each other.
func (o *operation) checkSubnetSegment(s, old *neutron.Subnet) error {
	switch {
	case s.SegmentID != "" && segmentByID(o.tx, s.SegmentID) == nil:
		return neutron.Segments.NotFound(s.SegmentID)
	case s.SegmentID != "" && s.SegmentID != schema.SegmentID(s.NetworkID):
		return neutron.Errorf(neutron.Invalid, "NetworkIdsDontMatch",
			"The subnet's network id, '%s', doesn't match the network_id of segment '%s'", s.NetworkID, s.SegmentID)
	case old != nil && old.SegmentID != "" && s.SegmentID != old.SegmentID:
		return neutron.Errorf(neutron.Invalid, "SubnetSegmentAssociationChangeNotAllowed",
			"A subnet that is already associated with a segment cannot have its segment association changed.")
	}
	for other := range schema.Subnets.By(o.tx, "network", s.NetworkID) {
		if other.ID != s.ID && (other.SegmentID == "") != (s.SegmentID == "") {
			return neutron.Errorf(neutron.Invalid, "SubnetsNotAllAssociatedWithSegments",
				"All of the subnets on network '%s' must either all be associated with segments or all not associated with any segment.", s.NetworkID)
		}
	}
	return nil
}

// segmented reports whether a network's subnets name its segment.
func segmented(r records.Reader, networkID string) bool {
	for s := range schema.Subnets.By(r, "network", networkID) {
		return s.SegmentID != ""
	}
	return false
}

// defersAddresses reports whether a new port gets its addresses later, with its host. Those of
// services, which every host serves, do not wait.
func (e portEdit) defersAddresses() bool {
	return !e.v.Has("fixed_ips") && e.v.Text("binding:host_id") == "" && !strings.HasPrefix(e.p.DeviceOwner, ownerNetworkPrefix) &&
		segmented(e.tx, e.p.NetworkID)
}

// settleSegment refuses a host that is not connected to the segment of a routed provider network,
// and gives a port the addresses that waited for its host. before is the host that it named.
func (e portEdit) settleSegment(before string) error {
	p := e.p
	if p.HostID == "" || p.HostID == before || !segmented(e.tx, p.NetworkID) {
		return nil
	}
	switch connected := e.onSegment(p); {
	case !connected && len(p.FixedIPs) > 0 && !e.v.Has("network_id"):
		return conflict("HostNotCompatibleWithFixedIps", "Host %s is not connected to a segment where the existing fixed_ips on port %s will function "+
			"given the routed network topology.", p.HostID, p.ID)
	case !connected:
		return conflict("HostNotConnectedToAnySegment", "Host %s is not connected to any segments on routed provider network '%s'.  "+
			"It should be connected to one.", p.HostID, p.NetworkID)
	case p.IPAllocation != allocationDeferred:
		return nil
	}
	p.IPAllocation, e.v = "", neutron.Values{}
	return e.newAddresses()
}

// onSegment reports whether the host that a port names carries the physical network of its network.
func (o *operation) onSegment(p *neutron.Port) bool {
	n, ok := schema.Networks.Peek(o.tx, p.NetworkID)
	h, err := schema.HostByName(o.tx, p.HostID)
	if !ok || err != nil {
		return false
	}
	if n.PhysicalNetwork == "" {
		return true
	}
	u, ok := schema.Underlays.Peek(o.tx, h.ID)
	return ok && u.PhysicalNetworks[n.PhysicalNetwork] != ""
}
