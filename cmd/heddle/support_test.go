package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"heddle/internal/cli"
	"heddle/internal/cli/bundletest"
	"heddle/internal/netlab"
)

// TestSupportHasNoSecrets seeds a server with marker secrets in its settings, variables and files,
// and finds none of them in a bundle that holds what helps to find a fault.
func TestSupportHasNoSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, run, state := filepath.Join(dir, "data"), filepath.Join(dir, "run"), filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	seed := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := seed("heddle.yaml", "serve:\n  data: "+data+"\n  admin-password: marker-admin\nagent:\n  state: "+state+
		"\n  nova-metadata-url: https://nova:marker-url@192.0.2.1/?token=marker-query\n  otlp-endpoint: https://marker-url-token-0123@192.0.2.1/\n  join-file: "+seed("token", "heddle-join-1.marker-token.x\n")+"\ntunnel-controller:\n  password-file: "+seed("password", "marker-pool\n")+"\n")
	seed("state/host.key", "-----BEGIN PRIVATE KEY-----\nmarker-key\n-----END PRIVATE KEY-----\n")
	ns := netlab.ForTest(t).MustNamespace(t, "serve")
	start(t, ns, "serve", "--config", config, "--run-dir", run)
	login(t, ns, "127.0.0.1", data).mustCreate(t, "network", map[string]any{"name": "blue", "description": "marker-value"})

	bundle := filepath.Join(dir, "bundle.tar.gz")
	text, code := outputWith(t, ns, []string{"HEDDLE_ETCD_SECRET=marker-variable"}, "support", "--config", config, "--run-dir", run, "--output-file", bundle, "--timeout", "10m")
	if code != 0 || !strings.Contains(text, bundle+": ") {
		t.Fatalf("exit code %d: %s", code, text)
	}
	files := bundletest.Unpack(t, bundle)
	for name, words := range map[string]string{
		"version.txt": "heddle version", "status.json": `"problems"`, "doctor.json": `"check"`, "store.json": `"quota"`, "store-tables.json": `"prefix": "/heddle/neutron/networks/"`, "store-changes.json": `"key": "/heddle/neutron/networks/`, "kernel/maps.json": "[", "settings/serve.txt": "admin-password", "settings/agent.txt": "https://nova:<struck out>@",
		"serve/status.json": `"role":"serve"`, "serve/metrics.txt": "heddle_build_info", "serve/goroutines.txt": "goroutine ", "serve/heap.pb.gz": "",
		"serve/cpu.pb.gz": "", "kernel/links.txt": "lo: ", "manifest.json": "settings/agent.txt",
	} {
		if got, there := files[name]; !there || !strings.Contains(got, words) {
			t.Errorf("%s: there: %v, want %q in\n%.500s\n%s", name, there, words, got, text)
		}
	}
	for name, got := range files {
		if at := strings.Index(got, "marker-"); at >= 0 {
			t.Errorf("%s has a secret: …%.60s", name, got[max(at-30, 0):])
		}
	}
	refuse(t, ns, 1, "file exists", "support", "--config", config, "--run-dir", run, "--output-file", bundle)
	refuse(t, ns, 2, "--hours 0: want 1 or more", "support", "--config", "", "--hours", "0")
}

// TestSecretFiles: these settings, and no others, name files with secrets, which heddle doctor
// looks at where a machine's settings have them.
func TestSecretFiles(t *testing.T) {
	t.Parallel()
	var got []string
	for _, top := range newRoot().Commands() {
		for _, name := range flagNames(top) {
			if namesSecretFile(findFlag(top, name)) && !slices.Contains(got, name) {
				got = append(got, name)
			}
		}
	}
	slices.Sort(got)
	if want := "clouds dns-update-secret-file etcd-key etcd-password-file hosts-ca-key join-file keystone-password-file metadata-secret-file nova-credentials ovsdb-key password-file tls-key"; strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}

	path := filepath.Join(t.TempDir(), "heddle.yaml")
	writeFile(t, path, "serve:\n  tls-key: /etc/heddle/tls/server.key\n  tls-cert: /etc/heddle/tls/server.crt\n  dns-update-key: heddle\nagent:\n  join-file: /etc/heddle/join-token\nno-command:\n  a: b\n")
	files, err := secretFiles(configured(t, "doctor", path))
	if want := []cli.SecretFile{{Setting: "agent.join-file", Path: "/etc/heddle/join-token"}, {Setting: "serve.tls-key", Path: "/etc/heddle/tls/server.key"}}; err != nil || !slices.Equal(files, want) {
		t.Errorf("got %v, %v, want %v", files, err, want)
	}
}

