package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/netlab/guest"
)

// guestTimeout bounds what a guest does, whose processor is emulated.
const guestTimeout = 2 * time.Minute

// guestSite has two hosts with agents and a network, and boots virtual machines.
type guestSite struct {
	*site
	api     *client
	network object
	image   *guest.Image
	hosts   []*host
}

// newGuestSite starts the server and the hosts, h1 and h2.
func newGuestSite(t *testing.T) *guestSite {
	t.Helper()
	s := &guestSite{site: newSite(t)}
	var err error
	if s.image, err = guest.Build(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	s.serve(t)
	s.api = login(t, s.ctl, "127.0.0.1", s.data)
	s.network = s.api.mustCreate(t, "network", map[string]any{"name": "blue", "mtu": 1450})
	s.api.mustCreate(t, "subnet", map[string]any{"network_id": s.network.ID, "ip_version": 4, "cidr": "10.0.0.0/24"})
	for i := range 2 {
		h := s.addHost(t, fmt.Sprint("h", i+1), fmt.Sprintf("192.0.2.1%d", i+1))
		start(t, h.ns, h.agent("--join", s.token(t, h.name))...)
		s.hosts = append(s.hosts, h)
	}
	return s
}

// guestPort is the port of a virtual machine.
type guestPort struct {
	object
	address, mac string
}

func (p guestPort) tap() string { return "tap" + p.ID[:11] }

// newPort makes a port that admits everything, with the MAC and IP address of a number, on a host.
func (s *guestSite) newPort(t *testing.T, h *host, number int) guestPort {
	t.Helper()
	port, mac := s.api.bindPort(t, s.network.ID, h, number)
	s.api.allowAll(t, port)
	return guestPort{port, fmt.Sprintf("10.0.0.%d", number), mac}
}

// boot starts a guest with a port. It ends with the test.
func (s *guestSite) boot(t *testing.T, h *host, p guestPort, more guest.Options) *guest.Guest {
	t.Helper()
	more.Name, more.Namespace, more.Tap, more.MAC = p.tap(), h.ns, p.tap(), p.mac
	g, err := guest.Start(context.WithoutCancel(t.Context()), s.image, more)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console of the guest with %s:\n%s", p.address, g.Console())
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// run runs a line of shell in a guest.
func run(t *testing.T, g *guest.Guest, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guestTimeout)
	defer cancel()
	text, err := g.Run(ctx, line)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ready waits until guests have a shell and the addresses of their ports.
func ready(t *testing.T, guests ...*guest.Guest) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guestTimeout)
	defer cancel()
	var waits sync.WaitGroup
	for _, g := range guests {
		waits.Go(func() {
			if lease, err := g.Ready(ctx); err != nil || !lease {
				t.Errorf("a guest got its lease: %v, %v", lease, err)
			}
		})
	}
	if waits.Wait(); t.Failed() {
		t.FailNow()
	}
}

// status returns the status of a port and the host it is bound to.
func (s *guestSite) status(t *testing.T, p guestPort) (status, host string) {
	t.Helper()
	var answer struct {
		Port struct {
			Status string
			Host   string `json:"binding:host_id"`
		}
	}
	if err := s.api.call(t.Context(), http.MethodGet, "/v2.0/ports/"+p.ID, nil, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Port.Status, answer.Port.Host
}

// gaps receives a TCP stream in a namespace and notes the pauses in it.
type gaps struct {
	mu       sync.Mutex
	last     time.Time
	longest  time.Duration
	received int // bytes
}

// newGaps listens at an address in a namespace.
func newGaps(t *testing.T, ns *netlab.Namespace, at string) *gaps {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) { l, err = net.Listen("tcp4", at); return err }); err != nil {
		t.Fatal(err)
	}
	g := &gaps{}
	var receiving sync.WaitGroup
	t.Cleanup(func() { l.Close(); receiving.Wait() })
	receiving.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		defer c.Close()
		context.AfterFunc(t.Context(), func() { c.Close() })
		for buffer := make([]byte, 4096); ; {
			n, err := c.Read(buffer)
			if err != nil {
				return // the sender or the test has ended
			}
			g.note(n)
		}
	})
	return g
}

