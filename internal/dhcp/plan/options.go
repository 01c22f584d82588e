package plan

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// Check refuses options that dnsmasq cannot take, or would misunderstand. The error names the
// option and its permitted values.
func (o Options) Check() error {
	if err := CheckPath(o.Dir); err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	if !isDevice(o.Device) {
		return fmt.Errorf("device %q: want the name of an interface: 1 to 15 of [A-Za-z0-9_.-]", o.Device)
	}
	if len(o.InterfacePrefixes) == 0 {
		return fmt.Errorf("interface prefixes: want at least one")
	}
	for _, p := range o.InterfacePrefixes {
		if err := CheckPrefix(p); err != nil {
			return err
		}
		if strings.HasPrefix(o.Device, p) {
			return fmt.Errorf("interface prefix %q: the device %s begins with it", p, o.Device)
		}
	}
	if o.LeaseSeconds != Infinite && (o.LeaseSeconds < leastLease || o.LeaseSeconds > mostLease) {
		return fmt.Errorf("lease of %d seconds: want %d to %d, or %d for one without end", o.LeaseSeconds, leastLease, mostLease, Infinite)
	}
	if o.RenewalSeconds < 0 || o.RebindingSeconds < 0 {
		return fmt.Errorf("renewal after %d and rebinding after %d seconds: want 0 or more", o.RenewalSeconds, o.RebindingSeconds)
	}
	if o.Domain != "" {
		if err := CheckDomain(o.Domain); err != nil {
			return err
		}
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
	if err := CheckPath(o.ConfigFile); err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	return nil
}

// The bounds of a lease: dnsmasq's least, and 32 bits of seconds of which one value means no end.
const (
	leastLease = 120
	mostLease  = 1<<31 - 1
)

// CheckPath refuses paths that dnsmasq would not read as one word.
func CheckPath(path string) error {
	if !filepath.IsAbs(path) || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || strings.ContainsRune(`,"`, r) }) {
		return fmt.Errorf("path %q: want an absolute one without commas, quotes and control characters", path)
	}
	return nil
}

// CheckPrefix refuses what cannot begin the name of an interface.
func CheckPrefix(prefix string) error {
	if !isDevice(prefix) {
		return fmt.Errorf("interface prefix %q: want 1 to 15 of [A-Za-z0-9_.-]", prefix)
	}
	return nil
}

// CheckDomain refuses what is no domain's name.
func CheckDomain(domain string) error {
	if reason := badName(domain); reason != "" {
		return fmt.Errorf("domain %q %s", domain, reason)
	}
	if len(domain) > longestDomain {
		return fmt.Errorf("domain %q is longer than %d characters", domain, longestDomain)
	}
	return nil
}

// longestDomain leaves room for the names that are made of addresses.
const longestDomain = 253 - len("host-ffff-ffff-ffff-ffff-ffff-ffff-ffff-ffff.")

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
