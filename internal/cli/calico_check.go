package cli

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"heddle/internal/command"
	"heddle/internal/offline"
)

// calicoCheckCommand reports which packets endpoints and policies would allow.
func calicoCheckCommand() *cobra.Command {
	var opts offline.CheckOptions
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Report which packets endpoints and policies would allow, and test it",
		Long: `Reads a case or a list of cases, YAML or JSON ("-" reads standard input): endpoints, profiles, tiers and policies as the store has
them, and packets with what is expected of them. Prints for each packet whether it would be allowed, what decided, and what it
was compared with before:
  profiles:  {web: {rules: {inbound_rules: [{protocol: tcp, dst_ports: [80]}], outbound_rules: [{}]}}}
  endpoints: {vm: {state: active, name: cali1, ipv4_nets: [10.65.0.1/32], profile_ids: [web]}}
  packets:   [{from: external, to: vm, src: 192.0.2.9, dst: 10.65.0.1, proto: tcp, dport: 22, expect: deny}]
With --kernel, as root, the agent programs a network namespace made for it, and real packets are sent. Exits 1 when an
expectation fails, 2 when the file is wrong, naming the place.`,
		Args: wantArgs(1, "calico check: want one FILE, or - for standard input"),
	}
	cmd.Flags().BoolVar(&opts.Kernel, "kernel", false, "send real packets through a network namespace that the agent has programmed; as root")
	cmd.Flags().BoolVar(&opts.Extensions, "extensions", false, "read the selector operators of later versions: contains, starts with, ends with, global()")
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if opts.JSON, err = wantJSON(*format); err != nil {
			return err
		}
		if opts.Kernel && os.Geteuid() != 0 {
			return &command.Exit{Code: 2, Text: "calico check --kernel makes network namespaces: run it as root"}
		}
		return withInput(cmd, args[0], func(in io.Reader) error { return offline.Check(cmd.Context(), in, opts, cmd.OutOrStdout()) })
	}
	return cmd
}
