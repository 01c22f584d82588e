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

// UDPStream sends a datagram each millisecond from one workload to another and notes when each arrives. No answers are
// sent, so whether a datagram passes is decided by the rules alone, never by a connection of before.
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

// FlowsAfter waits some seconds for a datagram that arrives after since, and returns how long after.
func (s *UDPStream) FlowsAfter(ctx context.Context, since time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	tick := time.NewTicker(udpInterval)
	defer tick.Stop()
	for {
		if at := s.last.Load(); at > since.UnixNano() {
			return time.Duration(at - since.UnixNano()), nil
		}
		select {
		case <-ctx.Done():
			return 0, errors.New("nothing came")
		case <-tick.C:
		}
	}
}

// StopsAfter waits until no datagram has arrived for 300 ms, and returns how long after since the last one did.
func (s *UDPStream) StopsAfter(ctx context.Context, since time.Time) (time.Duration, error) {
	const quiet = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	tick := time.NewTicker(udpInterval)
	defer tick.Stop()
	for {
		at := time.Unix(0, s.last.Load())
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

// LongestPause returns the longest pause between two datagrams since the start or ResetPause.
func (s *UDPStream) LongestPause() time.Duration { return time.Duration(s.longest.Load()) }

// ResetPause forgets the pauses so far.
func (s *UDPStream) ResetPause() { s.longest.Store(0) }

// Finish stops sending, waits a moment for datagrams in flight, and returns how many were sent and how many never came.
func (s *UDPStream) Finish() (sent, lost int64) {
	s.stop()
	<-s.done
	ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
	defer cancel()
	// What has not come by then counts as lost.
	_ = netlab.Until(ctx, "the last datagrams", func() (bool, error) { return s.received.Load() >= s.sent.Load(), nil })
	sent = s.sent.Load()
	return sent, sent - s.received.Load()
}
