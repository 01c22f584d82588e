package main

import (
	"cmp"
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
	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
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
If no server has --data open it opens the store itself; hosts then join here, as they would join heddle serve.
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
	f.StringVar(&c.control, "control", "", "`file` of lines host NAME live|dead, read as it grows, that make simulated hosts fail")
	c.log.flags(p)
	c.admin.flags(f, "xapi")
	cmd.AddCommand(c.accountCommand())
	return cmd
}

// run builds the parts in start order and runs them.
func (c *xapiConfig) run(ctx context.Context) error {
	log, err := c.log.logger()
	if err != nil {
		return usageError{err}
	}
	if err := cmp.Or(c.checkTLS(), c.checkQuota()); err != nil {
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
	if len(c.etcd.Endpoints) > 0 {
		if err := c.enter(ctx, st, log); err != nil {
			return err
		}
	}
	o := xapi.Options{Store: st, Log: log.With("part", "xapi"), RootPasswordFile: filepath.Join(c.data, rootPasswordFile)}
	tasks, metrics, err := c.supportTasks(ctx, st, own, log, &o)
	if err != nil {
		return err
	}
	pool := xapi.New(o)
	metrics.Register(pool.Metrics)
	servers, err := c.listeners(pool, metrics, log)
	if err != nil {
		return err
	}
	*tasks = append(append(append(*tasks, pool), servers...), pool.Polls())
	log.Info("starting", "version", version, "data", c.data, "plain", c.listen, "tls", c.tlsListen, "own store", own)
	return task.Run(ctx, *tasks...)
}

// rootPasswordFile is the file in the data directory that holds root's initial password.
const rootPasswordFile = "xapi-root-password"

// openPool opens the store: a cluster, that of a server on this machine, or the embedded one, which
// own reports. It returns nil if ctx ended first.
func (c *xapiConfig) openPool(ctx context.Context, log *slog.Logger) (st *backend.Etcd, own bool, err error) {
	st, own, err = openOrConnect(ctx, c.data, log, func() (*backend.Etcd, error) { return c.openStore(ctx, log) })
	if err == nil && !own && c.agents != "" {
		return nil, false, errors.Join(usagef("--agents-listen: another server has %s open: give it to that one", c.data), st.Close())
	}
	return st, own && len(c.etcd.Endpoints) == 0, err
}

// supportTasks returns the tasks other than the XenAPI: health and metrics and, if the store is
// this process's own, those by which hosts join. health reports on the list returned.
func (c *xapiConfig) supportTasks(ctx context.Context, st *backend.Etcd, own bool, log *slog.Logger, o *xapi.Options) (*[]task.Task, *telemetry.Metrics, error) {
	o.Hosts.Expel = st.RemoveHost
	if own {
		s, err := c.newServer(ctx, st, log)
		if err != nil {
			return nil, nil, err
		}
		if err := s.addAPIs(); err != nil {
			return nil, nil, err
		}
		o.Watchdog = s.watchdog
		o.Hosts.Invite = func(ctx context.Context, name string) (string, error) { return s.hosts.Invite(ctx, name, "pool.join") }
		s.tasks = append(s.tasks, newMembership(st, machineName(), "xapi", s.describe, log))
		return &s.tasks, s.metrics, nil
	}
	metrics, tasks := telemetry.NewMetrics(version), &[]task.Task{}
	o.Watchdog = new(task.Watchdog)
	keeper := backend.NewSpaceKeeper(st, log.With("part", "space")) // what another process fills counts here, too
	metrics.Register(func() []telemetry.Value { return spaceValues(keeper) })
	*tasks = append(c.admin.newHealth(observed{
		Options: telemetry.Options{Listen: c.metrics, Metrics: metrics, Hung: o.Watchdog.Hung, Log: log}, log: &c.log, settings: startedWith(ctx),
	}, waitingFor(tasks)), newStoreProbe(st, log, metrics), keeper,
		newMembership(st, machineName(), "xapi", func(*schema.Server) {}, log)) // hosts join by the server that has the store open
	return tasks, metrics, nil
}

// listeners returns the servers of the XenAPI's addresses.
func (c *xapiConfig) listeners(pool *xapi.Server, metrics *telemetry.Metrics, log *slog.Logger) (all []task.Task, err error) {
	add := func(flag string, o api.Options) error {
		o.Name, o.Handler, o.Log, o.MaxBody, o.Observe = "xapi", pool.Handler(), log.With("part", "xapi"), wire.MaxCall, metrics.Request
		o.LongCalls = true // they wait for events and tasks
		srv, err := api.NewServer(o)
		if err != nil {
			return usagef("--%s: %w", flag, err)
		}
		c.admin.apis = append(c.admin.apis, srv)
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
		keep := func() (err error) {
			cert, key, err = backend.KeepCertificate(c.data, "xapi", c.tlsListen, c.names())
			return err
		}
		if err := keep(); err != nil {
			return nil, fmt.Errorf("certificate of the XenAPI: %w", err)
		}
		all = append(all, newCertificateRenewal("certificate of the XenAPI", keep, log))
	}
	return all, add("tls-listen", api.Options{Listen: c.tlsListen, CertFile: cert, KeyFile: key})
}

// names returns the names by which clients reach the server.
func (c *xapiConfig) names() []string {
	if c.publicHost == "" {
		return nil
	}
	return []string{c.publicHost}
}

// renewEvery is the interval between checks of a certificate, which is renewed months early, and
// soon after the authority was exchanged.
const renewEvery = 5 * time.Second

// newCertificateRenewal returns a task that calls keep to renew a certificate, whose files the
// servers read again.
func newCertificateRenewal(name string, keep func() error, log *slog.Logger) task.Task {
	return newLoop(name, func(ctx context.Context) error {
		said := ""
		for task.Pause(ctx, renewEvery) {
			err := keep()
			switch {
			case err == nil:
				said = ""
			case err.Error() != said:
				said = err.Error()
				log.Error("cannot renew certificate; will try again", "certificate", name, "err", err)
			}
		}
		return nil
	})
}
