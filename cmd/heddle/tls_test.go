package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/store/storetest"
)

// certify makes an authority and a certificate for the site's server, and returns the files.
func certify(t *testing.T) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	authority, err := storetest.NewAuthority(dir)
	if err == nil {
		err = authority.Pair("server", "192.0.2.1", "cloud.example")
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "ca.crt"), filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
}

// everywhere has the APIs listen on all addresses, reached by the one of the underlay.
func everywhere(more ...string) []string {
	return append([]string{"--neutron-listen", ":9696", "--identity-listen", ":5000", "--operator-listen", ":9698", "--public-host", "192.0.2.1"}, more...)
}

// readRC returns the variables that an openrc file sets.
func readRC(t *testing.T, data string) (env []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(data, "openrc"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		env = append(env, strings.ReplaceAll(strings.TrimPrefix(line, "export "), "'", ""))
	}
	return env
}

// With a certificate all APIs speak TLS, to clients on other machines too; hosts join by it.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ca, cert, key := certify(t)
	r := s.serve(t, everywhere("--tls-cert", cert, "--tls-key", key)...)

	rc := readRC(t, s.data)
	if text, code := outputWith(t, s.ctl, rc, "host", "list"); code != 1 || !strings.Contains(text, "certificate signed by unknown authority") {
		t.Errorf("a client that does not know the authority: exit code %d\n%s", code, text)
	}
	rc = append(rc, "OS_CACERT="+ca)
	if text, code := outputWith(t, s.ctl, rc, "host", "list"); code != 0 {
		t.Errorf("with OS_CACERT: exit code %d\n%s", code, text)
	}
	h := s.addHost(t, "h1", "192.0.2.11")
	if got := openstack(t, h.ns, rc, "network", "create", "blue", "-f", "value", "-c", "name"); got != "blue" {
		t.Errorf("openstack network create: %q", got)
	}

	token, code := outputWith(t, s.ctl, rc, "host", "token", h.name)
	if code != 0 {
		t.Fatal(token)
	}
	start(t, h.ns, h.agent("--join", strings.TrimSpace(token))...)
	for _, url := range []string{"http://192.0.2.1:9696/", "http://192.0.2.1:5000/v3", "http://192.0.2.1:9698/"} {
		if res, err := r.http().Get(url); err == nil {
			res.Body.Close()
			if res.StatusCode != 400 {
				t.Errorf("%s answers plain HTTP: %s", url, res.Status)
			}
		}
	}
}

// When the way to the server changes, so do the files that the first start wrote; an operator's own
// are left alone.
func TestFirstFilesFollow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, cert, key := certify(t)
	list := func() (string, int) { return output(t, s.ctl, "host", "list", "--data", s.data) }
	server := start(t, s.ctl, "serve", "--data", s.data)
	password := readCloud(t, s.data).Auth.Password
	server.stop(t)
	server = s.serve(t) // the operators' API has a certificate now
	if text, code := list(); code != 0 {
		t.Errorf("the authority has changed: %s", text)
	}
	if text, code := outputWith(t, s.ctl, readRC(t, s.data), "host", "list"); code != 0 {
		t.Errorf("openrc: %s", text)
	}
	server.stop(t)

	clouds := filepath.Join(s.data, "clouds.yaml")
	raw, err := os.ReadFile(clouds)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(raw), "region_name", "verify: false\n    region_name", 1)
	writeFile(t, clouds, edited)
	s.serve(t, everywhere("--tls-cert", cert, "--tls-key", key)...)
	if raw, err := os.ReadFile(clouds); err != nil || string(raw) != edited {
		t.Errorf("an operator's own clouds.yaml has become %q, %v", raw, err)
	}
	if got := readCloud(t, s.data).Auth.Password; got != password {
		t.Errorf("the password is %q, was %q", got, password)
	}
}

// Plain HTTP is for loopback, unless it is asked for by name.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ca, cert, key := certify(t)
	for _, api := range []string{"neutron", "load-balancer", "identity", "operator"} {
		refuse(t, s.ctl, 2, "--"+api+"-listen: ", "serve", "--data", t.TempDir(), "--"+api+"-listen", "192.0.2.1:7000")
	}
	refuse(t, s.ctl, 2, "not a loopback address and there is no TLS certificate: give --tls-cert", append([]string{"serve", "--data", t.TempDir()}, everywhere()...)...)
	for _, half := range [][]string{{"--tls-cert", cert}, {"--tls-key", key}, {"--tls-ca", ca}, {"--tls-cert", cert, "--tls-key", cert}} {
		refuse(t, s.ctl, 2, "heddle: ", append([]string{"serve", "--data", t.TempDir()}, half...)...)
	}
	start(t, s.ctl, append([]string{"serve", "--data", s.data, "--allow-plain-http"}, everywhere()...)...)
	if text, code := outputWith(t, s.ctl, readRC(t, s.data), "host", "list"); code != 0 {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// A server asks an existing Keystone, here another Heddle's identity, who somebody is.
func TestExistingKeystone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ca, cert, key := certify(t)
	start(t, s.ctl, append([]string{"serve", "--data", s.data, "--tls-cert", cert, "--tls-key", key, "--tls-ca", ca}, everywhere()...)...)
	password := filepath.Join(t.TempDir(), "password")
	writeFile(t, password, readCloud(t, s.data).Auth.Password+"\n")
	other := s.addHost(t, "other", "192.0.2.11")
	asking := []string{"serve", "--data", t.TempDir(), "--keystone-url", "https://192.0.2.1:5000/v3", "--keystone-user", "admin",
		"--keystone-project", "admin", "--keystone-password-file", password}
	refuse(t, other.ns, 2, "--keystone-ca "+key, append(asking, "--keystone-ca", key)...)
	start(t, other.ns, append(asking, "--keystone-ca", ca)...)

	c := newClient(other.ns, "127.0.0.1", "not a token")
	c.trust(t, ca)
	if err := c.call(t.Context(), "GET", "/v2.0/networks", nil, nil); err == nil || err.(*statusError).status != 401 {
		t.Errorf("with a token that Keystone does not know: %v", err)
	}
	if err := c.login(t.Context(), "https://192.0.2.1:5000", readCloud(t, s.data)); err != nil {
		t.Fatal(err)
	}
	c.mustCreate(t, "network", map[string]any{"name": "blue"})
}
