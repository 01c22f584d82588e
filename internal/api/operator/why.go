package operator

import (
	"net/netip"
	"time"

	"heddle/internal/topology/flow"
)

// WhyRequest is the question whether a new connection would pass, and why (explain §5).
type WhyRequest struct {
	From     string `json:"from"`               // a port's id or name, or an address
	To       string `json:"to"`                 // likewise
	Protocol string `json:"protocol,omitempty"` // name or number; "": tcp for a port, else icmp
	Port     uint16 `json:"port,omitempty"`     // destination port
	// SourcePort is that of the connection; 0: one that clients have.
	SourcePort uint16 `json:"sourcePort,omitempty"`
	// Reply asks for the answer within a connection that is there: by what hosts know, in place of
	// what the first packet would leave.
	Reply bool `json:"reply,omitempty"`
	// Live waits for the next first packet that is like this, and explains it; Dropped for one that
	// is dropped.
	Live    bool `json:"live,omitempty"`
	Dropped bool `json:"dropped,omitempty"`
	// At asks about the past: a time in RFC 3339, or a revision as heddle history prints it.
	At string `json:"at,omitempty"`
	// With asks about what it would be after a change, of which nothing is done.
	With []ChangeStep `json:"with,omitempty"`
	// Since asks, too, since which change the verdict is as it is.
	Since bool `json:"since,omitempty"`
}

// Verdict is the answer to a question in a word.
type Verdict string

// Verdicts of questions.
const (
	Allowed Verdict = "allowed" // it arrives, and so does the answer
	Denied  Verdict = "denied"  // it does not arrive
	OneWay  Verdict = "one-way" // it arrives, but the answer does not
)

// WhyAnswer is the answer whether a new connection would pass in both directions.
type WhyAnswer struct {
	Verdict  Verdict `json:"verdict"`
	Revision int64   `json:"revision"` // of the store, that the answer is of
	// Time is that of the commit of the revision, of a question about the past.
	Time *time.Time `json:"time,omitempty"`
	// Refused has the steps of the change that the server would refuse; the others count.
	Refused  []RefusedStep `json:"refused,omitempty"`
	From     WhyEnd        `json:"from"`
	To       WhyEnd        `json:"to"`
	Service  string        `json:"service"` // in words, such as "tcp 443"
	There    WhyLeg        `json:"there"`
	Back     *WhyLeg       `json:"back,omitempty"` // null: nothing is known to arrive that could be answered
	Remedies []Remedy      `json:"remedies"`       // after all of which it would pass
	Since    *WhySince     `json:"since,omitempty"`
	// Names has what the ids in the answer stand for.
	Names map[string]flow.TraceName `json:"names,omitempty"`
}

// WhySince is the change since which a question has its verdict (explain §8), as the server
// simulates it for a new connection: those of the past are not recorded.
type WhySince struct {
	Verdict Verdict `json:"verdict"`
	// Before is the verdict before the change, "" if there was no answer, which Fault explains.
	Before Verdict   `json:"before,omitempty"`
	Fault  string    `json:"fault,omitempty"`
	Change *Revision `json:"change,omitempty"` // null: none was found
	// Looked is the number of changes that were undone for it, the oldest of them at Back. End says
	// why there are no more, if none was found.
	Looked int       `json:"looked"`
	Back   time.Time `json:"back"`
	End    PastEnd   `json:"end,omitempty"`
	Gap    *Gap      `json:"gap,omitempty"`
}

// PastEnd is the cause for which a search in the past went no further.
type PastEnd string

// Causes for which a search goes no further.
const (
	PastBegins   PastEnd = "begins"   // the journal begins there
	PastGap      PastEnd = "gap"      // what is before was not recorded, or cannot be read
	PastRestored PastEnd = "restored" // the store was restored or replaced
	PastLimit    PastEnd = "limit"    // the search has taken as long as it may
)

// WhyEnd is one end of a question.
type WhyEnd struct {
	Port string `json:"port,omitempty"` // id; "" = an address outside
	Name string `json:"name,omitempty"` // of the port
	// Endpoint is the key of an endpoint of Calico's data model, on a routed host.
	Endpoint string     `json:"endpoint,omitempty"`
	Address  netip.Addr `json:"address"`        // by which the other end knows it
	Host     string     `json:"host,omitempty"` // name of the host that serves the port
}

// WhyLeg is one direction of a question.
type WhyLeg struct {
	Allowed bool   `json:"allowed"`
	Port    string `json:"port,omitempty"` // id of the port that the packet arrives at
	Reason  string `json:"reason"`         // in words, also where it is allowed
	// By lists the users' objects that have decided: the rules that let it pass, and what drops it.
	By []flow.Object `json:"by,omitempty"`
	// Nearest lists, of a packet that no security group lets pass, the rule of each group that came
	// nearest.
	Nearest []NearestRule    `json:"nearest,omitempty"`
	Trace   flow.TraceAnswer `json:"trace"`
	// Rest is the rest of the way between a virtual network and a routed host, in the other of the
	// two: Allowed above tells of the first part alone.
	Rest *WhyLeg `json:"rest,omitempty"`
}

// NearestRule is a rule of a security group that does not allow a packet, and why.
type NearestRule struct {
	Group string   `json:"group"`          // id
	Rule  string   `json:"rule,omitempty"` // id; "" = the group has no rule of the direction
	Text  string   `json:"text"`           // the rule in words
	Fails []string `json:"fails"`          // clauses that the packet does not meet
}

// Remedy is a change that would let packets pass. It was tried in memory, and is not made.
type Remedy struct {
	Text    string   `json:"text"`
	Command []string `json:"command"` // words of heddle's command line
	// Input is the text that the command reads from its standard input.
	Input string `json:"input,omitempty"`
}
