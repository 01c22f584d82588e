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

// answerTimeout is how long a workload waits for an answer before it reports that there is none.
const answerTimeout = 700 * time.Millisecond

// workload adds what the demo asks of a workload.
type workload struct{ *lab.Workload }

// plug makes a workload and plugs it in. Its interface on the host is device, or the one of Neutron's agents if empty.
func (d *demo) plug(name string, host *lab.Host, port *ports.Port, device string) (*workload, error) {
	w, err := d.lab.NewWorkload(name, host, port)
	if err != nil {
		return nil, err
	}
	w.Device = device
	return &workload{w}, d.lab.PlugIn(w)
}

// dhcp gets an address by a real DHCP client, and says what it got.
func (w *workload) dhcp(ctx context.Context, dir string) string {
	if err := w.askDHCP(ctx, dir); err != nil {
		return err.Error()
	}
	eth0, err := interfaceIn(w.NS, "eth0")
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s mtu %d", eth0.address(false), eth0.mtu)
}

// Answers as the table shows them.
const (
	answered = "answered"
	silence  = "no answer"
)

// ping sends two echo requests.
func (w *workload) ping(ctx context.Context, address string, more ...string) string {
	args := append([]string{"-n", "-c", "2", "-i", "0.2", "-W", "1"}, more...)
	if _, err := w.NS.Output(ctx, "ping", append(args, address)...); err != nil {
		return silence
	}
	return answered
}

// serve answers every TCP connection to a port with the workload's name.
func (w *workload) serve(port int) (io.Closer, error) {
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
			fmt.Fprintln(c, w.Name)
			c.Close()
		}
	}()
	return l, nil
}

// ask connects and says who answered.
func (w *workload) ask(ctx context.Context, address string, port int) string {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c, err := lab.DialIn(w.NS)(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		if ctx.Err() != nil || strings.Contains(err.Error(), "timeout") {
			return silence
		}
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerTimeout))
	name, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return silence
	}
	return strings.TrimSpace(name) + " answered"
}

// askUntil asks again until the answer is the wanted one, or for some seconds.
func (w *workload) askUntil(ctx context.Context, address string, port int, want string) (got string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_ = netlab.Until(ctx, "answer", func() (bool, error) { // what it was in the end is shown
		got = w.ask(ctx, address, port)
		return got == want, nil
	})
	return got
}

// lastLine is the last line of a program's output that says something.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
