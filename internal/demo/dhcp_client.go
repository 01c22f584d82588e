package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// leaseScript sets what a lease tells on the interface, and nothing else of this machine: Debian's own would write
// /etc/resolv.conf. udhcpc says what has happened as its argument, dhclient as $reason.
const leaseScript = `#!/bin/sh
case "$1$reason" in
bound)
	ip addr add "$ip/$mask" dev "$interface"
	[ -z "$mtu" ] || ip link set "$interface" mtu "$mtu"
	[ -z "$router" ] || ip route replace default via "${router%% *}" dev "$interface" ;;
BOUND6)
	ip addr add "$new_ip6_address/$new_ip6_prefixlen" dev "$interface" nodad ;;
esac
`

// writeLeaseScript writes it and says where.
func writeLeaseScript(dir string) (file string, err error) {
	file = filepath.Join(dir, "lease.sh")
	return file, os.WriteFile(file, []byte(leaseScript), 0o700)
}

// askDHCP gets an IPv4 address by a real DHCP client.
func (w *workload) askDHCP(ctx context.Context, dir string) error {
	script, err := writeLeaseScript(dir)
	if err != nil {
		return err
	}
	out, err := w.NS.Output(ctx, "udhcpc", "--foreground", "--quit", "--now", "--interface", "eth0", "--retries", "3", "--timeout", "1",
		"--request-option", "mtu", "--script", script)
	if err != nil {
		return errors.New("no lease: " + lastLine(out))
	}
	return nil
}

// askDHCPv6 gets an IPv6 address by a real DHCP client, which stays and renews it.
func (w *workload) askDHCPv6(ctx context.Context, dir string) error {
	script, err := writeLeaseScript(dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := w.NS.Output(ctx, "dhclient", "-6", "-1", "-cf", "/dev/null", "-lf", filepath.Join(dir, w.Name+".leases"),
		"-pf", filepath.Join(dir, w.Name+".pid"), "-sf", script, "eth0")
	if err != nil {
		return errors.New("no lease: " + lastLine(out))
	}
	return nil
}

// has says which address of the family the workload has, and by which router it sends.
func (w *workload) has(ctx context.Context, six bool) string {
	eth0, err := interfaceIn(w.NS, "eth0")
	if err != nil {
		return err.Error()
	}
	family := map[bool]string{true: "-6", false: "-4"}[six]
	route, err := w.NS.Output(ctx, "ip", family, "route", "show", "default")
	if err != nil {
		return err.Error()
	}
	_, via, _ := strings.Cut(route, "via ")
	via, _, _ = strings.Cut(via, " ")
	if end, err := interfaceIn(w.Host.NS, w.Tap()); err == nil && end.has(via) {
		via = "host"
	}
	return eth0.address(six) + " via " + via
}

// hasSoon is has once there is something to say, or after some seconds. The kernel sets what advertisements tell.
func (w *workload) hasSoon(ctx context.Context, six bool) (got string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = netlab.Until(ctx, "address and router", func() (bool, error) { // what it was in the end is shown
		got = w.has(ctx, six)
		return !strings.HasPrefix(got, " ") && !strings.HasSuffix(got, " "), nil
	})
	return got
}

// lookUp asks a name server for the IPv4 address of a name.
func (w *workload) lookUp(ctx context.Context, server, name string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return lab.DialIn(w.NS)(ctx, network, net.JoinHostPort(server, "53"))
	}}
	found, err := resolver.LookupNetIP(ctx, "ip4", name+".")
	if err != nil {
		return err.Error()
	}
	return found[0].Unmap().String()
}

// linkState is what an interface has.
type linkState struct {
	mtu       int
	addresses []netip.Prefix
}

// interfaceIn looks at an interface of a namespace.
func interfaceIn(ns *netlab.Namespace, name string) (s linkState, err error) {
	err = ns.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.mtu = link.MTU
		all, err := link.Addrs()
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				s.addresses = append(s.addresses, p)
			}
		}
		return err
	})
	return s, err
}

// address is the one of the family that others can reach, that of IPv4 with its prefix length; "" without one.
func (s linkState) address(six bool) string {
	for _, p := range s.addresses {
		switch {
		case p.Addr().Is6() != six || p.Addr().IsLinkLocalUnicast():
		case six:
			return p.Addr().String()
		default:
			return p.String()
		}
	}
	return ""
}

func (s linkState) has(address string) bool {
	for _, p := range s.addresses {
		if p.Addr().String() == address {
			return true
		}
	}
	return false
}
