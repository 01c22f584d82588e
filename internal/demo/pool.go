package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"golang.org/x/sync/errgroup"

	"heddle/internal/cloud"
	"heddle/internal/lab"
	"heddle/internal/netlab"
)

const (
	// xenHosts is the least number of hosts for a star with two spokes.
	xenHosts = 3
	// fabricIP is the address of the pool's server on the hosts' network (see netlab.OVSLab).
	fabricIP = "198.18.0.254"
	// controllerHealth is the tunnel controller's address of health and metrics.
	controllerHealth = "127.0.0.1:9693"
)

// xen has the pool of the part about private networks: hosts with Open vSwitch, server and
// controller.
//
//	heddle-demo-fab  198.18.0.254, heddle xapi, heddle tunnel-controller
//	      │ leg of each host
//	heddle-demo-x1   198.18.0.1 on br-phy, heddle agent --xen, xapi0 (the private network)
//	      │ eth0 of the host's machine
//	heddle-demo-m1   10.77.0.1
type xen struct {
	*lab.Lab   // of the pool's server; its hosts are those below
	switches   *netlab.OVSLab
	controller *lab.Process
	passwords  string // file with root's password, as xe reads it
	pool       []*xenHost
	network    string // its uuid
	closed     bool

	stop   context.CancelFunc // of the staging
	staged chan struct{}      // closed when it has ended
	err    error              // of the staging
}

// xenHost is a host of the pool with its workload.
type xenHost struct {
	*netlab.OVSHost
	*lab.Host
	uuid, transport string // of the host and of its PIF
	tunnel, vm      string // uuids too
	machine         *workload
}

// newXen starts the pool in the background. It fails if a program is missing.
func newXen(ctx context.Context, l *lab.Lab) (*xen, error) {
	if err := netlab.FindOVS(); err != nil {
		return nil, err
	}
	x := &xen{staged: make(chan struct{}), Lab: &lab.Lab{Prefix: l.Prefix, Spaces: netlab.New(l.Prefix), Binary: l.Binary, Dir: filepath.Join(l.Dir, "xen")}}
	ctx, x.stop = context.WithCancel(ctx)
	go func() {
		defer close(x.staged)
		x.err = x.stage(ctx)
	}()
	return x, nil
}

// stage starts the server, the hosts' switches, the controller and the agents.
func (x *xen) stage(ctx context.Context) (err error) {
	if err := os.MkdirAll(x.Dir, 0o700); err != nil {
		return err
	}
	if x.switches, err = netlab.NewOVSLab(x.Spaces, x.Dir); err != nil {
		return err
	}
	x.Ctl = x.switches.Fabric
	var g errgroup.Group
	g.Go(func() error { return x.startPool(ctx) })
	g.Go(x.startSwitches)
	if err := g.Wait(); err != nil {
		return err
	}
	g.Go(func() error { return x.startController(ctx) })
	for _, h := range x.pool {
		g.Go(func() error { return x.Join(ctx, h.Host) })
	}
	return g.Wait()
}

