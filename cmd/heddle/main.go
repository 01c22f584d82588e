// Command heddle is all of Heddle in one binary. Each role is a subcommand in a file of its own,
// which checks its configuration, builds its parts in start order and runs them.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/bench"
	"heddle/internal/cli"
	"heddle/internal/command"
	"heddle/internal/demo"
	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/filterlog"
	"heddle/internal/terminal"
)

// version is set by the build.
var version = "unknown"

// usageError marks errors of the command line or a file given on it: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef returns a usage error.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	// Go ends a process that panics with the exit code of wrong usage, after which units are not
	// started again. It ends by a signal instead.
	debug.SetTraceback("crash")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := newRoot()
	args := commandArgs(os.Args)
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		plainUsages(root)
	}
	started := watchStart(root)
	err := execute(ctx, root)
	stop()
	if err == nil {
		return
	}
	if !*started {
		err = usageError{err}
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		if err.Error() != "" {
			printError(err)
		}
		os.Exit(coded.ExitCode())
	}
	printError(err)
	var usage usageError
	if errors.As(err, &usage) {
		os.Exit(2)
	}
	os.Exit(1)
}

// execute runs the command that root's arguments name. To ask an unknown command for help is an
// error: cobra would print the help of the group that lacks it.
func execute(ctx context.Context, root *cobra.Command) error {
	var unknown error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if named := cmd.Flags().Args(); cmd.HasSubCommands() && len(named) > 0 {
			unknown = unknownCommand(cmd, named[0])
			return
		}
		help(cmd, args)
	})
	cmd, err := root.ExecuteContextC(ctx)
	return cmp.Or(groupError(cmd, err), unknown)
}

// Errors of cobra about flags of which one has to be set, and of which only one can be.
var (
	oneRequired = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
	oneAllowed  = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
)

// groupError says an error of cobra about a group of flags as the command line spells them.
func groupError(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	flags := func(names string) []string { return strings.Fields("--" + strings.ReplaceAll(names, " ", " --")) }
	if m := oneRequired.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s: want at least one of %s", commandName(cmd), strings.Join(flags(m[1]), ", "))
	}
	if m := oneAllowed.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s: want only one of %s", commandName(cmd), strings.Join(flags(m[1]), ", "))
	}
	return err
}

// commandName returns the words of a command after heddle, which goes before every error.
func commandName(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// plainUsages removes the marks of placeholders from what flags are for, which completions of the
// shell print as it is.
func plainUsages(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, sub := range cmd.Commands() {
		plainUsages(sub)
	}
}

// printError prints an error, which may quote names that tenants chose.
func printError(err error) {
	fmt.Fprintln(os.Stderr, "heddle: "+terminal.EscapeLines(err.Error()+permissionHint(err)))
}

// watchStart returns a flag that is set once a command has begun its work: an error before that is
// one of usage, found by cobra. Commands that only group others require one of them.
func watchStart(root *cobra.Command) *bool {
	started := false
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				started = true
				return run(cmd, args)
			}
			if check := cmd.Args; check != nil {
				cmd.Args = nameArguments(check)
			}
		} else if cmd.HasSubCommands() {
			cmd.Args = cobra.ArbitraryArgs
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 && !cmd.HasParent() {
					return cmd.Help()
				}
				if len(args) == 0 {
					return fmt.Errorf("%s: which of its commands? see %s --help", cmd.Name(), cmd.CommandPath())
				}
				return unknownCommand(cmd, args[0])
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	return &started
}

func unknownCommand(group *cobra.Command, name string) error {
	meant := cmp.Or(command.DidYouMean("", name, subcommands(group)), elsewhere(group, name))
	return fmt.Errorf("unknown command %q for %q%s", name, group.CommandPath(), meant)
}

// elsewhere returns the end of an error about a word that OpenStack's clients have below a command,
// and Heddle has as a command of its own; "" about another one.
func elsewhere(cmd *cobra.Command, word string) string {
	own, known := map[string]string{
		"port plug": "heddle plug", "port unplug": "heddle unplug", "router set --external": "heddle router set-gateway",
	}[commandName(cmd)+" "+word]
	if !known {
		return ""
	}
	return ": did you mean " + own + "?"
}

// nameArguments returns a check whose errors name the arguments of the command's usage, where
// cobra's would only count them.
func nameArguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		var worded *command.Exit
		if err == nil || errors.As(err, &worded) || cmd.HasSubCommands() || len(cmd.ValidArgs) > 0 {
			return err
		}
		got := ""
		if len(args) > 0 {
			got = fmt.Sprintf(", got %q", args)
		}
		if _, usage, found := strings.Cut(cmd.Use, " "); found {
			return fmt.Errorf("%s: want %s%s", commandName(cmd), usage, got)
		}
		return fmt.Errorf("%s: want no arguments%s", commandName(cmd), got)
	}
}

