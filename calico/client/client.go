// Package client reads, writes and watches the objects of package calico in etcd v3.
//
// Every write is one etcd transaction: [Client.Commit] takes any number of operations, each with
// its own condition, and applies all of them or none. Members of stored objects that package calico
// does not know survive an Update or an Apply.
//
// Some keys have two places (spec, "Contradictions inside seed 001"). Callers see one object:
// readers look at both places and prefer the left one, a write moves the object there, and a delete
// clears both.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/calico"
	"heddle/internal/store/etcd"
)

// Options say where etcd is and who asks. Plain connections are for loopback; elsewhere use TLS.
type Options struct {
	Endpoints []string // host:port or URLs (http, https, unix, unixs); none: 127.0.0.1:2379
	CAFile    string   // PEM; with it, or with a https endpoint, connections use TLS
	CertFile  string   // PEM client certificate; its CN may be the etcd user
	KeyFile   string
	TLS       *tls.Config // instead of the three files
	User      string      // etcd user, where certificates do not tell it
	Password  string
	// Codec has options for reading and writing objects, such as selectors of later versions.
	Codec []calico.Option
	// DialTimeout bounds logging in with a password. 0: 5 seconds.
	DialTimeout time.Duration
	// RequestTimeout bounds a call whose context has no deadline, but no watch. 0: 10 seconds.
	RequestTimeout time.Duration
}

const (
	defaultEndpoint       = "127.0.0.1:2379"
	defaultDialTimeout    = 5 * time.Second
	defaultRequestTimeout = 10 * time.Second
	// maxSend is above what any server takes, so that the server's limit decides.
	maxSend = 128 << 20
	// checkEvery is the interval at which a watch verifies that it follows the same cluster.
	checkEvery = 10 * time.Second
)

// Client reads and writes the data model. Its methods may be called by many goroutines.
type Client struct {
	etcd       *clientv3.Client
	watcher    *etcd.Watcher
	endpoints  []string
	tls        *tls.Config
	codec      []calico.Option
	timeout    time.Duration
	checkEvery time.Duration
}

// New makes a client. Without a password it does not wait for etcd: the first call does.
func New(o Options) (*Client, error) {
	if len(o.Endpoints) == 0 {
		o.Endpoints = []string{defaultEndpoint}
	}
	o.DialTimeout = cmp.Or(o.DialTimeout, defaultDialTimeout)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, defaultRequestTimeout)
	access := etcd.Access{Endpoints: o.Endpoints, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, TLS: o.TLS, User: o.User, Password: o.Password}
	config, err := access.TLSConfig()
	if err != nil {
		return nil, err
	}
	c := &Client{endpoints: o.Endpoints, tls: config, codec: o.Codec, timeout: o.RequestTimeout, checkEvery: checkEvery}
	// What matters to the caller comes back as an error, so that nothing is logged.
	if c.etcd, err = access.Dial(config, etcd.DialOptions{LoginTimeout: o.DialTimeout, MaxSend: maxSend}); err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(o.Endpoints, ","), c.explain(context.Background(), "connect", err))
	}
	c.watcher = etcd.NewWatcher(c.etcd, nil)
	return c, nil
}

// Close ends the connections, and with them all calls and watches.
func (c *Client) Close() error {
	if err := c.etcd.Close(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// bound gives a call its deadline, and ends it when the client is closed.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	cancelTimeout := func() {}
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancelTimeout = context.WithTimeout(ctx, c.timeout)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(c.etcd.Ctx(), func() { cancel(ErrClosed) })
	return ctx, func() {
		unhook()
		cancel(nil)
		cancelTimeout()
	}
}
