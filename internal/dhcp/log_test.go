package dhcp

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLogIsKeptShort reads every line of logs that grow beyond their bound while they are read, and
// one whose halves are written apart.
func TestLogIsKeptShort(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	w, out, stop := followedLog(t, path)
	padding := strings.Repeat("x", 1000)
	const lines = 5 * longestLog / 1000
	written := make(chan error, 1)
	go func() {
		var err error
		for n := 0; n < lines && err == nil; n++ {
			_, err = fmt.Fprintf(w, "dnsmasq[%d]: %s\n", n+2, padding)
		}
		written <- err
	}()
	for n := range lines {
		if got := <-out; got.pid != n+2 || got.text != padding {
			t.Fatalf("line %d: %+v", n, got)
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, "dnsmasq[7]: half ")
	fmt.Fprint(w, "a line\n")
	if got := <-out; got.text != "half a line" {
		t.Errorf("got %+v", got)
	}
	stop()
	if got := sizeOnDisk(t, path); got > longestLog+2*longestLine {
		t.Errorf("the log takes %d bytes", got)
	}
}

// TestLogIsKeptShortInMemory has a log grow on a ramfs, which cannot free the start of a file.
func TestLogIsKeptShortInMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "log")
	w, out, stop := followedLog(t, path)
	padding := strings.Repeat("x", 1000)
	for n := 0; n < 3*longestLog/1000; n++ {
		fmt.Fprintf(w, "dnsmasq[%d]: %s\n", n+2, padding)
		// A line is lost where the reader empties the log at this very moment.
		for got := (line{}); got.pid != n+2; {
			select {
			case got = <-out:
			case <-time.After(time.Second):
				got.pid = n + 2
			}
		}
	}
	stop()
	if info, err := os.Stat(path); err != nil || info.Size() > longestLog+2*longestLine {
		t.Errorf("%v, %v", info, err)
	}
}

// followedLog returns a log, the lines that are written to it from now on as its reader says them,
// and what ends the reader once it has come to the log's end.
func followedLog(t *testing.T, path string) (w *os.File, out chan line, stop func()) {
	t.Helper()
	if err := os.WriteFile(path, []byte("dnsmasq[1]: said to an agent before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, r, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(chan line), make(chan error, 1)
	go func() { done <- r.run(ctx, out) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.Close()
	})
	t.Cleanup(stop)
	return w, out, stop
}

// sizeOnDisk returns the bytes that a file takes, which are fewer than its size where it has holes.
func sizeOnDisk(t *testing.T, path string) int64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * 512
}

// TestWhatDnsmasqSays sorts what it says: refusals are warnings, leases news, all else is for those
// who look for a fault; and it says of which machine's interface.
func TestWhatDnsmasqSays(t *testing.T) {
	t.Parallel()
	interfaces := map[string]string{"02:65:00:00:00:0a": "tap10", "10.65.0.7": "tap7", "2001:db8::7": "tap7", "tap1": "tap1"}
	for raw, want := range map[string]struct {
		pid       int
		level     slog.Level
		iface     string
		ofQueries slog.Level // from the instance for DNS
	}{
		"dnsmasq-dhcp[7]: 448589412 DHCPACK(ns-calico) 10.65.0.9 02:65:00:00:00:0A vm1":              {7, slog.LevelInfo, "tap10", slog.LevelInfo},
		"dnsmasq-dhcp[7]: DHCPACK(ns-calico) 10.65.0.9 02:65:00:00:00:0a NAK-failed-error":           {7, slog.LevelInfo, "tap10", slog.LevelInfo},
		"dnsmasq-dhcp[7]: 448589412 DHCPDISCOVER(ns-calico) 02:65:00:00:00:0a no address available":  {7, slog.LevelWarn, "tap10", slog.LevelWarn},
		"dnsmasq-dhcp[7]: 448589412 DHCPDISCOVER(ns-calico) 02:65:00:00:00:0b ":                      {7, slog.LevelDebug, "", slog.LevelDebug},
		"dnsmasq-dhcp[7]: 448589412 DHCPNAK(ns-calico) 10.65.0.9 02:65:00:00:00:0a wrong address":    {7, slog.LevelWarn, "tap10", slog.LevelWarn},
		"dnsmasq-dhcp[7]: 448589412 available DHCP subnet: 10.65.0.0/255.255.255.0":                  {7, slog.LevelDebug, "", slog.LevelDebug},
		"dnsmasq-dhcp[7]: 448589412 sent size:  4 option: 54 server-identifier  10.65.0.1":           {7, slog.LevelDebug, "", slog.LevelDebug},
		"dnsmasq-dhcp[7]: no address range available for DHCP request via ns-calico":                 {7, slog.LevelWarn, "", slog.LevelWarn},
		"dnsmasq: failed to bind DHCP server socket: Address already in use":                         {0, slog.LevelWarn, "", slog.LevelWarn},
		"dnsmasq-dhcp[7]: cannot read /x/hosts/tap2: No such file or directory":                      {7, slog.LevelDebug, "", slog.LevelDebug},
		"dnsmasq[7]: duplicate dhcp-host IP address 10.65.0.7 at line 1 of /x/hosts/tap1":            {7, slog.LevelWarn, "tap7", slog.LevelWarn},
		"dnsmasq-dhcp[7]: DHCPREPLY(tap1) 2001:db8::9 00:01:00:01:32:94:81:85:02:65:00:00:00:01 vm1": {7, slog.LevelInfo, "tap1", slog.LevelInfo},
		"dnsmasq-dhcp[7]: 4 DHCPADVERTISE(tap1) 00:01:00:01:32:94:81:85 no addresses available":      {7, slog.LevelWarn, "tap1", slog.LevelWarn},
		"dnsmasq[7]: query[A] 10.65.0.7 from 2001:db8::8":                                            {7, slog.LevelDebug, "", slog.LevelInfo},
		"dnsmasq[7]: query[AAAA] failed.example.org from 2001:db8::7":                                {7, slog.LevelWarn, "tap7", slog.LevelInfo},
		"dnsmasq[7]: config error is REFUSED (EDE: not ready)":                                       {7, slog.LevelWarn, "", slog.LevelInfo},
	} {
		l := parseLine(raw)
		iface := ""
		for _, a := range l.attributes(interfaces) {
			if a.Key == "interface" {
				iface = a.Value.String()
			}
		}
		if l.pid != want.pid || l.level() != want.level || l.resolverLevel() != want.ofQueries || iface != want.iface {
			t.Errorf("%s: number %d, %v, %v, interface %q, want %+v", raw, l.pid, l.level(), l.resolverLevel(), iface, want)
		}
	}
}
