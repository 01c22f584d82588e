package netlab

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killTimeout  = 5 * time.Second
	pollInterval = 2 * time.Millisecond
)

// Namespace is a named network namespace.
type Namespace struct {
	Name string
}

// Path is the file that stands for the namespace; a process enters it by opening it.
func (n *Namespace) Path() string { return filepath.Join(netnsDir, n.Name) }

// Do runs f on a thread inside the namespace. Sockets that f opens stay in the namespace and may be used anywhere
// after; goroutines that f starts are outside. When the thread cannot be brought back it is given up.
func (n *Namespace) Do(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		back, err := n.enter()
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		err = f()
		if back() == nil { // else the thread ends with this goroutine, still locked to it
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// enter moves the calling thread, which must be locked, into the namespace and gives the way back.
func (n *Namespace) enter() (back func() error, err error) {
	old, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("enter namespace %s: %w", n.Name, err)
	}
	target, err := os.Open(n.Path())
	if err != nil {
		old.Close()
		return nil, fmt.Errorf("enter namespace %s: %w", n.Name, err)
	}
	defer target.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		old.Close()
		return nil, fmt.Errorf("enter namespace %s: %w", n.Name, err)
	}
	return func() error {
		defer old.Close()
		return unix.Setns(int(old.Fd()), unix.CLONE_NEWNET)
	}, nil
}

// IP gives lines to the ip command inside the namespace, each without the leading "ip". Lines are carried out in
// order; the first that fails ends it.
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

// Start starts cmd inside the namespace. Unlike ip netns exec it shares the mounts of this process, so pinned eBPF
// objects stay where they are.
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

// Until asks cond again and again, a few milliseconds apart, until it is true, fails, or ctx is done. It is for states
// of which nobody sends word, such as a counter of the kernel; wait for a signal where there is one.
func Until(ctx context.Context, what string, cond func() (bool, error)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
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
		case <-tick.C:
		}
	}
}

// randomText is short and differs from call to call.
func randomText() string { return strings.ToLower(rand.Text()[:7]) }
