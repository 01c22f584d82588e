package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// lab is a host with an agent, a store in this process, workloads, and a client outside.
//
//	w1 eth0 ── cali1 ┐
//	w2 eth0 ── cali2 ┤ host eth0 ── eth0 outside
//	w3 eth0 ── cali3 ┘ 198.51.100.1   198.51.100.254
type lab struct {
	*netlab.Lab
	t             testing.TB
	st            *backend.Etcd
	host, outside *netlab.Namespace
	hostNS        *hostnet.Namespace
	options       Options

	agent *Agent
	log   *netlab.Log
	stop  func()
}

// newLab makes a lab over a store in this process. Its agent does not run yet.
func newLab(t testing.TB) *lab {
	t.Helper()
	nl := netlab.ForTest(t)
	st := storetest.Open(t, t.TempDir())
	return buildLab(t, nl, st)
}

func buildLab(t testing.TB, nl *netlab.Lab, st *backend.Etcd) *lab {
	t.Helper()
	l := &lab{Lab: nl, t: t, st: st, host: nl.MustNamespace(t, "host"), outside: nl.MustNamespace(t, "out")}
	l.MustVeth(t, l.host, "eth0", l.outside, "eth0")
	l.host.MustIP(t, "addr add 198.51.100.1/24 dev eth0", "addr add 2001:db8:1::1/64 dev eth0 nodad", "route add default via 198.51.100.254")
	l.outside.MustIP(t, "addr add 198.51.100.254/24 dev eth0", "addr add 2001:db8:1::254/64 dev eth0 nodad",
		"route add 10.65.0.0/16 via 198.51.100.1", "route add 203.0.113.0/24 via 198.51.100.1", "route add 2001:db8:65::/64 via 2001:db8:1::1")
	var err error
	if l.hostNS, err = hostnet.OpenNamespace(l.host.Name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.hostNS.Close() })
	l.options = Options{Host: "h1", HostID: "host-1", Store: st, Namespace: l.hostNS}
	t.Cleanup(func() {
		if l.stop != nil {
			l.stop()
		}
	})
	return l
}

// run runs the agent without waiting for it.
func (l *lab) run() {
	l.t.Helper()
	l.log = &netlab.Log{}
	o := l.options
	o.Log = slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l.agent = New(o)
	l.agent.checkEvery = 200 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	agent, log := l.agent, l.log
	go func() { done <- agent.Run(ctx) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("agent: %v", err)
		}
		if l.t.Failed() {
			l.t.Logf("log of the agent:\n%s", log)
		}
	})
}

// start runs the agent and waits until it is ready.
func (l *lab) start() {
	l.t.Helper()
	l.run()
	select {
	case <-l.agent.Ready():
	case <-time.After(20 * time.Second):
		l.t.Fatalf("the agent is not ready; its log:\n%s", l.log)
	}
}

// put writes keys and values in one transaction; an empty value deletes its key.
func (l *lab) put(pairs ...string) {
	l.t.Helper()
	storetest.Put(l.t, l.st, pairs...)
}

const short = 150 * time.Millisecond

// wait waits until cond holds.
func (l *lab) wait(what string, cond func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 10*time.Second)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		l.t.Logf("nftables:\n%s", l.nft("list", "ruleset"))
		l.t.Fatalf("%v; log of the agent:\n%s", err, l.log)
	}
}

// nft runs nft in the host.
func (l *lab) nft(args ...string) string {
	l.t.Helper()
	out, err := l.host.Output(l.t.Context(), "nft", args...)
	if err != nil {
		l.t.Errorf("%v", err)
	}
	return out
}

// workload is a namespace behind an interface of the host.
type machine struct {
	*netlab.Namespace
	lab    *lab
	number int
	v4, v6 string
}

// machine makes a workload whose interface is there, without its endpoint.
func (l *lab) machine(number int) *machine {
	l.t.Helper()
	w := &machine{Namespace: l.MustNamespace(l.t, fmt.Sprintf("w%d", number)), lab: l, number: number,
		v4: fmt.Sprintf("10.65.0.%d", number), v6: fmt.Sprintf("2001:db8:65::%d", number)}
	w.plug()
	return w
}

