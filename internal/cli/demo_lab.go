package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"heddle/internal/nettest"
)

const (
	// labPrefix begins the name of everything the demo makes.
	labPrefix = "heddle-demo"
	// labDir holds the server's data, the agents' state and all logs of a demo.
	labDir = "/run/" + labPrefix
	// serverIP is the server's address on the underlay, from the range for documentation (RFC 5737).
	serverIP = "192.0.2.1"
	// telemetryAddr is where every process of the lab serves its health, inside its own namespace.
	telemetryAddr = "127.0.0.1:9697"
	startPatience = 30 * time.Second
)

// lab is a small data centre on this machine: a namespace that holds the underlay's switch and the server, and one
// namespace a host with its agent.
//
//	heddle-demo-ctl  bridge underlay 192.0.2.1/24, heddle serve
//	      │ eth0 of each host
//	heddle-demo-h1   eth0 192.0.2.11, heddle agent, host ends of its workloads
//	      │ eth0 of each workload
//	heddle-demo-a1   a workload
type lab struct {
	prefix string // begins the name of everything the lab makes
	spaces *nettest.Lab
	binary string
	dir    string // holds the server's data, the agents' state and all logs
	ctl    *nettest.Namespace
	server *process
	hosts  []*labHost
	cloud  Cloud
	admin  *session
	closed bool
}

// labHost is a simulated host.
type labHost struct {
	name     string
	ns       *nettest.Namespace
	ip       string   // by which other hosts send tunnelled packets
	maxFlows int      // of its agent; 0 = as many as it takes by itself
	roles    []string // flags of its agent; none: --overlay
	agent    *process
}

// process is a heddle process of the lab.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// newLab starts the server of a lab. What was made before an error is the lab's to close.
func newLab(ctx context.Context, prefix, dir string) (*lab, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &lab{prefix: prefix, spaces: nettest.New(prefix), binary: binary, dir: dir}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, err
	}
	return l, l.startServer(ctx)
}

// startHosts adds so many hosts and their agents.
func (l *lab) startHosts(ctx context.Context, n int) error {
	for range n {
		h, err := l.makeHost()
		if err == nil {
			err = l.join(ctx, h)
		}
		if err != nil {
			return fmt.Errorf("host h%d: %w", len(l.hosts), err)
		}
	}
	return nil
}

func (l *lab) startServer(ctx context.Context) (err error) {
	if l.ctl, err = l.spaces.Namespace("ctl"); err != nil {
		return err
	}
	if err := l.ctl.IP("link add underlay type bridge", "addr add "+serverIP+"/24 dev underlay", "link set underlay up"); err != nil {
		return err
	}
	data := filepath.Join(l.dir, "server")
	l.server, err = l.start(ctx, l.ctl, "server", "serve", "--data", data, "--metrics", telemetryAddr,
		"--agents-listen", serverIP+":2379", "--operator-listen", serverIP+":9698")
	if err != nil {
		return err
	}
	l.cloud = Cloud{File: filepath.Join(data, "clouds.yaml"), Dial: dialIn(l.ctl)}
	l.admin, err = l.cloud.login(ctx)
	return err
}

// dialIn opens connections inside a namespace.
func dialIn(ns *nettest.Namespace) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = ns.Do(func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
}

// makeHost makes a namespace on the underlay.
func (l *lab) makeHost() (*labHost, error) {
	i := len(l.hosts) + 1
	short := fmt.Sprintf("h%d", i)
	h, err := l.attach(short, l.hostPrefix()+short, fmt.Sprintf("192.0.2.%d", 10+i))
	l.hosts = append(l.hosts, h)
	return h, err
}

// hostPrefix begins the names of the lab's hosts: those of the demo are demo-h1, demo-h2…
func (l *lab) hostPrefix() string { return strings.TrimPrefix(l.prefix, "heddle-") + "-" }

// join starts the agent of a host that is new to the server.
func (l *lab) join(ctx context.Context, h *labHost) error {
	var token struct {
		Token string `json:"token"`
	}
	if err := l.admin.operator(ctx, http.MethodPost, "/v1/join-tokens", map[string]string{"name": h.name}, &token); err != nil {
		return err
	}
	return l.startAgent(ctx, h, "--join", token.Token)
}

