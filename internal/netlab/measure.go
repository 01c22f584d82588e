package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Path is a connection between two namespaces that can be measured.
type Path struct {
	Name           string
	Client, Server *Namespace
	// Address is the server's.
	Address netip.Addr
	// Dialed is the address that clients connect to, if it is translated to Address; else invalid.
	Dialed netip.Addr
	// Port is the server's, for paths that know only one; 0 = any.
	Port uint16
	host *Namespace // between them, of paths that route
}

// Latency is the distribution of the time that something took.
type Latency struct {
	Count         int
	P50, P90, P99 time.Duration
}

func latencyOf(samples []time.Duration) Latency {
	if len(samples) == 0 {
		return Latency{}
	}
	slices.Sort(samples)
	at := func(percent int) time.Duration { return samples[min(len(samples)-1, len(samples)*percent/100)] }
	return Latency{Count: len(samples), P50: at(50), P90: at(90), P99: at(99)}
}

// measure runs a measurement with a socket at the server's address. A TCP socket listens.
func (p Path) measure(what string, kind int, do func(l socket, at netip.AddrPort) error) error {
	l, at, err := p.Server.listen(kind, netip.AddrPortFrom(p.Address, p.Port))
	if err != nil {
		return err
	}
	defer l.Close()
	if p.Dialed.IsValid() {
		at = netip.AddrPortFrom(p.Dialed, at.Port())
	}
	if err := do(l, at); err != nil {
		return fmt.Errorf("%s: %s: %w", p.Name, what, err)
	}
	return nil
}

// both runs the two ends of a measurement, each on a core, and waits for both.
func (p Path) both(serverCore int, server func() error, clientCore int, client func() error) error {
	done := make(chan error, 1)
	go func() { done <- p.Server.pinned(serverCore, server) }()
	return errors.Join(p.Client.pinned(clientCore, client), <-done)
}

// limit reports whether a measurement of so many samples, running for so long, is to go on.
type limit func(samples int, ran time.Duration) bool

func upTo(n int) limit { return func(samples int, _ time.Duration) bool { return samples < n } }

// lasting is a limit in time, with one sample at least.
func lasting(d time.Duration) limit {
	return func(samples int, ran time.Duration) bool { return samples == 0 || ran < d }
}

// RoundTrips exchanges one byte each way over one TCP connection n times, both ends on one core,
// and returns the time of an exchange.
func (p Path) RoundTrips(n int) (Latency, error) { return p.roundTrips(upTo(n)) }

// RoundTripsFor is RoundTrips limited in time.
func (p Path) RoundTripsFor(d time.Duration) (Latency, error) { return p.roundTrips(lasting(d)) }

func (p Path) roundTrips(more limit) (Latency, error) {
	samples := make([]time.Duration, 0, 1<<15)
	err := p.measure("round trips", unix.SOCK_STREAM, func(l socket, at netip.AddrPort) error {
		return p.both(coreA, func() error { return serve(l) }, coreA, func() error {
			c, err := dial(at)
			if err != nil {
				return err
			}
			defer c.Close()
			var b [1]byte
			for begin := time.Now(); more(len(samples), time.Since(begin)); {
				start := time.Now()
				if err := exchange(c, b[:]); err != nil {
					return err
				}
				samples = append(samples, time.Since(start))
			}
			return nil
		})
	})
	return latencyOf(samples), err
}

// Connects makes n connections one after another, with a byte each way, both ends on one core, and
// returns the time from connect to the byte that came back, and the rate a second. It resets
// connections, since closing them would use up the ports.
//
// Linux before 6.19 sometimes resets a connection whose first data and last packet of the handshake
// arrive on two cores at once. Such a connection is made again.
func (p Path) Connects(n int) (Latency, float64, error) { return p.connects(upTo(n)) }

// ConnectsFor is Connects limited in time.
func (p Path) ConnectsFor(d time.Duration) (Latency, float64, error) {
	return p.connects(lasting(d))
}

func (p Path) connects(more limit) (Latency, float64, error) {
	samples := make([]time.Duration, 0, 1<<13)
	var done atomic.Bool
	var took time.Duration
	err := p.measure("connects", unix.SOCK_STREAM, func(l socket, at netip.AddrPort) error {
		return p.both(coreA, func() error { return serveUntil(l, &done) }, coreA, func() error {
			defer done.Store(true)
			begin := time.Now()
			for resets := 0; more(len(samples), time.Since(begin)); {
				start := time.Now()
				err := connectOnce(at)
				if (errors.Is(err, unix.ECONNRESET) || errors.Is(err, errClosed)) && resets < 1+len(samples)/50 {
					resets++
					continue
				}
				if err != nil {
					return err
				}
				samples = append(samples, time.Since(start))
			}
			took = time.Since(begin)
			return nil
		})
	})
	return latencyOf(samples), float64(len(samples)) / took.Seconds(), err
}

func connectOnce(at netip.AddrPort) error {
	c, err := dial(at)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	var b [1]byte
	return exchange(c, b[:])
}

// serveUntil serves connections, one after another, until done. One that is silent for a while has
// lost its client.
func serveUntil(l socket, done *atomic.Bool) error {
	const silence = 50 * time.Millisecond
	if err := l.timeout(silence); err != nil { // inherited by what is accepted
		return err
	}
	for !done.Load() {
		s, err := l.accept()
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return err
		}
		err = echo(s)
		s.Close()
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
	return nil
}

// Stream sends over one TCP connection for that long, each end on its own core, and returns the
// bits a second that arrived.
func (p Path) Stream(d time.Duration) (float64, error) {
	var got int
	var took time.Duration
	receive := func(l socket) error {
		s, err := l.accept()
		if err != nil {
			return err
		}
		defer s.Close()
		b := make([]byte, 1<<18)
		begin := time.Now()
		for {
			n, err := s.read(b)
			if err != nil {
				return fmt.Errorf("receive: %w", err)
			}
			if n == 0 {
				took = time.Since(begin)
				return nil
			}
			got += n
		}
	}
	send := func(at netip.AddrPort) error {
		c, err := dial(at)
		if err != nil {
			return err
		}
		defer c.Close()
		b := make([]byte, 1<<17)
		for end := time.Now().Add(d); time.Now().Before(end); {
			if _, err := c.write(b); err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
		return nil
	}
	err := p.measure("stream", unix.SOCK_STREAM, func(l socket, at netip.AddrPort) error {
		return p.both(coreB, func() error { return receive(l) }, coreA, func() error { return send(at) })
	})
	return float64(got) * 8 / took.Seconds(), err
}

// serve accepts one connection and echoes until its client closes.
func serve(l socket) error {
	s, err := l.accept()
	if err != nil {
		return err
	}
	defer s.Close()
	return echo(s)
}

var errClosed = errors.New("receive: the other end has closed")

func exchange(s socket, b []byte) error {
	if _, err := s.write(b); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	n, err := s.read(b)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if n == 0 {
		return errClosed
	}
	return nil
}

// echo sends data back until the other end closes or resets.
func echo(s socket) error {
	var b [1]byte
	for {
		n, err := s.read(b[:])
		if err == unix.ECONNRESET || err == nil && n == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve: %w", err)
		}
		if _, err := s.write(b[:]); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
	}
}
