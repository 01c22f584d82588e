package dhcp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"heddle/calico"
)

// process is a dnsmasq: one that this agent started, or one that an agent before it left running.
type process struct {
	pid   int
	args  []string // without the first
	file  string   // base name of what its first argument names: its lease file, or the directory of names
	ended bool
	// killed: it was told to end, so its end is no news.
	killed bool
	pidfd  int // -1: it is our child
	// held are who had which address when another instance was started that is to take over; nil before that.
	held map[netip.Addr]calico.MAC
}

// exit is the end of a process, with why as far as that is known.
type exit struct {
	p   *process
	why string
}

// start runs dnsmasq with a first argument, by which later agents know it, and more, and tells its end. It outlives this
// agent.
func start(program, first string, args []string, log *os.File, ends chan<- exit) (*process, error) {
	cmd := exec.Command(program, append([]string{first}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C for the agent is not for it
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, args: args, file: filepath.Base(first), pidfd: -1}
	openFiles(p.pid)
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

// openFiles lets a dnsmasq open more files than the 1024 that a service gets: the one for DNS has two sockets for each
// address of an interface. When that fails it serves as many machines as it can.
func openFiles(pid int) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = min(limit.Max, 1<<16)
		_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil)
	}
}

// adopt finds the process whose number an earlier agent left in a file, if it still is a dnsmasq over this state directory
// in this network namespace; first is how its first argument begins. nil: there is none.
func adopt(dir, numberIn, first string, ends chan<- exit) (*process, error) {
	raw, err := os.ReadFile(filepath.Join(dir, numberIn))
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
	if !ours(args, first+dir) {
		return nil, unix.Close(fd)
	}
	p := &process{pid: pid, args: args[1:], file: filepath.Base(args[0]), pidfd: fd}
	go func() {
		awaitEnd(fd)
		ends <- exit{p, "ended"}
	}()
	return p, nil
}

// ours says whether arguments are those of an instance whose first one names something in a state directory.
func ours(args []string, first string) bool { return len(args) > 0 && filepath.Dir(args[0]) == first }

// endStrays ends all instances whose first argument names something in a state directory, but for a known one.
func endStrays(first string, known *process) error {
	found, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range found {
		pid, err := strconv.Atoi(f.Name())
		if err != nil || known != nil && pid == known.pid || !ours(arguments(pid), first) {
			continue
		}
		errs = append(errs, endStray(pid))
	}
	return errors.Join(errs...)
}

// endStray ends a process and waits for that.
func endStray(pid int) error {
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
	awaitEnd(fd)
	return nil
}

// awaitEnd waits for the end of a process by its pidfd.
func awaitEnd(fd int) {
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// arguments reads the arguments of a process in our network namespace, without its name.
func arguments(pid int) (args []string) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	raw, err := os.ReadFile(proc + "cmdline")
	if err != nil {
		return nil
	}
	here, err1 := os.Readlink("/proc/thread-self/ns/net")
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
