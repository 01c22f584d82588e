// Package history tells who changed what, and when: a journal on each server's disk has the changes
// and the records of the requests that made them, which the store keeps only until then.
package history

import (
	"log/slog"

	"heddle/internal/store/follow"
	"heddle/internal/store/journal"
)

// NewJournal returns the task that records the past of the store in a server's data directory.
func NewJournal(data string, st follow.Source, log *slog.Logger) *journal.Journal {
	return journal.New(journal.Options{Dir: journal.Dir(data), Store: st, Prefixes: journalled(), Keep: keep, Log: log})
}
