package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/dhcp"
	"heddle/internal/dhcp/oslo"
	"heddle/internal/dhcp/plan"
	"heddle/internal/store/backend"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// dhcpConfig holds the settings of the DHCP agent.
type dhcpConfig struct {
	on       bool
	domain   string
	lease    int
	mtu      int
	prefixes []string
	dns      []string
}

func (c *dhcpConfig) flags(f *pflag.FlagSet) {
	f.BoolVar(&c.on, "dhcp", false, "run the DHCP agent: workloads of this host get their addresses from a dnsmasq")
	f.StringVar(&c.domain, "dhcp-domain", "", "`domain` of workloads that have no fqdn of their own")
	f.IntVar(&c.lease, "dhcp-lease", 86400, "`seconds` that a lease lasts, 120 at least; -1: for ever")
	f.IntVar(&c.mtu, "dhcp-mtu", 0, "MTU in `bytes` of workloads whose network has none of its own (default none)")
	f.StringSliceVar(&c.dns, "dhcp-dns-server", nil, "`servers` of names other than those of workloads, joined by commas: address, address#port or /domain/address (default none)")
	f.StringSliceVar(&c.prefixes, "dhcp-interface-prefix", []string{"tap"}, "`beginnings` of the names of interfaces that are served, joined by commas")
}

// options returns the agent's options on a host with this name and state directory.
func (c *dhcpConfig) options(host, state string) (dhcp.Options, error) {
	dir, err := filepath.Abs(filepath.Join(state, "dhcp"))
	if err != nil {
		return dhcp.Options{}, err
	}
	return dhcp.Options{Host: host, Plan: plan.Options{Dir: dir, Domain: c.domain, LeaseSeconds: c.lease, MTU: c.mtu, InterfacePrefixes: c.prefixes, Servers: c.dns}}, nil
}

