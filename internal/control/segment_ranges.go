package control

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Ids for networks that name none come from the ranges of their project, then from those that are
// shared and those of the server's options, which are the default ones.

// segmentRanges are the operations on ranges of segmentation ids. They are for admins.
type segmentRanges struct {
	*resource[neutron.SegmentRange, neutron.SegmentRangeView]
}

// keySegmentRanges serializes changes of ranges, which must not overlap.
const keySegmentRanges = "segment-ranges"

func newSegmentRanges(s *Service) *resource[neutron.SegmentRange, neutron.SegmentRangeView] {
	t := schema.SegmentRanges
	return &resource[neutron.SegmentRange, neutron.SegmentRangeView]{
		service: s, name: neutron.SegmentRanges, make: (*operation).createSegmentRange, refusal: (*operation).refuseDefaultRange,
		finder:     finder[neutron.SegmentRange]{t, nil, func(records.Reader, neutron.Caller) []iter.Seq[*neutron.SegmentRange] { return nil }},
		standard:   func(r *neutron.SegmentRange) *neutron.Standard { return &r.Standard },
		attributes: func(o *neutron.SegmentRangeView) *neutron.Standard { return &o.Standard },
		owner:      func(records.Reader, *neutron.SegmentRange) (neutron.Owner, bool) { return neutron.Owner{}, true },
		answer: func(r records.Reader, one *neutron.SegmentRange, q neutron.Query) *neutron.SegmentRangeView {
			return segmentRangeView(r, one, q.WithoutComputed)
		},
	}
}

// SegmentRanges returns the operations on ranges of segmentation ids. Those of the server's options
// are listed and shown, and cannot be changed.
func (s *Service) SegmentRanges() Operations[*neutron.SegmentRangeView] {
	o := s.segmentRanges.operations()
	o.Update, o.Delete, o.List, o.Show = s.segmentRanges.update, s.segmentRanges.delete, s.segmentRanges.list, s.segmentRanges.show
	return o
}

func segmentRangeView(r records.Reader, one *neutron.SegmentRange, plain bool) *neutron.SegmentRangeView {
	v := &neutron.SegmentRangeView{SegmentRange: one}
	if plain {
		return v
	}
	v.Used = usedSegments(r, one)
	for id := one.Minimum; id <= one.Maximum && len(v.Available) < neutron.MaxAvailable; id++ {
		if _, used := v.Used[id]; !used {
			v.Available = append(v.Available, id)
		}
	}
	return v
}

// usedSegments returns the ids of a range that networks have, with their projects. Its cost follows
// the smaller of the range and the number of networks.
func usedSegments(r records.Reader, one *neutron.SegmentRange) map[int]string {
	used := map[int]string{}
	if one.Maximum-one.Minimum < schema.Networks.Count(r) {
		for id := one.Minimum; id <= one.Maximum; id++ {
			for n := range schema.Networks.By(r, "segment", schema.Segment(one.NetworkType, one.PhysicalNetwork, id)) {
				used[id] = n.ProjectID
			}
		}
		return used
	}
	for n := range schema.Networks.All(r) {
		if n.NetworkType == one.NetworkType && n.PhysicalNetwork == one.PhysicalNetwork && n.SegmentationID != nil && one.Holds(*n.SegmentationID) {
			used[*n.SegmentationID] = n.ProjectID
		}
	}
	return used
}

// defaultRanges returns the ranges of the server's options.
func (o *Options) defaultRanges() []*neutron.SegmentRange {
	if o.AnyUnderlay {
		return nil
	}
	var all []*neutron.SegmentRange
	add := func(typ string, r segmentRange) {
		name := fmt.Sprintf("%s/%s/%d-%d", typ, r.physical, r.Min, r.Max)
		all = append(all, &neutron.SegmentRange{
			Standard: neutron.Standard{ID: uuid.NewSHA1(uuid.NameSpaceOID, []byte("heddle default segment range "+name)).String()},
			Shared:   true, NetworkType: typ, PhysicalNetwork: r.physical, Minimum: r.Min, Maximum: r.Max,
		})
	}
	add(typeVXLAN, segmentRange{IDRange: o.VXLANs})
	for _, name := range slices.Sorted(maps.Keys(o.PhysicalNetworks)) {
		for _, r := range o.PhysicalNetworks[name].VLANs {
			add(typeVLAN, segmentRange{physical: name, IDRange: r})
		}
	}
	slices.SortFunc(all, func(a, b *neutron.SegmentRange) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func (s segmentRanges) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SegmentRangeView], error) {
	snap, err := s.service.view(ctx)
	if err != nil {
		return nil, err
	}
	if !neutron.CanSee(c, neutron.SegmentRanges, neutron.Owner{}) {
		return func(func(*neutron.SegmentRangeView) bool) {}, nil
	}
	all := s.service.opts.defaultRanges()
	defaults := len(all)
	all = slices.AppendSeq(all, schema.SegmentRanges.All(snap))
	isDefault := map[string]bool{}
	for _, one := range all[:defaults] {
		isDefault[one.ID] = true
	}
	slices.SortFunc(all, func(a, b *neutron.SegmentRange) int { return cmp.Compare(a.ID, b.ID) })
	return func(yield func(*neutron.SegmentRangeView) bool) {
		for _, one := range all {
			if !q.InRange(one.ID) || !among(q.IDs, one.ID) || !among(q.Names, one.Name) || !among(q.ProjectIDs, one.ProjectID) {
				continue
			}
			view := segmentRangeView(snap, one, q.WithoutComputed)
			view.Default = isDefault[one.ID]
			if !yield(view) {
				return
			}
		}
	}, nil
}

