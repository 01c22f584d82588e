package nft

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/calico"
	"heddle/internal/netlab"
	"heddle/internal/policy/calc"
	"heddle/internal/topology/packet"
)

// lab is a host between two workloads, an interface with a workload's prefix but no endpoint, and
// two outside networks. The outside host has 2001:db8:1::2 as well.
//
//	w1 10.65.0.1 fd65::1 ── cali1 ┐      ┌ eth0 198.51.100.1 2001:db8:1::1 ── net1 198.51.100.2
//	w2 10.65.0.2 fd65::2 ── cali2 ┤ host ┤
//	w9 10.65.0.9 ────────── cali9 ┘      └ eth1 203.0.113.1 ── net2 203.0.113.2
type lab struct {
	t      *testing.T
	host   *netlab.Namespace
	spaces map[string]*netlab.Namespace // by name
	links  map[string]*link             // by name
	kernel *Kernel
	table  *Table
	calc   *calc.Calc
	around Surroundings
	packet uint16 // of how many were sent
}

// link is a way into the host, from a namespace of its own.
type link struct {
	socket     int
	index      int
	host, mine packet.MAC
}

const (
	labHost = "node1"
	// The traffic classes that mark a lab's own packets, and those that follow them.
	probeClass    = 0xb4
	sentinelClass = 0xb8
)

// usual are the settings that tests begin with.
func usual() Settings {
	return Settings{WorkloadPrefixes: []string{"cali"}, ToHost: ToHostDrop, OnDrop: Drop,
		FailsafeInbound:  []Failsafe{{Protocol: calico.ProtocolTCP, Port: 22}, {Protocol: calico.ProtocolTCP, Port: 23, Net: netip.MustParsePrefix("198.51.100.0/28")}},
		FailsafeOutbound: []Failsafe{{Protocol: calico.ProtocolTCP, Port: 2379}}, MostCounted: 10}
}

func newLab(t *testing.T) *lab {
	t.Helper()
	spaces := netlab.ForTest(t)
	l := &lab{t: t, spaces: map[string]*netlab.Namespace{}, links: map[string]*link{}, calc: calc.New(labHost)}
	for _, name := range []string{"host", "w1", "w2", "w9", "net1", "net2"} {
		l.spaces[name] = spaces.MustNamespace(t, name)
	}
	l.host = l.spaces["host"]
	l.kernel = openIn(t, l.host)
	for _, w := range []struct{ space, device, mac, own4, own6, gate4, gate6 string }{
		{"w1", "cali1", "02:00:00:00:01:01", "10.65.0.1", "fd65::1", "", ""},
		{"w2", "cali2", "02:00:00:00:02:01", "10.65.0.2", "fd65::2", "", ""},
		{"w9", "cali9", "02:00:00:00:09:01", "10.65.0.9", "fd65::9", "", ""},
		{"net1", "eth0", "02:00:00:00:11:01", "198.51.100.2", "2001:db8:1::2", "198.51.100.1", "2001:db8:1::1"},
		{"net2", "eth1", "02:00:00:00:12:01", "203.0.113.2", "2001:db8:2::2", "203.0.113.1", "2001:db8:2::1"},
	} {
		l.join(w.space, w.device, w.mac)
		in, host := l.spaces[w.space], []string{}
		if w.gate4 != "" {
			in.MustIP(t, "addr add "+w.own4+"/24 dev eth0", "addr add "+w.own6+"/64 dev eth0 nodad",
				"route add default via "+w.gate4, "route add ::/0 via "+w.gate6)
			host = append(host, fmt.Sprintf("addr add %s/24 dev %s", w.gate4, w.device), fmt.Sprintf("addr add %s/64 dev %s nodad", w.gate6, w.device))
		} else {
			in.MustIP(t, "addr add "+w.own4+"/32 dev eth0", "addr add "+w.own6+"/128 dev eth0 nodad",
				"route add 169.254.1.1 dev eth0", "route add default via 169.254.1.1",
				"neigh add 169.254.1.1 lladdr "+l.links[w.space].host.String()+" dev eth0",
				"neigh add fe80::1 lladdr "+l.links[w.space].host.String()+" dev eth0", "route add ::/0 via fe80::1 dev eth0")
			host = append(host, fmt.Sprintf("addr add fe80::1/64 dev %s nodad", w.device), fmt.Sprintf("route add %s/32 dev %s", w.own4, w.device), fmt.Sprintf("route add %s/128 dev %s", w.own6, w.device))
		}
		for _, a := range []string{w.own4, w.own6} {
			host = append(host, fmt.Sprintf("neigh replace %s lladdr %s dev %s", a, w.mac, w.device))
		}
		l.host.MustIP(t, host...)
	}
	l.host.MustIP(t, "route add default via 198.51.100.2")
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv4/conf/all/route_localnet"} {
		must(t, l.host.Sysctl(name, "1"))
	}
	l.awaitAddresses("2001:db8:1::1", "2001:db8:2::1")
	l.observe()
	return l
}

