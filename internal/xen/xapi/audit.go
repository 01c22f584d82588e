package xapi

import (
	"encoding/json"

	"heddle/internal/audit"
	"heddle/internal/store"
)

// audited makes the commits of the call also record who makes it.
func (c *call) audited() {
	id := "call-" + newUUID()
	c.ctx = store.WithNote(c.ctx, func() (store.Op, error) {
		args, err := json.Marshal(c.args)
		if err != nil {
			return store.Op{}, err
		}
		record := audit.Record{Time: c.server.opts.Now().UTC(), API: "xapi", Method: c.Name, RequestID: id, Summary: c.Name}
		record.Body, record.Cut = audit.Strike(args)
		if c.from.IsValid() {
			record.Client = c.from.String()
		}
		if c.session != nil {
			record.User, record.UserID = c.session.account, c.session.user
		}
		value, err := json.Marshal(record)
		return store.Op{Key: record.Key(), Value: value}, err
	})
}
