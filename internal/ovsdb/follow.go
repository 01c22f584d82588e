package ovsdb

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"heddle/internal/task"
)

const (
	dialTimeout   = 3 * time.Second // a lost packet of TCP's beginning is sent again after 1 s, and after 2 s more
	minPause      = 50 * time.Millisecond
	maxPause      = 2 * time.Second
	noTransaction = "00000000-0000-0000-0000-000000000000"
)

// run connects again and again until ctx ends.
func (c *Client[S]) run(ctx context.Context) {
	defer close(c.done)
	backoff := task.Backoff{Least: minPause, Most: maxPause, Spread: true} // many may have lost one server
	for {
		followed, err := c.follow(ctx)
		if errors.Is(err, errRetry) && ctx.Err() == nil {
			continue
		}
		c.lose(ctx, err)
		if ctx.Err() != nil {
			return
		}
		if followed {
			backoff.Reset()
		}
		timer := time.NewTimer(backoff.Next())
		select {
		case <-ctx.Done():
		case <-c.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// lose publishes that there is no connection.
func (c *Client[S]) lose(ctx context.Context, err error) {
	lost := fmt.Errorf("%s: %w: %w", c.opts.Address, ErrLost, err)
	c.mu.Lock()
	was := c.snap.Connection().Lost
	c.conn = nil
	if was == nil || was.Error() != lost.Error() {
		snap := c.snap.Clone()
		*snap.Connection() = State{Lost: lost}
		c.publish(snap)
	}
	c.mu.Unlock()
	if (was == nil || errors.Is(was, errNever)) && ctx.Err() == nil {
		c.opts.Log.Warn("no connection to the switch's database", "address", c.opts.Address, "err", err)
	}
}

// silence shows that the database does not answer for now, or, with nil, that it does again.
func (c *Client[S]) silence(why error) {
	if why != nil {
		why = fmt.Errorf("%s: %w", c.opts.Address, why)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil { // it was never heard, and Lost says why
		return
	}
	snap := c.snap.Clone()
	snap.Connection().Silent = why
	c.publish(snap)
}

// publish replaces the snapshot; c.mu is held.
func (c *Client[S]) publish(snap S) {
	c.snap = snap
	c.changed.Ring()
}

// follow connects, takes the rows in and then their changes, until the connection ends. followed
// says that it came to the changes.
func (c *Client[S]) follow(ctx context.Context) (followed bool, err error) {
	starting, cancel := c.Limited(ctx)
	defer cancel()
	stream, err := c.dialOrRetry(starting)
	if err != nil {
		return false, err
	}
	conn := connect(stream, c.opts, c.notified, c.silence)
	unhook := context.AfterFunc(ctx, func() { conn.close(context.Cause(ctx)) })
	defer unhook()
	defer conn.wait()
	if err := c.start(starting, conn); err != nil {
		conn.close(err)
		return false, err
	}
	c.opts.Log.Info("following the switch's database", "address", c.opts.Address)
	<-conn.closed
	return true, conn.cause
}

// Limited gives a context an end if it has none: that of a request.
func (c *Client[S]) Limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, c.opts.Timeout, fmt.Errorf("nothing for %s: %w", c.opts.Timeout, context.DeadlineExceeded))
}

// errRetry ends an attempt to connect in favour of a new one.
var errRetry = errors.New("begun again")

// dialOrRetry gives an attempt to connect up when it takes too long or [Client.Retry] is called.
func (c *Client[S]) dialOrRetry(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(dialTimeout, func() { cancel(fmt.Errorf("nothing for %s: %w", dialTimeout, context.DeadlineExceeded)) })
	defer timer.Stop()
	select {
	case <-c.kick: // of before this attempt
	default:
	}
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-c.kick:
			cancel(errRetry)
		case <-ended:
		}
	}()
	stream, err := c.dial(ctx)
	close(ended)
	<-watched
	if err == nil || ctx.Err() == nil {
		return stream, err
	}
	return nil, context.Cause(ctx)
}

func (c *Client[S]) dial(ctx context.Context) (net.Conn, error) {
	stream, err := c.opts.Dial(ctx, c.network, c.address)
	if err != nil || !c.opts.secure() {
		return stream, err
	}
	config := c.opts.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(c.address)
	}
	secured := tls.Client(stream, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		stream.Close()
		return nil, err
	}
	return secured, nil
}

// start checks the schema and begins to monitor; on return the snapshot has the rows.
func (c *Client[S]) start(ctx context.Context, conn *connection) error {
	raw, err := conn.call(ctx, "get_schema", []string{c.model.Database}, nil)
	if err != nil {
		return fmt.Errorf("read the schema of database %s: %w", c.model.Database, err)
	}
	s, err := readSchema(c.model, raw)
	if err != nil {
		return err
	}
	if before := c.cache.schema; before != nil && before.version != s.version {
		c.last = noTransaction // the rows may lack columns that there are now
	}
	c.cache.setSchema(s)
	_, err = conn.call(ctx, "monitor_cond_since", []any{c.model.Database, monitorName, s.requests(true), c.last}, func(raw json.RawMessage) error {
		return c.begin(conn, raw)
	})
	var refused *rpcError
	if errors.As(err, &refused) && strings.Contains(refused.Error(), "unknown method") {
		_, err = conn.call(ctx, "monitor", []any{c.model.Database, monitorName, s.requests(false)}, func(raw json.RawMessage) error {
			return c.takeIn(conn, raw, true, noTransaction)
		})
	}
	if err != nil {
		return fmt.Errorf("follow the database: %w", err)
	}
	return nil
}

// monitorName is the name of our monitor at the server.
const monitorName = "heddle"

// begin applies the answer to monitor_cond_since: everything, or changes since a transaction.
func (c *Client[S]) begin(conn *connection, raw json.RawMessage) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) != 3 {
		return fmt.Errorf("answer to monitor_cond_since: not three parts: %s", shorten(raw))
	}
	var found bool
	var last string
	if err := errors.Join(json.Unmarshal(parts[0], &found), json.Unmarshal(parts[1], &last)); err != nil {
		return fmt.Errorf("answer to monitor_cond_since: %w", err)
	}
	return c.takeIn(conn, parts[2], !found, last)
}

// notified handles a notification. Unknown ones are ignored.
func (c *Client[S]) notified(method string, params json.RawMessage) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(params, &parts); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	switch {
	case method == "update" && len(parts) == 2:
		return c.takeIn(nil, parts[1], false, noTransaction)
	case method == "update3" && len(parts) == 3:
		var last string
		if err := json.Unmarshal(parts[1], &last); err != nil {
			return fmt.Errorf("update3: %w", err)
		}
		return c.takeIn(nil, parts[2], false, last)
	case method == "update" || method == "update3":
		return fmt.Errorf("%s has %d parts", method, len(parts))
	}
	return nil
}

// takeIn applies changes. With a connection they are its first: it carries requests now.
func (c *Client[S]) takeIn(conn *connection, raw json.RawMessage, all bool, last string) error {
	if err := c.cache.Apply(raw, all); err != nil {
		return err
	}
	c.last = last
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn != nil {
		c.conn = conn
	}
	c.publish(c.cache.snap)
	return nil
}