// awaitAddresses waits until packets to addresses are the host's own: the kernel does that some
// time after it was asked, and forwards them until then.
func (l *lab) awaitAddresses(all ...string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 10*time.Second)
	defer cancel()
	must(l.t, netlab.Until(ctx, "the host's addresses", func() (bool, error) {
		local, err := l.host.Output(ctx, "ip", "-6", "route", "show", "table", "local")
		missing := func(a string) bool { return !strings.Contains(string(local), "local "+a+" ") }
		return !slices.ContainsFunc(all, missing), err
	}))
}

// join connects a namespace to the host by a pair of interfaces.
func (l *lab) join(space, device, mac string) {
	l.t.Helper()
	ns := l.spaces[space]
	for _, s := range []*netlab.Namespace{ns, l.host} {
		must(l.t, s.Sysctl("net/ipv6/conf/default/accept_dad", "0"))
		must(l.t, s.Sysctl("net/ipv6/conf/default/router_solicitations", "0"))
	}
	k := &link{}
	var err error
	k.mine, err = packet.ParseMAC(mac)
	must(l.t, err)
	k.host = k.mine
	k.host[5]++ // the host's end
	ns.MustIP(l.t, fmt.Sprintf("link add eth0 address %s type veth peer name %s address %s netns %s", mac, device, k.host, l.host.Name), "link set eth0 up")
	l.host.MustIP(l.t, "link set "+device+" up")
	must(l.t, ns.Do(func() (err error) {
		if k.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		device, err := net.InterfaceByName("eth0")
		if err == nil {
			k.index = device.Index
		}
		return err
	}))
	l.t.Cleanup(func() { unix.Close(k.socket) })
	l.links[space] = k
}

// observe counts the lab's packets as they come, and as they leave what our table has to say:
// another program's rules see them just so.
func (l *lab) observe() {
	l.t.Helper()
	count := func(name string) string {
		return fmt.Sprintf("ip dscp %[2]d counter name %[1]s\nip6 dscp %[2]d counter name %[1]s", name, probeClass>>2)
	}
	rules := fmt.Sprintf(`table inet observer {
		counter sentinel { }
		counter in { }
		counter forwarded { }
		counter sent { }
		chain first { type filter hook prerouting priority -500; ip dscp %[1]d counter name sentinel drop; ip6 dscp %[1]d counter name sentinel drop; }
		chain input { type filter hook input priority 1000; %[2]s
		}
		chain forward { type filter hook forward priority 1000; %[3]s
		}
		chain output { type filter hook output priority 1000; %[4]s
		}
	}
	`, sentinelClass>>2, count("in"), count("forwarded"), count("sent"))
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must(l.t, l.host.Start(cmd))
	if err := cmd.Wait(); err != nil {
		l.t.Fatalf("nft: %v: %s", err, &out)
	}
}

// store has the values in the datastore by path.
type store map[string]string

// apply makes what the store holds so; an empty value deletes.
func (l *lab) apply(s store) {
	l.t.Helper()
	for path, value := range s {
		key, ok := calico.ParseKey(path)
		if !ok {
			l.t.Fatalf("%s is no key", path)
		}
		if value == "" {
			l.calc.Update(key, nil)
			continue
		}
		object, err := calico.Decode(key, []byte(value))
		if err != nil {
			l.t.Fatalf("%s: %v", path, err)
		}
		l.calc.Update(key, object)
	}
	l.table.Update(l.calc.Changes())
	l.commit()
}

