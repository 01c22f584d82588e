package neutron

import "strconv"

// Trunk is a VLAN-aware port: its parent's interface carries, beside the parent's own frames, those
// of subports with a VLAN tag each. The subports are records of their own.
type Trunk struct {
	Standard
	PortID       string `json:"port_id"`        // the parent, in no other trunk
	AdminStateUp bool   `json:"admin_state_up"` // false: its subports cannot be changed, nor can it be deleted
}

// Subport is a port in a trunk. A port is in one trunk at most.
type Subport struct {
	PortID           string `json:"port_id"`
	TrunkID          string `json:"trunk_id"`
	SegmentationType string `json:"segmentation_type"` // vlan
	SegmentationID   int    `json:"segmentation_id"`
}

// TrunkView is a trunk with its subports. The Trunk is not to be modified.
type TrunkView struct {
	*Trunk
	Status   string
	Subports []Subport // in order of segmentation ids
}

// TrunkDetails shows a trunk at its parent port.
type TrunkDetails struct {
	TrunkID  string
	Subports []SubportDetails
}

// SubportDetails is a subport with the MAC address that its VLAN interface needs in the machine.
type SubportDetails struct {
	Subport
	MACAddress string
}

// Segmentation types of subports.
const (
	SegmentationVLAN    = "vlan"
	segmentationInherit = "inherit" // type and id of the subport's network
)

// maxSegmentation is the highest VLAN id (IEEE 802.1Q §9.6).
const maxSegmentation = 4094

// SubportRequest asks for a port to be in a trunk, or no longer to be.
type SubportRequest struct {
	PortID string
	fields map[string]any
}

// Inherits reports whether the subport is to have the segmentation of its network.
func (r SubportRequest) Inherits() bool { return r.fields["segmentation_type"] == segmentationInherit }

// Segmentation returns the type and id that a request asks for, which must be those of a VLAN.
func (r SubportRequest) Segmentation() (typ string, id int, err error) {
	rawType, hasType := r.fields["segmentation_type"]
	rawID, hasID := r.fields["segmentation_id"]
	if !hasType || !hasID {
		return "", 0, invalidInput("%s", withoutSegmentation(r.fields))
	}
	id, ok := toInt(rawID)
	if !ok {
		return "", 0, invalidInput("Invalid subport details: segmentation_id '%s' is not an integer", pyText(rawID))
	}
	return CheckSegmentation(pyText(rawType), id)
}

// CheckSegmentation refuses a segmentation that subports cannot have.
func CheckSegmentation(typ string, id int) (string, int, error) {
	switch {
	case typ != SegmentationVLAN:
		return "", 0, invalidInput("Unknown segmentation_type '%s'", typ)
	case id < 1 || id > maxSegmentation:
		return "", 0, invalidInput("Segmentation ID '%d' is not in range", id)
	}
	return typ, id, nil
}

func withoutSegmentation(fields map[string]any) error {
	return reasonf("Invalid subport details '%s': missing segmentation information. Must specify both segmentation_id and segmentation_type",
		pyRepr(fields))
}

// ParseSubports reads the body of a request to add subports to a trunk or to remove them.
func ParseSubports(body map[string]any) ([]SubportRequest, error) {
	v, err := subports(body["sub_ports"])
	if err != nil {
		return nil, invalidInput("%s", err)
	}
	return v.([]SubportRequest), nil
}

// subports takes a list of different {port_id, segmentation_type, segmentation_id}: the last two
// together or, to remove one, neither.
func subports(v any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, reasonf("Invalid data format for subports: '%s' is not a list", pyText(v))
	}
	if len(list) > MaxSubports {
		return nil, reasonf("'%d' entries are too many - there may be no more than '%d'", len(list), MaxSubports)
	}
	out := make([]SubportRequest, 0, len(list))
	ports, segments := map[string]bool{}, map[string]bool{}
	for _, x := range list {
		r, err := subport(x, ports)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
		if r.Inherits() {
			continue
		}
		typ, id := r.fields["segmentation_type"], r.fields["segmentation_id"]
		hasType := typ != nil && typ != ""
		if (!hasType || id == nil) && len(r.fields) > 1 {
			return nil, withoutSegmentation(r.fields)
		}
		if id == nil {
			continue
		}
		key := pyText(typ) + "/" + pyText(id)
		if n, ok := toInt(id); ok {
			key = pyText(typ) + "/" + strconv.Itoa(n)
		}
		if segments[key] {
			return nil, reasonf("Segmentation ID '%s' for '%s' is not unique", pyText(id), r.PortID)
		}
		segments[key] = true
	}
	return out, nil
}

// subport reads one entry, whose port is none of those seen.
func subport(v any, seen map[string]bool) (SubportRequest, error) {
	fields, ok := v.(map[string]any)
	if !ok {
		return SubportRequest{}, reasonf("Invalid data format for subport: '%s' is not a dict", pyText(v))
	}
	raw, given := fields["port_id"]
	if !given {
		return SubportRequest{}, reasonf("A valid port UUID must be specified")
	}
	text, _ := raw.(string)
	id, ok := parseUUID(text)
	switch {
	case !ok:
		return SubportRequest{}, reasonf("Invalid UUID for subport: '%s'", pyText(raw))
	case seen[id]:
		return SubportRequest{}, reasonf("Non unique UUID for subport: '%s'", id)
	}
	seen[id] = true
	return SubportRequest{id, fields}, nil
}
