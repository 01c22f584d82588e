package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"heddle/internal/audit"
	"heddle/internal/store"
)

// mostAudited bounds how much of a body is kept until it is known whether the request changes
// anything, bytes: without white space and secrets it may be as short as that of a record.
const mostAudited = 4 * audit.MaxBody

// audited returns a context under which commits also record the request r.
func (s *Server) audited(ctx context.Context, q *request, r *http.Request) context.Context {
	method, path := r.Method, r.URL.Path
	return store.WithNote(ctx, func() (store.Op, error) {
		record := q.record()
		record.API, record.Method, record.Path, record.Summary = s.opts.Name, method, path, audit.Summary(method, path)
		value, err := json.Marshal(record)
		return store.Op{Key: record.Key(), Value: value}, err
	})
}

// record returns what the request itself says about who changes something.
func (q *request) record() *audit.Record {
	record := &audit.Record{Time: time.Now().UTC(), RequestID: q.id}
	if q.client.IsValid() {
		record.Client = q.client.String()
	}
	if q.who != nil {
		record.UserID, record.User, record.ProjectID = q.who.UserID, q.who.UserName, q.who.ProjectID
		record.ApplicationCredentialID = q.who.ApplicationCredentialID
	}
	if q.body != nil {
		record.Body, record.Cut = audit.Strike(q.body.kept)
	}
	return record
}
