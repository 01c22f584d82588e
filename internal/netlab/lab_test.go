package netlab

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestLabJoinsNamespaces(t *testing.T) {
	t.Parallel()
	l := ForTest(t)
	a, b := l.MustNamespace(t, "a"), l.MustNamespace(t, "b")
	l.MustVeth(t, a, "eth0", b, "eth0")
	a.MustIP(t, "addr add 192.0.2.1/24 dev eth0")
	b.MustIP(t, "addr add 192.0.2.2/24 dev eth0")

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var ln net.Listener
	err := b.Do(func() (err error) {
		ln, err = net.Listen("tcp4", "192.0.2.2:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = a.Do(func() error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", ln.Addr().String())
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Output(ctx, "ip", "-br", "addr")
	if err != nil || !strings.Contains(out, "192.0.2.1/24") {
		t.Fatalf("ip -br addr printed %q, %v; want 192.0.2.1/24 in it", out, err)
	}
}

func TestSweepRemovesWhatACrashLeft(t *testing.T) {
	t.Parallel()
	l := ForTest(t)
	ns := l.MustNamespace(t, "left")
	names, err := Sweep(l.prefix)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 1 || names[0] != ns.Name {
		t.Fatalf("Sweep removed %v, want %s alone", names, ns.Name)
	}
	if _, err := os.Stat(ns.Path()); !os.IsNotExist(err) {
		t.Fatalf("stat %s: %v, want it gone", ns.Path(), err)
	}
}

func TestAdoptKillsWhatRuns(t *testing.T) {
	t.Parallel()
	l := ForTest(t)
	left := l.MustNamespace(t, "left")
	left.MustIP(t, "link add v0 type veth peer name v1")
	stray := exec.Command("sleep", "60")
	if err := left.Start(stray); err != nil {
		t.Fatal(err)
	}
	ns, err := New(l.prefix).Adopt("left")
	if err != nil || ns.Name != left.Name {
		t.Fatalf("Adopt: %v, %v; want %s", ns, err, left.Name)
	}
	if err := stray.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("what ran there: %v, want it killed", err)
	}
	ns.MustIP(t, "link show v0") // its network is as it was
	if ns, err = l.Adopt("new"); err != nil || !ns.exists() {
		t.Errorf("Adopt where there is none: %v, %v; want an empty namespace", ns, err)
	}
}

// TestDeadTestsLeaveNothing: the next test ends what runs in the namespaces of a test whose process
// died, and removes them; those of one that runs stay. The labs have a prefix of their own: tests
// of other packages sweep the common one at any moment.
func TestDeadTestsLeaveNothing(t *testing.T) {
	t.Parallel()
	died := exec.Command("true")
	if err := died.Run(); err != nil {
		t.Fatal(err)
	}
	prefix := "hd" + randomText() + "x"
	labOf := func(pid int) *Namespace {
		l := NewRandom(fmt.Sprintf("%s%d-", prefix, pid))
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		return l.MustNamespace(t, "ns")
	}
	mine, left := labOf(os.Getpid()), labOf(died.Process.Pid)
	stray := exec.Command("sleep", "60")
	if err := left.Start(stray); err != nil {
		t.Fatal(err)
	}
	if err := sweepDead(prefix); err != nil {
		t.Error(err)
	}
	if err := stray.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("what ran there: %v, want it killed", err)
	}
	if left.exists() {
		t.Error("the dead test's namespace is still there")
	}
	if !mine.exists() {
		t.Error("a namespace of this process is gone too")
	}
}

func TestPollPause(t *testing.T) {
	t.Parallel()
	for look, want := range map[time.Duration]time.Duration{
		0:                     pollLeast,
		10 * time.Millisecond: 40 * time.Millisecond,
		time.Minute:           pollMost,
	} {
		if got := pollPause(look); got != want {
			t.Errorf("a pause of %v after a look of %v, want %v", got, look, want)
		}
	}
}
