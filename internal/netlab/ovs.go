package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ovsFabricMTU has room for an inner frame of 1500 bytes in any tunnel: Open vSwitch in user
	// space neither fragments nor reports that (ovs-lab §4.3).
	ovsFabricMTU = 1600
	// ovsTimeout bounds each step of starting a host on a busy machine.
	ovsTimeout = 20 * time.Second
	ovsSchema  = "/usr/share/openvswitch/vswitch.ovsschema"
	// OVSDBPort is the port of a host's database once a Manager row sets it.
	OVSDBPort = 6640
)

// ovsPrograms are the Debian packages' that a host needs.
var ovsPrograms = []string{"ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovsdb-tool", "ovs-appctl", "ethtool"}

// OVSLab is a set of hosts with Open vSwitch in user space, each in a namespace, and the fabric
// that joins them:
//
//	machine ns (eth0) ── veth ── [ host ns: bridge of a network ── gre, vxlan ports ]
//	                             [          br-phy: the host's transport address    ]
//	                             [            └── leg (veth) ] ── fabric ns: br0, 198.18.0.254
//
// No kernel module is needed, and each host has a database and a switch daemon of its own.
type OVSLab struct {
	*Lab
	// Fabric is the namespace of the wire between the hosts. From it every host's transport address
	// can be reached.
	Fabric *Namespace
	dir    string

	mu    sync.Mutex
	hosts []*OVSHost
}

// OVSHost is one of them.
type OVSHost struct {
	Name    string
	Space   *Namespace
	Address netip.Addr // its transport address, on br-phy
	Dir     string     // its database, sockets and logs

	lab      *OVSLab
	index    int
	log      Log
	database *exec.Cmd // nil while it does not run
	daemon   *exec.Cmd
	vtep     bool // it is a hardware VTEP; see BecomeVTEP
	emulator *exec.Cmd
}

// NewOVSLab makes the fabric. The hosts keep files and sockets in dir, whose name must be short: it
// is part of socket addresses.
func NewOVSLab(lab *Lab, dir string) (*OVSLab, error) {
	fabric, err := lab.Namespace("fab")
	if err != nil {
		return nil, err
	}
	err = fabric.IP("link add br0 type bridge", fmt.Sprintf("link set br0 mtu %d up", ovsFabricMTU),
		"addr add 198.18.0.254/24 dev br0")
	return &OVSLab{Lab: lab, Fabric: fabric, dir: dir}, errors.Join(err, fabric.finishFrames("br0"))
}

// FindOVS reports a missing program that a lab of switches needs.
func FindOVS() error {
	for _, program := range ovsPrograms {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("install openvswitch-switch and ethtool: %w", err)
		}
	}
	return nil
}

// OVSForTest makes a lab with hosts h1, h2, … for a test. It skips the test without the rights or
// programs, and logs the daemons' logs when the test fails.
func OVSForTest(t TB, hosts int) *OVSLab {
	t.Helper()
	if err := FindOVS(); err != nil {
		t.Skipf("this test runs Open vSwitch: %v", err)
	}
	lab := ForTest(t)
	dir, err := os.MkdirTemp("", "ovs")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := NewOVSLab(lab, dir)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", l.Logs())
		}
		if err := l.StopHosts(); err != nil {
			t.Errorf("stop the hosts: %v", err)
		}
	})
	for i := range hosts {
		if _, err := l.Host(fmt.Sprintf("h%d", i+1)); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return l
}

// Hosts returns the lab's hosts, in the order of their making.
func (l *OVSLab) Hosts() []*OVSHost {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.hosts)
}

