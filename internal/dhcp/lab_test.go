package dhcp

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/dhcp/plan"
	"heddle/internal/netlab"
	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// timeout bounds every wait.
const timeout = 20 * time.Second

func TestMain(m *testing.M) {
	storetest.BeAgent(func(ctx context.Context, st *backend.Etcd, log *slog.Logger, o Options) error {
		o.Store, o.Log = st, log
		if os.Getenv(withoutInet6) != "" {
			if err := denyInet6(); err != nil {
				return err
			}
		}
		return New(o).Run(ctx)
	})
	os.Exit(m.Run())
}

// lab is an etcd and a host "h", whose workloads are namespaces behind veth pairs.
type lab struct {
	*netlab.Lab
	t       testing.TB
	dataDir string
	st      *backend.Etcd
	host    *netlab.Namespace
	options Options
	env     []string // of the agent, beside that of the test
	silent  bool     // machines do not ask for routers
	log     *netlab.Log
	cmd     *exec.Cmd
}

func newLab(t testing.TB) *lab {
	t.Helper()
	for _, program := range []string{"dnsmasq", "udhcpc", "dhclient"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("this test needs %s: run scripts/setup", program)
		}
	}
	l := &lab{Lab: netlab.ForTest(t), t: t, log: &netlab.Log{}}
	dir, err := os.MkdirTemp("", "hdhcp") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l.dataDir = filepath.Join(dir, "etcd")
	l.st = storetest.Open(t, l.dataDir)
	l.host = l.MustNamespace(t, "h")
	for name, value := range map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1", "net/ipv6/conf/default/accept_dad": "0"} {
		if err := l.host.Sysctl(name, value); err != nil {
			t.Fatal(err)
		}
	}
	l.options = Options{Host: "h", Plan: plan.Options{Dir: filepath.Join(dir, "dhcp")}}
	t.Cleanup(func() {
		l.kill()
		if t.Failed() {
			t.Logf("agent:\n%s", l.log)
		}
	})
	l.put("/calico/v1/Ready", "true")
	return l
}

// put writes keys with values, in pairs; a value of "" deletes.
func (l *lab) put(pairs ...string) { l.t.Helper(); storetest.Put(l.t, l.st, pairs...) }

// start runs the agent on the host, with the capabilities of its unit.
func (l *lab) start() {
	l.t.Helper()
	l.cmd = storetest.StartAgent(l.t, func(cmd *exec.Cmd) error {
		cmd.Env = append(cmd.Env, l.env...)
		capabilities, err := netlab.UnitCapabilities("../../docs/guides/files/calico-dhcp-agent.service")
		if err != nil {
			return err
		}
		if err := netlab.Confine(cmd, capabilities); err != nil {
			return err
		}
		return l.host.Start(cmd)
	}, l.dataDir, l.options, l.log)
}

// kill ends the agent without a word.
func (l *lab) kill() {
	if l.cmd != nil {
		_ = l.cmd.Process.Kill() // it may have ended
		_ = l.cmd.Wait()
		l.cmd = nil
	}
}

// until waits for a state of which nobody sends word.
func (l *lab) until(what string, cond func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), timeout)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		l.t.Fatal(err)
	}
}

// logged waits until the agent has said something that many times.
func (l *lab) logged(text string, times int) {
	l.t.Helper()
	l.until(fmt.Sprintf("%q in the log, %d times", text, times), func() bool { return strings.Count(l.log.String(), text) >= times })
}

// serving waits until a dnsmasq has taken over that many times in all.
func (l *lab) serving(times int) { l.t.Helper(); l.logged("dnsmasq serves", times) }

// pid is the number of the dnsmasq that serves.
func (l *lab) pid() int {
	l.t.Helper()
	raw, err := os.ReadFile(filepath.Join(l.options.Plan.Dir, pidFile))
	if err != nil {
		l.t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(raw), &pid); err != nil {
		l.t.Fatal(err)
	}
	return pid
}

// subnet writes a subnet; its key and value are returned for put.
func subnet(id, cidr, gateway, more string) (string, string) {
	return "/calico/dhcp/v1/subnet/" + id, fmt.Sprintf(`{"cidr": %q, "gateway_ip": %q%s}`, cidr, gateway, more)
}

// machine is a workload: interface eth0 in its own namespace, tapN on the host.
type machine struct {
	lab *lab
	n   int
	ns  *netlab.Namespace
}

// machine makes one, without an endpoint.
func (l *lab) machine(n int) *machine {
	l.t.Helper()
	m := &machine{l, n, l.MustNamespace(l.t, fmt.Sprintf("w%d", n))}
	if err := m.ns.Sysctl("net/ipv6/conf/default/accept_dad", "0"); err != nil {
		l.t.Fatal(err)
	}
	if l.silent {
		if err := m.ns.Sysctl("net/ipv6/conf/default/router_solicitations", "0"); err != nil {
			l.t.Fatal(err)
		}
	}
	m.ns.MustIP(l.t, fmt.Sprintf("link add eth0 address %s type veth peer name %s netns %s", m.mac(), m.tap(), l.host.Name), "link set eth0 up")
	// Another queue length has the kernel send at once: it may look for the carrier only after a
	// second, and lose what is sent until then.
	l.host.MustIP(l.t, "link set "+m.tap()+" up txqueuelen 1001")
	m.ns.MustIP(l.t, "link set eth0 txqueuelen 1001")
	return m
}