// startAgent starts a host's agent and waits until it works.
func (l *lab) startAgent(ctx context.Context, h *labHost, more ...string) (err error) {
	roles := h.roles
	if len(roles) == 0 {
		roles = []string{"--overlay", "--tunnel-ip", h.ip, "--max-flows", strconv.Itoa(h.maxFlows)}
	}
	args := append([]string{"agent", "--name", h.name, "--state", filepath.Join(l.dir, h.name), "--metrics", telemetryAddr}, roles...)
	h.agent, err = l.start(ctx, h.ns, h.name, append(args, more...)...)
	return err
}

// start runs the binary inside a namespace and waits until it says that it is ready.
func (l *lab) start(ctx context.Context, ns *nettest.Namespace, name string, args ...string) (*process, error) {
	return l.startAt(ctx, ns, name, telemetryAddr, args...)
}

// startAt is start of a process that serves its health elsewhere.
func (l *lab) startAt(ctx context.Context, ns *nettest.Namespace, name, health string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(l.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(l.binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: Ctrl-C reaches the demo, which then takes everything down in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := ns.Start(cmd); err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in its log
	}()
	if err := p.waitReady(ctx, ns, health); err != nil {
		p.kill()
		return nil, fmt.Errorf("%w; the end of %s:\n%s", err, log.Name(), tail(log.Name(), 10))
	}
	return p, nil
}

func (p *process) waitReady(ctx context.Context, ns *nettest.Namespace, health string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %s", startPatience))
	defer cancel()
	client := http.Client{Transport: &http.Transport{DialContext: dialIn(ns), DisableKeepAlives: true}}
	return nettest.Until(ctx, p.name+" to be ready", func() (bool, error) {
		select {
		case <-p.done:
			return false, errors.New("it ended")
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", nil)
		if err != nil {
			return false, err
		}
		res, err := client.Do(req)
		if err != nil {
			return false, nil // not listening yet
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK, nil
	})
}

// stop asks the process to end and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

// kill ends the process at once, as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// close stops everything and takes away what the lab made. Closing it again does nothing.
func (l *lab) close(ctx context.Context) error {
	if l.closed {
		return nil
	}
	l.closed = true
	var errs []error
	for _, h := range l.hosts {
		if h.agent != nil {
			h.agent.stop()
		}
		if h.ns != nil {
			errs = append(errs, l.cleanup(ctx, h.ns, h.name, h.roles...))
		}
	}
	if l.server != nil {
		l.server.stop()
	}
	return errors.Join(append(errs, l.spaces.Close())...)
}

// cleanup takes away what a host's agent has made in the kernel, inside its namespace and beyond.
func (l *lab) cleanup(ctx context.Context, ns *nettest.Namespace, host string, roles ...string) error {
	if len(roles) == 0 {
		roles = []string{"--overlay"}
	}
	args := append([]string{"agent", "--cleanup", "--name", host, "--state", filepath.Join(l.dir, host)}, roles...)
	if out, err := ns.Output(ctx, l.binary, args...); err != nil {
		return fmt.Errorf("clean up after the agent of %s: %w: %s", host, err, strings.TrimSpace(out))
	}
	return nil
}

// cleanLab takes down what an earlier run left behind: processes, namespaces, pinned maps, files.
func cleanLab(prefix, dir string) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := nettest.Sweep(prefix); err != nil {
		return err
	}
	l := &lab{prefix: prefix, spaces: nettest.New(prefix), binary: binary, dir: dir}
	left, err := filepath.Glob(filepath.Join(dir, l.hostPrefix()+"h*[0-9]"))
	if err != nil || len(left) == 0 {
		return errors.Join(err, os.RemoveAll(dir))
	}
	// The hosts are gone. What their agents have pinned is not: it is taken away from a namespace where nothing else is.
	empty, err := l.spaces.Namespace("cleanup")
	if err == nil {
		for _, state := range left {
			err = errors.Join(err, l.cleanup(context.Background(), empty, filepath.Base(state)))
		}
	}
	if err := errors.Join(err, l.spaces.Close()); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// tail is the last n lines of a file.
func tail(path string, n int) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
