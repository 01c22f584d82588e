package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/store"
)

// Format is a version of how records lie in the store.
type Format struct {
	Number int
	// MinReader is the oldest format that a program must know, as its newest, to work with a store
	// in this one: equal to Number unless older programs can do without what is new.
	MinReader int
}

// Formats lists the formats that a program reads and writes, oldest first. The program works beside
// others that know the format in use and no later one, and writes that format until an operator
// raises it.
type Formats []Format

// KnownFormats returns the formats of this Heddle. Those of one release and of the one before
// overlap, so that a cluster is upgraded from each to the next without a stop.
func KnownFormats() Formats { return Formats{{Number: 1, MinReader: 1}} }

// Newest returns the number of the newest format.
func (f Formats) Newest() int { return f[len(f)-1].Number }

// StoreFormat is the format that a store is in, and who may work with it. It is the value of
// [store.SchemaKey]. Earlier versions wrote a number there, which stands for both.
type StoreFormat struct {
	Written   int `json:"written"`    // the format in use
	MinReader int `json:"min_reader"` // the oldest format that a program must know
}

// at returns what a store in the format with this number has.
func (f Formats) at(number int) StoreFormat {
	i := slices.IndexFunc(f, func(one Format) bool { return one.Number == number })
	return StoreFormat{Written: number, MinReader: f[i].MinReader}
}

const formatKey = store.SchemaKey

// Check writes the newest format into an empty store. It rejects a store with which a program of
// these formats cannot work.
func (f Formats) Check(ctx context.Context, st store.Store) error {
	for {
		err := f.check(ctx, st)
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		kvs, _, err := st.List(ctx, Root)
		if err != nil {
			return fmt.Errorf("read the store's format: %w", err)
		}
		// Tunnel controllers of other pools once used a store without a format.
		if i := slices.IndexFunc(kvs, func(kv store.KV) bool { return !strings.HasPrefix(kv.Key, XenPrefix+"controller/") }); i >= 0 {
			return fmt.Errorf("the store has keys such as %s but no schema version at %s: it was not made by Heddle, or not wholly restored; use another store or restore a backup",
				kvs[i].Key, formatKey)
		}
		value, err := json.Marshal(f.at(f.Newest()))
		if err != nil {
			return err
		}
		never := store.Cond{Key: formatKey}
		_, err = st.Commit(ctx, []store.Cond{never}, []store.Op{{Key: formatKey, Value: value}})
		if err == nil || !errors.Is(err, store.ErrConflict) {
			return err
		}
		// Another server was faster: check what it wrote.
	}
}

// Verify is Check for a store that was in use before: without a format the error is
// [store.ErrReplaced], and nothing is written.
func (f Formats) Verify(ctx context.Context, st store.Store) error {
	err := f.check(ctx, st)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: %w: it has no %s: restore a backup of it", store.ErrUnavailable, store.ErrReplaced, formatKey)
	}
	return err
}

// check returns a [FormatError] or an error of the store; [store.ErrNotFound]: it has no format.
func (f Formats) check(ctx context.Context, st store.Store) error {
	found, _, err := ReadFormat(ctx, st)
	if err != nil {
		return err
	}
	return f.Accept(found)
}

// ReadFormat returns the store's format, and the ModRevision of its key. The error is
// [store.ErrNotFound] if it has none, a [FormatError] if it has a value that no Heddle writes.
func ReadFormat(ctx context.Context, st store.Store) (StoreFormat, int64, error) {
	kv, err := st.Get(ctx, formatKey)
	if err != nil {
		return StoreFormat{}, 0, fmt.Errorf("read the store's format: %w", err)
	}
	found, err := parseFormat(kv.Value)
	return found, kv.ModRevision, err
}

func parseFormat(value []byte) (f StoreFormat, err error) {
	if f.Written, err = strconv.Atoi(string(value)); err == nil {
		f.MinReader = f.Written
	} else {
		err = json.Unmarshal(value, &f)
	}
	if err != nil || f.MinReader < 1 || f.Written < f.MinReader {
		return f, &FormatError{fmt.Sprintf("the store's format at %s is %q, which no Heddle writes: restore a backup", formatKey, value)}
	}
	return f, nil
}

// FormatError reports that a program cannot work with a store, and what to do.
type FormatError struct{ text string }

func (e *FormatError) Error() string { return e.text }

// Accept returns a [FormatError] if a program of these formats cannot work with the store.
func (f Formats) Accept(found StoreFormat) error {
	switch oldest := f[0].Number; {
	case found.MinReader > f.Newest():
		return &FormatError{fmt.Sprintf("the store is in format %d, for programs that know format %d; this heddle knows no later one than %d: upgrade heddle; a store is never downgraded",
			found.Written, found.MinReader, f.Newest())}
	case found.Written < oldest:
		return &FormatError{fmt.Sprintf("the store is in format %d, which this heddle no longer writes: run a release between that writes formats %d and %d everywhere, then `heddle upgrade commit`, then this one",
			found.Written, found.Written, oldest)}
	}
	return nil
}
