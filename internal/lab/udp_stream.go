package lab

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"heddle/internal/netlab"
)

// UDPStream sends a datagram each millisecond from one workload to another, without answers, so
// that rules alone decide whether it passes, and no earlier connection.
type UDPStream struct {
	stop           context.CancelFunc
	done           chan struct{} // closed when nothing is sent any more
	in             net.PacketConn
	last           atomic.Int64 // when the newest datagram came, nanoseconds since the epoch; 0 = none yet
	longest        atomic.Int64 // longest pause between two, nanoseconds
	sent, received atomic.Int64
}

const udpInterval = time.Millisecond

// StartUDPStream sends from one workload to another until stopped.
func StartUDPStream(ctx context.Context, from, to *Workload, port int) (*UDPStream, error) {
	s := &UDPStream{done: make(chan struct{})}
	err := to.NS.Do(func() (err error) {
		s.in, err = net.ListenPacket("udp4", ":"+strconv.Itoa(port))
		return err
	})
	if err != nil {
		return nil, err
	}
	out, err := DialIn(from.NS)(ctx, "udp4", net.JoinHostPort(to.Address(false), strconv.Itoa(port)))
	if err != nil {
		s.in.Close()
		return nil, err
	}
	ctx, s.stop = context.WithCancel(ctx)
	go s.receive()
	go s.send(ctx, out)
	return s, nil
}

func (s *UDPStream) receive() {
	buf := make([]byte, 64)
	for {
		if _, _, err := s.in.ReadFrom(buf); err != nil {
			return // closed
		}
		now := time.Now().UnixNano()
		if last := s.last.Swap(now); last > 0 {
			s.longest.Store(max(s.longest.Load(), now-last))
		}
		s.received.Add(1)
	}
}

func (s *UDPStream) send(ctx context.Context, out net.Conn) {
	defer close(s.done)
	defer out.Close()
	tick := time.NewTicker(udpInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := out.Write([]byte("data")); err == nil { // a refusal by the other side is as good as silence
				s.sent.Add(1)
			}
		}
	}
}

// Close ends the stream.
func (s *UDPStream) Close() {
	s.stop()
	<-s.done
	s.in.Close()
}

// FlowsAfter waits some seconds for a datagram, and returns how long after since it arrived.
func (s *UDPStream) FlowsAfter(ctx context.Context, since time.Time) (time.Duration, error) {
	return s.await(ctx, "nothing came", func(last time.Time) (time.Duration, bool) { return last.Sub(since), last.After(since) })
}

// StopsAfter waits until no datagram has arrived for 300 ms, and returns how long after since the
// last one did.
func (s *UDPStream) StopsAfter(ctx context.Context, since time.Time) (time.Duration, error) {
	const quiet = 300 * time.Millisecond
	return s.await(ctx, "it still comes", func(last time.Time) (time.Duration, bool) {
		return max(0, last.Sub(since)), time.Since(last) > quiet && time.Since(since) > quiet
	})
}

// await calls f with the time of the newest datagram until it returns true, or fails after some
// seconds.
func (s *UDPStream) await(ctx context.Context, failure string, f func(last time.Time) (time.Duration, bool)) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(udpInterval)
	defer tick.Stop()
	for {
		if took, ok := f(time.Unix(0, s.last.Load())); ok {
			return took, nil
		}
		select {
		case <-ctx.Done():
			return 0, errors.New(failure)
		case <-tick.C:
		}
	}
}

// LongestPause returns the longest pause between datagrams since ResetPause.
func (s *UDPStream) LongestPause() time.Duration { return time.Duration(s.longest.Load()) }

// ResetPause forgets earlier pauses.
func (s *UDPStream) ResetPause() { s.longest.Store(0) }

// Finish stops sending, waits for datagrams in flight, and returns how many were sent and lost.
func (s *UDPStream) Finish() (sent, lost int64) {
	s.stop()
	<-s.done
	ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
	defer cancel()
	// Datagrams that have not arrived by then count as lost.
	_ = netlab.Until(ctx, "the last datagrams", func() (bool, error) { return s.received.Load() >= s.sent.Load(), nil })
	sent = s.sent.Load()
	return sent, sent - s.received.Load()
}
