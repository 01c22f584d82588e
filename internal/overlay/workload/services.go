package workload

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"heddle/internal/hostnet"
	"heddle/internal/topology"
)

// services answer in a workload: what they receive they send back.
type services struct {
	closers []io.Closer
	running sync.WaitGroup

	mu      sync.Mutex
	senders map[netip.Addr]int // UDP datagrams by sender
}

// mostSenders bounds the senders that are counted.
const mostSenders = 256

// serve starts the services of a workload, by IPv4 and, where the kernel has it, IPv6.
func serve(ns *hostnet.Namespace) (*services, error) {
	s := &services{senders: map[netip.Addr]int{}}
	err := ns.Do(func() error {
		for _, port := range []int{topology.WorkloadOpenPort, topology.WorkloadClosedPort} {
			l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
			if err != nil {
				return err
			}
			s.closers = append(s.closers, l)
			s.running.Go(func() { s.accept(l) })
		}
		c, err := net.ListenUDP("udp", &net.UDPAddr{Port: topology.WorkloadOpenPort})
		if err != nil {
			return err
		}
		s.closers = append(s.closers, c)
		s.running.Go(func() { s.echo(c) })
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve in a workload: %w", err), s.close())
	}
	return s, nil
}

func (s *services) close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	s.running.Wait()
	return errors.Join(errs...)
}

// accept greets clients until the listener is closed.
func (s *services) accept(l *net.TCPListener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, greeting) // a client that has gone learns of it
		c.Close()
	}
}

// echo sends datagrams back until the socket is closed.
func (s *services) echo(c *net.UDPConn) {
	b := make([]byte, 2048)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about an earlier answer
		}
		s.count(from.Addr().Unmap())
		_, _ = c.WriteToUDPAddrPort(b[:n], from) // the sender asks again
	}
}

func (s *services) count(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.senders[from]; known || len(s.senders) < mostSenders {
		s.senders[from]++
	}
}

// received returns the number of UDP datagrams by sender.
func (s *services) received() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]int, len(s.senders))
	for from, n := range s.senders {
		all[from.String()] = n
	}
	return all
}
