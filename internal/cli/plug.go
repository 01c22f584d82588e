package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/hostnet"
	"heddle/internal/plug"
	"heddle/internal/terminal"
)

// plugFlags are the flags of plug and unplug.
type plugFlags struct {
	cloud *cloud.Config
	state string
	host  string
}

func addPlugFlags(cmd *cobra.Command) *plugFlags {
	p := &plugFlags{cloud: cloudFlags(cmd)}
	f := cmd.Flags()
	f.StringVar(&p.state, "state", "/var/lib/heddle-agent", "state `directory` of this host's agent, where what is plugged is recorded")
	ofSections(f, "state", "agent")
	cmd.ValidArgsFunction = arguments(completeWorkloadPorts(p.cloud))
	return p
}

// plugger returns a plugger for this host. Its second result closes it.
func (p *plugFlags) plugger(ctx context.Context, cmd *cobra.Command) (*plug.Plugger, func(), error) {
	if os.Geteuid() != 0 {
		return nil, nil, fmt.Errorf("%s changes this host's network: run it as root", cmd.CommandPath())
	}
	s, err := p.cloud.Login(ctx)
	if err != nil {
		return nil, nil, err
	}
	api, err := s.Neutron()
	if err != nil {
		return nil, nil, err
	}
	if p.host == "" {
		if p.host, err = plug.AgentName(p.state); err != nil {
			return nil, nil, err
		}
	}
	here, err := hostnet.Here()
	if err != nil {
		return nil, nil, err
	}
	return &plug.Plugger{API: api, Net: here, Dir: plug.RecordsDir(p.state), Host: p.host}, func() { here.Close() }, nil
}

// plugCommand gives a workload the interface of a port.
func plugCommand() *cobra.Command {
	var at plug.Place
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "plug PORT {--netns NAME | --pid N | --tap}",
		Short: "Give a network namespace or a machine on this host the interface of a port",
		Long: `Run on a host with an agent, as root. PORT is a port's id or name.
With --netns or --pid it makes a veth pair: the end in the namespace gets the port's MAC address and addresses, the MTU of its network, and
the routes of its subnets; routes by other interfaces to the same destinations stay. If the subnets have name servers and the namespace has a name without
/etc/netns/NAME/resolv.conf, that file is written, and "ip netns exec" uses it. With --tap it makes a persistent tap for a virtual
machine, which must have the port's MAC address.
Then it binds the port to this host and waits until it is ACTIVE; that of a tap is when a machine opens it, which is not waited for. On failure everything is as before. To plug a port again where it is
gives it what it lacks; to plug it elsewhere, unplug it first.`,
		Args: cobra.ExactArgs(1),
	}
	p := addPlugFlags(cmd)
	format := command.OutputFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&p.host, "host", "", "`name` of this host's agent; default: the one in its state directory, else the host's name")
	f.StringVar(&at.Netns, "netns", "", "network namespace: a `name` in ip netns, or a path")
	f.IntVar(&at.PID, "pid", 0, "the network namespace of process `N`")
	f.BoolVar(&at.Tap, "tap", false, "a persistent tap on the host")
	f.StringVar(&at.Interface, "interface", "eth0", "`name` of the interface in the namespace")
	f.DurationVar(&wait, "wait", 30*time.Second, "`time` until the port has to be ACTIVE, from the call of the command; 0: do not wait for that")
	for _, name := range []string{"netns", "pid", "tap", "interface"} {
		perCall(f, name)
	}
	cmd.MarkFlagsMutuallyExclusive("netns", "pid", "tap")
	cmd.MarkFlagsOneRequired("netns", "pid", "tap")
	registerCompletion(cmd, "netns", completeNamespaces)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if wrong := wrongPlace(f, at); wrong != "" {
			return &command.Exit{Code: 2, Text: "plug: " + wrong}
		}
		if at.Tap {
			at.Interface = ""
		}
		ctx := cmd.Context()
		if wait > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, wait)
			defer cancel()
		}
		plugger, closeIt, err := p.plugger(ctx, cmd)
		if err != nil {
			return err
		}
		defer closeIt()
		plugger.Wait = wait
		r, err := plugger.Plug(ctx, args[0], at)
		if err != nil {
			return err
		}
		return printPlugged(cmd.OutOrStdout(), *format, r)
	}
	return cmd
}

// wrongPlace returns what is wrong with the flags that name a place, or "".
func wrongPlace(f *pflag.FlagSet, at plug.Place) string {
	switch {
	case at.Tap && f.Changed("interface"):
		return "--interface names an interface in a namespace; a tap is called as the port's binding says"
	case f.Changed("pid") && at.PID <= 0:
		return fmt.Sprintf("--pid %d: no process has this id", at.PID)
	case !at.Tap && at.PID == 0 && at.Netns == "":
		return "want --netns NAME, --pid N or --tap"
	}
	return ""
}

func completeNamespaces(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, err := hostnet.NamedNamespaces("")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return plainWords(names), cobra.ShellCompDirectiveNoFileComp
}

func printPlugged(w io.Writer, format string, r *plug.Result) error {
	if format == "json" {
		return command.PrintJSON(w, r)
	}
	place := fmt.Sprintf("%s in %s", r.Place.Interface, r.Place)
	if r.Place.Tap {
		place = "a tap"
	}
	rows := [][]string{
		{"port", strings.TrimSpace(r.Name + " " + r.PortID)},
		{"workload", place},
		{"host", fmt.Sprintf("%s, interface %s", r.Host, r.Device)},
		{"MAC", r.MACAddress},
		{"MTU", fmt.Sprint(r.MTU)},
		{"addresses", joinTexts(r.Addresses, " ")},
		{"routes", joinTexts(r.Routes, ", ")},
		{"status", r.Status},
	}
	for _, note := range r.Notes {
		rows = append(rows, []string{"note", note})
	}
	for _, row := range rows {
		if row[1] != "" {
			terminal.Fprintf(w, "%-9s  %s\n", row[0], row[1])
		}
	}
	return nil
}

// joinTexts returns the texts of all, with a separator between them.
func joinTexts[T fmt.Stringer](all []T, separator string) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.String()
	}
	return strings.Join(texts, separator)
}

// unplugCommand takes back what plug did.
func unplugCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unplug PORT",
		Short: "Take a port's interface away that heddle plug made on this host",
		Long:  "Removes the interface that heddle plug made for a port, by id or name, and the files that it wrote,\nunless they were changed since, and unbinds the port.",
		Args:  cobra.ExactArgs(1),
	}
	p := addPlugFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		plugger, closeIt, err := p.plugger(cmd.Context(), cmd)
		if err != nil {
			return err
		}
		defer closeIt()
		id, err := plugger.Unplug(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		name := id
		if args[0] != id {
			name = fmt.Sprintf("%s (%s)", args[0], id)
		}
		terminal.Fprintf(cmd.OutOrStdout(), "port %s is unplugged\n", name)
		return nil
	}
	return cmd
}
