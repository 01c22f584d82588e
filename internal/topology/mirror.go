package topology

// Mirror sends copies of packets out of a port (midonet-topology §3.6).
type Mirror struct {
	ID         string      `json:"id"`
	ToPortID   string      `json:"toPortId"`
	Conditions []Condition `json:"conditions"` // of which one has to match

	// Back-references, filled by Link only.
	PortPostInFilterIDs []string `json:"portPostInFilterIds,omitempty"`
	PortPreOutFilterIDs []string `json:"portPreOutFilterIds,omitempty"`
}

// MirrorPosition is the place at a port where packets are copied.
type MirrorPosition string

// The positions of mirrors. Both are between the network and the port's filters.
const (
	// PostInFilter has what the port's inbound filter lets through into the network.
	PostInFilter MirrorPosition = "POST_IN_FILTER"
	// PreOutFilter has what the network hands to the port, ahead of its outbound filter.
	PreOutFilter MirrorPosition = "PRE_OUT_FILTER"
)

// MirrorEntry attaches a mirror to a port. The same mirror may be attached several times by entries
// of different owners; each packet is copied once all the same.
type MirrorEntry struct {
	PortID   string         `json:"portId"`
	MirrorID string         `json:"mirrorId"`
	Position MirrorPosition `json:"position"`
	// VLANs are the VLANs whose frames are copied, nil for all. Frames without a tag have the id 0.
	VLANs []VLANRange `json:"vlans,omitempty"`
}

// VLANRange is a range of VLAN ids, ends included.
type VLANRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// CopiesVLAN reports whether frames with an outermost VLAN id are copied, 0 for no tag.
func (e *MirrorEntry) CopiesVLAN(id uint16) bool {
	for _, r := range e.VLANs {
		if r.First <= id && id <= r.Last {
			return true
		}
	}
	return e.VLANs == nil
}
