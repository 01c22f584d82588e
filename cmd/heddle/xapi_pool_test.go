package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// pool is a pool of Linux hosts with Open vSwitch: heddle xapi and the tunnel controller in the
// fabric's namespace, an agent on each host.
type pool struct {
	lab    *netlab.OVSLab
	data   string
	server *running
	agents []*running
	t      testing.TB
}

// fabricIP is the server's address as hosts know it.
const fabricIP = "198.18.0.254"

// startPool starts the server and the hosts' agents.
func startPool(t testing.TB, hosts int, more ...string) *pool {
	t.Helper()
	p := &pool{lab: netlab.OVSForTest(t, hosts), data: t.TempDir(), t: t}
	p.server = start(t, p.lab.Fabric, append([]string{"xapi", "--data", p.data, "--metrics", "127.0.0.1:9697", "--tls-listen", fabricIP + ":8443",
		"--agents-listen", fabricIP + ":2379", "--operator-listen", fabricIP + ":9698"}, more...)...)
	for i, h := range p.lab.Hosts() {
		token := strings.TrimSpace(succeed(t, p.lab.Fabric, "host", "token", "--data", p.data))
		p.agents = append(p.agents, launch(t, h.Space, p.agent(i, "--join", token)...))
		if i == 0 { // whose host the pool has first is the coordinator
			p.until("the first host", func() bool { return p.xe("host-list", "name-label="+h.Name, "params=uuid", "--minimal") != "" })
		}
	}
	for _, a := range p.agents {
		a.waitReady(t)
	}
	return p
}

// agent are the arguments of a host's agent.
func (p *pool) agent(i int, more ...string) []string {
	h := p.lab.Hosts()[i]
	return append([]string{"agent", "--xen", "--name", h.Name, "--state", filepath.Join(p.data, h.Name), "--xen-ovsdb", h.DB(), "--xen-datapath", "netdev",
		"--xen-interface", "leg", "--xen-ovsdb-listen", h.Address.String()}, more...)
}

// xe runs xe at the pool and returns what it prints, without the newline at its end.
func (p *pool) xe(args ...string) string {
	p.t.Helper()
	return strings.TrimSuffix(succeed(p.t, p.lab.Fabric, p.xeArgs(args...)...), "\n")
}

// xeArgs are heddle's arguments for a command of xe at the pool.
func (p *pool) xeArgs(args ...string) []string {
	return append([]string{"xe", "-s", "127.0.0.1", "-p", "8080", "--nossl", "-u", "root", "-pwf", p.passwordFile()}, args...)
}

// passwordFile holds user and password, as xe wants them.
func (p *pool) passwordFile() string {
	p.t.Helper()
	file := filepath.Join(p.data, "xe-password")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	raw, err := os.ReadFile(filepath.Join(p.data, rootPasswordFile))
	if err != nil {
		p.t.Fatal(err)
	}
	writeFile(p.t, file, "root\n"+string(raw))
	return file
}

// transport is the UUID of a host's PIF with its transport address, once the host has reported it.
func (p *pool) transport(h *netlab.OVSHost) string {
	p.t.Helper()
	var uuid string
	p.until("the PIF of "+h.Name, func() bool {
		uuid = p.xe("pif-list", "IP="+h.Address.String(), "params=uuid", "--minimal")
		return uuid != ""
	})
	return uuid
}

func (p *pool) until(what string, cond func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		p.t.Fatal(err)
	}
}

// TestPool: people make a tunnel network over three hosts with xe alone, machines on it reach each
// other, the switching host dies and the others go on, and what is destroyed leaves nothing.
func TestPool(t *testing.T) {
	t.Parallel()
	p := startPool(t, 3)
	controller := start(t, p.lab.Fabric, "tunnel-controller", "--data", p.data, "--password-file", filepath.Join(p.data, rootPasswordFile))
	hosts := p.lab.Hosts()
	network := p.xe("network-create", "name-label=private")
	bridge := p.xe("network-param-get", "uuid="+network, "param-name=bridge")
	var machines []*netlab.Namespace
	for i, h := range hosts {
		p.xe("tunnel-create", "pif-uuid="+p.transport(h), "network-uuid="+network)
		machine, port, err := h.Machine(fmt.Sprintf("m%d", i+1), fmt.Sprintf("10.77.0.%d/24", i+1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Vsctl("add-port", bridge, port); err != nil {
			t.Fatal(err)
		}
		machines = append(machines, machine)
	}
	reach := func(from *netlab.Namespace, to int) {
		t.Helper()
		p.until(fmt.Sprintf("%s to reach 10.77.0.%d", from.Name, to), func() bool {
			return from.Reach(t.Context(), fmt.Sprintf("10.77.0.%d", to)) == nil
		})
	}
	for from := range machines {
		for to := range machines {
			if from != to {
				reach(machines[from], to+1)
			}
		}
	}
	status := func() string { return p.xe("tunnel-list", "params=status", "--minimal") }
	p.until("all tunnels to be active with one key", func() bool {
		return strings.Count(status(), "active: true") == 3 && strings.Count(status(), "key: 1") == 3
	})
	startPrometheus(t, p.lab.Fabric, controller.health).checkDashboard(t, "Heddle: private networks of a pool")
	checkMetrics(t, controller)

	// The switching host dies: the two others have one of them in its place.
	dead := -1
	for i, h := range hosts {
		if uuid := p.xe("host-list", "name-label="+h.Name, "params=uuid", "--minimal"); strings.Contains(status(), "heddle:center: "+uuid) {
			dead = i
		}
	}
	if dead < 0 {
		t.Fatalf("no host is the center: %s", status())
	}
	p.agents[dead].kill()
	if err := hosts[dead].Kill(); err != nil {
		t.Fatal(err)
	}
	left := []int{(dead + 1) % 3, (dead + 2) % 3}
	reach(machines[left[0]], left[1]+1)
	p.until("two tunnels to be active", func() bool { return strings.Count(status(), "active: true") == 2 })

	// It comes back, and joins again.
	if err := hosts[dead].Start(); err != nil {
		t.Fatal(err)
	}
	p.agents[dead] = start(t, hosts[dead].Space, p.agent(dead)...)
	reach(machines[dead], left[0]+1)
	p.until("all tunnels to be active again", func() bool { return strings.Count(status(), "active: true") == 3 })

	for _, uuid := range strings.Split(p.xe("tunnel-list", "params=uuid", "--minimal"), ",") {
		p.xe("tunnel-destroy", "uuid="+uuid)
	}
	p.xe("network-destroy", "uuid="+network)
	for _, h := range hosts {
		p.until("the bridge to go on "+h.Name, func() bool {
			out, err := h.Vsctl("list-br")
			return err == nil && !strings.Contains(out, bridge)
		})
	}

	// The same with the clients in daily use, by TLS, which makes and unmakes bridges on the hosts.
	url := "https://" + fabricIP + ":8443"
	password, err := os.ReadFile(filepath.Join(p.data, rootPasswordFile))
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSpace(string(password))
	drive(t, p.lab.Fabric, "node", filepath.Join(npmClient(t), "client.mjs"), "auto", url, "root", secret)
	drive(t, p.lab.Fabric, debianPython, pythonClient(t), url, "root", secret)
}
