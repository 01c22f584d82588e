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

// calicoOpened tells servers that one before them has opened the gate of Calico's data model.
const calicoOpened = "/heddle/calico-opened"

// openCalico says, at the first start over a store, that its Calico data may be acted upon, and gives the cluster its
// name. What is there already stays: somebody who closes the gate later, or takes it away, is not overruled.
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
	first := []wantedKey{{calicoOpened, "{}"}, {ready, "true"}, {guid, hex.EncodeToString(random)}}
	if err := createMissing(ctx, st, first); err != nil {
		return fmt.Errorf("open the gate of the Calico data: %w", err)
	}
	return nil
}

// wantedKey is a key to be there, with its value if it must be made.
type wantedKey struct{ key, value string }

// createMissing creates those of the keys that are missing, in one commit, unless the first is there.
func createMissing(ctx context.Context, st store.Store, keys []wantedKey) error {
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
		// Somebody was faster: look again.
	}
}