// check validates the settings.
func (c *dhcpConfig) check(host, state string) error {
	if !c.on {
		return nil
	}
	o, err := c.options(host, state)
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

// agent builds the DHCP agent, from settings that check has accepted.
func (c *dhcpConfig) agent(t *agents) (agent, error) {
	o, err := c.options(t.config.name, t.config.state)
	o.Store, o.Snapshots, o.Watchdog, o.Log = t.store, t.config.snapshots(), &t.watchdog, t.log.With("part", "dhcp")
	return dhcp.New(o), err
}

func (c *dhcpConfig) cleanUp(host, state string) error {
	o, err := c.options(host, state)
	if err != nil {
		return err
	}
	return dhcp.Cleanup(o)
}

// calicoDHCPAgent is the name by which peers' scripts start the DHCP agent.
const calicoDHCPAgent = "calico-dhcp-agent"

// libvirtHookName is the name by which libvirt calls its hook.
const libvirtHookName = "heddle-libvirt-hook"

// neutronConfig is the path of Neutron's configuration file.
const neutronConfig = "/etc/neutron/neutron.conf"

// commandArgs returns heddle's arguments, given those of a program that may be a link to it.
func commandArgs(args []string) []string {
	switch filepath.Base(args[0]) {
	case calicoDHCPAgent:
		return append([]string{"dhcp-agent"}, args[1:]...)
	case xeName:
		return append([]string{xeName}, args[1:]...)
	case cniName:
		return append([]string{"cni"}, args[1:]...)
	case libvirtHookName:
		return append([]string{"libvirt-hook"}, args[1:]...)
	}
	return args[1:]
}

// dhcpAgentConfig holds the settings of a standalone DHCP agent, from flags and Neutron's files.
type dhcpAgentConfig struct {
	files   []string
	metrics string
	cleanup bool
	log     logConfig
	admin   adminConfig
}

func dhcpAgentCommand() *cobra.Command {
	var c dhcpAgentConfig
	cmd := &cobra.Command{
		Use:   "dhcp-agent",
		Short: "Run this host's DHCP agent with Neutron's configuration files",
		Long: `Gives this host's workloads their addresses, as heddle agent --dhcp does, with the options of Neutron's files; those about
etcd are in the group [calico]. Called by the name calico-dhcp-agent, heddle is this command.
  calico-dhcp-agent --config-file /etc/neutron/neutron.conf --config-file /etc/neutron/plugins/ml2/ml2_conf.ini
When it stops dnsmasq goes on, for the next one to adopt; --cleanup ends it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.files, "config-file", nil, "`file` with options, as oslo.config reads them; may be given several times, later ones override (default "+neutronConfig+")")
	f.StringVar(&c.metrics, "metrics", "127.0.0.1:9695", "`address` of /metrics, /healthz, /readyz and, on loopback, /debug/pprof")
	f.BoolVar(&c.cleanup, "cleanup", false, "stop dnsmasq, remove the gateway device, and exit")
	c.log.flags(f)
	c.admin.flags(f, "dhcp-agent")
	return cmd
}

// settings reads the files.
func (c *dhcpAgentConfig) settings() (oslo.Settings, error) {
	files := c.files
	if len(files) == 0 {
		files = []string{neutronConfig}
	}
	config, err := oslo.ReadFiles(files...)
	if errors.Is(err, fs.ErrNotExist) && len(c.files) == 0 {
		err = fmt.Errorf("%w: name Neutron's files with --config-file", err)
	}
	if err != nil {
		return oslo.Settings{}, err
	}
	s, err := config.Settings()
	if err != nil || s.Host != "" {
		return s, err
	}
	if s.Host, err = os.Hostname(); err != nil {
		return s, fmt.Errorf("%w; give one as [DEFAULT] host", err)
	}
	return s, nil
}

// readFiles reads the settings of Neutron's files as heddle reload names them.
func (c *dhcpAgentConfig) readFiles() (flagValues, error) {
	s, err := c.settings()
	return osloValues(s), err
}

// osloValues names the settings of Neutron's files for heddle reload: together, since most options
// of these files are not the agent's.
func osloValues(s oslo.Settings) flagValues {
	return flagValues{"the options in config-file": fmt.Sprintf("%+v", s)}
}

func (c *dhcpAgentConfig) run(ctx context.Context) error {
	log, err := c.log.logger()
	if err != nil {
		return usageError{err}
	}
	s, err := c.settings()
	if err != nil {
		return usageError{err}
	}
	o := dhcp.Options{Host: s.Host, Plan: s.Plan, Watchdog: new(task.Watchdog), Log: log.With("part", "dhcp")}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	if c.cleanup {
		return dhcp.Cleanup(o)
	}
	if err := checkCapabilities(calicoDHCPAgent, "dhcp"); err != nil {
		return err
	}
	if err := dhcp.Alone(); err != nil {
		return err
	}
	metrics := telemetry.NewMetrics(version)
	cluster := &backend.Cluster{Endpoints: []string{s.Etcd.Endpoint}, CAFile: s.Etcd.CACertFile, CertFile: s.Etcd.CertFile, KeyFile: s.Etcd.KeyFile,
		User: s.Etcd.Username, Password: s.Etcd.Password}
	opening := newOpener(clusterOpener(cluster, log.With("part", "store")), o.Log)
	defer opening.store.Close()
	o.Store, o.Snapshots = opening.store, filepath.Join(o.Plan.Dir, "snapshots")
	a := dhcp.New(o)
	metrics.Register(a.Metrics)
	log.Info("starting", "version", version, "host", s.Host, "etcd", s.Etcd.Endpoint, "files", c.files)
	health := c.admin.newHealth(observed{
		Options: telemetry.Options{Listen: c.metrics, Metrics: metrics, Hung: o.Watchdog.Hung, Log: log}, log: &c.log, settings: startedWith(ctx),
		readFiles: c.readFiles, starting: osloValues(s),
	}, waitingFor(&[]task.Task{a}))
	return withRights(task.Run(ctx, append(health, opening, newStoreProbe(o.Store, o.Log, metrics), a)...))
}

// withRights adds a hint to an error of a process that does not run as root.
func withRights(err error) error {
	if user := os.Geteuid(); err != nil && user != 0 {
		return fmt.Errorf("%w (as user %d; agents run as root)", err, user)
	}
	return err
}

// probeDnsmasq returns an error unless dnsmasq is installed.
func probeDnsmasq(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "dnsmasq", "--version").Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return fmt.Errorf("dnsmasq --version: %w", err)
	}
	if err != nil {
		return err
	}
	return dhcp.CheckVersion(string(out))
}
