package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/api"
	"heddle/internal/api/hosts"
	"heddle/internal/cli"
	"heddle/internal/store"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/xen/wire"
	"heddle/internal/xen/xapi"
)

// xapiConfig holds the settings of a XenAPI server, as given by flags, environment and file.
type xapiConfig struct {
	serveConfig
	listen, tlsListen string // "" = none
	simulate, control string
}

func xapiCommand() *cobra.Command {
	var c xapiConfig
	cmd := &cobra.Command{
		Use:   "xapi",
		Short: "Serve the XenAPI of a pool of Linux hosts with Open vSwitch",
		Long: `Serves the XenAPI for the hosts that run heddle agent --xen: XML-RPC at /, /RPC2 and /xmlrpc, JSON-RPC at /jsonrpc.
It works over the store of the heddle serve that has --data open on this machine, or over the cluster named by --etcd-endpoints.
Where nobody has --data open it opens the store itself; hosts then join here, as they would join heddle serve.
The first start makes the account root, with a random password in the file xapi-root-password of the data directory.
With --simulate it serves pools whose hosts exist only in a file, for testing clients.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.simulate != "" {
				return c.runSimulation(cmd.Context(), cmd.OutOrStdout())
			}
			return c.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	p := cmd.PersistentFlags()
	p.StringVar(&c.data, "data", cli.DefaultDataDir, "`directory` of the embedded store and of root's first password")
	c.etcd.flags(p)
	f.StringVar(&c.listen, "listen", "127.0.0.1:8080", "loopback `address` of the XenAPI without TLS")
	f.StringVar(&c.tlsListen, "tls-listen", ":8443", "`address` of the XenAPI with TLS")
	f.StringVar(&c.tlsCert, "tls-cert", "", "PEM `file` with its certificate and the chain to its authority; default: one of the store's own authority")
	f.StringVar(&c.tlsKey, "tls-key", "", "PEM `file` with its key")
	f.StringVar(&c.metrics, "metrics", "127.0.0.1:9694", "`address` of /metrics, /healthz, /readyz and, on loopback, /debug/pprof")
	f.StringVar(&c.identity, "identity-listen", "127.0.0.1:5000", "`address` of the identity API, where this command opens the store itself")
	f.StringVar(&c.operator, "operator-listen", "127.0.0.1:9698", "`address` of the operators' API, where hosts join, there too")
	f.StringVar(&c.agents, "agents-listen", "", "`address` at which the embedded store serves agents of other hosts, such as 192.0.2.1:2379")
	c.quotaFlag(f)
	f.DurationVar(&c.certificateLife, "host-certificate-life", hosts.DefaultCertificateLife, "how long the certificate of a host that joined here is good; its agent renews it at half of that")
	f.StringVar(&c.publicHost, "public-host", "", "`name` by which clients and hosts reach this server; default: the listen address")
	f.StringVar(&c.simulate, "simulate", "", "serve the pools of this `file` instead, on loopback ports that are printed")
	f.StringVar(&c.control, "control", "", "`file` of lines host NAME live|dead, read as it grows, that tell which simulated hosts fail")
	c.log.flags(p)
	cmd.AddCommand(c.accountCommand())
	return cmd
}

// run builds the parts in start order and runs them.
func (c *xapiConfig) run(ctx context.Context) error {
	log, err := c.log.logger()
	if err != nil {
		return usageError{err}
	}
	if err := c.checkTLS(); err != nil {
		return err
	}
	if err := c.checkQuota(); err != nil {
		return err
	}
	if c.listen == "" && c.tlsListen == "" {
		return usagef("--listen and --tls-listen: give one of them")
	}
	if c.control != "" {
		return usagef("--control goes with --simulate")
	}
	if err := os.MkdirAll(c.data, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	st, own, err := c.openPool(ctx, log)
	if err != nil || st == nil {
		return err
	}
	defer st.Close()
	if len(c.etcd.endpoints) > 0 {
		if err := c.enter(ctx, st, log); err != nil {
			return err
		}
	}
	o := xapi.Options{Store: st, Log: log.With("part", "xapi"), RootPasswordFile: filepath.Join(c.data, rootPasswordFile)}
	tasks, metrics, err := c.around(ctx, st, own, log, &o.Hosts)
	if err != nil {
		return err
	}
	pool := xapi.New(o)
	doors, err := c.doors(pool, metrics, log)
	if err != nil {
		return err
	}
	tasks.add(append([]task.Task{pool}, append(doors, pool.Polls())...)...)
	log.Info("starting", "version", version, "data", c.data, "plain", c.listen, "tls", c.tlsListen, "own store", own)
	return task.Run(ctx, *tasks.list...)
}

// rootPasswordFile is the file in the data directory that holds root's initial password.
const rootPasswordFile = "xapi-root-password"

// openPool opens the store: a cluster, the one of a server on this machine, or else the embedded one, which is then our own.
// It returns nil when ctx ended before.
func (c *xapiConfig) openPool(ctx context.Context, log *slog.Logger) (st *store.Etcd, own bool, err error) {
	st, own, err = openBeside(ctx, c.data, log, func() (*store.Etcd, error) { return c.openStore(ctx, log) })
	if err == nil && !own && c.agents != "" {
		return nil, false, errors.Join(usagef("--agents-listen: another server has %s open: give it to that one", c.data), st.Close())
	}
	return st, own && len(c.etcd.endpoints) == 0, err
}

// taskList is tasks as they come together, in the list whose state the health page tells.
type taskList struct{ list *[]task.Task }

func (l taskList) add(more ...task.Task) { *l.list = append(*l.list, more...) }

// around are the parts beside the XenAPI: metrics and health, and, where the store is our own, all by which hosts join.
func (c *xapiConfig) around(ctx context.Context, st *store.Etcd, own bool, log *slog.Logger, admit *xapi.Hosts) (taskList, *telemetry.Metrics, error) {
	admit.Expel = st.RemoveHost
	if own {
		s, err := c.newServer(ctx, st, log)
		if err != nil {
			return taskList{}, nil, err
		}
		if err := s.addDoors(); err != nil {
			return taskList{}, nil, err
		}
		admit.Invite = func(ctx context.Context, name string) (string, error) { return s.hosts.Invite(ctx, name, "pool.join") }
		return taskList{&s.tasks}, s.metrics, nil
	}
	metrics, tasks := telemetry.NewMetrics(version), taskList{&[]task.Task{}}
	keeper := store.NewSpaceKeeper(st, log.With("part", "space")) // what another process fills counts here, too
	metrics.Register(func() []telemetry.Value { return spaceValues(keeper) })
	tasks.add(telemetry.NewServer(telemetry.Options{Listen: c.metrics, Metrics: metrics, Waiting: func() []string { return task.Waiting(*tasks.list) }}),
		newLookout(st, log, metrics), keeper)
	return tasks, metrics, nil
}

// doors are the addresses at which the XenAPI answers.
func (c *xapiConfig) doors(pool *xapi.Server, metrics *telemetry.Metrics, log *slog.Logger) (all []task.Task, err error) {
	add := func(flag string, o api.Options) error {
		o.Name, o.Handler, o.Log, o.MaxBody, o.Observe = "xapi", pool.Handler(), log.With("part", "xapi"), wire.MaxCall, metrics.Request
		o.LongCalls = true // they wait for events and tasks
		srv, err := api.NewServer(o)
		if err != nil {
			return usagef("--%s: %w", flag, err)
		}
		all = append(all, srv)
		return nil
	}
	if c.listen != "" {
		if err := add("listen", api.Options{Listen: c.listen}); err != nil {
			return nil, err
		}
	}
	if c.tlsListen == "" {
		return all, nil
	}
	cert, key := c.tlsCert, c.tlsKey
	if cert == "" {
		if cert, key, err = store.KeepCertificate(c.data, "xapi", c.tlsListen, c.names()); err != nil {
			return nil, fmt.Errorf("certificate of the XenAPI: %w", err)
		}
		all = append(all, &renewing{what: "certificate of the XenAPI", log: log, ready: make(chan struct{}), keep: func() error {
			_, _, err := store.KeepCertificate(c.data, "xapi", c.tlsListen, c.names())
			return err
		}})
	}
	return all, add("tls-listen", api.Options{Listen: c.tlsListen, CertFile: cert, KeyFile: key})
}

// names are those by which clients reach the server, beside its addresses.
func (c *xapiConfig) names() []string {
	if c.publicHost == "" {
		return nil
	}
	return []string{c.publicHost}
}

// renewEvery is the interval between checks of a server's certificate, which is renewed months before it expires.
const renewEvery = 12 * time.Hour

// renewing keeps a certificate of this server good while it runs; the servers that present it read the files again. It is a
// task.
type renewing struct {
	what  string
	keep  func() error
	log   *slog.Logger
	ready chan struct{}
}

func (r *renewing) String() string         { return r.what }
func (r *renewing) Ready() <-chan struct{} { return r.ready }

// Run looks at the certificate until ctx ends.
func (r *renewing) Run(ctx context.Context) error {
	close(r.ready)
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := r.keep(); err != nil {
				r.log.Error("cannot renew certificate", "certificate", r.what, "err", err)
			}
		}
	}
}
