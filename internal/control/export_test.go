package control

import (
	"context"
	"testing"
)

// Once looks at all keys as Run does at its start, once.
func (k *Keys) Once(t testing.TB) {
	t.Helper()
	if _, err := k.markAll(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := k.pass(context.Background()); err != nil {
		t.Fatal(err)
	}
}
