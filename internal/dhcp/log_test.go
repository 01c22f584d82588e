package dhcp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLogIsKeptShort reads every line of a log that grows beyond its bound, and of what is said after it was emptied.
func TestLogIsKeptShort(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	w, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fmt.Fprintln(w, "dnsmasq[1]: said to an agent before")
	r, err := followLog(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(chan line), make(chan error, 1)
	go func() { done <- r.run(ctx, out) }()
	padding := strings.Repeat("x", 1000)
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	longest := int64(0)
	for n := range 3 * longestLog / len(padding) {
		fmt.Fprintf(w, "dnsmasq[%d]: %s\n", n+2, padding)
		if got := <-out; got.pid != n+2 || got.text != padding {
			t.Fatalf("line %d: %+v", n, got)
		}
		longest = max(longest, size())
	}
	if longest > longestLog+2*longestLine {
		t.Errorf("the log became %d bytes long", longest)
	}
	fmt.Fprint(w, "dnsmasq[7]: half ")
	fmt.Fprint(w, "a line\n")
	if got := <-out; got.text != "half a line" {
		t.Errorf("got %+v", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
