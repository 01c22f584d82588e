package operator

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"heddle/internal/topology/flow"
)

// DiffRequest is the question what a change would do, or what has changed between two times
// (explain §7).
type DiffRequest struct {
	Change []ChangeStep `json:"change,omitempty"` // the steps, in order
	// At is the time at which they would be made: one in RFC 3339, or a revision as heddle history
	// prints it; "" = the present.
	At string `json:"at,omitempty"`
	// From and To are two times, in place of a change; To "" is the present.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// ChangeStep is a request to make, change or delete one object of Neutron's, as heddle translate
// reads it.
type ChangeStep struct {
	Op   string          `json:"op"`   // create, update or delete
	Type string          `json:"type"` // such as port, security_group_rule or router_interface
	Data json.RawMessage `json:"data"` // its attributes
}

// DiffAnswer is the answer. Nothing of it has been done.
type DiffAnswer struct {
	Revision int64 `json:"revision"` // of the store, that the change would be made to
	// Time is that of the commit of the revision, of a question about the past.
	Time *time.Time `json:"time,omitempty"`
	// Until and UntilTime are the later revision, of two times.
	Until     int64           `json:"until,omitempty"`
	UntilTime *time.Time      `json:"untilTime,omitempty"`
	Refused   []RefusedStep   `json:"refused"` // the other steps count
	Objects   []ChangedObject `json:"objects"`
	// Lost and Gained are the connections between machines, and between them and outside, that fare
	// worse or better.
	Lost     []ReachChange `json:"lost"`
	Gained   []ReachChange `json:"gained"`
	Warnings []DiffWarning `json:"warnings"`
	// Cut is the connections of the last minute that a change would end; nil: no host was asked,
	// since the question is about the past, or all that works would go on working.
	Cut *CutConnections `json:"cut,omitempty"`
	// Cuts has what to ask hosts for Cut.
	Cuts []flow.ConnectionSet `json:"-"`
	// PairsOmitted counts the pairs of classes of machines that were not compared, since there were
	// too many.
	PairsOmitted int `json:"pairsOmitted,omitempty"`
	// Names has what the ids in the answer stand for.
	Names map[string]flow.TraceName `json:"names"`
}

// CutConnections is the connections of the last minute that a change would end, but for those whose
// end was seen.
type CutConnections struct {
	Count    int             `json:"count"`
	Examples []CutConnection `json:"examples"` // a few of each host
	// Missing has the hosts that have not answered; their connections are not counted.
	Missing []CountedHost `json:"missing,omitempty"`
}

// CutConnection is one connection, as the host has it that its packets enter by.
type CutConnection struct {
	Host string `json:"host"`
	flow.OpenConnection
}

// RefusedStep is a step of a change that the server would refuse.
type RefusedStep struct {
	Step    int    `json:"step"`   // from 1
	Status  int    `json:"status"` // of HTTP
	Kind    string `json:"kind"`   // Neutron's type of the error
	Message string `json:"message"`
}

// Fate is the outcome of connections.
type Fate string

// Fates, the best one last.
const (
	FateNever  Fate = "never"  // nothing arrives
	FateOneWay Fate = "oneWay" // it arrives, and the answers do not
	FateMay    Fate = "may"    // some connections work, by their source port or by chance
	FateAlways Fate = "always" // all do
)

// ReachChange is some services whose connections between some ends fare otherwise.
type ReachChange struct {
	Version  int            `json:"version"` // of IP, 4 or 6
	Before   Fate           `json:"before"`
	After    Fate           `json:"after"`
	Services []ServiceRange `json:"services"`
	From     ChangeEnds     `json:"from"`
	To       ChangeEnds     `json:"to"`
	Pairs    int            `json:"pairs"` // of machines, or of a machine and outside
	Example  ChangeExample  `json:"example"`
}

// ChangeEnds are the ends of connections on one side: machines, or addresses outside.
type ChangeEnds struct {
	Ports   []ReachPort    `json:"ports,omitempty"`
	Outside []AddressRange `json:"outside,omitempty"` // in order
	Text    string         `json:"text,omitempty"`    // the ranges in words
}

// Has reports whether an address is one of the ends.
func (e *ChangeEnds) Has(a netip.Addr) bool {
	return slices.ContainsFunc(e.Ports, func(p ReachPort) bool { return p.Address == a }) ||
		slices.ContainsFunc(e.Outside, func(r AddressRange) bool { return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 })
}

// ChangeExample is one packet whose fate differs.
type ChangeExample struct {
	From    WhyEnd     `json:"from"`
	To      WhyEnd     `json:"to"`
	Service string     `json:"service"`       // in words, such as "tcp 22"
	Why     *WhyAnswer `json:"why,omitempty"` // what becomes of it afterwards
}

// WarningKind is the kind of a warning.
type WarningKind string

// Kinds of warnings.
const (
	WarnOutside  WarningKind = "opens-to-outside" // addresses outside reach a machine that they did not
	WarnNoEffect WarningKind = "rule-without-effect"
	WarnLockOut  WarningKind = "locks-out" // the address that asks does not reach a machine any more
)

// DiffWarning is something about a change that deserves a second look.
type DiffWarning struct {
	Kind   WarningKind `json:"kind"`
	Text   string      `json:"text"`         // in words
	Object flow.Object `json:"object"`       // that it is about
	By     string      `json:"by,omitempty"` // id of the rule that already lets pass what another does
}
