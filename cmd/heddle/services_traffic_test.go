package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// memberMachine is a machine that serves pages, and answers by TCP and UDP on longPort.
type memberMachine struct {
	t      *testing.T
	ns     *netlab.Namespace
	server *http.Server
}

func newMemberMachine(t *testing.T, ns *netlab.Namespace) *memberMachine {
	m := &memberMachine{t: t, ns: ns}
	m.start()
	t.Cleanup(m.stop)
	m.echo()
	return m
}

// start starts the service that balancers have as a member.
func (m *memberMachine) start() {
	m.t.Helper()
	l, err := m.listen(memberPort)
	if err != nil {
		m.t.Fatal(err)
	}
	m.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "served") })}
	go func() { _ = m.server.Serve(l) }()
}

// stop ends it.
func (m *memberMachine) stop() { m.server.Close() }

func (m *memberMachine) listen(port int) (l net.Listener, err error) {
	err = m.ns.Do(func() error { l, err = net.Listen("tcp4", fmt.Sprint(":", port)); return err })
	return l, err
}

// echo answers everything with itself until the end of the test.
func (m *memberMachine) echo() {
	m.t.Helper()
	tcp, err := m.listen(longPort)
	if err != nil {
		m.t.Fatal(err)
	}
	var udp net.PacketConn
	if err := m.ns.Do(func() error { udp, err = net.ListenPacket("udp4", fmt.Sprint(":", longPort)); return err }); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { tcp.Close(); udp.Close() })
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(buffer[:n], from) // a lost answer is what the flow notes
		}
	}()
}

// span is a time with what it was.
type span struct {
	what       string
	begin, end time.Time
}

func (s span) String() string {
	return fmt.Sprintf("%s from %s to %s", s.what, s.begin.Format("15:04:05.000"), s.end.Format("15:04:05.000"))
}

// periods collects some. The zero periods is empty.
type periods struct {
	mu  sync.Mutex
	all []span
}

func (s *periods) add(one span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

// begin adds one that goes on until finish is called.
func (s *periods) begin(what string) { s.add(span{what, time.Now(), time.Now().Add(time.Hour)}) }

// finish ends the newest, if it goes on.
func (s *periods) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.all) - 1; last >= 0 && s.all[last].end.After(time.Now()) {
		s.all[last].end = time.Now()
	}
}

func (s *periods) list() []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

const (
	// connectionTimeout bounds a short connection: the kernel has repeated a lost packet by then.
	connectionTimeout = 5 * time.Second
	// betweenConnections and betweenPackets are the rates of the load.
	betweenConnections, betweenPackets = 50 * time.Millisecond, 10 * time.Millisecond
	// longestSilence bounds the silence of a long flow. The machine may be busy with other tests:
	// so busy that leastSent packets are not sent in that time, and silence says nothing.
	longestSilence = 2 * time.Second
	leastSent      = int(longestSilence / betweenPackets / 2)
)

// visitor opens a connection to an address after the other.
type visitor struct {
	periods // of connections that have failed
	at      string
	served  atomic.Int64
}

// visit has a machine connect to an address until ctx ends.
func visit(ctx context.Context, from *netlab.Namespace, at string) (v *visitor, wait func()) {
	v = &visitor{at: at}
	client := &http.Client{Timeout: connectionTimeout, Transport: &http.Transport{DialContext: dialer(from), DisableKeepAlives: true}}
	var running sync.WaitGroup
	running.Go(func() {
		for pace := time.NewTicker(betweenConnections); ; {
			select {
			case <-ctx.Done():
				pace.Stop()
				return
			case <-pace.C:
			}
			begin := time.Now()
			err := fetch(ctx, client, "http://"+at+"/")
			switch {
			case ctx.Err() != nil:
			case err != nil:
				v.add(span{"connection to " + at + ": " + err.Error(), begin, time.Now()})
			default:
				v.served.Add(1)
			}
		}
	})
	return v, running.Wait
}

func fetch(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// longFlow is a connection over which packets go to and fro for as long as it is open.
type longFlow struct {
	periods // of silence
	what    string
	conn    net.Conn

	mu   sync.Mutex
	last time.Time // of an answer
	sent int       // packets since
}

// openFlow opens a flow, and waits for its first answer.
func openFlow(t *testing.T, from *netlab.Namespace, network, to string) *longFlow {
	t.Helper()
	f := &longFlow{what: network + " to " + to}
	within(t, f.what, func() bool {
		c, err := dialer(from)(t.Context(), network, to)
		if err != nil {
			return false
		}
		buffer := make([]byte, 64)
		_, err = c.Write([]byte("first"))
		err = errors.Join(err, c.SetReadDeadline(time.Now().Add(time.Second)))
		if _, readErr := c.Read(buffer); err != nil || readErr != nil {
			c.Close()
			return false
		}
		f.conn = c
		return c.SetReadDeadline(time.Time{}) == nil
	})
	f.last = time.Now()
	go func() {
		for range time.Tick(betweenPackets) {
			if _, err := f.conn.Write([]byte("packet")); errors.Is(err, net.ErrClosed) {
				return
			}
			f.mu.Lock()
			f.sent++
			f.mu.Unlock()
		}
	}()
	go func() {
		buffer := make([]byte, 4096)
		for {
			if _, err := f.conn.Read(buffer); errors.Is(err, net.ErrClosed) || err != nil && network == "tcp4" {
				return
			} else if err == nil {
				f.hear(time.Now())
			}
		}
	}()
	t.Cleanup(func() { f.conn.Close() })
	return f
}

// heard returns when the last answer came.
func (f *longFlow) heard() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// hear notes an answer, or the end.
func (f *longFlow) hear(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.last) > longestSilence && f.sent >= leastSent {
		f.add(span{f.what + " silent", f.last, now})
	}
	f.last, f.sent = now, 0
}
