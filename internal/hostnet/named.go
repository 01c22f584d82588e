package hostnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Name gives the namespace a name in `ip netns`, under which it outlives this process. A namespace
// that had the name loses it.
func (n *Namespace) Name(name string) error {
	if err := shareNamed(); err != nil {
		return err
	}
	if err := Unname(name); err != nil {
		return err
	}
	path := filepath.Join(namedNamespaces, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o400)
	if err != nil {
		return fmt.Errorf("name network namespace %s: %w", name, err)
	}
	f.Close()
	if err := unix.Mount(n.Path(), path, "none", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("name network namespace %s: %w", name, err), os.Remove(path))
	}
	n.name = name
	return nil
}

// shareNamed makes the directory of names a mount that other mount namespaces see, as `ip netns`
// does.
func shareNamed() error {
	err := os.Mkdir(namedNamespaces, 0o755)
	if err == nil {
		err = os.Chmod(namedNamespaces, 0o755) // whatever the umask: other programs' namespaces are there
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("names of network namespaces: %w", err)
	}
	err = unix.Mount("", namedNamespaces, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // no mount yet
		if err = unix.Mount(namedNamespaces, namedNamespaces, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", namedNamespaces, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("names of network namespaces: %w", err)
	}
	return nil
}

// Unname takes a name from a namespace, which ends unless processes run in it. Without such a name
// nothing happens.
func Unname(name string) error {
	path := filepath.Join(namedNamespaces, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the name of network namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the name of network namespace %s: %w", name, err)
	}
	return nil
}

// NamedNamespaces returns the names of namespaces that begin with a prefix, in order.
func NamedNamespaces(prefix string) ([]string, error) {
	entries, err := os.ReadDir(namedNamespaces)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Inode returns the number by which the kernel knows the namespace.
func (n *Namespace) Inode() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(n.handle), &st); err != nil {
		return 0, fmt.Errorf("network namespace %s: %w", n.name, err)
	}
	return st.Ino, nil
}

// Processes returns the ids of the processes in the namespace, in order, except for this process.
func (n *Namespace) Processes() ([]int, error) {
	var here uint64
	if err := n.Do(func() (err error) {
		here, err = networkOf("thread-self")
		return err
	}); err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", n.name, err)
	}
	found, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range found {
		pid, err := strconv.Atoi(f.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if network, err := networkOf(f.Name()); err == nil && network == here {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// networkOf returns a number that tells the network namespace of a process from all others: the
// inode of a file below /proc that each namespace has of its own. Unlike the link ns/net it may be
// looked at without CAP_SYS_PTRACE also where the process is another user's.
func networkOf(process string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/"+process+"/net/dev", &st); err != nil {
		return 0, fmt.Errorf("network namespace of process %s: %w", process, err)
	}
	return st.Ino, nil
}

// EndProcess kills a process and waits for its end. That it has ended already is no error.
func EndProcess(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	AwaitEnd(fd)
	return nil
}

// AwaitEnd waits for the end of the process that a pidfd is of.
func AwaitEnd(pidfd int) {
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
