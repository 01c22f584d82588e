package xapi

import (
	"context"
	"math/rand/v2"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/task"
)

// mark tells one history of the store from another: after a restore to an older state revisions begin again from there, and
// a client's token of before must not be taken for one of now. A store that was never restored has none, which is 0.
type mark struct {
	History int64 `json:"history"`
}

// marks holds one record, markID.
var marks = records.NewTable("xen-history", schema.XenPrefix+"history/", func(*mark) string { return markID })

const (
	markID = "current"
	// markPause is between attempts to write a mark.
	markPause = time.Second
)

// historyOf is the mark of a snapshot.
func historyOf(s *replica.Snapshot) int64 {
	if m, ok := marks.Peek(records.Over(s), markID); ok {
		return m.History
	}
	return 0
}

// marker gives the store another mark when it has begun another history. Every server of a pool runs one, and the first
// that comes does it. It is a task.
type marker struct {
	server   *Server
	diverged task.Notice
	ready    chan struct{}
}

func newMarker(s *Server) *marker {
	m := &marker{server: s, diverged: task.NewNotice(), ready: make(chan struct{})}
	s.replica.OnChange(func(u replica.Update) {
		if u.Diverged() {
			m.diverged.Give()
		}
	})
	return m
}

func (m *marker) String() string { return "marker of histories" }

// Ready is closed when the task runs.
func (m *marker) Ready() <-chan struct{} { return m.ready }

// Run writes marks until ctx ends.
func (m *marker) Run(ctx context.Context) error {
	close(m.ready)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.diverged:
		}
		for ctx.Err() == nil {
			err := m.mark(ctx)
			if err == nil {
				break
			}
			m.server.opts.Log.Warn("cannot mark the restored store; clients get all objects instead of changes", "err", err)
			task.Pause(ctx, markPause)
		}
	}
}

// mark writes another mark, unless another server has.
func (m *marker) mark(ctx context.Context) error {
	before, lacks := m.server.journal.lacksMark()
	if !lacks {
		return nil
	}
	return m.server.update(ctx, func(tx *records.Tx) error {
		tx.Touch("xen-history")
		if now, err := marks.Get(tx, markID); err == nil && now.History != before {
			return nil
		}
		return marks.Put(tx, &mark{1 + rand.Int64N(1<<62)})
	})
}
