package flow

import "time"

// Directions of packets, as a port's machine sees them.
const (
	Egress  = "egress"
	Ingress = "ingress"
)

// CountersRequest asks a host's agent for its counters of packets by decision.
type CountersRequest struct {
	PortID string `json:"portId,omitempty"` // drops at this port alone; "": at all
	Code   Code   `json:"code,omitzero"`    // drops with this code alone
	// Rules asks for a counter of each rule that has decided, in place of drops.
	Rules bool `json:"rules,omitempty"`
}

// CountersAnswer is the answer to a [CountersRequest].
type CountersAnswer struct {
	Since time.Time `json:"since"` // when the agent began to count
	// Counters has those with most packets first.
	Counters []Counter `json:"counters"`
	Left     int       `json:"left,omitempty"` // counters that are left out
	// Unsettled is the number of flows of which the last packets could not be counted.
	Unsettled uint64 `json:"unsettled,omitempty"`
	// Asked lists, where rules were asked for, the ports to whose rules packets have come.
	Asked []PortAsked `json:"asked,omitempty"`
}

// Counter is the number of packets with one decision.
type Counter struct {
	PortID    string `json:"portId,omitempty"` // "": those of many, for which there is no counter of their own
	Direction string `json:"direction,omitempty"`
	Device    string `json:"device,omitempty"` // id of what dropped them, unless that is the port
	Code      Code   `json:"code,omitzero"`
	Chain     string `json:"chain,omitempty"`
	Rule      string `json:"rule,omitempty"`
	// Object is the owner of the rule, or of the device.
	Object  *Object `json:"object,omitempty"`
	Packets uint64  `json:"packets"`
	Bytes   uint64  `json:"bytes"`
}

// PortAsked is a port to whose rules of one direction packets other than replies have come.
type PortAsked struct {
	PortID    string `json:"portId"`
	Direction string `json:"direction"`
}
