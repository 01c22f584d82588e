package dhcp

import (
	"context"
	"fmt"
	"log/slog"
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

// TestWhatDnsmasqSays sorts what it says: refusals are warnings, leases news, all else is for those who look for a fault.
func TestWhatDnsmasqSays(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]struct {
		pid   int
		level slog.Level
		mac   string
	}{
		"dnsmasq-dhcp[7]: 448589412 DHCPACK(ns-calico) 10.65.0.7 02:65:00:00:00:0A vm1":              {7, slog.LevelInfo, "02:65:00:00:00:0a"},
		"dnsmasq-dhcp[7]: 448589412 DHCPDISCOVER(ns-calico) 02:65:00:00:00:01 no address available":  {7, slog.LevelWarn, "02:65:00:00:00:01"},
		"dnsmasq-dhcp[7]: 448589412 available DHCP subnet: 10.65.0.0/255.255.255.0":                  {7, slog.LevelDebug, ""},
		"dnsmasq: failed to bind DHCP server socket: Address already in use":                         {0, slog.LevelWarn, ""},
		"dnsmasq[7]: duplicate dhcp-host IP address 10.65.0.7 at line 1 of /x/hosts/tap1":            {7, slog.LevelWarn, ""},
		"dnsmasq-dhcp[7]: DHCPREPLY(tap1) 2001:db8::7 00:01:00:01:32:94:81:85:02:65:00:00:00:01 vm1": {7, slog.LevelInfo, ""},
	} {
		if l := parseLine(raw); l.pid != want.pid || l.level() != want.level || l.mac() != want.mac {
			t.Errorf("%s: number %d, %v, MAC %q, want %+v", raw, l.pid, l.level(), l.mac(), want)
		}
	}
}
