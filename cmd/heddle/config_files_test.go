package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/cli"
)

// writeConfig writes a configuration file and its drop-ins, and returns the file's path.
func writeConfig(t *testing.T, main string, dropIns map[string]string) string {
	t.Helper()
	path := write(t, main)
	dir := filepath.Join(filepath.Dir(path), dropInDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range dropIns {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return path
}

func noVariables(string) (string, bool) { return "", false }

// TestDropIns: drop-ins are read after the file in the order of their names, and their keys replace
// those before, with whole lists. What editors and packages leave there does not count.
func TestDropIns(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "serve:\n  data: /main\n  timeout: 5s\n  etcd-endpoints: [a:1, b:2]\n", map[string]string{
		"20-later.yaml":   "serve:\n  data: /later\n",
		"10-earlier.yaml": "# from another hand\nserve:\n  data: /earlier\n  etcd-endpoints: [c:3]\nagent:\n  tunnel-ip: 192.0.2.7\n",
		"30-empty.yaml":   "", "40-section.yaml": "serve:\n",
		"50-x.yaml~": "serve: 5", ".50-x.yaml": "serve: 5", "50-x.yaml.dpkg-old": "serve: 5", "50-x.yml": "serve: 5", "README": "serve: 5",
	})
	cmd, s := exampleCommand()
	if err := configure(cmd, path, noVariables); err != nil {
		t.Fatal(err)
	}
	if s.data != "/later" || s.timeout != 5*time.Second || !slices.Equal(s.ends, []string{"c:3"}) {
		t.Errorf("got %+v", *s)
	}
	cmd, s = exampleCommand()
	if err := configure(cmd, filepath.Join(filepath.Dir(path), dropInDir, "10-earlier.yaml"), noVariables); err != nil || s.data != "/earlier" {
		t.Errorf("a drop-in alone: %v, %+v", err, *s)
	}
}

// TestDropInsRefused: a drop-in that is wrong is refused with its file and line, as the file is.
func TestDropInsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"serve:\n  dta: /x\n", "conf.d/x.yaml:2: serve.dta: no such setting: did you mean data?"},
		{"agent: {}\nserve:\n  timeout: soon\n", `conf.d/x.yaml:3: serve.timeout: "soon": want a time with its unit`},
		{"serve:\n  data: {a: b}\n", "conf.d/x.yaml:2: serve.data: want a value"},
		{"serve:\n  data:\n", "conf.d/x.yaml:2: serve.data: want a value"},
		{"serve:\n  data: [{a: b}]\n", "conf.d/x.yaml:2: serve.data: want a value"},
		{"---\nserve:\n  data: /x\n---\nserve:\n  data: /y\n", "conf.d/x.yaml: want one YAML document"},
		{"serve: 5\n", "conf.d/x.yaml:1: serve: want settings below it"},
		{"plain text\n", "conf.d/x.yaml: want sections named after commands"},
		{"serve: [\n", "conf.d/x.yaml: want sections named after commands"},
	} {
		cmd, _ := exampleCommand()
		path := writeConfig(t, "# comment\n\n\nserve:\n  data: /main\n", map[string]string{"x.yaml": c.text})
		if err := configure(cmd, path, noVariables); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want it to say %q", c.text, err, c.want)
		}
	}
	for what, spoil := range map[string]func(dir string) error{
		"conf.d/x.yaml: want a file, not a directory": func(dir string) error { return os.Mkdir(filepath.Join(dir, "x.yaml"), 0o755) },
		"conf.d/x.yaml: no such file":                 func(dir string) error { return os.Symlink("nowhere", filepath.Join(dir, "x.yaml")) },
		"conf.d: not a directory":                     func(dir string) error { return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)) },
	} {
		cmd, _ := exampleCommand()
		path := writeConfig(t, "", nil)
		if err := spoil(filepath.Join(filepath.Dir(path), dropInDir)); err != nil {
			t.Fatal(err)
		}
		if err := configure(cmd, path, noVariables); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want %q", err, what)
		}
	}
	cmd, _, err := newRoot().Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	path := writeConfig(t, "", map[string]string{"x.yaml": "\nsrve:\n  data: /x\n"})
	if err := configure(cmd, path, noVariables); err == nil || !strings.Contains(err.Error(), "conf.d/x.yaml:2: srve: no such section: did you mean move or serve?") {
		t.Errorf("a section that no command has: %v", err)
	}
}

