package dhcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"heddle/calico"
	"heddle/internal/hostnet"
)

// When another instance takes over, one may have requests in its queue. Those that came before the
// other listened, it alone can answer; so it does before it ends. Later ones are broadcast to both,
// and only the new one may answer: the old one would refuse machines that it does not know. The
// agent learns up to tenths of a second late that the new one listens; until then, machines whose
// addresses change hands are filtered out for the old one.

const (
	// drainTimeout bounds the time for queued requests, and then that for the end.
	drainTimeout = time.Second
	drainLook    = time.Millisecond

	// roomBytes holds about 1,500 requests, as the kernel counts them.
	roomBytes = 2 << 20

	portDHCPv4, portDHCPv6 = 67, 547

	// longestFilter bounds the machines in one socket filter: the kernel allows 4096 instructions.
	longestFilter = 800
)

// ignore keeps the IPv4 requests of machines from an instance, from the start of the one that will
// take over: for the old one their addresses are other machines', so it would refuse what the new
// one offers until the agent ends it.
func ignore(p *process, machines []calico.MAC) error {
	if len(machines) == 0 {
		return nil
	}
	filter := machineFilter(machines)
	return unlessGone(eachSocket(p.pid, func(fd int) error {
		at, _ := unix.Getsockname(fd)
		if _, ok := at.(*unix.SockaddrInet4); !ok {
			return nil
		}
		return attach(fd, filter)
	}))
}

// machineFilter drops DHCPv4 messages of machines, by the hardware address in the message.
func machineFilter(machines []calico.MAC) []unix.SockFilter {
	const chaddr = 8 + 28 // in a datagram with its UDP header
	machines = machines[:min(len(machines), longestFilter)]
	var filter []unix.SockFilter
	for _, m := range machines {
		// If the first four bytes differ, three instructions are skipped to the next machine.
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: chaddr},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: binary.BigEndian.Uint32(m[:4])},
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: chaddr + 4},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(binary.BigEndian.Uint16(m[4:]))},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0})
	}
	return append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff})
}

func attach(fd int, filter []unix.SockFilter) error {
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// retire lets an instance answer its queued requests, and ends it. It does not wait; close does.
func (s *server) retire(p *process) {
	pidfd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return // it has ended
	}
	if err != nil {
		s.note(errors.Join(err, p.kill()), "end the dnsmasq before")
		return
	}
	p.killed = true
	sockets, err := copySockets(p.pid, pidfd)
	errs := []error{err}
	for _, fd := range sockets {
		errs = append(errs, attach(fd, broadcastFilter(fd)))
	}
	if err := errors.Join(errs...); err != nil { // it ends at once then, as well as it may
		s.log.Debug("cannot see what the dnsmasq before has yet to answer", "pid", p.pid, "err", err)
	}
	s.retiring.Go(func() {
		defer unix.Close(pidfd)
		drain(sockets)
		s.note(end(pidfd), "end the dnsmasq before")
	})
}

// end has a process finish its work, and end.
func end(pidfd int) error {
	if err := unix.PidfdSendSignal(pidfd, unix.SIGTERM, nil, 0); err != nil {
		return unlessGone(err)
	}
	until := time.Now().Add(drainTimeout)
	for left := drainTimeout; left > 0; left = time.Until(until) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n == 1 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return unlessGone(unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0))
}

// unlessGone returns err, or nil if it means that the process has ended.
func unlessGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// drain waits until sockets of another process have empty queues, and closes this process's copies.
func drain(sockets []int) {
	tick := time.Tick(drainLook)
	for until := time.Now().Add(drainTimeout); waiting(sockets) && time.Now().Before(until); {
		<-tick
	}
	for _, fd := range sockets {
		unix.Close(fd)
	}
}

func waiting(sockets []int) bool {
	for _, fd := range sockets {
		if n, err := unix.IoctlGetInt(fd, unix.SIOCINQ); err == nil && n > 0 {
			return true
		}
	}
	return false
}

// copySockets returns copies of the sockets on which another process serves DHCP.
func copySockets(pid, pidfd int) (sockets []int, err error) {
	err = hostnet.AsUserOf(pid, func() error {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		found, err := os.ReadDir(dir)
		errs := []error{err}
		for _, f := range found {
			target, err := os.Readlink(dir + "/" + f.Name())
			if err != nil || !strings.HasPrefix(target, "socket:") {
				continue
			}
			number, err := strconv.Atoi(f.Name())
			if err != nil {
				continue
			}
			fd, err := unix.PidfdGetfd(pidfd, number, 0)
			switch {
			case err != nil:
				errs = append(errs, err)
			case broadcastFilter(fd) == nil:
				unix.Close(fd)
			default:
				sockets = append(sockets, fd)
			}
		}
		return errors.Join(errs...)
	})
	return sockets, err
}

// eachSocket does something to a copy of each socket on which a process serves DHCP.
func eachSocket(pid int, do func(fd int) error) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	sockets, err := copySockets(pid, pidfd)
	errs := []error{err}
	for _, fd := range sockets {
		errs = append(errs, do(fd), unix.Close(fd))
	}
	return errors.Join(errs...)
}

// makeRoom lets an instance's sockets hold the requests of all machines of a host at once. dnsmasq
// leaves them at the kernel's default, at which a hundred requests fit.
func makeRoom(p *process) error {
	return eachSocket(p.pid, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, roomBytes) })
}

// broadcastFilter returns a filter that drops the broadcasts and multicasts to a DHCP socket, which
// all DHCP servers receive; nil for other sockets. Unicast packets pass.
func broadcastFilter(fd int) []unix.SockFilter {
	const netOff = 0xfff00000 // SKF_NET_OFF: from the network header
	var load unix.SockFilter
	var group uint32
	switch a, _ := unix.Getsockname(fd); a := a.(type) {
	case *unix.SockaddrInet4:
		if a.Port != portDHCPv4 {
			return nil
		}
		load, group = unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: netOff + 16}, 0xffffffff // destination
	case *unix.SockaddrInet6:
		if a.Port != portDHCPv6 {
			return nil
		}
		load, group = unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: netOff + 24}, 0xff // its first byte
	default:
		return nil
	}
	return []unix.SockFilter{load,
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: group},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff}}
}