func (g *gaps) note(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if !g.last.IsZero() {
		g.longest = max(g.longest, now.Sub(g.last))
	}
	g.last = now
	g.received += n
}

// begin forgets the pauses until now and waits until the stream has gone on.
func (g *gaps) begin(t *testing.T) {
	t.Helper()
	g.goneOn(t)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.longest = 0
}

// goneOn waits until more has come.
func (g *gaps) goneOn(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	before := g.received
	g.mu.Unlock()
	within(t, "the stream to go on", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.received > before
	})
}

// end waits until the stream has gone on and returns the longest pause since begin.
func (g *gaps) end(t *testing.T) time.Duration {
	t.Helper()
	g.goneOn(t)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.longest
}

// TestGuests runs virtual machines on two hosts.
func TestGuests(t *testing.T) {
	t.Parallel()
	s := newGuestSite(t)
	h1, h2 := s.hosts[0], s.hosts[1]
	p1, p2 := s.newPort(t, h1, 11), s.newPort(t, h2, 12)
	g1, g2 := s.boot(t, h1, p1, guest.Options{}), s.boot(t, h2, p2, guest.Options{Queues: 2})
	ready(t, g1, g2)
	t.Run("lease", func(t *testing.T) {
		has(t, run(t, g1, "ip addr show eth0"), "10.0.0.11/24", "mtu 1450", p1.mac)
		has(t, run(t, g2, "ip addr show eth0"), "10.0.0.12/24", "mtu 1450", p2.mac)
	})
	t.Run("traffic", func(t *testing.T) {
		run(t, g1, "ping -c 3 10.0.0.12")
		run(t, g1, "ping -c 1 -s 20000 10.0.0.12") // in fragments
		run(t, g2, "(nc -l -p 7000 -e sh -c 'md5sum >/tmp/sum; mv /tmp/sum /tmp/received' </dev/null >/dev/null 2>&1 &)")
		sent := run(t, g1, "dd if=/dev/urandom of=/tmp/sent bs=64k count=64 2>/dev/null; md5sum </tmp/sent")
		run(t, g1, "nc 10.0.0.12 7000 </tmp/sent")
		received := run(t, g2, "until cat /tmp/received 2>/dev/null; do usleep 10000; done")
		if received != sent || !strings.HasSuffix(sent, "  -\n") {
			t.Errorf("received %q, sent %q", received, sent)
		}
		for _, g := range []*guest.Guest{g1, g2} {
			tcp := strings.Fields(run(t, g, "grep Tcp: /proc/net/snmp"))
			if at := len(tcp)/2 - 1; tcp[at] != "InCsumErrors" || tcp[2*at+1] != "0" {
				t.Errorf("TCP counts in a guest: %v", tcp)
			}
		}
	})
	t.Run("libvirt hook", func(t *testing.T) { s.followHook(t) })
	t.Run("migration", func(t *testing.T) { s.migrate(t, g1, p1) })
}

