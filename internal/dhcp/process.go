package dhcp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	file  string   // what its first argument names: its lease file, or the directory of names
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
	p := &process{pid: cmd.Process.Pid, args: args, file: named(first), pidfd: -1}
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

// named is what a first argument names.
func named(first string) string {
	_, file, _ := strings.Cut(first, "=")
	return file
}

// stateDir is the state directory of the agent that started it.
func (p *process) stateDir() string { return filepath.Dir(p.file) }

// adopt finds the instance that an earlier agent left running on a device, by the number that it left in a file of its state
// directory: of ours, or else of another, as the earlier agent may have been told to keep its files elsewhere. All others
// would answer beside it and are ended. first is how the first argument of such an instance begins. nil: there is none.
func adopt(dir, numberIn, first, device string, ends chan<- exit) (*process, error) {
	found, err := instances(first, device)
	if err != nil {
		return nil, err
	}
	var known *process
	for _, p := range found {
		if p.isNumberIn(numberIn) && (known == nil || p.stateDir() == dir) {
			known = p
		}
	}
	var errs []error
	for _, p := range found {
		if p != known {
			errs = append(errs, endStray(p.pid))
		}
	}
	if err := errors.Join(errs...); err != nil || known == nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(known.pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("process %d: %w", known.pid, err)
	case !ours(arguments(known.pid), first, device): // it has ended, and its number was given again
		return nil, unix.Close(fd)
	}
	known.pidfd = fd
	go func() {
		awaitEnd(fd)
		ends <- exit{known, "ended"}
	}()
	return known, nil
}

// isNumberIn says whether a file of its state directory names it as the one that works.
func (p *process) isNumberIn(file string) bool {
	raw, err := os.ReadFile(filepath.Join(p.stateDir(), file))
	return err == nil && strings.TrimSpace(string(raw)) == strconv.Itoa(p.pid)
}

// ours says whether arguments are those of an instance on a device that an agent has started.
func ours(args []string, first, device string) bool {
	return len(args) > 0 && strings.HasPrefix(args[0], first) && slices.Contains(args, "--interface="+device)
}

// instances finds those in this network namespace that agents have started, whatever their state directory.
func instances(first, device string) (list []*process, err error) {
	found, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		pid, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		if args := arguments(pid); ours(args, first, device) {
			list = append(list, &process{pid: pid, args: args[1:], file: named(args[0]), pidfd: -1})
		}
	}
	return list, nil
}

// endStrays ends all instances that agents have started on a device.
func endStrays(first, device string) error {
	found, err := instances(first, device)
	errs := []error{err}
	for _, p := range found {
		errs = append(errs, endStray(p.pid))
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
