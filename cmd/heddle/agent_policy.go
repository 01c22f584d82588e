package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"heddle/internal/hostnet"
	"heddle/internal/policy"
	"heddle/internal/policy/nft"
	"heddle/internal/store"
)

// policyConfig holds the policy agent's flags. Its other settings come from FELIX_ variables, from felixConfig and from
// the store.
type policyConfig struct {
	on   bool
	file string
}

// felixConfig is the path of Felix's configuration file.
const felixConfig = "/etc/calico/felix.cfg"

func (c *policyConfig) flags(f *pflag.FlagSet) {
	f.BoolVar(&c.on, "policy", false, "run the policy agent: Calico's endpoints and policy on nftables")
	f.StringVar(&c.file, "felix-config", felixConfig, "INI `file` with settings of the policy agent; it need not be there")
}

// settings reads what this host says about the policy agent, if it is to run.
func (c *policyConfig) settings() (environment, file map[string]string, err error) {
	if !c.on {
		return nil, nil, nil
	}
	environment = policy.Environment(os.Environ())
	raw, err := os.ReadFile(c.file)
	if errors.Is(err, os.ErrNotExist) && c.file == felixConfig {
		return environment, nil, nil
	}
	if err != nil {
		return nil, nil, usagef("--felix-config: %w", err)
	}
	if file, err = policy.ParseFile(string(raw)); err != nil {
		return nil, nil, usagef("%s: %w", c.file, err)
	}
	return environment, file, nil
}

// agent builds the policy agent. Calico's tree knows the host by its name, the virtual topology by its id.
func (c *policyConfig) agent(t *agentTask, st store.Store) *policy.Agent {
	a := policy.New(policy.Options{Host: t.config.name, HostID: t.id, Store: st, Environment: t.felix.environment, File: t.felix.file,
		Snapshots: t.config.snapshots(), Log: t.log.With("part", "policy")})
	t.metrics.Register(a.Metrics)
	return a
}

// felix are the settings of the policy agent that this host gives.
type felix struct{ environment, file map[string]string }

// probeRules tries what the policy agent needs of nftables, in a network namespace of its own.
func probeRules(ctx context.Context) error {
	ns, err := hostnet.NewNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(func() error {
		k, err := nft.Open()
		if err != nil {
			return err
		}
		defer k.Close()
		settings, _ := policy.Resolve(policy.Sources{})
		table, err := nft.New(k, settings.Rules, nil)
		if err != nil {
			return err
		}
		if err := table.Commit(ctx); err != nil {
			return fmt.Errorf("load rules: %w", err)
		}
		return nft.Cleanup(ctx, k)
	})
}
