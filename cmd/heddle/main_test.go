package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/overlay"
	"heddle/internal/services"
	"heddle/internal/store/storetest"
)

// runMain makes the test binary behave as heddle itself, so that tests start real processes with
// the race detector in. With the value tied such a process ends with the test's, even where that is
// killed.
const (
	runMain = "HEDDLE_TEST_RUN_MAIN"
	tied    = "tied"
)

func TestMain(m *testing.M) {
	storetest.BeMember()
	if len(os.Args) > 1 && slices.Contains([]string{overlay.WireguardCommand, services.SpeakerCommand}, os.Args[1]) { // an agent starts it without its environment
		main()
		os.Exit(0)
	}
	if how := os.Getenv(runMain); how != "" {
		if how == tied {
			go storetest.EndWithParent()
			os.Setenv(runMain, "1") // for what it runs itself, which has no input
		}
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// heddle is a command line of this binary.
func heddle(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), runMain+"=1", "HEDDLE_RUN_DIR=") // the machine may have roles of its own
	return cmd
}

// running is a heddle process in a namespace, where the default ports are free.
type running struct {
	ns     *netlab.Namespace
	cmd    *exec.Cmd
	health string // where it tells of its health, as host:port
	log    string
	done   chan error
}

// start runs heddle in ns and waits until it is ready. The process ends with the test.
func start(t testing.TB, ns *netlab.Namespace, args ...string) *running {
	t.Helper()
	r := launch(t, ns, args...)
	r.waitReady(t)
	return r
}

// rolesOf returns the roles of a command line of an agent, by its flags.
func rolesOf(args []string) (roles []string) {
	switch args[0] {
	case "dhcp-agent":
		return []string{"dhcp"}
	case "agent":
		for _, role := range []string{"policy", "bgp", "dhcp", "xen"} {
			if slices.Contains(args, "--"+role) {
				roles = append(roles, role)
			}
		}
		if len(roles) == 0 || slices.Contains(args, "--tunnel-ip") {
			roles = append(roles, "overlay")
		}
	}
	return roles
}

// unitFile returns the file of a unit.
func unitFile(unit string) string {
	return filepath.Join("..", "..", "docs", "guides", "files", unit+".service")
}

// launch is start without waiting. Agents have the capabilities that their roles need.
func launch(t testing.TB, ns *netlab.Namespace, args ...string) *running {
	t.Helper()
	cmd := heddle(args...)
	if roles := rolesOf(args); len(roles) > 0 {
		if err := netlab.Confine(cmd, names(roles...)); err != nil {
			t.Fatal(err)
		}
	}
	return launchAs(t, ns, cmd, args...)
}

// launchAs is launch by another command, which becomes heddle with these arguments.
func launchAs(t testing.TB, ns *netlab.Namespace, cmd *exec.Cmd, args ...string) *running {
	t.Helper()
	r := &running{ns: ns, cmd: cmd, health: healthAddress(args), log: filepath.Join(t.TempDir(), args[0]+".log"), done: make(chan error, 1)}
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.Env = append(r.cmd.Env, runMain+"="+tied)
	_, err = r.cmd.StdinPipe() // its end ends the process: see EndWithParent
	if err := errors.Join(err, ns.Start(r.cmd)); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	t.Cleanup(func() {
		r.stop(t)
		if t.Failed() {
			raw, _ := os.ReadFile(r.log)
			t.Logf("heddle %s:\n%s", strings.Join(args, " "), raw)
		}
	})
	return r
}

// healthAddress returns the address of the health pages for a heddle with these arguments.
func healthAddress(args []string) string {
	if i := slices.Index(args, "--metrics"); i >= 0 {
		return args[i+1]
	}
	return map[string]string{
		"serve": "127.0.0.1:9697", "agent": "127.0.0.1:9699", "dhcp-agent": "127.0.0.1:9695", "xapi": "127.0.0.1:9694", "tunnel-controller": "127.0.0.1:9693",
	}[args[0]]
}

// waitReady waits for /readyz.
func (r *running) waitReady(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := netlab.Until(ctx, "heddle to be ready", func() (bool, error) {
		select {
		case err := <-r.done:
			r.done <- err
			return false, fmt.Errorf("it ended: %v", err)
		default:
		}
		status, _, err := r.page(ctx, "/readyz")
		return err == nil && status == http.StatusOK, nil // or it does not listen yet
	})
	if err != nil {
		raw, _ := os.ReadFile(r.log)
		t.Fatalf("%v\n%s", err, raw)
	}
}

// stop asks the process to end, and waits for it.
func (r *running) stop(t testing.TB) {
	t.Helper()
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // gone already is fine
	select {
	case err := <-r.done:
		r.done <- err
	case <-time.After(20 * time.Second):
		_ = r.cmd.Process.Kill()
		t.Errorf("heddle did not end on SIGTERM")
		r.done <- <-r.done
	}
}

// kill ends the process as a crash would.
func (r *running) kill() {
	_ = r.cmd.Process.Kill()
	r.done <- <-r.done
}

// http is a client whose connections start in the process's namespace.
func (r *running) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = r.ns.Do(func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}}
}

// page fetches a page of the process's health.
func (r *running) page(ctx context.Context, path string) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.health+path, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := r.http().Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return res.StatusCode, string(raw), err
}

// startServer runs a server with an embedded store in a namespace of its own.
func startServer(t *testing.T, more ...string) (r *running, data string) {
	t.Helper()
	ns := netlab.ForTest(t).MustNamespace(t, "serve")
	data = t.TempDir()
	return start(t, ns, append([]string{"serve", "--data", data}, more...)...), data
}

// openstack runs the openstack command as the first administrator.
func (r *running) openstack(t *testing.T, data string, args ...string) string {
	t.Helper()
	return openstack(t, r.ns, []string{"OS_CLIENT_CONFIG_FILE=" + filepath.Join(data, "clouds.yaml"), "OS_CLOUD=heddle"}, args...)
}

// openstack runs the openstack command in ns with these variables.
func openstack(t *testing.T, ns *netlab.Namespace, env []string, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("openstack")
	if err != nil {
		t.Skip("the openstack command is missing: apt-get install python3-openstackclient")
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("openstack %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String())
}

// writeFile writes a file that its owner alone may read.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// output runs heddle in ns to its end and returns what it prints on both outputs, and its exit
// code. Its home is empty, so that no clouds.yaml of this machine's is found.
func output(t testing.TB, ns *netlab.Namespace, args ...string) (string, int) {
	t.Helper()
	return outputWith(t, ns, nil, args...)
}

// outputWith is output with more variables.
func outputWith(t testing.TB, ns *netlab.Namespace, env []string, args ...string) (string, int) {
	t.Helper()
	cmd := heddle(args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(cmd.Env, "HOME="+cmd.Dir), env...)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return text.String(), cmd.ProcessState.ExitCode()
}

// succeed runs heddle and returns what it prints.
func succeed(t testing.TB, ns *netlab.Namespace, args ...string) string {
	t.Helper()
	text, code := output(t, ns, args...)
	if code != 0 {
		t.Fatalf("heddle %s: exit code %d\n%s", strings.Join(args, " "), code, text)
	}
	return text
}

// refuse runs heddle, which must end with the code and say the words.
func refuse(t *testing.T, ns *netlab.Namespace, code int, words string, args ...string) {
	t.Helper()
	text, got := output(t, ns, args...)
	if got != code || !strings.Contains(text, words) {
		t.Errorf("heddle %s: exit code %d, want %d and the words %q:\n%s", strings.Join(args, " "), got, code, words, text)
	}
}
