package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"heddle/internal/api/hosts"
	"heddle/internal/cli"
	xenagent "heddle/internal/xen/agent"
)

// xenConfig holds the settings of a pool host's agent.
type xenConfig struct {
	on         bool
	ovsdb      string
	datapath   string
	address    string
	interfaces []string
	listen     string
}

func (c *xenConfig) flags(f *pflag.FlagSet) {
	f.BoolVar(&c.on, "xen", false, "make this host one of a XenAPI pool: its networks' bridges are made in Open vSwitch")
	f.StringVar(&c.ovsdb, "xen-ovsdb", xenagent.DefaultOVSDB, "`address` of this host's Open vSwitch database: unix:PATH or tcp:HOST:PORT")
	f.StringVar(&c.datapath, "xen-datapath", "", "`datapath_type` of bridges: system or netdev (default netdev where the kernel has no Open vSwitch)")
	f.StringVar(&c.address, "xen-address", "", "IP `address` of this host in the pool (default that of the interface with the default route, else the first)")
	f.StringSliceVar(&c.interfaces, "xen-interface", nil, "`names` of interfaces that are PIFs beside network cards, joined by commas; * and ? stand for any characters")
	f.StringVar(&c.listen, "xen-ovsdb-listen", "", "`address` on which Open vSwitch's database listens for tunnel controllers, port 6640, by TLS with this host's certificate (default none)")
}

// poolState returns the directory of the credentials from pool.join, which override all others.
func poolState(state string) string { return filepath.Join(state, "pool") }

// options returns the agent's options on a host with this id, name and state directory.
func (c *xenConfig) options(id, name, state string) (xenagent.Options, error) {
	o := xenagent.Options{HostID: id, HostName: name, Version: version, Address: c.address, OVSDB: c.ovsdb, Datapath: c.datapath, Interfaces: c.interfaces,
		Addresses: filepath.Join(state, "xen-addresses.json")}
	if c.listen == "" {
		return o, nil
	}
	address, err := netip.ParseAddr(c.listen)
	if err != nil {
		return o, usagef("--xen-ovsdb-listen %q: want an IP address of this host", c.listen)
	}
	joined, dir, err := joinedPool(state)
	if errors.Is(err, hosts.ErrNotJoined) {
		return o, usagef("--xen-ovsdb-listen: a host has a certificate once it has joined: run `heddle host token` on the server and give the file with its token with --join-file")
	} else if err != nil {
		return o, err
	}
	o.Listen = &xenagent.Listen{Address: address, Certificate: joined.CertFile, Key: joined.KeyFile, CA: filepath.Join(dir, controllersFile)}
	for _, file := range []*string{&o.Listen.Certificate, &o.Listen.Key, &o.Listen.CA} {
		if *file, err = filepath.Abs(*file); err != nil {
			return o, err
		}
	}
	return o, nil
}

// joinedPool returns the credentials of the pool that the host is in, and their directory: those
// from pool.join, or else those from its first join.
func joinedPool(state string) (joined hosts.Credentials, dir string, err error) {
	dir = poolState(state)
	if joined, err = hosts.Load(dir); errors.Is(err, hosts.ErrNotJoined) {
		dir = state
		joined, err = hosts.Load(dir)
	}
	return joined, dir, err
}

// check validates the settings. A host that is about to join has no certificate yet.
func (c *xenConfig) check(name, state string, joins bool) error {
	if !c.on {
		return nil
	}
	plain := *c
	if joins {
		plain.listen = ""
	}
	o, err := plain.options("any", name, state)
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

// agent builds the agent of a pool's host.
func (c *xenConfig) agent(t *agents) (agent, error) {
	o, err := c.options(t.id, t.config.name, t.config.state)
	if err != nil {
		return nil, err
	}
	o.Store, o.Snapshots, o.Watchdog, o.Log, o.Move = t.store, t.config.snapshots(), &t.watchdog, t.log.With("part", "xen"), t.move
	a := xenagent.New(o)
	if o.Listen != nil {
		t.following = append(t.following, newControllersCA(t.store, o.Listen.CA, t.log.With("part", "certificate"), a.Relisten))
	}
	return a, nil
}

// cleanUp removes the agent's bridges from the database in the flags, or else from the recorded
// one.
func (c *xenConfig) cleanUp(recorded string) error {
	ovsdb := c.ovsdb
	if !c.on {
		ovsdb = cmp.Or(recorded, ovsdb)
	}
	return xenagent.Cleanup(xenagent.Options{OVSDB: ovsdb})
}

// move joins another pool by a token. startOver then starts this host's agents again, in that pool.
func (t *agents) move(ctx context.Context, token string) (startOver func(), err error) {
	_, err = hosts.Join(ctx, token, hosts.JoinOptions{Name: t.config.name, StateDir: poolState(t.config.state), AllowPlain: t.config.joining.plain})
	if err != nil {
		return nil, err
	}
	return t.startOver, nil
}

// xenChecks returns heddle doctor's checks for a pool's host.
func xenChecks() []cli.Check {
	const who, install = "agent --xen", "apt-get install openvswitch-switch"
	return []cli.Check{
		{Name: "program ovs-vswitchd", For: who + ", demo", Optional: true, Fix: install, Run: probeVersion("ovs-vswitchd")},
		{Name: "program ovsdb-server", For: who + ", demo", Optional: true, Fix: install, Run: probeVersion("ovsdb-server")},
		{Name: "Open vSwitch runs", For: who, Optional: true, Fix: "systemctl enable --now openvswitch-switch", Run: func(ctx context.Context) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(xenagent.DefaultOVSDB, "unix:"))
			if err != nil {
				return err
			}
			return conn.Close()
		}},
		{Name: "Open vSwitch in the kernel", For: who + ": fast bridges", Optional: true, Fix: "use a kernel with the module openvswitch; without it bridges are made in user space, which is slower and needs the transport address on a bridge: docs/guides/xenapi.md",
			Run: func(context.Context) error {
				_, err := os.Stat("/sys/module/openvswitch")
				if err == nil {
					return nil
				}
				if out, err := exec.Command("modprobe", "--dry-run", "openvswitch").CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
				}
				return nil
			}},
	}
}

// probeVersion returns a check that a program is installed and starts.
func probeVersion(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := exec.CommandContext(ctx, name, "--version").Output()
		return err
	}
}
