// Package audit defines the record of an API request that has changed something. It is written in
// the request's own commits, so that its revision is that of the change, and never has secrets.
package audit

import (
	"cmp"
	"strings"
	"time"
)

// Prefix is that of the records' keys, which end with the request's id.
const Prefix = "/heddle/audit/"

// Record is the description of a request that has changed something.
type Record struct {
	Time                    time.Time `json:"time"` // by the server's clock
	UserID                  string    `json:"user_id,omitempty"`
	User                    string    `json:"user,omitempty"` // name; "" of a request without a log-in
	ProjectID               string    `json:"project_id,omitempty"`
	ApplicationCredentialID string    `json:"application_credential_id,omitempty"`
	Client                  string    `json:"client,omitempty"` // address
	API                     string    `json:"api"`
	Method                  string    `json:"method"` // of HTTP, or the name of a call
	Path                    string    `json:"path,omitempty"`
	RequestID               string    `json:"request_id"`
	Summary                 string    `json:"summary"` // such as "create ports"
	// Body is the JSON of the request without secrets, cut off after MaxBody bytes.
	Body string `json:"body,omitempty"`
	Cut  bool   `json:"cut,omitempty"` // the rest of the body is left out
}

// Key returns the key of the record.
func (r *Record) Key() string { return Prefix + r.RequestID }

// verbs has the words for methods of HTTP.
var verbs = map[string]string{"POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}

// Summary returns a request in words: "create ports", "update ports ID", or for an action on an
// object "add_router_interface routers ID".
func Summary(method, path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > 1 && strings.HasPrefix(parts[0], "v") {
		parts = parts[1:] // the version
	}
	verb := cmp.Or(verbs[method], strings.ToLower(method))
	if last := len(parts) - 1; method == "PUT" && last >= 2 && strings.Contains(parts[last], "_") {
		verb, parts = parts[last], parts[:last]
	}
	return verb + " " + strings.Join(parts, " ")
}
