package dhcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// with gives a machine its addresses, and the host its routes to them, as the policy agent does.
func (m *machine) with(addresses ...string) {
	m.lab.t.Helper()
	for _, a := range addresses {
		if strings.Contains(a, ":") {
			m.ns.MustIP(m.lab.t, "addr add "+a+"/128 dev eth0 nodad")
			m.lab.host.MustIP(m.lab.t, "route add "+a+"/128 dev "+m.tap())
			continue
		}
		m.ns.MustIP(m.lab.t, "addr add "+a+"/24 dev eth0")
		m.lab.host.MustIP(m.lab.t, "route add "+a+"/32 dev "+m.tap())
	}
}

// resolver asks a DNS server from the machine, by UDP, and by TCP where the server is written
// tcp/address.
func (m *machine) resolver(server string) *net.Resolver {
	server, tcp := strings.CutPrefix(server, "tcp/")
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (c net.Conn, err error) {
		if tcp {
			network = "tcp"
		}
		err = m.ns.Do(func() error {
			c, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, net.JoinHostPort(server, "53"))
			return err
		})
		return c, err
	}}
}

// lookUp returns a server's answers to the machine about a name or an address in order, or the
// error.
func (m *machine) lookUp(server, name string) string {
	ctx, cancel := context.WithTimeout(m.lab.t.Context(), timeout)
	defer cancel()
	ask := m.resolver(server).LookupHost
	if net.ParseIP(name) != nil {
		ask = m.resolver(server).LookupAddr
	}
	found, err := ask(ctx, name)
	if err != nil {
		return err.Error()
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

// wantName fails the test unless the machine is told that soon: names are read in the background.
func (m *machine) wantName(server, name, want string) {
	m.lab.t.Helper()
	m.lab.until(fmt.Sprintf("%s to say %q of %s", server, want, name), func() bool { return strings.Contains(m.lookUp(server, name), want) })
}

// dnsPID is the number of the dnsmasq that answers DNS.
func (l *lab) dnsPID() (pid int) {
	l.t.Helper()
	raw, err := os.ReadFile(filepath.Join(l.options.Plan.Dir, resolverPID))
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(raw), &pid); err != nil {
		l.t.Fatal(err)
	}
	return pid
}

// answering waits until a dnsmasq has begun to answer DNS that many times.
func (l *lab) answering(times int) { l.t.Helper(); l.logged("dnsmasq answers DNS", times) }

// TestDNS has the server of the leases tell the names of machines, by IPv4 and IPv6, as they come,
// change and go, and never stop for that; it is nowhere else.
func TestDNS(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.options.ProbeEvery = 300e6
	l.host.MustIP(t, "link set lo up")
	l.options.Plan.Domain = "example.org"
	m := l.machine(1)
	m.with("10.65.0.7", "2001:db8:65::7")
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(subnet("b", "2001:db8:65::/64", "2001:db8:65::1", ""))
	l.put(m.endpoint("10.65.0.7", "a", "2001:db8:65::7", "b"))
	l.start()
	l.serving(1)
	l.answering(1)
	pid := l.dnsPID()
	const v4, v6 = "10.65.0.1", "2001:db8:65::1"
	l.until("a default route", func() bool { return strings.Contains(m.output("ip", "-6", "route"), "default via fe80::") })
	for _, server := range []string{v4, v6, "tcp/" + v6} {
		m.wantName(server, "vm1.example.org", "10.65.0.7 2001:db8:65::7")
		m.wantName(server, "vm1", "10.65.0.7 2001:db8:65::7")
		m.wantName(server, "10.65.0.7", "vm1.example.org.")
		m.wantName(server, "2001:db8:65::7", "vm1.example.org.")
		m.wantName(server, "nobody.example.org", "no such host")
	}
	// Another machine comes, in a subnet that is new here; it is renamed; it goes.
	other := l.machine(2)
	l.put(subnet("c", "10.66.0.0/24", "10.66.0.1", ""))
	l.put(other.endpoint("10.66.0.8", "c"))
	m.wantName(v4, "vm2.example.org", "10.66.0.8")
	other.with("10.66.0.8")
	other.wantName("10.66.0.1", "vm1.example.org", "10.65.0.7")
	key, value := other.endpoint("10.66.0.8", "c")
	l.put(key, strings.ReplaceAll(value, "vm2", "renamed"))
	m.wantName(v4, "renamed", "10.66.0.8")
	m.wantName(v4, "vm2", "no such host")
	// It takes a name that is taken: each machine is told of its own subnet's.
	l.put(key, strings.ReplaceAll(value, "vm2", "vm1"))
	other.wantName("10.66.0.1", "vm1", "10.66.0.8")
	if got := m.lookUp(v4, "vm1"); got != "10.65.0.7 2001:db8:65::7" {
		t.Errorf("told %s", got)
	}
	l.put(key, "")
	m.wantName(v4, "10.66.0.8", "server misbehaving") // Go's words for a refusal
	m.wantName(v4, "renamed", "no such host")
	if l.dnsPID() != pid || strings.Count(l.log.String(), "dnsmasq answers DNS") != 1 {
		t.Error("it was started anew")
	}
	// It listens at addresses of the device and of the machines' interfaces, and nowhere else.
	for at := range strings.Lines(l.output("ss", "-Hlntu", "sport = :53")) {
		if !strings.Contains(at, v4+":53") && !strings.Contains(at, "["+v6+"]:53") && !strings.Contains(at, "10.66.0.1:53") && !strings.Contains(at, "[fe80::") {
			t.Errorf("listens at %s", at)
		}
	}
	// It goes with the last endpoint.
	l.put(endpointKey(1), "")
	l.until("it to end, and what it had to go", func() bool {
		left, err := filepath.Glob(filepath.Join(l.options.Plan.Dir, "addn_hosts/*"))
		_, err2 := os.Stat(filepath.Join(l.options.Plan.Dir, resolverPID))
		return !alive(pid) && err == nil && len(left) == 0 && os.IsNotExist(err2)
	})
}

// TestDNSForwarded has it ask the operator's servers for all other names, and tells of queries
// where that is wanted.
func TestDNSForwarded(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.host.MustIP(t, "link set lo up")
	// The upstream server is another dnsmasq, in a namespace of its own.
	up := l.MustNamespace(t, "up")
	l.MustVeth(t, l.host, "eth0", up, "eth0")
	l.host.MustIP(t, "addr add 192.0.2.1/24 dev eth0", "link set eth0 up")
	up.MustIP(t, "addr add 192.0.2.53/24 dev eth0", "link set eth0 up")
	upstream := exec.Command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--no-hosts", "--no-resolv", "--host-record=far.example.net,198.51.100.7")
	if err := up.Start(upstream); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = upstream.Process.Kill()
		_ = upstream.Wait()
	})
	l.options.Plan.Servers, l.options.Plan.LogQueries = []string{"192.0.2.53"}, true
	m := l.machine(1)
	m.with("10.65.0.7")
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(m.endpoint("10.65.0.7", "a"))
	l.start()
	l.answering(1)
	m.wantName("10.65.0.1", "far.example.net", "198.51.100.7")
	m.wantName("10.65.0.1", "vm1.example.org", "10.65.0.7")
	l.logged(`says="query[A] far.example.net from 10.65.0.7"`, 1)
	up.MustIP(t, "route add 10.65.0.0/24 via 192.0.2.1")
	stranger := asks(t, up)
	if later := asks(t, m.ns); !later(timeout) || stranger(50*time.Millisecond) {
		t.Error("it does not answer a machine, or does answer one that is none")
	}
	if text := l.log.String(); !strings.Contains(text[strings.Index(text, "query[A] far.example.net"):], "interface=tap1") {
		t.Error("the query does not say whose it was")
	}
}

