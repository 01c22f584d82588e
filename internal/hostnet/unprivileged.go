package hostnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// UnprivilegedID is the user and the group of unprivileged programs. No user of the host has it:
// Debian reserves it, and systemd gives it to nothing.
const UnprivilegedID = 65533

// StartUnprivileged starts this process's own program in the namespace, with UnprivilegedID and
// these capabilities, such as CAP_NET_BIND_SERVICE. It can gain no others (no_new_privs). Files
// that it needs are among the command's, or open to all users. The command has no path yet.
func (n *Namespace) StartUnprivileged(cmd *exec.Cmd, capabilities ...uintptr) error {
	const self = "/proc/self/exe" // in the new process too; its directories may be closed to others
	cmd.Path, cmd.Dir = self, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, // a Ctrl-C for this process is not for it
		Credential: &syscall.Credential{Uid: UnprivilegedID, Gid: UnprivilegedID}, AmbientCaps: capabilities}
	err := OnThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n.name, err)
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
		return cmd.Start()
	})
	if program, _ := os.Executable(); errors.Is(err, os.ErrPermission) && program != "" {
		return fmt.Errorf("%w: user %d must be allowed to run the program: chmod o+rx %s", err, UnprivilegedID, program)
	}
	return err
}
