// Package netlab builds small networks out of network namespaces, and measures and checks their
// traffic: for tests, the demo and the benchmarks. It uses the ip command, so each step can be
// typed by hand (dataplane-lab §7).
//
// Namespaces are named ones (ip netns): a person can look inside with ip netns exec. A [Lab]
// removes only what it made; [Sweep] removes what a dead process's lab of the same prefix left.
package netlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// netnsDir is the ip command's directory of named namespaces.
const netnsDir = "/run/netns"

// Lab is a set of namespaces that go together.
type Lab struct {
	prefix string

	mu     sync.Mutex
	spaces []*Namespace
}

// New makes an empty lab. The names of its namespaces begin with prefix and a dash.
func New(prefix string) *Lab { return &Lab{prefix: prefix} }

// NewRandom makes an empty lab with a unique name that begins with prefix.
func NewRandom(prefix string) *Lab { return New(prefix + randomText()) }

// Namespace makes a network namespace called prefix-name with its loopback up.
func (l *Lab) Namespace(name string) (*Namespace, error) {
	ns := &Namespace{Name: l.prefix + "-" + name}
	if err := run("ip", "netns", "add", ns.Name); err != nil {
		return nil, fmt.Errorf("make namespace %s: %w", ns.Name, err)
	}
	l.mu.Lock()
	l.spaces = append(l.spaces, ns)
	l.mu.Unlock()
	return ns, ns.IP("link set lo up")
}

// Adopt returns the namespace prefix-name of an earlier process, and kills the processes in it.
// Where there is none, it makes an empty one.
func (l *Lab) Adopt(name string) (*Namespace, error) {
	ns := &Namespace{Name: l.prefix + "-" + name}
	if !ns.exists() {
		return l.Namespace(name)
	}
	l.mu.Lock()
	l.spaces = append(l.spaces, ns)
	l.mu.Unlock()
	return ns, ns.killProcesses()
}

// Veth joins two namespaces by a pair of interfaces, aName in a and bName in b, both up. The kernel
// chooses their MAC addresses; set them with [Namespace.IP] where they matter.
func (l *Lab) Veth(a *Namespace, aName string, b *Namespace, bName string) error {
	if err := a.IP(fmt.Sprintf("link add %s type veth peer name %s netns %s", aName, bName, b.Name)); err != nil {
		return err
	}
	return errors.Join(a.IP("link set "+aName+" up"), b.IP("link set "+bName+" up"))
}

// Close kills the processes in the lab's namespaces and removes these.
func (l *Lab) Close() error {
	l.mu.Lock()
	spaces := l.spaces
	l.spaces = nil
	l.mu.Unlock()
	var errs []error
	for _, ns := range spaces {
		errs = append(errs, ns.remove())
	}
	return errors.Join(errs...)
}

// Sweep removes the namespaces of a lab with this prefix that an earlier process left, kills the
// processes in them, and returns their names.
func Sweep(prefix string) ([]string, error) {
	return sweep(prefix+"-*", func(string) bool { return true })
}

// sweep removes the namespaces whose names match a pattern and are accepted.
func sweep(pattern string, accept func(name string) bool) (names []string, err error) {
	paths, err := filepath.Glob(filepath.Join(netnsDir, pattern))
	errs := []error{err}
	for _, p := range paths {
		ns := &Namespace{Name: filepath.Base(p)}
		if accept(ns.Name) {
			names, errs = append(names, ns.Name), append(errs, ns.remove())
		}
	}
	return names, errors.Join(errs...)
}

// TB is the part of *testing.T and *testing.B that this package uses.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
	Logf(format string, args ...any)
}

// ForTest makes a lab for a test and removes it at its end. On failure it logs the links, addresses
// and routes of every namespace. It skips the test where this process may not make namespaces.
// First it removes the labs of dead tests.
func ForTest(t TB) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("this test makes network namespaces: run it as root")
	}
	if err := sweepDead(testPrefix); err != nil {
		t.Logf("remove labs of dead tests: %v", err) // another test may be at it
	}
	l := NewRandom(fmt.Sprintf("%s%d-", testPrefix, os.Getpid()))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", l.Describe())
		}
		if err := l.Close(); err != nil {
			t.Errorf("remove the lab: %v", err)
		}
	})
	return l
}

// testPrefix begins the names of tests' labs; the number of their process and a dash follow.
const testPrefix = "ht"

// sweepDead removes the namespaces of labs called prefix, a process number and a dash whose process
// is dead, and kills the processes in them, such as a dnsmasq that was to outlive its agent.
func sweepDead(prefix string) error {
	_, err := sweep(prefix+"[0-9]*-*", func(name string) bool {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		pid, err := strconv.Atoi(number)
		return err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
	return err
}

// MustNamespace is Namespace for tests.
func (l *Lab) MustNamespace(t TB, name string) *Namespace {
	t.Helper()
	ns, err := l.Namespace(name)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return ns
}

// MustVeth is Veth for tests.
func (l *Lab) MustVeth(t TB, a *Namespace, aName string, b *Namespace, bName string) {
	t.Helper()
	if err := l.Veth(a, aName, b, bName); err != nil {
		t.Fatalf("%v", err)
	}
}

// Describe prints the links, addresses, routes and neighbours of every namespace.
func (l *Lab) Describe() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, ns := range l.spaces {
		for _, args := range [][]string{{"-d", "-s", "link"}, {"addr"}, {"route"}, {"neigh"}} {
			out, err := exec.Command("ip", append([]string{"-n", ns.Name}, args...)...).CombinedOutput()
			fmt.Fprintf(&b, "# %s: ip %s\n%s", ns.Name, strings.Join(args, " "), out)
			if err != nil {
				fmt.Fprintln(&b, err)
			}
		}
	}
	return b.String()
}

// run executes a command whose output matters only when it fails.
func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// remove kills the processes in the namespace and deletes it.
func (n *Namespace) remove() error {
	_ = n.killProcesses() // a name that is no namespace any more has none
	if err := run("ip", "netns", "delete", n.Name); err != nil && n.exists() {
		return fmt.Errorf("remove namespace %s: %w", n.Name, err)
	}
	return nil
}

// killProcesses kills the processes in the namespace and waits for them.
func (n *Namespace) killProcesses() error {
	out, err := exec.Command("ip", "netns", "pids", n.Name).Output()
	if err != nil {
		return fmt.Errorf("list the processes in namespace %s: %w", n.Name, err)
	}
	for _, field := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			waitGone(pid)
		}
	}
	return nil
}

func (n *Namespace) exists() bool {
	_, err := os.Stat(n.Path())
	return err == nil
}

// waitGone waits until the killed process is gone or a zombie.
func waitGone(pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	_ = Until(ctx, "process to end", func() (bool, error) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return true, nil
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X"), nil
	})
}
