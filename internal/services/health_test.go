package services

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/services/plan"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// monitorOf returns a monitor that is as quick as monitors can be.
func monitorOf(kind string) topology.HealthMonitor {
	return topology.HealthMonitor{Type: kind, Delay: 1, Timeout: 1, MaxRetries: 1, FailRetries: 2}
}

// TestHealthByHAProxy: haproxy in a container finds members down and up again, across hosts. What
// is known outlives changes, haproxy, the agent and the host.
func TestHealthByHAProxy(t *testing.T) {
	l := newLabOf(t, 2, 15*time.Second) // in which an agent starts again
	b := l.balancer(monitorOf(topology.MonitorTCP))
	at1, ns1 := l.machine(l.hosts[0])
	at2, ns2 := l.machine(l.hosts[1])
	stop := serve(t, ns1, 80)
	serve(t, ns2, 80)
	m1, m2, closed := b.add(at1, 80), b.add(at2, 80), b.add(at1, 81)
	l.waitHealth(m1, topology.MemberActive)
	l.waitHealth(m2, topology.MemberActive)
	l.waitHealth(closed, topology.MemberInactive)

	host := b.place()
	l.wait("the container to run", func() bool { return b.state(host).Status == topology.ContainerRunning })
	first := host.haproxyPID(b)

	stop()
	l.waitHealth(m1, topology.MemberInactive)
	stop = serve(t, ns1, 80)
	l.waitHealth(m1, topology.MemberActive)

	// A new member changes nothing for the others.
	m3 := b.add(at2, 82)
	l.waitHealth(m3, topology.MemberInactive)
	if pid := host.haproxyPID(b); pid != first {
		t.Errorf("after a reload haproxy is process %d, want %d as before", pid, first)
	}
	host.agent.health.mu.Lock()
	for id, want := range map[string]int{m1: 2, m2: 0, closed: 0, m3: 0} {
		if got := host.agent.health.transitions[id]; got != want {
			t.Errorf("member %s has changed %d times, want %d", id, got, want)
		}
	}
	host.agent.health.mu.Unlock()

	// haproxy is killed.
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.wait("another haproxy", func() bool { pid := host.haproxyPID(b); return pid != 0 && pid != first })
	l.wait("the container to run again", func() bool { return b.state(host).Status == topology.ContainerRunning })
	second := host.haproxyPID(b)
	stop()
	l.waitHealth(m1, topology.MemberInactive)

	// The agent ends, and its successor adopts haproxy.
	host.stop()
	if host.haproxyPID(b) != second {
		t.Fatal("haproxy has ended with the agent")
	}
	host.start()
	l.wait("the container to run", func() bool { return b.state(host).Status == topology.ContainerRunning })
	if pid := host.haproxyPID(b); pid != second {
		t.Errorf("after a restart of the agent haproxy is process %d, want %d as before", pid, second)
	}
	serve(t, ns1, 80)
	l.waitHealth(m1, topology.MemberActive)

	// The host dies: another takes the container over, and a member that is down stays down.
	other, up := l.hosts[0], m1
	if other == host {
		other, up = l.hosts[1], m2
	}
	downs, ups := watchHealth(t, l, closed), watchHealth(t, l, up)
	host.stop()
	l.wait("the other host to have the container", func() bool { return b.place() == other })
	l.wait("the container to run there", func() bool { return b.state(other).Status == topology.ContainerRunning })
	l.wait("a verdict of the other host", func() bool { return other.agent.health.status(closed, nil) == topology.MemberInactive })
	l.wait("a verdict about the other member", func() bool { return other.agent.health.status(up, nil) == topology.MemberActive })
	l.wait("the verdicts of the lost host to end", func() bool { return schema.MemberHealths.CountBy(l.now(), "member", up) == 1 })
	if seen := downs(); seen[topology.MemberActive] || seen[""] {
		t.Errorf("while the container moved, a member that is down was %v", seen)
	}
	if seen := ups(); seen[topology.MemberInactive] || seen[""] {
		t.Errorf("while the container moved, a member that is up was %v", seen)
	}
}

