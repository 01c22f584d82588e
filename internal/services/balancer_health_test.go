package services

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
	"heddle/internal/services/plan"
	"heddle/internal/topology"
)

// listen gives a balancer a VIP for clients, at the address of its router.
func (b *balancer) listen(port uint16) {
	b.lab.t.Helper()
	id := uuid.NewString()
	b.lab.put("listener", id, &topology.Bundle{
		Vips: []topology.Vip{{ID: id, LoadBalancerID: b.id, PoolID: b.pool.ID, AdminStateUp: true, Address: netip.MustParseAddr(vipAddress),
			Protocol: topology.BalanceTCP, ProtocolPort: port}},
		Neighbours: []topology.NeighbourEntry{{NetworkID: b.lab.net.ID, IP: netip.MustParseAddr(vipAddress), MAC: balancerMAC}},
		MACs:       []topology.MACEntry{{NetworkID: b.lab.net.ID, MAC: balancerMAC, PortID: b.vip}},
	})
}

// python runs python's HTTP server on a machine.
func python(t *testing.T, ns *netlab.Namespace) *exec.Cmd {
	t.Helper()
	server := exec.Command("/usr/bin/python3", "-m", "http.server", "--directory", t.TempDir(), "8000")
	if err := ns.Start(server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	return server
}

// get asks the VIP for a page in a connection of its own, and reports whether it gets one.
func get(ns *netlab.Namespace) bool {
	dial := func(_ context.Context, network, address string) (c net.Conn, err error) {
		err = ns.Do(func() error { c, err = net.DialTimeout(network, address, time.Second); return err })
		return c, err
	}
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := client.Get("http://" + vipAddress + ":80/")
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// allServed reports whether twenty connections in a row are served.
func allServed(ns *netlab.Namespace) bool {
	for range 20 {
		if !get(ns) {
			return false
		}
	}
	return true
}

// TestBalancerHealth: clients of a VIP with two members on hosts of their own are served while a
// member is stopped or frozen, and while haproxy, the agent or the host that checks is killed, in
// which no member's verdict changes (services §15.1).
func TestBalancerHealth(t *testing.T) {
	l := newLabOf(t, 3, 15*time.Second) // in which an agent starts again
	b := l.balancer(monitorOf(topology.MonitorHTTP))
	b.listen(80)
	_, client := l.machine(l.hosts[2])
	at1, ns1 := l.machine(l.hosts[0])
	at2, ns2 := l.machine(l.hosts[1])
	one := python(t, ns1)
	python(t, ns2)
	m1, m2 := b.add(at1, 8000), b.add(at2, 8000)
	l.waitHealth(m1, topology.MemberActive)
	l.waitHealth(m2, topology.MemberActive)
	l.wait("clients to be served", func() bool { return allServed(client) })

	signal := func(s syscall.Signal, verdict string) {
		t.Helper()
		if err := one.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		l.waitHealth(m1, verdict)
		l.wait(fmt.Sprintf("clients to be served after %v", s), func() bool { return allServed(client) })
	}
	signal(syscall.SIGSTOP, topology.MemberInactive)
	signal(syscall.SIGCONT, topology.MemberActive)
	signal(syscall.SIGKILL, topology.MemberInactive)
	python(t, ns1)
	l.waitHealth(m1, topology.MemberActive)

	seen1, seen2 := watchHealth(t, l, m1), watchHealth(t, l, m2)
	host := b.place()
	pid := host.haproxyPID(b)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.wait("another haproxy", func() bool { now := host.haproxyPID(b); return now != 0 && now != pid })
	if !allServed(client) {
		t.Error("clients are not served after haproxy was killed")
	}
	host.stop()
	host.start()
	l.wait("the container to run", func() bool { return b.state(host).Status == topology.ContainerRunning })
	l.wait("clients to be served after the agent began again", func() bool { return allServed(client) })

	host.stop() // for good
	l.wait("another host to have the container", func() bool { now := b.place(); return now != nil && now != host })
	next := b.place()
	l.wait("the container to run there", func() bool { return b.state(next).Status == topology.ContainerRunning })
	for _, m := range []string{m1, m2} {
		l.wait("a verdict of the next host", func() bool {
			s := next.agent.health.status(m, []string{host.id})
			return s != ""
		})
	}
	for i, seen := range []map[string]bool{seen1(), seen2()} {
		lost := slices.Index(l.hosts, host) == i // its member's machine lost its network with it
		if !lost && (seen[topology.MemberInactive] || seen[""]) {
			t.Errorf("member %d, which was up all the time, was %v", i+1, seen)
		}
	}
}

// TestAgentAway: haproxy finds all members down while no agent decides packets. The agent that
// comes back believes it of those alone that are.
func TestAgentAway(t *testing.T) {
	l := newLabOf(t, 2, time.Minute) // the container stays
	b := l.balancer(monitorOf(topology.MonitorTCP))
	at1, ns1 := l.machine(l.hosts[0])
	at2, ns2 := l.machine(l.hosts[1])
	stop := []func(){serve(t, ns1, 80), serve(t, ns2, 80)}
	members := []string{b.add(at1, 80), b.add(at2, 80)}
	for _, m := range members {
		l.waitHealth(m, topology.MemberActive)
	}
	host := b.place()
	other := 1 - slices.Index(l.hosts, host) // whose member is up, and reached again by the agent alone
	host.stop()
	stop[1-other]()
	l.wait("haproxy to find all members down", func() bool {
		verdicts, err := plan.ParseStats(host.askHAProxy("show stat -1 4 -1"))
		return err == nil && len(verdicts) == 2 && !slices.ContainsFunc(verdicts, func(v plan.Verdict) bool { return v.Status == topology.MemberActive })
	})
	seen := watchHealth(t, l, members[other])
	host.start()
	l.waitHealth(members[1-other], topology.MemberInactive)
	l.wait("haproxy to find the other up", func() bool {
		verdicts, err := plan.ParseStats(host.askHAProxy("show stat -1 4 -1"))
		return err == nil && slices.Contains(verdicts, plan.Verdict{MemberID: members[other], Status: topology.MemberActive})
	})
	if all := seen(); len(all) != 1 || !all[topology.MemberActive] {
		t.Errorf("a member that was up all the time was %v", all)
	}
}