// startPool starts the pool's server and gives the controller an account.
func (x *xen) startPool(ctx context.Context) (err error) {
	data := filepath.Join(x.Dir, "server")
	x.Server, err = x.Start(ctx, x.Ctl, "xapi", "xapi", "--data", data, "--metrics", lab.TelemetryAddr,
		"--agents-listen", fabricIP+":2379", "--operator-listen", fabricIP+":9698")
	if err != nil {
		return err
	}
	x.Cloud = cloud.Config{File: filepath.Join(data, "clouds.yaml"), Dial: lab.DialIn(x.Ctl)}
	if x.Admin, err = x.Cloud.Login(ctx); err != nil {
		return err
	}
	root, err := os.ReadFile(filepath.Join(data, "xapi-root-password"))
	if err != nil {
		return err
	}
	x.passwords = filepath.Join(x.Dir, "root")
	if err := os.WriteFile(x.passwords, append([]byte("root\n"), root...), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(x.controllerPassword(), []byte("only-for-the-demo\n"), 0o600); err != nil {
		return err
	}
	_, err = x.Ctl.Output(ctx, x.Binary, "xapi", "account", "add", "controller", "--role", "tunnel-controller",
		"--password-file", x.controllerPassword(), "--data", data)
	return err
}

func (x *xen) controllerPassword() string { return filepath.Join(x.Dir, "controller") }

// startSwitches makes the hosts, without agents.
func (x *xen) startSwitches() error {
	for i := range xenHosts {
		s, err := x.switches.Host(fmt.Sprintf("x%d", i+1))
		if err != nil {
			return err
		}
		ip := s.Address.String()
		x.pool = append(x.pool, &xenHost{OVSHost: s, Host: &lab.Host{Name: x.HostPrefix() + s.Name, NS: s.Space, IP: ip,
			Roles: []string{"--xen", "--xen-ovsdb", s.DB(), "--xen-ovsdb-listen", ip, "--xen-datapath", "netdev"}}})
	}
	return nil
}

// startController starts the tunnel controller, which uses TLS to the switches' databases, with a
// certificate of the server's authority.
func (x *xen) startController(ctx context.Context) (err error) {
	x.controller, err = x.StartAt(ctx, x.Ctl, "controller", controllerHealth, "tunnel-controller", "--data", filepath.Join(x.Dir, "server"),
		"--user", "controller", "--password-file", x.controllerPassword(), "--metrics", controllerHealth)
	return err
}

// close ends and removes everything. Closing again does nothing.
func (x *xen) close() error {
	if x == nil || x.closed {
		return nil
	}
	x.closed = true
	x.stop()
	<-x.staged
	for _, h := range x.pool {
		if h.Agent != nil {
			h.Agent.Stop()
		}
	}
	for _, p := range []*lab.Process{x.controller, x.Server} {
		if p != nil {
			p.Stop()
		}
	}
	var err error
	if x.switches != nil {
		err = x.switches.StopHosts()
	}
	return errors.Join(err, x.Spaces.Close())
}

// xe runs a command of xe and returns its output.
func (x *xen) xe(ctx context.Context, args ...string) (string, error) {
	out, err := x.Ctl.Output(ctx, x.Binary, append([]string{"xe", "-pwf", x.passwords}, args...)...)
	return strings.TrimSpace(out), err
}

// find returns the uuids that a list command of xe prints.
func (x *xen) find(ctx context.Context, list string, filters ...string) (string, error) {
	return x.xe(ctx, append([]string{list, "--minimal"}, filters...)...)
}

// statuses returns the status of each tunnel by uuid.
func (x *xen) statuses(ctx context.Context) (map[string]map[string]string, error) {
	out, err := x.xe(ctx, "tunnel-list", "params=uuid,status")
	if err != nil {
		return nil, err
	}
	all := map[string]map[string]string{}
	uuid := ""
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name, _, _ = strings.Cut(name, " "); name {
		case "uuid":
			uuid = value
		case "status":
			all[uuid] = map[string]string{}
			for pair := range strings.SplitSeq(value, "; ") {
				k, v, _ := strings.Cut(pair, ": ")
				all[uuid][k] = v
			}
		}
	}
	return all, nil
}

// plug gives the host a workload whose interface is a VIF on the network.
func (x *xen) plug(ctx context.Context, h *xenHost, i int) error {
	name, address := fmt.Sprintf("m%d", i+1), fmt.Sprintf("10.77.0.%d", i+1)
	ns, port, err := h.Machine(name, address+"/24")
	if err != nil {
		return err
	}
	h.machine = &workload{&lab.Workload{Name: name, NS: ns, Port: &ports.Port{FixedIPs: []ports.IP{{IPAddress: address}}}}}
	if h.vm, err = x.xe(ctx, "vm-create", "name-label="+name); err != nil {
		return err
	}
	if _, err := x.xe(ctx, "vif-create", "vm-uuid="+h.vm, "network-uuid="+x.network, "device=0"); err != nil {
		return err
	}
	if _, err := x.xe(ctx, "vm-start", "uuid="+h.vm, "on="+h.uuid); err != nil {
		return err
	}
	domain, err := x.xe(ctx, "vm-param-get", "uuid="+h.vm, "param-name=dom-id")
	if err != nil {
		return err
	}
	// A hypervisor would name the interface so, and the port on the bridge.
	device := "vif" + domain + ".0"
	return h.Space.IP("link set "+port+" down", "link set "+port+" name "+device, "link set "+device+" up")
}
