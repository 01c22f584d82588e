package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"heddle/internal/cli"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// etcdConfig names an existing etcd cluster; without endpoints the store is embedded.
type etcdConfig struct {
	backend.Cluster
	complete func() error
	quotaMiB int64 // of the cluster, for one that does not report it
}

func (c *etcdConfig) flags(f *pflag.FlagSet) {
	c.complete = cli.ClusterFlags(f, &c.Cluster, "`addresses` of an existing etcd cluster, host:port, joined by commas; default: the embedded store")
}

// cluster returns the cluster to use.
func (c *etcdConfig) cluster() (*backend.Cluster, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	cluster := c.Cluster
	cluster.Quota = c.quotaMiB << 20
	return &cluster, nil
}

// urls returns the endpoints as URLs.
func (c *etcdConfig) urls() []string {
	var all []string
	for _, e := range c.Endpoints {
		if !strings.Contains(e, "://") {
			scheme := "http://"
			if c.CAFile != "" {
				scheme = "https://"
			}
			e = scheme + e
		}
		all = append(all, e)
	}
	return all
}

// openRetrying opens a store and retries while it is unavailable, since after a power failure all
// machines start at once. It returns nil if ctx ended first.
func openRetrying(ctx context.Context, log *slog.Logger, open func(context.Context) (*backend.Etcd, error)) (*backend.Etcd, error) {
	backoff := task.Backoff{Least: leastOpenPause, Most: mostOpenPause}
	for warned := false; ; {
		attempt, cancel := context.WithTimeout(ctx, openTimeout)
		st, err := open(attempt)
		cancel()
		switch {
		case err == nil:
			return st, nil
		case ctx.Err() != nil:
			return nil, nil
		case !errors.Is(err, store.ErrUnavailable):
			return nil, err // waiting does not help
		case !warned:
			log.Warn("the store cannot be reached; waiting for it", "err", err)
			warned = true
		}
		if !backoff.Pause(ctx) {
			return nil, nil
		}
	}
}

// The timeout of one attempt to open a store, and the pauses between attempts.
const (
	openTimeout    = 5 * time.Second
	leastOpenPause = 250 * time.Millisecond
	mostOpenPause  = 5 * time.Second
)

// open opens the cluster, waiting for it, or the embedded store. It returns nil if ctx ended first.
func (c *etcdConfig) open(ctx context.Context, embedded *backend.Embedded, authority *backend.Authority, log *slog.Logger) (st *backend.Etcd, err error) {
	logStore := log.With("part", "store")
	if len(c.Endpoints) > 0 {
		cluster, err := c.cluster()
		if err != nil {
			return nil, err
		}
		cluster.Authority = authority
		st, err = openRetrying(ctx, log, func(ctx context.Context) (*backend.Etcd, error) {
			st, err := backend.Open(ctx, backend.Options{Cluster: cluster, Log: logStore})
			if err != nil {
				telemetry.TellWaiting("the store: " + err.Error()) // nothing is served yet that would
			}
			return st, err
		})
		return st, storeError(err)
	}
	if c.CAFile != "" || c.CertFile != "" || c.User != "" {
		return nil, usagef("--etcd-ca, --etcd-cert and --etcd-user are for a cluster: name it with --etcd-endpoints")
	}
	st, err = backend.Open(ctx, backend.Options{Embedded: embedded, Log: logStore})
	return st, storeError(err)
}

func storeError(err error) error {
	if err == nil {
		return nil
	}
	if moved := new(backend.MovedError); errors.As(err, &moved) {
		return usageError{err} // trying again does not help
	}
	return fmt.Errorf("store: %w", err)
}

const (
	// startTimeLimit bounds the wait for a server that holds the store's lock and does not listen,
	// since it is starting or stopping.
	startTimeLimit = 30 * time.Second
	// connectPause is the pause between attempts to connect to it.
	connectPause = 200 * time.Millisecond
)

// openOrConnect opens the store in dataDir or, if another server has it open, connects to that. own
// reports whether this process has opened it. The store is nil if ctx ended first.
func openOrConnect(ctx context.Context, dataDir string, log *slog.Logger, open func() (*backend.Etcd, error)) (st *backend.Etcd, own bool, err error) {
	for began := time.Now(); ; {
		if st, err = open(); !errors.Is(err, backend.ErrInUse) {
			return st, true, err
		}
		st, err = backend.OpenRunning(ctx, dataDir, log.With("part", "store"))
		if !errors.Is(err, store.ErrUnavailable) || time.Since(began) > startTimeLimit {
			return st, false, storeError(err)
		}
		if !task.Pause(ctx, connectPause) {
			return nil, false, nil
		}
	}
}
