package simulate

import (
	"cmp"
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// localIP is a port that an address of its network stands for on the port's host, or the one that
// has the address.
type localIP struct {
	def              *topology.LocalIP
	network          *network
	port             *port
	forward, reverse *translation // of what goes to the port and of the replies
}

func compareLocalIPs(a, b *localIP) int {
	return cmp.Or(cmp.Compare(a.port.id, b.port.id), cmp.Compare(a.def.ID, b.def.ID))
}

// setLocalIP replaces an entry by another with its id; either may be nil.
func (w *World) setLocalIP(before, after *topology.LocalIP) {
	if before != nil {
		w.unlinkLocalIP(before)
	}
	if after != nil {
		w.linkLocalIP(after)
	}
}

func (w *World) linkLocalIP(def *topology.LocalIP) {
	n, p := hold(w.networks, def.NetworkID), hold(w.ports, def.PortID)
	x := &localIP{def: def, network: n, port: p, reverse: &translation{dnat: true, reverse: true, action: accept}}
	// Each port of the address has its own of the machine.
	x.forward = &translation{dnat: true, action: accept,
		targets: []flow.NATTarget{{First: def.FixedIP, Last: def.FixedIP, FirstPort: 1, LastPort: 65535, FromPort: 1}}}
	if n.localIPs == nil {
		n.localIPs = map[netip.Addr][]*localIP{}
	}
	if len(n.localIPs[def.Address]) == 0 {
		w.touchNetwork(n)
	}
	n.localIPs[def.Address] = insertLocalIP(n.localIPs[def.Address], x)
	p.locals = insertLocalIP(p.locals, x)
	w.touchLocal(x)
	w.localIPChanged(def)
}

func (w *World) unlinkLocalIP(def *topology.LocalIP) {
	n := w.networks[def.NetworkID]
	i := slices.IndexFunc(n.localIPs[def.Address], func(x *localIP) bool { return x.def.ID == def.ID && x.port.id == def.PortID })
	x := n.localIPs[def.Address][i]
	w.touchLocal(x)
	if n.localIPs[def.Address] = slices.Delete(n.localIPs[def.Address], i, i+1); len(n.localIPs[def.Address]) == 0 {
		delete(n.localIPs, def.Address)
		w.touchNetwork(n)
	}
	x.port.locals = slices.DeleteFunc(x.port.locals, func(o *localIP) bool { return o == x })
	w.localIPChanged(def)
	release(w.ports, x.port)
	release(w.networks, n)
}

func insertLocalIP(list []*localIP, x *localIP) []*localIP {
	i, _ := slices.BinarySearchFunc(list, x, compareLocalIPs)
	return slices.Insert(list, i, x)
}

// localIPChanged reports that questions for the address are answered otherwise.
func (w *World) localIPChanged(def *topology.LocalIP) {
	w.reportNeighbour(def.Address)
	if w.neighbourChanged != nil {
		w.neighbourChanged(def.NetworkID, def.Address)
	}
}

// touchLocals touches the ports whose decisions rest on where a port is that local IPs stand for.
func (w *World) touchLocals(p *port) {
	for _, x := range p.locals {
		w.touchLocal(x)
	}
}

// touchLocal touches the ports of a local IP's network on the host of the port that it stands for.
func (w *World) touchLocal(x *localIP) {
	w.mark(x.port)
	h := x.port.server()
	if h == nil {
		return
	}
	for q := range h.ports {
		if q.network == x.network {
			w.mark(q)
		}
	}
}

// isHome reports whether the port is the one that has the address.
func (x *localIP) isHome() bool { return !x.def.FixedIP.IsValid() }

// serves reports whether the port is one that machines on host h reach by the local IP.
func (x *localIP) serves(h *host) bool {
	p := x.port
	return !x.isHome() && p.def != nil && p.network == x.network && p.def.Exterior() && p.def.AdminStateUp && p.server() == h
}

// localPort returns the entry of the port that this host has for a local IP of n, of several the
// one with the lowest id, or nil. A machine that itself is one of these ports, and what comes from
// a LAN or a router, reaches the port that has the address.
func (s *Simulator) localPort(n *network, address netip.Addr) *localIP {
	all := n.localIPs[address]
	if len(all) == 0 || !s.isFromMachine() || slices.ContainsFunc(all, func(x *localIP) bool { return x.port == s.ingress && !x.isHome() }) {
		return nil
	}
	i := slices.IndexFunc(all, func(x *localIP) bool { return x.serves(s.here) })
	if i < 0 {
		return nil
	}
	return all[i]
}

// isFromMachine reports whether the packet comes from a machine on the network that it is in.
func (s *Simulator) isFromMachine() bool {
	return !s.filters.generated && s.filters.inPort == s.ingress && !s.ingress.isLocalnet()
}

// localIP takes a packet that a machine on n sends to a local IP to the port that this host has for
// it, and reports whether it is done with it. To one that sends from such a port a reply gets the
// local IP as its source.
func (s *Simulator) localIP(n *network) (done bool) {
	f := s.filters.now
	if len(n.localIPs) == 0 || f.EtherType != packet.TypeIPv4 || f.VLANs > 0 || f.Dst.IsMulticast() || !s.isFromMachine() {
		return false
	}
	if s.isLocalReply(n) {
		return false
	}
	if x := s.localPort(n, f.DstIP); x != nil {
		s.toLocalPort(n, x)
		return true
	}
	s.toLocalOwner(n)
	return false
}

// toLocalPort sends the packet to the port of an entry.
func (s *Simulator) toLocalPort(n *network, x *localIP) {
	if s.dec.explain {
		s.dec.say(n.id, flow.StepLocalIP, "local IP "+x.def.Address.String()+": port "+x.port.id+" of this host")
	}
	s.changeHeaders()
	s.filters.now.Dst = x.def.MAC
	if !x.def.Passthrough && !s.translateLocal(n, x) {
		return
	}
	s.head(x.port)
	if s.bridgeFilter(n, "out", n.out) {
		s.leave(n)
	}
}

// translateLocal translates the destination of a packet to the address of an entry's port, and
// drops what cannot be.
func (s *Simulator) translateLocal(n *network, x *localIP) bool {
	f := s.filters.now
	if f.NoForward != "" {
		s.unkeyed = true // flows hold for packets with and without such a header
		s.dec.drop(n.id, flow.CodeNoForward, "local IP "+x.def.Address.String()+" takes no packets with "+f.NoForward)
		return false
	}
	switch s.applyLocal(x, x.forward) {
	case accept:
		return true
	case goOn:
		s.dec.drop(n.id, flow.CodeFragment, "local IP "+x.def.Address.String()+" takes no fragments, and of the protocols TCP, UDP and ICMP echo")
	}
	return false
}

// applyLocal applies a translation of an entry.
func (s *Simulator) applyLocal(x *localIP, t *translation) verb {
	s.nat.device, s.nat.chain = x.def.ID, nil
	defer func() { s.nat.device = "" }()
	return s.nat.apply(&s.filters, t, x.def.ID)
}

// isLocalReply reports whether the packet is a reply of a port that a local IP stands for, and
// gives it the local IP as its source.
func (s *Simulator) isLocalReply(n *network) bool {
	for _, x := range s.ingress.locals {
		if x.network != n || x.def.Passthrough || s.filters.now.SrcIP != x.def.FixedIP {
			continue
		}
		s.changeHeaders()
		if s.applyLocal(x, x.reverse) == accept {
			return true
		}
		s.filters.now, s.way.routed = &s.frame, false
	}
	return false
}

// toLocalOwner turns a packet to a local IP for which this host has no port to the one that has the
// address: the sender may have a MAC address of another host, or of an association that has gone.
func (s *Simulator) toLocalOwner(n *network) {
	f := s.filters.now
	if len(n.localIPs[f.DstIP]) == 0 || n.routerPort(f.Dst) != nil {
		return
	}
	owner, ok := n.resolve(f.DstIP)
	if !ok || owner == f.Dst || owner == f.Src {
		return
	}
	s.changeHeaders()
	s.filters.now.Dst = owner
	if s.dec.explain {
		s.dec.say(n.id, flow.StepLocalIP, "local IP "+f.DstIP.String()+": this host has no port for it: to "+owner.String())
	}
}
