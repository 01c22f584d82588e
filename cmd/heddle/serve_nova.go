package main

import (
	"context"
	"os"

	"github.com/spf13/pflag"

	clouds "heddle/internal/cloud"
	"heddle/internal/nova"
	"heddle/internal/store/snapshot"
)

// novaConfig names a Nova that is notified of its servers' ports.
type novaConfig struct{ credentials, url string }

func (c *novaConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.credentials, "nova-credentials", "", "clouds.yaml `file` with a cloud called heddle: the Nova of that cloud is notified of its servers' ports")
	f.StringVar(&c.url, "nova-url", "", "`URL` of its API, such as https://nova.example:8774/v2.1; default: the one in the cloud's catalog")
}

// check rejects parts of the configuration without the rest.
func (c *novaConfig) check() error {
	if c.credentials == "" {
		if c.url != "" {
			return usagef("--nova-url needs --nova-credentials")
		}
		return nil
	}
	if _, err := os.Stat(c.credentials); err != nil {
		return usagef("--nova-credentials: %w", err)
	}
	return nil
}

// novaClient logs in when it is first needed: the cloud's Keystone may be this server.
type novaClient struct {
	config  *novaConfig
	compute *clouds.Compute // nil: not logged in
}

// Send implements [nova.Client].
func (c *novaClient) Send(ctx context.Context, events []nova.Event) ([]int, error) {
	if c.compute == nil {
		session, err := clouds.Config{File: c.config.credentials}.Login(ctx)
		if err != nil {
			return nil, err
		}
		if c.compute, err = session.Compute(c.config.url); err != nil {
			return nil, err
		}
	}
	all := make([]any, len(events))
	for i, e := range events {
		all[i] = e
	}
	return c.compute.SendExternalEvents(ctx, all)
}

// addNova adds the notifier of Nova, if there is one.
func (s *server) addNova() {
	c := &s.config.nova
	if c.credentials == "" {
		return
	}
	n := nova.New(nova.Options{
		Store: s.store, Objects: s.replica, Client: &novaClient{config: c}, Log: s.log.With("part", "nova"),
		Status: s.control.PortStatus,
	})
	s.statuses.OnChange(func(snapshot.Update) { n.Recheck() }) // of routed networks
	s.tasks = append(s.tasks, n)
	s.metrics.Register(n.Metrics)
}
