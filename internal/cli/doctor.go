package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"heddle/internal/command"
	"heddle/internal/hostnet"
	"heddle/internal/store"
	"heddle/internal/store/backend"
)

// Check is a requirement of a machine, and how to meet it.
type Check struct {
	Name string
	// For names the parts that need it.
	For string
	// Optional: a host works without it, slower or without the parts in For.
	Optional bool
	Fix      string
	Run      func(context.Context) error
}

// Server is a machine's server: its data directory, its cluster if that has endpoints, and the file
// of its APIs' certificate, if it was given one.
type Server struct {
	Data    string
	Cluster backend.Cluster
	TLSCert string
}

// Agent is a machine's agent: its state directory, its physical networks, and the directory of its
// filters' logs, "" for the default.
type Agent struct {
	State    string
	Physical []string
	LogDir   string
}

// finding is a Check's result as printed.
type finding struct {
	Check  string `json:"check"`
	For    string `json:"for"`
	State  string `json:"state"` // ok, missing, optional, unknown
	Detail string `json:"detail,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

// DoctorCommand returns the command that prints what this machine lacks. secrets returns the files
// with secrets that the machine's settings name, and checks the checks of other packages, for a
// machine with this server and agent.
func DoctorCommand(secrets func(*cobra.Command) ([]SecretFile, error), checks func(*cobra.Command, Server, Agent) []Check) *cobra.Command {
	var server Server
	var agent Agent
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine lacks, and how to mend it",
		Long:  "Tries what Heddle's parts need of this machine: rights, kernel features, link kinds, programs.\nIt removes what it makes for that. What it cannot find out is unknown. Exits 1 when something\nthat is needed is missing. Settings are those of Heddle's units, /etc/heddle/heddle.yaml, unless --config names others.",
		Args:  cobra.NoArgs,
	}
	format := command.OutputFlag(cmd)
	s := socketFlags(cmd)
	f := cmd.Flags()
	DataFlag(f, &server.Data, "data `directory` of heddle serve, if this machine has one")
	complete := serverClusterFlags(f, &server.Cluster)
	clusterQuotaMiB := f.Int64("etcd-quota", 0, EtcdQuotaUsage)
	ofServer(f, "etcd-quota")
	f.StringVar(&server.TLSCert, "tls-cert", "", "PEM `file` with the certificate of heddle serve's APIs, if it was given one")
	ofServer(f, "tls-cert")
	f.StringVar(&agent.State, "state", "/var/lib/heddle-agent", "`directory` of heddle agent's id, key and certificate, if this machine has one")
	ofSections(f, "state", "agent")
	f.StringSliceVar(&agent.Physical, "physical", nil, "`NETWORK=INTERFACE` of heddle agent, if this machine has one; repeatable")
	ofSections(f, "physical", "agent")
	f.StringVar(&agent.LogDir, "log-dir", "", "`directory` of heddle agent's logs of security groups and firewalls; default that of the agent")
	ofSections(f, "log-dir", "agent")
	peers := f.StringSlice("peer", nil, "tunnel `addresses` of other hosts to send the largest packets and datagrams to, joined by commas")
	mtu := f.Int("underlay-mtu", 1500, "largest packet that travels between hosts, in `bytes`, as heddle serve has it")
	ofServer(f, "underlay-mtu")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := complete(); err != nil {
			return err
		}
		server.Cluster.Quota = *clusterQuotaMiB << 20
		if *mtu < leastMTU || *mtu > mostMTU {
			return &command.Exit{Code: 2, Text: fmt.Sprintf("--underlay-mtu %d: want %d to %d", *mtu, leastMTU, mostMTU)}
		}
		root := kernelFiles("/")
		named := func() ([]SecretFile, error) { return secrets(cmd) }
		all := slices.Concat(machineChecks(), root.checks(),
			[]Check{secretsCheck("serve", server.Data), secretsCheck("agent", agent.State), root.secretFilesCheck(server.Data, named), syncCheck(server.Data), ownNameCheck(), rolesCheck(s), tunnelsCheck(s)},
			root.integrationChecks(), checks(cmd, server, agent))
		for _, peer := range *peers {
			address, err := netip.ParseAddr(peer)
			if err != nil || !address.Is4() {
				return &command.Exit{Code: 2, Text: fmt.Sprintf("--peer %q: want the IPv4 address of a host, as heddle host list shows its tunnel IP", peer)}
			}
			all = append(append(all, pathCheck(address, *mtu)), udpChecks(s, address)...)
		}
		return diagnose(cmd, *format, all)
	}
	return cmd
}

// Limits of --underlay-mtu for a probe.
const (
	leastMTU = 576
	mostMTU  = 65535
)

// checkTimeout bounds one check: what does not answer by then, such as a store without a majority,
// must not keep others from being found out.
const checkTimeout = 10 * time.Second

// run runs the check. It is undecided if it takes too long.
func (c Check) run(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := c.Run(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return undecided{fmt.Sprintf("not found out within %s: %v", checkTimeout, err)}
	}
	return err
}

func diagnose(cmd *cobra.Command, format string, checks []Check) error {
	var (
		findings []finding
		rows     [][]string
		missing  int
	)
	for _, c := range checks {
		f := finding{Check: c.Name, For: c.For, State: "ok"}
		if err := c.run(cmd.Context()); err != nil {
			f.Detail, f.Fix = err.Error(), c.Fix
			switch unknown := (undecided{}); {
			case errors.As(err, &unknown), errors.Is(err, store.ErrUnavailable):
				f.State = "unknown"
			case c.Optional:
				f.State = "optional"
			default:
				f.State = "missing"
				missing++
			}
		}
		findings = append(findings, f)
		rows = append(rows, []string{f.State, f.Check, f.For, f.Detail, f.Fix})
	}
	if err := command.PrintTable(cmd.OutOrStdout(), format, findings, []string{"STATE", "CHECK", "FOR", "WHY", "WHAT TO DO"}, rows); err != nil {
		return err
	}
	if missing > 0 {
		return &command.Exit{Code: 1, Text: fmt.Sprintf("%d of %d checks found something missing", missing, len(checks))}
	}
	return nil
}

// machineChecks returns the checks for every host with an agent.
func machineChecks() []Check {
	return []Check{
		{Name: "root", For: "agent, demo", Fix: "run as root; of its rights agents need those that heddle-agent.service lists", Run: func(context.Context) error {
			if uid := os.Geteuid(); uid != 0 {
				return fmt.Errorf("user %d", uid)
			}
			return nil
		}},
		{Name: "kernel 6.6 or newer", For: "overlay", Fix: "install a newer kernel: tcx programs came with 6.6", Run: func(context.Context) error { return kernelAtLeast(6, 6) }},
		{Name: "BPF type information", For: "overlay", Fix: "use a kernel built with CONFIG_DEBUG_INFO_BTF", Run: func(context.Context) error {
			_, err := os.Stat("/sys/kernel/btf/vmlinux")
			return err
		}},
		linkCheck(hostnet.LinkSpec{Name: "doctor0", Kind: hostnet.Veth, Peer: "doctor1"}, "workloads on veth pairs", false, "load the veth module"),
		linkCheck(hostnet.LinkSpec{Name: "doctor0", Kind: hostnet.Tap}, "virtual machines", false, "load the tun module"),
		linkCheck(hostnet.LinkSpec{Name: "doctor0", Kind: hostnet.VXLAN, Port: 6678}, "overlay: merging of tunnelled TCP", true, "load the vxlan module: without it bulk TCP between hosts runs at half the speed"),
		linkCheck(hostnet.LinkSpec{Name: "doctor0", Kind: hostnet.WireGuard}, "overlay: encryption in the kernel", true, "load the wireguard module: without it a process encrypts, at a higher cost"),
		linkCheck(hostnet.LinkSpec{Name: "doctor0", Kind: hostnet.IPIP}, "policy: pools with ipip \"tunl0\"", true, "load the ipip module, or set ipip of the pools to \"vxlan0\" on all hosts"),
		linkCheck(hostnet.LinkSpec{Name: "doctor0", Kind: hostnet.VXLAN, VNI: 4096, Port: 4789}, "policy: pools with ipip \"vxlan…\"", true, "load the vxlan module, or set ipip of the pools to \"tunl0\" on all hosts"),
		{Name: "program haproxy", For: "load balancers: checks of members' health", Optional: true, Fix: "apt-get install haproxy", Run: program("haproxy")},
		{Name: "program ip", For: "demo", Optional: true, Fix: "apt-get install iproute2", Run: program("ip")},
		{Name: "program udhcpc", For: "demo", Optional: true, Fix: "apt-get install udhcpc", Run: program("udhcpc")},
		{Name: "program dhclient", For: "demo", Optional: true, Fix: "apt-get install isc-dhcp-client", Run: program("dhclient")},
		{Name: "program ping", For: "demo", Optional: true, Fix: "apt-get install iputils-ping", Run: program("ping")},
	}
}

// linkCheck makes a link in a namespace of its own, which changes nothing on this machine.
func linkCheck(spec hostnet.LinkSpec, who string, optional bool, fix string) Check {
	return Check{Name: "link kind " + string(spec.Kind), For: who, Optional: optional, Fix: fix, Run: func(context.Context) error {
		ns, err := hostnet.NewNamespace()
		if err != nil {
			return err
		}
		defer ns.Close()
		net, err := hostnet.NewLinux(ns)
		if err != nil {
			return err
		}
		defer net.Close()
		_, err = net.AddLink(spec)
		return err
	}}
}

func program(name string) func(context.Context) error {
	return func(context.Context) error {
		_, err := exec.LookPath(name)
		return err
	}
}

func kernelAtLeast(major, minor int) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	release := unix.ByteSliceToString(u.Release[:])
	var got [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &got[0], &got[1]); err != nil {
		return fmt.Errorf("kernel %q: no version in its name", release)
	}
	if got[0] < major || got[0] == major && got[1] < minor {
		return fmt.Errorf("kernel %s", release)
	}
	return nil
}
