package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"heddle/internal/store"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// logConfig holds the settings of the log.
type logConfig struct{ level, format string }

func (c *logConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.level, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&c.format, "log-format", "text", "text or json")
}

func (c *logConfig) logger() (*slog.Logger, error) {
	return telemetry.NewLogger(os.Stderr, c.format, c.level)
}

// etcdConfig names an existing etcd cluster; without endpoints the store is embedded.
type etcdConfig struct {
	endpoints              []string
	ca, cert, key          string
	user, passwordFilename string
	quotaMiB               int64 // of the cluster, for one that does not report it
}

func (c *etcdConfig) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.endpoints, "etcd-endpoints", nil, "`addresses` of an existing etcd cluster, host:port, joined by commas; default: the embedded store")
	f.StringVar(&c.ca, "etcd-ca", "", "PEM `file` with the authority of the cluster's certificates")
	f.StringVar(&c.cert, "etcd-cert", "", "PEM `file` with a client certificate")
	f.StringVar(&c.key, "etcd-key", "", "PEM `file` with its key")
	f.StringVar(&c.user, "etcd-user", "", "etcd user, where the certificate does not tell it")
	f.StringVar(&c.passwordFilename, "etcd-password-file", "", "`file` with the user's password")
}

// cluster is the cluster to use.
func (c *etcdConfig) cluster() (*store.Cluster, error) {
	cluster := &store.Cluster{Endpoints: c.endpoints, CAFile: c.ca, CertFile: c.cert, KeyFile: c.key, User: c.user, Quota: c.quotaMiB << 20}
	if c.passwordFilename == "" {
		return cluster, nil
	}
	raw, err := os.ReadFile(c.passwordFilename)
	if err != nil {
		return nil, usagef("--etcd-password-file: %w", err)
	}
	cluster.Password = strings.TrimSpace(string(raw))
	return cluster, nil
}

// urls are the endpoints as URLs.
func (c *etcdConfig) urls() []string {
	var all []string
	for _, e := range c.endpoints {
		if !strings.Contains(e, "://") {
			scheme := "http://"
			if c.ca != "" {
				scheme = "https://"
			}
			e = scheme + e
		}
		all = append(all, e)
	}
	return all
}

// openRetrying opens a store, and tries again while it is away: after a power failure all machines start at once. It
// returns nil when ctx ended before.
func openRetrying(ctx context.Context, log *slog.Logger, open func(context.Context) (*store.Etcd, error)) (*store.Etcd, error) {
	backoff := task.Backoff{Least: leastOpenPause, Most: mostOpenPause}
	for said := false; ; {
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
		case !said:
			log.Warn("the store cannot be reached; waiting for it", "err", err)
			said = true
		}
		if !backoff.Pause(ctx) {
			return nil, nil
		}
	}
}

// How long one attempt to open a store may take, and the pauses between attempts.
const (
	openTimeout    = 5 * time.Second
	leastOpenPause = 250 * time.Millisecond
	mostOpenPause  = 5 * time.Second
)

// open opens the cluster, waiting for it, or without one the embedded store. It returns nil when ctx ended before.
func (c *etcdConfig) open(ctx context.Context, embedded *store.Embedded, authority *store.Authority, log *slog.Logger) (st *store.Etcd, err error) {
	logStore := log.With("part", "store")
	if len(c.endpoints) > 0 {
		cluster, err := c.cluster()
		if err != nil {
			return nil, err
		}
		cluster.Authority = authority
		st, err = openRetrying(ctx, log, func(ctx context.Context) (*store.Etcd, error) {
			return store.Open(ctx, store.Options{Cluster: cluster, Log: logStore})
		})
		return st, storeError(err)
	}
	if c.ca != "" || c.cert != "" || c.user != "" {
		return nil, usagef("--etcd-ca, --etcd-cert and --etcd-user are for a cluster: name it with --etcd-endpoints")
	}
	st, err = store.Open(ctx, store.Options{Embedded: embedded, Log: logStore})
	return st, storeError(err)
}

func storeError(err error) error {
	if err == nil {
		return nil
	}
	if moved := new(store.MovedError); errors.As(err, &moved) {
		return usageError{err} // trying again does not help
	}
	return fmt.Errorf("store: %w", err)
}
