package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/jointoken"
	"heddle/internal/cli/bundletest"
)

func text(name, text string) Source {
	return Source{name, func(context.Context) ([]byte, error) { return []byte(text), nil }}
}

// TestBundle: files are bounded and without secrets, what cannot be read is named with the reason,
// and an error leaves no file.
func TestBundle(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	sources := []Source{
		text("a.txt", "the password hunter2 and hunter22, \"odd\\\"one\""),
		text("large.txt", strings.Repeat("x", maxFile+1)),
		{"gone.txt", func(context.Context) ([]byte, error) { return nil, errors.New("no such file for hunter2") }},
	}
	m, err := writeBundle(t.Context(), time.Hour, path, sources, newStrikeOut([]string{"hunter2", "hunter22", `odd"one`, "the"}))
	if err != nil {
		t.Fatal(err)
	}
	files := bundletest.Unpack(t, path)
	if got, want := files["a.txt"], `the password <struck out> and <struck out>, "<struck out>"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !m.Files[1].Cut || len(files["large.txt"]) != maxFile {
		t.Errorf("a large file has %d bytes: %+v", len(files["large.txt"]), m.Files[1])
	}
	if list := files["manifest.json"]; !strings.Contains(list, "no such file for <struck out>") || strings.Contains(list, "hunter") {
		t.Errorf("manifest: %s", list)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("bundle: %v, %v", info, err)
	}
	if _, err := writeBundle(t.Context(), time.Hour, path, sources, newStrikeOut(nil)); !errors.Is(err, os.ErrExist) {
		t.Errorf("a bundle that is there: %v", err)
	}
	if _, err := writeBundle(t.Context(), time.Hour, filepath.Join(path, "in-a-file"), sources, newStrikeOut(nil)); err == nil {
		t.Error("wrote into a file as if it was a directory")
	}
}

// TestStrikeOut: all that has the form of a secret is struck out; names and addresses have the same
// alias everywhere.
func TestStrikeOut(t *testing.T) {
	t.Parallel()
	s := newStrikeOut(nil)
	key := "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
	if got := string(s.apply([]byte("key " + key + " token heddle-join-1.abc-DEF.x end"))); got != "key <struck out> token <struck out> end" {
		t.Errorf("got %q", got)
	}
	for _, kind := range []jointoken.Kind{jointoken.ForHost, jointoken.ForServer} {
		token := jointoken.Token{Servers: []string{"https://192.0.2.1:9698"}, Secret: "marker"}.Encode(kind)
		if got := string(s.apply([]byte(`{"said": "token ` + token + `"}`))); got != `{"said": "token <struck out>"}` {
			t.Errorf("token %s: got %s", kind, got)
		}
	}
	plain := `{"name": "db-master", "ip": "192.0.2.1", "mac": "fa:16:3e:00:00:01"}`
	if got := string(s.apply([]byte(plain))); got != plain {
		t.Errorf("not anonymous: got %s", got)
	}
	s.anonymise("cloud1")
	first, second := string(s.apply([]byte(plain))), string(s.apply([]byte("cloud1: db-master at 192.0.2.1, 2001:db8::1 and 192.0.2.2, fa:16:3e:00:00:01 at 12:30:45")))
	for _, real := range []string{"db-master", "192.0.2", "fa:16", "cloud1", "2001:db8"} {
		if strings.Contains(first+second, real) {
			t.Errorf("%s is in\n%s\n%s", real, first, second)
		}
	}
	short := string(s.apply([]byte(`{"hosts": [{"name": "h1"}]} eth0@if2: <UP> mtu 1500 link-netns payroll; wg-h1, h12`)))
	if strings.Contains(short, "payroll") || strings.Contains(short, "wg-h1") || !strings.Contains(short, "h12") {
		t.Errorf("a short name, and one of a namespace: %s", short)
	}
	keys := string(s.apply([]byte(`{"key": "/heddle/neutron/ports/7b8cbc94-1e6b-4d2f-9d6e-000000000001"}, {"key":"/calico/v1/host/db-master/workload"}, {"key": "/heddle/unique/network/payroll"}, workload`)))
	want := `{"key": "/heddle/neutron/ports/7b8cbc94-1e6b-4d2f-9d6e-000000000001"}, {"key": "/calico/v1/host/` + s.aliases["db-master"] + "/" + s.aliases["workload"] + `"}, {"key": "/heddle/unique/network/` + s.aliases["payroll"] + `"}, workload`
	if keys != want {
		t.Errorf("keys of the store: got %s\nwant %s", keys, want)
	}
	alias := s.aliases["192.0.2.1"]
	if strings.Count(first+second, alias) != 2 || s.aliases["192.0.2.2"] == alias {
		t.Errorf("alias %s in\n%s\n%s", alias, first, second)
	}
}

// TestUnitSecrets: variables and flags in units, as systemctl prints them, are without their
// secrets, and the rest stays.
func TestUnitSecrets(t *testing.T) {
	t.Parallel()
	text := `# /etc/systemd/system/heddle.service.d/own.conf
Environment=HEDDLE_DATA=/srv/heddle "HEDDLE_ADMIN_PASSWORD=marker one" 'OTHER=marker'
Environment=OTEL_EXPORTER_OTLP_HEADERS=authorization=marker HEDDLE_JOIN_FILE=/etc/heddle/marker
Environment=HEDDLE_JOIN_FILE=/etc/heddle/join
SetCredential=one:marker
ExecStart=/usr/bin/heddle serve --admin-password-file /etc/heddle/password --neutron-listen 192.0.2.1:9696 \
  --admin-password \
  marker --join=marker
LimitNOFILE=65536
ExecStart={ path=/usr/bin/heddle ; argv[]=/usr/bin/heddle agent --join marker ; ignore_errors=no }
`
	want := `# /etc/systemd/system/heddle.service.d/own.conf
Environment=HEDDLE_DATA=/srv/heddle "HEDDLE_ADMIN_PASSWORD=<struck out>
Environment=OTEL_EXPORTER_OTLP_HEADERS=<struck out>
Environment=HEDDLE_JOIN_FILE=/etc/heddle/join
SetCredential=<struck out>
ExecStart=/usr/bin/heddle serve --admin-password-file /etc/heddle/password --neutron-listen 192.0.2.1:9696   --admin-password <struck out>
LimitNOFILE=65536
ExecStart={ path=/usr/bin/heddle ; argv[]=/usr/bin/heddle agent --join <struck out>
`
	if got := string(withoutUnitSecrets([]byte(text))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestSecretsIn: passwords and keys in the files of a server and an agent.
func TestSecretsIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "clouds.yaml"), "clouds:\n  heddle:\n    auth: {username: admin, password: \"marker1\"}\n", 0o600)
	put(t, filepath.Join(dir, "openrc"), "export OS_USERNAME='admin'\nexport OS_PASSWORD='marker2'\n", 0o600)
	put(t, filepath.Join(dir, "deep/ca.key"), "-----BEGIN PRIVATE KEY-----\nmarker3\n-----END PRIVATE KEY-----\n", 0o600)
	put(t, filepath.Join(dir, "xapi-root-password"), "marker4\n", 0o600)
	put(t, filepath.Join(dir, "ca.crt"), "public\n", 0o600)
	got := strings.Join(secretsIn(dir, filepath.Join(dir, "none")), " ")
	for _, want := range []string{"marker1", "marker2", "marker3", "marker4"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not among %s", want, got)
		}
	}
	if strings.Contains(got, "admin") || strings.Contains(got, "public") {
		t.Errorf("got %s", got)
	}
}