// watchHealth collects the verdicts about a member, as readers of the store see them.
func watchHealth(t *testing.T, l *lab, member string) (seen func() map[string]bool) {
	t.Helper()
	all, stop, done := map[string]bool{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for rev := int64(0); ; {
			s, err := l.objects.At(t.Context(), rev+1)
			if err != nil {
				return
			}
			rev = s.Revision
			all[l.health(member)] = true
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	return func() map[string]bool { close(stop); l.put("network", "wake", &topology.Bundle{}); <-done; return all }
}

// TestHealthOfKinds: each kind of monitor tells a member that is up from one that is down.
func TestHealthOfKinds(t *testing.T) {
	l := newLab(t, 1)
	at, ns := l.machine(l.hosts[0])
	handler := http.NewServeMux()
	handler.HandleFunc("/good", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	handler.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	serveHTTP(t, ns, 8080, handler)
	tlsServer(t, ns, 8443)
	udpServer(t, ns, 5353)
	with := func(kind string, change func(*topology.HealthMonitor)) topology.HealthMonitor {
		m := monitorOf(kind)
		if change != nil {
			change(&m)
		}
		return m
	}
	good := func(m *topology.HealthMonitor) { m.URLPath, m.ExpectedCodes = "/good", "200,204" }
	for _, c := range []struct {
		name    string
		monitor topology.HealthMonitor
		port    uint16
		want    string
	}{
		{"HTTP", with(topology.MonitorHTTP, good), 8080, topology.MemberActive},
		{"HTTP 1.1", with(topology.MonitorHTTP, func(m *topology.HealthMonitor) { good(m); m.HTTPVersion, m.DomainName = "1.1", "it's.example" }), 8080, topology.MemberActive},
		{"HTTP code", with(topology.MonitorHTTP, func(m *topology.HealthMonitor) { m.URLPath, m.ExpectedCodes = "/bad", "200-204" }), 8080, topology.MemberInactive},
		{"HTTPS", with(topology.MonitorHTTPS, func(m *topology.HealthMonitor) { m.URLPath = "/" }), 8443, topology.MemberActive},
		{"HTTPS to HTTP", with(topology.MonitorHTTPS, good), 8080, topology.MemberInactive},
		{"TLS-HELLO", with(topology.MonitorTLSHello, nil), 8443, topology.MemberActive},
		{"TLS-HELLO to HTTP", with(topology.MonitorTLSHello, nil), 8080, topology.MemberInactive},
		{"UDP-CONNECT", with(topology.MonitorUDPConnect, nil), 5353, topology.MemberActive},
		{"UDP-CONNECT closed", with(topology.MonitorUDPConnect, nil), 5354, topology.MemberInactive},
		{"PING", with(topology.MonitorPing, nil), 1, topology.MemberActive},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := l.balancer(c.monitor)
			m := b.add(at, c.port)
			l.waitHealth(m, c.want)
			l.put("pool", b.pool.ID, nil)
			l.put(topology.ContainerOwner, b.container, nil)
			l.put("load-balancer", b.id, nil)
			l.wait("the verdict to go", func() bool { return l.health(m) == "" })
		})
	}
	t.Run("PING of nobody", func(t *testing.T) {
		b := l.balancer(monitorOf(topology.MonitorPing))
		ns.MustIP(t, "link set eth0 down")
		l.waitHealth(b.add(at, 1), topology.MemberInactive)
	})
}

// TestSourceOfV1: a load balancer of v1 checks from the addresses of its VIPs, to which its
// container answers as well.
func TestSourceOfV1(t *testing.T) {
	l := newLab(t, 1)
	b := l.balancer(monitorOf(topology.MonitorHTTP))
	vip := netip.MustParseAddr("10.0.0.100")
	l.put("vip", "v1", &topology.Bundle{
		Vips:       []topology.Vip{{ID: "v1", PoolID: b.pool.ID, Address: vip, AdminStateUp: true}},
		Neighbours: []topology.NeighbourEntry{{NetworkID: l.net.ID, IP: vip, MAC: balancerMAC}},
		Routes: []topology.Route{{ID: uuid.NewString(), SrcSubnet: anywhere, DstSubnet: netip.PrefixFrom(vip, 32), NextHop: topology.HopPort,
			NextHopPortID: b.port, NextHopGateway: netip.MustParseAddr(containerAddress), Weight: 100}},
	})
	plain := b.devices()
	plain.Routers[0].InboundFilterID, plain.Routers[0].OutboundFilterID = "", ""
	l.put("load-balancer", b.id, plain)
	at, ns := l.machine(l.hosts[0])
	clients := make(chan string, 1)
	serveHTTP(t, ns, 80, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case clients <- r.RemoteAddr:
		default:
		}
	}))
	l.waitHealth(b.add(at, 80), topology.MemberActive)
	if from := netip.MustParseAddrPort(<-clients).Addr(); from != vip {
		t.Errorf("checked from %v, want the VIP's address %v", from, vip)
	}
	if out, err := ns.Output(t.Context(), "ping", "-c", "1", "-W", "5", vip.String()); err != nil {
		t.Errorf("the VIP answers no ping: %v: %s", err, out)
	}
}

