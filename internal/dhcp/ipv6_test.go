package dhcp

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestIPv6 gives a machine its address by DHCPv6 and its router by an advertisement.
func TestIPv6(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(1)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(subnet("b", "2001:db8:65::/64", "2001:db8:65::1", ""))
	l.put(m.endpoint("10.65.0.7", "a", "2001:db8:65::7", "b"))
	l.start()
	l.serving(1)
	m.wantLease("10.65.0.7")
	if got, said := m.ask6(); got != "2001:db8:65::7" {
		t.Errorf("got %q:\n%s", got, said)
	}
	l.until("a default route", func() bool { return strings.Contains(m.output("ip", "-6", "route"), "default via fe80::") })
	if text := m.output("ip", "-6", "route"); strings.Contains(text, "2001:db8:65::/64") {
		t.Errorf("the prefix is on the link:\n%s", text)
	}
}

// TestTwoIPv6Networks has each machine learn its own network alone: one gets its address by DHCPv6,
// the other makes one.
func TestTwoIPv6Networks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	managed, own := l.machine(1), l.machine(2)
	l.put(subnet("b", "2001:db8:b::/64", "2001:db8:b::1", `, "network_id": "n1"`))
	l.put(subnet("c", "2001:db8:c::/64", "2001:db8:c::1", `, "network_id": "n2", "ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac"`))
	l.put(managed.endpoint("2001:db8:b::7", "b"))
	l.put(own.endpoint("2001:db8:c:0:65:ff:fe00:2", "c"))
	l.start()
	l.serving(1)
	l.until("a default route and an address", func() bool {
		return strings.Contains(own.output("ip", "-6", "route"), "default via fe80::") && strings.Contains(own.output("ip", "-6", "addr"), "2001:db8:c:0:65:ff:fe00:2/64")
	})
	l.until("a default route", func() bool { return strings.Contains(managed.output("ip", "-6", "route"), "default via fe80::") })
	if got, said := managed.ask6(); got != "2001:db8:b::7" {
		t.Errorf("got %q:\n%s", got, said)
	}
	for m, other := range map[*machine]string{managed: "2001:db8:c:", own: "2001:db8:b:"} {
		if text := m.output("ip", "-6", "addr") + m.output("ip", "-6", "route"); strings.Contains(text, other) {
			t.Errorf("machine %d knows the other's network:\n%s", m.n, text)
		}
	}
}

// TestAdvertisedOnceUsable has a machine that does not ask hear of its router as soon as the host
// has an address there to speak from, which takes a second or two on a new interface (RFC 4862
// §5.4): whether that or the endpoint came first.
func TestAdvertisedOnceUsable(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := l.host.Sysctl("net/ipv6/conf/default/accept_dad", "1"); err != nil {
		t.Fatal(err)
	}
	l.put(subnet("c", "2001:db8:c::/64", "2001:db8:c::1", `, "ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac"`))
	l.put((&machine{lab: l, n: 1}).endpoint("2001:db8:c:0:65:ff:fe00:1", "c"))
	l.start()
	l.serving(1)
	l.silent = true
	early := l.machine(1)
	late := l.machine(2)
	l.put(late.endpoint("2001:db8:c:0:65:ff:fe00:2", "c"))
	for _, m := range []*machine{early, late} {
		l.until("a default route and an address", func() bool {
			return strings.Contains(m.output("ip", "-6", "route"), "default via fe80::") && strings.Contains(m.output("ip", "-6", "addr"), fmt.Sprintf("2001:db8:c:0:65:ff:fe00:%d/64", m.n))
		})
	}
}

// TestIPv6Gateways serves subnets whose gateway is link-local, or the subnet's own address, the
// subnet-router anycast address.
func TestIPv6Gateways(t *testing.T) {
	t.Parallel()
	for gateway, device := range map[string]string{"fe80::1": "2001:db8:65::", "2001:db8:65::": "2001:db8:65::", "2001:db8:65::1": "2001:db8:65::1"} {
		t.Run(gateway, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			m := l.machine(1)
			l.put(subnet("b", "2001:db8:65::/64", gateway, `, "mtu": 1400`))
			l.put(m.endpoint("2001:db8:65::7", "b"))
			l.start()
			l.serving(1)
			if text := l.output("ip", "-br", "addr", "show", "dev", DeviceName); !strings.Contains(text, " "+device+"/64") || strings.Contains(text, " fe80::1/") {
				t.Errorf("the device has\n%s", text)
			}
			if got, said := m.ask6(); got != "2001:db8:65::7" || !strings.Contains(said, "name-servers "+device+";") {
				t.Errorf("got %q:\n%s", got, said)
			}
			l.until("a default route with the network's MTU", func() bool {
				mtu, err := m.ns.Output(t.Context(), "cat", "/proc/sys/net/ipv6/conf/eth0/mtu")
				return err == nil && strings.TrimSpace(mtu) == "1400" && strings.Contains(m.output("ip", "-6", "route"), "default via fe80::")
			})
			m.with("2001:db8:65::7")
			m.wantName(device, "vm1.example.org", "2001:db8:65::7") // the server that it was told of
		})
	}
}

