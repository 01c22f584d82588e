package guest

import (
	"context"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// TestGuest: a guest boots on a tap that nothing answers on, and runs commands; what it runs in the
// background does not disturb its shell.
func TestGuest(t *testing.T) {
	t.Parallel()
	host := netlab.ForTest(t).MustNamespace(t, "host")
	image, err := Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	host.MustIP(t, "tuntap add dev tap0 mode tap", "link set tap0 up")
	g, err := Start(ctx, image, Options{Name: "guest", Namespace: host, Tap: "tap0", MAC: "02:00:00:00:00:01"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	if lease, err := g.Ready(ctx); err != nil || lease {
		t.Fatalf("without a DHCP server: lease %v, %v", lease, err)
	}
	if text, err := g.Run(ctx, "cat /sys/class/net/eth0/address"); err != nil || text != "02:00:00:00:00:01\n" {
		t.Errorf("its MAC address: %q, %v", text, err)
	}
	if _, err := g.Run(ctx, "(nc -l -p 7000 -e sh -c 'md5sum >/tmp/sum; mv /tmp/sum /tmp/received' </dev/null >/dev/null 2>&1 &)"); err != nil {
		t.Error(err)
	}
	if _, err := g.Run(ctx, "(usleep 300000 &); usleep 600000"); err != nil { // an orphan ends meanwhile
		t.Error(err)
	}
	if text, err := g.Run(ctx, "echo heddle | nc 127.0.0.1 7000; until cat /tmp/received 2>/dev/null; do usleep 10000; done"); err != nil || text != "0c164bc0841532c51087592e9e61c08a  -\n" {
		t.Errorf("the sum of what was sent: %q, %v", text, err)
	}
	if _, err := g.Run(ctx, "ls /missing"); err == nil || !strings.Contains(err.Error(), "exit code 1") {
		t.Errorf("a command that fails: %v", err)
	}
	var status struct{ Running bool }
	if err := g.Query("query-status", nil, &status); err != nil || !status.Running {
		t.Errorf("QEMU's status: %+v, %v", status, err)
	}
	if err := g.Query("no-such-command", nil, nil); err == nil || !strings.Contains(err.Error(), "no-such-command") {
		t.Errorf("a command that QEMU has not: %v", err)
	}
}
