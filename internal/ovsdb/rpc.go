package ovsdb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// cancelTimeout bounds how long giving up a request takes more, when the stream is full.
const cancelTimeout = 50 * time.Millisecond

// message is a request (id and method), an answer (id) or a notification (method) of JSON-RPC 1.0.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// connection is one stream to a database. Its reader handles what comes in order: an answer's
// handler and notifications never run at once, so that what a handler has done is seen by what
// comes after.
type connection struct {
	stream     net.Conn
	maxMessage int
	probe      time.Duration // Options.Probe
	deadAfter  time.Duration // Options.DeadAfter
	notify     func(method string, params json.RawMessage) error
	// quiet is called when the server does not answer a probe, and with nil when it answers again.
	quiet func(error)

	begun  time.Time     // what heard counts from, by the monotonic clock
	heard  atomic.Int64  // when bytes last arrived, nanoseconds after begun
	closed chan struct{} // closed once the stream is of no use, after cause is set
	cause  error

	calling sync.Mutex  // held while quiet is called
	silent  atomic.Bool // the last call said that the server does not answer

	writing chan struct{} // holds a token while a message goes out, so that whole ones do

	mu      sync.Mutex
	next    int64
	pending map[int64]func(json.RawMessage, error) error
	closing sync.Once
	running sync.WaitGroup
}

// connect begins to read from a stream. An error of notify ends the connection.
func connect(stream net.Conn, o Options, notify func(string, json.RawMessage) error, quiet func(error)) *connection {
	c := &connection{stream: stream, maxMessage: o.MaxMessage, probe: o.Probe, deadAfter: o.DeadAfter, notify: notify, quiet: quiet, begun: time.Now(),
		closed: make(chan struct{}), writing: make(chan struct{}, 1), pending: map[int64]func(json.RawMessage, error) error{}}
	c.running.Go(c.read)
	c.running.Go(c.listenForSilence)
	return c
}

// close ends the connection and all that waits for answers; the first cause counts.
func (c *connection) close(cause error) {
	c.closing.Do(func() {
		c.cause = cause
		close(c.closed)
		c.stream.Close()
	})
}

// wait returns when everything that the connection had started has ended, after close.
func (c *connection) wait() { c.running.Wait() }

// errTooLong is the error of reading a message that exceeds its bound.
var errTooLong = errors.New("a message is longer than is allowed")

// meter passes bytes on, notes when they came, and ends when a message takes more than allowed.
type meter struct {
	c    *connection
	left int
}

func (m *meter) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, errTooLong
	}
	n, err := m.c.stream.Read(p[:min(len(p), m.left)])
	m.left -= n
	if n > 0 {
		m.c.heard.Store(int64(time.Since(m.c.begun)))
		if m.c.silent.Load() {
			m.c.reportQuiet(nil)
		}
	}
	return n, err
}

// read handles messages until the stream ends.
func (c *connection) read() {
	in := &meter{c: c}
	decoder := json.NewDecoder(in)
	for {
		in.left = c.maxMessage
		var m message
		err := decoder.Decode(&m)
		if err == nil {
			err = c.handle(&m)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the database has closed the connection")
			}
			c.close(err)
			return
		}
	}
}

func (c *connection) handle(m *message) error {
	switch {
	case m.Method == "echo" && !isNull(m.ID):
		return c.write(context.Background(), message{ID: m.ID, Result: m.Params, Error: json.RawMessage("null")})
	case m.Method != "" && !isNull(m.ID):
		return c.write(context.Background(), message{ID: m.ID, Result: json.RawMessage("null"), Error: json.RawMessage(`"unknown method"`)})
	case m.Method != "":
		return c.notify(m.Method, m.Params)
	}
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	if err != nil {
		return fmt.Errorf("an answer to a request that was never made: id %s", shorten(m.ID))
	}
	c.mu.Lock()
	handler := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if handler == nil { // the caller has given up
		return nil
	}
	if !isNull(m.Error) {
		return handler(nil, &rpcError{text: m.Error})
	}
	return handler(m.Result, nil)
}

