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
)

// policyConfig holds the policy agent's flags. More settings come from FELIX_ variables, from the
// file and from the store.
type policyConfig struct {
	on      bool
	file    string
	counted int
}

// felixConfig is the path of Felix's configuration file.
const felixConfig = "/etc/calico/felix.cfg"

func (c *policyConfig) flags(f *pflag.FlagSet) {
	f.BoolVar(&c.on, "policy", false, "run the policy agent: Calico's endpoints and policy on nftables")
	f.StringVar(&c.file, "felix-config", felixConfig, "INI `file` with settings of the policy agent; it need not be there")
	f.IntVar(&c.counted, "policy-counters", 5000, "count what each rule of policies and profiles matches, up to so many `rules` on the host; 0: none")
}

// settings reads the FELIX_ variables and the file, if the agent is to run.
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

// readFile reads the settings of the file as heddle reload names them.
func (c *policyConfig) readFile() (flagValues, error) {
	_, file, err := c.settings()
	return felixValues(file), err
}

// felixValues names the settings of a file for heddle reload.
func felixValues(file map[string]string) flagValues {
	values := flagValues{}
	for name, value := range file {
		values["felix-config "+name] = value
	}
	return values
}

// agent builds the policy agent.
func (c *policyConfig) agent(t *agents) (agent, error) {
	o := policy.Options{Host: t.config.name, HostID: t.id, Store: t.store, Environment: t.felix.environment, File: t.felix.file,
		Snapshots: t.config.snapshots(), MostCounted: t.config.policy.counted, Watchdog: &t.watchdog, Log: t.log.With("part", "policy")}
	proxy, err := t.metadataProxy()
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		o.Metadata = proxy
	}
	return policy.New(o), nil
}

// felix holds this host's own settings of the policy agent.
type felix struct{ environment, file map[string]string }

// probeRules tries what the policy agent needs of nftables, in a namespace of its own.
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
