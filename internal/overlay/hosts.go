package overlay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/topology"
)

// hostReport holds the tunnel addresses that another host reports.
type hostReport struct {
	id, name string
	tunnels  []topology.HostTunnel // those that count
	reported int                   // how many it reports in all
	revision int64                 // of the last change
}

// fault is a contradiction in the hosts' records, for the log.
type fault struct {
	key     string // the same for the same contradiction
	message string
	args    []any
}

// String returns the message with its arguments.
func (f fault) String() string {
	var b strings.Builder
	b.WriteString(f.message)
	for i := 0; i+1 < len(f.args); i += 2 {
		fmt.Fprintf(&b, ", %v %v", f.args[i], f.args[i+1])
	}
	return b.String()
}

// assignTunnels returns which other host each tunnel address in some zones belongs to.
//
// An address that several hosts report stays with the host that had it before, so no host can take
// an address from another, nor lose its own by changing its record. Without such a host, the one
// that reported it first has it.
func assignTunnels(local netip.Addr, zones []string, before map[netip.Addr]string, reports []hostReport) (owners map[netip.Addr]string, faults []fault) {
	owners, since := map[netip.Addr]string{}, map[netip.Addr]int64{}
	add := func(key, message string, args ...any) { faults = append(faults, fault{key, message, args}) }
	for _, h := range reports {
		if len(h.tunnels) < h.reported {
			add(h.id+" reports many", "ignoring tunnel addresses of a host: of each zone one counts, and four in all",
				"host", h.name, "id", h.id, "reported", h.reported, "counted", len(h.tunnels))
		}
		for _, t := range h.tunnels {
			if !slices.Contains(zones, t.ZoneID) {
				continue
			}
			if !takesTunnels(t.IP) {
				add(h.id+" reports "+t.IP.String(), "ignoring a host's tunnel address, which is no unicast IPv4 address: set --tunnel-ip of its agent, or remove the host",
					"address", t.IP, "host", h.name, "id", h.id)
				continue
			}
			if t.IP == local {
				add(h.id+" reports mine", "another host reports the tunnel address of this one: hosts that take it for the other's exchange no frames with this host; give one of the two another address, or remove the other",
					"address", t.IP, "host", h.name, "id", h.id)
				continue
			}
			if other := owners[t.IP]; other != "" && other != h.id {
				add(fmt.Sprint(t.IP, other, h.id), "two hosts report one tunnel address; it counts as that of the host that reported it first",
					"address", t.IP, "hosts", []string{other, h.id})
				if other == before[t.IP] || h.id != before[t.IP] && since[t.IP] < h.revision {
					continue
				}
			}
			owners[t.IP], since[t.IP] = h.id, h.revision
		}
	}
	return owners, faults
}

// takesTunnels reports whether frames can be tunnelled to the address: it is unicast IPv4.
func takesTunnels(ip netip.Addr) bool {
	return ip.Is4() && (ip.IsGlobalUnicast() || ip.IsLinkLocalUnicast())
}