// configured returns a command that is given a configuration file.
func configured(t *testing.T, name, path string) *cobra.Command {
	t.Helper()
	cmd, _, err := newRoot().Find([]string{name})
	if err := errors.Join(err, cmd.ParseFlags([]string{"--config", path})); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestSupportOfHosts: the agents of hosts collect bundles, which come by a server. A host without
// one is named, and the others have theirs.
func TestSupportOfHosts(t *testing.T) {
	t.Parallel()
	s := newConnectivitySite(t)
	dir := t.TempDir()
	support := func(names string, code int) (files map[string]string, said string) {
		t.Helper()
		said, got := output(t, s.ctl, "support", "--config", "", "--data", s.data, "--hosts", names, "--output-file", dir, "--anonymise")
		if got != code {
			t.Fatalf("exit code %d, want %d: %s", got, code, said)
		}
		files = map[string]string{}
		for line := range strings.Lines(said) {
			path := strings.TrimSpace(line)
			if host, _, ok := strings.Cut(strings.TrimPrefix(filepath.Base(path), "heddle-support-"), "-2"); ok && filepath.Dir(path) == dir {
				files[host] = path
			}
		}
		return files, said
	}
	files, said := support("all", 0)
	for _, h := range []*host{s.h1, s.h2} {
		if files[h.name] == "" {
			t.Fatalf("no file of %s:\n%s", h.name, said)
		}
		bundle := bundletest.Unpack(t, files[h.name])
		for name, words := range map[string]string{"agent/status.json": `"role":"agent"`, "agent/metrics.txt": "heddle_build_info", "kernel/links.txt": "lo: ", "manifest.json": `"log.txt"`} {
			if !strings.Contains(bundle[name], words) {
				t.Errorf("%s of %s: want %q in\n%.500s", name, h.name, words, bundle[name])
			}
		}
		if strings.Contains(bundle["kernel/addresses.txt"], "192.0.2.1") {
			t.Errorf("addresses of %s are not anonymous", h.name)
		}
	}
	s.agent2.kill()
	s.waitGone(t, s.h2)
	files, said = support("all", 1)
	if files[s.h1.name] == "" || files[s.h2.name] != "" || !strings.Contains(said, "host "+s.h2.name+": no bundle: ") || !strings.Contains(said, "is down") {
		t.Errorf("with a host that is down:\n%s", said)
	}
	refuse(t, s.ctl, 1, "there is no host other", "support", "--config", "", "--data", s.data, "--hosts", "other")
}

// TestSecretsOfSettings: values of settings, and contents of the files that they name.
func TestSecretsOfSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ key, value, want string }{
		{"admin-password", "marker", "marker"},
		{"nova-metadata-url", "https://nova:marker@192.0.2.1/", "marker"},
		{"password-file", put("password", "marker\n"), "marker"},
		{"nova-credentials", put("one", "clouds:\n  heddle:\n    auth: {username: nova, password: marker}\n"), "marker"},
		{"clouds", put("two", "clouds:\n  heddle:\n    auth:\n      password: 'marker'\n      username: nova\n"), "marker"},
	} {
		if got := secretsOf(c.key, []string{c.value}); !slices.Contains(got, c.want) || slices.Contains(got, "nova") {
			t.Errorf("%s: got %q, want %s among them and no user's name", c.key, got, c.want)
		}
	}
	if got := secretsOf("clouds", []string{filepath.Join(dir, "none")}); got != nil {
		t.Errorf("a file that is not there: got %q", got)
	}
}
