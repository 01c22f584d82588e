package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"heddle/internal/nettest"
)

// patience is how long a workload waits for an answer before it says that there is none.
const patience = 700 * time.Millisecond

// workload is a machine: a namespace whose eth0 is the other end of a port's interface on a host.
type workload struct {
	name string
	ns   *nettest.Namespace
	host *labHost
	port *ports.Port
	at   string // its interface on the host; empty: as Neutron's clients and agents agree on
}

// plug makes the machine and plugs it in.
func (l *lab) plug(name string, host *labHost, port *ports.Port) (*workload, error) {
	w, err := l.machine(name, host, port)
	if err != nil {
		return nil, err
	}
	return w, l.plugIn(w)
}

// machine makes a machine for a port, with no interface yet.
func (l *lab) machine(name string, host *labHost, port *ports.Port) (*workload, error) {
	ns, err := l.spaces.Namespace(name)
	if err == nil {
		err = useAddressesAtOnce(ns)
	}
	return &workload{name: name, ns: ns, host: host, port: port}, err
}

// useAddressesAtOnce saves the two seconds in which interfaces that are new look whether somebody has their IPv6 address.
func useAddressesAtOnce(ns *nettest.Namespace) error {
	return ns.Sysctl("net/ipv6/conf/default/accept_dad", "0")
}

// plugIn gives the machine its interface, whose other end is the host's, as a hypervisor would.
func (l *lab) plugIn(w *workload) error {
	if err := l.spaces.Veth(w.ns, "eth0", w.host.ns, w.tap()); err != nil {
		return err
	}
	return w.ns.IP("link set eth0 down", "link set eth0 address "+w.port.MACAddress, "link set eth0 up") // the link-local address follows
}

// tap is the name of its interface on the host.
func (w *workload) tap() string {
	if w.at != "" {
		return w.at
	}
	return "tap" + w.port.ID[:11]
}

// address is the port's address of the family.
func (w *workload) address(six bool) string {
	for _, f := range w.port.FixedIPs {
		if a, err := netip.ParseAddr(f.IPAddress); err == nil && a.Is6() == six {
			return f.IPAddress
		}
	}
	return ""
}

// dhcp gets an address by a real DHCP client, and says what it got.
func (w *workload) dhcp(ctx context.Context, dir string) string {
	if err := w.askDHCP(ctx, dir); err != nil {
		return err.Error()
	}
	eth0, err := interfaceIn(w.ns, "eth0")
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
	if _, err := w.ns.Output(ctx, "ping", append(args, address)...); err != nil {
		return silence
	}
	return answered
}

// serve answers every TCP connection to a port with the workload's name.
func (w *workload) serve(port int) (io.Closer, error) {
	var l net.Listener
	err := w.ns.Do(func() (err error) {
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
			_ = c.SetDeadline(time.Now().Add(patience))
			fmt.Fprintln(c, w.name)
			c.Close()
		}
	}()
	return l, nil
}

// ask connects and says who answered.
func (w *workload) ask(ctx context.Context, address string, port int) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := dialIn(w.ns)(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		if ctx.Err() != nil || strings.Contains(err.Error(), "timeout") {
			return silence
		}
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	name, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return silence
	}
	return strings.TrimSpace(name) + " answered"
}

// lastLine is the last line of a program's output that says something.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
