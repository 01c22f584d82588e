package history

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
)

// At returns the tables of schema, Calico's objects among them, as they were after the last commit
// at a time or before it, and the time of that commit. Their revision is that of the commit. They
// have what is journalled: no users, no secrets, and of what hosts report only which hosts and
// ports were up. A time that the journal does not cover is a *journal.NotRecordedError,
// which names the gap.
//
// An explain.World answers questions about the network as it was from this snapshot, as it does
// from one of the present. Connections are not journalled: answers are for new ones.
func At(ctx context.Context, j *journal.Journal, at time.Time) (*records.Snap, time.Time, error) {
	st, err := j.At(ctx, at)
	if err != nil {
		return nil, time.Time{}, err
	}
	return tables(st), st.Time, nil
}

// AtRevision is At for a revision, of the newest epoch if it names none.
func AtRevision(ctx context.Context, j *journal.Journal, at journal.Position) (*records.Snap, time.Time, error) {
	st, err := j.AtRevision(ctx, at)
	if err != nil {
		return nil, time.Time{}, err
	}
	return tables(st), st.Time, nil
}

// tables returns the tables of a state. It leaves out what cannot be decoded, as a
// replica does: another version may have written it.
func tables(st *journal.State) *records.Snap {
	all := slices.SortedFunc(maps.Values(st.Keys), func(a, b store.KV) int { return strings.Compare(a.Key, b.Key) })
	sources := append(snapshot.Of(schema.All()...), schema.CalicoObjects())
	update, _ := sources.Replace(sources.Empty(), all, st.Revision, false)
	return records.Over(update.Next)
}
