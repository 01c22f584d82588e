package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/netlab"
)

// xenapiDir has the programs that drive a pool with the libraries in daily use, and the versions of
// these.
const xenapiDir = "testdata/xenapi"

// simulatedPool is a pool of three hosts; alone is a host that is a pool by itself.
const simulatedPool = `{"pools": [
  {"name": "lab", "password": "secret", "hosts": [
    {"name": "a", "address": "192.0.2.1", "backend": "openvswitch", "live": true, "pifs": [{"device": "eth0", "network": "mgmt", "mode": "Static", "ip": "192.0.2.1", "netmask": "255.255.255.0", "management": true, "attached": true}]},
    {"name": "b", "address": "192.0.2.2", "backend": "openvswitch", "live": true, "pifs": [{"device": "eth0", "network": "mgmt", "mode": "Static", "ip": "192.0.2.2", "netmask": "255.255.255.0", "management": true, "attached": true}]},
    {"name": "c", "address": "192.0.2.3", "backend": "openvswitch", "live": true, "pifs": [{"device": "eth0", "network": "mgmt", "mode": "DHCP", "ip": "192.0.2.3", "netmask": "255.255.255.0", "management": true, "attached": true}]}],
   "vms": [{"name": "vm1", "host": "a", "power_state": "Running"}]},
  {"name": "alone", "password": "other", "hosts": [
    {"name": "d", "address": "192.0.2.4", "backend": "openvswitch", "live": true, "pifs": [{"device": "eth0", "network": "mgmt", "mode": "Static", "ip": "192.0.2.4", "netmask": "255.255.255.0", "management": true, "attached": true}]}]}]}`

// simulate serves simulated pools and returns their URLs by name.
func simulate(t *testing.T, pools string, more ...string) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pools.json")
	writeFile(t, file, pools)
	cmd := heddle(append([]string{"xapi", "--simulate", file}, more...)...)
	cmd.Env = append(cmd.Env, runMain+"="+tied)
	log := &netlab.Log{}
	cmd.Stderr = log
	_, err1 := cmd.StdinPipe() // its end ends the process: see EndWithParent
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("heddle xapi:\n%s", log)
		}
	})
	urls := map[string]string{}
	lines := bufio.NewScanner(out)
	for len(urls) < strings.Count(pools, `"hosts"`) && lines.Scan() {
		name, url, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			t.Fatalf("heddle xapi --simulate printed %q, want NAME URL", lines.Text())
		}
		urls[name] = url
	}
	if err := lines.Err(); err != nil || len(urls) == 0 {
		t.Fatalf("heddle xapi --simulate told %v, %v\n%s", urls, err, log)
	}
	return urls
}

// npmClient is the directory where npm has put xen-api and client.mjs beside it. It is made once
// for all tests to come.
func npmClient(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: run scripts/setup", program)
		}
	}
	sum := sha256.New()
	files := []string{"package.json", "package-lock.json", "client.mjs"}
	for _, name := range files {
		f, err := os.Open(filepath.Join(xenapiDir, name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(sum, f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "heddle-test", "xenapi-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	for _, name := range files {
		raw, err := os.ReadFile(filepath.Join(xenapiDir, name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(fresh, name), string(raw))
	}
	cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, os.ErrExist) { // another test may have been first
		if _, there := os.Stat(filepath.Join(dir, "node_modules")); there != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// drive runs a client, in a namespace where ns is not nil, and fails the test when it does.
func drive(t *testing.T, ns *netlab.Namespace, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	log := &netlab.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	begin := cmd.Start
	if ns != nil {
		begin = func() error { return ns.Start(cmd) }
	}
	if err := begin(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, log)
	}
}

// debianPython is the interpreter that finds Debian's packages; another one may come first in PATH.
const debianPython = "/usr/bin/python3"

// pythonClient is the program that drives a pool with Citrix's binding.
func pythonClient(t *testing.T) string {
	t.Helper()
	if out, err := exec.Command(debianPython, "-c", "import os_xenapi.client.XenAPI").CombinedOutput(); err != nil {
		t.Skipf("needs Citrix's binding: run scripts/setup (%s)", out)
	}
	return filepath.Join(xenapiDir, "client.py")
}

// TestXenAPIClients: the library under Xen Orchestra, over each of its transports, and Citrix's
// binding make, see and take away tunnels in a simulated pool.
func TestXenAPIClients(t *testing.T) {
	t.Parallel()
	url := simulate(t, simulatedPool)["lab"]
	npm := npmClient(t)
	for _, transport := range []string{"json-rpc", "xml-rpc", "auto"} {
		drive(t, nil, "node", filepath.Join(npm, "client.mjs"), transport, url, "root", "secret")
	}
	drive(t, nil, debianPython, pythonClient(t), url, "root", "secret")
}
