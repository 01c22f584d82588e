package topology

import (
	"net/netip"
	"strings"
)

// AppendHostname appends the host name that belongs to an address: name or, without one, a name
// made of the address, as in host-10-0-0-5.
func AppendHostname(b []byte, a netip.Addr, name string) []byte {
	if name != "" {
		return append(b, name...)
	}
	start := len(b)
	b = append(b, "host-"...)
	b = a.AppendTo(b)
	for i := start; i < len(b); i++ {
		if b[i] == '.' || b[i] == ':' {
			b[i] = '-'
		}
	}
	return b
}

// AssignedName returns the full name of an address, without the final dot: its host name, completed
// by a domain unless it ends with a dot.
func AssignedName(a netip.Addr, name, domain string) string {
	if full, isFull := strings.CutSuffix(name, "."); isFull {
		return full
	}
	b := AppendHostname(nil, a, name)
	if domain != "" {
		b = append(append(b, '.'), domain...)
	}
	return string(b)
}

// Names returns the host name and the domain that DHCP gives to a host, both empty for one without
// a name in a subnet without a domain.
func (h *DhcpHostEntry) Names(domain string) (hostname, domainName string) {
	if h.Name == "" && domain == "" {
		return "", ""
	}
	hostname, domainName, _ = strings.Cut(AssignedName(h.IPAddress, h.Name, domain), ".")
	return hostname, domainName
}
