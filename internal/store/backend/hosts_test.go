package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/store"
)

// joined returns the TLS configuration of a host that was allowed in and got its certificate.
func joined(t testing.TB, server *Etcd, host string) *tls.Config {
	t.Helper()
	return joinedBy(t, server, host, "")
}

// joinedBy is joined for the user of a key.
func joinedBy(t testing.TB, server *Etcd, host, fingerprint string) *tls.Config {
	t.Helper()
	if err := server.AllowHost(t.Context(), host, "name-of-"+host, fingerprint); err != nil {
		t.Fatal(err)
	}
	key, keyPEM, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{Subject: pkix.Name{CommonName: rootUser}}, key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, err := server.Issue(host, fingerprint, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	config := trusting(server)
	config.Certificates = []tls.Certificate{pair}
	return config
}

func trusting(server *Etcd) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(server.Authority().PEM())
	return &tls.Config{RootCAs: roots}
}

func connect(t testing.TB, server *Etcd, config *tls.Config) (*Etcd, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	s, err := Open(ctx, Options{Cluster: &Cluster{Endpoints: []string{"https://" + server.Endpoint()}, TLS: config, SkipLimits: true}, Log: testLog(t)})
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func TestHostsRights(t *testing.T) {
	t.Parallel()
	server := openTest(t, Embedded{Agents: "127.0.0.1:0"})
	mustCommit(t, server, put("/heddle/schema", "1"), put("/heddle/topology/port/1", "p"), put("/heddle/identity/users/1", "secret"),
		put("/heddle/join/1", "secret"), put("/heddle/neutron/ports/1", "p"), put("/heddle/hosts/h1", "{}"), put("/heddle/hosts/h10", "{}"), put("/heddle/hosts/h2", "{}"), put("/heddle/underlay/h2", "{}"),
		put("/heddle/state/h2/alive", "{}"), put("/heddle/trace/requests/h1/1", "t"), put("/heddle/trace/requests/h2/1", "t"),
		put("/heddle/secrets/h1/bgp/r", "s"), put("/heddle/secrets/h2/bgp/r", "s"), put("/calico/v1/x", "{}"),
		put("/heddle/xen/objects/PIF/OpaqueRef:1", "{}"), put("/heddle/xen/orders/OpaqueRef:h1/1", "{}"), put("/heddle/xen/orders/OpaqueRef:h2/1", "{}"),
		put("/heddle/xen/accounts/root", "secret"), put("/heddle/xen/state/OpaqueRef:h2/alive", "{}"))
	agent, err := connect(t, server, joined(t, server, "h1"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for key, want := range map[string]error{
		"/heddle/schema":              nil,
		"/heddle/topology/port/1":     nil,
		"/heddle/hosts/h2":            nil,
		"/heddle/underlay/h2":         nil,
		"/heddle/state/h2/alive":      nil,
		"/heddle/trace/requests/h1/1": nil,
		"/heddle/secrets/h1/bgp/r":    nil,
		"/calico/v1/x":                nil,
		"/heddle/identity/users/1":    store.ErrDenied,
		"/heddle/join/1":              store.ErrDenied,
		"/heddle/neutron/ports/1":     store.ErrDenied,
		"/heddle/trace/requests/h2/1": store.ErrDenied,
		"/heddle/secrets/h2/bgp/r":    store.ErrDenied,
		"/heddle/guard/x":             store.ErrDenied,

		"/heddle/xen/objects/PIF/OpaqueRef:1":  nil,
		"/heddle/xen/orders/OpaqueRef:h1/1":    nil,
		"/heddle/xen/orders/OpaqueRef:h2/1":    store.ErrDenied,
		"/heddle/xen/accounts/root":            store.ErrDenied,
		"/heddle/xen/state/OpaqueRef:h2/alive": store.ErrDenied,
	} {
		if _, err := agent.Get(ctx, key); !errors.Is(err, want) {
			t.Errorf("read %s: %v, want %v", key, err, want)
		}
	}
	lease, err := agent.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]error{
		"/heddle/state/h1/alive":                         nil,
		"/heddle/state/h1/ports/1":                       nil,
		"/heddle/underlay/h1":                            nil,
		"/heddle/underlay/h10":                           store.ErrDenied,
		"/heddle/hosts/h1":                               store.ErrDenied,
		"/heddle/hosts/h10":                              store.ErrDenied,
		"/heddle/state/h10/alive":                        store.ErrDenied,
		"/heddle/state/h2/alive":                         store.ErrDenied,
		"/heddle/hosts/h2":                               store.ErrDenied,
		"/heddle/topology/port/1":                        store.ErrDenied,
		"/heddle/identity/users/1":                       store.ErrDenied,
		"/heddle/schema":                                 store.ErrDenied,
		"/calico/v1/x":                                   store.ErrDenied,
		"/calico/felix/v1/host/name-of-h1/status":        nil,
		"/calico/felix/v1/host/name-of-h1/endpoint/eth0": nil,
		"/calico/felix/v1/host/name-of-h10/status":       store.ErrDenied,
		"/calico/felix/v1/host/h1/status":                store.ErrDenied,
		"/calico/v1/host/name-of-h1/endpoint/eth0":       store.ErrDenied,
		"/calico/v1/Ready":                               store.ErrDenied,
		"/heddle/trace/requests/h1/":                     store.ErrDenied,
		"/heddle/secrets/h1/bgp/r":                       store.ErrDenied,
		"/heddle/xen/state/OpaqueRef:h1/alive":           nil,
		"/heddle/xen/state/OpaqueRef:h1/bridges/xapi0":   nil,
		"/heddle/xen/state/OpaqueRef:h10/alive":          store.ErrDenied,
		"/heddle/xen/objects/PIF/OpaqueRef:1":            store.ErrDenied,
		"/heddle/xen/orders/OpaqueRef:h1/1":              store.ErrDenied,
	} {
		if _, err := agent.Commit(ctx, nil, []store.Op{{Key: key, Value: []byte("mine"), Lease: lease}}); !errors.Is(err, want) {
			t.Errorf("write %s: %v, want %v", key, err, want)
		}
		if _, err := agent.Commit(ctx, nil, []store.Op{{Key: key, Delete: true}}); !errors.Is(err, want) {
			t.Errorf("delete %s: %v, want %v", key, err, want)
		}
	}
	if _, err := agent.Commit(ctx, []store.Cond{{Key: "/heddle/identity/users/1", Mod: 1}}, []store.Op{put("/heddle/state/h1/x", "")}); !errors.Is(err, store.ErrDenied) {
		t.Errorf("a condition on a secret key: %v, want ErrDenied", err)
	}
	if err := agent.AllowHost(ctx, "h3", "three", ""); !errors.Is(err, store.ErrDenied) {
		t.Errorf("a host allows a host: %v, want ErrDenied", err)
	}
	changes, failed := agent.Watch(ctx, 1, "/heddle/")
	for range changes {
		t.Error("a host can watch everything")
	}
	if err := failed(); !errors.Is(err, store.ErrDenied) {
		t.Errorf("watch of everything: %v, want ErrDenied", err)
	}
}

// A host that is removed loses its rights at once, an open watch too; others keep theirs and lose
// nothing.
func TestRemoveHost(t *testing.T) {
	t.Parallel()
	server := openTest(t, Embedded{Agents: "127.0.0.1:0"})
	rev := mustCommit(t, server, put("/heddle/topology/port/1", "a"), put("/heddle/state/h1/alive", "{}"), put("/heddle/xen/state/OpaqueRef:h1/alive", "{}"))
	ctx := t.Context()
	agent, err := connect(t, server, joined(t, server, "h1"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := connect(t, server, joined(t, server, "h2"))
	if err != nil {
		t.Fatal(err)
	}
	changes, failed := agent.Watch(ctx, rev-1, "/heddle/topology/", "/heddle/state/")
	collect(t, changes, failed, rev)
	otherChanges, otherFailed := other.Watch(ctx, rev-1, "/heddle/topology/", "/heddle/state/")
	collect(t, otherChanges, otherFailed, rev)

	for range 2 { // again is fine
		if err := server.RemoveHost(ctx, "h1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := server.Get(ctx, "/heddle/xen/state/OpaqueRef:h1/alive"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the removed host's report to its pool: %v, want ErrNotFound", err)
	}
	last := mustCommit(t, server, put("/heddle/topology/port/1", "secret"))
	for c := range changes {
		for _, e := range c.Events {
			t.Errorf("the removed host still sees %s = %s", e.Key, e.Value)
		}
	}
	if err := failed(); !errors.Is(err, store.ErrDenied) {
		t.Errorf("the removed host's watch: %v, want ErrDenied", err)
	}
	if _, err := agent.Get(ctx, "/heddle/topology/port/1"); !errors.Is(err, store.ErrDenied) {
		t.Errorf("the removed host reads: %v, want ErrDenied", err)
	}
	got := collect(t, otherChanges, otherFailed, last)
	if want := []string{"-/heddle/state/h1/alive", "|", "/heddle/topology/port/1=secret", "|"}; len(got) != len(want) {
		t.Errorf("the other host sees %q, want %q", got, want)
	}
}

// TestOtherKeysOfHost: a host's rights are those of its last key. An earlier one loses them at
// once, an open watch too, whether it had a user of its own or that of earlier versions.
func TestOtherKeysOfHost(t *testing.T) {
	t.Parallel()
	first, second := strings.Repeat("1", 64), strings.Repeat("2", 64)
	for name, stolen := range map[string]string{"of an earlier version": "", "of its own": first} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := openTest(t, Embedded{Agents: "127.0.0.1:0"})
			rev := mustCommit(t, server, put("/heddle/topology/port/1", "a"), put("/heddle/secrets/h1/bgp/r", "s"))
			ctx := t.Context()
			thief, err := connect(t, server, joinedBy(t, server, "h1", stolen))
			if err != nil {
				t.Fatal(err)
			}
			neighbour, err := connect(t, server, joinedBy(t, server, "h10", first))
			if err != nil {
				t.Fatal(err)
			}
			changes, failed := thief.Watch(ctx, rev-1, "/heddle/secrets/h1/")
			collect(t, changes, failed, rev)
			agent, err := connect(t, server, joinedBy(t, server, "h1", second))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // again is fine
				if err := server.EndOtherKeys(ctx, "h1", second); err != nil {
					t.Fatal(err)
				}
			}
			mustCommit(t, server, put("/heddle/secrets/h1/bgp/r", "new"))
			for c := range changes {
				for _, e := range c.Events {
					t.Errorf("the earlier key still sees %s = %s", e.Key, e.Value)
				}
			}
			if err := failed(); !errors.Is(err, store.ErrDenied) {
				t.Errorf("the watch with the earlier key: %v, want ErrDenied", err)
			}
			if _, err := thief.Get(ctx, "/heddle/topology/port/1"); !errors.Is(err, store.ErrDenied) {
				t.Errorf("read with the earlier key: %v, want ErrDenied", err)
			}
			if _, err := thief.Commit(ctx, nil, []store.Op{put("/heddle/state/h1/thief", "")}); !errors.Is(err, store.ErrDenied) {
				t.Errorf("write with the earlier key: %v, want ErrDenied", err)
			}
			if _, err := agent.Commit(ctx, nil, []store.Op{put("/heddle/state/h1/alive", "{}")}); err != nil {
				t.Errorf("write with the last key: %v", err)
			}
			if _, err := neighbour.Commit(ctx, nil, []store.Op{put("/heddle/state/h10/alive", "{}")}); err != nil {
				t.Errorf("write of another host: %v", err)
			}
			if err := server.RemoveHost(ctx, "h1"); err != nil {
				t.Fatal(err)
			}
			if _, err := agent.Get(ctx, "/heddle/topology/port/1"); !errors.Is(err, store.ErrDenied) {
				t.Errorf("the removed host reads: %v, want ErrDenied", err)
			}
		})
	}
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	server := openTest(t, Embedded{Agents: "127.0.0.1:0"})
	noCert, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Open(noCert, Options{Cluster: &Cluster{Endpoints: []string{"https://" + server.Endpoint()}, TLS: trusting(server)}})
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("a client without a certificate: %v, want to be told that one is required", err)
	}
	// A certificate alone is nothing: etcd must know its user.
	config := joined(t, server, "h1")
	if err := server.RemoveHost(t.Context(), "h1"); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, server, config); !errors.Is(err, store.ErrDenied) {
		t.Errorf("a host that was removed connects: %v, want ErrDenied", err)
	}
	for _, id := range []string{"", "a/b", "../x", "-x", "a b", "x\x00"} {
		if err := server.AllowHost(t.Context(), id, "name", ""); err == nil {
			t.Errorf("host id %q is allowed", id)
		}
	}
	for _, csr := range []string{"", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"} {
		if _, err := server.Issue("h1", "", []byte(csr), time.Hour); err == nil {
			t.Errorf("request %q is signed", csr)
		}
	}
}

