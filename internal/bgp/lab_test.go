package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// timeout bounds every wait. Sessions take up to two seconds where both ends wait for the other.
const timeout = 20 * time.Second

func TestMain(m *testing.M) {
	beRouterSpeaker()
	storetest.BeAgent(func(ctx context.Context, st *backend.Etcd, log *slog.Logger, o Options) error {
		o.Store, o.Log = st, log
		return New(o).Run(ctx)
	})
	os.Exit(m.Run())
}

// lab is an etcd, and machines as namespaces on one bridge: 192.0.2.N/24 and 2001:db8::N/64.
type lab struct {
	*netlab.Lab
	t       testing.TB
	dataDir string
	st      *backend.Etcd
	wire    *netlab.Namespace
	hosts   int
}

func newLab(t testing.TB) *lab {
	t.Helper()
	l := newWire(t)
	l.st = storetest.Open(t, l.dataDir)
	l.put("/calico/v1/Ready", "true")
	return l
}

// newWire makes a lab without etcd.
func newWire(t testing.TB) *lab {
	t.Helper()
	l := &lab{Lab: netlab.ForTest(t), t: t}
	dir, err := os.MkdirTemp("", "hbgp") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l.dataDir = dir
	l.wire = l.MustNamespace(t, "w")
	l.wire.MustIP(t, "link add br0 type bridge", "link set br0 up")
	return l
}

// put writes keys with values, in pairs; a value of "" deletes.
func (l *lab) put(pairs ...string) { l.t.Helper(); storetest.Put(l.t, l.st, pairs...) }

// block makes a block that is a host's own.
func (l *lab) block(host, cidr string) {
	l.t.Helper()
	family, dashed := "ipv4", strings.ReplaceAll(cidr, "/", "-")
	if strings.Contains(cidr, ":") {
		family = "ipv6"
	}
	l.put("/calico/ipam/v2/host/"+host+"/"+family+"/block/"+dashed, "{}",
		"/calico/ipam/v2/assignment/"+family+"/block/"+dashed, blockText(cidr, host))
}

func blockText(cidr, host string) string {
	return fmt.Sprintf(`{"cidr": %q, "affinity": "host:%s", "allocations": [%s], "attributes": [], "strictAffinity": false}`,
		cidr, host, strings.TrimSuffix(strings.Repeat("null, ", 64), ", "))
}

// pool makes a pool.
func (l *lab) pool(cidr, more string) {
	l.t.Helper()
	family := "v4"
	if strings.Contains(cidr, ":") {
		family = "v6"
	}
	l.put("/calico/v1/ipam/"+family+"/pool/"+strings.ReplaceAll(cidr, "/", "-"), fmt.Sprintf(`{"cidr": %q%s}`, cidr, more))
}

// machine is a namespace on the bridge.
type machine struct {
	lab    *lab
	name   string
	ns     *netlab.Namespace
	ip, v6 netip.Addr
}

func (l *lab) machine(name string) *machine {
	l.t.Helper()
	l.hosts++
	n := byte(l.hosts)
	m := &machine{lab: l, name: name, ns: l.MustNamespace(l.t, name), ip: netip.AddrFrom4([4]byte{192, 0, 2, n}),
		v6: netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: n})}
	port := fmt.Sprintf("p%d", n)
	l.MustVeth(l.t, m.ns, "eth0", l.wire, port)
	l.wire.MustIP(l.t, "link set "+port+" master br0")
	m.ns.MustIP(l.t, "addr add "+m.ip.String()+"/24 dev eth0", "addr add "+m.v6.String()+"/64 dev eth0 nodad")
	return m
}

// output returns the output of a command in the machine.
func (m *machine) output(name string, args ...string) string {
	m.lab.t.Helper()
	out, err := m.ns.Output(m.lab.t.Context(), name, args...)
	if err != nil {
		m.lab.t.Fatal(err)
	}
	return out
}

