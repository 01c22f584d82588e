package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// machine is a Debian with a real systemd, made of this one's files.
type machine struct {
	t       *testing.T
	name    string
	address string // on eth0
	folder  string
	cgroup  string
	boot    *exec.Cmd
	ended   chan error
	console *console
}

// console keeps what systemd prints.
type console struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.String()
}

// limit bounds each wait.
const limit = 2 * time.Minute

// newMachine boots a machine, which ends with the test.
func newMachine(t *testing.T, name, address string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "heddle-machine")
	if err != nil {
		t.Fatal(err)
	}
	groups := filepath.Join(dir, "cgroup")
	m := &machine{t: t, name: name, address: address, folder: filepath.Join(dir, "machine"), cgroup: filepath.Join(groups, filepath.Base(dir)), console: &console{}}
	if err := errors.Join(os.Mkdir(groups, 0o755), os.Mkdir(m.folder, 0o755), syscall.Mount("cgroup2", groups, "cgroup2", 0, ""),
		syscall.Mount("machine", m.folder, "tmpfs", 0, "size=2g")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.kill()
		if t.Failed() {
			t.Logf("console of %s:\n%s", m.name, m.console)
		}
		if err := errors.Join(m.removeGroups(), syscall.Unmount(groups, 0), syscall.Unmount(m.folder, 0), os.RemoveAll(dir)); err != nil {
			t.Errorf("take the machine away: %v", err)
		}
	})
	m.start()
	return m
}

// removeGroups removes the machine's control groups, whose processes are gone, from the bottom up.
func (m *machine) removeGroups() error {
	var groups []string
	err := filepath.WalkDir(m.cgroup, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	for _, group := range slices.Backward(groups) {
		err = errors.Join(err, os.Remove(group))
	}
	return err
}

// start boots the machine, and waits until all its units have started.
func (m *machine) start() {
	m.t.Helper()
	m.boot = exec.Command("bash", "testdata/boot", m.folder, m.cgroup, m.name, m.address)
	m.boot.Stdout, m.boot.Stderr, m.boot.WaitDelay = m.console, m.console, limit
	m.ended = make(chan error, 1)
	if err := m.boot.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := m.ended
	go func() { ended <- m.boot.Wait() }()
	m.until("running", "systemctl is-system-running || true")
}

// kill ends the machine at once. Its first process ends after all others have.
func (m *machine) kill() {
	pid, err := m.init()
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		_ = m.boot.Process.Kill() // it did not come that far, or has ended
	}
	m.ended <- <-m.ended
}

// waitRebooted waits for the machine to end as one does that starts again: its first process by a
// hang-up (reboot(2)).
func (m *machine) waitRebooted() {
	m.t.Helper()
	err := <-m.ended
	m.ended <- err
	if status, ok := m.boot.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGHUP {
		m.t.Fatalf("the machine ended with %v, not to start again", err)
	}
}

// init returns the process id of the machine's first process.
func (m *machine) init() (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.boot.Process.Pid))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(raw), " ")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return 0, errors.New("the machine has no first process")
	}
	return pid, nil
}

// try runs lines of shell in the machine.
func (m *machine) try(lines string) (string, error) {
	pid, err := m.init()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(pid), "-m", "-p", "-n", "-u", "-i", "-C", "env", "-i", "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C.UTF-8", "bash", "-euc", prelude+lines)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// prelude comes before all lines. `! command` ends them only as the last of them when the command
// succeeds; `fails command` does anywhere.
const prelude = `cd /root
fails() {
	if "$@"; then
		echo "this was to fail: $*" >&2
		return 1
	fi
}
`

// run is try for what must succeed.
func (m *machine) run(lines string) string {
	m.t.Helper()
	out, err := m.try(lines)
	if err != nil {
		journal, _ := m.try("journalctl --no-pager -n 60 -u 'heddle*' -u calico-dhcp-agent 2>&1; systemctl --no-pager --failed")
		m.t.Fatalf("%s: %s: %v\n%s\n%s", m.name, lines, err, out, journal)
	}
	return out
}

// until runs lines of shell until their output contains want.
func (m *machine) until(want, lines string) {
	m.t.Helper()
	m.within(limit, want, lines)
}

// within is until with a limit of its own.
func (m *machine) within(limit time.Duration, want, lines string) {
	m.t.Helper()
	again, over := time.NewTicker(100*time.Millisecond), time.After(limit)
	defer again.Stop()
	for {
		out, err := m.try(lines)
		if err == nil && strings.Contains(out, want) {
			return
		}
		select {
		case err := <-m.ended:
			m.ended <- err
			m.t.Fatalf("the machine ended: %v", err)
		case <-over:
			m.t.Fatalf("%s: %s: no %q, last %s, %v", m.name, lines, want, out, err)
		case <-again.C:
		}
	}
}

// put copies a file into the machine.
func (m *machine) put(from, to string) {
	m.t.Helper()
	raw, err := os.ReadFile(from)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(to, raw)
}

// write writes a file in the machine.
func (m *machine) write(to string, content []byte) {
	m.t.Helper()
	pid, err := m.init()
	if err == nil {
		err = os.WriteFile(fmt.Sprintf("/proc/%d/root%s", pid, to), content, 0o644)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}
