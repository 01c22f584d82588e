// Package ovs talks to the databases of Open vSwitch (RFC 7047): it follows what a switch is set up
// as, and changes it.
//
//	server ── one stream ──▶ connection ── in order ──▶ cache ──▶ Snapshot ──▶ Changed
//	       ◀── transactions ── Edit: ensure, delete; only rows that bear our mark
//
// What holds:
//   - A [Snapshot] is one state of the database, whole and never changed; rows that did not change
//     are the same pointers in the next.
//   - When [Client.Transact] returns, the snapshot has what it did.
//   - A server that does not answer probes is said to be silent, by [Snapshot].Silent, before the
//     connection is given up: it may merely be slow.
//   - A lost connection is made again; the difference is taken in then, and nothing is missed. What
//     was known stays, with [Snapshot].Lost saying why it may be old.
//   - A transaction that succeeded proves nothing of the switch: [Client.Apply] waits for it, and
//     what came of each interface is in its OfPort and Error.
//   - Nothing that a server sends makes the client panic or take memory without bound.
package ovs

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

// ErrNotApplied is wrapped in the errors of [Client.Apply] when the database has the change but the
// switch has not done it in time: ovs-vswitchd is busy, hangs, or does not run.
var ErrNotApplied = errors.New("the database has the change, but ovs-vswitchd has not done it in time")

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
	// before Snapshot.Silent says that it does not. Default 5 s.
	Probe time.Duration
	// DeadAfter is the time of silence after which the connection is given up. Default twice Probe.
	DeadAfter time.Duration
	// MaxMessage is the longest message that is read, in bytes. Default 64 MiB.
	MaxMessage int
	// Dial makes the stream, say in another network namespace. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client follows one database and changes it. Its methods may be called from any goroutine.
type Client struct {
	opts             Options
	network, address string
	stop             context.CancelFunc
	done             chan struct{}
	kick             task.Notice // holds a token when a pause is to end

	// Of run, and of the reader of its connection while there is one.
	cache *cache
	last  string // the transaction that the cache has seen last

	changed task.Bell // rings when snap is replaced

	mu   sync.Mutex
	conn *connection // nil while there is none that follows
	snap *Snapshot
}

// Open follows a database until [Client.Close]. At first the snapshot is empty and Lost.
func Open(o Options) (*Client, error) {
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
	c := &Client{opts: o, cache: newCache(), last: noTransaction, done: make(chan struct{}), kick: task.NewNotice(),
		snap: &Snapshot{Lost: fmt.Errorf("%s: %w", o.Address, errNever)}}
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
func Dial(ctx context.Context, o Options) (*Client, error) {
	c, err := Open(o)
	if err != nil {
		return nil, err
	}
	snap, err := c.Wait(ctx, func(s *Snapshot) bool { return !errors.Is(s.Lost, errNever) })
	if err != nil {
		err = fmt.Errorf("%s: the first attempt to connect: %w", o.Address, err)
	} else {
		err = snap.Lost
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
func (c *Client) Close() {
	c.stop()
	<-c.done
}

// Address is that of the database.
func (c *Client) Address() string { return c.opts.Address }

// Snapshot returns the database's contents as of its last message.
func (c *Client) Snapshot() *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snap
}

// Changed is closed when the snapshot is replaced: because rows changed, or the connection came or
// went. Take it before the snapshot, and no change is missed; [Changed] of the two snapshots tells
// which rows.
func (c *Client) Changed() <-chan struct{} { return c.changed.Next() }

// Retry begins a new attempt to connect at once, if there is no connection: there is reason to
// believe that it will succeed, and one that goes on may wait for an answer to what was lost.
func (c *Client) Retry() { c.kick.Give() }

// Transact carries out operations, all or none. The error of a refused one is an [OpError].
func (c *Client) Transact(ctx context.Context, ops ...Op) ([]Result, error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	results, err := c.transact(ctx, ops)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.opts.Address, err)
	}
	return results, nil
}

func (c *Client) transact(ctx context.Context, ops []Op) ([]Result, error) {
	c.mu.Lock()
	conn, lost := c.conn, c.snap.Lost
	c.mu.Unlock()
	if conn == nil {
		return nil, lost
	}
	params := make([]any, 0, len(ops)+1)
	params = append(params, Database)
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

// Apply carries out operations and waits until the switch has done what they ask; the snapshot it
// returns has the outcome: see OfPort and Error of each [Interface]. What the kernel tells of a
// device, such as its MTU, may come later.
func (c *Client) Apply(ctx context.Context, ops ...Op) (*Snapshot, []Result, error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	snap, results, err := c.settle(ctx, ops)
	if err == nil && anyRefused(snap, ops, results) {
		// A port may be refused because of one that the same change takes away. The switch tries
		// again when it is asked to look again.
		snap, _, err = c.settle(ctx, nil)
	}
	return snap, results, err
}

// anyRefused reports whether the switch could not make an interface that the operations inserted.
func anyRefused(snap *Snapshot, ops []Op, results []Result) bool {
	for n, op := range ops {
		if op.kind != "insert" || op.table != "Interface" {
			continue
		}
		if i := snap.Interfaces[results[n].UUID]; i != nil && i.OfPort < 0 {
			return true
		}
	}
	return false
}

// settle is one round of Apply.
func (c *Client) settle(ctx context.Context, ops []Op) (*Snapshot, []Result, error) {
	n := len(ops)
	all := append(ops[:n:n], Mutate(Database, nil, Mutation{"next_cfg", "+=", 1}), Select(Database, nil, "next_cfg"))
	results, err := c.Transact(ctx, all...)
	if err != nil {
		return nil, nil, err
	}
	roots := results[n+1].Rows
	if len(roots) != 1 {
		return nil, nil, fmt.Errorf("%s: table %s has %d rows, not one", c.opts.Address, Database, len(roots))
	}
	r := rowReader{row: roots[0]}
	wanted := r.number("next_cfg", 0)
	if r.err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.opts.Address, r.err)
	}
	snap, err := c.Wait(ctx, func(s *Snapshot) bool { return s.Lost == nil && s.Root != nil && s.Root.CurCfg >= wanted })
	if err != nil {
		err = fmt.Errorf("%s: %w: %w", c.opts.Address, ErrNotApplied, err)
	}
	return snap, results[:n], err
}

// Wait returns the first snapshot for which until is true. If ctx ends first, that is an error.
func (c *Client) Wait(ctx context.Context, until func(*Snapshot) bool) (*Snapshot, error) {
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
