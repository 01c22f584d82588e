package main

import (
	"path/filepath"

	"github.com/spf13/pflag"

	"heddle/internal/overlay"
	"heddle/internal/services"
	"heddle/internal/services/plan"
)

// containersConfig holds the settings of a host's service containers.
type containersConfig struct {
	weight, limit int
}

func (c *containersConfig) flags(f *pflag.FlagSet) {
	f.IntVar(&c.weight, "container-weight", 1, "this host's share of the service containers, which check the members of load balancers and speak BGP, up to 10; 0: none that is new")
	f.IntVar(&c.limit, "container-limit", 0, "service containers that this host runs at most (default any number)")
}

func (c *containersConfig) check() error {
	if c.weight < 0 || c.weight > plan.MaxWeight {
		return usagef("--container-weight %d: want 0 to %d", c.weight, plan.MaxWeight)
	}
	if c.limit < 0 {
		return usagef("--container-limit %d: want a number from 0", c.limit)
	}
	return nil
}

// servicesDir returns the directory of the files of service containers.
func (c *agentConfig) servicesDir() string {
	dir, err := filepath.Abs(filepath.Join(c.state, "services"))
	if err != nil {
		return filepath.Join(c.state, "services")
	}
	return dir
}

// serviceContainers returns what builds the agent of service containers over the overlay agent.
func (c *agentConfig) serviceContainers(t *agents) func(overlay.Shared) overlay.Companion {
	return func(s overlay.Shared) overlay.Companion {
		a := services.New(services.Options{
			HostID: t.id, Store: t.store, Objects: s.Objects, Reports: s.Reports, Deciding: s.Deciding, StateDir: c.servicesDir(),
			Weight: c.containers.weight, Limit: c.containers.limit, Log: t.log.With("part", "services"),
		})
		t.metrics.Register(a.Metrics)
		return a
	}
}