// Hosts get no pages of etcd's, which show the server's command line: root has them on a socket.
func TestNoPagesForHosts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := openTest(t, Embedded{DataDir: dir, Agents: "127.0.0.1:0"})
	byHost := joined(t, server, "h1")
	for _, second := range []bool{false, true} { // HTTP/1.1 and HTTP/2
		c := http.Client{Transport: &http.Transport{TLSClientConfig: byHost.Clone(), ForceAttemptHTTP2: second}}
		for _, path := range []string{"/debug/vars", "/metrics", "/health", "/version", "/v3/maintenance/status"} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				if status, text, err := fetch(t, &c, method, "https://"+server.Endpoint()+path); err == nil && status < 400 {
					t.Errorf("%s %s with HTTP/2 %v: %d %q, want a refusal", method, path, second, status, text)
				}
			}
		}
		c.CloseIdleConnections()
	}
	local := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "metrics.sock"))
	}}}
	defer local.CloseIdleConnections()
	// The gauge's value is that of whichever etcd of this process wrote it last: tests start others
	// beside.
	if status, text, err := fetch(t, &local, http.MethodGet, "http://etcd/metrics"); err != nil || status != http.StatusOK || !strings.Contains(text, "\netcd_server_has_leader ") {
		t.Errorf("metrics on root's socket: %d %v, want 200 and etcd_server_has_leader", status, err)
	}
}

