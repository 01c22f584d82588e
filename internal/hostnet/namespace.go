package hostnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namedNamespaces is the directory of `ip netns`.
const namedNamespaces = "/run/netns"

// Namespace is an open network namespace.
type Namespace struct {
	handle netns.NsHandle
	name   string
}

// CurrentNamespace opens the namespace of the calling thread: within [Namespace.Do] that one, else
// this process's.
func CurrentNamespace() (*Namespace, error) {
	h, err := netns.GetFromPath("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("network namespace of this process: %w", err)
	}
	return &Namespace{handle: h, name: "current"}, nil
}

// OpenNamespace opens a namespace by its name in `ip netns`, or by a path. "" is this process's
// own.
func OpenNamespace(nameOrPath string) (*Namespace, error) {
	if nameOrPath == "" {
		return CurrentNamespace()
	}
	path := nameOrPath
	if !strings.Contains(path, "/") {
		path = filepath.Join(namedNamespaces, path)
	}
	h, err := netns.GetFromPath(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("network namespace %s: %w", nameOrPath, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", nameOrPath, err)
	}
	return &Namespace{handle: h, name: nameOrPath}, nil
}

// NewNamespace makes a namespace that lives until it is closed and nothing runs in it.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{name: "unnamed"}
	if err := OnThread(func() (err error) {
		n.handle, err = netns.New()
		return err
	}); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w (it takes CAP_SYS_ADMIN)", err)
	}
	return n, nil
}

// String names the namespace.
func (n *Namespace) String() string { return n.name }

// Do runs f in the namespace, on a locked thread. Goroutines that f starts are not in the
// namespace, but sockets opened by f stay in it.
func (n *Namespace) Do(f func() error) error {
	return OnThread(func() error {
		home, err := netns.Get()
		if err != nil {
			return fmt.Errorf("network namespace of this thread: %w", err)
		}
		defer home.Close()
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n.name, err)
		}
		err = f()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread() // else the thread is given up
		}
		return err
	})
}

// Path returns a path by which processes started by this one can enter the namespace while it is
// open.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(n.handle)) }

// Same reports whether both are one namespace.
func (n *Namespace) Same(other *Namespace) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Fstat(int(n.handle), &a); err != nil {
		return false, fmt.Errorf("network namespace %s: %w", n.name, err)
	}
	if err := unix.Fstat(int(other.handle), &b); err != nil {
		return false, fmt.Errorf("network namespace %s: %w", other.name, err)
	}
	return a.Dev == b.Dev && a.Ino == b.Ino, nil
}

// Close closes the handle.
func (n *Namespace) Close() error { return n.handle.Close() }
