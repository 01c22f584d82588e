package simulate

import (
	"net/netip"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// host is a machine that ports are bound to.
type host struct {
	object
	def   *topology.Host      // nil until ApplyHost
	state *topology.HostState // nil while it is not alive
	ports users[*port]

	carried []*physicalNetwork // that it carries while it is alive
	hash    uint64             // of its id, once it carries any
}

// minMTU is the least that IPv4 works with (RFC 791); a host that reports less does not count.
const minMTU = 68

// ApplyHost enters a host with its tunnel zones, nil removing it, and returns the ports whose
// decisions may change. Between two known hosts packets pass only if they share a zone. The world
// keeps h.
func (w *World) ApplyHost(id string, h *topology.Host) (affected []string) {
	w.begin()
	x := hold(w.hosts, id)
	for p := range x.ports {
		w.touch(p)
		w.touchLocals(p)
	}
	w.touchLANs(x)
	w.reportHost()
	x.refs += presence(h) - presence(x.def)
	x.def = h
	for p := range x.ports {
		w.touchLocals(p)
	}
	w.carry(x)
	release(w.hosts, x)
	return w.end()
}

// ApplyHostState enters what a live host reports, nil when it is gone, and returns the ports whose
// decisions may change: those that get another home on the LAN (decision 0016). The narrowest
// underlay decides the MTU that DHCP gives (midonet-simulation §10).
func (w *World) ApplyHostState(id string, st *topology.HostState) (affected []string) {
	w.begin()
	x := hold(w.hosts, id)
	if (st == nil) != (x.state == nil) {
		w.reportHost()
	}
	x.refs += presence(st) - presence(x.state)
	x.state = st
	w.carry(x)
	release(w.hosts, x)
	w.findUnderlayMTU()
	return w.end()
}

func (w *World) findUnderlayMTU() {
	old := w.underlayMTU
	w.underlayMTU = 0
	for _, x := range w.hosts {
		if x.state == nil {
			continue
		}
		overhead := packet.VXLANOverheadV4
		if x.state.TunnelIP.Is6() {
			overhead = packet.VXLANOverheadV6
		}
		if mtu := x.state.MTU - overhead; mtu >= minMTU && (w.underlayMTU == 0 || mtu < w.underlayMTU) {
			w.underlayMTU = mtu
		}
	}
	if w.underlayMTU != old && w.advertChanged != nil {
		for _, n := range w.networks {
			w.advertisementChanged(n)
		}
	}
}

// UnderlayMTU is the largest packet that all live hosts can carry, in bytes; 0 while unknown.
func (w *World) UnderlayMTU() int { return w.underlayMTU }

// tunnel returns the addresses of a and b in a common zone, of several the one with the lowest id.
func tunnel(a, b *host) (local, remote netip.Addr, ok bool) {
	zone := ""
	for _, x := range a.def.Tunnels {
		for _, y := range b.def.Tunnels {
			if x.ZoneID == y.ZoneID && (!ok || x.ZoneID < zone) {
				zone, local, remote, ok = x.ZoneID, x.IP, y.IP, true
			}
		}
	}
	return local, remote, ok
}
