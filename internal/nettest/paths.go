package nettest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// Addresses of the two ends of a measured path, and of the two hosts' underlay, from the documentation's ranges.
const (
	clientIP, serverIP   = "192.0.2.1", "192.0.2.2"
	clientMAC, serverMAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
	underlay1, underlay2 = "198.51.100.1", "198.51.100.2"
	workloadMTU          = 1450
)

// ends makes the two namespaces of a path, each with an eth0 whose other end is called port in its host's namespace.
func (l *Lab) ends(name string, host1, host2 *Namespace) (Path, error) {
	p := Path{Name: name, Address: netip.MustParseAddr(serverIP)}
	var errs []error
	for _, e := range []struct {
		end         **Namespace
		host        *Namespace
		port        string
		ip, mac     string
		peer, onMAC string
	}{
		{&p.Client, host1, "client", clientIP, clientMAC, serverIP, serverMAC},
		{&p.Server, host2, "server", serverIP, serverMAC, clientIP, clientMAC},
	} {
		ns, err := l.Namespace(e.port)
		if err != nil {
			return p, err
		}
		*e.end = ns
		errs = append(errs, l.Veth(e.host, e.port, ns, "eth0"), ns.IP(
			fmt.Sprintf("link set eth0 address %s mtu %d", e.mac, workloadMTU),
			fmt.Sprintf("addr add %s/24 dev eth0", e.ip),
			fmt.Sprintf("neigh replace %s lladdr %s nud permanent dev eth0", e.peer, e.onMAC)))
	}
	return p, errors.Join(errs...)
}

// directPath is one veth pair with no host between: nothing can be faster.
func directPath(l *Lab) (Path, io.Closer, error) {
	a, err := l.Namespace("client")
	if err != nil {
		return Path{}, nil, err
	}
	b, err := l.Namespace("server")
	if err != nil {
		return Path{}, nil, err
	}
	p := Path{Name: "direct veth", Client: a, Server: b, Address: netip.MustParseAddr(serverIP)}
	return p, l, errors.Join(l.Veth(a, "eth0", b, "eth0"),
		a.IP("link set eth0 mtu 1450", "addr add "+clientIP+"/24 dev eth0"),
		b.IP("link set eth0 mtu 1450", "addr add "+serverIP+"/24 dev eth0"))
}

// bridgePath is two workloads on a Linux bridge.
func bridgePath(l *Lab) (Path, io.Closer, error) {
	h, err := l.Namespace("host")
	if err != nil {
		return Path{}, nil, err
	}
	p, err := l.ends("Linux bridge", h, h)
	if err != nil {
		return p, nil, err
	}
	return p, l, errors.Join(h.bridge("client", "server"))
}

// bridge makes a bridge of the ports, without the detour through netfilter's hooks where the kernel offers one.
func (n *Namespace) bridge(ports ...string) error {
	lines := []string{"link add br0 type bridge stp_state 0", "link set br0 up"}
	for _, p := range ports {
		lines = append(lines, "link set "+p+" master br0 up")
	}
	if err := n.IP(lines...); err != nil {
		return err
	}
	for _, family := range []string{"iptables", "ip6tables", "arptables"} {
		_ = n.Sysctl("net/bridge/bridge-nf-call-"+family, "0") // absent without br_netfilter: then there is no detour
	}
	return nil
}

// hosts makes two host namespaces with a veth between as their underlay. segmented forces frames of the wire's size onto
// it, as a network card does; otherwise a veth carries frames of 64 KB and encapsulation looks free.
func (l *Lab) hosts(segmented bool) (h1, h2 *Namespace, err error) {
	if h1, err = l.Namespace("host1"); err != nil {
		return nil, nil, err
	}
	if h2, err = l.Namespace("host2"); err != nil {
		return nil, nil, err
	}
	err = errors.Join(l.Veth(h1, "under", h2, "under"),
		h1.IP("addr add "+underlay1+"/24 dev under"), h2.IP("addr add "+underlay2+"/24 dev under"))
	if err == nil && segmented {
		err = errors.Join(h1.segment("under"), h2.segment("under"))
	}
	return h1, h2, err
}

// segment makes a device send frames of its MTU only, and merge what it receives.
func (n *Namespace) segment(device string) error {
	_, err := n.Output(context.Background(), "ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "on")
	return err
}

// bridgeVXLANPath is what the kernel offers between hosts: a bridge with a vxlan device on each.
func bridgeVXLANPath(segmented bool) func(*Lab) (Path, io.Closer, error) {
	return func(l *Lab) (Path, io.Closer, error) {
		h1, h2, err := l.hosts(segmented)
		if err != nil {
			return Path{}, nil, err
		}
		p, err := l.ends("bridge + vxlan", h1, h2)
		if err != nil {
			return p, nil, err
		}
		const device = "link add vx0 type vxlan id 42 dstport 4789 local %s remote %s dev under"
		return p, l, errors.Join(
			h1.IP(fmt.Sprintf(device, underlay1, underlay2)), h1.bridge("client", "vx0"),
			h2.IP(fmt.Sprintf(device, underlay2, underlay1)), h2.bridge("server", "vx0"))
	}
}
