package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// leaseScript applies a lease to the interface alone: Debian's script would write /etc/resolv.conf.
// udhcpc passes the event as an argument, dhclient as $reason.
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

// writeLeaseScript writes the script and returns its file.
func writeLeaseScript(dir string) (file string, err error) {
	file = filepath.Join(dir, "lease.sh")
	return file, os.WriteFile(file, []byte(leaseScript), 0o700)
}

// askDHCP gets an IPv4 address by udhcpc.
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

// askDHCPv6 gets an IPv6 address by dhclient, which stays and renews it.
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

// addressAndRouter returns the workload's address of the family, and its default router.
func (w *workload) addressAndRouter(ctx context.Context, six bool) (string, error) {
	eth0, err := interfaceIn(w.NS, "eth0")
	if err != nil {
		return "", err
	}
	family := map[bool]string{true: "-6", false: "-4"}[six]
	route, err := w.NS.Output(ctx, "ip", family, "route", "show", "default")
	if err != nil {
		return "", err
	}
	_, via, _ := strings.Cut(route, "via ")
	via, _, _ = strings.Cut(via, " ")
	if end, err := interfaceIn(w.Host.NS, w.Tap()); err == nil && end.has(via) {
		via = "host"
	}
	return eth0.address(six) + " via " + via, nil
}

// awaitAddressAndRouter waits some seconds until it has both, such as by an advertisement.
func (w *workload) awaitAddressAndRouter(ctx context.Context, six bool) (got string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = netlab.Until(ctx, "address and router", func() (bool, error) { // what it was in the end is shown
		got, err = w.addressAndRouter(ctx, six)
		return err == nil && !strings.HasPrefix(got, " ") && !strings.HasSuffix(got, " "), nil
	})
	return got, err
}

// lookUp resolves a name to an IPv4 address.
func (w *workload) lookUp(ctx context.Context, server, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return lab.DialIn(w.NS)(ctx, network, net.JoinHostPort(server, "53"))
	}}
	found, err := resolver.LookupNetIP(ctx, "ip4", name+".")
	if err != nil {
		return "", err
	}
	return found[0].Unmap().String(), nil
}

// linkState is the state of an interface.
type linkState struct {
	mtu       int
	addresses []netip.Prefix
}

// interfaceIn reads the state of an interface in a namespace.
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

// address returns the global address of the family, for IPv4 with its prefix length, or "".
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
	return slices.ContainsFunc(s.addresses, func(p netip.Prefix) bool { return p.Addr().String() == address })
}
