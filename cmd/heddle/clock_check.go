package main

import (
	"context"
	"fmt"
	"time"

	"heddle/internal/api/hosts"
	"heddle/internal/cli"
)

// mostSkew is the difference of clocks that does no harm.
const mostSkew = 3 * time.Second

// clockCheck compares the clock of a host that has joined with that of a server.
func clockCheck(state string) cli.Check {
	return cli.Check{
		Name: "clock", For: "agent: certificates", Fix: "set the clocks of both by NTP: timedatectl set-ntp true",
		Run: func(ctx context.Context) error {
			joined, err := hosts.Load(state)
			if err != nil {
				return nil // not joined, or another matter
			}
			skew, server, err := joined.ClockSkew(ctx)
			switch {
			case err != nil:
				return cli.Undecided("no server of this host answers: does one run, and does a firewall let this host reach it? %v", err)
			case skew.Abs() > mostSkew:
				return fmt.Errorf("it is %s ahead of that of %s", skew, server)
			}
			return nil
		},
	}
}
