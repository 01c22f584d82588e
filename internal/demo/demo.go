// Package demo is `heddle demo`: it runs all of Heddle on this machine, sends real traffic, and
// prints what was expected and what happened. The parts are virtual networks (overlay.go), a routed
// host, and private networks of a pool.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/command"
	"heddle/internal/lab"
)

const (
	// prefix begins the name of everything the demo makes.
	prefix = "heddle-demo"
	// labDir holds the server's data, the agents' state and all logs.
	labDir = "/run/" + prefix
)

// Command returns `heddle demo`.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole product on this machine, with real traffic",
		Long: `Makes simulated hosts and workloads as network namespaces, runs the server and an agent a host, creates everything by
calls to the APIs, by heddle calico apply and by heddle xe, sends real traffic, and prints what was expected and what happened. Takes down what it made, also after
Ctrl-C, and what an earlier run that was killed left behind. Everything it makes is named ` + prefix + `*; it touches nothing else.
Exits 1 when anything differs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.out = cmd.OutOrStdout()
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().IntVar(&o.hosts, "hosts", 2, "number of simulated hosts, 2 to 16")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "leave it running, and say how to look around")
	cmd.Flags().BoolVar(&o.cleanup, "cleanup", false, "only take down what an earlier run left")
	return cmd
}

type options struct {
	hosts         int
	keep, cleanup bool
	out           io.Writer
}

// demo is one run.
type demo struct {
	lab     *lab.Lab
	outside *workload
	routed  *routed // once it has been staged
	xen     *xen    // nil where Open vSwitch is not installed
	out     io.Writer
	differs int
	lines   int
	undo    lab.UndoList
	// interrupted is closed by Ctrl-C: what happens then proves nothing.
	interrupted <-chan struct{}
	lacks       error // why a part is left out
}

func run(ctx context.Context, o options) (err error) {
	if o.hosts < 2 || o.hosts > 16 {
		return &command.Exit{Code: 2, Text: fmt.Sprintf("--hosts %d: want 2 to 16", o.hosts)}
	}
	if os.Geteuid() != 0 {
		return &command.Exit{Code: 1, Text: "the demo makes network namespaces and loads eBPF programs: run it as root"}
	}
	if err := lab.Clean(prefix, labDir); err != nil {
		return fmt.Errorf("take down what an earlier run left: %w", err)
	}
	if o.cleanup {
		return nil
	}
	d := &demo{out: o.out, interrupted: ctx.Done()}
	fmt.Fprintf(d.out, "starting the server and %d hosts, and a pool of %d hosts with Open vSwitch\n", o.hosts, xenHosts)
	d.lab, err = lab.New(ctx, prefix, labDir)
	if d.lab != nil {
		defer func() {
			if o.keep && err == nil {
				d.explain()
				return
			}
			// ctx may have ended by Ctrl-C; everything is taken down all the same.
			err = errors.Join(err, d.xen.close(), d.lab.Close(context.WithoutCancel(ctx)))
		}()
	}
	if err == nil {
		if d.xen, d.lacks = newXen(ctx, d.lab); d.lacks != nil {
			fmt.Fprintf(d.out, "without the pool: %v; scripts/setup demo does that\n", d.lacks)
		}
		if err = d.makeOutside(); err == nil {
			err = d.startHosts(ctx, o.hosts)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "\n%-4s %-62s %-34s %s\n", "", "WHAT", "EXPECTED", "HAPPENED")
	err = d.play(ctx)
	if ctx.Err() != nil {
		return &command.Exit{Code: 1, Text: "interrupted; everything was taken down"}
	}
	if err != nil {
		return err
	}
	if !o.keep {
		d.takeDown(ctx)
	}
	if d.differs > 0 {
		return &command.Exit{Code: 1, Text: fmt.Sprintf("%d of %d lines differ from what was expected; logs were in %s", d.differs, d.lines, d.lab.Dir)}
	}
	fmt.Fprintf(d.out, "\n%d of %d lines as expected\n", d.lines, d.lines)
	if d.lacks != nil {
		fmt.Fprintf(d.out, "left out: private networks of a pool: %v\n", d.lacks)
	}
	return nil
}

// check prints a line: what was tried, what was expected, and the result or error.
func (d *demo) check(what, expected string, got func() (string, error)) {
	happened, err := got()
	if err != nil {
		happened = err.Error()
	}
	d.print(what, expected, happened, err == nil && happened == expected)
}

// checkWithin prints a line about an event that must occur within limit, with the time it took.
func (d *demo) checkWithin(what string, limit time.Duration, happen func() (time.Duration, error)) {
	took, err := happen()
	happened := "after " + took.Round(time.Millisecond).String()
	if err != nil {
		happened = err.Error()
	}
	d.print(what, "within "+limit.String(), happened, err == nil && took <= limit)
}

// checkChange prints a line about a change whose effect must be seen within limit; seen returns how
// long after a moment that was.
func (d *demo) checkChange(ctx context.Context, what string, limit time.Duration, change func() error, seen func(context.Context, time.Time) (time.Duration, error)) {
	d.checkWithin(what, limit, func() (time.Duration, error) {
		called := time.Now()
		if err := change(); err != nil {
			return 0, err
		}
		return seen(ctx, called)
	})
}

func (d *demo) print(what, expected, happened string, ok bool) {
	select {
	case <-d.interrupted:
		return
	default:
	}
	mark := "ok"
	if !ok {
		mark = "DIFF"
		d.differs++
	}
	d.lines++
	fmt.Fprintf(d.out, "%-4s %-62s %-34s %s\n", mark, what, expected, happened)
}

// explain prints how to explore a lab that was left running.
func (d *demo) explain() {
	l := d.lab
	fmt.Fprintf(d.out, `
It is all still running. To look around:
  the API           ip netns exec %[1]s-ctl env OS_CLIENT_CONFIG_FILE=%[2]s OS_CLOUD=heddle openstack port list
  a host            ip netns exec %[1]s-h1 ip link
  a workload        ip netns exec %[1]s-a1 ping 10.0.0.13
  a routed host     ip netns exec %[1]s-r1 nft list table inet heddle; %[3]s calico get policy --data %[5]s/server
  its leases        cat %[5]s/demo-r1/dhcp/leases.*; ip -n %[1]s-r1 addr show dev ns-calico
  a packet's way    ip netns exec %[1]s-ctl env OS_CLIENT_CONFIG_FILE=%[2]s OS_CLOUD=heddle %[3]s trace --port <id> --frame '<frame>'
  metrics           ip netns exec %[1]s-h1 curl -s %[4]s/metrics
`, l.Prefix, l.Cloud.File, l.Binary, lab.TelemetryAddr, l.Dir)
	if x := d.xen; x != nil {
		fmt.Fprintf(d.out, `  the pool          ip netns exec %[1]s-fab %[2]s xe -pwf %[3]s tunnel-list
  its switches      ovs-vsctl --db=%[4]s show; ip netns exec %[1]s-m1 ping 10.77.0.3
`, x.Prefix, x.Binary, x.passwords, x.pool[0].DB())
	}
	fmt.Fprintf(d.out, "  logs              %[1]s/*.log %[1]s/xen/*.log\nTo take it down: %[2]s demo --cleanup\n", l.Dir, l.Binary)
}
