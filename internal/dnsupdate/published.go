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

// campaign waits until no other server publishes, and runs lead. ctx of lead ends with the lease.
func campaign(ctx context.Context, o Options, lead func(ctx context.Context, term int64) error) error {
	lease, err := o.Store.Grant(ctx, o.TTL)
	if err != nil {
		return err
	}
	defer func() { // the next publisher need not wait
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTimeout)
		defer cancel()
		_ = o.Store.Revoke(ctx, lease)
	}()
	ctx, lost := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		if err := o.Store.KeepAlive(ctx, lease); err != nil {
			lost(err)
		}
	}()
	defer func() { lost(nil); <-kept }()
	term, err := take(ctx, o.Store, lease)
	if err == nil {
		err = lead(ctx, term)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// take puts the publisher's key as soon as there is none, and returns its revision.
func take(ctx context.Context, st store.Store, lease store.Lease) (term int64, err error) {
	for {
		at, err := st.Commit(ctx, []store.Cond{{Key: publisherKey}}, []store.Op{{Key: publisherKey, Value: []byte("{}"), Lease: lease}})
		if !errors.Is(err, store.ErrConflict) {
			return at, err
		}
		if err := awaitDeletion(ctx, st, at); err != nil {
			return 0, err
		}
	}
}

// awaitDeletion waits until the publisher's key is deleted after a revision at which it was there.
func awaitDeletion(ctx context.Context, st store.Store, at int64) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes, failure := st.Watch(ctx, at, publisherKey)
	for c := range changes {
		for _, e := range c.Events {
			if e.Key == publisherKey && e.Deleted {
				return nil
			}
		}
	}
	if err := failure(); err != nil {
		return err
	}
	return ctx.Err()
}
