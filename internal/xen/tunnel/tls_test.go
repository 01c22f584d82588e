package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/storetest"
	"heddle/internal/xen/star"
)

// TestServerName: a host's database is known by the name that its own certificate has, where there
// is a rule for it.
func TestServerName(t *testing.T) {
	o := Options{TLS: &tls.Config{ServerName: "any"}}
	if got := o.tls("a").ServerName; got != "any" {
		t.Errorf("without a rule the name is %q", got)
	}
	o.ServerName = func(host string) string { return "host-" + host }
	if a, b := o.tls("a").ServerName, o.tls("b").ServerName; a != "host-a" || b != "host-b" || o.TLS.ServerName != "any" {
		t.Errorf("the names are %q, %q; what was given is now %q", a, b, o.TLS.ServerName)
	}
}

// TestTLS reaches databases by TLS, both sides being verified, and says of one why it cannot.
func TestTLS(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	dir := t.TempDir()
	ca, err := storetest.NewAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	stranger := t.TempDir()
	other, err := storetest.NewAuthority(stranger)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	for i, h := range l.hosts {
		a, at := ca, dir
		if i == 2 {
			a, at = other, stranger
		}
		if err := a.Pair(h.Name, h.Address.String()); err != nil {
			t.Fatal(err)
		}
		l.vsctl(h, "set-ssl", filepath.Join(at, h.Name+".key"), filepath.Join(at, h.Name+".crt"), file("ca.crt"))
		l.vsctl(h, "set-manager", "pssl:6640:"+h.Address.String())
	}
	if err := ca.Pair("controller"); err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.LoadX509KeyPair(file("controller.crt"), file("controller.key"))
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	_, tunnels := l.star("gre")
	l.controller(store.NewMemory(), func(o *Options) {
		o.OVSDB = "" // ssl
		o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: pool}
		o.Dial = func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = l.ovs.Fabric.Do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return c, err
		}
	})
	l.active(tunnels, 0, 1)
	l.until("why the third is not reached", func() bool {
		text := l.statuses(tunnels)[2]["error"]
		return strings.HasPrefix(text, star.OVSDBUnreachable) && strings.Contains(text, "certificate signed by unknown authority")
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"": "which needs a certificate", "ssl:{address}:6640": "which needs a certificate", "pssl:6640": "write unix:PATH"} {
		if _, err := New(Options{OVSDB: address}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", address, err, want)
		}
	}
	o := Options{OVSDB: defaultOVSDB}
	for address, want := range map[string]string{"192.0.2.1": "ssl:192.0.2.1:6640", "2001:db8::1": "ssl:[2001:db8::1]:6640", "h1.example": "ssl:h1.example:6640"} {
		if got := o.database("h1", address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	if got := fmt.Sprint((&Options{OVSDB: "unix:/run/{host}/db.sock"}).database("h1", "192.0.2.1")); got != "unix:/run/h1/db.sock" {
		t.Error(got)
	}
}

func TestObeyed(t *testing.T) {
	t.Parallel()
	o := obeyed{"here", 7}
	for sign, later := range map[string]bool{"": false, "here": false, "here/6/9": false, "here/7/1": false, "here/8/1": true, "there/8/1": false, "here/x/1": false} {
		if o.later(sign) != later {
			t.Errorf("%q is later: %t", sign, !later)
		}
	}
}
