package neutron

import (
	"slices"
	"strconv"
)

// SegmentRange is a range of segmentation ids that are chosen for networks that name none.
type SegmentRange struct {
	Standard               // ProjectID is "" for a shared one
	Shared          bool   `json:"shared"`
	NetworkType     string `json:"network_type"`
	PhysicalNetwork string `json:"physical_network,omitempty"` // of vlan
	Minimum         int    `json:"minimum"`
	Maximum         int    `json:"maximum"`
}

// Holds reports whether a segmentation id is in the range.
func (r *SegmentRange) Holds(id int) bool { return r.Minimum <= id && id <= r.Maximum }

// Overlaps reports whether two ranges have ids in common.
func (r *SegmentRange) Overlaps(o *SegmentRange) bool {
	return r.NetworkType == o.NetworkType && r.PhysicalNetwork == o.PhysicalNetwork && r.Minimum <= o.Maximum && o.Minimum <= r.Maximum
}

// SegmentRangeView is a range with what networks have of it. The SegmentRange is not to be
// modified.
type SegmentRangeView struct {
	*SegmentRange
	Default   bool           // of the server's options
	Used      map[int]string // projects by the ids of their networks
	Available []int
}

// MaxAvailable bounds the free ids that a range is answered with.
const MaxAvailable = 4096

// maxSegmentationID is that of the reference's table, which is the greatest of any type.
const maxSegmentationID = 1<<32 - 1

func segmentRangeTable() *Table[*SegmentRangeView] {
	std := func(o *SegmentRangeView) *Standard { return &o.Standard }
	project := textOrNullValue(func(o *SegmentRangeView) string { return o.ProjectID })
	owner := func(name, doc string) column[*SegmentRangeView] {
		return row(Attribute{Name: name, Create: true, Default: unset{}, Filter: true, Sort: true, Type: "string", Doc: doc, parse: text(maxProject)}, project)
	}
	bound := func(name string, get func(o *SegmentRangeView) int) column[*SegmentRangeView] {
		return row(Attribute{Name: name, Create: true, Update: true, Default: required{}, Filter: true, Sort: true, Type: "integer",
			Doc: "a segmentation id", parse: between(1, maxSegmentationID)}, numberValue(func(o *SegmentRangeView) int64 { return int64(get(o)) }))
	}
	cols := []column[*SegmentRangeView]{idColumn(std), nameColumn(std),
		row(Attribute{Name: "default", Filter: true, Type: "boolean", Doc: "of the server's options; cannot be changed"},
			flagValue(func(o *SegmentRangeView) bool { return o.Default })),
		row(Attribute{Name: "shared", Create: true, Default: true, Filter: true, Type: "boolean", Doc: "for networks of every project whose own ranges have no free id", parse: flag},
			flagValue(func(o *SegmentRangeView) bool { return o.Shared })),
		owner("tenant_id", "the older name of project_id"), owner("project_id", "for whose networks it is, unless it is shared"),
		row(Attribute{Name: "network_type", Create: true, Default: required{}, Filter: true, Sort: true, Type: "string", Doc: "vlan or vxlan",
			parse: oneOf("vlan", "vxlan", "gre", "geneve")}, textValue(func(o *SegmentRangeView) string { return o.NetworkType })),
		row(Attribute{Name: "physical_network", Create: true, Default: unset{}, Filter: true, Sort: true, Type: "string", Doc: "of vlan",
			parse: nullAs("", text(maxPhysical))}, textOrNullValue(func(o *SegmentRangeView) string { return o.PhysicalNetwork })),
		bound("minimum", func(o *SegmentRangeView) int { return o.Minimum }),
		bound("maximum", func(o *SegmentRangeView) int { return o.Maximum }),
		row(Attribute{Name: "used", Computed: true, Type: "object", Doc: "projects by the ids that their networks have"}, jsonValue(appendUsed)),
		row(Attribute{Name: "available", Computed: true, Type: "list of integers", Doc: "free ids, the first 4096"},
			jsonValue(func(b []byte, o *SegmentRangeView) []byte {
				return appendList(b, o.Available, func(b []byte, id int) []byte { return strconv.AppendInt(b, int64(id), 10) })
			})),
		descriptionColumn(std),
	}
	cols = append(cols, lastColumns(std)...)
	cols = append(cols, tagColumns(Attribute{Doc: "set through the tags sub-resource"}, std)...)
	return newTable(SegmentRanges, cols)
}

func appendUsed(b []byte, o *SegmentRangeView) []byte {
	ids := make([]int, 0, len(o.Used))
	for id := range o.Used {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	b = append(b, '{')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, strconv.Itoa(id))
		b = append(b, ':')
		b = appendString(b, o.Used[id])
	}
	return append(b, '}')
}