func (l *lab) commit() {
	l.t.Helper()
	if err := l.table.Commit(l.t.Context()); err != nil {
		l.t.Fatalf("commit: %v\n%s", err, l.table)
	}
}

// start makes the lab's table with settings.
func (l *lab) start(s Settings) {
	l.t.Helper()
	table, err := New(l.kernel, s, nil)
	must(l.t, err)
	l.table = table
	l.commit()
}

// The paths of objects.
func workloadAt(name string) string {
	return "/calico/v1/host/node1/workload/lab/" + name + "/endpoint/e"
}
func hostAt(name string) string     { return "/calico/v1/host/node1/endpoint/" + name }
func policyAt(name string) string   { return "/calico/v1/policy/tier/default/policy/" + name }
func rulesAt(profile string) string { return "/calico/v1/policy/profile/" + profile + "/rules" }

// workload is the JSON of the lab's workload n; more is put in front of the rest.
func workload(n int, more string) string {
	return fmt.Sprintf(`{%s"state": "active", "name": "cali%[2]d", "mac": "02:00:00:00:%02[2]d:01", "profile_ids": ["p"], "labels": {"w": "%[2]d"},
		"ipv4_nets": ["10.65.0.%[2]d/32"], "ipv6_nets": ["fd65::%[2]d/128"]}`, more, n)
}

// allowAll are rules that allow everything.
const allowAll = `{"inbound_rules": [{}], "outbound_rules": [{}]}`

// probe is one packet and its expected end: in, forwarded, sent (by this host), or a refusal.
type probe struct {
	from     string // w1, w2, w9, net1, net2, host
	src, dst string
	proto    uint8
	sport    uint16
	dport    uint16 // of ICMP: type and code
	mac      string // source, if not the interface's own
	flags    uint8  // of TCP, if not a SYN
	want     string
}

func (p probe) String() string {
	return fmt.Sprintf("%s: %s:%d → %s:%d protocol %d", p.from, p.src, p.sport, p.dst, p.dport, p.proto)
}

// Short forms of probes.
func tcp(from, src, dst string, dport uint16, want string) probe {
	return probe{from: from, src: src, dst: dst, proto: 6, sport: 40000, dport: dport, want: want}
}

func udp(from, src, dst string, sport, dport uint16, want string) probe {
	return probe{from: from, src: src, dst: dst, proto: 17, sport: sport, dport: dport, want: want}
}

func icmp(from, src, dst string, kind, code uint8, want string) probe {
	p := probe{from: from, src: src, dst: dst, proto: 1, dport: uint16(kind)<<8 | uint16(code), want: want}
	if strings.Contains(src, ":") {
		p.proto = 58
	}
	return p
}

// body is the packet from its IP header on.
func (p probe) body(class uint8, id uint16) []byte {
	src, dst := netip.MustParseAddr(p.src), netip.MustParseAddr(p.dst)
	var up []byte
	flags := p.flags
	if flags == 0 {
		flags = packet.TCPSyn
	}
	// Every probe begins a connection of its own, unless it names both ports.
	switch p.proto {
	case 6:
		up = packet.TCP{SrcPort: p.sport, DstPort: p.dport, Seq: uint32(id) << 16, Flags: flags, Window: 1000}.Append(nil, src, dst, nil)
	case 17:
		up = packet.UDP{SrcPort: p.sport, DstPort: p.dport}.Append(nil, src, dst, []byte("probe"))
	case 1:
		up = packet.ICMP{Type: uint8(p.dport >> 8), Code: uint8(p.dport), Rest: packet.EchoRest(id, 1)}.Append(nil, []byte("probe"))
	case 58:
		up = packet.ICMP{Type: uint8(p.dport >> 8), Code: uint8(p.dport), Rest: packet.EchoRest(id, 1)}.AppendV6(nil, src, dst, make([]byte, 16))
	case 132:
		up = sctpInit(p.sport, p.dport)
	default:
		up = []byte("probe of some protocol")
	}
	if src.Is4() {
		return append(packet.IPv4{TOS: class, TTL: 64, Proto: p.proto, ID: id, Src: src, Dst: dst}.Append(nil, len(up)), up...)
	}
	hops := uint8(64)
	if p.proto == 58 && p.dport>>8 >= 130 {
		hops = 255
	}
	return append(packet.IPv6{Class: class, HopLimit: hops, Next: p.proto, Src: src, Dst: dst}.Append(nil, len(up)), up...)
}

