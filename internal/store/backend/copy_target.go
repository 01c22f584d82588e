package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"heddle/internal/store"
)

// TargetError reports that the target of a copy is in use, and what it contains.
type TargetError struct {
	Heddle, Calico int       // how many keys
	Revision       int64     // at which the newest of them was written, of Now
	Now            int64     // the target's revision
	Changed        time.Time // the newest time of change in Heddle's objects, or zero
	Reporting      []string  // names or ids of hosts that report to it at this moment
	Unfinished     bool      // it has no schema version: no server can have worked over it
}

func (e *TargetError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the target is not empty: it holds %d keys of Heddle below /heddle/ and %d of Calico below /calico/", e.Heddle, e.Calico)
	fmt.Fprintf(&b, ", the newest written at revision %d of %d", e.Revision, e.Now)
	if !e.Changed.IsZero() {
		fmt.Fprintf(&b, "; its objects last changed on %s", e.Changed.Format(time.RFC3339))
	}
	switch {
	case len(e.Reporting) > 0:
		fmt.Fprintf(&b, "; it is in use: %s report to it now", someOf(e.Reporting))
	case e.Heddle > 0 && e.Unfinished:
		b.WriteString("; they have no schema version, as a copy of another store that did not finish leaves them")
	default:
		b.WriteString("; no host reports to it now")
	}
	b.WriteString(". Nothing was changed. Move into a cluster without such keys, or find out whose they are first")
	return b.String()
}

// someOf returns the first few names, and how many more there are.
func someOf(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// targetContents describes the contents of a target.
type targetContents struct {
	TargetError
	unfinished string // value of unfinishedKey
	complete   bool   // it has a schema version
}

func (f *targetContents) empty() bool { return f.Heddle+f.Calico == 0 }

// contents reads what a store has under the prefixes that are copied.
func contents(ctx context.Context, s store.Store) (*targetContents, error) {
	f := &targetContents{}
	for _, p := range copied() {
		kvs, rev, err := s.List(ctx, p)
		if err != nil {
			return nil, err
		}
		f.Now = max(f.Now, rev)
		for _, kv := range kvs {
			f.add(kv)
		}
	}
	f.Unfinished = !f.complete
	slices.Sort(f.Reporting)
	f.Reporting = slices.Compact(f.Reporting)
	return f, nil
}

func (f *targetContents) add(kv store.KV) {
	switch kv.Key {
	case unfinishedKey:
		f.unfinished = string(kv.Value)
	case versionKey:
		f.complete = true
	}
	if strings.HasPrefix(kv.Key, "/calico/") {
		f.Calico++
	} else {
		f.Heddle++
	}
	f.Revision = max(f.Revision, kv.ModRevision)
	if kv.Lease != 0 {
		for _, prefix := range []string{"/heddle/state/", "/calico/felix/v1/host/"} {
			if rest, ok := strings.CutPrefix(kv.Key, prefix); ok {
				host, _, _ := strings.Cut(rest, "/")
				f.Reporting = append(f.Reporting, host)
			}
		}
	}
	var object struct {
		UpdatedAt time.Time `json:"updated_at"`
	}
	if json.Unmarshal(kv.Value, &object) == nil && object.UpdatedAt.After(f.Changed) {
		f.Changed = object.UpdatedAt
	}
}
