package dhcp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a dnsmasq: one that this agent started, or one that an agent before it left running.
type process struct {
	pid    int
	args   []string // without the lease file
	leases string   // base name of its lease file
	ended  bool
	// killed: it was told to end, so its end is no news.
	killed bool
	pidfd  int // -1: it is our child
}

// exit is the end of a process, with why as far as that is known.
type exit struct {
	p   *process
	why string
}

// start runs dnsmasq with a lease file, and tells its end. It outlives this agent.
func start(program string, args []string, leases string, log *os.File, ends chan<- exit) (*process, error) {
	cmd := exec.Command(program, append([]string{leaseArgument + leases}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C for the agent is not for it
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, args: args, leases: filepath.Base(leases), pidfd: -1}
	go func() {
		err := cmd.Wait()
		why := "ended by itself"
		var status *exec.ExitError
		if errors.As(err, &status) {
			why = status.String()
		} else if err != nil {
			why = err.Error()
		}
		ends <- exit{p, why}
	}()
	return p, nil
}

// adopt finds the process that an earlier agent left, if it still is a dnsmasq over this state directory in this
// network namespace. nil: there is none.
func adopt(dir string, ends chan<- exit) (*process, error) {
	raw, err := os.ReadFile(filepath.Join(dir, pidFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || pid <= 1 {
		return nil, nil // half a file of a machine that lost its power: nothing of then runs now
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	args := arguments(pid)
	if !ours(args, dir) {
		return nil, unix.Close(fd)
	}
	p := &process{pid: pid, args: args[1:], leases: filepath.Base(args[0]), pidfd: fd}
	go func() {
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		ends <- exit{p, "ended"}
	}()
	return p, nil
}

// ours says whether arguments are those of an instance over this state directory.
func ours(args []string, dir string) bool {
	return len(args) > 0 && filepath.Dir(args[0]) == leaseArgument+dir
}

// endStrays ends the instances over a state directory other than p: one that was starting when its agent was killed would
// answer beside p.
func endStrays(dir string, p *process) error {
	found, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range found {
		pid, err := strconv.Atoi(f.Name())
		if err != nil || p != nil && pid == p.pid || !ours(arguments(pid), dir) {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("end process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// arguments reads the arguments of a process in our network namespace, without its name.
func arguments(pid int) (args []string) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	raw, err := os.ReadFile(proc + "cmdline")
	if err != nil {
		return nil
	}
	here, err1 := os.Readlink("/proc/self/ns/net")
	there, err2 := os.Readlink(proc + "ns/net")
	if err1 != nil || err2 != nil || here != there {
		return nil
	}
	for a := range strings.SplitSeq(strings.TrimSuffix(string(raw), "\x00"), "\x00") {
		args = append(args, a)
	}
	return args[1:]
}

// kill ends the process at once. dnsmasq keeps its lease file current, so nothing is lost.
func (p *process) kill() error {
	if p.ended {
		return nil
	}
	p.killed = true
	var err error
	if p.pidfd >= 0 {
		err = unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
	} else {
		err = unix.Kill(p.pid, unix.SIGKILL) // our child: its number is not given again before we have waited for it
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// close gives up what is held for the process once it has ended.
func (p *process) close() {
	p.ended = true
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
}
