package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"heddle/internal/api"
	"heddle/internal/store"
	"heddle/internal/store/schema"
)

// knownStoreFile, below a data or state directory, says that this machine has worked over a store of Heddle. Without it an
// etcd that was wiped would look like a new one at the next start, and be made an empty cloud.
const knownStoreFile = "store-known"

// enterStore checks the store's schema, and makes a store that loses it unavailable from then on. An empty store becomes
// one of Heddle, unless dir or the caller says that it was one before: then the error is [store.ErrReplaced].
func enterStore(ctx context.Context, st *store.Etcd, dir string, known bool, log *slog.Logger) error {
	file := filepath.Join(dir, knownStoreFile)
	_, err := os.Stat(file)
	noted := err == nil
	check := schema.Check
	if known || noted {
		check = schema.Verify
	}
	if err := check(ctx, st); err != nil {
		if errors.Is(err, store.ErrReplaced) && !known {
			err = fmt.Errorf("%w, or remove %s to begin with an empty one", err, file)
		}
		return err
	}
	st.RequireSchema()
	if noted {
		return nil
	}
	if err := api.WriteFile(file, nil); err != nil {
		log.Warn("cannot note that the store is known; an empty one would be accepted at the next start", "err", err)
	}
	return nil
}