func (w *machine) name() string { return fmt.Sprintf("cali%d", w.number) }
func (w *machine) mac() string  { return fmt.Sprintf("02:00:00:00:00:%02x", w.number) }

// plug makes the workload's interface.
func (w *machine) plug() {
	w.lab.t.Helper()
	w.lab.MustVeth(w.lab.t, w.lab.host, w.name(), w.Namespace, "eth0")
	w.MustIP(w.lab.t, "link set eth0 down", "link set eth0 address "+w.mac(), "link set eth0 up", "addr add "+w.v4+"/32 dev eth0",
		"addr add "+w.v6+"/128 dev eth0 nodad", "route add default via 169.254.1.1 dev eth0 onlink", "route add default via fe80::1 dev eth0 onlink")
	// The gateway of every workload is the host, by an address that it has on each of their
	// interfaces.
	w.lab.host.MustIP(w.lab.t, "addr add fe80::1/64 dev "+w.name()+" nodad")
}

// key is the endpoint's.
func (w *machine) key() string {
	return fmt.Sprintf("/calico/v1/host/h1/workload/o/w%d/endpoint/e", w.number)
}

// endpoint is the endpoint's value, with labels and profiles, each a JSON text.
func (w *machine) endpoint(labels, profiles string) string {
	return fmt.Sprintf(`{"state": "active", "name": %q, "mac": %q, "profile_ids": %s, "ipv4_nets": ["%s/32"], "ipv6_nets": ["%s/128"], "labels": %s}`,
		w.name(), w.mac(), profiles, w.v4, w.v6, labels)
}

// listen answers TCP connections on a port: it sends back what it gets.
func listen(t testing.TB, ns *netlab.Namespace, port int) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); io.Copy(c, c) }()
		}
	}()
}

func dial(ns *netlab.Namespace, to string, port int, timeout time.Duration) (c net.Conn, err error) {
	err = ns.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", net.JoinHostPort(to, fmt.Sprint(port)), timeout)
		return err
	})
	return c, err
}

// exchange sends bytes and reads them back.
func exchange(c net.Conn, n int, timeout time.Duration) error {
	c.SetDeadline(time.Now().Add(timeout))
	sent := bytes.Repeat([]byte("x"), n)
	if _, err := c.Write(sent); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, n))
	return err
}

// reaches reports whether a connection can be made and used.
func reaches(ns *netlab.Namespace, to string, port int) bool {
	c, err := dial(ns, to, port, short)
	if err != nil {
		return false
	}
	defer c.Close()
	return exchange(c, 10, short) == nil
}

func (l *lab) mustReach(ns *netlab.Namespace, to string, port int) {
	l.t.Helper()
	l.wait(fmt.Sprintf("%s to reach %s port %d", ns.Name, to, port), func() bool { return reaches(ns, to, port) })
}

// mustNotReach waits until connections are refused: a change takes a moment.
func (l *lab) mustNotReach(ns *netlab.Namespace, to string, port int) {
	l.t.Helper()
	l.wait(fmt.Sprintf("%s to be kept from %s port %d", ns.Name, to, port), func() bool { return !reaches(ns, to, port) })
}

// text is the host's network, as hostnet prints it.
func (l *lab) text() string {
	l.t.Helper()
	n, err := hostnet.NewLinux(l.hostNS)
	if err != nil {
		l.t.Fatal(err)
	}
	defer n.Close()
	text, err := hostnet.Text(n)
	if err != nil {
		l.t.Fatal(err)
	}
	return text
}

// value reads a key, "" when it is not there.
func (l *lab) value(key string) string {
	l.t.Helper()
	kv, err := l.st.Get(l.t.Context(), key)
	if errors.Is(err, store.ErrNotFound) {
		return ""
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return string(kv.Value)
}

func hasRoute(text, dst, link string) bool {
	return strings.Contains(text, fmt.Sprintf("route %s link %s\n", dst, link))
}

func needs(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("needs the program %s", program)
	}
}

// freeAddress returns an address for a server of this process.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).String()
}
