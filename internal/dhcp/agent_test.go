package dhcp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"heddle/internal/store/storetest"
)

// TestLease gives a machine the address that its endpoint names, whether the endpoint or the subnet
// came first.
func TestLease(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	m := l.machine(1)
	l.put(m.endpoint("10.65.0.7", "a"))
	l.logged("subnet \\\"a\\\" is not known", 1)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.serving(1)
	m.wantLease("10.65.0.7")
	// A second one needs nothing to start anew.
	other := l.machine(2)
	pid := l.pid()
	l.put(other.endpoint("10.65.0.8", "a"))
	l.read(2)
	other.wantLease("10.65.0.8")
	if l.pid() != pid {
		t.Errorf("dnsmasq started anew for a new endpoint")
	}
	// The device has the gateway's address, and no route leads there.
	if text := l.output("ip", "-br", "addr", "show", "dev", DeviceName); !strings.Contains(text, "10.65.0.1/24") {
		t.Errorf("the device has\n%s", text)
	}
	if text := l.output("ip", "route"); strings.Contains(text, DeviceName) {
		t.Errorf("routes\n%s", text)
	}
	// With the last endpoint all goes.
	l.put(endpointKey(1), "", endpointKey(2), "")
	l.until("the device to go", func() bool { return !strings.Contains(l.output("ip", "-br", "link"), DeviceName) })
	l.until("dnsmasq to end", func() bool { return !alive(pid) })
}

// TestStoreAway serves on while etcd is away, and takes what changed in between, even what etcd has
// forgotten since.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	first, second := l.machine(1), l.machine(2)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(first.endpoint("10.65.0.7", "a"))
	l.start()
	l.serving(1)
	pid := l.pid()
	if err := l.st.Close(); err != nil {
		t.Fatal(err)
	}
	first.wantLease("10.65.0.7")
	l.st = storetest.Open(t, l.dataDir)
	l.put(second.endpoint("10.65.0.8", "a"))
	l.read(2)
	second.wantLease("10.65.0.8")
	// Data that are not ready change nothing.
	l.put("/calico/v1/Ready", "false", endpointKey(1), "", endpointKey(2), "")
	l.put("/calico/v1/Ready", "true")
	l.until("the device to go", func() bool { return !alive(pid) })
}

// TestAddressGivenAgain gives a machine at its first request the address that another one had a
// lease of until just now.
func TestAddressGivenAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	first, kept := l.machine(1), l.machine(2)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(first.endpoint("10.65.0.7", "a"))
	l.put(kept.endpoint("10.65.0.8", "a"))
	l.start()
	l.serving(1)
	first.wantLease("10.65.0.7")
	kept.wantLease("10.65.0.8")
	for n := 3; n < 8; n++ {
		m := l.machine(n)
		key, value := m.endpoint("10.65.0.7", "a")
		before := endpointKey(1)
		if n > 3 {
			before = endpointKey(n - 1)
		}
		l.put(key, value, before, "")
		l.serving(n - 1)
		m.wantLease("10.65.0.7")
	}
	kept.wantLease("10.65.0.8")
	// Removed for good: refused after a while, and nobody else is.
	l.put(endpointKey(7), "")
	l.serving(7)
	kept.wantLease("10.65.0.8")
}

// TestAgentRestarts kills the agent: what it ran serves on, and the next one adopts it.
func TestAgentRestarts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(1)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(m.endpoint("10.65.0.7", "a"))
	l.start()
	l.serving(1)
	pid := l.pid()
	l.kill()
	m.wantLease("10.65.0.7")
	other := l.machine(2)
	l.put(other.endpoint("10.65.0.8", "a"))
	// As if it had been killed while a new instance was starting.
	stray := exec.Command("dnsmasq", leaseArgument+filepath.Join(l.options.Plan.Dir, leaseFiles()[1]), "--keep-in-foreground", "--port=0", "--conf-file=/dev/null", "--pid-file=", "--interface="+DeviceName)
	if err := l.host.Start(stray); err != nil {
		t.Fatal(err)
	}
	l.start()
	if err := stray.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the instance that was starting: %v", err)
	}
	l.read(2)
	other.wantLease("10.65.0.8")
	m.wantLease("10.65.0.7")
	if l.pid() != pid || !alive(pid) || strings.Count(l.log.String(), "dnsmasq serves") != 1 {
		t.Errorf("dnsmasq was started anew")
	}
	// What changed meanwhile and cannot be told to it starts it anew.
	l.kill()
	l.put(subnet("b", "10.66.0.0/24", "10.66.0.1", ""))
	l.put(m.endpoint("10.66.0.7", "b"))
	l.start()
	l.serving(2)
	m.wantLease("10.66.0.7")
	other.wantLease("10.65.0.8")
}

