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
	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
)

// knownStoreFile, below a data or state directory, records that this machine has used a store of
// Heddle. Without it a wiped etcd would pass for a new one at the next start.
const knownStoreFile = "store-known"

// enterStore checks the store's format, and makes a store that loses it unavailable from then on.
// It initializes an empty store, unless dir or the caller has used one before: then the error is
// [store.ErrReplaced].
func enterStore(ctx context.Context, st *backend.Etcd, dir string, known bool, log *slog.Logger) error {
	file := filepath.Join(dir, knownStoreFile)
	_, err := os.Stat(file)
	noted := err == nil
	check := schema.KnownFormats().Check
	if known || noted {
		check = schema.KnownFormats().Verify
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
		log.Warn("cannot record that the store was used; an empty one would be accepted at the next start", "err", err)
	}
	return nil
}