// sctpInit begins an SCTP association: connection tracking looks at it closely (RFC 9260 §3.3.2).
func sctpInit(sport, dport uint16) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, sport), dport)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // verification tag, checksum
	b = append(b, 1, 0, 0, 20, 0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 9)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// send sends a probe and says what became of it.
func (l *lab) send(p probe) string {
	l.t.Helper()
	l.packet++
	if (p.proto == 6 || p.proto == 17) && p.sport == 40000 {
		p.sport += l.packet
	}
	before := l.counts()
	if p.from == "host" {
		l.sendFromHost(p)
	} else {
		l.sendFrom(l.links[p.from], p)
		l.await("sentinel", before)
	}
	after := l.counts()
	fates := []string{"in", "forwarded", "sent"}
	if p.from == "host" {
		fates = []string{"sent"} // the rest is answers
	}
	for _, name := range fates {
		if after[name].Packets > before[name].Packets {
			return name
		}
	}
	// Other packets, such as the kernels' own, may have been refused as well.
	var reasons []string
	for name, c := range after {
		if reason, ok := strings.CutPrefix(name, "refused-"); ok && c.Packets > before[name].Packets {
			if reason == p.want {
				return reason
			}
			reasons = append(reasons, reason)
		}
	}
	return "lost " + strings.Join(reasons, " ")
}

func (l *lab) counts() map[string]Counter {
	l.t.Helper()
	all, err := l.kernel.countersOf(l.t.Context(), "observer")
	must(l.t, err)
	ours, err := l.kernel.counters(l.t.Context())
	must(l.t, err)
	for name, c := range ours {
		all[name] = c
	}
	return all
}

func (l *lab) await(name string, before map[string]Counter) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 10*time.Second)
	defer cancel()
	must(l.t, netlab.Until(ctx, "the packet behind the probe", func() (bool, error) {
		now, err := l.kernel.countersOf(ctx, "observer")
		return now[name].Packets > before[name].Packets, err
	}))
}

