package bgp

import (
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/bgp/plan"
	"heddle/internal/hostnet"
)

// dhcpDevice begins the names of the DHCP agent's devices. A subnet's route is on one for the
// moment in which its gateway address is set; workloads are not there.
const dhcpDevice = "ns-"

// mainTable holds other programs' routes of the kernel's main table, kept current by events: this
// host may export them, and learned routes must not replace them. It is for one goroutine.
type mainTable struct {
	links  map[int]string
	routes map[netip.Prefix]map[int]hostnet.TableEvent // by destination and metric
}

func newMainTable() *mainTable {
	return &mainTable{links: map[int]string{}, routes: map[netip.Prefix]map[int]hostnet.TableEvent{}}
}

// set enters a change, and returns the destination that may have changed. It reports false for the
// speaker's own routes and for no change.
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

// replace replaces the contents, and returns every destination before or after.
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

// uses reports whether a route leaves by a link.
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

// taken reports whether another program has a route to a destination.
func (t *mainTable) taken(dst netip.Prefix) bool { return len(t.routes[dst]) > 0 }

// local reports whether a destination is on one of this host's links: the address of a workload, or
// a network that is no workload's (spec §12). Routes over a gateway are for others to announce.
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

// direct reports whether the networks that the kernel has routes to for addresses of a link are
// this host's to announce.
func (t *mainTable) direct(link int, p *plan.Plan) bool {
	name := t.links[link]
	isWorkload := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	isTunnel := func(tunnel plan.Tunnel) bool { return name == tunnel.Device }
	return !strings.HasPrefix(name, dhcpDevice) && !slices.ContainsFunc(p.WorkloadPrefixes, isWorkload) && !slices.ContainsFunc(p.Tunnels, isTunnel)
}