// TestIPv6LeaseDuringChangeOver has an instance give a lease after the next one's leases were
// written: it is known to one after that, which comes by itself.
func TestIPv6LeaseDuringChangeOver(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	gate := l.holdable(t)
	m, other := l.machine(1), l.machine(2)
	l.put(subnet("b", "2001:db8:65::/64", "2001:db8:65::1", ""))
	l.put(subnet("c", "10.66.0.0/24", "10.66.0.1", ""))
	l.put(m.endpoint("2001:db8:65::7", "b"))
	l.start()
	l.serving(1)
	held := gate.hold(t)
	l.put(other.endpoint("10.66.0.8", "c"))
	l.until("the next instance to start", held)
	if got, said := m.ask6(); got != "2001:db8:65::7" {
		t.Fatalf("got %q:\n%s", got, said)
	}
	gate.release(t)
	l.serving(3)
	var args []string
	l.do(func() error {
		args = arguments(l.pid())
		return nil
	})
	if len(args) == 0 {
		t.Fatal("no dnsmasq serves")
	}
	raw, err := os.ReadFile(strings.TrimPrefix(args[0], leaseArgument))
	if err != nil || !strings.Contains(string(raw), " 2001:db8:65::7 ") {
		t.Errorf("it does not know the lease: %v\n%s", err, raw)
	}
}

// TestNoIPv6 serves IPv4 on a host without IPv6, says what is lacking, once, and serves IPv6 when
// there is some.
func TestNoIPv6(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, of := range []string{"all", "default"} {
		if err := l.host.Sysctl("net/ipv6/conf/"+of+"/disable_ipv6", "1"); err != nil {
			t.Fatal(err)
		}
	}
	m, six := l.machine(1), l.machine(2)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(subnet("b", "2001:db8:65::/64", "2001:db8:65::1", ""))
	l.put(m.endpoint("10.65.0.7", "a", "2001:db8:65::7", "b"))
	l.put(six.endpoint("2001:db8:65::8", "b"))
	l.start()
	l.serving(1)
	l.answering(1)
	m.wantLease("10.65.0.7")
	m.with("10.65.0.7")
	m.wantName("10.65.0.1", "vm1", "10.65.0.7")
	l.logged("which this host does not have", 1)
	for _, of := range []string{"all", "default"} {
		if err := l.host.Sysctl("net/ipv6/conf/"+of+"/disable_ipv6", "0"); err != nil {
			t.Fatal(err)
		}
	}
	third := l.machine(3)
	l.put(third.endpoint("10.65.0.9", "a")) // any change has it look
	l.serving(2)
	if got, said := six.ask6(); got != "2001:db8:65::8" {
		t.Errorf("got %q:\n%s", got, said)
	}
	if n := strings.Count(l.log.String(), "the host has no IPv6"); n != 1 {
		t.Errorf("said %d times that there is no IPv6", n)
	}
}

// TestNoInet6 runs where the kernel knows no IPv6 at all.
func TestNoInet6(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.env = []string{withoutInet6 + "=1"}
	m := l.machine(1)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(subnet("b", "2001:db8:65::/64", "2001:db8:65::1", ""))
	l.put(m.endpoint("10.65.0.7", "a", "2001:db8:65::7", "b"))
	l.start()
	l.logged("the kernel has none: address family not supported by protocol", 1)
	l.serving(1)
	l.answering(1)
	m.wantLease("10.65.0.7")
	m.with("10.65.0.7")
	m.wantName("10.65.0.1", "vm1", "10.65.0.7")
}

// withoutInet6 tells a process that is to be an agent to do without IPv6 sockets.
const withoutInet6 = "HEDDLE_TEST_WITHOUT_INET6"

// denyInet6 has the kernel answer this process and its children as one with ipv6.disable=1 does, to
// the point that a program sees: there are no sockets of IPv6.
func denyInet6() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // its first argument, where bytes are little-endian
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.AF_INET6, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
