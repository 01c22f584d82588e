package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPoolJoinOfMachines: a machine that is a pool of its own joins another one by pool.join alone.
// Its agent moves to the other pool's store, its own tunnel goes, and it inherits the
// coordinator's, over which machines reach each other; its old server sends clients on.
func TestPoolJoinOfMachines(t *testing.T) {
	t.Parallel()
	p := startPool(t, 2)
	hosts := p.lab.Hosts()
	// The second host leaves the lab's pool, and becomes one of its own.
	p.agents[1].stop(t)
	second := p.xe("host-list", "name-label="+hosts[1].Name, "params=uuid", "--minimal")
	p.xe("pool-eject", "host-uuid="+second)
	own := &pool{lab: p.lab, data: t.TempDir(), t: t}
	space, address := hosts[1].Space, hosts[1].Address.String()
	start(t, space, "xapi", "--data", own.data, "--metrics", "127.0.0.1:9697", "--tls-listen", address+":8443", "--agents-listen", address+":2379", "--operator-listen", address+":9698")
	token := strings.TrimSpace(succeed(t, space, "host", "token", "--data", own.data))
	start(t, space, own.agent(1, "--join", token)...)
	there := func(args ...string) (string, int) {
		return output(t, space, own.xeArgs(args...)...)
	}
	must := func(args ...string) string {
		t.Helper()
		text, code := there(args...)
		if code != 0 {
			t.Fatalf("xe %s at the joiner: %s", strings.Join(args, " "), text)
		}
		return strings.TrimSpace(text)
	}

	start(t, p.lab.Fabric, "tunnel-controller", "--data", p.data, "--password-file", filepath.Join(p.data, rootPasswordFile))
	private := p.xe("network-create", "name-label=private")
	p.xe("tunnel-create", "pif-uuid="+p.transport(hosts[0]), "network-uuid="+private)
	theirs := must("network-create", "name-label=theirs")
	transport := ""
	p.until("the joiner's PIF", func() bool {
		transport = must("pif-list", "IP="+address, "params=uuid", "--minimal")
		return transport != ""
	})
	must("tunnel-create", "pif-uuid="+transport, "network-uuid="+theirs)

	password, err := os.ReadFile(filepath.Join(p.data, rootPasswordFile))
	if err != nil {
		t.Fatal(err)
	}
	join := func(address string) (string, int) {
		return there("pool-join", "master-username=root", "master-password="+strings.TrimSpace(string(password)), "master-address="+address)
	}
	refused, _ := join(fabricIP)
	known := regexp.MustCompile(regexp.QuoteMeta(fabricIP) + "#[0-9a-f]{64}").FindString(refused)
	if known == "" {
		t.Fatalf("the refusal of an unknown certificate says no fingerprint: %s", refused)
	}
	if said, code := join(known); code != 0 {
		t.Fatal(said)
	}

	p.until("the host to live in the pool", func() bool {
		return p.xe("host-list", "name-label="+hosts[1].Name, "host-metrics-live=true", "params=uuid", "--minimal") != ""
	})
	p.until("both tunnels to be active", func() bool {
		return strings.Count(p.xe("tunnel-list", "params=status", "--minimal"), "active: true") == 2
	})
	if got := p.xe("network-list", "name-label=theirs", "params=PIF-uuids", "--minimal"); got != "" {
		t.Errorf("the joiner's tunnel network has PIFs %s", got)
	}
	if said, code := there("host-list"); code == 0 || !strings.Contains(said, fabricIP) {
		t.Errorf("the old server does not send its clients to %s: %s", fabricIP, said)
	}
}
