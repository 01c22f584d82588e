package main

import (
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"heddle/internal/bgp"
)

// bgpConfig holds the settings of the BGP speaker. Its peers are in the store.
type bgpConfig struct {
	on                    bool
	routerID              string
	port                  uint16
	holdTime, restartTime time.Duration
}

func (c *bgpConfig) flags(f *pflag.FlagSet) {
	f.BoolVar(&c.on, "bgp", false, "run the BGP speaker: routes to and from other hosts and routers")
	f.StringVar(&c.routerID, "bgp-router-id", "", "IPv4 `address` that identifies this host to peers (default its ip_addr_v4 in the store)")
	f.Uint16Var(&c.port, "bgp-port", 179, "TCP `port` for BGP, the same on all hosts of a mesh")
	f.DurationVar(&c.holdTime, "bgp-hold-time", 90*time.Second, "after how long without a word a BGP peer counts as gone")
	f.DurationVar(&c.restartTime, "bgp-restart-time", 120*time.Second, "for how long routes outlive an agent that is away")
}

// check validates the settings.
func (c *bgpConfig) check() error {
	if c.routerID == "" {
		return nil
	}
	if a, err := netip.ParseAddr(c.routerID); err != nil || !a.Is4() {
		return usagef("--bgp-router-id %q: want an IPv4 address", c.routerID)
	}
	return nil
}

// agent builds the BGP agent, from settings that check has accepted.
func (c *bgpConfig) agent(t *agents) (agent, error) {
	id, _ := netip.ParseAddr(c.routerID) // the zero Addr for none
	return bgp.New(bgp.Options{Host: t.config.name, Store: t.store, RouterID: id, Port: c.port, HoldTime: c.holdTime, RestartTime: c.restartTime,
		Snapshots: t.config.snapshots(), Watchdog: &t.watchdog, Log: t.log.With("part", "bgp")}), nil
}
