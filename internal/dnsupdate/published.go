package dnsupdate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"heddle/internal/store"
	"heddle/internal/store/schema"
)

const (
	publisherKey  = schema.DNSPrefix + "publisher"
	recordsPrefix = schema.DNSPrefix + "records/" // by name
)

// published is the record of a name in the store, by which Heddle tells its own records on the DNS
// server from those of others. It is written before an update and after it.
type published struct {
	recordSet
	// Attempt has the records that an update was to insert whose outcome is not known.
	Attempt []string `json:"attempt,omitempty"`
	Pending bool     `json:"pending,omitempty"` // such an update there is
}

// errDeposed reports that another server publishes, or may.
var errDeposed = errors.New("another server publishes")

// ledger is the store's list of published names. While its holder is the publisher all its writes
// succeed, and none after.
type ledger struct {
	store store.Store
	term  int64 // revision of the publisher's key
	names map[string]published
}

func loadLedger(ctx context.Context, st store.Store, term int64) (*ledger, error) {
	kvs, _, err := st.List(ctx, recordsPrefix)
	if err != nil {
		return nil, err
	}
	l := &ledger{store: st, term: term, names: make(map[string]published, len(kvs))}
	for _, kv := range kvs {
		var p published
		if err := json.Unmarshal(kv.Value, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
		l.names[strings.TrimPrefix(kv.Key, recordsPrefix)] = p
	}
	return l, nil
}

// put notes what is known of a name; without records and attempts it is forgotten.
func (l *ledger) put(ctx context.Context, name string, p published) error {
	op := store.Op{Key: recordsPrefix + name, Delete: len(p.Records) == 0 && !p.Pending}
	if !op.Delete {
		value, err := json.Marshal(p)
		if err != nil {
			return err
		}
		op.Value = value
	}
	_, err := l.store.Commit(ctx, []store.Cond{{Key: publisherKey, Create: l.term}}, []store.Op{op})
	switch {
	case errors.Is(err, store.ErrConflict):
		return errDeposed
	case err != nil:
		return err
	case op.Delete:
		delete(l.names, name)
	default:
		l.names[name] = p
	}
	return nil
}
