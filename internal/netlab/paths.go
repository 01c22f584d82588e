package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Addresses of both ends of a measured path, and of both hosts' underlay, for documentation.
const (
	clientIP, serverIP   = "192.0.2.1", "192.0.2.2"
	clientMAC, serverMAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
	underlay1, underlay2 = "198.51.100.1", "198.51.100.2"
	workloadMTU          = 1450
	// gatewayIP is the next hop of routed workloads; their host has it on its loopback interface.
	gatewayIP = "169.254.1.1"
)

// pathEnd describes one end of a path: a namespace called port, with an interface eth0.
type pathEnd struct{ port, ip, mac string }

var (
	clientEnd = pathEnd{"client", clientIP, clientMAC}
	serverEnd = pathEnd{"server", serverIP, serverMAC}
)

// join makes the namespace of an end, joined to an interface port in its host's namespace, and runs
// ip commands in it.
func (l *Lab) join(e pathEnd, host *Namespace, lines ...string) (*Namespace, error) {
	ns, err := l.Namespace(e.port)
	if err != nil {
		return nil, err
	}
	return ns, errors.Join(l.Veth(host, e.port, ns, "eth0"), ns.IP(lines...))
}

// ends makes the two ends of a path, with each other's MAC addresses.
func (l *Lab) ends(name string, host1, host2 *Namespace) (p Path, err error) {
	lines := func(own, peer pathEnd) []string {
		return []string{
			fmt.Sprintf("link set eth0 address %s mtu %d", own.mac, workloadMTU),
			fmt.Sprintf("addr add %s/24 dev eth0", own.ip),
			fmt.Sprintf("neigh replace %s lladdr %s nud permanent dev eth0", peer.ip, peer.mac)}
	}
	p = Path{Name: name, Address: netip.MustParseAddr(serverIP)}
	if p.Client, err = l.join(clientEnd, host1, lines(clientEnd, serverEnd)...); err != nil {
		return p, err
	}
	p.Server, err = l.join(serverEnd, host2, lines(serverEnd, clientEnd)...)
	return p, err
}

// DirectPath is one veth pair with no host between: nothing can be faster. All paths here use fixed
// names of namespaces, so a lab has room for one.
func DirectPath(l *Lab) (Path, error) {
	a, err := l.Namespace("client")
	if err != nil {
		return Path{}, err
	}
	b, err := l.join(serverEnd, a, "link set eth0 mtu 1450", "addr add "+serverIP+"/24 dev eth0")
	p := Path{Name: "direct veth", Client: a, Server: b, Address: netip.MustParseAddr(serverIP)}
	if err != nil {
		return p, err
	}
	return p, a.IP("link set server down", "link set server name eth0 mtu 1450 up", "addr add "+clientIP+"/24 dev eth0")
}

// BridgePath joins two workloads by a Linux bridge.
func BridgePath(l *Lab) (Path, error) {
	h, err := l.Namespace("host")
	if err != nil {
		return Path{}, err
	}
	p, err := l.ends("Linux bridge", h, h)
	if err != nil {
		return p, err
	}
	return p, h.bridge("client", "server")
}

// bridge makes a bridge of the ports, without netfilter's hooks where the kernel allows that.
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

// RoutedPath joins two workloads by a host that routes, with a stateful nftables ruleset: a
// separate address for each interface, verdict maps from interfaces to chains, and the ten rules of
// a group for traffic to a workload, of which the last two match.
func RoutedPath(l *Lab) (Path, error) { return routed(l, "routed + nftables", routedRules) }

// TranslatedPath joins two workloads by a host that routes, tracks connections and translates the
// source address, by nftables.
func TranslatedPath(l *Lab) (Path, error) {
	return routed(l, "routed + nftables NAT", translatedRules)
}