// TestFirstFailures: a member whose first check fails, as while the path to it is not up, is not
// down before as many have failed as the monitor asks for, be haproxy new or the member; one that
// was never up is not up meanwhile.
func TestFirstFailures(t *testing.T) {
	l := newLab(t, 1)
	at, ns := l.machine(l.hosts[0])
	b := l.balancer(monitorOf(topology.MonitorHTTP))
	wants := []string{topology.MemberActive, topology.MemberActive, topology.MemberInactive}
	for i, want := range wants {
		port := uint16(80 + i)
		var checks atomic.Int32
		serveHTTP(t, ns, int(port), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if checks.Add(1) == 1 || want == topology.MemberInactive {
				w.WriteHeader(http.StatusBadGateway)
			}
		}))
		m := b.add(at, port)
		l.waitHealth(m, want)
		health := l.hosts[0].agent.health
		health.mu.Lock()
		if n := health.transitions[m]; n != 0 {
			t.Errorf("the member of port %d was another than %s before", port, want)
		}
		health.mu.Unlock()
		if n := checks.Load(); n < 2 {
			t.Errorf("the member of port %d is %s after %d checks, want 2 at least", port, want, n)
		}
	}
}

// TestRefusedMonitor: a monitor that an earlier version stored and haproxy refuses keeps no other
// pool of its balancer from being checked; verdicts about its own members end.
func TestRefusedMonitor(t *testing.T) {
	l := newLab(t, 1)
	h := l.hosts[0]
	b := l.balancer(monitorOf(topology.MonitorHTTP))
	at, ns := l.machine(h)
	serveHTTP(t, ns, 80, http.NotFoundHandler())
	serve(t, ns, 81)
	refused := b.add(at, 80)
	l.waitHealth(refused, topology.MemberInactive)
	for i, kind := range []string{topology.MonitorTCP, topology.MonitorPing} {
		id := uuid.NewString()
		monitor := monitorOf(kind)
		monitor.ID, monitor.AdminStateUp = uuid.NewString(), true
		pool := b.pool
		pool.ID, pool.HealthMonitorID = uuid.NewString(), monitor.ID
		l.put("pool", pool.ID, &topology.Bundle{Pools: []topology.Pool{pool}, HealthMonitors: []topology.HealthMonitor{monitor},
			PoolMembers: []topology.PoolMember{{ID: id, PoolID: pool.ID, AdminStateUp: true, Address: at, ProtocolPort: 81, Weight: 1}}})
		if i == 0 {
			b.monitor.ExpectedCodes = "299-200"
			b.write()
		}
		l.waitHealth(id, topology.MemberActive)
	}
	const why = "haproxy refuses its configuration: config : parsing [haproxy.cfg.next:"
	l.wait("the pool to be reported", func() bool {
		s := b.state(h)
		return s.Status == topology.ContainerRunning && len(s.Unchecked) == 1 && strings.HasPrefix(s.Unchecked[b.pool.ID], why)
	})
	l.wait("the verdict about its member to end", func() bool { return l.health(refused) == "" })
	b.monitor.ExpectedCodes = "404"
	b.write()
	l.waitHealth(refused, topology.MemberActive)
	l.wait("the pool to be checked", func() bool { return len(b.state(h).Unchecked) == 0 })
}

