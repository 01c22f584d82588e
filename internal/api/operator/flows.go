package operator

import "heddle/internal/topology/flow"

// Flow is a record of a host's flow log, with the names of what it is about.
type Flow struct {
	flow.FlowRecord
	// From and To describe the ports of the record, as they are now: nil for those that are not
	// known or are no more.
	From *FlowEnd `json:"from,omitempty"`
	To   *FlowEnd `json:"to,omitempty"`
}

// FlowEnd is a port at an end of a flow.
type FlowEnd struct {
	Name    string        `json:"name"`
	Network flow.Object   `json:"network"`
	Groups  []flow.Object `json:"groups"` // security groups
}