// rpcError is an answer that is an error, whatever the server puts in: a text or an object.
type rpcError struct{ text json.RawMessage }

func (e *rpcError) Error() string {
	var text string
	if json.Unmarshal(e.text, &text) == nil {
		return excerpt(text)
	}
	var object struct{ Error, Details, Syntax string }
	if json.Unmarshal(e.text, &object) == nil && object.Error != "" {
		text = excerpt(object.Error)
		if object.Details != "" {
			text += ": " + excerpt(object.Details)
		}
		return text
	}
	return shorten(e.text)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }

// write sends a message. The stream is of no use after a part of one.
func (c *connection) write(ctx context.Context, m message) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Method, err)
	}
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(c.deadAfter)
	}
	_ = c.stream.SetWriteDeadline(deadline)
	if _, err := c.stream.Write(raw); err != nil {
		err = fmt.Errorf("send %s: %w", m.Method, err)
		c.close(err)
		return err
	}
	return nil
}

// listenForSilence probes the server when nothing has arrived for a while. Of a server that does
// not answer for as long again quiet is called, and after deadAfter the connection is closed.
func (c *connection) listenForSilence() {
	timer := time.NewTimer(c.probe)
	defer timer.Stop()
	asked := time.Duration(-1) // when, while there is no answer
	for {
		select {
		case <-c.closed:
			return
		case <-timer.C:
		}
		now, heard := time.Since(c.begun), time.Duration(c.heard.Load())
		silent := now - heard
		if asked >= 0 && heard >= asked {
			asked = -1
			c.reportQuiet(nil)
		}
		switch {
		case asked < 0 && silent < c.probe:
			timer.Reset(c.probe - silent)
		case asked < 0:
			asked = now
			timer.Reset(c.probe)
			_, _ = c.request(context.Background(), "echo", []any{}, func(json.RawMessage, error) error { return nil })
		case silent >= c.deadAfter:
			c.close(unanswered(silent))
			return
		default:
			c.reportQuiet(unanswered(silent))
			timer.Reset(min(c.probe, c.deadAfter-silent))
		}
	}
}

func unanswered(silent time.Duration) error {
	return fmt.Errorf("the database has not answered for %s", silent.Round(100*time.Millisecond))
}

// reportQuiet calls quiet when the server stops or resumes answering.
func (c *connection) reportQuiet(why error) {
	c.calling.Lock()
	defer c.calling.Unlock()
	if c.silent.Swap(why != nil) != (why != nil) {
		c.quiet(why)
	}
}

// request sends a request. handler runs when the answer comes, in the reader: what comes after
// waits for it, and its error ends the connection. It does not run when the connection ends first.
func (c *connection) request(ctx context.Context, method string, params any, handler func(json.RawMessage, error) error) (id int64, err error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", method, err)
	}
	c.mu.Lock()
	c.next++
	id = c.next
	c.pending[id] = handler
	c.mu.Unlock()
	return id, c.write(ctx, message{ID: strconv.AppendInt(nil, id, 10), Method: method, Params: raw})
}

// call makes a request and waits for its answer, at most until ctx ends. first, which may be nil,
// is called with the answer before anything that came after it is handled.
func (c *connection) call(ctx context.Context, method string, params any, first func(json.RawMessage) error) (json.RawMessage, error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	answered := make(chan answer, 1)
	id, err := c.request(ctx, method, params, func(result json.RawMessage, err error) error {
		if err == nil && first != nil {
			err = first(result)
		}
		answered <- answer{result, err}
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answered:
		return a.result, a.err
	case <-c.closed:
		return nil, c.cause
	case <-ctx.Done():
	}
	c.mu.Lock()
	delete(c.pending, id)
	c.mu.Unlock()
	if method == "transact" { // which may wait in the database
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		_ = c.write(soon, message{ID: json.RawMessage("null"), Method: "cancel", Params: fmt.Appendf(nil, "[%d]", id)})
	}
	return nil, context.Cause(ctx)
}