// TestStrangers: an agent whose dnsmasq has died starts another. It touches neither the process
// that got its number, nor one with the same arguments in another network namespace.
func TestStrangers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(1)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(m.endpoint("10.65.0.7", "a"))
	l.start()
	l.serving(1)
	l.kill()
	send(t, l.pid(), syscall.SIGKILL)
	reused := exec.Command("sleep", "600")
	elsewhere := exec.Command("dnsmasq", leaseArgument+filepath.Join(t.TempDir(), "leases"), "--keep-in-foreground", "--port=0", "--conf-file=/dev/null", "--pid-file=", "--interface="+DeviceName)
	if err := errors.Join(l.host.Start(reused), l.MustNamespace(t, "elsewhere").Start(elsewhere)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, cmd := range []*exec.Cmd{reused, elsewhere} {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	if err := os.WriteFile(filepath.Join(l.options.Plan.Dir, pidFile), fmt.Appendln(nil, reused.Process.Pid), 0o644); err != nil {
		t.Fatal(err)
	}
	l.start()
	l.serving(2)
	m.wantLease("10.65.0.7")
	if !alive(reused.Process.Pid) || !alive(elsewhere.Process.Pid) || strings.Contains(l.log.String(), "adopted the dnsmasq that runs") {
		t.Errorf("alive are the process with its number: %t, that of another host: %t", alive(reused.Process.Pid), alive(elsewhere.Process.Pid))
	}
}

// TestAnotherDirectory starts an agent that was told to keep its files elsewhere, without a
// clean-up: the dnsmasq of the one before serves until its own does, leases go along, and only its
// own go on.
func TestAnotherDirectory(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.options.ProbeEvery = 300e6
	m := l.machine(1)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(subnet("b", "2001:db8:65::/64", "2001:db8:65::1", ""))
	l.put(m.endpoint("10.65.0.7", "a", "2001:db8:65::7", "b"))
	l.start()
	l.serving(1)
	l.answering(1)
	if got, said := m.ask6(); got != "2001:db8:65::7" {
		t.Fatalf("got %q:\n%s", got, said)
	}
	before := l.pid()
	l.kill()
	l.put("/calico/v1/Ready", "false")
	l.options.Plan.Dir = filepath.Join(filepath.Dir(l.options.Plan.Dir), "elsewhere")
	l.start()
	l.logged("adopted the dnsmasq of another state directory", 1)
	m.wantLease("10.65.0.7") // by the one before, as the agent has no plan
	l.put("/calico/v1/Ready", "true")
	l.serving(2)
	l.answering(2)
	l.until("the one before to end", func() bool { return !alive(before) })
	m.wantLease("10.65.0.7")
	var left []*process
	l.do(func() error {
		for _, first := range []string{leaseArgument, namesArgument} {
			found, err := instances(first, DeviceName)
			if err != nil {
				return err
			}
			left = append(left, found...)
		}
		return nil
	})
	if len(left) != 2 || left[0].stateDir() != l.options.Plan.Dir || left[1].stateDir() != l.options.Plan.Dir {
		t.Fatalf("there run %+v", left)
	}
	leases, err := os.ReadFile(left[0].file)
	if err != nil || !strings.Contains(string(leases), " 2001:db8:65::7 ") {
		t.Errorf("the lease of the one before is not known: %v\n%s", err, leases)
	}
}

// TestSecondAgent is refused.
func TestSecondAgent(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	l.logged("ready", 1)
	first := l.cmd
	l.start()
	l.logged(ErrSecond.Error(), 1)
	if err := l.cmd.Wait(); err == nil {
		t.Error("the second agent ended well")
	}
	l.cmd = first
}

// TestDnsmasqDies and hangs: both are noticed, said and mended.
func TestDnsmasqDies(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.options.ProbeEvery = 300e6
	m := l.machine(1)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(m.endpoint("10.65.0.7", "a"))
	l.start()
	l.serving(1)
	m.wantLease("10.65.0.7")
	send(t, l.pid(), syscall.SIGKILL)
	l.logged("signal: killed", 1)
	l.serving(2)
	m.wantLease("10.65.0.7")
	send(t, l.pid(), syscall.SIGSTOP)
	l.logged("dnsmasq hangs", 1)
	l.serving(3)
	m.wantLease("10.65.0.7")
}

// TestPortTaken logs which dnsmasq cannot listen and why, and serves once it can.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(1)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(m.endpoint("10.65.0.7", "a"))
	holder := l.listen("0.0.0.0:67")
	l.start()
	l.logged("Address already in use", 1)
	holder.Close()
	l.serving(1)
	m.wantLease("10.65.0.7")
}