// migrate moves a guest live to the second host while it sends a TCP stream to a machine there. Its
// binding to that host is activated without any call when it runs there.
func (s *guestSite) migrate(t *testing.T, g *guest.Guest, p guestPort) {
	from, to := s.hosts[0], s.hosts[1]
	peer := s.lab.MustNamespace(t, "peer")
	port, mac := s.api.bindPort(t, s.network.ID, to, 20)
	s.api.allowAll(t, port)
	plug(t, peer, "eth0", mac, to, port)
	peer.MustIP(t, "link set eth0 up", "addr add 10.0.0.20/24 dev eth0")
	stream := newGaps(t, peer, "10.0.0.20:9000")
	run(t, g, "(while echo .; do usleep 10000; done </dev/null | nc 10.0.0.20 9000 >/dev/null 2>&1 &)")
	stream.goneOn(t)

	body := map[string]any{"binding": map[string]any{"host": to.name}}
	if err := s.api.call(t.Context(), http.MethodPost, "/v2.0/ports/"+p.ID+"/bindings", body, nil); err != nil {
		t.Fatal(err)
	}
	next := s.boot(t, to, p, guest.Options{Incoming: true})
	stream.begin(t)
	if status, host := s.status(t, p); status != "ACTIVE" || host != from.name {
		t.Errorf("before the machine runs on the next host the port is %s on %s", status, host)
	}
	ctx, cancel := context.WithTimeout(t.Context(), guestTimeout)
	defer cancel()
	if err := g.Migrate(ctx, next); err != nil {
		t.Fatal(err)
	}
	within(t, "the port to be served by the next host", func() bool {
		status, host := s.status(t, p)
		return status == "ACTIVE" && host == to.name
	})
	t.Logf("longest pause of the stream: %v", stream.end(t))
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	stream.goneOn(t)
	has(t, run(t, next, "ip addr show eth0"), p.address+"/24")
}

// domain returns the XML of a domain with a port, as libvirt gives it to its hook.
func domain(p guestPort, mac, tap string) string {
	return fmt.Sprintf("<domain type='kvm'><name>vm</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa0</uuid>"+
		"<metadata><heddle:port xmlns:heddle='https://heddle.invalid/libvirt' id='%s'/></metadata>"+
		"<devices><interface type='ethernet'><mac address='%s'/>%s</interface></devices></domain>", p.ID, mac, tap)
}

// hook calls libvirt's hook as libvirt on a host does, and returns what it says and its exit code.
func (s *guestSite) hook(t *testing.T, host, operation, xml string, more ...string) (string, int) {
	t.Helper()
	cmd := heddle(append([]string{"libvirt-hook", "vm", operation, "begin", "-", "--data", s.data, "--host", host}, more...)...)
	cmd.Env = append(cmd.Env, "HOME="+t.TempDir())
	cmd.Stdin = strings.NewReader(xml)
	log := &netlab.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := s.ctl.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its exit code is looked at
	return log.String(), cmd.ProcessState.ExitCode()
}

