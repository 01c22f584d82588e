package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/calico/ipam"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// calicoIPAMCommand groups the commands on addresses of pools.
func calicoIPAMCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ipam",
		Short: "Assign and release addresses of pools, and manage their blocks",
		Long: `Works on the addresses of IP pools, which are made with heddle calico apply (kind IPPool). A host takes addresses from blocks of 64 that
are affine to it, and borrows from others when it must. A handle is a name under which addresses are found and released together.`,
	}
	cmd.AddCommand(ipamAutoAssignCommand(), ipamAssignCommand(), ipamReleaseCommand(), ipamShowCommand(), ipamCheckCommand(), ipamConfigCommand(),
		ipamClaimCommand(), ipamReleaseAffinityCommand(), ipamRemoveHostCommand(), ipamPoolCommand())
	return cmd
}

// ipamFlags adds the flags of all commands of ipam, and returns -o and a function that opens the
// store and calls f.
func ipamFlags(cmd *cobra.Command) (format *string, run func(f func(context.Context, *ipam.IPAM) error) error) {
	store, format := calicoStoreFlags(cmd), command.OutputFlag(cmd)
	return format, func(f func(context.Context, *ipam.IPAM) error) error {
		if _, err := wantJSON(*format); err != nil {
			return err
		}
		return store.do(func(c *client.Client) error {
			i, err := ipam.New(c, ipam.Options{})
			if err != nil {
				return err
			}
			return f(cmd.Context(), i)
		})
	}
}

// ownerFlags adds the flags for an address's owner.
func ownerFlags(cmd *cobra.Command, host, handle *string, attributes *map[string]string) {
	cmd.Flags().StringVar(host, "host", "", "`host` on which it will be used; default: this one")
	cmd.Flags().StringVar(handle, "handle", "", "`name` by which addresses are found and released together")
	cmd.Flags().StringToStringVar(attributes, "attribute", nil, "`NAME=VALUE` to be kept beside the address; repeatable")
}

func ipamAutoAssignCommand() *cobra.Command {
	var r ipam.Request
	var pools []string
	cmd := &cobra.Command{
		Use:   "auto-assign",
		Short: "Assign free addresses and print them",
		Long:  "Assigns free addresses and prints them, one a line. When there are fewer than asked for, those found are assigned and printed,\nand the exit code is 1.",
		Args:  cobra.NoArgs,
	}
	format, run := ipamFlags(cmd)
	ownerFlags(cmd, &r.Host, &r.Handle, &r.Attributes)
	cmd.Flags().IntVar(&r.Num4, "num4", 0, "how many IPv4 addresses")
	cmd.Flags().IntVar(&r.Num6, "num6", 0, "how many IPv6 addresses")
	cmd.Flags().StringArrayVar(&pools, "pool", nil, "`CIDR` of a pool to take them from; repeatable, in the order of preference; default: all pools")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if r.Num4 < 0 || r.Num6 < 0 || r.Num4+r.Num6 == 0 {
			return &command.Exit{Code: 2, Text: "ipam auto-assign: say how many with --num4 and --num6"}
		}
		for _, p := range pools {
			cidr, err := parseCIDR("--pool", p)
			if err != nil {
				return err
			}
			if cidr.Addr().Is4() {
				r.Pools4 = append(r.Pools4, cidr)
			} else {
				r.Pools6 = append(r.Pools6, cidr)
			}
		}
		return run(func(ctx context.Context, i *ipam.IPAM) error {
			four, six, err := i.AutoAssign(ctx, r)
			all := append(four, six...)
			if printErr := printAddresses(cmd.OutOrStdout(), *format, all); printErr != nil {
				return printErr
			}
			if wanted := r.Num4 + r.Num6; err == nil && len(all) < wanted {
				return fmt.Errorf("%d of %d addresses: the pools have no more", len(all), wanted)
			}
			return err
		})
	}
	return cmd
}

func printAddresses(w io.Writer, format string, all []netip.Addr) error {
	if format == "json" {
		if all == nil {
			all = []netip.Addr{}
		}
		return command.PrintJSON(w, map[string]any{"addresses": all})
	}
	for _, a := range all {
		if _, err := terminal.Fprintln(w, a); err != nil {
			return err
		}
	}
	return nil
}

