package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

type settings struct {
	data    string
	ends    []string
	timeout time.Duration
	plain   bool
}

func exampleCommand() (*cobra.Command, *settings) {
	var s settings
	c := &cobra.Command{Use: "serve", Run: func(*cobra.Command, []string) {}}
	c.Flags().StringVar(&s.data, "data", "/default", "")
	c.Flags().StringSliceVar(&s.ends, "etcd-endpoints", nil, "")
	c.Flags().DurationVar(&s.timeout, "timeout", time.Second, "")
	c.Flags().BoolVar(&s.plain, "allow-plain-http", false, "")
	return c, &s
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "heddle.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigureFlagBeatsEnvironmentBeatsFile(t *testing.T) {
	c, s := exampleCommand()
	if err := c.ParseFlags([]string{"--data", "/flag"}); err != nil {
		t.Fatal(err)
	}
	file := write(t, "serve:\n  data: /file\n  timeout: 5s\n  etcd-endpoints: [a:1, b:2]\n  allow-plain-http: true\nagent:\n  tunnel-ip: 192.0.2.7\n")
	env := map[string]string{"HEDDLE_TIMEOUT": "7s", "HEDDLE_DATA": "/env"}
	if err := configure(c, file, func(k string) (string, bool) { v, ok := env[k]; return v, ok }); err != nil {
		t.Fatal(err)
	}
	if s.data != "/flag" || s.timeout != 7*time.Second || strings.Join(s.ends, " ") != "a:1 b:2" || !s.plain {
		t.Errorf("got %+v", *s)
	}
}

func TestConfigureRefuses(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	for _, c := range []struct{ text, want string }{
		{"serve:\n  dta: /x\n", "heddle.yaml:2: serve.dta: no such setting: did you mean data?"},
		{"serve:\n  other: x\n", ":2: serve.other: no such setting; known: allow-plain-http, data"},
		{"serve:\n\n  timeout: soon\n", `:3: serve.timeout: "soon": want a time with its unit`},
		{"serve:\n  data: {a: b}\n", ":2: serve.data: want a value"},
		{"agent: {}\nserve: 5\n", ":2: serve: want settings below it"},
		{"- a\n", "want sections named after commands"},
		{"serve:\n  data: a\n  data: b\n", "already set"},
	} {
		cmd, _ := exampleCommand()
		err := configure(cmd, write(t, c.text), none)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want it to say %q", c.text, err, c.want)
		}
	}
	cmd, _ := exampleCommand()
	bad := func(k string) (string, bool) { return "x", k == "HEDDLE_ALLOW_PLAIN_HTTP" }
	if err := configure(cmd, "", bad); err == nil || !strings.Contains(err.Error(), "HEDDLE_ALLOW_PLAIN_HTTP") {
		t.Errorf("bad variable: got %v", err)
	}
}

// Commands that look after a server take its settings where they have none of their own.
func TestConfigureServerSettings(t *testing.T) {
	file := write(t, "serve:\n  data: /serve\n  store-quota: 64\nxapi:\n  data: /xapi\n  store-quota: 128\nbackup:\n  data: /backup\n")
	pool := write(t, "xapi:\n  data: /xapi\n  store-quota: 128\n")
	for _, c := range []struct{ args, file, data, quota string }{
		{"doctor", file, "/serve", ""},
		{"doctor --data /flag", file, "/flag", ""},
		{"doctor", pool, "/xapi", ""},
		{"doctor", "", "/var/lib/heddle", ""},
		{"backup", file, "/backup", ""},
		{"store status", file, "/serve", "64"},
		{"store reclaim --store-quota 256", pool, "/xapi", "256"},
		{"host list", file, "/serve", ""},
		{"calico get", file, "/serve", ""},
		{"xapi", write(t, "serve:\n  data: /serve\n"), "/var/lib/heddle", "8192"},
	} {
		cmd, rest, err := newRoot().Find(strings.Fields(c.args))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil {
			err = configure(cmd, c.file, func(string) (string, bool) { return "", false })
		}
		if err != nil {
			t.Fatalf("%s: %v", c.args, err)
		}
		for flag, want := range map[string]string{"data": c.data, "store-quota": c.quota} {
			if want != "" && cmd.Flag(flag).Value.String() != want {
				t.Errorf("%s with %q: --%s is %s, want %s", c.args, c.file, flag, cmd.Flag(flag).Value, want)
			}
		}
	}
	none := func(string) (string, bool) { return "", false }
	cmd, rest, err := newRoot().Find([]string{"store", "status"})
	if err := errors.Join(err, cmd.ParseFlags(rest)); err != nil {
		t.Fatal(err)
	}
	if err := configure(cmd, write(t, "serve:\n  store-quota: much\n"), none); err == nil || !strings.Contains(err.Error(), "serve.store-quota: ") {
		t.Errorf("a bad setting of the server: %v, want its place", err)
	}
}