// sendFrom sends a probe and a packet that follows it, on one core, so that they arrive in order:
// when the second is counted, the first has met its fate.
func (l *lab) sendFrom(k *link, p probe) {
	l.t.Helper()
	mac := k.mine
	if p.mac != "" {
		var err error
		mac, err = packet.ParseMAC(p.mac)
		must(l.t, err)
	}
	kind := packet.TypeIPv4
	if strings.Contains(p.src, ":") {
		kind = packet.TypeIPv6
	}
	head := packet.Ethernet{Dst: k.host, Src: mac, Type: kind}
	must(l.t, onOneCore(func() error {
		for _, class := range []uint8{probeClass, sentinelClass} {
			frame := append(head.Append(nil), p.body(class, l.packet)...)
			if err := unix.Sendto(k.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: k.index}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// onOneCore runs f on a thread that stays on the first core.
func onOneCore(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		var core unix.CPUSet
		core.Set(0)
		if err := unix.SchedSetaffinity(0, &core); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

func (l *lab) sendFromHost(p probe) {
	l.t.Helper()
	must(l.t, l.host.Do(func() error {
		dst, family := netip.MustParseAddr(p.dst), unix.AF_INET
		var to unix.Sockaddr = &unix.SockaddrInet4{}
		if dst.Is4() {
			to = &unix.SockaddrInet4{Addr: dst.As4()}
		} else {
			family, to = unix.AF_INET6, &unix.SockaddrInet6{Addr: dst.As16()}
		}
		s, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		err = unix.Sendto(s, p.body(probeClass, l.packet), 0, to)
		if err == unix.EPERM {
			return nil // that is how a refusal is told
		}
		return err
	}))
}

// expect sends probes and compares.
func (l *lab) expect(probes ...probe) {
	l.t.Helper()
	for _, p := range probes {
		if got := l.send(p); got != p.want {
			l.t.Errorf("%s: %s, want %s", p, got, p.want)
		}
	}
	if l.t.Failed() {
		out, _ := l.host.Output(context.Background(), "nft", "list", "table", "inet", tableName)
		l.t.Logf("%s", out)
	}
}

// sendFrames sends frames into a link, on one core.
func (l *lab) sendFrames(k *link, frames ...[]byte) {
	l.t.Helper()
	must(l.t, onOneCore(func() error {
		for _, f := range frames {
			if err := unix.Sendto(k.socket, f, 0, &unix.SockaddrLinklayer{Ifindex: k.index}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// sortedBlocks puts the blocks of a listing, and the elements in them, in order: the kernel has
// none.
func sortedBlocks(listing string) string {
	var blocks []string
	for b := range strings.SplitSeq(listing, "\n\n") {
		words := strings.Fields(b)
		if i := slices.Index(words, "elements"); i >= 0 {
			all := strings.Split(strings.Join(words[i+3:len(words)-2], " "), ", ")
			slices.Sort(all)
			b = strings.Join(words[:i], " ") + " " + strings.Join(all, "; ")
		}
		blocks = append(blocks, strings.Trim(b, "\n{}"))
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "\n\n")
}

// everything asks for each kind of thing that a ruleset can hold.
func (l *lab) everything() {
	l.t.Helper()
	l.around = Surroundings{
		HostInterfaces: map[string]calico.HostEndpointKey{"eth0": {Host: labHost, Endpoint: "eth0"}, "eth1": {Host: labHost, Endpoint: "eth1"}},
		Exempt:         []string{"cali9", "veth7"},
		Pools:          []Pool{{netip.MustParsePrefix("10.65.0.0/16"), true}, {netip.MustParsePrefix("192.0.2.0/24"), false}, {netip.MustParsePrefix("fd65::/64"), true}},
		IPIP:           &IPIP{Device: "tunl0", Address: netip.MustParseAddr("10.65.9.9"), Peers: []netip.Addr{netip.MustParseAddr(net1)}},
		VXLAN:          &VXLAN{Port: 4789, Peers: []netip.Addr{netip.MustParseAddr(net1), netip.MustParseAddr(net1v6)}},
	}
	l.table.Surround(l.around)
	l.apply(both())
	l.apply(store{
		workloadAt("w1"): workload(1, `"ipv4_nat": [{"int_ip": "10.65.0.1", "ext_ip": "192.0.2.20"}], "ipv6_nat": [{"int_ip": "fd65::1", "ext_ip": "2001:db8:f::1"}], `),
		workloadAt("w3"): inactiveWorkload(3),
		hostAt("eth0"):   `{"name": "eth0", "labels": {"h": "0"}, "profile_ids": ["gone"]}`,
		hostAt("eth1"):   `{"name": "eth1"}`,
		policyAt("u"):    `{"selector": "h == \"0\"", "untracked": true, "inbound_rules": [{}, {"action": "next-tier"}], "outbound_rules": []}`,
		policyAt("d"):    `{"selector": "h == \"0\"", "pre_dnat": true, "inbound_rules": [{"protocol": "tcp"}]}`,
		policyAt("r"): `{"selector": "has(w)", "inbound_rules": [
			{"protocol": "tcp", "dst_ports": [80]}, {"protocol": "udp", "dst_ports": ["8000:8010"]}, {"protocol": "tcp", "!src_ports": [1, "2:9"], "ip_version": 4},
			{"src_nets": ["10.0.0.0/8", "192.0.2.0/25", "192.0.2.200/32", "fd00::/8"], "action": "deny"}, {"!dst_net": "10.0.0.0/9"}, {"src_net": "10.65.0.9"},
			{"src_selector": "w == \"1\"", "!dst_tag": "t"}, {"protocol": "icmp", "icmp_type": 8, "icmp_code": 0}, {"protocol": "icmpv6", "!icmp_type": 128},
			{"protocol": "icmp", "!icmp_type": 3, "!icmp_code": 4}, {"protocol": "icmp", "ip_version": 4}, {"protocol": 47, "ip_version": 6}, {"!protocol": 47},
			{"action": "log", "log_prefix": "seen"}, {"action": "log"}, {"action": "next-tier"}], "outbound_rules": [{}]}`,
		"/calico/v1/policy/tier/a-name%20with%2feverything/metadata": "",
		policyAt("odd%2fname%25"):                                    `{"selector": "has(w)", "inbound_rules": [], "outbound_rules": []}`,
	})
}
