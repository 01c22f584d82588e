package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"heddle/calico"
	"heddle/internal/store"
)

// calicoOpened is a key that the server sets when it first opens the gate of Calico's data.
const calicoOpened = "/heddle/calico-opened"

// openCalico opens the gate of a new store's Calico data to agents, and names the cluster. It
// leaves an existing store alone: an operator may have closed the gate.
func openCalico(ctx context.Context, st store.Store) error {
	ready, err := calico.ReadyKey{}.Path()
	if err != nil {
		return err
	}
	guid, err := calico.GlobalConfigKey{Name: "ClusterGUID"}.Path()
	if err != nil {
		return err
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	first := []newKey{{calicoOpened, "{}"}, {ready, "true"}, {guid, hex.EncodeToString(random)}}
	if err := createMissing(ctx, st, first); err != nil {
		return fmt.Errorf("open the gate of the Calico data: %w", err)
	}
	return nil
}

// newKey is a key, and its value if it has to be created.
type newKey struct{ key, value string }

// createMissing creates the missing keys in one commit, unless the first one exists.
func createMissing(ctx context.Context, st store.Store, keys []newKey) error {
	for {
		var conds []store.Cond
		var ops []store.Op
		for i, k := range keys {
			switch _, err := st.Get(ctx, k.key); {
			case err == nil && i == 0:
				return nil
			case err == nil:
			case errors.Is(err, store.ErrNotFound):
				conds = append(conds, store.Cond{Key: k.key})
				ops = append(ops, store.Op{Key: k.key, Value: []byte(k.value)})
			default:
				return err
			}
		}
		if _, err := st.Commit(ctx, conds, ops); !errors.Is(err, store.ErrConflict) {
			return err
		}
		// Another writer was faster: read again.
	}
}
