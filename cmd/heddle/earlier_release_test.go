package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// earlierRelease names the commit of the release before this one.
const earlierRelease = "testdata/earlier-release"

// binary is a heddle of another release.
type binary string

// command is a command line of it.
func (b binary) command(args ...string) *exec.Cmd {
	cmd := exec.Command(string(b), args...)
	cmd.Env = append(os.Environ(), "HEDDLE_RUN_DIR=") // the machine may have roles of its own
	return cmd
}

// buildEarlier builds the heddle of the earlier release from the history of this clone.
func buildEarlier(t *testing.T) binary {
	t.Helper()
	raw, err := os.ReadFile(earlierRelease)
	if err != nil {
		t.Fatal(err)
	}
	commit, dir := strings.TrimSpace(string(raw)), t.TempDir()
	// The clone may be another user's.
	unpack := exec.CommandContext(t.Context(), "sh", "-c", `git -c safe.directory="*" -C ../.. archive "$1" | tar -x -C "$2"`, "sh", commit, dir)
	if out, err := unpack.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("the source of the earlier release %s: %v %s (a clone with all history has it: git fetch --unshallow)", commit, err, out)
	}
	return buildIn(t, dir, commit, "-trimpath") // the directory is another one each time
}

// buildIn builds the heddle of the sources in a directory.
func buildIn(t *testing.T, dir, version string, more ...string) binary {
	t.Helper()
	file := filepath.Join(t.TempDir(), "heddle")
	args := append([]string{"build", "-buildvcs=false", "-ldflags", "-X main.version=" + version, "-o", file}, more...)
	build := exec.CommandContext(t.Context(), "go", append(args, "./cmd/heddle")...)
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build release %s: %v\n%s", version, err, out)
	}
	return binary(file)
}

// flowLoad opens connections from one machine to another, one after the other. None may fail.
type flowLoad struct {
	stop    func()
	opened  int
	longest time.Duration // from the opening of one until its first answer
}

func loadFlows(t *testing.T, from, to *netlab.Namespace, at string) *flowLoad {
	t.Helper()
	listenEcho(t, to, at)
	ctx, cancel := context.WithCancel(t.Context())
	load := &flowLoad{}
	var running sync.WaitGroup
	load.stop = func() { cancel(); running.Wait() }
	t.Cleanup(load.stop)
	running.Go(func() {
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for ctx.Err() == nil {
			begun := time.Now()
			if err := askEcho(ctx, from, at); err != nil {
				if ctx.Err() == nil {
					t.Errorf("connection %d: %v", load.opened, err)
				}
				return
			}
			load.opened++
			load.longest = max(load.longest, time.Since(begun))
			<-pace.C
		}
	})
	return load
}

