package neutron

import (
	"strconv"
	"strings"
)

// TapService is a port that receives copies of what other ports send and receive (extension taas).
type TapService struct {
	Standard
	PortID string `json:"port_id"`
}

// TapServiceView is a tap service with its status.
type TapServiceView struct {
	*TapService
	Status string // ACTIVE if its port is, else DOWN
	// Filtered reports whether its port has security groups, which apply to the copies.
	Filtered bool
}

// TapFlow has packets of a port copied to the port of a tap service.
type TapFlow struct {
	Standard
	TapServiceID string `json:"tap_service_id"`
	SourcePortID string `json:"source_port"`
	Direction    string `json:"direction"`
	VLANFilter   string `json:"vlan_filter,omitempty"` // as the request wrote it; "" copies all
}

// TapFlowView is a tap flow with its status.
type TapFlowView struct {
	*TapFlow
	Status string // that of its service
}

// Directions of tap flows, as the machine behind the source port sees them.
const (
	TapIn   = "IN"
	TapOut  = "OUT"
	TapBoth = "BOTH"
)

// VLANRange is a range of VLAN ids, ends included. Frames without a tag have the id 0.
type VLANRange struct{ First, Last uint16 }

// maxVLAN is the last VLAN id of a tap flow's filter.
const maxVLAN = 4095

// VLANs returns the VLANs whose frames are copied, nil for all.
func (f *TapFlow) VLANs() []VLANRange {
	ranges, _ := parseVLANs(f.VLANFilter) // it was checked when the flow was created
	return ranges
}

// parseVLANs reads a list of VLAN ids and ranges such as 1,5,10-20; nil for "".
func parseVLANs(list string) ([]VLANRange, error) {
	if list == "" {
		return nil, nil
	}
	var ranges []VLANRange
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, okFirst := vlanID(first)
		b, okLast := vlanID(last)
		if !okFirst || !okLast || a > b {
			return nil, reasonf("'%s' is not a valid input", list)
		}
		ranges = append(ranges, VLANRange{a, b})
	}
	return ranges, nil
}

func vlanID(text string) (uint16, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n <= maxVLAN
}

// NotOfTapsProject is Neutron's error for a port of another project than the tap that names it.
func NotOfTapsProject() *Error {
	return Errorf(Forbidden, "PortDoesNotBelongToTenant", "The specified port does not belong to the tenant")
}

// TapServiceNotOfProject is Neutron's error for a tap flow of another project than its service.
func TapServiceNotOfProject() *Error {
	return Errorf(Forbidden, "TapServiceNotBelongToTenant", "Specified Tap Service does not belong to the tenant")
}
