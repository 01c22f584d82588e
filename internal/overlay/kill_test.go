package overlay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/wireguard"
	"heddle/internal/store/backend"
)

// agentEnv tells a process of this test binary to be an agent: Options as JSON, and where the store
// and the host's namespace are.
const agentEnv = "HEDDLE_TEST_AGENT"

type agentProcess struct {
	Options
	Endpoint string
	Host     string // path of the namespace
}

func TestMain(m *testing.M) {
	if text := os.Getenv(agentEnv); text != "" {
		fmt.Fprintln(os.Stderr, beAgent(text))
		os.Exit(1)
	}
	if len(os.Args) == 3 && os.Args[1] == WireguardCommand {
		if err := wireguard.Serve(context.Background(), os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beAgent runs an agent until somebody kills it.
func beAgent(text string) error {
	var p agentProcess
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	var err error
	if p.Store, err = backend.Open(context.Background(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{p.Endpoint}, SkipLimits: true}}); err != nil {
		return err
	}
	if p.Namespace, err = hostnet.OpenNamespace(p.Host); err != nil {
		return err
	}
	p.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	return New(p.Options).Run(context.Background())
}

// startProcess runs the host's agent as a process, and says how to kill it.
func (h *testHost) startProcess() (kill func()) {
	t := h.lab.t
	t.Helper()
	p := agentProcess{Options: h.options, Endpoint: "http://" + h.lab.server.address, Host: h.ns.Path()}
	p.Store, p.Namespace, p.Log = nil, nil, nil
	text, err := json.Marshal(&p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), agentEnv+"="+string(text))
	cmd.Stderr = &netlab.Log{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("the agent ended by itself: %v\n%s", err, cmd.Stderr)
		}
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("log of the killed agent of %s:\n%s", h.name, cmd.Stderr)
		}
	}
}

// TestKilled: an agent that is killed at any moment leaves nothing half-made that matters:
// established connections go on throughout, and after a start the kernel holds what is wanted, no
// less and no more.
func TestKilled(t *testing.T) {
	t.Parallel()
	l := newRemoteLab(t, 2)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	h := l.hosts[0]
	a, near, far := n.machine(h, g), n.machine(h, g), n.machine(l.hosts[1], g)
	var streams []func() error
	for _, m := range []*machine{near, far} {
		m.listen("tcp", 80)
		c, err := a.dial(m.v4, 80, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		streams = append(streams, func() error { return exchange(c, 20000, 5*time.Second) })
	}
	flows := func() {
		t.Helper()
		for i, stream := range streams {
			if err := stream(); err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
		}
	}
	flows()
	h.stop()

	random := rand.New(rand.NewPCG(1, 2))
	wanted := map[string]bool{a.port.ID: true, near.port.ID: true}
	var churned []*machine
	for range 6 {
		kill := h.startProcess()
		until := time.Now().Add(time.Duration(random.IntN(400)) * time.Millisecond)
		for time.Now().Before(until) {
			flows()
			if len(churned) > 0 && random.IntN(2) == 0 {
				m := churned[0]
				churned = churned[1:]
				l.put(m.owner(), nil)
				delete(wanted, m.port.ID)
				continue
			}
			m := n.port(h, g)
			m.plug()
			m.bind()
			churned = append(churned, m)
			wanted[m.port.ID] = true
		}
		kill()
		flows()
	}

	h.start()
	flows()
	ports := h.agent.dp.Ports()
	for _, p := range ports {
		if !wanted[p.Name] {
			t.Errorf("port %s is left over", p.Name)
		}
	}
	if len(ports) != len(wanted) {
		t.Errorf("%d ports are attached, %d are wanted", len(ports), len(wanted))
	}
	for _, m := range churned {
		if err := a.ping(m.v4, 1); err != nil {
			t.Error(err)
		}
	}
	h.verifyFlows(t)
}

// verifyFlows decides each flow of the host again, and returns those seen.
func (h *testHost) verifyFlows(t *testing.T) (all []datapath.FlowState) {
	t.Helper()
	again := &upkeep{e: h.agent.engine, verifier: h.agent.engine.newTrial()}
	if err := h.agent.dp.Dump(func(f datapath.FlowState) bool {
		if !f.Stale {
			again.verify(f)
			all = append(all, f)
		}
		return true
	}); err != nil {
		t.Error(err)
	}
	if n := h.agent.engine.count.different.Load(); n > 0 {
		t.Errorf("%d flows are not as they should be", n)
	}
	return all
}
