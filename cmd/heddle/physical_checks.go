package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"heddle/internal/cli"
	"heddle/internal/hostnet"
	"heddle/internal/overlay"
)

// physicalChecks returns heddle doctor's checks of the interfaces into physical networks, one for
// each NETWORK=INTERFACE.
func physicalChecks(physical []string) (checks []cli.Check) {
	interfaces, err := overlay.ParsePhysical(physical)
	if err != nil {
		return []cli.Check{{Name: "physical networks", For: "agent --physical", Fix: "correct the setting", Run: func(context.Context) error { return err }}}
	}
	for _, network := range slices.Sorted(maps.Keys(interfaces)) {
		checks = append(checks, cli.Check{
			Name: "physical network " + network, For: "agent --physical", Fix: "set the interface up and connect it, or name another one with --physical",
			Run: func(context.Context) error { return probeLink(interfaces[network]) },
		})
	}
	return checks
}

// probeLink returns an error unless the interface is there, can lead to a LAN, is up and has a
// carrier.
func probeLink(name string) error {
	net, err := hostnet.NewLinux(nil)
	if err != nil {
		return err
	}
	defer net.Close()
	l, err := net.Link(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := overlay.CheckPhysical(l); err != nil {
		return err
	}
	switch {
	case !l.Up:
		return fmt.Errorf("interface %s is down", name)
	case !l.Running:
		return fmt.Errorf("interface %s has no carrier", name)
	}
	return nil
}