// asks has somebody ask the host for a machine's name, and returns what reads the answer, if there
// is one within a time.
func asks(t *testing.T, from *netlab.Namespace) (answered func(within time.Duration) bool) {
	t.Helper()
	var c net.Conn
	err := from.Do(func() (err error) {
		c, err = net.Dial("udp4", "10.65.0.1:53")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	question := append([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3}, "vm1\x00\x00\x01\x00\x01"...)
	if _, err := c.Write(question); err != nil {
		t.Fatal(err)
	}
	return func(within time.Duration) bool {
		if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		n, _ := c.Read(make([]byte, 512))
		return n > 0
	}
}

// TestDNSSupervised: it is killed, hangs, finds its port taken: said and mended; the next agent
// adopts it; the clean-up ends it. Leases go on meanwhile.
func TestDNSSupervised(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.options.ProbeEvery = 300e6
	m := l.machine(1)
	m.with("10.65.0.7")
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(m.endpoint("10.65.0.7", "a"))
	var holder net.Listener
	l.do(func() (err error) {
		holder, err = net.Listen("tcp4", "0.0.0.0:53")
		return err
	})
	defer holder.Close()
	l.start()
	l.logged("failed to create listening socket for 10.65.0.1: Address already in use", 2)
	l.serving(1)
	m.wantLease("10.65.0.7")
	holder.Close()
	l.answering(1)
	m.wantName("10.65.0.1", "vm1", "10.65.0.7")
	send(t, l.dnsPID(), syscall.SIGKILL)
	l.answering(2)
	m.wantName("10.65.0.1", "vm1", "10.65.0.7")
	send(t, l.dnsPID(), syscall.SIGSTOP)
	l.logged("the dnsmasq that answers DNS hangs", 1)
	l.answering(3)
	m.wantName("10.65.0.1", "vm1", "10.65.0.7")
	// Without an agent it goes on; the next adopts it.
	pid := l.dnsPID()
	l.kill()
	m.wantName("10.65.0.1", "vm1", "10.65.0.7")
	l.start()
	l.logged("adopted the dnsmasq that answers DNS", 1)
	l.logged("ready", 2)
	if l.dnsPID() != pid || !alive(pid) {
		t.Error("it was started anew")
	}
	// One with other options starts it anew.
	l.kill()
	l.options.Plan.Servers = []string{"192.0.2.53"}
	l.start()
	l.answering(4)
	m.wantName("10.65.0.1", "vm1", "10.65.0.7")
	pid = l.dnsPID()
	l.kill()
	l.do(func() error { return Cleanup(l.options) })
	if alive(pid) {
		t.Error("it runs after the clean-up")
	}
}
