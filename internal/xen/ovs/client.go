// Package ovs talks to the databases of Open vSwitch (RFC 7047): it follows what a switch is set up as, and changes it.
//
//	server ── one stream ──▶ connection ── in order ──▶ cache ──▶ Snapshot ──▶ whoever waits for Changed
//	       ◀── transactions ── Edit: ensure, delete; only rows that bear our mark
//
// What holds:
//   - A [Snapshot] is one state of the database, whole and never changed; rows that did not change are the same pointers
//     in the next.
//   - When [Client.Transact] returns, the snapshot has what it did.
//   - A lost connection is made again; the difference is taken in then, and nothing is missed. What was known stays, with
//     [Snapshot].Lost saying why it may be old.
//   - A transaction that succeeded proves nothing of the switch: [Client.Apply] waits for it, and what came of each
//     interface is in its OfPort and Error.
//   - Nothing that a server sends makes the client panic or take memory without bound.
package ovs

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	defaultTimeout    = 10 * time.Second
	defaultProbe      = 5 * time.Second
	defaultMaxMessage = 64 << 20
	defaultPort       = "6640"
	dialPatience      = 3 * time.Second // a lost packet of TCP's beginning is sent again after 1 s, and after 2 s more
	minPause          = 50 * time.Millisecond
	maxPause          = 2 * time.Second
	noTransaction     = "00000000-0000-0000-0000-000000000000"
)

// ErrLost is what requests fail with, wrapped, while there is no connection, or when it ends before the answer: then the
// transaction may have been carried out or not, and the next snapshot will tell.
var ErrLost = errors.New("no connection to the switch's database")

// errNever is why there is no connection before the first attempt has ended.
var errNever = fmt.Errorf("%w yet", ErrLost)

// ErrNotApplied is what [Client.Apply] fails with, wrapped, when the database has the change but the switch has not done
// it in time: ovs-vswitchd is busy, hangs, or does not run.
var ErrNotApplied = errors.New("the database has the change, but ovs-vswitchd has not done it in time")

// Options say which database, and how.
type Options struct {
	// Address is "unix:<path>", "tcp:<host>[:<port>]" or "ssl:<host>[:<port>]"; an IPv6 address stands in brackets.
	Address string
	// TLS is needed with ssl. The server's name is the host in Address unless it says another.
	TLS *tls.Config
	Log *slog.Logger // default: none
	// Timeout bounds each attempt to connect, and each request whose context has no end of its own. Default 10 s.
	Timeout time.Duration
	// Probe is how long the server may be silent before it is asked for a sign of life, and then before it counts as lost.
	// Default 5 s.
	Probe time.Duration
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
	kick             chan struct{} // holds a token when a pause is to end

	// Of run, and of the reader of its connection while there is one.
	cache *cache
	last  string // the transaction that the cache has seen last

	mu      sync.Mutex
	conn    *connection // nil while there is none that follows
	snap    *Snapshot
	changed chan struct{} // closed when snap is replaced
}

// Open begins to follow a database and goes on until [Client.Close]: at first the snapshot is empty and Lost.
func Open(o Options) (*Client, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Probe <= 0 {
		o.Probe = defaultProbe
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = defaultMaxMessage
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	c := &Client{opts: o, cache: newCache(), last: noTransaction, done: make(chan struct{}), kick: make(chan struct{}, 1), changed: make(chan struct{}),
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

// Dial is [Open] for those who need the database at once: it returns when there is a snapshot, or the error of the first
// attempt.
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

// Snapshot is what the database holds, as far as it is known.
func (c *Client) Snapshot() *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snap
}

// Changed is closed when the snapshot is replaced: because rows changed, or the connection came or went. Take it before
// the snapshot, and no change is missed; [Changed] of the two snapshots tells which rows.
func (c *Client) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Retry begins a new attempt to connect at once, if there is no connection: there is reason to believe that it will
// succeed, and one that goes on may wait for an answer to what was lost.
func (c *Client) Retry() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// run connects again and again until ctx ends.
func (c *Client) run(ctx context.Context) {
	defer close(c.done)
	pause := minPause
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
			pause = minPause
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2)) // not all at once, when many have lost one server
		select {
		case <-ctx.Done():
		case <-c.kick:
		case <-timer.C:
		}
		timer.Stop()
		pause = min(2*pause, maxPause)
	}
}