func ipamAssignCommand() *cobra.Command {
	var a ipam.Assignment
	cmd := &cobra.Command{
		Use:   "assign ADDRESS",
		Short: "Assign a certain address",
		Args:  cobra.ExactArgs(1),
	}
	format, run := ipamFlags(cmd)
	ownerFlags(cmd, &a.Host, &a.Handle, &a.Attributes)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if a.IP, err = parseAddress(args[0]); err != nil {
			return err
		}
		return run(func(ctx context.Context, i *ipam.IPAM) error {
			if err := i.AssignIP(ctx, a); err != nil {
				return err
			}
			return printAddresses(cmd.OutOrStdout(), *format, []netip.Addr{a.IP})
		})
	}
	return cmd
}

func ipamReleaseCommand() *cobra.Command {
	var handle string
	cmd := &cobra.Command{
		Use:   "release {ADDRESS… | --handle NAME}",
		Short: "Release addresses, or all of a handle",
		Long:  "Releases addresses. Those that were not assigned are listed on standard error and make the exit code 1.",
	}
	format, run := ipamFlags(cmd)
	cmd.Flags().StringVar(&handle, "handle", "", "`name` of the handle whose addresses to release")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (handle == "") == (len(args) == 0) {
			return &command.Exit{Code: 2, Text: "ipam release: give either addresses or --handle"}
		}
		ips, err := parseAddresses(args)
		if err != nil {
			return err
		}
		return run(func(ctx context.Context, i *ipam.IPAM) error {
			if handle != "" {
				return i.ReleaseByHandle(ctx, handle)
			}
			missing, err := i.ReleaseIPs(ctx, ips...)
			if err == nil && *format == "json" {
				err = command.PrintJSON(cmd.OutOrStdout(), map[string]any{"not_assigned": nonNil(missing)})
			}
			if err == nil && len(missing) > 0 {
				err = fmt.Errorf("not assigned: %s", addresses(missing))
			}
			return err
		})
	}
	return cmd
}

// nonNil returns an empty list instead of nil, for JSON.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func ipamShowCommand() *cobra.Command {
	var handle string
	var blocks bool
	cmd := &cobra.Command{
		Use:   "show [ADDRESS…]",
		Short: "Print how much of the pools is in use, and by whom",
		Long:  "Without arguments it prints how many addresses of each pool are assigned; with --blocks, of each block and its host. Of addresses it\nprints the owner, and of a handle its addresses.",
	}
	format, run := ipamFlags(cmd)
	cmd.Flags().StringVar(&handle, "handle", "", "`name` of a handle")
	cmd.Flags().BoolVar(&blocks, "blocks", false, "also each block")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ips, err := parseAddresses(args)
		if err != nil {
			return err
		}
		if handle != "" && len(ips) > 0 {
			return &command.Exit{Code: 2, Text: "ipam show: give either addresses or --handle"}
		}
		return run(func(ctx context.Context, i *ipam.IPAM) error {
			switch {
			case handle != "":
				all, err := i.IPsByHandle(ctx, handle)
				if err != nil {
					return err
				}
				return printAddresses(cmd.OutOrStdout(), *format, all)
			case len(ips) > 0:
				return showAddresses(ctx, cmd.OutOrStdout(), *format, i, ips)
			}
			return showUsage(ctx, cmd.OutOrStdout(), *format, i, blocks)
		})
	}
	return cmd
}

