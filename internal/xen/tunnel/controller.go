// Package tunnel is the controller of a pool's tunnels: it joins the bridges of each tunnel
// network, on whatever hosts they are, by legs between Open vSwitches, and says in tunnel.status
// what has come of it.
//
//	XenAPI ─ objects, events ─▶ pool ─┐                  ┌─▶ intents ─▶ store: center, key, epoch
//	       ◀── tunnel.set_status ─────┤                  │
//	                         engine ─ core ─ star ───────┤
//	OVSDB of each host ── rows ──▶ host ┘                └─▶ steps ──▶ OVSDB of each host
//
// The core decides, without I/O. One goroutine, the engine, owns it: it gives it the events of the
// XenAPI and of the switches, stores its decisions and carries its actions out. Others (a goroutine
// for each host, one for the XenAPI's events, some that write statuses) never wait for each other.
//
// What holds:
//   - Of all controllers over one store one leads: who has the key /heddle/xen/controller/leader,
//     under a lease.
//   - Decisions are in the store before any switch is changed, so that the next leader decides
//     the same and changes nothing. A switch obeys the leader that spoke to it last: each
//     transaction depends on its sign, which lies among the external_ids of the table Open_vSwitch.
//   - Ports, and only ports, that bear our mark are made, changed and removed. A bridge's learnt
//     addresses are forgotten when a center has moved.
//   - It is a client of the XenAPI and of OVSDB and nothing else, so any pool will do.
package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"heddle/internal/store"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/xen/client"
)

// Options of a Controller. Store and XenAPI are needed.
type Options struct {
	Store store.Store // its own, where it keeps what it has decided
	// Name identifies this controller to the others, say its machine.
	Name   string
	XenAPI client.Options
	// OVSDB is the address of hosts' databases; {address} stands for a host's address, {host} for
	// its name. Default "ssl:{address}:6640".
	OVSDB string
	// TLS is for databases that are reached by ssl: our certificate, and the authority of theirs.
	TLS *tls.Config
	// ServerName is the name in the certificate of a host's database, by the host's uuid. Default:
	// as TLS says, else its address.
	ServerName func(host string) string
	// Dial connects to databases, say in another network namespace. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Log  *slog.Logger // default: none
	// TTL is the time after which another controller takes over from a silent leader. Default 3 s.
	TTL time.Duration
	// Quarantine is the time between the last leg with a key and its next use. Default 60 s.
	Quarantine time.Duration
	// BFDEvery is the interval of BFD packets between hosts; three that do not arrive mean that the
	// path is down. Default 150 ms.
	BFDEvery time.Duration
	Watchdog *task.Watchdog // watches the work of a leader; nil: nothing does
}

const (
	defaultOVSDB      = "ssl:{address}:6640"
	defaultTTL        = 3 * time.Second
	defaultQuarantine = time.Minute
	defaultBFDEvery   = 150 * time.Millisecond
	// retryAfter is the pause after the XenAPI or the store has failed.
	retryAfter = 500 * time.Millisecond
)

// Controller is the controller of one pool. It is a task, ready once it has passed over the pool as
// leader, or stands by.
type Controller struct {
	task.Part
	opts Options
	log  *slog.Logger

	figures atomic.Pointer[figures]
}

// New makes a controller that does nothing until Run.
func New(o Options) (*Controller, error) {
	o.OVSDB = cmp.Or(o.OVSDB, defaultOVSDB)
	kind, _, _ := strings.Cut(o.OVSDB, ":")
	switch {
	case kind != "unix" && kind != "tcp" && kind != "ssl":
		return nil, fmt.Errorf("tunnel controller: address of hosts' databases %q: write unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT with {host} or {address} in it", o.OVSDB)
	case kind == "ssl" && o.TLS == nil:
		return nil, errors.New("tunnel controller: hosts' databases are reached by ssl, which needs a certificate of the controller and the authority of theirs")
	}
	if err := o.XenAPI.Check(); err != nil {
		return nil, fmt.Errorf("tunnel controller: %w", err)
	}
	if o.TTL <= 0 {
		o.TTL = defaultTTL
	}
	if o.Quarantine <= 0 {
		o.Quarantine = defaultQuarantine
	}
	if o.BFDEvery <= 0 {
		o.BFDEvery = defaultBFDEvery
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	c := &Controller{Part: task.NewPart("tunnel controller"), opts: o, log: o.Log}
	c.figures.Store(&figures{})
	return c, nil
}

// Metrics are its figures.
func (c *Controller) Metrics() []telemetry.Value { return c.figures.Load().values() }

// database returns the address of a host's OVSDB.
func (o *Options) database(name, address string) string {
	if strings.Contains(address, ":") && net.ParseIP(address) != nil {
		address = "[" + address + "]"
	}
	return strings.NewReplacer("{host}", name, "{address}", address).Replace(o.OVSDB)
}

// tls returns the TLS configuration for a host's database.
func (o *Options) tls(host string) *tls.Config {
	if o.TLS == nil || o.ServerName == nil {
		return o.TLS
	}
	config := o.TLS.Clone()
	config.ServerName = o.ServerName(host)
	return config
}

// Run leads, or stands by, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	failed := ""
	for ctx.Err() == nil {
		led, err := c.campaign(ctx)
		c.figures.Store(&figures{})
		if led {
			failed = ""
		}
		if ctx.Err() != nil || err == nil {
			continue
		}
		if text := err.Error(); led {
			c.log.Warn("no longer leader", "err", err)
		} else if text != failed {
			c.log.Warn("cannot determine the leader; will try again", "err", err)
			failed = text
		}
		task.Pause(ctx, retryAfter)
	}
	return nil
}