// TestPagesForLocalPrograms: what connects to the loopback address has etcd's JSON API, as clients
// in Python use it.
func TestPagesForLocalPrograms(t *testing.T) {
	t.Parallel()
	server := openTest(t, Embedded{DataDir: t.TempDir(), Listen: "127.0.0.1:0"})
	for path, want := range map[string]string{"/version": "etcdserver", "/v3/maintenance/status": "dbSize"} {
		method := http.MethodGet
		if strings.HasPrefix(path, "/v3/") {
			method = http.MethodPost
		}
		if status, text, err := fetch(t, http.DefaultClient, method, "http://"+server.Endpoint()+path); err != nil || status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %q, %v; want 200 and %s", path, status, text, err, want)
		}
	}
}

func fetch(t *testing.T, c *http.Client, method, url string) (status int, text string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// The same store with and without agents: hosts' rights and the authority stay.
func TestWithAndWithoutAgents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := openTest(t, Embedded{DataDir: dir, Agents: "127.0.0.1:0"})
	config := joined(t, first, "h1")
	mustCommit(t, first, put("/heddle/schema", "1"))
	if _, err := Open(t.Context(), Options{Embedded: &Embedded{DataDir: dir}}); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v, want ErrInUse", err)
	}
	first.Close()

	plain := openTest(t, Embedded{DataDir: dir, Listen: "127.0.0.1:0"})
	mustCommit(t, plain, put("/plain", "1"))
	local, err := Open(t.Context(), Options{Cluster: &Cluster{Endpoints: []string{plain.Endpoint()}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := local.Get(t.Context(), "/plain"); err != nil {
		t.Error("without agents, on loopback:", err)
	}
	local.Close()
	plain.Close()

	again := openTest(t, Embedded{DataDir: dir, Agents: "127.0.0.1:0"})
	agent, err := connect(t, again, config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Get(t.Context(), "/plain"); !errors.Is(err, store.ErrDenied) {
		t.Errorf("with agents again: %v, want ErrDenied", err)
	}
	if _, err := agent.Get(t.Context(), "/heddle/schema"); err != nil {
		t.Error("with agents again:", err)
	}
}

func TestListenOnLoopbackOnly(t *testing.T) {
	for addr, ok := range map[string]bool{"127.0.0.1:2379": true, "[::1]:2379": true, "localhost:0": true, "0.0.0.0:2379": false, "192.0.2.1:2379": false, ":2379": false, "host.example:1": false, "x": false} {
		if err := (Embedded{DataDir: "d", Listen: addr}).check(); (err == nil) != ok {
			t.Errorf("listen on %s: %v, want it allowed: %v", addr, err, ok)
		}
	}
}

// parseFirst reads the first certificate of a file.
func parseFirst(file string) (*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseCertificate(text)
}

// Certificates are renewed in time, and made anew when the names change or the files are broken.
func TestCertificateRenewal(t *testing.T) {
	o := Embedded{DataDir: t.TempDir(), Agents: "192.0.2.7:1"}
	lock, err := o.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	now := time.Now()
	serial := func(at time.Time) string {
		t.Helper()
		if _, err := o.openCertificates(at); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(o.serverCert(), o.serverKey())
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Leaf.VerifyHostname("192.0.2.7"); err != nil {
			t.Error(err)
		}
		return pair.Leaf.SerialNumber.String()
	}
	for _, ahead := range []time.Duration{0, 400 * 24 * time.Hour, 800 * 24 * time.Hour} { // of the clock
		serial(now.Add(ahead))
		for _, file := range []string{o.serverCert(), o.rootCert()} {
			if cert, err := parseFirst(file); err != nil || now.Add(ahead+serverLife/3).After(cert.NotAfter) {
				t.Errorf("%s, %v ahead: %v", file, ahead, err)
			}
		}
	}
	if err := errors.Join(os.RemoveAll(o.tlsDir()), os.MkdirAll(o.tlsDir(), 0o700)); err != nil {
		t.Fatal(err)
	}
	first := serial(now)
	if serial(now.Add(serverLife/2)) != first {
		t.Error("renewed at half its life")
	}
	second := serial(now.Add(serverLife * 3 / 4))
	if second == first {
		t.Error("not renewed towards its end")
	}
	o.Names = []string{"store.example"}
	third := serial(now.Add(serverLife * 3 / 4))
	if third == second {
		t.Error("not made anew for a new name")
	}
	if err := writeFile(o.serverKey(), []byte("broken")); err != nil {
		t.Fatal(err)
	}
	if serial(now.Add(serverLife*3/4)) == third {
		t.Error("not made anew for a broken key")
	}
}
