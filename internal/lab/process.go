package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"heddle/internal/netlab"
)

// Process is a process of this binary.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Start runs the binary in a namespace and waits until it is ready. It logs to name.log in the
// lab's directory.
func (l *Lab) Start(ctx context.Context, ns *netlab.Namespace, name string, args ...string) (*Process, error) {
	return l.StartAt(ctx, ns, name, TelemetryAddr, args...)
}

// StartAt is Start for a process with another address of health.
func (l *Lab) StartAt(ctx context.Context, ns *netlab.Namespace, name, health string, args ...string) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(l.Dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(l.Binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "HEDDLE_RUN_DIR=") // the machine may have roles of its own
	// A group of its own, so that Ctrl-C reaches only the demo, which stops it in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := ns.Start(cmd); err != nil {
		return nil, err
	}
	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in its log
	}()
	if err := p.waitReady(ctx, ns, health); err != nil {
		p.Kill()
		return nil, fmt.Errorf("%w; the end of %s:\n%s", err, log.Name(), tail(log.Name(), 10))
	}
	return p, nil
}

func (p *Process) waitReady(ctx context.Context, ns *netlab.Namespace, health string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, StartTimeout, fmt.Errorf("not ready after %s", StartTimeout))
	defer cancel()
	client := http.Client{Transport: &http.Transport{DialContext: DialIn(ns), DisableKeepAlives: true}}
	return netlab.Until(ctx, p.name+" to be ready", func() (bool, error) {
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

// Stop terminates the process, and kills it after ten seconds.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// Kill ends the process at once, as a crash would.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// DialIn returns a dialer for connections from a namespace.
func DialIn(ns *netlab.Namespace) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = ns.Do(func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
}

// tail returns the last n lines of a file.
func tail(path string, n int) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
