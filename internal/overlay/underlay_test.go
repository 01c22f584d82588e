package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
)

// signs is a datapath that knows only the ways, and prints them.
type signs struct {
	mu      sync.Mutex
	changed chan struct{}
	in      string
	all     map[string]bool // interfaces attached
	paths   map[netip.Addr]datapath.TunnelPath
	fails   error
}

func newSigns() *signs {
	return &signs{changed: make(chan struct{}, 1), all: map[string]bool{}, paths: map[netip.Addr]datapath.TunnelPath{}}
}

func (s *signs) change(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return s.fails
	}
	f()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

func (s *signs) AttachUnderlay(ifname string, locals ...netip.Addr) error {
	return s.change(func() { s.in, s.all[ifname] = fmt.Sprintf("%s %v", ifname, locals), true })
}

func (s *signs) DetachUnderlay(int) error { return nil }
func (s *signs) Underlays() []int         { return nil }

func (s *signs) SetTunnel(p datapath.TunnelPath) (datapath.Tunnel, error) {
	return datapath.Tunnel(p.Remote.As4()[3]), s.change(func() { s.paths[p.Remote] = p })
}

func (s *signs) RemoveTunnel(remote netip.Addr) error {
	return s.change(func() { delete(s.paths, remote) })
}

func (s *signs) Tunnels() map[datapath.Tunnel]datapath.TunnelPath {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[datapath.Tunnel]datapath.TunnelPath{}
	for _, p := range s.paths {
		all[datapath.Tunnel(p.Remote.As4()[3])] = p
	}
	return all
}

func (s *signs) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := []string{"in " + s.in}
	for _, remote := range slices.SortedFunc(maps.Keys(s.paths), netip.Addr.Compare) {
		p := s.paths[remote]
		lines = append(lines, fmt.Sprintf("%s to %s mtu %d", remote, net.HardwareAddr(p.DstMAC[:]), p.MTU))
	}
	return strings.Join(lines, "\n")
}

// await waits until the ways are as wanted.
func (s *signs) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for s.String() != want {
		select {
		case <-s.changed:
		case <-deadline:
			t.Fatalf("ways are\n%s\nwant\n%s", s, want)
		}
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestUnderlayFollowsTheKernel: over the fake and the kernel, the ways to other hosts follow links,
// routes, MTU and MACs.
func TestUnderlayFollowsTheKernel(t *testing.T) {
	t.Parallel()
	for name, two := range map[string]func(*testing.T) (hostnet.Net, hostnet.Net){"fake": fakeNets, "kernel": kernelNets} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, wire := two(t)
			underlayFollows(t, host, wire)
		})
	}
}

func fakeNets(*testing.T) (hostnet.Net, hostnet.Net) {
	host := hostnet.NewFake(nil)
	return host, hostnet.NewFake(host)
}

func kernelNets(t *testing.T) (hostnet.Net, hostnet.Net) {
	open := func() hostnet.Net {
		ns, err := hostnet.NewNamespace()
		if err != nil {
			t.Skipf("needs root: %v", err)
		}
		n, err := hostnet.NewLinux(ns)
		must(t, err)
		t.Cleanup(func() { n.Close(); ns.Close() })
		return n
	}
	return open(), open()
}

