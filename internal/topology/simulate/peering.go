package simulate

import (
	"net/netip"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// remoteKey is a MAC address in the VXLAN network of a router's ports.
type remoteKey struct {
	vni uint32
	mac packet.MAC
}

// setRemote replaces an owner's remote MAC entry; either may be nil.
func (w *World) setRemote(owner topology.Owner, before, after *topology.RemoteMacEntry) {
	if before != nil {
		w.changeRemote(owner, before, nil)
	}
	if after != nil {
		w.changeRemote(owner, after, after)
	}
}

// changeRemote sets the entry at the place of another in its router's table, nil taking it away.
func (w *World) changeRemote(owner topology.Owner, at, to *topology.RemoteMacEntry) {
	r, key := hold(w.routers, at.RouterID), remoteKey{at.VNI, at.MAC}
	if r.remotes == nil {
		r.remotes = map[remoteKey]claims[topology.RemoteMacEntry]{}
	}
	c := r.remotes[key]
	r.refs += presence(to) - presence(c.set(owner, to))
	if r.remotes[key] = c; len(c) == 0 {
		delete(r.remotes, key)
	}
	for _, p := range r.ports {
		if p.def.VNI == at.VNI {
			w.touch(p)
		}
	}
	release(w.routers, r)
}

// LearnRemote enters what the database of another VTEP says about a MAC address, and returns the
// ports and routers whose decisions may change; version as for LearnMAC. Frames to the address go
// to the port of its network from then, and that is where it has been seen.
func (w *World) LearnRemote(l topology.LearnedRemote, version uint64) (affected []string) {
	w.begin()
	p := hold(w.ports, l.PortID)
	if p.remotes == nil {
		p.remotes = map[packet.MAC]netip.Addr{}
	}
	if _, known := p.remotes[l.MAC]; known {
		p.refs--
	}
	p.remotes[l.MAC] = l.VTEP
	if p.def != nil {
		w.touch(p)
	}
	if l.MAC != packet.Broadcast {
		behind := hold(w.ports, l.BehindID)
		w.changeMAC(l.NetworkID, keyOf(table, l.MAC), func(e *macEntry) (had *port, sources int) {
			known := len(e.learned)
			had, kept := e.learn(l.HolderID, version, behind)
			if !kept {
				had = behind
			}
			return had, len(e.learned) - known
		})
	}
	if l.IP.IsValid() {
		w.changeNeighbour(l.NetworkID, l.IP, func(e *neighbour) int {
			known := len(e.learned)
			e.learn(l.HolderID, version, &l.MAC)
			return len(e.learned) - known
		})
	}
	return w.end()
}

// ForgetRemote takes away what LearnRemote entered.
func (w *World) ForgetRemote(l topology.LearnedRemote) (affected []string) {
	w.begin()
	if p := w.ports[l.PortID]; p != nil {
		if _, known := p.remotes[l.MAC]; known {
			delete(p.remotes, l.MAC)
			if p.def != nil {
				w.touch(p)
			}
			release(w.ports, p)
		}
	}
	w.changeMAC(l.NetworkID, keyOf(table, l.MAC), func(e *macEntry) (had *port, sources int) {
		known := len(e.learned)
		had = e.forget(l.HolderID)
		return had, len(e.learned) - known
	})
	if l.IP.IsValid() {
		w.changeNeighbour(l.NetworkID, l.IP, func(e *neighbour) int {
			known := len(e.learned)
			e.forget(l.HolderID)
			return len(e.learned) - known
		})
	}
	return w.end()
}

// remote returns the VTEP that a MAC address is behind, as the peering table of port p has it:
// what clients entered beats what was learned.
func (p *port) remote(m packet.MAC) (vtep netip.Addr, ok bool) {
	if e := p.router.remotes[remoteKey{p.def.VNI, m}].top(); e != nil {
		return e.VTEP, true
	}
	vtep, ok = p.remotes[m]
	return vtep, ok
}

// remoteForMany returns the VTEP that takes frames to many and to unknown addresses.
func (p *port) remoteForMany() (vtep netip.Addr, ok bool) { return p.remote(packet.Broadcast) }
