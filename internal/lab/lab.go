// Package lab runs a small data center on this machine for the demo and the benchmarks: namespaces
// for hosts and workloads, processes of this binary, tenants that call the API, and traffic.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"heddle/internal/cloud"
	"heddle/internal/netlab"
)

const (
	// ServerIP is the server's address on the underlay, from the documentation range (RFC 5737).
	ServerIP = "192.0.2.1"
	// TelemetryAddr is the address of health and metrics of every process, in its own namespace.
	// LogDir is the directory of Neutron's logs, below that of a host's agent.
	LogDir        = "logs"
	TelemetryAddr = "127.0.0.1:9697"
	// StartTimeout bounds the start of a process.
	StartTimeout = 30 * time.Second
)

// Lab is a small data center: a namespace with the underlay's switch and the server, and one for
// each host with its agent.
//
//	heddle-demo-ctl  bridge underlay 192.0.2.1/24, heddle serve
//	      │ eth0 of each host
//	heddle-demo-h1   eth0 192.0.2.11, heddle agent, host ends of its workloads
//	      │ eth0 of each workload
//	heddle-demo-a1   a workload
type Lab struct {
	Prefix string // begins the name of everything the lab makes
	Spaces *netlab.Lab
	Binary string            // this program
	Dir    string            // holds the server's data, the agents' state and all logs
	Ctl    *netlab.Namespace // has the switch, the server and a tenant's clients
	Server *Process
	Hosts  []*Host
	Cloud  cloud.Config   // of the server
	Admin  *cloud.Session // the server's first user
	closed bool
}

// Host is a simulated host.
type Host struct {
	Name     string
	NS       *netlab.Namespace
	IP       string   // by which other hosts send tunnelled packets
	MaxFlows int      // of its agent; 0 = as many as it takes by itself
	Roles    []string // flags of its agent; none: --overlay
	Agent    *Process
}

// New starts the server of a lab. After an error the lab, unless nil, has to be closed.
func New(ctx context.Context, prefix, dir string) (*Lab, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &Lab{Prefix: prefix, Spaces: netlab.New(prefix), Binary: binary, Dir: dir}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return nil, err
	}
	return l, l.startServer(ctx)
}

func (l *Lab) startServer(ctx context.Context) (err error) {
	if l.Ctl, err = l.Spaces.Namespace("ctl"); err != nil {
		return err
	}
	if err := l.Ctl.IP("link add underlay type bridge", "addr add "+ServerIP+"/24 dev underlay", "link set underlay up"); err != nil {
		return err
	}
	data := filepath.Join(l.Dir, "server")
	l.Server, err = l.Start(ctx, l.Ctl, "server", "serve", "--data", data, "--metrics", TelemetryAddr,
		"--agents-listen", ServerIP+":2379", "--operator-listen", ServerIP+":9698")
	if err != nil {
		return err
	}
	l.Cloud = cloud.Config{File: filepath.Join(data, "clouds.yaml"), Dial: DialIn(l.Ctl)}
	l.Admin, err = l.Cloud.Login(ctx)
	return err
}

// AddHost adds a host, without an agent.
func (l *Lab) AddHost() (*Host, error) {
	i := len(l.Hosts) + 1
	short := fmt.Sprintf("h%d", i)
	h, err := l.Attach(short, l.HostPrefix()+short, fmt.Sprintf("192.0.2.%d", 10+i))
	l.Hosts = append(l.Hosts, h)
	return h, err
}

// Attach makes a namespace whose eth0 is on the underlay, without adding it to the hosts.
func (l *Lab) Attach(short, name, ip string) (*Host, error) {
	h := &Host{Name: name, IP: ip}
	var err error
	if h.NS, err = l.Spaces.Namespace(short); err != nil {
		return h, err
	}
	if err := l.Spaces.Veth(l.Ctl, short, h.NS, "eth0"); err != nil {
		return h, err
	}
	if err := l.Ctl.IP("link set " + short + " master underlay"); err != nil {
		return h, err
	}
	return h, h.NS.IP("addr add " + ip + "/24 dev eth0")
}

