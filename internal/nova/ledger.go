package nova

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
	notifierKey    = schema.NovaPrefix + "notifier"
	reportedPrefix = schema.NovaPrefix + "reported/" // by port
)

// errDeposed reports that another server notifies Nova, or may.
var errDeposed = errors.New("another server notifies Nova")

// ledger is the store's list of what was reported to Nova. While its holder is the notifier all its
// writes succeed, and none after.
type ledger struct {
	store store.Store
	term  int64 // revision of the notifier's key
	ports map[string]*reported
}

func loadLedger(ctx context.Context, st store.Store, term int64) (*ledger, error) {
	kvs, _, err := st.List(ctx, reportedPrefix)
	if err != nil {
		return nil, err
	}
	l := &ledger{store: st, term: term, ports: make(map[string]*reported, len(kvs))}
	for _, kv := range kvs {
		var was reported
		if err := json.Unmarshal(kv.Value, &was); err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
		l.ports[strings.TrimPrefix(kv.Key, reportedPrefix)] = &was
	}
	return l, nil
}

// put notes what was reported of some ports; nil forgets one.
func (l *ledger) put(ctx context.Context, after map[string]*reported) error {
	var ops []store.Op
	for port, now := range after {
		op := store.Op{Key: reportedPrefix + port, Delete: now == nil}
		if now != nil {
			value, err := json.Marshal(now)
			if err != nil {
				return err
			}
			op.Value = value
		}
		ops = append(ops, op)
	}
	if len(ops) == 0 {
		return nil
	}
	if _, err := l.store.Commit(ctx, []store.Cond{{Key: notifierKey, Create: l.term}}, ops); errors.Is(err, store.ErrConflict) {
		return errDeposed
	} else if err != nil {
		return err
	}
	for port, now := range after {
		if now == nil {
			delete(l.ports, port)
		} else {
			l.ports[port] = now
		}
	}
	return nil
}
