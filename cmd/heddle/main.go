// Command heddle is the whole of Heddle in one binary. Every role is a subcommand with a file of its own here, which
// checks its configuration, builds its parts by hand in start order and runs them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"heddle/internal/cli"
	"heddle/internal/overlay/datapath"
)

// version is set by the build.
var version = "unknown"

// usageError marks errors of the command line or a file given on it: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef makes a usage error.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "heddle: "+text)
		}
		os.Exit(coded.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "heddle: "+err.Error())
	var usage usageError
	if errors.As(err, &usage) {
		os.Exit(2)
	}
	os.Exit(1)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "heddle",
		Short:         "Virtual networks for Linux hosts",
		Long:          "Heddle gives virtual machines, containers and hosts tenant networks, security groups, DHCP and tunnels.\nAll state is in etcd; see `heddle serve` and `heddle agent`, or try `heddle demo`.",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().String("config", os.Getenv("HEDDLE_CONFIG"), "YAML `file` with a section of settings for each command")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		file, err := cmd.Flags().GetString("config")
		if err != nil {
			return err
		}
		if err := configure(cmd, file, os.LookupEnv); err != nil {
			return usageError{err}
		}
		return nil
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(serveCommand(), agentCommand())
	root.AddCommand(cli.Commands()...)
	root.AddCommand(cli.DoctorCommand(cli.Check{
		Name: "eBPF datapath", For: "overlay", Fix: "use Linux 6.6 or newer with eBPF, and run as root",
		Run: func(context.Context) error { return datapath.Probe() },
	}))
	return root
}
