package hostnet

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// AsUserOf runs f on a thread with the user and group of a process and the capabilities of this
// one. So f may do with the process what its own user may, such as copy its descriptors
// (pidfd_getfd(2)) or change its limits (prlimit(2)), without CAP_SYS_PTRACE or CAP_SYS_RESOURCE.
// That holds for a process that had this user when its program began: one that changed users itself
// is closed to both. It takes CAP_SETUID and CAP_SETGID.
func AsUserOf(pid int, f func() error) error {
	uid, gid, err := userOf(pid)
	if err != nil {
		return err
	}
	return OnThread(func() error {
		if err := becomeUser(uid, gid); err != nil {
			return fmt.Errorf("act as user %d: %w", uid, err)
		}
		return f()
	})
}

// userOf returns the effective user and group of a process.
func userOf(pid int) (uid, gid uint32, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	var real uint32
	for line := range strings.Lines(string(raw)) {
		if values, ok := strings.CutPrefix(line, "Uid:"); ok {
			_, err = fmt.Sscan(values, &real, &uid)
		} else if values, ok := strings.CutPrefix(line, "Gid:"); ok {
			_, err = fmt.Sscan(values, &real, &gid)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/%d/status: %w", pid, err)
		}
	}
	return uid, gid, nil
}

// becomeUser changes the user and group of the calling thread for good, and keeps its capabilities.
// Go's own functions would change all threads.
func becomeUser(uid, gid uint32) error {
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return e
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	for i := range sets {
		sets[i].Effective = sets[i].Permitted
	}
	return unix.Capset(&header, &sets[0])
}
