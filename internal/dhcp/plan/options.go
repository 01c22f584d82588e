package plan

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// Check refuses options that no dnsmasq could be given, or that would say something else to it. The error names the
// option and what it may be.
func (o Options) Check() error {
	if err := checkPath("directory", o.Dir); err != nil {
		return err
	}
	if !isDevice(o.Device) {
		return fmt.Errorf("device %q: want the name of an interface: 1 to 15 of [A-Za-z0-9_.-]", o.Device)
	}
	if len(o.InterfacePrefixes) == 0 {
		return fmt.Errorf("interface prefixes: want at least one")
	}
	for _, p := range o.InterfacePrefixes {
		if !isDevice(p) || strings.HasPrefix(o.Device, p) {
			return fmt.Errorf("interface prefix %q: want 1 to 15 of [A-Za-z0-9_.-] with which the device %s does not begin", p, o.Device)
		}
	}
	if o.LeaseSeconds != Infinite && (o.LeaseSeconds < leastLease || o.LeaseSeconds > mostLease) {
		return fmt.Errorf("lease of %d seconds: want %d to %d, or %d for one without end", o.LeaseSeconds, leastLease, mostLease, Infinite)
	}
	if reason := badName(o.Domain); o.Domain != "" && reason != "" {
		return fmt.Errorf("domain %q %s", o.Domain, reason)
	}
	if o.MTU != 0 && (o.MTU < 68 || o.MTU > 65535) {
		return fmt.Errorf("MTU %d: want 68 to 65535, or 0 for none", o.MTU)
	}
	for _, s := range o.Servers {
		if err := CheckServer(s); err != nil {
			return err
		}
	}
	if o.ConfigFile == "" {
		return nil
	}
	return checkPath("configuration file", o.ConfigFile)
}

// The bounds of a lease: dnsmasq takes no shorter one, and counts seconds in 32 bits of which one value means no end.
const (
	leastLease = 120
	mostLease  = 1<<31 - 1
)

// checkPath keeps paths to what dnsmasq reads as one word.
func checkPath(what, path string) error {
	if !filepath.IsAbs(path) || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || strings.ContainsRune(`,"`, r) }) {
		return fmt.Errorf("%s %q: want an absolute path without commas, quotes and control characters", what, path)
	}
	return nil
}

func isDevice(name string) bool { return isID(name) && len(name) <= 15 && name[0] != '.' }

// CheckServer refuses what is no DNS server to ask: address, address#port or /domain/address.
func CheckServer(text string) error {
	address := text
	if rest, ok := strings.CutPrefix(text, "/"); ok {
		domain, after, found := strings.Cut(rest, "/")
		if !found || badName(domain) != "" {
			return fmt.Errorf("DNS server %q: want /domain/address", text)
		}
		address = after
	}
	ip, port, hasPort := strings.Cut(address, "#")
	if hasPort {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("DNS server %q: want a port of 1 to 65535 after the #", text)
		}
	}
	if a, err := netip.ParseAddr(ip); err != nil || a.Zone() != "" {
		return fmt.Errorf("DNS server %q: want an address, address#port or /domain/address", text)
	}
	return nil
}