// addressView is an address as it is printed.
type addressView struct {
	Address    netip.Addr        `json:"address"`
	Handle     string            `json:"handle,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

func showAddresses(ctx context.Context, w io.Writer, format string, i *ipam.IPAM, ips []netip.Addr) error {
	var views []addressView
	var rows [][]string
	for _, ip := range ips {
		handle, err := i.HandleOf(ctx, ip)
		if err != nil {
			return err
		}
		attributes, err := i.GetAssignmentAttributes(ctx, ip)
		if err != nil {
			return err
		}
		views = append(views, addressView{ip, handle, attributes})
		rows = append(rows, []string{ip.String(), cmp.Or(handle, "-"), labelText(attributes)})
	}
	return command.PrintTable(w, format, views, []string{"ADDRESS", "HANDLE", "ATTRIBUTES"}, rows)
}

// poolView and blockView are usage as it is printed.
type poolView struct {
	CIDR     string `json:"cidr"`
	Usable   bool   `json:"usable"`
	Size     string `json:"size"` // addresses; may exceed 64 bits
	Blocks   int    `json:"blocks"`
	Assigned int    `json:"assigned"`
}

type blockView struct {
	CIDR     string `json:"cidr"`
	Host     string `json:"host,omitempty"`
	Pool     string `json:"pool,omitempty"`
	Strict   bool   `json:"strict"`
	Assigned int    `json:"assigned"`
	Fault    string `json:"fault,omitempty"`
}

func showUsage(ctx context.Context, w io.Writer, format string, i *ipam.IPAM, withBlocks bool) error {
	u, err := i.Usage(ctx)
	if err != nil {
		return err
	}
	pools, blocks := []poolView{}, []blockView{}
	var poolRows, blockRows [][]string
	for _, p := range u.Pools {
		pools = append(pools, poolView{p.CIDR.String(), p.Usable, p.Size.String(), p.Blocks, p.Assigned})
		poolRows = append(poolRows, []string{p.CIDR.String(), strconv.FormatBool(p.Usable), p.Size.String(), strconv.Itoa(p.Blocks), strconv.Itoa(p.Assigned)})
	}
	for _, b := range u.Blocks {
		v := blockView{CIDR: b.CIDR.String(), Host: b.Host, Strict: b.Strict, Assigned: b.Assigned}
		if b.Pool.IsValid() {
			v.Pool = b.Pool.String()
		}
		if b.Err != nil {
			v.Fault = b.Err.Error()
		}
		blocks = append(blocks, v)
		blockRows = append(blockRows, []string{v.CIDR, cmp.Or(v.Host, "-"), cmp.Or(v.Pool, "-"), strconv.Itoa(v.Assigned), cmp.Or(v.Fault, "-")})
	}
	if format == "json" {
		view := map[string]any{"pools": pools}
		if withBlocks {
			view["blocks"] = blocks
		}
		return command.PrintJSON(w, view)
	}
	if err := command.PrintTable(w, format, nil, []string{"POOL", "USABLE", "ADDRESSES", "BLOCKS", "ASSIGNED"}, poolRows); err != nil || !withBlocks {
		return err
	}
	terminal.Fprintln(w)
	return command.PrintTable(w, format, nil, []string{"BLOCK", "HOST", "POOL", "ASSIGNED", "FAULT"}, blockRows)
}

func ipamCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look for blocks, handles and affinities that contradict each other",
		Long:  "Reads everything at one moment, changes nothing, and prints what is wrong. Exits 1 when anything is, but for what is harmless.",
		Args:  cobra.NoArgs,
	}
	format, run := ipamFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return run(func(ctx context.Context, i *ipam.IPAM) error {
			problems, err := i.Check(ctx)
			if err != nil {
				return err
			}
			return printProblems(cmd.OutOrStdout(), *format, problems)
		})
	}
	return cmd
}

// problemView is a problem as it is printed.
type problemView struct {
	Path     string `json:"path"`
	Harmless bool   `json:"harmless"`
	Text     string `json:"text"`
}

func printProblems(w io.Writer, format string, problems []ipam.Problem) error {
	views, harmful := []problemView{}, 0
	for _, p := range problems {
		views = append(views, problemView{p.Path, p.Harmless, p.Text})
		if !p.Harmless {
			harmful++
		}
	}
	switch {
	case format == "json":
		if err := command.PrintJSON(w, views); err != nil {
			return err
		}
	case len(problems) == 0:
		terminal.Fprintln(w, "nothing is wrong")
	default:
		for _, p := range problems {
			terminal.Fprintln(w, p)
		}
	}
	if harmful > 0 {
		return &command.Exit{Code: 1} // the output has the reason
	}
	return nil
}

func ipamConfigCommand() *cobra.Command {
	var strict, auto bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration, or change it while there are no blocks",
		Args:  cobra.NoArgs,
	}
	format, run := ipamFlags(cmd)
	cmd.Flags().BoolVar(&strict, "strict-affinity", false, "a host takes no addresses from blocks of others")
	cmd.Flags().BoolVar(&auto, "auto-allocate-blocks", true, "hosts claim blocks by themselves")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return run(func(ctx context.Context, i *ipam.IPAM) error {
			c, err := i.GetConfig(ctx)
			if err != nil {
				return err
			}
			changed := false
			for flag, set := range map[string]func(){
				"strict-affinity":      func() { c.StrictAffinity = strict },
				"auto-allocate-blocks": func() { c.AutoAllocateBlocks = auto },
			} {
				if cmd.Flags().Changed(flag) {
					set()
					changed = true
				}
			}
			if changed {
				if err := i.SetConfig(ctx, c); err != nil {
					return err
				}
			}
			return printConfig(cmd.OutOrStdout(), *format, c)
		})
	}
	return cmd
}

func printConfig(w io.Writer, format string, c calico.IPAMConfig) error {
	if format == "json" {
		return command.PrintJSON(w, map[string]bool{"strict_affinity": c.StrictAffinity, "auto_allocate_blocks": c.AutoAllocateBlocks})
	}
	_, err := terminal.Fprintf(w, "strict-affinity %v\nauto-allocate-blocks %v\n", c.StrictAffinity, c.AutoAllocateBlocks)
	return err
}

func ipamClaimCommand() *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use:   "claim CIDR",
		Short: "Claim all blocks of a CIDR for a host",
		Long:  "Claims all blocks of a CIDR, which must be at least a block of 64 addresses within a pool. Blocks of other hosts are listed and make the exit code 1.",
		Args:  cobra.ExactArgs(1),
	}
	format, run := ipamFlags(cmd)
	cmd.Flags().StringVar(&host, "host", "", "`host` to claim for; default: this one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cidr, err := parseCIDR("claim", args[0])
		if err != nil {
			return err
		}
		return run(func(ctx context.Context, i *ipam.IPAM) error {
			claimed, failed, err := i.ClaimAffinity(ctx, cidr, host)
			if err != nil {
				return err
			}
			if *format == "json" {
				err = command.PrintJSON(cmd.OutOrStdout(), map[string]any{"claimed": nonNil(claimed), "failed": nonNil(failed)})
			} else {
				terminal.Fprintf(cmd.OutOrStdout(), "%d blocks claimed\n", len(claimed))
			}
			if err == nil && len(failed) > 0 {
				err = fmt.Errorf("blocks of other hosts: %s", joined(failed))
			}
			return err
		})
	}
	return cmd
}

func joined(cidrs []netip.Prefix) string {
	var all []string
	for _, c := range cidrs {
		all = append(all, c.String())
	}
	return strings.Join(all, ", ")
}

func ipamReleaseAffinityCommand() *cobra.Command {
	var host string
	var all bool
	cmd := &cobra.Command{
		Use:   "release-affinity {CIDR | --all}",
		Short: "Take blocks from a host",
		Long:  "Takes the blocks of a CIDR, or with --all every block, from a host. Empty blocks are deleted; addresses that are assigned stay so.",
		Args:  cobra.MaximumNArgs(1),
	}
	_, run := ipamFlags(cmd)
	cmd.Flags().StringVar(&host, "host", "", "`host` to take from; default: this one")
	cmd.Flags().BoolVar(&all, "all", false, "all blocks of the host")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) == 1) {
			return &command.Exit{Code: 2, Text: "ipam release-affinity: give either a CIDR or --all"}
		}
		var prefix netip.Prefix
		if !all {
			var err error
			if prefix, err = parseCIDR("release-affinity", args[0]); err != nil {
				return err
			}
		}
		return run(func(ctx context.Context, i *ipam.IPAM) error {
			if all {
				return i.ReleaseHostAffinities(ctx, host)
			}
			return i.ReleaseAffinity(ctx, prefix, host)
		})
	}
	return cmd
}

func ipamRemoveHostCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove-host HOST",
		Short: "Forget a host: its blocks are free for others, its addresses stay assigned",
		Args:  cobra.ExactArgs(1),
	}
	_, run := ipamFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return run(func(ctx context.Context, i *ipam.IPAM) error { return i.RemoveIPAMHost(ctx, args[0]) })
	}
	return cmd
}

func ipamPoolCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "pool", Short: "Delete pools"}
	remove := &cobra.Command{
		Use:   "delete CIDR",
		Short: "Delete a pool: disable it, take its blocks from their hosts, and delete it",
		Long:  "Deletes a pool in the order that leaves no host with blocks of it. Addresses assigned from it stay so until they are released.",
		Args:  cobra.ExactArgs(1),
	}
	_, run := ipamFlags(remove)
	remove.RunE = func(cmd *cobra.Command, args []string) error {
		cidr, err := parseCIDR("pool delete", args[0])
		if err != nil {
			return err
		}
		return run(func(ctx context.Context, i *ipam.IPAM) error { return i.DeletePool(ctx, cidr) })
	}
	cmd.AddCommand(remove)
	return cmd
}

func parseCIDR(what, text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, &command.Exit{Code: 2, Text: fmt.Sprintf("%s %q: want a CIDR such as 10.0.0.0/16", what, text)}
	}
	return p, nil
}

func parseAddress(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, &command.Exit{Code: 2, Text: fmt.Sprintf("%q: want an address such as 10.0.0.1", text)}
	}
	return a, nil
}

func parseAddresses(texts []string) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, t := range texts {
		a, err := parseAddress(t)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}
