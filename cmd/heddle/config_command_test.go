package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigCheck: everything wrong with a file is named at once, by section and key.
func TestConfigCheck(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	good := write(t, "serve:\n  data: /srv/heddle\n  underlay-mtu: 9000\nagent:\n  tunnel-ip: 192.0.2.1\n  physical: [one=eth1, two=eth2]\n  encrypt: on\n  xen-ovsdb-listen: 192.0.2.1\n")
	if err := checkConfig(&out, good); err != nil || !strings.Contains(out.String(), "agent: 4, serve: 2") {
		t.Errorf("%v: %s", err, &out)
	}
	bad := write(t, "serve:\n  underlay-mtu: large\n  datta: /x\n  frobnicate: 1\n  agents-listen: 192.0.2.1\n  log-level: loud\n  host-certificate-life: 5\n"+
		"agent:\n  tunnel-ip: 192.0.2.300\n  encrypt: maybe\n  name: {a: b}\nagnet:\n  tunnel-ip: 192.0.2.1\n")
	err := checkConfig(&out, bad)
	if err == nil {
		t.Fatal("took wrong settings")
	}
	got := strings.Split(err.Error(), "\n")
	for i, want := range []string{`:2: serve.underlay-mtu: "large": want a whole number`, ":3: serve.datta: no such setting: did you mean data?",
		":4: serve.frobnicate: no such setting; known: admin-password, ", `:5: serve.agents-listen: "192.0.2.1": want ADDRESS:PORT`,
		`:6: serve.log-level: "loud": want debug, info, warn or error`, `:7: serve.host-certificate-life: "5": want a time with its unit`,
		`:9: agent.tunnel-ip: "192.0.2.300": `, `:10: agent.encrypt: "maybe": want off, on or require`, ":11: agent.name: want a value or a list of values",
		":12: agnet: no such section: did you mean agent or net?"} {
		if i >= len(got) || !strings.HasPrefix(got[i], bad+want) {
			t.Errorf("line %d of the error is not %q:\n%v", i+1, want, err)
		}
	}
	out.Reset()
	if err := checkConfig(&out, write(t, "# nothing yet\n")); err != nil || !strings.Contains(out.String(), "heddle.yaml: no settings: all are at their defaults") {
		t.Errorf("a file without settings: %v: %s", err, &out)
	}
	if err := checkConfig(&out, write(t, "serve: 5\n")); err == nil || !strings.Contains(err.Error(), ":1: serve: want settings below it") {
		t.Errorf("a section that is a number: %v", err)
	}
	for _, text := range []string{"serve: [", "serve: 5\n", "serve:\n  data: /a\n  data: /b\n"} {
		if err := checkConfig(&out, write(t, text)); err == nil {
			t.Errorf("took %q", text)
		}
	}
}

// TestConfigHostileNames: names of drop-ins are printed escaped, on one line.
func TestConfigHostileNames(t *testing.T) {
	t.Parallel()
	const hostile, visible = "a\x1b]0;pwned\a\nFORGED.yaml", `a\x1b]0;pwned\a\nFORGED.yaml`
	path := write(t, "serve:\n  data: /srv/heddle\n")
	dir := filepath.Join(filepath.Dir(path), dropInDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, hostile), "serve:\n  underlay-mtu: 9000\n")
	var out bytes.Buffer
	if err := checkConfig(&out, path); err != nil || !strings.Contains(out.String(), visible) || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("check: %v: %q", err, &out)
	}
	out.Reset()
	if err := showConfig(&out, "serve", path, func(string) (string, bool) { return "", false }, false); err != nil || !strings.Contains(out.String(), visible) || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("show: %v: %q", err, &out)
	}
	for _, text := range []string{"serve:\n  datta: /x\n", "serve: [", "serve: {}\n---\n"} {
		writeFile(t, filepath.Join(dir, hostile), text)
		if err := checkConfig(&out, path); err == nil || !strings.Contains(err.Error(), visible) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestConfigShow: the values in effect and where they come from, without secrets.
func TestConfigShow(t *testing.T) {
	t.Parallel()
	path := write(t, "serve:\n  data: /srv/heddle\n  admin-password: open sesame\n  neutron-listen: :9696\nagent:\n  name: here\n")
	environment := map[string]string{"HEDDLE_NEUTRON_LISTEN": "127.0.0.1:9000"}
	lookup := func(name string) (string, bool) { v, ok := environment[name]; return v, ok }
	var out bytes.Buffer
	if err := showConfig(&out, "serve", path, lookup, false); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"admin-password <struck out> " + path + ":3: serve.admin-password", "data /srv/heddle " + path + ":2: serve.data", "neutron-listen 127.0.0.1:9000 HEDDLE_NEUTRON_LISTEN"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	out.Reset()
	if err := showConfig(&out, "serve", path, lookup, true); err != nil || !strings.Contains(out.String(), "underlay-mtu") || strings.Contains(out.String(), "sesame") {
		t.Errorf("all: %v\n%s", err, &out)
	}
	if err := showConfig(&out, "sreve", path, lookup, true); err == nil {
		t.Error("showed the settings of no command")
	}
	nested := write(t, "serve:\n  data: /srv/heddle\nagent:\n  name:\n    first: here\n")
	if err := showConfig(&out, "agent", nested, lookup, true); err == nil || !strings.Contains(err.Error(), ":4: agent.name: want a value") {
		t.Errorf("showed settings with which the agent does not start: %v", err)
	}
	if err := showConfig(&out, "serve", nested, lookup, true); err != nil {
		t.Errorf("another section is wrong: %v", err)
	}
}