// Host makes a host that runs. Its transport address is 198.18.0.n for the nth.
func (l *OVSLab) Host(name string) (*OVSHost, error) {
	space, err := l.Namespace(name)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	n := len(l.hosts) + 1
	h := &OVSHost{Name: name, Space: space, Address: netip.AddrFrom4([4]byte{198, 18, 0, byte(n)}), lab: l, index: n,
		Dir: filepath.Join(l.dir, name)}
	l.hosts = append(l.hosts, h)
	l.mu.Unlock()
	if err := os.MkdirAll(h.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := run("ovsdb-tool", "create", h.file("conf.db"), ovsSchema); err != nil {
		return nil, fmt.Errorf("host %s: %w", name, err)
	}
	if err := l.Veth(space, "leg", l.Fabric, h.wire()); err != nil {
		return nil, err
	}
	err = errors.Join(space.IP(fmt.Sprintf("link set leg mtu %d", ovsFabricMTU)),
		l.Fabric.IP(fmt.Sprintf("link set %s mtu %d master br0", h.wire(), ovsFabricMTU)))
	if err != nil {
		return nil, err
	}
	return h, h.Start()
}

// StopHosts ends the daemons of all hosts. The namespaces stay, for [Lab.Close].
func (l *OVSLab) StopHosts() error {
	var errs []error
	for _, h := range l.Hosts() {
		errs = append(errs, h.KillSwitch(), h.KillDatabase())
	}
	return errors.Join(errs...)
}

// Logs returns the logs of all daemons.
func (l *OVSLab) Logs() string {
	var b strings.Builder
	for _, h := range l.Hosts() {
		for _, name := range []string{"db.log", "vs.log", "vtep.log"} {
			raw, err := os.ReadFile(h.file(name))
			fmt.Fprintf(&b, "# %s: %s\n%s", h.Name, name, raw)
			if err != nil {
				fmt.Fprintln(&b, err)
			}
		}
		b.WriteString(h.log.String())
	}
	return b.String()
}

func (h *OVSHost) file(name string) string { return filepath.Join(h.Dir, name) }

// wire is the fabric's end of the host's leg.
func (h *OVSHost) wire() string { return fmt.Sprintf("f%d", h.index) }

// DB returns the address of the host's database for the whole machine, as OVSDB clients write it.
func (h *OVSHost) DB() string { return "unix:" + h.file("db.sock") }

// Start starts those of a host's daemons that do not run, and waits until the switch has its
// transport address. After [OVSHost.Kill] the host returns with its database.
func (h *OVSHost) Start() error {
	if err := h.StartDatabase(); err != nil {
		return err
	}
	if err := h.StartSwitch(); err != nil {
		return err
	}
	return h.Cut(false)
}

// StartDatabase starts ovsdb-server and waits until it answers. It also listens as Manager rows
// demand, with the certificates of the SSL row.
func (h *OVSHost) StartDatabase() error {
	if h.database != nil {
		return nil
	}
	databases := []string{h.file("conf.db")}
	if h.vtep {
		databases = append(databases, h.file("vtep.db"), fmt.Sprintf("--remote=ptcp:%d", OVSDBPort))
	}
	cmd, err := h.spawn("ovsdb-server", append(databases, "--remote=p"+h.DB(), "--unixctl="+h.file("db.ctl"),
		"--remote=db:Open_vSwitch,Open_vSwitch,manager_options", "--private-key=db:Open_vSwitch,SSL,private_key",
		"--certificate=db:Open_vSwitch,SSL,certificate", "--ca-cert=db:Open_vSwitch,SSL,ca_cert",
		"--log-file="+h.file("db.log"), "-vconsole:off")...)
	if err != nil {
		return err
	}
	h.database = cmd
	ctx, cancel := context.WithTimeout(context.Background(), ovsTimeout)
	defer cancel()
	err = Until(ctx, "database of host "+h.Name, func() (bool, error) {
		c, err := net.Dial("unix", h.file("db.sock"))
		if err != nil {
			return false, nil
		}
		return true, c.Close()
	})
	if err != nil {
		return err
	}
	_, err = h.Vsctl("--no-wait", "init")
	return err
}

// StartSwitch starts ovs-vswitchd and waits until it has made br-phy, with the transport address.
func (h *OVSHost) StartSwitch() error {
	if h.daemon != nil {
		return nil
	}
	cmd, err := h.spawn("ovs-vswitchd", h.DB(), "--unixctl="+h.file("vs.ctl"), "--log-file="+h.file("vs.log"),
		"-vconsole:off", "--disable-system")
	if err != nil {
		return err
	}
	h.daemon = cmd
	// br-phy needs another MAC address than the leg, or the kernel takes every frame on the leg for
	// itself too (ovs-lab §4.1).
	_, err = h.Vsctl("--may-exist", "add-br", "br-phy",
		"--", "set", "bridge", "br-phy", "datapath_type=netdev", "fail_mode=standalone",
		fmt.Sprintf(`other_config:hwaddr="02:00:00:00:01:%02x"`, h.index),
		"--", "--may-exist", "add-port", "br-phy", "leg",
		"--", "set", "interface", "br-phy", fmt.Sprintf("mtu_request=%d", ovsFabricMTU))
	if err != nil {
		return err
	}
	return h.Space.IP(fmt.Sprintf("addr replace %s/24 dev br-phy", h.Address), "link set br-phy up")
}

// KillSwitch kills ovs-vswitchd, if it runs.
func (h *OVSHost) KillSwitch() error { return end(&h.daemon) }

// KillDatabase kills ovsdb-server, if it runs.
func (h *OVSHost) KillDatabase() error { return end(&h.database) }

// Kill is the host's sudden death: both daemons are killed and its wire is cut.
func (h *OVSHost) Kill() error {
	return errors.Join(h.Cut(true), h.KillSwitch(), h.KillDatabase())
}

// Cut cuts the host's wire, or restores it; the daemons go on.
func (h *OVSHost) Cut(cut bool) error {
	state := "up"
	if cut {
		state = "down"
	}
	return h.lab.Fabric.IP("link set " + h.wire() + " " + state)
}

// FreezeDatabase stops ovsdb-server, or lets it go on: connections stay, nothing answers.
func (h *OVSHost) FreezeDatabase(frozen bool) error { return freeze(h.database, frozen) }

// FreezeSwitch does the same to ovs-vswitchd.
func (h *OVSHost) FreezeSwitch(frozen bool) error { return freeze(h.daemon, frozen) }

// Vsctl runs ovs-vsctl on the host's database and waits for the switch, unless with --no-wait.
func (h *OVSHost) Vsctl(args ...string) (string, error) {
	return h.command("ovs-vsctl", append([]string{fmt.Sprintf("--timeout=%d", int(ovsTimeout.Seconds())), "--db=" + h.DB()}, args...)...)
}

// Appctl runs a command on the switch's control socket.
func (h *OVSHost) Appctl(args ...string) (string, error) {
	return h.command("ovs-appctl", append([]string{"--timeout=10", "-t", h.file("vs.ctl")}, args...)...)
}

// Machine makes a namespace with an interface eth0 of that address and prefix length. Its other end
// on the host is port: "v" and the name, at most 15 characters. It is on no bridge yet.
func (h *OVSHost) Machine(name, prefix string) (space *Namespace, port string, err error) {
	if space, err = h.lab.Namespace(name); err != nil {
		return nil, "", err
	}
	port = "v" + name
	if err := h.lab.Veth(h.Space, port, space, "eth0"); err != nil {
		return nil, "", err
	}
	return space, port, errors.Join(space.finishFrames("eth0"), space.IP("addr add "+prefix+" dev eth0"))
}

// finishFrames has the kernel fill in checksums before frames leave through the interface: a switch
// in user space never does, and frames without them would be dropped at their end (ovs-lab §4.2).
func (n *Namespace) finishFrames(name string) error {
	_, err := n.Output(context.Background(), "ethtool", "-K", name, "tx", "off", "tso", "off", "gso", "off")
	return err
}

// spawn starts a daemon in the host's namespace.
func (h *OVSHost) spawn(name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = h.environment()
	cmd.Stdout, cmd.Stderr = &h.log, &h.log
	if err := h.Space.Start(cmd); err != nil {
		return nil, fmt.Errorf("host %s: start %s: %w", h.Name, name, err)
	}
	return cmd, nil
}

func (h *OVSHost) environment() []string {
	return append(os.Environ(), "OVS_RUNDIR="+h.Dir, "OVS_LOGDIR="+h.Dir, "OVS_DBDIR="+h.Dir, "OVS_SYSCONFDIR="+h.Dir)
}

// command runs a tool, which finds the host by its sockets.
func (h *OVSHost) command(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = h.environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("host %s: %s %s: %w: %s", h.Name, name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

func end(cmd **exec.Cmd) error {
	if *cmd == nil {
		return nil
	}
	err := (*cmd).Process.Kill()
	var exit *exec.ExitError // what a killed one leaves
	if waitErr := (*cmd).Wait(); !errors.As(waitErr, &exit) {
		err = errors.Join(err, waitErr)
	}
	*cmd = nil
	return err
}

func freeze(cmd *exec.Cmd, frozen bool) error {
	if cmd == nil {
		return errors.New("it does not run")
	}
	if frozen {
		return cmd.Process.Signal(unix.SIGSTOP)
	}
	return cmd.Process.Signal(unix.SIGCONT)
}

// Reach pings an address from the namespace until an answer comes.
func (n *Namespace) Reach(ctx context.Context, address string) error {
	return Until(ctx, fmt.Sprintf("answer of %s to %s", address, n.Name), func() (bool, error) {
		_, err := n.Output(ctx, "ping", "-n", "-q", "-c1", "-W0.2", address)
		return err == nil, nil
	})
}
