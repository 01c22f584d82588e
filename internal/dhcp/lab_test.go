package dhcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"heddle/internal/dhcp/plan"
	"heddle/internal/nettest"
	"heddle/internal/store"
	"heddle/internal/store/storetest"
)

// agentVariable tells a process of this test binary to be an agent: an agentProcess as JSON.
const agentVariable = "HEDDLE_TEST_DHCP_AGENT"

// patience bounds every wait.
const patience = 20 * time.Second

type agentProcess struct {
	Options
	DataDir string
}

func TestMain(m *testing.M) {
	if text := os.Getenv(agentVariable); text != "" {
		go storetest.EndWithParent()
		if err := beAgent(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// beAgent runs an agent in the namespace of the process until it is told to stop.
func beAgent(text string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var p agentProcess
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	var err error
	if p.Store, err = store.OpenRunning(ctx, p.DataDir, nil); err != nil {
		return err
	}
	defer p.Store.Close()
	p.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return New(p.Options).Run(ctx)
}

// lockedBuffer is a log that is printed when the test fails.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// lab is an etcd and a host "h", whose workloads are namespaces behind veth pairs.
type lab struct {
	*nettest.Lab
	t       testing.TB
	dataDir string
	st      *store.Etcd
	host    *nettest.Namespace
	options Options
	log     *lockedBuffer
	cmd     *exec.Cmd
}

func newLab(t testing.TB) *lab {
	t.Helper()
	for _, program := range []string{"dnsmasq", "udhcpc", "dhclient"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("this test needs %s: run scripts/setup", program)
		}
	}
	l := &lab{Lab: nettest.ForTest(t), t: t, log: &lockedBuffer{}}
	dir, err := os.MkdirTemp("", "hdhcp") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l.dataDir = filepath.Join(dir, "etcd")
	l.open()
	t.Cleanup(func() { l.st.Close() })
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

// open starts etcd.
func (l *lab) open() {
	l.t.Helper()
	var err error
	l.st, err = store.Open(l.t.Context(), store.Options{Embedded: &store.Embedded{DataDir: l.dataDir, Tick: 10 * time.Millisecond, NoFsync: true}})
	if err != nil {
		l.t.Fatal(err)
	}
}

// put writes keys with values, in pairs; a value of "" deletes.
func (l *lab) put(pairs ...string) {
	l.t.Helper()
	var ops []store.Op
	for i := 0; i < len(pairs); i += 2 {
		ops = append(ops, store.Op{Key: pairs[i], Value: []byte(pairs[i+1]), Delete: pairs[i+1] == ""})
	}
	if _, err := l.st.Commit(l.t.Context(), nil, ops); err != nil {
		l.t.Fatal(err)
	}
}

// start runs the agent on the host.
func (l *lab) start() {
	l.t.Helper()
	text, err := json.Marshal(agentProcess{Options: l.options, DataDir: l.dataDir})
	if err != nil {
		l.t.Fatal(err)
	}
	l.cmd = exec.Command(os.Args[0])
	l.cmd.Env = append(os.Environ(), agentVariable+"="+string(text))
	l.cmd.Stderr = l.log
	if _, err := l.cmd.StdinPipe(); err != nil { // its end ends the process: see EndWithParent
		l.t.Fatal(err)
	}
	if err := l.host.Start(l.cmd); err != nil {
		l.t.Fatal(err)
	}
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
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	if err := nettest.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
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
	ns  *nettest.Namespace
}

// machine makes one, without an endpoint.
func (l *lab) machine(n int) *machine {
	l.t.Helper()
	m := &machine{l, n, l.MustNamespace(l.t, fmt.Sprintf("w%d", n))}
	if err := m.ns.Sysctl("net/ipv6/conf/default/accept_dad", "0"); err != nil {
		l.t.Fatal(err)
	}
	m.ns.MustIP(l.t, fmt.Sprintf("link add eth0 address %s type veth peer name %s netns %s", m.mac(), m.tap(), l.host.Name), "link set eth0 up")
	l.host.MustIP(l.t, "link set "+m.tap()+" up")
	return m
}

func (m *machine) mac() string { return fmt.Sprintf("02:65:00:00:00:%02x", m.n) }
func (m *machine) tap() string { return fmt.Sprintf("tap%d", m.n) }

func endpointKey(n int) string {
	return fmt.Sprintf("/calico/v1/host/h/workload/openstack/i%d/endpoint/p%d", n, n)
}

// endpoint is the key and value of the machine's endpoint with these addresses, given as address, subnet and so on.
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

// ask has the machine ask for an IPv4 address; "" when nobody gives it one. tries bounds the requests, a second apart.
func (m *machine) ask(tries int) (address, said string) {
	m.lab.t.Helper()
	ctx, cancel := context.WithTimeout(m.lab.t.Context(), patience)
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

// ask6 has the machine ask for an IPv6 address; "" when nobody gives it one.
func (m *machine) ask6() (address, said string) {
	m.lab.t.Helper()
	dir := m.lab.t.TempDir()
	ctx, cancel := context.WithTimeout(m.lab.t.Context(), patience)
	defer cancel()
	leases := filepath.Join(dir, "leases")
	var output lockedBuffer
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
	return address, output.String()
}

// read waits until dnsmasq has read the endpoint of a machine.
func (l *lab) read(n int) { l.t.Helper(); l.logged(fmt.Sprintf("/hosts/tap%d\"", n), 1) }

// listen takes a UDP port on the host.
func (l *lab) listen(address string) net.PacketConn {
	l.t.Helper()
	var c net.PacketConn
	err := l.host.Do(func() (err error) {
		c, err = net.ListenPacket("udp4", address)
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	return c
}