// followHook walks a port through the calls of libvirt's hook on two hosts: a start, a migration
// that fails, one that succeeds though no frame was seen, and the end; then through what it
// refuses.
func (s *guestSite) followHook(t *testing.T) {
	h1, h2 := s.hosts[0].name, s.hosts[1].name
	made := s.api.mustCreate(t, "port", map[string]any{"network_id": s.network.ID, "mac_address": "02:00:00:00:00:1e"})
	p := guestPort{object: made, mac: "02:00:00:00:00:1e"}
	xml := domain(p, p.mac, "<target dev='"+p.tap()+"'/>")
	type state struct{ host, owner, bindings string }
	is := func(when string, want state) {
		t.Helper()
		var answer struct {
			Port struct {
				Host  string `json:"binding:host_id"`
				Owner string `json:"device_owner"`
			}
		}
		if err := s.api.call(t.Context(), http.MethodGet, "/v2.0/ports/"+p.ID, nil, &answer); err != nil {
			t.Fatal(err)
		}
		got := state{host: answer.Port.Host, owner: answer.Port.Owner}
		if got.owner != "" {
			var list struct {
				Bindings []struct{ Host, Status string }
			}
			if err := s.api.call(t.Context(), http.MethodGet, "/v2.0/ports/"+p.ID+"/bindings", nil, &list); err != nil {
				t.Fatal(err)
			}
			for _, b := range list.Bindings {
				got.bindings += b.Host + " " + b.Status + " "
			}
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	call := func(host, operation string) {
		t.Helper()
		if text, code := s.hook(t, host, operation, xml); code != 0 || text != "" {
			t.Fatalf("%s on %s: exit code %d: %s", operation, host, code, text)
		}
	}
	const owner = "compute:libvirt"
	onFirst := state{h1, owner, h1 + " ACTIVE "}
	call(h1, "prepare")
	is("started", onFirst)
	call(h1, "started")
	is("started", onFirst)
	for what, copied := range map[string]string{"a copy": strings.Replace(xml, "4dea22b3", "4dea22b4", 1),
		"a copy with another MAC address": strings.NewReplacer("4dea22b3", "4dea22b4", p.mac, "02:00:00:00:00:1f").Replace(xml)} {
		for _, host := range []string{h1, h2} {
			if text, code := s.hook(t, host, "prepare", copied); code != 1 || !strings.Contains(text, "it is bound to host "+h1+" for the domain with the UUID 4dea22b3-1d52-d8f3-2516-782e98ab3fa0") {
				t.Errorf("%s of the domain on %s: exit code %d: %s", what, host, code, text)
			}
			if text, code := s.hook(t, host, "release", copied); code != 0 || text != "" { // as libvirt does when the start has failed
				t.Errorf("release of %s: exit code %d: %s", what, code, text)
			}
		}
		is(what+" did not start", onFirst)
	}
	call(h2, "prepare")
	is("about to migrate", state{h1, owner, h1 + " ACTIVE " + h2 + " INACTIVE "})
	call(h2, "release")
	is("the migration failed", onFirst)
	call(h2, "prepare")
	call(h1, "release")
	is("migrated", state{h2, owner, h2 + " ACTIVE "})
	call(h2, "release")
	is("ended", state{})

	for what, c := range map[string]struct{ host, xml, words string }{
		"another MAC address":  {h1, domain(p, "02:00:00:00:00:1f", "<target dev='tap0'/>"), "no interface of the domain has the port's MAC address: write <mac address='02:00:00:00:00:1e'/>"},
		"no interface's name":  {h1, domain(p, p.mac, ""), "its interface has no name on the host: write <target dev='" + p.tap() + "'/>"},
		"a path as a name":     {h1, domain(p, p.mac, "<target dev='../x'/>"), "its interface is called ../x on the host, which no interface can be: write <target dev='" + p.tap() + "'/>"},
		"an unknown host":      {"elsewhere", xml, "no host has joined as elsewhere: start `heddle agent` on it, or name its agent with --host"},
		"half of the XML":      {h1, xml[:40], "the domain's XML: XML syntax error"},
		"a name for an id":     {h1, strings.ReplaceAll(xml, p.ID, "web2"), "port web2: this is no port's id: write <heddle:port id='ID'/>"},
		"a port that has gone": {h1, strings.ReplaceAll(xml, p.ID, "00000000-0000-0000-0000-000000000000"), "could not be found"},
	} {
		if text, code := s.hook(t, c.host, "prepare", c.xml); code != 1 || !strings.Contains(text, c.words) {
			t.Errorf("%s: exit code %d: %s; want 1 and %q", what, code, text, c.words)
		}
	}
	away := []string{"--clouds", filepath.Join(t.TempDir(), "clouds.yaml")}
	writeFile(t, away[1], "clouds: {heddle: {auth: {auth_url: 'http://127.0.0.1:1/v3', username: a, password: b, project_name: c, user_domain_name: d, project_domain_name: d}}}")
	if text, code := s.hook(t, h1, "prepare", xml, away...); code != 1 || !strings.Contains(text, "ports of domain vm: cannot reach the server's API: log in at http://127.0.0.1:1/v3") {
		t.Errorf("without the API: exit code %d: %s", code, text)
	}
	if err := os.Chmod(away[1], 0o644); err != nil {
		t.Fatal(err)
	}
	if text, code := s.hook(t, h1, "prepare", xml, away...); code != 1 || !strings.Contains(text, "`chmod 600 "+away[1]+"`") {
		t.Errorf("with credentials that all can read: exit code %d: %s", code, text)
	}
	if text, code := s.hook(t, h1, "prepare", "<domain><name>other</name></domain>", away...); code != 0 || text != "" {
		t.Errorf("a domain without a port: exit code %d: %s", code, text)
	}
}