// TestSingleFailure: where one failure takes a member down, its first check comes when the path to
// it has had time to come up.
func TestSingleFailure(t *testing.T) {
	l := newLab(t, 1)
	at, ns := l.machine(l.hosts[0])
	monitor := monitorOf(topology.MonitorHTTP)
	monitor.FailRetries = 1
	b := l.balancer(monitor)
	first := make(chan time.Time, 1)
	serveHTTP(t, ns, 80, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case first <- time.Now():
		default:
		}
	}))
	begun := time.Now()
	up, down := b.add(at, 80), b.add(at, 81)
	l.waitHealth(up, topology.MemberActive)
	l.waitHealth(down, topology.MemberInactive)
	if waited := (<-first).Sub(begun); waited < plan.PathTime {
		t.Errorf("the first check came after %v, want %v at least", waited, plan.PathTime)
	}
}

// TestFrozenMember: a member that takes connections but answers nothing is down after the timeout.
func TestFrozenMember(t *testing.T) {
	l := newLab(t, 1)
	at, ns := l.machine(l.hosts[0])
	server := exec.Command("/usr/bin/python3", "-m", "http.server", "--directory", t.TempDir(), "8000")
	if err := ns.Start(server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	b := l.balancer(monitorOf(topology.MonitorHTTP))
	m := b.add(at, 8000)
	l.waitHealth(m, topology.MemberActive)
	if err := server.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l.waitHealth(m, topology.MemberInactive)
	if err := server.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.waitHealth(m, topology.MemberActive)
}

// TestHAProxyHangs: haproxy is replaced when its worker or its master is stopped, whether its
// configuration changes meanwhile or not.
func TestHAProxyHangs(t *testing.T) {
	l := newLab(t, 1)
	host := l.hosts[0]
	at, ns := l.machine(host)
	b := l.balancer(monitorOf(topology.MonitorTCP))
	m := b.add(at, 80)
	stop := serve(t, ns, 80)
	l.waitHealth(m, topology.MemberActive)
	worker := func() (pid int) {
		t.Helper()
		for line := range strings.Lines(host.askHAProxy("show info")) {
			_, _ = fmt.Sscanf(line, "Pid: %d", &pid)
		}
		if pid == 0 {
			t.Fatal("haproxy has no worker")
		}
		return pid
	}
	for _, tt := range []struct {
		name    string
		process func() int
		change  func()
	}{
		{"worker", worker, func() {}},
		{"worker, and its configuration changes", worker, func() { b.monitor.FailRetries++; b.write() }},
		{"master, and its configuration changes", func() int { return host.haproxyPID(b) }, func() { b.monitor.FailRetries++; b.write() }},
	} {
		t.Log(tt.name)
		before := host.haproxyPID(b)
		if err := unix.Kill(tt.process(), unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		tt.change()
		l.wait("another haproxy", func() bool { pid := host.haproxyPID(b); return pid != 0 && pid != before })
		l.wait("the container to run again", func() bool { return b.state(host).Status == topology.ContainerRunning })
		stop()
		l.waitHealth(m, topology.MemberInactive)
		stop = serve(t, ns, 80)
		l.waitHealth(m, topology.MemberActive)
	}
}

// TestMissingHAProxy: a container whose program is missing has an error, and no verdict.
func TestMissingHAProxy(t *testing.T) {
	l := newLab(t, 1)
	h := l.hosts[0]
	h.agent.opts.HAProxy = filepath.Join(t.TempDir(), "haproxy") // before there is a container
	at, _ := l.machine(h)
	b := l.balancer(monitorOf(topology.MonitorTCP))
	m := b.add(at, 80)
	l.wait("an error", func() bool { return b.state(h).Status == topology.ContainerError })
	if got := b.state(h).Message; got != errNoHAProxy.Error() {
		t.Errorf("the message is %q, want %q", got, errNoHAProxy)
	}
	if got := l.health(m); got != "" {
		t.Errorf("a member that nobody checks is %s", got)
	}
}

// TestCleanup: nothing of a container is left after a cleanup, nor when it was deleted.
func TestCleanup(t *testing.T) {
	l := newLab(t, 1)
	h := l.hosts[0]
	at, _ := l.machine(h)
	gone := func(b *balancer, remove func()) {
		t.Helper()
		b.add(at, 80)
		l.wait("the container to run", func() bool { return b.state(h).Status == topology.ContainerRunning && h.haproxyPID(b) != 0 })
		name, pid := b.state(h).Namespace, h.haproxyPID(b)
		remove()
		l.wait("haproxy to end", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
		l.wait("the namespace to go", func() bool {
			ns, err := hostnet.OpenNamespace(name)
			if err == nil {
				ns.Close()
			}
			return errors.Is(err, hostnet.ErrNotFound)
		})
		l.wait("its files to go", func() bool {
			left, err := os.ReadDir(filepath.Join(h.dir, "services"))
			return err == nil && len(left) == 0
		})
		if _, err := h.ns.Output(t.Context(), "ip", "link", "show", topology.ContainerInterface(b.port)); err == nil {
			t.Error("the host still has the container's interface")
		}
	}
	b := l.balancer(monitorOf(topology.MonitorTCP))
	gone(b, func() { l.put(topology.ContainerOwner, b.container, nil) })
	l.put("load-balancer", b.id, nil)
	l.put("pool", b.pool.ID, nil)
	b = l.balancer(monitorOf(topology.MonitorTCP))
	gone(b, func() {
		h.stop()
		if err := Cleanup(h.inner, filepath.Join(h.dir, "services")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestForeignNamespace: a container's namespace that this agent has not made, as after the loss of
// its files, is replaced when the agent starts.
func TestForeignNamespace(t *testing.T) {
	l := newLab(t, 1)
	h := l.hosts[0]
	at, ns := l.machine(h)
	serve(t, ns, 80)
	b := l.balancer(monitorOf(topology.MonitorTCP))
	member := b.add(at, 80)
	l.waitHealth(member, topology.MemberActive)
	h.stop()
	files, err := filepath.Glob(filepath.Join(h.dir, "services", "*", inodeFile))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of namespaces: %v, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.start()
	l.wait("another namespace", func() bool {
		inode, err := os.ReadFile(files[0])
		return err == nil && string(inode) != "1"
	})
	l.waitHealth(member, topology.MemberActive)
}

func serveHTTP(t *testing.T, ns *netlab.Namespace, port int, handler http.Handler) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) { l, err = net.Listen("tcp4", fmt.Sprintf(":%d", port)); return err }); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
}

// tlsServer answers each request over TLS with 200.
func tlsServer(t *testing.T, ns *netlab.Namespace, port int) {
	t.Helper()
	dir := t.TempDir()
	key, cert := filepath.Join(dir, "key.pem"), filepath.Join(dir, "cert.pem")
	if out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=member", "-keyout", key, "-out", cert).CombinedOutput(); err != nil {
		t.Fatalf("openssl req: %v: %s", err, out)
	}
	var l net.Listener
	if err := ns.Do(func() (err error) { l, err = net.Listen("tcp4", fmt.Sprintf(":%d", port)); return err }); err != nil {
		t.Fatal(err)
	}
	// Not openssl s_server, which waits for one client at a time, and so for ever for a checker
	// whose container has gone.
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.ServeTLS(l, cert, key) }() // until Close
	t.Cleanup(func() { server.Close() })
}

// udpServer opens a port that answers nothing.
func udpServer(t *testing.T, ns *netlab.Namespace, port int) {
	t.Helper()
	var c net.PacketConn
	if err := ns.Do(func() (err error) { c, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", port)); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
}
