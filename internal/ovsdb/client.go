// Package ovsdb is a client of the databases of switches (RFC 7047): it follows the tables of a
// [Model], and carries out transactions.
//
//	server ── one stream ──▶ connection ── in order ──▶ Cache ──▶ Contents ──▶ Changed
//	       ◀── transactions ── Transact
//
// What holds:
//   - A snapshot, a [Contents], is one state of the database, whole and never changed; rows that
//     did not change are the same pointers in the next.
//   - When [Client.Transact] returns, the snapshot has what it did.
//   - A server that does not answer probes is said to be silent, by [State].Silent, before the
//     connection is given up: it may merely be slow.
//   - A lost connection is made again; the difference is taken in then, and nothing is missed. What
//     was known stays, with [State].Lost saying why it may be old.
//   - Nothing that a server sends makes the client panic or take memory without bound.
package ovsdb

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"heddle/internal/task"
)

const (
	defaultTimeout    = 10 * time.Second
	defaultProbe      = 5 * time.Second
	defaultMaxMessage = 64 << 20
	defaultPort       = "6640"
)

// ErrLost is wrapped in the errors of requests without a connection, or whose connection ends
// before the answer: then the transaction may have been carried out or not, and the next snapshot
// will tell.
var ErrLost = errors.New("no connection to the switch's database")

// errNever is the error before the first attempt to connect has ended.
var errNever = fmt.Errorf("%w yet", ErrLost)

// Options say which database, and how.
type Options struct {
	// Address is unix:PATH, tcp:HOST[:PORT] or ssl:HOST[:PORT]; an IPv6 address is in brackets.
	Address string
	// TLS is needed with ssl. The server's name is the host in Address unless it says another.
	TLS *tls.Config
	Log *slog.Logger // default: none
	// Timeout bounds attempts to connect, and requests without a deadline. Default 10 s.
	Timeout time.Duration
	// Probe is the time of silence after which the server is probed, and the time for its answer
	// before State.Silent says that it does not. Default 5 s.
	Probe time.Duration
	// DeadAfter is the time of silence after which the connection is given up. Default twice Probe.
	DeadAfter time.Duration
	// MaxMessage is the longest message that is read, in bytes. Default 64 MiB.
	MaxMessage int
	// Dial makes the stream, say in another network namespace. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client follows one database and changes it. Its methods may be called from any goroutine.
type Client[S Contents[S]] struct {
	model            *Model[S]
	opts             Options
	network, address string
	stop             context.CancelFunc
	done             chan struct{}
	kick             task.Notice // holds a token when a pause is to end

	// Of run, and of the reader of its connection while there is one.
	cache *Cache[S]
	last  string // the transaction that the cache has seen last

	changed task.Bell // rings when snap is replaced

	mu   sync.Mutex
	conn *connection // nil while there is none that follows
	snap S
}

// Open follows a database until [Client.Close]. At first the snapshot is empty and Lost.
func Open[S Contents[S]](m *Model[S], o Options) (*Client[S], error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Probe <= 0 {
		o.Probe = defaultProbe
	}
	if o.DeadAfter <= 0 {
		o.DeadAfter = 2 * o.Probe
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = defaultMaxMessage
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	c := &Client[S]{model: m, opts: o, cache: newCache(m), last: noTransaction, done: make(chan struct{}), kick: task.NewNotice(), snap: m.New()}
	c.snap.Connection().Lost = fmt.Errorf("%s: %w", o.Address, errNever)
	var err error
	if c.network, c.address, err = parseAddress(o.Address); err != nil {
		return nil, err
	}
	if o.secure() && o.TLS == nil {
		return nil, fmt.Errorf("%s: ssl needs certificates", o.Address)
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.run(ctx)
	return c, nil
}

// Dial is [Open] for those who need the database at once: it returns when there is a snapshot, or
// the error of the first attempt.
func Dial[S Contents[S]](ctx context.Context, m *Model[S], o Options) (*Client[S], error) {
	c, err := Open(m, o)
	if err != nil {
		return nil, err
	}
	snap, err := c.Wait(ctx, func(s S) bool { return !errors.Is(s.Connection().Lost, errNever) })
	if err != nil {
		err = fmt.Errorf("%s: the first attempt to connect: %w", o.Address, err)
	} else {
		err = snap.Connection().Lost
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (o *Options) secure() bool { return strings.HasPrefix(o.Address, "ssl:") }

// parseAddress reads Options.Address.
func parseAddress(text string) (network, address string, err error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch {
	case rest == "":
	case kind == "unix":
		return "unix", rest, nil
	case kind == "tcp" || kind == "ssl":
		if host, port, err := net.SplitHostPort(rest); err == nil && host != "" && port != "" {
			return "tcp", rest, nil
		}
		host := strings.TrimSuffix(strings.TrimPrefix(rest, "["), "]")
		if !strings.Contains(host, ":") || len(host) == len(rest)-2 {
			return "tcp", net.JoinHostPort(host, defaultPort), nil
		}
	}
	return "", "", fmt.Errorf("address of a switch's database %q: write unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT", text)
}

// Close ends the connection and waits for all that the client runs.
func (c *Client[S]) Close() {
	c.stop()
	<-c.done
}

// Address is that of the database.
func (c *Client[S]) Address() string { return c.opts.Address }

// Snapshot returns the database's contents as of its last message.
func (c *Client[S]) Snapshot() S {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snap
}

// Changed is closed when the snapshot is replaced: because rows changed, or the connection came or
// went. Take it before the snapshot, and no change is missed; [Changed] of the two snapshots tells
// which rows.
func (c *Client[S]) Changed() <-chan struct{} { return c.changed.Next() }

// Retry begins a new attempt to connect at once, if there is no connection: there is reason to
// believe that it will succeed, and one that goes on may wait for an answer to what was lost.
func (c *Client[S]) Retry() { c.kick.Give() }

// Transact carries out operations, all or none. The error of a refused one is an [OpError].
func (c *Client[S]) Transact(ctx context.Context, ops ...Op) ([]Result, error) {
	ctx, cancel := c.Limited(ctx)
	defer cancel()
	results, err := c.transact(ctx, ops)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.opts.Address, err)
	}
	return results, nil
}

func (c *Client[S]) transact(ctx context.Context, ops []Op) ([]Result, error) {
	c.mu.Lock()
	conn, lost := c.conn, c.snap.Connection().Lost
	c.mu.Unlock()
	if conn == nil {
		return nil, lost
	}
	params := make([]any, 0, len(ops)+1)
	params = append(params, c.model.Database)
	for _, op := range ops {
		params = append(params, op)
	}
	raw, err := conn.call(ctx, "transact", params, nil)
	if err != nil {
		select {
		case <-conn.closed:
			return nil, fmt.Errorf("%w before it answered: %w", ErrLost, err)
		default:
		}
		return nil, fmt.Errorf("transaction: %w", err)
	}
	return readResults(ops, raw)
}

// Wait returns the first snapshot for which until is true. If ctx ends first, that is an error.
func (c *Client[S]) Wait(ctx context.Context, until func(S) bool) (S, error) {
	for {
		changed := c.Changed()
		snap := c.Snapshot()
		if until(snap) {
			return snap, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return snap, context.Cause(ctx)
		case <-c.done:
			return snap, ErrLost
		}
	}
}
