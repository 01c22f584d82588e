package services

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/services/plan"
	"heddle/internal/topology"
)

// TestHAProxyConfiguration: haproxy accepts the codes and the longest times that the APIs take. Of
// a configuration that it refuses, the error has the reason.
func TestHAProxyConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name, codes string
		seconds     int
		want        string
	}{
		{"list of codes", "200, 201 ,\t202", 86_400, ""},
		{"range of codes", "200-204", 1, ""},
		{"falling range", "299-200", 1, "haproxy refuses its configuration: config : parsing [haproxy.cfg.next:21] : 'http-check expect' : invalid range of status codes '299-200'."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			monitor := monitorOf(topology.MonitorHTTP)
			monitor.ExpectedCodes, monitor.Delay, monitor.Timeout = tt.codes, tt.seconds, tt.seconds
			c := plan.Container{Pools: []plan.Pool{{ID: "p", Monitor: monitor,
				Members: []topology.PoolMember{{ID: "m", Address: netip.MustParseAddr("192.0.2.1"), ProtocolPort: 80}}}}}
			h := &haproxy{program: "haproxy", dir: t.TempDir()}
			err := h.write(t.Context(), plan.Render(&c))
			if got := errorText(err); got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}

// confinedTest names the variable that the process of a test has which runs as the agent's unit.
const confinedTest = "HEDDLE_CONFINED_TEST"

// runConfined runs the test again in a process with no more capabilities than the agent's unit
// gives, and reports whether it is this process.
func runConfined(t *testing.T) (confined bool) {
	t.Helper()
	if os.Getenv(confinedTest) != "" {
		return true
	}
	capabilities, err := netlab.UnitCapabilities("../../docs/guides/files/heddle-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	if err := netlab.Confine(cmd, capabilities); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), confinedTest+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with the capabilities %v: %v\n%s", capabilities, err, out)
	}
	return false
}

// TestWorkerWithoutRights: the process that meets members is haproxy's user's, not root's. Its
// agent, with the rights of its unit, gets its verdicts and answers all the same, as does the next
// agent, and after a reload.
func TestWorkerWithoutRights(t *testing.T) {
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("haproxy is not installed (apt install haproxy)")
	}
	if !runConfined(t) {
		return
	}
	space, agent := checksOnly(t)
	apply := func(h *haproxy, fall int) {
		t.Helper()
		if err := checkLocal(t, h, fall); err != nil {
			t.Fatal(err)
		}
		worker, err := h.worker(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		uid, err := os.Stat("/proc/" + worker)
		if err != nil {
			t.Fatal(err)
		}
		if got := uid.Sys().(*syscall.Stat_t).Uid; got == 0 {
			t.Errorf("the worker, process %s, runs as user %d", worker, got)
		}
	}
	logged := func(h *haproxy, status string) { // by the socket of the log
		t.Helper()
		select {
		case v := <-h.verdicts:
			if want := (plan.Verdict{MemberID: "m", Status: status}); v != want {
				t.Errorf("verdict %+v, want %+v", v, want)
			}
		case why := <-h.ended:
			t.Fatal(why)
		case <-time.After(waitLimit):
			t.Fatalf("no verdict %s", status)
		}
	}
	h := agent()
	apply(h, 2)
	logged(h, topology.MemberInactive)
	stop := serve(t, space, 80)
	logged(h, topology.MemberActive)
	h.close()
	h = agent()
	defer h.close()
	apply(h, 2)
	stop()
	logged(h, topology.MemberInactive)
	apply(h, 3)
	serve(t, space, 80)
	logged(h, topology.MemberActive)
}

// TestHAProxyThatDied: a haproxy that is found dead when its configuration changes has its last
// words told, not that it hangs.
func TestHAProxyThatDied(t *testing.T) {
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("haproxy is not installed (apt install haproxy)")
	}
	_, agent := checksOnly(t)
	h := agent()
	defer h.close()
	if err := checkLocal(t, h, 2); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(h.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.ended <- <-h.ended // it is dead
	if err := checkLocal(t, h, 3); err == nil || !strings.HasPrefix(err.Error(), "haproxy has ended: signal: killed") {
		t.Errorf("%v, want why haproxy has ended", err)
	}
}

// checksOnly returns a namespace and what opens a haproxy in it, as each agent does that runs.
func checksOnly(t *testing.T) (space *netlab.Namespace, agent func() *haproxy) {
	t.Helper()
	space = netlab.ForTest(t).MustNamespace(t, "checks")
	space.MustIP(t, "link set lo up")
	ns, err := hostnet.OpenNamespace(space.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(endProcesses(ns), ns.Close()); err != nil {
			t.Error(err)
		}
	})
	deciding := make(chan struct{})
	close(deciding)
	options, dir := &Options{HAProxy: "haproxy"}, t.TempDir()
	return space, func() *haproxy {
		h, err := openHAProxy(options, dir, ns, func(string) string { return "" }, &sight{deciding: deciding})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
}

// checkLocal makes haproxy check port 80 of its own namespace, which is down after some failures.
func checkLocal(t *testing.T, h *haproxy, fall int) error {
	t.Helper()
	monitor := monitorOf(topology.MonitorTCP)
	monitor.FailRetries = fall
	_, err := h.apply(t.Context(), &plan.Container{Pools: []plan.Pool{{ID: "p", Monitor: monitor,
		Members: []topology.PoolMember{{ID: "m", Address: netip.MustParseAddr("127.0.0.1"), ProtocolPort: 80}}}}})
	return err
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
