package operator

import (
	"time"

	"heddle/internal/topology/flow"
)

// Drops holds what hosts have counted of packets that decisions dropped (explain §3).
type Drops struct {
	Drops []Drop        `json:"drops"` // those of most packets first
	Hosts []CountedHost `json:"hosts"`
}

// Drop is the number of packets that were dropped at a port or on their way from it, for one
// reason.
type Drop struct {
	flow.Counter
	// Port is the port, nil for packets that share a counter because there are too many.
	Port  *flow.Object `json:"port,omitempty"`
	Hosts []string     `json:"hosts"` // names of those that have dropped them
}

// CountedHost is a host that was asked for its counters.
type CountedHost struct {
	Name      string    `json:"name"`
	Since     time.Time `json:"since,omitzero"`      // its agent counts
	Left      int       `json:"left,omitempty"`      // counters of few packets that the answer lacks
	Unsettled uint64    `json:"unsettled,omitempty"` // flows of which the last packets could not be counted
	Error     string    `json:"error,omitempty"`     // why it has not answered
}

// UnusedRules holds the rules of security groups by which no packet was let pass.
type UnusedRules struct {
	Rules []UnusedRule  `json:"rules"`
	Hosts []CountedHost `json:"hosts"`
}

// UnusedRule is a rule by which no packet was let pass.
type UnusedRule struct {
	Group flow.Object `json:"group"`
	Rule  string      `json:"rule"` // id
	Text  string      `json:"text"`
	// Asked: packets other than replies have come to ports of the group in the rule's direction.
	Asked bool `json:"asked"`
	Ports int  `json:"ports"` // of the group
}
