package plan

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"heddle/calico"
)

// Leases returns the content of the lease file for a new dnsmasq, from that of the one before.
// Machines renew as if nothing had happened: the server's identity and the leases of addresses that
// machines still have are kept, and each IPv4 address has a lease. Others are dropped, so that
// another machine can have the address at once. Of several leases of an address the first counts.
//
// An IPv6 lease does not name its machine. It is dropped if before, the [Holders] at the time of
// the old content, names another machine than the plan does.
func (p *Plan) Leases(old string, before map[netip.Addr]calico.MAC, now time.Time) string {
	after := Holders(p.Files)
	var text strings.Builder
	leased := map[netip.Addr]bool{}
	var v6 []string
	identified := false
	for line := range strings.Lines(old) {
		line = strings.TrimRight(line, "\r\n")
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "duid" {
			if !identified {
				v6 = append(v6, line)
			}
			identified = true
			continue
		}
		ip, ok := keptLease(fields, before, after)
		switch {
		case !ok || leased[ip]:
		case ip.Is4():
			leased[ip] = true
			text.WriteString(line + "\n")
		default:
			leased[ip] = true
			v6 = append(v6, line)
		}
	}
	p.missingLeases(&text, leased, now)
	// dnsmasq reads IPv6 leases after the duid line.
	for _, line := range v6 {
		text.WriteString(line + "\n")
	}
	return text.String()
}

// MissingLeases returns the lines of those IPv6 leases of a lease file that another one lacks. An
// instance may have given them after the file of its successor was written. IPv4 leases are never
// missing: each address has one.
func MissingLeases(of, in string) string {
	there := map[string]bool{}
	for line := range strings.Lines(in) {
		if fields := strings.Fields(line); len(fields) == 5 {
			there[fields[2]] = true
		}
	}
	var missing strings.Builder
	for line := range strings.Lines(of) {
		if fields := strings.Fields(line); len(fields) == 5 && strings.Contains(fields[2], ":") && !there[fields[2]] {
			missing.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	return missing.String()
}

// keptLease returns the address of a lease that its machine still has.
func keptLease(fields []string, before, after map[netip.Addr]calico.MAC) (netip.Addr, bool) {
	if len(fields) != 5 {
		return netip.Addr{}, false
	}
	if _, err := strconv.ParseUint(fields[0], 10, 63); err != nil {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(fields[2])
	holder, ok := after[ip]
	if err != nil || !ok {
		return netip.Addr{}, false
	}
	if ip.Is4() {
		mac, err := calico.ParseMAC(fields[1])
		return ip, err == nil && mac == holder
	}
	earlier, known := before[ip]
	return ip, !known || earlier == holder
}

// missingLeases adds leases for IPv4 addresses without one.
func (p *Plan) missingLeases(text *strings.Builder, leased map[netip.Addr]bool, now time.Time) {
	end := int64(0)
	if p.lease != Infinite {
		end = now.Unix() + int64(p.lease)
	}
	for _, port := range p.Ports {
		for _, a := range port.Addresses {
			if a.IP.Is4() && !leased[a.IP] {
				fmt.Fprintf(text, "%d %s %s * *\n", end, port.MAC, a.IP)
			}
		}
	}
}