// subcommands returns the names of the commands right below one.
func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// flagError marks an error of a flag as one of usage, says which values the flag takes, and
// suggests flags that are spelled alike.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return usagef("--%s: %w", invalid.GetFlag().Name, valueError(invalid.GetFlag(), invalid.GetValue(), err))
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usageError{err}
	}
	if named := cmd.Flags().Args(); cmd.HasSubCommands() && len(named) > 0 { // whose flag it may be
		return usageError{unknownCommand(cmd, named[0])}
	}
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		if cmd.Flags().Lookup(letters) != nil {
			return usagef("%w: did you mean --%s?", err, letters)
		}
		return usagef("%w: names that begin with a dash go after --, as in `%s -- -%s`", err, cmd.CommandPath(), letters)
	}
	name := unknown.GetSpecifiedName()
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return usagef("%w%s", err, cmp.Or(elsewhere(cmd, "--"+name), command.DidYouMean("--", name, names)))
}

// valueError returns err, with which a flag has refused a value, in words that need no knowledge of
// Go.
func valueError(f *pflag.Flag, value string, err error) error {
	var form string
	switch f.Value.Type() {
	case "duration":
		form = "a time with its unit, such as 30s, 10m or 2h"
	case "bool":
		form = "true or false"
	case "int", "int64":
		form = "a whole number"
	default:
		if invalid := new(pflag.InvalidValueError); errors.As(err, &invalid) {
			err = invalid.Unwrap()
		}
		return fmt.Errorf("%q: %w", value, err)
	}
	return fmt.Errorf("%q: want %s", value, form)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "heddle",
		Short:         "Virtual networks for Linux hosts",
		Long:          "Heddle gives virtual machines, containers and hosts tenant networks, security groups, DHCP and tunnels.\nAll state is in etcd; see `heddle serve` and `heddle agent`, or try `heddle demo`.\nFiles below docs/ that messages name are in the source, and with the package in /usr/share/doc/heddle.",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().String("config", os.Getenv("HEDDLE_CONFIG"), "YAML `file` with a section of settings for each command; conf.d/*.yaml beside it are its drop-ins")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		file, err := cmd.Flags().GetString("config")
		if err != nil {
			return err
		}
		if path := configPath(cmd); file == "" && path != "" && looksAtMachine(cmd) {
			err = configureAsUnits(cmd, path, os.LookupEnv)
		} else {
			err = configure(cmd, file, os.LookupEnv)
		}
		if err != nil {
			return usageError{err}
		}
		withSettings(cmd)
		return nil
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(serveCommand(), xapiCommand(), tunnelCommand(), agentCommand(), dhcpAgentCommand(), xeCommand(), cniCommand(), wireguardCommand(), speakerCommand())
	root.AddCommand(cli.Commands()...)
	root.AddCommand(demo.Command(), bench.Command(), versionCommand(), manualCommand(), monitoringCommand(), configCommand(), drillCommand())
	root.AddCommand(cli.DoctorCommand(secretFiles, doctorChecks), cli.SupportCommand(supportSettings, datapathMaps()))
	return root
}

// versionCommand returns `heddle version`, which says what --version does.
func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := terminal.Fprintf(cmd.OutOrStdout(), "heddle version %s\n", version)
			return err
		},
	}
}

// doctorChecks returns the checks of heddle doctor that other packages cannot make.
func doctorChecks(cmd *cobra.Command, server cli.Server, agent cli.Agent) []cli.Check {
	records := cmp.Or(agent.LogDir, filterlog.DefaultDir)
	return slices.Concat([]cli.Check{{
		Name: "eBPF datapath", For: "overlay", Fix: "use Linux 6.6 or newer with eBPF, and run as root",
		Run: func(context.Context) error { return datapath.Probe() },
	}, {
		Name: "nftables", For: "policy", Fix: "use a kernel with nf_tables, nf_conntrack and NAT (modules nf_tables, nft_chain_nat, nft_fib_inet, nft_log), and run as root",
		Run: probeRules,
	}, {
		Name: "program dnsmasq", For: "agent --dhcp, demo", Optional: true, Fix: "apt-get install dnsmasq-base", Run: probeDnsmasq,
	}, diskCheck(server), spaceCheck(server), {
		Name: "records of filters' logs", For: "agent --log-dir", Fix: "make room on the disk of " + records + ", or name another directory with --log-dir",
		Run: func(context.Context) error { return filterlog.CheckDir(records) },
	}}, certificateChecks(server, agent), physicalChecks(agent.Physical), interfaceChecks(), xenChecks(), []cli.Check{clockCheck(agent.State), writersCheck(configPath(cmd))})
}
