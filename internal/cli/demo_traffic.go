package cli

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
)

// drip is a stream of UDP datagrams, one a millisecond, and when each came. Nobody answers it, so whether it passes is
// decided by the rules alone, never by an earlier answer.
type drip struct {
	stop           context.CancelFunc
	done           chan struct{} // closed when nothing is sent any more
	in             net.PacketConn
	last           atomic.Int64 // when the newest datagram came, nanoseconds since the epoch; 0 = none yet
	longest        atomic.Int64 // longest pause between two, nanoseconds
	sent, received atomic.Int64
}

const dripPause = time.Millisecond

// startDrip sends from one workload to another until stopped.
func startDrip(ctx context.Context, from, to *workload, port int) (*drip, error) {
	d := &drip{done: make(chan struct{})}
	err := to.ns.Do(func() (err error) {
		d.in, err = net.ListenPacket("udp4", ":"+strconv.Itoa(port))
		return err
	})
	if err != nil {
		return nil, err
	}
	out, err := dialIn(from.ns)(ctx, "udp4", net.JoinHostPort(to.address(false), strconv.Itoa(port)))
	if err != nil {
		d.in.Close()
		return nil, err
	}
	ctx, d.stop = context.WithCancel(ctx)
	go d.receive()
	go d.send(ctx, out)
	return d, nil
}

func (d *drip) receive() {
	buf := make([]byte, 64)
	for {
		if _, _, err := d.in.ReadFrom(buf); err != nil {
			return // closed
		}
		now := time.Now().UnixNano()
		if last := d.last.Swap(now); last > 0 {
			d.longest.Store(max(d.longest.Load(), now-last))
		}
		d.received.Add(1)
	}
}

func (d *drip) send(ctx context.Context, out net.Conn) {
	defer close(d.done)
	defer out.Close()
	tick := time.NewTicker(dripPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := out.Write([]byte("drip")); err == nil { // a refusal by the other side is as good as silence
				d.sent.Add(1)
			}
		}
	}
}

// close ends the stream.
func (d *drip) close() {
	d.stop()
	<-d.done
	d.in.Close()
}

// flowsAfter waits for a datagram that came after the given moment, and says how long after.
func (d *drip) flowsAfter(ctx context.Context, since time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	tick := time.NewTicker(dripPause)
	defer tick.Stop()
	for {
		if at := d.last.Load(); at > since.UnixNano() {
			return time.Duration(at - since.UnixNano()), nil
		}
		select {
		case <-ctx.Done():
			return 0, errors.New("nothing came")
		case <-tick.C:
		}
	}
}

// stopsAfter waits until nothing has come for a while, and says how long after the given moment the last one came.
func (d *drip) stopsAfter(ctx context.Context, since time.Time) (time.Duration, error) {
	const quiet = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	tick := time.NewTicker(dripPause)
	defer tick.Stop()
	for {
		at := time.Unix(0, d.last.Load())
		if time.Since(at) > quiet && time.Since(since) > quiet {
			return max(0, at.Sub(since)), nil
		}
		select {
		case <-ctx.Done():
			return 0, errors.New("it still comes")
		case <-tick.C:
		}
	}
}

// stream is a TCP connection over which numbers flow at a steady pace; the receiver checks that each follows the last.
type stream struct {
	stop     context.CancelFunc
	done     chan error
	received atomic.Int64
	longest  atomic.Int64 // longest pause between two numbers, nanoseconds
}

// startStream connects two workloads and returns when the first number has arrived.
func startStream(ctx context.Context, from, to *workload, port int) (*stream, error) {
	var l net.Listener
	err := to.ns.Do(func() (err error) {
		l, err = net.Listen("tcp4", ":"+strconv.Itoa(port))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	out, err := dialIn(from.ns)(ctx, "tcp4", net.JoinHostPort(to.address(false), strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	in, err := l.Accept()
	if err != nil {
		out.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{stop: cancel, done: make(chan error, 1)}
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

func (s *stream) send(ctx context.Context, out net.Conn) {
	defer out.Close()
	tick := time.NewTicker(dripPause)
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
			return // the receiver says why
		}
	}
}

func (s *stream) receive(in net.Conn, first chan struct{}) error {
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

// close ends the stream and says how it went.
func (s *stream) close() error {
	s.stop()
	return <-s.done
}
