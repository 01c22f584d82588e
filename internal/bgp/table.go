package bgp

import (
	"net/netip"
	"strings"

	"heddle/internal/bgp/plan"
	"heddle/internal/hostnet"
)

// dhcpDevice is how names of the DHCP agent's devices begin. A subnet's route is on one for the moment in which its
// gateway address is set; workloads are not there.
const dhcpDevice = "ns-"

// mainTable is what others have put into the kernel's main table, kept current by its events: what this host can export,
// and what learned routes must leave alone. It is not safe for several goroutines.
type mainTable struct {
	links  map[int]string
	routes map[netip.Prefix]map[int]hostnet.TableEvent // by destination and metric
}

func newMainTable() *mainTable {
	return &mainTable{links: map[int]string{}, routes: map[netip.Prefix]map[int]hostnet.TableEvent{}}
}

// set enters a change and returns the destination that may have changed; false for a change of the speaker's own routes,
// or of none.
func (t *mainTable) set(e hostnet.TableEvent) (dst netip.Prefix, ok bool) {
	if e.Link != "" {
		if e.Removed {
			delete(t.links, e.LinkIndex)
		} else {
			t.links[e.LinkIndex] = e.Link
		}
		return dst, false
	}
	dst = e.Route.Dst
	if e.Route.Protocol == hostnet.ProtocolBGP || !dst.IsValid() || dst.Addr().IsMulticast() || dst.Addr().IsLinkLocalUnicast() {
		return dst, false
	}
	byMetric := t.routes[dst]
	switch {
	case !e.Removed:
		if byMetric == nil {
			byMetric = map[int]hostnet.TableEvent{}
			t.routes[dst] = byMetric
		}
		byMetric[e.Metric] = e
	case byMetric[e.Metric].LinkIndex == e.LinkIndex:
		if delete(byMetric, e.Metric); len(byMetric) == 0 {
			delete(t.routes, dst)
		}
	default:
		return dst, false // it was replaced before it was removed
	}
	return dst, true
}

// replace enters what the table holds in place of all that was known, and returns every destination known before or now.
func (t *mainTable) replace(links []hostnet.Link, all []hostnet.TableEvent) map[netip.Prefix]bool {
	changed := map[netip.Prefix]bool{}
	for dst := range t.routes {
		changed[dst] = true
	}
	*t = *newMainTable()
	for _, l := range links {
		t.links[l.Index] = l.Name
	}
	for _, e := range all {
		if dst, ok := t.set(e); ok {
			changed[dst] = true
		}
	}
	return changed
}

// uses says whether a route leaves by a link.
func (t *mainTable) uses(link int) bool {
	for _, byMetric := range t.routes {
		for _, e := range byMetric {
			if e.LinkIndex == link {
				return true
			}
		}
	}
	return false
}

// taken says whether somebody else routes a destination.
func (t *mainTable) taken(dst netip.Prefix) bool { return len(t.routes[dst]) > 0 }

// local says whether this host itself has a destination on one of its links: the address of a workload, or a network
// that is no workload's (spec §12). A route over a gateway is somebody else's to announce.
func (t *mainTable) local(dst netip.Prefix, p *plan.Plan) bool {
	for _, e := range t.routes[dst] {
		if e.Route.Blackhole || e.Route.Gateway.IsValid() || dst.Bits() == 0 {
			continue
		}
		if !e.Route.Kernel || t.direct(e.LinkIndex, p) {
			return true
		}
	}
	return false
}

// direct says whether the networks that the kernel itself sees on a link are this host's to announce.
func (t *mainTable) direct(link int, p *plan.Plan) bool {
	name := t.links[link]
	if strings.HasPrefix(name, dhcpDevice) {
		return false
	}
	for _, prefix := range p.WorkloadPrefixes {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	for _, tunnel := range p.Tunnels {
		if name == tunnel.Device {
			return false
		}
	}
	return true
}
