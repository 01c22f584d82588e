package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/store"
)

// Version is the schema that this Heddle reads and writes.
const Version = 1

const versionKey = store.SchemaKey

// Check writes the version into an empty store, and rejects a store of another version.
func Check(ctx context.Context, st store.Store) error {
	for {
		kv, err := st.Get(ctx, versionKey)
		switch {
		case err == nil:
			return recognise(string(kv.Value))
		case !errors.Is(err, store.ErrNotFound):
			return fmt.Errorf("read the store's schema version: %w", err)
		}
		kvs, _, err := st.List(ctx, Root)
		if err != nil {
			return fmt.Errorf("read the store's schema version: %w", err)
		}
		// Tunnel controllers of other pools once used a store without a version.
		if i := slices.IndexFunc(kvs, func(kv store.KV) bool { return !strings.HasPrefix(kv.Key, XenPrefix+"controller/") }); i >= 0 {
			return fmt.Errorf("the store has keys such as %s but no schema version at %s: it was not made by Heddle, or not wholly restored; use another store or restore a backup",
				kvs[i].Key, versionKey)
		}
		never := store.Cond{Key: versionKey}
		_, err = st.Commit(ctx, []store.Cond{never}, []store.Op{{Key: versionKey, Value: []byte(strconv.Itoa(Version))}})
		if err == nil || !errors.Is(err, store.ErrConflict) {
			return err
		}
		// Another server was faster: check what it wrote.
	}
}

// Verify is Check for a store that was in use before: without a version the error is
// [store.ErrReplaced], and nothing is written.
func Verify(ctx context.Context, st store.Store) error {
	kv, err := st.Get(ctx, versionKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%w: %w: it has no %s: restore a backup of it", store.ErrUnavailable, store.ErrReplaced, versionKey)
	case err != nil:
		return fmt.Errorf("read the store's schema version: %w", err)
	}
	return recognise(string(kv.Value))
}

func recognise(found string) error {
	v, err := strconv.Atoi(found)
	switch {
	case err != nil || v < 1:
		return fmt.Errorf("the store's schema version at %s is %q, which no Heddle writes: restore a backup", versionKey, found)
	case v > Version:
		return fmt.Errorf("the store has schema version %d, this heddle knows version %d only: upgrade heddle; a store is never downgraded", v, Version)
	}
	return nil
}
