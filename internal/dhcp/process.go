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

// rights lists the capabilities of a dnsmasq: for entries of neighbours, for answers to machines
// without an address, and for its ports.
var rights = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE}

// start runs dnsmasq as a user, with a first argument, by which later agents find it, and more, and
// sends its end. It outlives this agent. It has the user from the start on: for a process that
// changes its user itself, [hostnet.AsUserOf] does nothing.
func start(program string, user credentials, first string, args []string, log *os.File, ends chan<- exit) (*process, error) {
	cmd := exec.Command(program, append([]string{first}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, // a Ctrl-C for the agent is not for it
		Credential: &syscall.Credential{Uid: user.uid, Gid: user.gid}, AmbientCaps: rights}
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
		_ = hostnet.AsUserOf(pid, func() error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil) })
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
	others := slices.DeleteFunc(found, func(p *process) bool { return p == known })
	if err := endAll(others); err != nil || known == nil {
		return nil, err
	}
	go func() {
		hostnet.AwaitEnd(known.pidfd)
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
// directory, each with a pidfd, by which no other process is meant that gets its number later.
func instances(first, device string) (list []*process, err error) {
	here, err := hostnet.CurrentNamespace()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	pids, err := here.Processes()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if !ours(arguments(pid), first, device) {
			continue
		}
		pidfd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
			continue
		}
		if err != nil {
			return list, fmt.Errorf("process %d: %w", pid, err)
		}
		args := arguments(pid)
		if !ours(args, first, device) { // it has ended, and its number was reused
			unix.Close(pidfd)
			continue
		}
		list = append(list, &process{pid: pid, args: args[1:], file: named(args[0]), pidfd: pidfd})
	}
	return list, nil
}

func endStrays(first, device string) error {
	found, err := instances(first, device)
	return errors.Join(err, endAll(found))
}

// endAll kills instances and waits for their ends.
func endAll(instances []*process) error {
	var errs []error
	for _, p := range instances {
		if err := p.kill(); err != nil {
			errs = append(errs, fmt.Errorf("end process %d: %w", p.pid, err))
		} else {
			hostnet.AwaitEnd(p.pidfd)
		}
		p.close()
	}
	return errors.Join(errs...)
}

// arguments reads the arguments of a process, without its name.
func arguments(pid int) []string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")[1:]
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
