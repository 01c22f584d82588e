package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// answerTimeout bounds the wait for an answer.
const answerTimeout = 700 * time.Millisecond

// workload is a workload with the demo's checks.
type workload struct{ *lab.Workload }

// plug makes a workload and plugs it in. device is its interface on the host, "" for Neutron's
// name.
func (d *demo) plug(name string, host *lab.Host, port *ports.Port, device string) (*workload, error) {
	w, err := d.lab.NewWorkload(name, host, port)
	if err != nil {
		return nil, err
	}
	w.Device = device
	return &workload{w}, d.lab.PlugIn(w)
}

// dhcp gets an address by DHCP, and returns it with the MTU.
func (w *workload) dhcp(ctx context.Context, dir string) (string, error) {
	if err := w.askDHCP(ctx, dir); err != nil {
		return "", err
	}
	eth0, err := interfaceIn(w.NS, "eth0")
	return fmt.Sprintf("%s mtu %d", eth0.address(false), eth0.mtu), err
}

// Answers as the table prints them.
const (
	answered = "answered"
	silence  = "no answer"
)

// ping sends two echo requests and returns whether there was an answer.
func (w *workload) ping(ctx context.Context, address string, more ...string) (string, error) {
	args := append([]string{"-n", "-c", "2", "-i", "0.2", "-W", "1"}, more...)
	if _, err := w.NS.Output(ctx, "ping", append(args, address)...); err != nil {
		return silence, nil
	}
	return answered, nil
}

// serve answers every TCP connection to a port with the workload's name.
func (w *workload) serve(port int) (io.Closer, error) {
	return w.answer(port, func(net.Conn) string { return w.Name + " answered" })
}

// answer answers every TCP connection to a port with a line.
func (w *workload) answer(port int, line func(net.Conn) string) (io.Closer, error) {
	var l net.Listener
	err := w.NS.Do(func() (err error) {
		l, err = net.Listen("tcp", ":"+strconv.Itoa(port))
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			_ = c.SetDeadline(time.Now().Add(answerTimeout))
			fmt.Fprintln(c, line(c))
			c.Close()
		}
	}()
	return l, nil
}

// endpoint is a port at which a workload answers.
type endpoint struct {
	*workload
	port int
}

// serveAll makes workloads answer. Call stop to end that, after an error, too.
func serveAll(all ...endpoint) (stop func(), err error) {
	var closers []io.Closer
	stop = func() {
		for _, c := range closers {
			_ = c.Close() // a listener that is closed already
		}
	}
	for _, e := range all {
		c, err := e.serve(e.port)
		if err != nil {
			return stop, fmt.Errorf("workload %s: %w", e.Name, err)
		}
		closers = append(closers, c)
	}
	return stop, nil
}

// ask connects and returns the answer.
func (w *workload) ask(ctx context.Context, address string, port int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c, err := lab.DialIn(w.NS)(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		if ctx.Err() != nil || strings.Contains(err.Error(), "timeout") {
			return silence, nil
		}
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerTimeout))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return silence, nil
	}
	return strings.TrimSpace(line), nil
}

// askUntil repeats ask for some seconds until it returns want.
func (w *workload) askUntil(ctx context.Context, address string, port int, want string) (got string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_ = netlab.Until(ctx, "answer", func() (bool, error) { // what it was in the end is shown
		got, err = w.ask(ctx, address, port)
		return err == nil && got == want, nil
	})
	return got, err
}

// lastLine returns the last line of a program's output.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
