package bgp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/topology/routerbgp"
)

// agentSocket takes the agent's plans and gives it reports, among them one without changes every
// ReportEvery while the speaker's loop works. One agent is connected at a time, the last that came.
// Its methods are of that loop.
type agentSocket struct {
	listener net.Listener
	loop     *loopWatch
	messages chan agentMessage
	written  chan struct{} // the last reports are written
	done     chan struct{}
	running  sync.WaitGroup
	lines    sync.Mutex // is held while lines are written

	mu      sync.Mutex
	conn    net.Conn // of the agent, nil if none is connected
	writing bool
}

// agentMessage is a connection, a plan or a sign of life that came by one, or its end.
type agentMessage struct {
	connected bool
	plan      *routerbgp.Plan
	alive     bool
	err       error
}

// loopWatch notes when the speaker's loop has begun its last round.
type loopWatch struct {
	start time.Time
	round atomic.Int64 // begun so long after start, ns
}

// maxRound is the time after which a round of the loop counts as blocked. With 250,000 routes of a
// neighbour and six busy processes for each processor, rounds have taken nine seconds.
const maxRound = time.Minute

func newLoopWatch() *loopWatch { return &loopWatch{start: time.Now()} }

func (w *loopWatch) begin() { w.round.Store(int64(time.Since(w.start))) }

func (w *loopWatch) blocked() bool {
	return time.Since(w.start)-time.Duration(w.round.Load()) > maxRound
}

func newAgentSocket(l net.Listener, w *loopWatch) *agentSocket {
	s := &agentSocket{listener: l, loop: w, messages: make(chan agentMessage), written: make(chan struct{}, 1), done: make(chan struct{})}
	s.running.Go(s.accept)
	s.running.Go(s.keepReporting)
	return s
}

// close ends the socket, and waits for its goroutines.
func (s *agentSocket) close() {
	close(s.done)
	s.listener.Close()
	s.mu.Lock()
	if s.conn != nil {
		s.conn.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *agentSocket) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.conn != nil {
			s.conn.Close()
		}
		s.conn, s.writing = c, false
		s.mu.Unlock()
		if !s.send(agentMessage{connected: true}) {
			c.Close()
			return
		}
		s.running.Go(func() { s.read(c) })
	}
}

// send gives the loop a message. It returns false when the socket is closed.
func (s *agentSocket) send(m agentMessage) bool {
	select {
	case s.messages <- m:
		return true
	case <-s.done:
		return false
	}
}

// read reads plans until the connection ends.
func (s *agentSocket) read(c net.Conn) {
	err := s.readPlans(c)
	c.Close()
	s.mu.Lock()
	current := s.conn == c
	if current {
		s.conn, s.writing = nil, false
	}
	s.mu.Unlock()
	if current {
		s.send(agentMessage{err: err})
	}
}

func (s *agentSocket) readPlans(c net.Conn) error {
	lines := bufio.NewScanner(c)
	lines.Buffer(nil, routerbgp.MaxLine)
	for lines.Scan() {
		m := agentMessage{alive: true}
		if len(lines.Bytes()) > 0 {
			p, err := routerbgp.ParsePlan(lines.Bytes())
			if err != nil {
				return err
			}
			m = agentMessage{plan: p}
		}
		if !s.send(m) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("it has closed its connection")
}

// idle reports whether an agent is connected that has taken all reports.
func (s *agentSocket) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil && !s.writing
}

// write writes reports to the agent, and gives written afterwards. A connection that fails ends.
func (s *agentSocket) write(reports []routerbgp.Report) {
	s.mu.Lock()
	c := s.conn
	s.writing = c != nil
	s.mu.Unlock()
	if c == nil {
		return
	}
	s.running.Go(func() {
		if !s.writeTo(c, reports) {
			return
		}
		s.mu.Lock()
		if s.conn == c {
			s.writing = false
		}
		s.mu.Unlock()
		select {
		case s.written <- struct{}{}:
		default:
		}
	})
}

// writeTo writes reports to an agent, and returns false if the connection has failed and ends.
func (s *agentSocket) writeTo(c net.Conn, reports []routerbgp.Report) bool {
	s.lines.Lock()
	defer s.lines.Unlock()
	err := writeReports(c, reports)
	if err != nil {
		c.Close() // its reader says so
	}
	return err == nil
}

// keepReporting shows the agent that the speaker works, until the socket is closed.
func (s *agentSocket) keepReporting() {
	tick := time.NewTicker(routerbgp.ReportEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		c := s.conn
		s.mu.Unlock()
		if c != nil && !s.loop.blocked() {
			s.writeTo(c, []routerbgp.Report{{}})
		}
	}
}

func writeReports(c net.Conn, reports []routerbgp.Report) error {
	w := bufio.NewWriter(c)
	for i := range reports {
		line, err := json.Marshal(&reports[i])
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
}
