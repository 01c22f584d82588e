package plug

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
)

// Place is the end of a port's interface that the workload has: a network namespace, or a tap.
type Place struct {
	Netns     string `json:"netns,omitempty"` // name in `ip netns`, or a path
	PID       int    `json:"pid,omitempty"`   // a process in the namespace
	Tap       bool   `json:"tap,omitempty"`
	Interface string `json:"interface,omitempty"` // in the namespace
	// Inode is the kernel's number of the namespace.
	Inode uint64 `json:"inode,omitempty"`
	// Attachment names it for a container runtime; nil: it was plugged by hand.
	Attachment *Attachment `json:"attachment,omitempty"`
}

func (at Place) String() string {
	switch {
	case at.Tap:
		return "a tap"
	case at.PID != 0:
		return fmt.Sprintf("the network namespace of process %d", at.PID)
	}
	return "network namespace " + at.Netns
}

// same reports whether both are one interface, however they name its namespace.
func (at Place) same(other Place) bool {
	return at.Tap == other.Tap && at.Inode == other.Inode && at.Interface == other.Interface
}

// openNamespace opens the namespace.
func (at Place) openNamespace() (*hostnet.Namespace, error) {
	path := at.Netns
	if at.PID != 0 {
		path = fmt.Sprintf("/proc/%d/ns/net", at.PID)
	}
	ns, err := hostnet.OpenNamespace(path)
	if !errors.Is(err, hostnet.ErrNotFound) {
		return ns, err
	}
	if at.PID != 0 {
		return nil, fmt.Errorf("there is no process %d", at.PID)
	}
	return nil, fmt.Errorf("there is no network namespace %s: make it with `ip netns add %[1]s`", at.Netns)
}

// device returns the name of a port's interface on the host.
func (at Place) device(p *port) string {
	if at.Attachment != nil {
		return at.Attachment.Device()
	}
	return p.device()
}

// current reports whether what names the namespace still names the same one.
func (at Place) current() bool {
	if at.Tap {
		return true
	}
	ns, err := at.openNamespace()
	if err != nil {
		return false
	}
	defer ns.Close()
	inode, err := ns.Inode()
	return err == nil && inode == at.Inode
}

// resolver returns the path of the namespace's own resolv.conf, which `ip netns exec` uses; "" for
// a namespace without a name.
func (at Place) resolver() string {
	if at.Netns == "" || strings.Contains(at.Netns, "/") {
		return ""
	}
	return filepath.Join("/etc/netns", at.Netns, "resolv.conf")
}

// target is an open place.
type target struct {
	place     Place
	namespace *hostnet.Namespace // nil of a tap
	net       *hostnet.Linux     // nil of a tap
}

// open opens a place, which must not be the host's own namespace.
func (p *Plugger) open(at Place) (*target, error) {
	t := &target{place: at}
	if at.Tap {
		return t, nil
	}
	var err error
	if t.namespace, err = at.openNamespace(); err != nil {
		return nil, err
	}
	if t.net, err = hostnet.NewLinux(t.namespace); err != nil {
		return nil, errors.Join(err, t.namespace.Close())
	}
	own, err := t.namespace.Same(p.Net.Namespace())
	if err == nil && own {
		err = fmt.Errorf("%s is the host's own: want the namespace of a workload", at)
	}
	if err == nil {
		t.place.Inode, err = t.namespace.Inode()
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *target) close() {
	if t.net != nil {
		t.net.Close()
		t.namespace.Close()
	}
}

// longestInterface is the number of characters that the kernel takes in an interface's name.
const longestInterface = unix.IFNAMSIZ - 1

// refuseOthers refuses a name of the interface that is too long, or taken in its namespace, unless
// by an interface that was made for the record.
func (t *target) refuseOthers(host *hostnet.Linux, r *record) error {
	if t.net == nil {
		return nil
	}
	if len(t.place.Interface) > longestInterface {
		return fmt.Errorf("%q cannot be the name of an interface: it may have at most %d characters", t.place.Interface, longestInterface)
	}
	_, err := t.net.Link(t.place.Interface)
	if errors.Is(err, hostnet.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := host.Link(r.Device); err == nil && r.Place.same(t.place) {
		return nil
	}
	return fmt.Errorf("%s has an interface %s already: choose another name (--interface of heddle plug; a container's runtime chooses that of its own)", t.place, t.place.Interface)
}
