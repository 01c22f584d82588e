package operator

import (
	"encoding/json"
	"time"

	"heddle/internal/topology/flow"
)

// History is a page of what changed, the newest first (explain §8).
type History struct {
	Revision int64      `json:"revision"` // of the store, that the answer goes up to
	Epoch    int        `json:"epoch"`    // the newest one
	Changes  []Revision `json:"changes"`
	Gaps     []Gap      `json:"gaps"` // within the page
	// Next is the query's value for "before" that continues; "" = there is no more.
	Next string `json:"next,omitempty"`
	// Begins is the time at which the journal of this server begins.
	Begins time.Time `json:"begins,omitzero"`
	// Problem is the cause for which nothing is recorded at present; "" = there is none.
	Problem string `json:"problem,omitempty"`
	// Names has what the ids in the answer stand for.
	Names map[string]flow.TraceName `json:"names"`
}

// Revision is all that changed in one revision of the store.
type Revision struct {
	Epoch    int       `json:"epoch"` // grows when the store is restored or replaced; revisions compare within one
	Revision int64     `json:"revision"`
	Time     time.Time `json:"time"` // at which the server's journal received it
	// Author is the request that made the change; null: a server's own work, or a direct write to
	// the store.
	Author  *Author         `json:"author"`
	Objects []ChangedObject `json:"objects"`
	// Derived has the changed keys that follow from the objects: the topology, and those of routed
	// hosts.
	Derived []string `json:"derived,omitempty"`
	// Effect is that on connections, if the query wants it.
	Effect *Effect `json:"effect,omitempty"`
}

// Effect is the connections between machines, and between them and outside, that fare otherwise by
// a change.
type Effect struct {
	Lost   []ReachChange `json:"lost"`
	Gained []ReachChange `json:"gained"`
	// PairsOmitted counts the pairs of classes of machines that were not compared, since there were
	// too many, and NotCompared says why nothing was.
	PairsOmitted int    `json:"pairsOmitted,omitempty"`
	NotCompared  string `json:"notCompared,omitempty"`
}

// Author is the request that made a change, and its user.
type Author struct {
	User                    string    `json:"user,omitempty"` // name; "" = a request without a log-in
	UserID                  string    `json:"user_id,omitempty"`
	ProjectID               string    `json:"project_id,omitempty"`
	ApplicationCredentialID string    `json:"application_credential_id,omitempty"`
	Client                  string    `json:"client,omitempty"` // address
	API                     string    `json:"api"`
	Method                  string    `json:"method"`
	Path                    string    `json:"path,omitempty"`
	RequestID               string    `json:"request_id"`
	Summary                 string    `json:"summary"`
	Time                    time.Time `json:"time"`
	Body                    string    `json:"body,omitempty"` // JSON without secrets
	Cut                     bool      `json:"cut,omitempty"`  // the rest of the body is left out
}

// ChangedObject is an object with what changed of it.
type ChangedObject struct {
	Key    string         `json:"key"`
	Kind   string         `json:"kind"` // such as "port", "security group", "port state"
	ID     string         `json:"id"`
	Name   string         `json:"name,omitempty"`
	Change string         `json:"change"`           // created, changed or deleted
	Fields []ChangedField `json:"fields,omitempty"` // none: what it was before cannot be read
}

// ChangedField is a field of an object. An entry of a list has the name "list[id]", or "list[]"
// without an id.
type ChangedField struct {
	Name   string          `json:"name"`
	Before json.RawMessage `json:"before,omitempty"` // missing: it was not there
	After  json.RawMessage `json:"after,omitempty"`
}

// Gap is a part of the past that was not recorded, or cannot be read.
type Gap struct {
	After     int64     `json:"after"` // the last revision before it
	AfterTime time.Time `json:"after_time"`
	Until     int64     `json:"until"` // the first revision whose state is known again
	UntilTime time.Time `json:"until_time"`
	Reason    string    `json:"reason,omitempty"`
}
