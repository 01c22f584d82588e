package main

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"heddle/internal/admin"
	"heddle/internal/api/apitest"
	"heddle/internal/netlab"
)

// administrated is a server whose settings and socket a test changes and uses.
type administrated struct {
	*running
	t         *testing.T
	file, dir string // of settings, of the socket
	data      string
	cert, key string
}

func newAdministrated(t *testing.T) *administrated {
	t.Helper()
	dir := t.TempDir()
	a := &administrated{t: t, file: filepath.Join(dir, "heddle.yaml"), dir: filepath.Join(dir, "run"), data: filepath.Join(dir, "data"),
		cert: filepath.Join(dir, "cert"), key: filepath.Join(dir, "key")}
	apitest.SelfSigned(t, a.cert, a.key, 1)
	a.configure("")
	a.running = start(t, netlab.ForTest(t).MustNamespace(t, "serve"), "serve", "--config", a.file, "--run-dir", a.dir)
	return a
}

// configure writes the server's file of settings, with more lines.
func (a *administrated) configure(more string) {
	a.t.Helper()
	text := "serve:\n  data: " + a.data + "\n  tls-cert: " + a.cert + "\n  tls-key: " + a.key + "\n" + more
	if err := os.WriteFile(a.file, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *administrated) run(args ...string) string {
	a.t.Helper()
	return succeed(a.t, a.ns, append(args, "--run-dir", a.dir)...)
}

func (a *administrated) want(words string, args ...string) {
	a.t.Helper()
	if got := a.run(args...); !strings.Contains(got, words) {
		a.t.Errorf("heddle %s: want %q in\n%s", strings.Join(args, " "), words, got)
	}
}

// serial returns the serial number of the certificate that the API presents.
func (a *administrated) serial() (serial string) {
	a.t.Helper()
	err := a.ns.Do(func() error {
		conn, err := tls.Dial("tcp", "127.0.0.1:9696", &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		defer conn.Close()
		serial = conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return serial
}

// TestReload: a server takes a log level, an address of metrics and a certificate while it runs,
// all of them or none, and names the settings that take a restart.
func TestReload(t *testing.T) {
	t.Parallel()
	a := newAdministrated(t)
	a.want("serve: nothing has changed", "reload")
	a.configure("  log-level: debug\n  metrics: 127.0.0.1:9797\n  underlay-mtu: 9000\n")
	apitest.SelfSigned(t, a.cert, a.key, 2)
	a.want("serve: needs a restart for underlay-mtu; reloaded log-level, metrics, certificate "+a.cert, "reload", "serve")
	if a.serial() != "2" {
		t.Error("the old certificate is served")
	}
	a.running.health = "127.0.0.1:9797"
	if status, text, err := a.page(t.Context(), "/readyz"); status != 200 {
		t.Errorf("at the new address of metrics: %d %s %v", status, text, err)
	}
	a.want("serve: debug as configured; parts: ", "log-level")
	a.want("serve: needs a restart for underlay-mtu; nothing else has changed", "reload")

	apitest.SelfSigned(t, a.cert, filepath.Join(t.TempDir(), "key"), 3) // of another key
	a.configure("  log-level: warn\n  metrics: 127.0.0.1:9697\n")
	refuse(t, a.ns, 1, "TLS certificate "+a.cert+" with key "+a.key+": tls: private key does not match", "reload", "--run-dir", a.dir)
	apitest.SelfSigned(t, a.cert, a.key, 4)
	a.configure("  log-level: loud\n")
	refuse(t, a.ns, 1, `serve.log-level: "loud": want debug`, "reload", "--run-dir", a.dir)
	a.configure("  lok-level: info\n")
	refuse(t, a.ns, 1, "serve.lok-level: no such setting", "reload", "--run-dir", a.dir)
	if status, text, err := a.page(t.Context(), "/readyz"); status != 200 || a.serial() != "2" {
		t.Errorf("after refused reloads: %d %s %v, certificate %s", status, text, err, a.serial())
	}
	a.want("serve: debug as configured", "log-level")

	dropIn := filepath.Join(filepath.Dir(a.file), dropInDir, "50-debug.yaml")
	if err := os.Mkdir(filepath.Dir(dropIn), 0o755); err != nil {
		t.Fatal(err)
	}
	a.configure("  log-level: debug\n  metrics: 127.0.0.1:9797\n")
	writeFile(t, dropIn, "serve:\n  log-level: error\n  max-restarts: 1\n")
	refuse(t, a.ns, 1, dropIn+":3: serve.max-restarts: no such setting", "reload", "--run-dir", a.dir)
	writeFile(t, dropIn, "serve:\n  log-level: error\n  store-quota: 4096\n")
	a.want("serve: needs a restart for store-quota; reloaded log-level, certificate "+a.cert, "reload")
	a.want("serve: error as configured", "log-level")
}

// TestLogLevel: the level of a running server's log changes, for all parts or for one.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	a := newAdministrated(t)
	a.want("serve: debug of all parts, until ", "log-level", "debug", "--for", "10m")
	a.want("serve: error of neutron, until it ends", "log-level", "neutron=error", "--role", "serve")
	if got := a.run("log-level", "default"); strings.Contains(got, "until") || !strings.Contains(got, "serve: info as configured") {
		t.Errorf("back: %s", got)
	}
	for words, args := range map[string][]string{
		`log level "loud": want debug, info, warn or error, or default`: {"loud"},
		"--for: give a level, too":                                      {"--for", "1m"},
		"want whole seconds":                                            {"info", "--for", "1ms"},
		`role "server": want agent`:                                     {"info", "--role", "server"},
	} {
		refuse(t, a.ns, 2, words, append([]string{"log-level", "--run-dir", a.dir}, args...)...)
	}
	refuse(t, a.ns, 1, "heddle serve: no part \"neutrons\" logs here; parts: ", "log-level", "neutrons=info", "--run-dir", a.dir)
	refuse(t, a.ns, 1, "heddle agent: not running", "log-level", "--role", "agent", "--run-dir", a.dir)
	refuse(t, a.ns, 1, "no role of Heddle has a socket in", "reload", "--run-dir", t.TempDir())

	if err := a.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	a.waitLog(t, "goroutine 1 [")
	if _, err := admin.Dial(a.dir, "serve").Status(t.Context()); err != nil {
		t.Errorf("after SIGUSR1: %v", err)
	}
	a.stop(t)
	if left, err := admin.Roles(a.dir); err != nil || len(left) > 0 {
		t.Errorf("sockets at the end: %v, %v", left, err)
	}
}
