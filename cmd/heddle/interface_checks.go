package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"heddle/internal/cli"
	"heddle/internal/hostnet"
	"heddle/internal/overlay/datapath"
	"heddle/internal/policy/nft"
)

// interfaceChecks returns heddle doctor's checks of what other software has set up at interfaces,
// and of their offloads.
func interfaceChecks() []cli.Check {
	return []cli.Check{{
		Name: "other programs at interfaces", For: "overlay", Optional: true,
		Fix: "stop the software that they belong to, or make sure that they let Heddle's frames pass: they see these before or after Heddle's own programs",
		Run: onHost(findPrograms),
	}, {
		Name: "offloads of tunnelled packets", For: "overlay: tunnels", Optional: true,
		Fix: "ethtool -K INTERFACE tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off, at every start of the machine: this card knows VXLAN on its own port alone, and sends wrong checksums on UDP 6677",
		Run: onHost(func(net *hostnet.Linux) error { return findOffloads(net, brokenOffloads) }),
	}}
}

// onHost returns a check of this process's network namespace.
func onHost(look func(*hostnet.Linux) error) func(context.Context) error {
	return func(context.Context) error {
		net, err := hostnet.Here()
		if err != nil {
			return err
		}
		defer net.Close()
		return look(net)
	}
}

// brokenOffloads are the drivers of cards that offload tunnelled packets of VXLAN's own port alone
// correctly, yet announce it for any.
var brokenOffloads = []string{"vmxnet3"}

// findOffloads returns an error with the interfaces with one of these drivers whose offloads of
// tunnelled packets are on.
func findOffloads(net *hostnet.Linux, drivers []string) error {
	links, err := net.Links()
	if err != nil {
		return err
	}
	var found []string
	for _, l := range links {
		driver, on, err := net.Offloads(l.Name)
		if err != nil {
			return err
		}
		if slices.Contains(drivers, driver) && (on["tx-udp_tnl-segmentation"] || on["tx-udp_tnl-csum-segmentation"]) {
			found = append(found, l.Name+" of driver "+driver)
		}
	}
	if len(found) > 0 {
		return errors.New("tx-udp_tnl-segmentation is on: " + strings.Join(found, ", "))
	}
	return nil
}

// findPrograms returns an error with the programs, filters and chains of other software that see
// the frames of interfaces of this process's namespace.
func findPrograms(net *hostnet.Linux) error {
	links, err := net.Links()
	if err != nil {
		return err
	}
	found, err := nft.InterfaceChains()
	if err != nil {
		return err
	}
	for _, l := range links {
		filters, err := net.Filters(l)
		if errors.Is(err, hostnet.ErrNotFound) {
			continue // it has gone
		} else if err != nil {
			return err
		}
		programs, err := datapath.OtherPrograms(net.Namespace(), l.Index)
		if err != nil {
			return err
		}
		for _, what := range append(filters, programs...) {
			found = append(found, l.Name+": "+what)
		}
	}
	if len(found) > 0 {
		return errors.New(strings.Join(found, ", "))
	}
	return nil
}
