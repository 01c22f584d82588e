package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNameServers reads resolv.conf(5) whatever is in it.
func TestNameServers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if got := nameServers(file); got != nil {
		t.Errorf("without file: %v", got)
	}
	text := "# nameserver 192.0.2.9\nsearch example.org\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 \nnameserver nobody\nnameserver\nnameserver 192.0.2.2"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := nameServers(file), []string{"192.0.2.1", "2001:db8::1", "192.0.2.2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
