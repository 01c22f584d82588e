package netlab

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"heddle/internal/hostnet"
)

const (
	killTimeout = 5 * time.Second
	// pollLeast and pollMost bound the pauses between looks at a condition.
	pollLeast = 2 * time.Millisecond
	pollMost  = 100 * time.Millisecond
)

// Namespace is a named network namespace.
type Namespace struct {
	Name string
}

// Path returns the namespace's file; a process enters the namespace by opening it.
func (n *Namespace) Path() string { return filepath.Join(netnsDir, n.Name) }

// Do runs f on a thread inside the namespace. Sockets that f opens stay in the namespace and may be
// used anywhere after; goroutines that f starts are outside.
func (n *Namespace) Do(f func() error) error {
	opened, err := hostnet.OpenNamespace(n.Path())
	if err != nil {
		return fmt.Errorf("enter namespace %s: %w", n.Name, err)
	}
	defer opened.Close()
	return opened.Do(f)
}

// IP passes lines to the ip command inside the namespace, each without the leading "ip". The first
// that fails ends it.
func (n *Namespace) IP(lines ...string) error {
	cmd := exec.Command("ip", "-n", n.Name, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("in namespace %s: ip %s: %w: %s", n.Name, strings.Join(lines, "; "), err,
			strings.TrimSpace(string(out)))
	}
	return nil
}

// MustIP is IP for tests.
func (n *Namespace) MustIP(t TB, lines ...string) {
	t.Helper()
	if err := n.IP(lines...); err != nil {
		t.Fatalf("%v", err)
	}
}

// Start starts cmd inside the namespace. Unlike ip netns exec it shares the mounts of this process,
// so pinned eBPF objects stay visible.
func (n *Namespace) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Output runs a command inside the namespace and returns what it prints on both outputs.
func (n *Namespace) Output(ctx context.Context, name string, args ...string) (string, error) {
	var b strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &b, &b
	if err := n.Start(cmd); err != nil {
		return "", fmt.Errorf("in namespace %s: %w", n.Name, err)
	}
	if err := cmd.Wait(); err != nil {
		return b.String(), fmt.Errorf("in namespace %s: %s %s: %w: %s", n.Name, name, strings.Join(args, " "), err,
			strings.TrimSpace(b.String()))
	}
	return b.String(), nil
}

// Sysctl sets a kernel parameter of the namespace, written with slashes: "net/ipv4/ip_forward".
func (n *Namespace) Sysctl(name, value string) error {
	return n.Do(func() error {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("in namespace %s: set %s to %s: %w", n.Name, name, value, err)
		}
		return nil
	})
}

// Until polls cond every few milliseconds until it is true, fails, or ctx is done. It is for states
// without a signal, such as a counter of the kernel.
func Until(ctx context.Context, what string, cond func() (bool, error)) error {
	for {
		start := time.Now()
		ok, err := cond()
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-time.After(pollPause(time.Since(start))):
		}
	}
}

// pollPause returns the pause after a look at a condition that took so long. A long look may need
// the locks and the processor that the awaited work needs, which must not wait for looks alone.
func pollPause(look time.Duration) time.Duration { return min(max(pollLeast, 4*look), pollMost) }

func randomText() string { return strings.ToLower(rand.Text()[:7]) }