// askEcho opens a connection, has a byte come back, and resets the connection, which leaves nothing
// behind at either end.
func askEcho(ctx context.Context, from *netlab.Namespace, at string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := dialer(from)(ctx, "tcp4", at)
	if err != nil {
		return err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := errors.Join(c.SetDeadline(deadline), c.(*net.TCPConn).SetLinger(0)); err != nil {
		return err
	}
	b := []byte{1}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err = io.ReadFull(c, b)
	return err
}

// release makes command lines of the heddle of a release.
type release func(args ...string) *exec.Cmd

// mixedSite is a server and two hosts with a machine each, whose heddles are of one of two releases
// that follow each other, with calls that never stop.
type mixedSite struct {
	*site
	t              *testing.T
	earlier, later release
	passed         *sockets
	server         *running
	hosts          [2]*host
	agents         [2]*running
	vms            [2]*netlab.Namespace
	load           *apiLoad
}

// as returns a command line of one of the releases.
func (s *mixedSite) as(earlier bool, args ...string) *exec.Cmd {
	if earlier {
		return s.earlier(args...)
	}
	return s.later(args...)
}

func (s *mixedSite) startServer(earlier bool) {
	s.t.Helper()
	s.server = launchAs(s.t, s.ctl, s.passed.passedTo(s.as(earlier, s.serveArgs()...)), s.serveArgs()...)
	s.server.waitReady(s.t)
}

func (s *mixedSite) startAgent(i int, earlier bool, more ...string) {
	s.t.Helper()
	args := s.hosts[i].agent(more...)
	s.agents[i] = launchAs(s.t, s.hosts[i].ns, s.as(earlier, args...), args...)
	s.agents[i].waitReady(s.t)
}

// newMixedSite starts all of it as the earlier release.
func newMixedSite(t *testing.T, earlier, later release) *mixedSite {
	t.Helper()
	s := &mixedSite{site: newSite(t), t: t, earlier: earlier, later: later}
	s.passed = listenFor(t, s.ctl, "127.0.0.1:5000", "127.0.0.1:9696")
	s.startServer(true)
	c := login(t, s.ctl, "127.0.0.1", s.data)
	c.unlimited(t)
	network := c.mustCreate(t, "network", map[string]any{"name": "blue"})
	c.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.0.0.0/24", "enable_dhcp": false})
	for i := range s.hosts {
		s.hosts[i] = s.addHost(t, fmt.Sprint("h", i), fmt.Sprintf("192.0.2.1%d", i))
		s.startAgent(i, true, "--join", s.token(t, s.hosts[i].name))
		s.vms[i] = s.lab.MustNamespace(t, fmt.Sprint("vm", i))
		port, mac := c.bindPort(t, network.ID, s.hosts[i], 10+i)
		plug(t, s.vms[i], "eth0", mac, s.hosts[i], port)
		s.vms[i].MustIP(t, "link set eth0 up", fmt.Sprintf("addr add 10.0.0.%d/24 dev eth0", 10+i))
	}
	s.check()
	s.load = loadAPI(t, c)
	return s
}

// check opens a new connection each way, and lists the hosts with either command.
func (s *mixedSite) check() {
	s.t.Helper()
	for i := range s.vms {
		if err := s.vms[i].Reach(s.t.Context(), fmt.Sprint("10.0.0.1", 1-i)); err != nil {
			s.t.Error(err)
		}
	}
	for _, earlier := range []bool{true, false} {
		cmd := s.as(earlier, "host", "list", "--data", s.data)
		var text strings.Builder
		cmd.Stdout, cmd.Stderr = &text, &text
		err := s.ctl.Start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil || !strings.Contains(text.String(), s.hosts[0].name) || !strings.Contains(text.String(), s.hosts[1].name) {
			s.t.Errorf("host list of the earlier release (%v): %v\n%s", earlier, err, text.String())
		}
	}
}

// TestBesideEarlierRelease: servers and agents of the earlier release and of this one work together
// in any order, forth and back, and after crashes.
func TestBesideEarlierRelease(t *testing.T) {
	t.Parallel()
	earlier := buildEarlier(t)
	for name, test := range map[string]func(*testing.T, binary){"a server and hosts": upgradeSite, "servers of a cluster": upgradeServers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, earlier)
		})
	}
}

// upgradeSite upgrades a server and its hosts. No ping is lost, no call fails, connections that are
// opened all the while succeed; the format of the store is raised when all are of this release.
func upgradeSite(t *testing.T, earlier binary) {
	s := newMixedSite(t, earlier.command, heddle)
	flows := loadFlows(t, s.vms[0], s.vms[1], "10.0.0.11:7")
	agent := func(i int, earlier bool) func() {
		return func() {
			s.agents[i].stop(t)
			s.startAgent(i, earlier)
		}
	}
	server := func(earlier bool) func() {
		return func() {
			s.server.stop(t)
			s.startServer(earlier)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"an agent is upgraded first", agent(0, false)},
		{"the server is upgraded", server(false)},
		{"the server goes back", server(true)},
		{"the agent goes back", agent(0, true)},
		{"the server is upgraded again", server(false)},
		{"an agent is upgraded after a crash", func() {
			s.agents[1].kill()
			s.startAgent(1, false)
		}},
		{"all are upgraded", agent(0, false)},
		{"the server goes back after a crash", func() {
			s.load.stop() // calls fail then
			s.server.kill()
			s.startServer(true)
		}},
		{"the server is upgraded for good", server(false)},
	} {
		ping, err := s.vms[0].Ping("10.0.0.11")
		if err != nil {
			t.Fatal(err)
		}
		step.do()
		s.check()
		longest, lost, err := ping.End()
		if err != nil || lost > 0 {
			t.Errorf("%d pings lost, longest time without an answer %v: %v", lost, longest, err)
		}
		if t.Failed() {
			t.Fatalf("when %s", step.name)
		}
	}
	succeed(t, s.ctl, "upgrade", "commit", "--data", s.data)
	flows.stop()
	t.Logf("%d rounds of calls, %d failed; %d connections opened, the longest wait %v", s.load.calls.Load(), s.load.failed.Load(), flows.opened, flows.longest)
}
