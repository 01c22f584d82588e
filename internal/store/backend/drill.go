package backend

import (
	"bytes"
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Difference sums up how a table differs between a backup and the store now. Keys under a lease,
// such as the reports of hosts, are left out.
type Difference struct {
	Prefix     string `json:"prefix"` // see Table
	Same       int    `json:"same"`
	Changed    int    `json:"changed"`
	OnlyBackup int    `json:"only_backup"` // a restore would bring them back
	OnlyStore  int    `json:"only_store"`  // a restore would lose them
	// Examples has the first keys that differ.
	Examples []string `json:"examples,omitempty"`
}

// mostExamples bounds the examples of a table.
const mostExamples = 3

// Drill restores a backup as VerifyBackup does, calls inspect with the restored store, and compares
// it with s as it is now. It returns the revision of the backup.
func (s *Etcd) Drill(ctx context.Context, file string, log *slog.Logger, inspect func(*Etcd) error) (revision int64, tables []Difference, err error) {
	revision, err = inspectBackup(ctx, file, log, func(restored *Etcd) (err error) {
		if err := inspect(restored); err != nil {
			return err
		}
		tables, err = differences(restored.keys(ctx, 0), s.keys(ctx, 0))
		return err
	})
	return revision, tables, err
}

// differences compares the keys of a backup with those of a store, both in order.
func differences(backup, live iter.Seq2[*mvccpb.KeyValue, error]) ([]Difference, error) {
	nextA, stopA := iter.Pull2(lasting(backup))
	defer stopA()
	nextB, stopB := iter.Pull2(lasting(live))
	defer stopB()
	found := map[string]*Difference{}
	at := func(key []byte) *Difference {
		prefix := tablePrefix(string(key))
		if found[prefix] == nil {
			found[prefix] = &Difference{Prefix: prefix}
		}
		return found[prefix]
	}
	a, errA, moreA := nextA()
	b, errB, moreB := nextB()
	for moreA || moreB {
		if errA != nil {
			return nil, errA
		}
		if errB != nil {
			return nil, errB
		}
		switch order := compareKeys(a, b); {
		case order < 0:
			d := at(a.Key)
			d.OnlyBackup++
			d.example(a.Key)
			a, errA, moreA = nextA()
		case order > 0:
			d := at(b.Key)
			d.OnlyStore++
			d.example(b.Key)
			b, errB, moreB = nextB()
		default:
			d := at(a.Key)
			if bytes.Equal(a.Value, b.Value) {
				d.Same++
			} else {
				d.Changed++
				d.example(a.Key)
			}
			a, errA, moreA = nextA()
			b, errB, moreB = nextB()
		}
	}
	all := make([]Difference, 0, len(found))
	for _, prefix := range slices.Sorted(maps.Keys(found)) {
		all = append(all, *found[prefix])
	}
	return all, nil
}

func (d *Difference) example(key []byte) {
	if len(d.Examples) < mostExamples {
		d.Examples = append(d.Examples, string(key))
	}
}

// lasting leaves out the keys under a lease.
func lasting(all iter.Seq2[*mvccpb.KeyValue, error]) iter.Seq2[*mvccpb.KeyValue, error] {
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		for kv, err := range all {
			if (err != nil || kv.Lease == 0) && !yield(kv, err) {
				return
			}
		}
	}
}

// compareKeys orders two keys; nil, the end, comes last.
func compareKeys(a, b *mvccpb.KeyValue) int {
	switch {
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return bytes.Compare(a.Key, b.Key)
}
