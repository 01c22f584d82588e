package xapi

import (
	"context"
	"math/rand/v2"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
)

// mark tells one history of the store from another: after a restore to an older state revisions
// begin again from there, and a client's token of before must not be taken for one of now. A store
// that was never restored has none, which is 0.
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
func historyOf(s *snapshot.Snapshot) int64 {
	if m, ok := marks.Peek(records.Over(s), markID); ok {
		return m.History
	}
	return 0
}

// marker returns the part that gives the store another mark when it has begun another history.
// Every server of a pool runs one, and the first does it.
func (s *Server) marker() task.Task {
	diverged := task.NewNotice()
	s.replica.OnChange(func(u snapshot.Update) {
		if u.Diverged() {
			diverged.Give()
		}
	})
	return task.New("marker of histories", func(ctx context.Context, ready func()) error {
		ready()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-diverged:
			}
			for err := s.markHistory(ctx); err != nil && ctx.Err() == nil; err = s.markHistory(ctx) {
				s.opts.Log.Warn("cannot mark the restored store; clients get all objects instead of changes", "err", err)
				task.Pause(ctx, markPause)
			}
		}
	})
}

// markHistory writes another mark, unless another server has.
func (s *Server) markHistory(ctx context.Context) error {
	before, lacks := s.journal.lacksMark()
	if !lacks {
		return nil
	}
	return s.update(ctx, func(tx *records.Tx) error {
		tx.Touch("xen-history")
		if now, err := marks.Get(tx, markID); err == nil && now.History != before {
			return nil
		}
		return marks.Put(tx, &mark{1 + rand.Int64N(1<<62)})
	})
}
