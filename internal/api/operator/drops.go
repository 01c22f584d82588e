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

// Drop is the number of packets that were dropped at a port, on their way from it or by the policy
// of routed hosts, for one reason.
type Drop struct {
	flow.Counter
	Plane string `json:"plane"` // overlay, or policy: of routed hosts
	// Port is the port, nil for packets that share a counter because there are too many, and on
	// routed hosts.
	Port  *flow.Object `json:"port,omitempty"`
	Hosts []string     `json:"hosts"` // names of those that have dropped them
}

// CountedHost is a host that was asked for its counters.
type CountedHost struct {
	Name      string    `json:"name"`
	Plane     string    `json:"plane"`               // overlay or policy
	Since     time.Time `json:"since,omitzero"`      // its agent counts
	Left      int       `json:"left,omitempty"`      // counters of few packets that the answer lacks
	Unsettled uint64    `json:"unsettled,omitempty"` // flows of which the last packets could not be counted
	Error     string    `json:"error,omitempty"`     // why it has not answered
}

// UnusedRules holds the rules of security groups by which no packet was let pass, and the rules of
// policies and profiles that no packet has matched.
type UnusedRules struct {
	Rules []UnusedRule  `json:"rules"`
	Hosts []CountedHost `json:"hosts"`
}

// UnusedRule is a rule by which no packet was let pass, or which none has matched.
type UnusedRule struct {
	Group flow.Object `json:"group"` // or the policy or profile
	Rule  string      `json:"rule"`  // id, or inbound or outbound and the rule's number, with a slash between them
	Text  string      `json:"text"`
	// Asked: packets other than replies have come to ports of the group in the rule's direction, or
	// other rules of the policy or profile have matched there.
	Asked bool `json:"asked"`
	Ports int  `json:"ports"` // of the group; 0 of a policy or profile
}
