package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"heddle/internal/lab"
)

const tcpInterval = time.Millisecond

// tcpStream sends numbers over a TCP connection at a steady pace; the receiver checks their order.
type tcpStream struct {
	stop     context.CancelFunc
	done     chan error
	received atomic.Int64
	longest  atomic.Int64 // longest pause between two numbers, nanoseconds
}

// startTCPStream connects two workloads and returns when the first number has arrived.
func startTCPStream(ctx context.Context, from, to *workload, port int) (*tcpStream, error) {
	var l net.Listener
	err := to.NS.Do(func() (err error) {
		l, err = net.Listen("tcp4", ":"+strconv.Itoa(port))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	out, err := lab.DialIn(from.NS)(ctx, "tcp4", net.JoinHostPort(to.Address(false), strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	in, err := l.Accept()
	if err != nil {
		out.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &tcpStream{stop: cancel, done: make(chan error, 1)}
	first := make(chan struct{})
	go s.send(ctx, out)
	go func() { s.done <- s.receive(in, first) }()
	select {
	case <-first:
		return s, nil
	case err := <-s.done:
		return nil, err
	}
}

func (s *tcpStream) send(ctx context.Context, out net.Conn) {
	defer out.Close()
	tick := time.NewTicker(tcpInterval)
	defer tick.Stop()
	var number [8]byte
	for n := uint64(0); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		binary.BigEndian.PutUint64(number[:], n)
		if _, err := out.Write(number[:]); err != nil {
			return // the receiver reports why
		}
	}
}

func (s *tcpStream) receive(in net.Conn, first chan struct{}) error {
	defer in.Close()
	var number [8]byte
	last := time.Now()
	for n := uint64(0); ; n++ {
		if _, err := io.ReadFull(in, number[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if got := binary.BigEndian.Uint64(number[:]); got != n {
			return fmt.Errorf("number %d came in place of %d", got, n)
		}
		if n == 0 {
			close(first)
		} else if pause := time.Since(last); int64(pause) > s.longest.Load() {
			s.longest.Store(int64(pause))
		}
		last = time.Now()
		s.received.Add(1)
	}
}

// close ends the stream and returns its error.
func (s *tcpStream) close() error {
	s.stop()
	return <-s.done
}
