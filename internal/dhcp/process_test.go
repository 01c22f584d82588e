package dhcp

import (
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
)

// TestOpenFiles lets a process that was given few files open as many as this one may.
func TestOpenFiles(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: hostnet.UnprivilegedID, Gid: hostnet.UnprivilegedID}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	most := min(limit.Max, 1<<16)
	limit.Cur = 64
	pid := cmd.Process.Pid
	if err := hostnet.AsUserOf(pid, func() error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil) }); err != nil {
		t.Fatal(err)
	}
	openFiles(pid)
	err := hostnet.AsUserOf(pid, func() error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit) })
	if err != nil || limit.Cur != most {
		t.Errorf("it may open %d files, %v, want %d", limit.Cur, err, most)
	}
}