func underlayFollows(t *testing.T, host, wire hostnet.Net) {
	ip, prefix := netip.MustParseAddr, netip.MustParsePrefix
	plug := func() {
		_, err := host.AddLink(hostnet.LinkSpec{Name: "eth0", Kind: hostnet.Veth, Peer: "w0", PeerNet: wire})
		must(t, err, host.SetUp("eth0", true), host.AddAddress("eth0", prefix("198.51.100.1/24")))
		must(t, wire.SetUp("w0", true), wire.AddAddress("w0", prefix("198.51.100.2/24")), wire.AddAddress("w0", prefix("198.51.100.3/24")))
	}
	macOf := func() string {
		l, err := wire.Link("w0")
		must(t, err)
		return net.HardwareAddr(l.MAC[:]).String()
	}
	s := newSigns()
	s.paths[ip("198.51.100.9")] = datapath.TunnelPath{Remote: ip("198.51.100.9")} // of an earlier agent
	u := newUnderlay(host, s, ip("198.51.100.1"), func() {}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error)
	go func() { done <- u.Run(ctx, func() { close(ready) }) }()
	defer func() { cancel(); must(t, <-done) }()
	<-ready
	if !strings.Contains(s.String(), "198.51.100.9") {
		t.Error("a way of an earlier agent was taken away before it was known what is wanted")
	}

	u.Want(map[netip.Addr]bool{ip("198.51.100.2"): true, ip("203.0.113.7"): true})
	s.await(t, "in ")
	plug()
	in := "in eth0 [198.51.100.1]"
	s.await(t, in+"\n198.51.100.2 to "+macOf()+" mtu 1500")
	if _, ok := u.Tunnel(ip("203.0.113.7")); ok {
		t.Error("there is a tunnel to where no route leads")
	}
	if got, want := u.states(), []tunnelState{{ip("198.51.100.2"), 2, true}, {ip("203.0.113.7"), 0, false}}; !slices.Equal(got, want) {
		t.Errorf("states %v, want %v", got, want)
	}
	must(t, host.SetRoute(hostnet.Route{Dst: prefix("203.0.113.0/24"), Gateway: ip("198.51.100.3"), MTU: 1400}))
	both := in + "\n198.51.100.2 to %[1]s mtu 1500\n203.0.113.7 to %[1]s mtu 1400"
	s.await(t, fmt.Sprintf(both, macOf()))
	must(t, host.SetMTU("eth0", 1450))
	s.await(t, in+fmt.Sprintf("\n198.51.100.2 to %[1]s mtu 1450\n203.0.113.7 to %[1]s mtu 1400", macOf()))
	if number, ok := u.Tunnel(ip("203.0.113.7")); !ok || number != 7 {
		t.Errorf("tunnel %d, %v", number, ok)
	}
	if mtu, ok := u.fits(7); !ok || mtu != 1350 {
		t.Errorf("%d bytes fit, %v", mtu, ok)
	}

	must(t, host.DeleteLink("eth0")) // and another one comes, with other MACs
	plug()
	s.await(t, in+"\n198.51.100.2 to "+macOf()+" mtu 1500\n203.0.113.7 to "+macWas(s, "203.0.113.7")+" mtu 1400")
	u.Want(map[netip.Addr]bool{ip("198.51.100.2"): true})
	s.await(t, in+"\n198.51.100.2 to "+macOf()+" mtu 1500")
}

// macWas is the MAC of a way as it stands: a way that is lost is kept until there is a better one.
func macWas(s *signs, remote string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	mac := s.paths[netip.MustParseAddr(remote)].DstMAC
	return net.HardwareAddr(mac[:]).String()
}

// TestRoutedUnderlay: with the tunnel address on the loopback, tunnelled frames are taken in by all
// links that the routes to the other hosts lead by.
func TestRoutedUnderlay(t *testing.T) {
	t.Parallel()
	l := netlab.ForTest(t)
	host, fabric := l.MustNamespace(t, "host"), l.MustNamespace(t, "fabric")
	host.MustIP(t, "link set lo up", "addr add 198.51.100.1/32 dev lo")
	for i, up := range []string{"up1", "up2", "other"} {
		l.MustVeth(t, host, up, fabric, up)
		host.MustIP(t, fmt.Sprintf("addr add 192.0.2.%d/30 dev %s", 4*i+1, up))
		fabric.MustIP(t, fmt.Sprintf("addr add 192.0.2.%d/30 dev %s", 4*i+2, up))
	}
	host.MustIP(t, "route add 198.51.100.2/32 src 198.51.100.1 nexthop via 192.0.2.2 nexthop via 192.0.2.6")
	ns, err := hostnet.OpenNamespace(host.Path())
	must(t, err)
	t.Cleanup(func() { ns.Close() })
	n, err := hostnet.NewLinux(ns)
	must(t, err)
	t.Cleanup(func() { n.Close() })
	s := newSigns()
	u := newUnderlay(n, s, netip.MustParseAddr("198.51.100.1"), func() {}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- u.Run(ctx, func() {}) }()
	defer func() { cancel(); must(t, <-done) }()
	u.Want(map[netip.Addr]bool{netip.MustParseAddr("198.51.100.2"): true})
	deadline := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		got := slices.Sorted(maps.Keys(s.all))
		s.mu.Unlock()
		if slices.Equal(got, []string{"up1", "up2"}) {
			return
		}
		select {
		case <-s.changed:
		case <-deadline:
			t.Fatalf("frames are taken in by %v, want up1 and up2", got)
		}
	}
}
