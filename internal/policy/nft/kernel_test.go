package nft

import (
	"testing"

	"heddle/internal/netlab"
)

// openIn opens the nftables of a namespace.
func openIn(t netlab.TB, ns *netlab.Namespace) *Kernel {
	t.Helper()
	var k *Kernel
	err := ns.Do(func() (err error) {
		k, err = Open()
		return err
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return k
}

func list(t *testing.T, ns *netlab.Namespace) string {
	t.Helper()
	out, err := ns.Output(t.Context(), "nft", "list", "ruleset")
	if err != nil {
		t.Fatal(err)
	}
	return out
}
