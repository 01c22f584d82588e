package bgp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/store/storetest"
	"heddle/internal/topology/routerbgp"
)

// speakerVariable makes this test binary the speaker of a router, with its socket as file 3.
const speakerVariable = "HEDDLE_TEST_ROUTER_SPEAKER"

func beRouterSpeaker() {
	if os.Getenv(speakerVariable) == "" {
		return
	}
	go storetest.EndWithParent()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.FileListener(os.NewFile(3, "agents"))
	if err == nil {
		err = ServeRouter(ctx, RouterOptions{Listener: l, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// testRouter is a machine of a lab with the speaker of a router, and the agent's end of its socket.
// In place of a virtual router it has addresses of its own.
type testRouter struct {
	*machine
	plan   routerbgp.Plan
	socket *net.UnixListener
	cmd    *exec.Cmd
	log    *netlab.Log
	conn   net.Conn

	mu     sync.Mutex
	routes map[netip.Prefix][]netip.Addr
	peers  map[netip.Addr]routerbgp.Peer
	last   routerbgp.Report
	empty  int // reports without changes
	mute   atomic.Bool
}

// router makes a machine with a speaker in AS 64512, which has no neighbours yet.
func (l *lab) router(name string) *testRouter {
	t := l.t
	t.Helper()
	r := &testRouter{machine: l.machine(name), log: &netlab.Log{}}
	r.ns.MustIP(t, "link set lo up")
	// As the agent does: answers to neighbours with TTL security have to have the highest TTL.
	if err := r.ns.Sysctl("net/ipv4/ip_default_ttl", "255"); err != nil {
		t.Fatal(err)
	}
	r.plan = routerbgp.Plan{Version: routerbgp.Version, ASNumber: 64512, LingerSeconds: 60,
		Links: []routerbgp.Link{{Subnet: netip.MustParsePrefix("192.0.2.0/24")},
			{Subnet: netip.MustParsePrefix("10.0.0.0/24"), Tenant: true}}, Own: []netip.Addr{r.ip},
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}
	var err error
	path := filepath.Join(l.dataDir, name+".sock")
	if r.socket, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.kill()
		r.socket.Close()
		if t.Failed() {
			t.Logf("log of the speaker of %s\n%s", name, r.log)
		}
	})
	r.start()
	r.connect()
	return r
}

// start starts the speaker, with the rights that an agent gives it.
func (r *testRouter) start() {
	t := r.lab.t
	t.Helper()
	f, err := r.socket.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.cmd = &exec.Cmd{Args: os.Args[:1], Env: append(os.Environ(), speakerVariable+"=1"), ExtraFiles: []*os.File{f}, Stdout: r.log, Stderr: r.log}
	if _, err := r.cmd.StdinPipe(); err != nil { // see EndWithParent
		t.Fatal(err)
	}
	ns, err := hostnet.OpenNamespace(r.ns.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := ns.StartUnprivileged(r.cmd, unix.CAP_NET_BIND_SERVICE); err != nil {
		t.Fatal(err)
	}
}

// kill kills the speaker without a word.
func (r *testRouter) kill() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// connect connects an agent, which takes the place of an earlier one.
func (r *testRouter) connect() {
	t := r.lab.t
	t.Helper()
	c, err := net.Dial("unix", r.socket.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r.mu.Lock()
	r.conn, r.routes, r.peers = c, map[netip.Prefix][]netip.Addr{}, map[netip.Addr]routerbgp.Peer{}
	r.mu.Unlock()
	go r.read(c)
}

func (r *testRouter) read(c net.Conn) {
	lines := bufio.NewScanner(c)
	lines.Buffer(nil, routerbgp.MaxLine)
	for lines.Scan() {
		report, err := routerbgp.ParseReport(lines.Bytes())
		if err != nil {
			r.lab.t.Errorf("%s: %v", r.name, err)
			return
		}
		if !r.mute.Load() {
			_, _ = c.Write([]byte{'\n'}) // the connection may have ended
		}
		r.mu.Lock()
		if r.conn == c {
			r.take(report)
		}
		r.mu.Unlock()
	}
}

func (r *testRouter) take(report *routerbgp.Report) {
	if report.Full {
		clear(r.routes)
	}
	if reflect.DeepEqual(*report, routerbgp.Report{}) {
		r.empty++
	}
	for _, x := range report.Routes {
		if delete(r.routes, x.Dst); len(x.Gateways) > 0 {
			r.routes[x.Dst] = x.Gateways
		}
	}
	if report.RouterID.IsValid() || len(report.Peers) > 0 || report.Problem != "" || report.Settled {
		r.last = *report
		clear(r.peers)
		for _, p := range report.Peers {
			r.peers[p.Address] = p
		}
	}
}

// apply gives the speaker the router's plan.
func (r *testRouter) apply() {
	r.lab.t.Helper()
	line, err := json.Marshal(&r.plan)
	if err != nil {
		r.lab.t.Fatal(err)
	}
	if _, err := r.conn.Write(append(line, '\n')); err != nil {
		r.lab.t.Fatal(err)
	}
}

// neighbour adds a neighbour with quick timers to the plan, and returns it.
func (r *testRouter) neighbour(at netip.Addr, as uint32) *routerbgp.Neighbour {
	r.plan.Neighbours = append(r.plan.Neighbours, routerbgp.Neighbour{Address: at, Local: r.ip, ASNumber: as, ConnectRetry: 2, HoldTime: 9, KeepAlive: 3})
	return &r.plan.Neighbours[len(r.plan.Neighbours)-1]
}

// peer returns the state of a neighbour.
func (r *testRouter) peer(at netip.Addr) routerbgp.Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers[at]
}

// learned returns the routes, a line each, in order.
func (r *testRouter) learned() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for dst, gateways := range r.routes {
		lines = append(lines, fmt.Sprintf("%s%s", dst, gateways))
	}
	return sortedLines(lines)
}

func (r *testRouter) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.routes)
}

// until waits for a condition.
func (l *lab) until(what string, cond func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*time.Minute)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		l.t.Fatal(err)
	}
}

func (r *testRouter) awaitState(at netip.Addr, state string) {
	r.lab.t.Helper()
	r.lab.until(fmt.Sprintf("the session with %s to be %s", at, state), func() bool { return r.peer(at).State == state })
}

func (r *testRouter) awaitError(at netip.Addr, text string) {
	r.lab.t.Helper()
	r.lab.until(fmt.Sprintf("an error with %q of the session with %s", text, at), func() bool { return strings.Contains(r.peer(at).LastError, text) })
}

func (r *testRouter) awaitLearned(wanted, unwanted []string) {
	r.lab.t.Helper()
	r.lab.await("routes of the speaker", r.learned, wanted, unwanted)
}