// HostPrefix returns the beginning of the hosts' names: in heddle-demo they are demo-h1, demo-h2…
func (l *Lab) HostPrefix() string { return strings.TrimPrefix(l.Prefix, "heddle-") + "-" }

// Join starts the agent of a new host and waits until it is ready.
func (l *Lab) Join(ctx context.Context, h *Host) error {
	var token struct {
		Token string `json:"token"`
	}
	if err := l.Admin.Operator(ctx, http.MethodPost, "/v1/join-tokens", map[string]string{"name": h.Name}, &token); err != nil {
		return err
	}
	return l.StartAgent(ctx, h, "--join", token.Token)
}

// StartAgent starts a host's agent with more flags, and waits until it is ready.
func (l *Lab) StartAgent(ctx context.Context, h *Host, more ...string) (err error) {
	roles := h.Roles
	if len(roles) == 0 {
		roles = []string{"--overlay", "--tunnel-ip", h.IP, "--max-flows", strconv.Itoa(h.MaxFlows)}
	}
	state := filepath.Join(l.Dir, h.Name)
	args := append([]string{"agent", "--name", h.Name, "--state", state, "--log-dir", filepath.Join(state, LogDir), "--metrics", TelemetryAddr}, roles...)
	h.Agent, err = l.Start(ctx, h.NS, h.Name, append(args, more...)...)
	return err
}

// Close stops everything and removes what the lab made. Closing again does nothing.
func (l *Lab) Close(ctx context.Context) error {
	if l.closed {
		return nil
	}
	l.closed = true
	var errs []error
	for _, h := range l.Hosts {
		if h.Agent != nil {
			h.Agent.Stop()
		}
		if h.NS != nil {
			errs = append(errs, l.CleanUp(ctx, h.NS, h.Name, h.Roles...))
		}
	}
	if l.Server != nil {
		l.Server.Stop()
	}
	return errors.Join(append(errs, l.Spaces.Close())...)
}

// CleanUp removes what the agent of a host has made in the kernel. roles are the agent's flags;
// none: --overlay.
func (l *Lab) CleanUp(ctx context.Context, ns *netlab.Namespace, host string, roles ...string) error {
	if len(roles) == 0 {
		roles = []string{"--overlay"}
	}
	args := append([]string{"agent", "--cleanup", "--name", host, "--state", filepath.Join(l.Dir, host)}, roles...)
	if out, err := ns.Output(ctx, l.Binary, args...); err != nil {
		return fmt.Errorf("clean up after the agent of %s: %w: %s", host, err, strings.TrimSpace(out))
	}
	return nil
}

// Clean removes what an earlier run left behind: processes, namespaces, pinned maps, files.
func Clean(prefix, dir string) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	l := &Lab{Prefix: prefix, Spaces: netlab.New(prefix), Binary: binary, Dir: dir}
	if err := l.cleanUpLeft(); err != nil {
		return err
	}
	if _, err := netlab.Sweep(prefix); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// cleanUpLeft removes what the agents of an earlier run have made. It works in the namespaces of
// their hosts, since a service container counts as another host's while its link has an end there.
func (l *Lab) cleanUpLeft() error {
	states, err := filepath.Glob(filepath.Join(l.Dir, l.HostPrefix()+"h*[0-9]"))
	if err != nil {
		return err
	}
	spaces := make([]*netlab.Namespace, len(states))
	for i, state := range states { // all agents end before the first one's containers can move
		if spaces[i], err = l.Spaces.Adopt(strings.TrimPrefix(filepath.Base(state), l.HostPrefix())); err != nil {
			return err
		}
	}
	var errs []error
	for i, state := range states {
		if hadAgent(state) {
			errs = append(errs, l.CleanUp(context.Background(), spaces[i], filepath.Base(state)))
		}
	}
	return errors.Join(errs...)
}

// hadAgent reports whether a state directory is that of an agent that joined: one that was killed
// before has made nothing, and no cleanup knows it.
func hadAgent(state string) bool {
	_, err := os.Stat(filepath.Join(state, "host.json"))
	return err == nil
}
