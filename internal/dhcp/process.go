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
	"heddle/internal/hostnet"
)

// process is a dnsmasq that this agent or an earlier one has started.
type process struct {
	pid   int
	args  []string // without the first
	file  string   // what its first argument names: its lease file, or the directory of names
	ended bool
	// killed: the agent has ended it, so its end needs no report.
	killed bool
	pidfd  int // -1: it is our child
	// holders of addresses, when the instance was started that took over; nil before that.
	holders map[netip.Addr]calico.MAC
}

// exit is the end of a process, with the reason as far as that is known.
type exit struct {
	p   *process
	why string
}

// start runs dnsmasq with a first argument, by which later agents find it, and more, and sends its
// end. It outlives this agent.
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
		why := "ended by itself"
		if err := cmd.Wait(); err != nil {
			why = err.Error()
		}
		ends <- exit{p, why}
	}()
	return p, nil
}

// openFiles lets a dnsmasq open more files than the 1024 that a service may: the one for DNS has
// two sockets for each address of an interface. If that fails it serves as many machines as it can.
func openFiles(pid int) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = min(limit.Max, 1<<16)
		_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil)
	}
}

// named returns the file that a first argument names.
func named(first string) string {
	_, file, _ := strings.Cut(first, "=")
	return file
}

// stateDir returns the state directory of the agent that started it.
func (p *process) stateDir() string { return filepath.Dir(p.file) }

// adopt returns the instance that serves on a device for an earlier agent, or nil. A file of its
// state directory holds its number; an instance of our own directory comes before one of another.
// All others are ended, as they would answer too. first begins the first argument of such
// instances.
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
			errs = append(errs, hostnet.EndProcess(p.pid))
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
	case !ours(arguments(known.pid), first, device): // it has ended, and its number was reused
		return nil, unix.Close(fd)
	}
	known.pidfd = fd
	go func() {
		hostnet.AwaitEnd(fd)
		ends <- exit{known, "ended"}
	}()
	return known, nil
}

// isNumberIn reports whether a file of its state directory holds its number.
func (p *process) isNumberIn(file string) bool {
	raw, err := os.ReadFile(filepath.Join(p.stateDir(), file))
	return err == nil && strings.TrimSpace(string(raw)) == strconv.Itoa(p.pid)
}

// ours reports whether arguments are those of an instance that an agent has started on a device.
func ours(args []string, first, device string) bool {
	return len(args) > 0 && strings.HasPrefix(args[0], first) && slices.Contains(args, "--interface="+device)
}

// instances returns those in this network namespace that agents have started, whatever their state
// directory.
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

func endStrays(first, device string) error {
	found, err := instances(first, device)
	errs := []error{err}
	for _, p := range found {
		errs = append(errs, hostnet.EndProcess(p.pid))
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
		err = unix.Kill(p.pid, unix.SIGKILL) // our child: its number is not reused before we have waited for it
	}
	return unlessGone(err)
}

// close releases the resources of a process that has ended.
func (p *process) close() {
	p.ended = true
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
}