func (m *machine) mac() string { return fmt.Sprintf("02:65:00:00:%02x:%02x", m.n>>8, m.n&0xff) }
func (m *machine) tap() string { return fmt.Sprintf("tap%d", m.n) }

func endpointKey(n int) string {
	return fmt.Sprintf("/calico/v1/host/h/workload/openstack/i%d/endpoint/p%d", n, n)
}

// endpoint is the key and value of the machine's endpoint with these addresses, given as address,
// subnet and so on.
func (m *machine) endpoint(addresses ...string) (string, string) {
	nets, ids := map[bool][]string{true: {}, false: {}}, map[bool][]string{true: {}, false: {}}
	for i := 0; i < len(addresses); i += 2 {
		v6 := strings.Contains(addresses[i], ":")
		bits := map[bool]string{true: "/128", false: "/32"}[v6]
		nets[v6], ids[v6] = append(nets[v6], addresses[i]+bits), append(ids[v6], addresses[i+1])
	}
	value, err := json.Marshal(map[string]any{"state": "active", "name": m.tap(), "mac": m.mac(), "profile_ids": []string{},
		"ipv4_nets": nets[false], "ipv4_subnet_ids": ids[false], "ipv6_nets": nets[true], "ipv6_subnet_ids": ids[true],
		"fqdn": fmt.Sprintf("vm%d.example.org", m.n)})
	if err != nil {
		m.lab.t.Fatal(err)
	}
	return endpointKey(m.n), string(value)
}

// ask has the machine ask for an IPv4 address; "" when nobody gives it one. tries bounds the
// requests, a second apart.
func (m *machine) ask(tries int) (address, said string) {
	m.lab.t.Helper()
	ctx, cancel := context.WithTimeout(m.lab.t.Context(), timeout)
	defer cancel()
	out, _ := m.ns.Output(ctx, "udhcpc", "-i", "eth0", "-f", "-q", "-n", "-t", fmt.Sprint(tries), "-T", "1", "-s", "/bin/true")
	if _, rest, ok := strings.Cut(out, "lease of "); ok {
		address, _, _ = strings.Cut(rest, " ")
	}
	return address, out
}

// wantLease fails the test unless the machine gets the address by its first request.
func (m *machine) wantLease(address string) {
	m.lab.t.Helper()
	got, said := m.ask(1)
	if got != address || strings.Contains(said, "NAK") {
		m.lab.t.Errorf("machine %d got %q, want %q:\n%s", m.n, got, address, said)
	}
}

// ask6 has the machine ask for an IPv6 address; "" when nobody gives it one. What is said ends with
// the lease.
func (m *machine) ask6() (address, said string) {
	m.lab.t.Helper()
	dir := m.lab.t.TempDir()
	ctx, cancel := context.WithTimeout(m.lab.t.Context(), timeout)
	defer cancel()
	leases := filepath.Join(dir, "leases")
	var output netlab.Log
	cmd := exec.CommandContext(ctx, "dhclient", "-6", "-1", "-v", "-d", "-lf", leases, "-pf", filepath.Join(dir, "pid"), "-sf", "/bin/true", "-cf", "/dev/null", "eth0")
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := m.ns.Start(cmd); err != nil {
		m.lab.t.Fatal(err)
	}
	m.lab.until("an IPv6 lease", func() bool {
		raw, _ := os.ReadFile(leases)
		_, rest, ok := strings.Cut(string(raw), "iaaddr ")
		address, _, _ = strings.Cut(rest, " ")
		return ok && strings.Contains(rest, "}")
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	raw, err := os.ReadFile(leases)
	if err != nil {
		m.lab.t.Fatal(err)
	}
	return address, output.String() + string(raw)
}

// read waits until dnsmasq has read the endpoint of a machine.
func (l *lab) read(n int) { l.t.Helper(); l.logged(fmt.Sprintf("/hosts/tap%d\"", n), 1) }

// do runs a function on the host.
func (l *lab) do(f func() error) {
	l.t.Helper()
	if err := l.host.Do(f); err != nil {
		l.t.Fatal(err)
	}
}

// listen takes a UDP port on the host.
func (l *lab) listen(address string) net.PacketConn {
	l.t.Helper()
	var c net.PacketConn
	l.do(func() (err error) {
		c, err = net.ListenPacket("udp4", address)
		return err
	})
	l.t.Cleanup(func() { c.Close() })
	return c
}