func routed(l *Lab, name, rules string) (Path, error) {
	h, err := l.Namespace("host")
	if err != nil {
		return Path{}, err
	}
	p := Path{Name: name, Address: netip.MustParseAddr(serverIP), host: h}
	join := func(e pathEnd) (*Namespace, error) {
		ns, err := l.join(e, h, fmt.Sprintf("link set eth0 mtu %d", workloadMTU), "addr add "+e.ip+"/32 dev eth0",
			"route add "+gatewayIP+" dev eth0 scope link", "route add default via "+gatewayIP+" dev eth0")
		if err != nil {
			return nil, err
		}
		return ns, h.IP("route add " + e.ip + "/32 dev " + e.port)
	}
	if p.Client, err = join(clientEnd); err != nil {
		return p, err
	}
	if p.Server, err = join(serverEnd); err != nil {
		return p, err
	}
	return p, errors.Join(h.IP("addr add "+gatewayIP+"/32 dev lo"), h.Sysctl("net/ipv4/ip_forward", "1"), h.nftables(rules))
}

// routedRules are RoutedPath's.
const routedRules = `table inet filter {
	map from { type ifname : verdict; elements = { "client" : jump egress, "server" : jump egress }; }
	map to { type ifname : verdict; elements = { "client" : goto ingress, "server" : goto ingress }; }
	chain forward {
		type filter hook forward priority 0; policy drop;
		ct state established,related accept
		ct state invalid drop
		iifname vmap @from
		oifname vmap @to
	}
	chain egress {
		meta l4proto { tcp, udp } return
		drop
	}
	chain ingress {
		tcp dport 20000 accept
		tcp dport 20001 accept
		tcp dport 20002 accept
		tcp dport 20003 accept
		tcp dport 20004 accept
		tcp dport 20005 accept
		tcp dport 20006 accept
		tcp dport 20007 accept
		meta l4proto tcp accept
		meta l4proto udp accept
		drop
	}
}
`

// translatedRules are TranslatedPath's.
const translatedRules = `table ip nat {
	chain postrouting {
		type nat hook postrouting priority 100; policy accept;
		iifname "client" oifname "server" snat to 198.51.100.9
	}
}
`

// nftables loads a ruleset.
func (n *Namespace) nftables(rules string) error {
	var out strings.Builder
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(rules), &out, &out
	err := n.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("in namespace %s: load nftables rules: %w: %s", n.Name, err, strings.TrimSpace(out.String()))
	}
	return nil
}

// Of balanced paths.
const (
	vip          = "192.0.2.80"
	secondServer = "192.0.2.81" // another address of the server
	balancedPort = 8080
)

// BalancedPath joins two workloads by a host that sends connections to an address of its own to two
// addresses of the server at random, by nftables.
func BalancedPath(l *Lab) (Path, error) {
	p, err := routed(l, "routed + nftables numgen DNAT", balancedRules)
	return p.balanced(err)
}

// ProxiedPath joins two workloads by a host that proxies connections to an address of its own to
// two addresses of the server, by haproxy; stop ends that.
func ProxiedPath(l *Lab) (p Path, stop func(), err error) {
	if p, err = routed(l, "haproxy, TCP mode", ""); err != nil {
		return p, nil, err
	}
	if p, err = p.balanced(p.host.IP("addr add " + vip + "/32 dev lo")); err != nil {
		return p, nil, err
	}
	config := filepath.Join(os.TempDir(), p.host.Name+".haproxy.cfg")
	if err := os.WriteFile(config, []byte(proxyConfig), 0o600); err != nil {
		return p, nil, err
	}
	cmd := exec.Command("haproxy", "-db", "-f", config)
	if err := p.host.Start(cmd); err != nil {
		return p, nil, errors.Join(err, os.Remove(config))
	}
	return p, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		_ = os.Remove(config)
	}, nil
}