// TestManyAtOnce boots machines together, one while dnsmasq starts anew.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.start()
	var all []*machine
	for n := range 12 {
		m := l.machine(n + 1)
		all = append(all, m)
		l.put(m.endpoint(fmt.Sprintf("10.65.0.%d", 10+n), "a"))
	}
	l.read(12)
	l.put(subnet("b", "10.66.0.0/24", "10.66.0.1", ""))
	more := l.machine(20)
	var wait sync.WaitGroup
	for n, m := range all {
		wait.Go(func() { m.wantLease(fmt.Sprintf("10.65.0.%d", 10+n)) })
	}
	l.put(more.endpoint("10.66.0.9", "b"))
	wait.Wait()
	l.serving(2)
	more.wantLease("10.66.0.9")
}

func send(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// alive reports whether a process runs: one that has ended may wait for its parent to hear of it.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}

// output returns the output of a command on the host.
func (l *lab) output(name string, args ...string) string {
	l.t.Helper()
	out, err := l.host.Output(l.t.Context(), name, args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// output returns the output of a command in the machine.
func (m *machine) output(name string, args ...string) string {
	m.lab.t.Helper()
	out, err := m.ns.Output(m.lab.t.Context(), name, args...)
	if err != nil {
		m.lab.t.Fatal(err)
	}
	return out
}

// TestOutcomesInLog logs the outcome of each request, and for which interface.
func TestOutcomesInLog(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m, stranger := l.machine(1), l.machine(2)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(subnet("b", "2001:db8:65::/64", "2001:db8:65::1", ""))
	key, value := m.endpoint("10.65.0.7", "a", "2001:db8:65::7", "b")
	l.put(key, strings.TrimSuffix(value, "}")+`, "extra_dhcp_opts": [{"opt_name": "unheard-of", "opt_value": "1"}]}`)
	l.start()
	l.serving(1)
	m.wantLease("10.65.0.7")
	m.ask6()
	if got, _ := stranger.ask(1); got != "" {
		t.Errorf("a machine without an endpoint got %s", got)
	}
	for _, want := range []string{
		`level=INFO msg=dnsmasq says="[0-9]+ DHCPACK\(ns-calico\) 10.65.0.7 02:65:00:00:00:01 vm1" pid=\d+ interface=tap1`,
		`level=INFO msg=dnsmasq says="[0-9]+ DHCPREPLY\(tap1\) 2001:db8:65::7 \S+ vm1" pid=\d+ interface=tap1`,
		`level=WARN msg=dnsmasq says="[0-9]+ DHCPDISCOVER\(ns-calico\) 02:65:00:00:00:02 no address available" pid=\d+`,
		`level=WARN msg=dnsmasq says="bad dhcp-option at line 3 of \S+/opts/subnet-a" pid=\d+ interface=tap1`,
	} {
		l.until(want, func() bool { return regexp.MustCompile(want).MatchString(l.log.String()) })
	}
	for line := range strings.Lines(l.log.String()) {
		if strings.Contains(line, "says=") && !strings.Contains(line, "level=DEBUG") && !strings.Contains(line, "DHCP") && !strings.Contains(line, "bad dhcp-option") {
			t.Errorf("chatter: %s", line)
		}
	}
}