// routes are the speaker's routes in the kernel of one family, "4" or "6", in order.
func (m *machine) routes(family string) string {
	m.lab.t.Helper()
	var lines []string
	for line := range strings.Lines(m.output("ip", "-"+family, "route", "show", "proto", fmt.Sprint(owner().Protocol))) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

// monitor notes every change of the machine's IPv4 routes from now on, as ip writes it.
func (m *machine) monitor() *netlab.Log {
	t := m.lab.t
	t.Helper()
	log := &netlab.Log{}
	cmd := exec.Command("ip", "-4", "monitor", "route")
	cmd.Stdout = log
	if err := m.ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// It listens when it tells of a route that comes and goes.
	m.lab.await("the monitor", func() string {
		m.ns.MustIP(t, "route replace 203.0.113.1/32 dev lo", "route replace 203.0.113.1/32 dev eth0")
		return log.String()
	}, []string{"203.0.113.1"}, nil)
	return log
}

// await waits until what f says has all the wanted lines in it and none that begins with one of the
// unwanted.
func (l *lab) await(what string, f func() string, wanted, unwanted []string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), timeout)
	defer cancel()
	last := ""
	err := netlab.Until(ctx, what, func() (bool, error) {
		last = f()
		for _, w := range wanted {
			if !strings.Contains("\n"+last, "\n"+w) {
				return false, nil
			}
		}
		for _, u := range unwanted {
			if strings.Contains("\n"+last, "\n"+u) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		l.t.Fatalf("%v\nis\n%s\nwant %q, not %q", err, last, wanted, unwanted)
	}
}

// host is a machine that runs an agent.
type host struct {
	*machine
	options Options
	cmd     *exec.Cmd
	log     *netlab.Log
}

// host makes a machine known to etcd as a host.
func (l *lab) host(name string) *host {
	l.t.Helper()
	h := &host{machine: l.machine(name), log: &netlab.Log{}}
	h.options = Options{Host: name, HoldTime: 9 * time.Second, RestartTime: 15 * time.Second}
	l.put("/calico/bgp/v1/host/"+name+"/ip_addr_v4", h.ip.String(), "/calico/bgp/v1/host/"+name+"/ip_addr_v6", h.v6.String())
	l.t.Cleanup(func() {
		h.kill()
		if l.t.Failed() {
			l.t.Logf("log of %s\n%s", name, h.log)
		}
	})
	return h
}

// start runs the host's agent.
func (h *host) start() {
	t := h.lab.t
	t.Helper()
	h.cmd = storetest.StartAgent(t, h.ns.Start, h.lab.dataDir, h.options, h.log)
}

// kill ends the agent without a word.
func (h *host) kill() {
	if h.cmd != nil {
		_ = h.cmd.Process.Kill() // it may have ended
		_ = h.cmd.Wait()
		h.cmd = nil
	}
}

// stop tells the agent to end, and waits for it.
func (h *host) stop() {
	t := h.lab.t
	t.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Wait(); err != nil {
		t.Fatalf("the agent of %s: %v", h.name, err)
	}
	h.cmd = nil
}

// workload makes an interface like that of a workload with routes to addresses, as the policy agent
// would.
func (h *host) workload(name string, addresses ...string) {
	h.lab.t.Helper()
	lines := []string{"link add " + name + " type veth peer name x" + name, "link set " + name + " up", "link set x" + name + " up"}
	for _, a := range addresses {
		lines = append(lines, "route add "+a+" dev "+name+" scope link proto 80")
	}
	h.ns.MustIP(h.lab.t, lines...)
}

// bird is a machine that runs BIRD.
type bird struct {
	*machine
	config, control string
	kill            func() // without a word
}

// bird starts BIRD with a configuration; $ME, $ME6 stand for its own addresses.
func (l *lab) bird(name, config string) *bird {
	l.t.Helper()
	for _, program := range []string{"bird", "birdc"} {
		if _, err := exec.LookPath(program); err != nil {
			l.t.Skipf("needs %s: apt-get install bird2", program)
		}
	}
	m := l.machine(name)
	b := &bird{machine: m, config: filepath.Join(l.dataDir, name+".conf"), control: filepath.Join(l.dataDir, name+".ctl")}
	b.write(config)
	log := &netlab.Log{}
	cmd := exec.Command("bird", "-f", "-c", b.config, "-s", b.control)
	cmd.Stdout, cmd.Stderr = log, log
	if err := m.ns.Start(cmd); err != nil {
		l.t.Fatal(err)
	}
	b.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	l.t.Cleanup(func() {
		b.kill()
		if l.t.Failed() {
			l.t.Logf("log of %s\n%s", name, log)
		}
	})
	l.await("bird to answer", func() string { return b.ask("show status") }, []string{"Daemon is up"}, nil)
	return b
}

func (b *bird) write(config string) {
	b.lab.t.Helper()
	text := "log stderr all;\nrouter id " + b.ip.String() + ";\ntimeformat route iso long us;\ntimeformat protocol iso long us;\nprotocol device {}\nprotocol direct { ipv4; ipv6; }\n" +
		strings.NewReplacer("$ME6", b.v6.String(), "$ME", b.ip.String()).Replace(config)
	if err := os.WriteFile(b.config, []byte(text), 0o600); err != nil {
		b.lab.t.Fatal(err)
	}
}

// configure gives BIRD another configuration; what is the same in both goes on.
func (b *bird) configure(config string) {
	b.lab.t.Helper()
	b.write(config)
	if out := b.ask("configure"); !strings.Contains(out, "Reconfigur") {
		b.lab.t.Fatalf("bird: %s", out)
	}
}

// ask puts a question to BIRD. While it does not listen yet the answer is the failure.
func (b *bird) ask(question string) string {
	out, err := b.ns.Output(b.lab.t.Context(), "birdc", append([]string{"-s", b.control}, strings.Fields(question)...)...)
	if err != nil {
		return err.Error()
	}
	return out
}

// routes are the destinations that BIRD has learned, each with its next hop and since when.
func (b *bird) routes() string {
	var lines []string
	for line := range strings.Lines(b.ask("show route where source = RTS_BGP")) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 1 && strings.Contains(fields[0], "/"):
			lines = append(lines, strings.Join(fields, " "))
		case len(fields) > 1 && fields[0] == "via" && len(lines) > 0:
			lines[len(lines)-1] += " via " + fields[1]
		}
	}
	return strings.Join(lines, "\n")
}

// since is the line of a destination, which tells when BIRD learned it, and how.
func (b *bird) since(dst string) string {
	for line := range strings.Lines(b.routes()) {
		if strings.HasPrefix(line, dst+" ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// wantStayed compares a destination with what since said before: it must not have gone and come
// back. BIRD's clock for routes shifts by microseconds against the one it prints.
func (b *bird) wantStayed(dst, before string) {
	b.lab.t.Helper()
	now := b.since(dst)
	if was, is := learnedAt(before), learnedAt(now); was.IsZero() || is.Sub(was).Abs() > 50*time.Millisecond {
		b.lab.t.Errorf("the router's route was\n%s\nis\n%s", before, now)
	}
}

// learnedAt is the time in a line of since, such as "10.1.4.0/26 unicast [h 2026-11-21
// 14:54:46.864399] * (100)".
func learnedAt(line string) time.Time {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return time.Time{}
	}
	at, err := time.Parse("2006-01-02 15:04:05.999999", fields[3]+" "+strings.TrimSuffix(fields[4], "]"))
	if err != nil {
		return time.Time{}
	}
	return at
}

// quick are timers that make BIRD connect at once.
const quick = "connect delay time 1; connect retry time 1; error wait time 1, 2; hold time 9;"