// TestConfigCheckOfDropIns: everything wrong with a file and its drop-ins is named at once, in
// their order; what a later file replaces does not count.
func TestConfigCheckOfDropIns(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "serve:\n  underlay-mtu: large\n  datta: /x\n  log-level: loud\nagnet: {}\n", map[string]string{
		"10-a.yaml": "agnet: {}\nserve:\n  log-level: debug\n  frobnicate: 1\n",
		"20-b.yaml": "agent:\n  encrypt: maybe\nserve:\n  data: {a: b}\n",
	})
	var out bytes.Buffer
	err := checkConfig(&out, path)
	if err == nil {
		t.Fatal("took wrong settings")
	}
	dir := filepath.Join(filepath.Dir(path), dropInDir) + "/"
	var got []string
	for line := range strings.Lines(err.Error()) {
		name, _, _ := strings.Cut(line, ": ")
		got = append(got, name)
	}
	if want := []string{path + ":2", path + ":3", path + ":5", dir + "10-a.yaml:4", dir + "20-b.yaml:2", dir + "20-b.yaml:4"}; !slices.Equal(got, want) {
		t.Errorf("places %q, want %q, of\n%v", got, want, err)
	}
	path = writeConfig(t, "serve:\n  data: /x\n", map[string]string{"x.yaml": "serve:\n  data: /y\nagent:\n  name: h\n"})
	if err := checkConfig(&out, path); err != nil || out.String() != fmt.Sprintf("%s, %s: well formed; settings by section: agent: 1, serve: 1\n", path, filepath.Join(filepath.Dir(path), dropInDir, "x.yaml")) {
		t.Errorf("%v: %s", err, &out)
	}
	out.Reset()
	if err := showConfig(&out, "serve", path, noVariables, false); err != nil || !strings.Contains(out.String(), "/y ") || !strings.Contains(out.String(), "/conf.d/x.yaml:2: serve.data\n") {
		t.Errorf("%v: %s", err, &out)
	}
}

// TestSecretsOfDropIns: heddle support strikes out secrets of all files, also of those that are
// replaced or wrong in another place, and heddle doctor looks at the files that they are in.
func TestSecretsOfDropIns(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "serve:\n  admin-password: first\n", map[string]string{
		"10.yaml": "serve:\n  admin-password: second\n  tls-key: /etc/heddle/tls/server.key\n",
		"20.yaml": "agent: 5\nserve:\n  otlp-endpoint: https://user:third@192.0.2.1/\n",
	})
	_, secrets := supportSettings(configured(t, "support", path))
	for _, want := range []string{"first", "second", "third"} {
		if !slices.Contains(secrets, want) {
			t.Errorf("the secrets %q lack %q", secrets, want)
		}
	}
	dir := filepath.Join(filepath.Dir(path), dropInDir)
	if _, err := secretFiles(configured(t, "doctor", path)); err == nil || !strings.Contains(err.Error(), "20.yaml:1: agent: ") {
		t.Errorf("a drop-in that is wrong: %v", err)
	}
	writeFile(t, filepath.Join(dir, "20.yaml"), "serve:\n  otlp-endpoint: https://user:third@192.0.2.1/\n")
	files, err := secretFiles(configured(t, "doctor", path))
	want := []cli.SecretFile{{Setting: "serve.admin-password", Path: filepath.Join(dir, "10.yaml")}, {Setting: "serve.otlp-endpoint", Path: filepath.Join(dir, "20.yaml")},
		{Setting: "serve.tls-key", Path: "/etc/heddle/tls/server.key"}}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("got %v, %v, want %v", files, err, want)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "30.yaml")); err != nil {
		t.Fatal(err)
	}
	if files, err := secretFiles(configured(t, "doctor", path)); err == nil {
		t.Errorf("a drop-in that leads nowhere: %v", files)
	}
}

