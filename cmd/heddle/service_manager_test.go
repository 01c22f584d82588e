package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"heddle/internal/netlab"
)

// sockets are addresses that the test listens on in place of a service manager (sd_listen_fds(3)).
type sockets struct{ files []*os.File }

func listenFor(t *testing.T, ns *netlab.Namespace, addresses ...string) *sockets {
	t.Helper()
	s := &sockets{}
	for _, address := range addresses {
		if err := ns.Do(func() error {
			l, err := net.Listen("tcp4", address)
			if err != nil {
				return err
			}
			defer l.Close()
			f, err := l.(*net.TCPListener).File()
			s.files = append(s.files, f)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, f := range s.files {
			f.Close()
		}
	})
	return s
}

// command is a heddle that gets the sockets.
func (s *sockets) command(args ...string) *exec.Cmd { return s.passedTo(heddle(args...)) }

// passedTo is a command that gets the sockets.
func (s *sockets) passedTo(direct *exec.Cmd) *exec.Cmd {
	line := fmt.Sprintf(`LISTEN_FDS=%d LISTEN_PID=$$ exec "$@"`, len(s.files))
	cmd := exec.Command("sh", append([]string{"-c", line, "sh"}, direct.Args...)...)
	cmd.Env, cmd.ExtraFiles = direct.Env, s.files
	return cmd
}

// TestRestartsRefuseNobody: with the service manager's sockets a server starts again and again
// under load, and no call of any API fails: of clients that keep their connections, and of those
// that do not.
func TestRestartsRefuseNobody(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "serve")
	args := serveAt("127.0.0.1", t.TempDir())
	passed := listenFor(t, ns, socketAddresses(t)...)
	launched := func() *running {
		r := launchAs(t, ns, passed.command(args...), args...)
		r.waitReady(t)
		return r
	}
	server := launched()
	admin := login(t, ns, "127.0.0.1", args[2])
	admin.unlimited(t)
	anew := login(t, ns, "127.0.0.1", args[2])
	anew.http.Transport.(*http.Transport).DisableKeepAlives = true

	balancers := *anew
	balancers.base = "http://127.0.0.1:9876"
	listBalancers := func(ctx context.Context, _ string) error {
		return balancers.call(ctx, http.MethodGet, "/v2.0/lbaas/loadbalancers", nil, nil)
	}
	load := startLoad(t, admin.writeAndRead, admin.writeAndRead, anew.writeAndRead, anew.writeAndRead, listBalancers)
	const restarts = 20
	for range restarts {
		load.wait(40)
		server.stop(t)
		server = launched()
	}
	load.stop()
	t.Logf("%d rounds of calls in %d restarts, %d failed", load.calls.Load(), restarts, load.failed.Load())
}

// socketAddresses returns the addresses of heddle.socket.
func socketAddresses(t *testing.T) (all []string) {
	t.Helper()
	raw, err := os.ReadFile(pagePath("files/heddle.socket"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if address, found := strings.CutPrefix(line, "ListenStream="); found {
			all = append(all, strings.TrimSpace(address))
		}
	}
	return all
}

// apiLoad is a load of calls of which none may fail.
type apiLoad struct {
	stop          func()
	called        chan struct{}
	calls, failed atomic.Int64
}

// loadAPI has each client make, read and delete networks until the load is stopped, at the latest
// when the test ends.
func loadAPI(t *testing.T, clients ...*client) *apiLoad {
	var rounds []func(context.Context, string) error
	for _, c := range clients {
		rounds = append(rounds, c.writeAndRead)
	}
	return startLoad(t, rounds...)
}

// startLoad repeats each of the rounds of calls, which get a name, until the load is stopped, at
// the latest when the test ends.
func startLoad(t *testing.T, rounds ...func(context.Context, string) error) *apiLoad {
	ctx, cancel := context.WithCancel(t.Context())
	load := &apiLoad{called: make(chan struct{}, 1)}
	var running sync.WaitGroup
	load.stop = func() { cancel(); running.Wait() }
	t.Cleanup(load.stop)
	for i, round := range rounds {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := round(ctx, fmt.Sprintf("n%d-%d", i, n)); err != nil && ctx.Err() == nil {
					load.failed.Add(1)
					t.Error(err)
				}
				load.calls.Add(1)
				select {
				case load.called <- struct{}{}:
				default: // the test has yet to take the one before
				}
			}
		})
	}
	return load
}

// wait waits for some more rounds of calls.
func (l *apiLoad) wait(rounds int) {
	for range rounds {
		<-l.called
	}
}

// writeAndRead makes a network, reads it, and takes it away.
func (c *client) writeAndRead(ctx context.Context, name string) error {
	n, err := c.create(ctx, "network", map[string]any{"name": name})
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	path := "/v2.0/networks/" + n.ID
	if err := c.call(ctx, http.MethodGet, path, nil, nil); err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

// TestSocketsWithoutAPI: a server refuses to leave clients waiting at a socket that it does not
// serve.
func TestSocketsWithoutAPI(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "serve")
	args := serveAt("127.0.0.1", t.TempDir())
	cmd := listenFor(t, ns, "127.0.0.1:9696", "127.0.0.1:9999").command(args...)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(text.String(), "listens on 127.0.0.1:9999, where no API is served: give heddle.socket and heddle.yaml the same addresses, by /etc/systemd/system/heddle.socket.d/addresses.conf") {
		t.Errorf("exit code %d, %v: %s", code, err, &text)
	}
}

// TestAbortEndsBySignal: a heddle that panics, or that a watchdog aborts, is not mistaken for one
// that was used wrongly, which a unit does not start again: it ends by a signal, with its
// goroutines in the log.
func TestAbortEndsBySignal(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "serve")
	server := start(t, ns, serveAt("127.0.0.1", t.TempDir())...)
	if err := server.cmd.Process.Signal(syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	server.done <- <-server.done
	if status := server.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGABRT {
		t.Errorf("it ended with %v", server.cmd.ProcessState)
	}
	if raw, err := os.ReadFile(server.log); err != nil || !strings.Contains(string(raw), "goroutine 1 ") {
		t.Errorf("no goroutines in the log: %v", err)
	}
}