// balanced gives the server of a path its second address, and the path a balanced one to connect
// to.
func (p Path) balanced(err error) (Path, error) {
	if err != nil {
		return p, err
	}
	p.Address, p.Dialed, p.Port = netip.IPv4Unspecified(), netip.MustParseAddr(vip), balancedPort
	return p, errors.Join(p.Server.IP("addr add "+secondServer+"/32 dev eth0"), p.host.IP("route add "+secondServer+"/32 dev "+serverEnd.port))
}

// balancedRules are BalancedPath's.
const balancedRules = `table ip nat {
	chain prerouting {
		type nat hook prerouting priority -100; policy accept;
		ip daddr ` + vip + ` dnat to numgen random mod 2 map { 0 : ` + serverIP + `, 1 : ` + secondServer + ` }
	}
}
`

// proxyConfig is ProxiedPath's.
const proxyConfig = `defaults
	mode tcp
	timeout connect 5s
	timeout client 60s
	timeout server 60s
listen vip
	bind ` + vip + `:8080
	server one ` + serverIP + `:8080
	server two ` + secondServer + `:8080
`

// VXLANPath joins two workloads on two hosts by the kernel's means: a bridge with a vxlan device on
// each, and a veth between the hosts as their underlay. segmented forces frames of the wire's size
// onto it, as a network card does; otherwise a veth carries frames of 64 KB and encapsulation looks
// free.
func VXLANPath(l *Lab, segmented bool) (Path, error) {
	h1, err := l.Namespace("host1")
	if err != nil {
		return Path{}, err
	}
	h2, err := l.Namespace("host2")
	if err != nil {
		return Path{}, err
	}
	p, err := l.ends("bridge + vxlan", h1, h2)
	if err != nil {
		return p, err
	}
	const device = "link add vx0 type vxlan id 42 dstport 4789 local %s remote %s dev under"
	for _, step := range []func() error{
		func() error { return l.Veth(h1, "under", h2, "under") },
		func() error {
			return h1.IP("addr add "+underlay1+"/24 dev under", fmt.Sprintf(device, underlay1, underlay2))
		},
		func() error {
			return h2.IP("addr add "+underlay2+"/24 dev under", fmt.Sprintf(device, underlay2, underlay1))
		},
		func() error { return errors.Join(h1.bridge("client", "vx0"), h2.bridge("server", "vx0")) },
	} {
		if err := step(); err != nil {
			return p, err
		}
	}
	if segmented {
		return p, errors.Join(h1.Segment("under"), h2.Segment("under"))
	}
	return p, nil
}

// VTEPPath joins a workload to a vxlan device of another namespace by the kernel's means: a bridge
// with a vxlan device on the workload's host.
func VTEPPath(l *Lab) (p Path, err error) {
	p = Path{Name: "bridge + vxlan to a peer", Address: netip.MustParseAddr("10.0.0.2")}
	host, err := l.Namespace("host")
	if err != nil {
		return p, err
	}
	if p.Server, err = l.Namespace("peer"); err != nil {
		return p, err
	}
	if p.Client, err = l.join(pathEnd{port: "client"}, host, "link set eth0 mtu 1400", "addr add 10.0.0.1/24 dev eth0"); err != nil {
		return p, err
	}
	const device = "link add vx0 type vxlan id 77 dstport 4789 local %s remote %s dev under noudpcsum"
	for _, step := range []func() error{
		func() error { return l.Veth(host, "under", p.Server, "under") },
		func() error {
			return host.IP("addr add "+underlay1+"/24 dev under", fmt.Sprintf(device, underlay1, underlay2))
		},
		func() error { return host.bridge("client", "vx0") },
		func() error {
			return p.Server.IP("addr add "+underlay2+"/24 dev under", fmt.Sprintf(device, underlay2, underlay1),
				"link set vx0 mtu 1400 up", "addr add 10.0.0.2/24 dev vx0")
		},
	} {
		if err := step(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Segment has a device send frames of its MTU only, and merge those that it receives.
func (n *Namespace) Segment(device string) error {
	_, err := n.Output(context.Background(), "ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "on")
	return err
}