// lose tells that there is no connection.
func (c *Client) lose(ctx context.Context, err error) {
	lost := fmt.Errorf("%s: %w: %w", c.opts.Address, ErrLost, err)
	c.mu.Lock()
	was := c.snap.Lost
	c.conn = nil
	if was == nil || was.Error() != lost.Error() {
		snap := c.snap.clone()
		snap.Lost = lost
		c.publish(snap)
	}
	c.mu.Unlock()
	if (was == nil || errors.Is(was, errNever)) && ctx.Err() == nil {
		c.opts.Log.Warn("no connection to the switch's database", "address", c.opts.Address, "error", err)
	}
}

// publish replaces the snapshot; c.mu is held.
func (c *Client) publish(snap *Snapshot) {
	c.snap = snap
	close(c.changed)
	c.changed = make(chan struct{})
}

// follow connects, takes the rows in and then their changes, until the connection ends. followed says that it came to
// the changes.
func (c *Client) follow(ctx context.Context) (followed bool, err error) {
	starting, cancel := c.limited(ctx)
	defer cancel()
	stream, err := c.dialOrRetry(starting)
	if err != nil {
		return false, err
	}
	conn := connect(stream, c.opts, c.notified)
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

// limited gives a context an end if it has none.
func (c *Client) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, c.opts.Timeout, fmt.Errorf("nothing for %s: %w", c.opts.Timeout, context.DeadlineExceeded))
}

// errRetry is why an attempt to connect ends for the sake of a new one.
var errRetry = errors.New("begun again")

// dialOrRetry gives an attempt to connect up when it takes too long or [Client.Retry] is called.
func (c *Client) dialOrRetry(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(dialPatience, func() { cancel(fmt.Errorf("nothing for %s: %w", dialPatience, context.DeadlineExceeded)) })
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

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
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

// start checks the schema and asks for all rows and their changes; on return the snapshot has the rows.
func (c *Client) start(ctx context.Context, conn *connection) error {
	raw, err := conn.call(ctx, "get_schema", []string{Database}, nil)
	if err != nil {
		return fmt.Errorf("read the schema of database %s: %w", Database, err)
	}
	s, err := readSchema(raw)
	if err != nil {
		return err
	}
	if before := c.cache.schema; before != nil && before.version != s.version {
		c.last = noTransaction // the rows may lack columns that there are now
	}
	c.cache.schema = s
	_, err = conn.call(ctx, "monitor_cond_since", []any{Database, monitorName, s.requests(true), c.last}, func(raw json.RawMessage) error {
		return c.begin(conn, raw)
	})
	var refused *rpcError
	if errors.As(err, &refused) && strings.Contains(refused.Error(), "unknown method") {
		_, err = conn.call(ctx, "monitor", []any{Database, monitorName, s.requests(false)}, func(raw json.RawMessage) error {
			return c.takeIn(conn, raw, true, noTransaction)
		})
	}
	if err != nil {
		return fmt.Errorf("follow the database: %w", err)
	}
	return nil
}

// monitorName is what the server calls changes by.
const monitorName = "heddle"

// begin takes in the answer to monitor_cond_since: everything, or what happened since a transaction.
func (c *Client) begin(conn *connection, raw json.RawMessage) error {
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

// notified takes in what the server tells by itself. Notifications that this client does not know mean nothing to it.
func (c *Client) notified(method string, params json.RawMessage) error {
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

// takeIn applies changes and shows them. With a connection these are its first, and from now on it carries requests.
func (c *Client) takeIn(conn *connection, raw json.RawMessage, all bool, last string) error {
	if err := c.cache.apply(raw, all); err != nil {
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

// Apply carries out operations and waits until the switch has done what they ask; the snapshot it returns has the
// outcome: see OfPort and Error of each [Interface]. What the kernel tells of a device, such as its MTU, may come later.
func (c *Client) Apply(ctx context.Context, ops ...Op) (*Snapshot, []Result, error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	snap, results, err := c.settle(ctx, ops)
	if err == nil && anyRefused(snap, ops, results) {
		// A port may be refused because of one that the same change takes away. The switch tries again when it is asked to
		// look again.
		snap, _, err = c.settle(ctx, nil)
	}
	return snap, results, err
}

// anyRefused says whether the switch could not make an interface that the operations inserted.
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

// Wait returns the first snapshot of which until is true. When ctx ends first it returns the last, and why.
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