// defaultRange returns the default range with this id, or nil.
func (s *Service) defaultRange(id string) *neutron.SegmentRange {
	all := s.opts.defaultRanges()
	if i := slices.IndexFunc(all, func(r *neutron.SegmentRange) bool { return r.ID == id }); i >= 0 {
		return all[i]
	}
	return nil
}

func (s segmentRanges) show(ctx context.Context, c neutron.Caller, id string) (*neutron.SegmentRangeView, error) {
	one := s.service.defaultRange(id)
	if one == nil || !neutron.CanSee(c, neutron.SegmentRanges, neutron.Owner{}) {
		return s.resource.show(ctx, c, id)
	}
	snap, err := s.service.view(ctx)
	if err != nil {
		return nil, err
	}
	view := segmentRangeView(snap, one, false)
	view.Default = true
	return view, nil
}

// refuseDefaultRange returns the error about a range that cannot be changed: default ones are not
// among the stored.
func (o *operation) refuseDefaultRange(id string, err error) error {
	if o.defaultRange(id) != nil && o.caller.Admin() {
		return neutron.Errorf(neutron.Invalid, "NetworkSegmentRangeDefaultReadOnly",
			"Network Segment Range %s is a default segment range which could not be updated or deleted.", id)
	}
	return err
}

func (o *operation) createSegmentRange(_ context.Context, v neutron.Values) (*neutron.SegmentRange, error) {
	r := &neutron.SegmentRange{Standard: o.standard(v, 1), Shared: v.Flag("shared"), NetworkType: v.Text("network_type"),
		Minimum: number(v, "minimum"), Maximum: number(v, "maximum")}
	switch r.NetworkType {
	case typeVLAN:
		if r.PhysicalNetwork = v.Text("physical_network"); r.PhysicalNetwork == "" {
			return nil, invalid("physical_network is required for a range of VLAN ids")
		}
	case typeVXLAN:
	default:
		return nil, neutron.Errorf(neutron.Invalid, "NetworkSegmentRangeNetTypeNotSupported",
			"Network type %s does not support network segment ranges.", r.NetworkType)
	}
	switch {
	case r.Shared:
		r.ProjectID = ""
	case r.ProjectID == "":
		return nil, invalid("a range that is not shared needs a project_id")
	}
	return r, o.putSegmentRange(r)
}

// putSegmentRange stores a range that is one, and overlaps with no other.
func (o *operation) putSegmentRange(r *neutron.SegmentRange) error {
	most := maxVNI
	if r.NetworkType == typeVLAN {
		most = maxVLAN
	}
	if err := (IDRange{r.Minimum, r.Maximum}).check(most); err != nil {
		return invalid("%s", err)
	}
	o.tx.Touch(keySegmentRanges)
	var overlapping []string
	for other := range schema.SegmentRanges.All(o.tx) {
		if other.ID != r.ID && other.Overlaps(r) {
			overlapping = append(overlapping, other.ID)
		}
	}
	if overlapping != nil {
		return conflict("NetworkSegmentRangeOverlaps", "Network segment range overlaps with range(s) with id %s", strings.Join(overlapping, ", "))
	}
	return schema.SegmentRanges.Put(o.tx, r)
}

// update changes a range. As in the reference it must then reach beyond the ids in use on both
// sides.
func (s segmentRanges) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.SegmentRangeView, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(o *operation, r, old *neutron.SegmentRange) error {
		if n := v.Number("minimum"); n != nil {
			r.Minimum = *n
		}
		if n := v.Number("maximum"); n != nil {
			r.Maximum = *n
		}
		if r.Minimum == old.Minimum && r.Maximum == old.Maximum {
			return nil
		}
		if used := slices.Sorted(maps.Keys(usedSegments(o.tx, old))); len(used) > 0 && (r.Minimum >= used[0] || r.Maximum <= used[len(used)-1]) {
			return rangeInUse(id)
		}
		return nil
	}, (*operation).putSegmentRange)
}

func rangeInUse(id string) error {
	return conflict("NetworkSegmentRangeReferencedByProject", "Network Segment Range %s is referenced by one or more tenant networks.", id)
}

func (s segmentRanges) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, r *neutron.SegmentRange) error {
		if len(usedSegments(o.tx, r)) > 0 {
			return rangeInUse(id)
		}
		o.tx.Touch(keySegmentRanges)
		return schema.SegmentRanges.Delete(o.tx, id)
	})
}

// withRanges returns the options with the ranges that admins have made, as they are to a project.
func (o *operation) withRanges(u *Options, project string) *Options {
	if schema.SegmentRanges.Count(o.tx) == 0 {
		return u
	}
	with := *u
	for r := range schema.SegmentRanges.All(o.tx) {
		switch {
		case r.Shared:
			with.sharedRanges = append(with.sharedRanges, r)
		case r.ProjectID == project:
			with.ownRanges = append(with.ownRanges, r)
			with.reservedRanges = append(with.reservedRanges, r)
		default:
			with.reservedRanges = append(with.reservedRanges, r)
		}
	}
	return &with
}
