package policy

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/task"
)

// namer answers each connection with a line: who it takes the client for.
type namer struct{}

func (namer) Serve(ctx context.Context, listeners []net.Listener, client func(netip.Addr) (string, netip.Addr, bool)) error {
	var all sync.WaitGroup
	for _, l := range listeners {
		defer context.AfterFunc(ctx, func() { l.Close() })()
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				port, source, ok := client(c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
				fmt.Fprintln(c, port, source, ok)
				c.Close()
			}
		})
	}
	all.Wait()
	return nil
}

// asks returns what the metadata service says to a connection from the namespace; empty: nothing.
func asks(ns *netlab.Namespace, to string, port int) string {
	c, err := dial(ns, to, port, short)
	if err != nil {
		return ""
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(short)) // another program may take it, and say nothing
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line)
}

// TestMetadata: the agent answers workloads that are Neutron's ports, and knows them by their
// source, as long as the settings name no other server; what is another program's it leaves alone.
func TestMetadata(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	l.options.Metadata = namer{}
	a, b := l.machine(1), l.machine(2)
	neutron := strings.Replace(a.key(), "/workload/o/w1/endpoint/e", "/workload/openstack/vm/endpoint/port-a", 1)
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open,
		neutron, a.endpoint("{}", `["open"]`), b.key(), b.endpoint("{}", `["open"]`))
	l.start()
	listen(t, b.Namespace, 80)
	l.mustReach(a.Namespace, b.v4, 80)
	at := func(w *machine) string { return asks(w.Namespace, "169.254.169.254", 80) }
	if got := asks(l.host, "127.0.0.1", 8775); got != "" {
		t.Errorf("without OpenStack's mode something is served: %q", got)
	}
	l.put("/calico/v1/config/ClusterType", "openstack")
	l.wait("metadata for a port", func() bool { return at(a) == "port-a 10.65.0.1 true" })
	l.wait("a workload that is no port to be a stranger", func() bool { return strings.HasSuffix(at(b), "10.65.0.2 false") })
	if got := asks(l.host, "127.0.0.1", 8775); !strings.HasSuffix(got, "127.0.0.1 false") {
		t.Errorf("a program of the host is told %q, want a stranger", got)
	}
	if got := asks(l.outside, "198.51.100.1", 8775); got != "" {
		t.Errorf("a machine outside is told %q", got)
	}

	moved := strings.Replace(b.endpoint("{}", `["open"]`), b.v4, a.v4, 1) // b has a's address now
	l.put(neutron, "", b.key(), moved)
	b.MustIP(t, "addr add "+a.v4+"/32 dev eth0", "addr del "+b.v4+"/32 dev eth0")
	l.wait("an address to be no port's when another workload has it", func() bool { return strings.HasSuffix(at(b), "10.65.0.1 false") })
	b.MustIP(t, "addr add "+b.v4+"/32 dev eth0", "addr del "+a.v4+"/32 dev eth0")
	l.put(neutron, a.endpoint("{}", `["open"]`), b.key(), b.endpoint("{}", `["open"]`))
	l.wait("metadata for the port again", func() bool { return at(a) == "port-a 10.65.0.1 true" })

	listen(t, l.host, 8776)
	l.put("/calico/v1/config/MetadataPort", "8776")
	l.wait("the server that the settings name", func() bool {
		c, err := dial(a.Namespace, "169.254.169.254", 80, short)
		if err != nil {
			return false
		}
		defer c.Close()
		return exchange(c, 10, short) == nil
	})
	l.wait("the agent to serve no more", func() bool { return asks(l.host, "127.0.0.1", 8775) == "" })

	var other net.Listener
	if err := l.host.Do(func() (err error) { other, err = net.Listen("tcp4", "127.0.0.1:8775"); return err }); err != nil {
		t.Fatal(err)
	}
	l.put("/calico/v1/config/MetadataPort", "")
	l.wait("the agent to tell of the other program", func() bool { return strings.Contains(l.log.String(), "another program serves metadata") })
	other.Close()
	l.wait("the agent to serve once the other has ended", func() bool { return at(a) == "port-a 10.65.0.1 true" })
}

// TestWatched: the agent's loop gives the sign of life that a watchdog asks for, while it has
// nothing to do.
func TestWatched(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	watchdog := new(task.Watchdog)
	l.options.Watchdog = watchdog
	l.put("/calico/v1/Ready", "true")
	l.start()
	watchdog.Hung() // asks
	l.wait("a sign of life", func() bool { return len(watchdog.Hung()) == 0 })
}
