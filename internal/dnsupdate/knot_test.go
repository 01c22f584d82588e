package dnsupdate

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const secret = "c2VjcmV0IG9mIHRoZSB0ZXN0cyBvZiBIZWRkbGUhISE="

// knot is a DNS server that takes signed updates of example.org and reverse zones.
type knot struct {
	t       testing.TB
	dir     string
	address string
	process *exec.Cmd
}

func zones() []string {
	return []string{"example.org", "113.0.203.in-addr.arpa", "8.b.d.0.1.0.0.2.ip6.arpa."}
}

func testKey() Key { return Key{Name: "heddle", Algorithm: "hmac-sha256", Secret: secret} }

// newKnot starts a server.
func newKnot(t testing.TB) *knot {
	t.Helper()
	k := &knot{t: t, dir: t.TempDir(), address: freeAddress(t)}
	host, port, err := net.SplitHostPort(k.address)
	if err != nil {
		t.Fatal(err)
	}
	var conf strings.Builder
	fmt.Fprintf(&conf, "server:\n  rundir: %s\n  listen: %s@%s\nlog:\n  - target: stderr\n    any: warning\ndatabase:\n  storage: %[1]s\n", k.dir, host, port)
	fmt.Fprintf(&conf, "key:\n  - id: heddle.\n    algorithm: hmac-sha256\n    secret: %s\nacl:\n  - id: update\n    key: heddle.\n    action: update\nzone:\n", secret)
	for i, zone := range zones() {
		fmt.Fprintf(&conf, "  - domain: %s\n    storage: %s\n    file: %d.zone\n    acl: update\n", dns.Fqdn(zone), k.dir, i)
		k.write(fmt.Sprintf("%d.zone", i), "@ 60 SOA ns admin 1 60 60 60 60\n@ 60 NS ns.example.net.\n")
	}
	k.write("0.zone", "@ 60 SOA ns admin 1 60 60 60 60\n@ 60 NS ns.example.net.\ntaken 60 TXT \"of another\"\n")
	k.write("knot.conf", conf.String())
	k.start()
	t.Cleanup(k.stop)
	return k
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (k *knot) write(name, text string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// start starts the server and waits until it answers.
func (k *knot) start() {
	k.t.Helper()
	k.process = exec.Command("knotd", "--config", filepath.Join(k.dir, "knot.conf"))
	k.process.Stderr = k.t.Output()
	if err := k.process.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.await("example.org.", dns.TypeSOA, "ns.example.org. admin.example.org.")
}

// stop ends the server. What it was told remains.
func (k *knot) stop() {
	if k.process == nil {
		return
	}
	_ = k.process.Process.Signal(os.Interrupt)
	_ = k.process.Wait()
	k.process = nil
}

// ask returns the answers for a name, sorted; an error is one of them.
func (k *knot) ask(name string, kind uint16) []string {
	answer, _, err := (&dns.Client{Net: "tcp"}).Exchange(new(dns.Msg).SetQuestion(name, kind), k.address)
	if err != nil {
		return []string{err.Error()}
	}
	all := []string{}
	for _, rr := range answer.Answer {
		text := strings.TrimPrefix(rr.String(), rr.Header().String())
		if soa, ok := rr.(*dns.SOA); ok {
			text = soa.Ns + " " + soa.Mbox
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

// await waits until the answers for a name are those wanted.
func (k *knot) await(name string, kind uint16, want ...string) {
	k.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(30 * time.Second)
	for {
		got := k.ask(name, kind)
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			k.t.Fatalf("%s %s: %q, want %q", name, dns.TypeToString[kind], got, want)
		}
	}
}