// TestOnlyFiles: what is no file, or no settings by its size, is refused and not waited for.
func TestOnlyFiles(t *testing.T) {
	t.Parallel()
	for want, link := range map[string]func(string) error{
		"want a file, not a directory, pipe or device": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"not a directory, pipe or device":              func(path string) error { return os.Symlink("/dev/zero", path) },
		"has 1048577 bytes: want 1048576 at most": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, mostSettings+1))
		},
	} {
		path := writeConfig(t, "", nil)
		dropIn := filepath.Join(filepath.Dir(path), dropInDir, "x.yaml")
		if err := link(dropIn); err != nil {
			t.Fatal(err)
		}
		_, err := readConfiguration(path, newRoot())
		if err == nil || !strings.Contains(err.Error(), dropIn) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s %s", err, dropIn, want)
		}
	}
}

// TestWriters: settings that others than root may write are named, by heddle config check and
// doctor.
func TestWriters(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "", map[string]string{"x.yaml": ""})
	dir := filepath.Join(filepath.Dir(path), dropInDir)
	dropIn := filepath.Join(dir, "x.yaml")
	if err := checkWriters(path); err != nil {
		t.Error(err)
	}
	for _, step := range []struct {
		change func() error
		want   string
	}{
		{func() error { return os.Chmod(path, 0o666) }, path + " has mode 666: any user could so change what root runs: chmod go-w " + path},
		{func() error { return os.Chmod(dir, 0o777) }, dir + " has mode 777"},
		{func() error { return os.Chown(dropIn, 65534, 65534) }, dropIn + " belongs to user 65534"},
		{func() error { return errors.Join(os.Chown(dropIn, 0, 65534), os.Chmod(dropIn, 0o664)) }, dropIn + " has mode 664: group 65534 could so change what root runs"},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		for _, err := range []error{checkConfig(&out, path), writersCheck(path).Run(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), step.want) {
				t.Errorf("got %v, want %s", err, step.want)
			}
		}
	}
}

// TestServerReads: settings that the user of servers' units cannot read, with which a server would
// not start, are named with what to do. So are those that this process cannot read.
func TestServerReads(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "serve:\n  data: /x\n", map[string]string{"x.yaml": ""})
	dir := filepath.Join(filepath.Dir(path), dropInDir)
	dropIn := filepath.Join(dir, "x.yaml")
	account := &user.User{Uid: "65534", Gid: "65534", Username: "heddle"}
	check := func() error {
		c, err := readConfiguration(path, newRoot())
		return cmp.Or(err, c.checkReads(account))
	}
	modes := func(group int, main, dropIns, file os.FileMode) {
		t.Helper()
		for _, p := range []string{path, dir, dropIn} {
			if err := os.Chown(p, 0, group); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Chmod(path, main), os.Chmod(dir, dropIns), os.Chmod(dropIn, file)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		group               int
		main, dropIns, file os.FileMode
		denied              string // "": none is
		mode                string
	}{
		{0, 0o644, 0o755, 0o644, "", ""},
		{65534, 0o640, 0o750, 0o640, "", ""},
		{0, 0o644, 0o755, 0o600, dropIn, "640"},
		{0, 0o644, 0o755, 0o640, dropIn, "640"},
		{65534, 0o604, 0o755, 0o644, path, "640"},
		{0, 0o644, 0o751, 0o644, dir, "750"},
	} {
		modes(c.group, c.main, c.dropIns, c.file)
		err := check()
		if c.denied == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		want := fmt.Sprintf("user heddle cannot read %s: permission denied: let the unit's user read it: chgrp heddle %[1]s; chmod %s %[1]s", c.denied, c.mode)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}

	modes(0, 0o644, 0o755, 0o600)
	if err := os.Chmod(filepath.Dir(filepath.Dir(path)), 0o711); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // which ends with the goroutine, and its rights with it
		_, err := unix.SetfsuidRetUid(65534)
		if err == nil {
			_, err = readConfiguration(path, newRoot())
		}
		failed <- err
	}()
	if err := <-failed; err == nil || !strings.HasSuffix(err.Error(), "permission denied: let the unit's user read it: chgrp heddle "+dropIn+"; chmod 640 "+dropIn) {
		t.Errorf("read without the right: %v", err)
	}
}
