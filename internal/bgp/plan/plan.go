// Package plan decides what the BGP speaker of one host does (spec calico.md §12): its sessions,
// exports and blackhole routes, and the devices by which learned routes leave. It is pure: the
// contents of etcd in, one Plan out, whatever the order in which they came.
package plan

import (
	"cmp"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	"heddle/calico"
)

// defaultASNumber is the AS number of a host if neither its own nor the global configuration sets
// one.
const defaultASNumber = 64512

// Host is the host to plan for, with the operator's settings for it.
type Host struct {
	Name     string
	RouterID netip.Addr // the zero Addr: the host's IPv4 address, else one made from its name
}

// Plan is the desired state of a host's speaker.
type Plan struct {
	ASNumber uint32
	RouterID netip.Addr // IPv4
	// Addresses are this host's own, at most one of each family: the sources of sessions, at which
	// the speaker listens.
	Addresses []netip.Addr
	Sessions  []Session // by address
	// Export holds the export filter of each family.
	Export map[Family]Filter
	// Blackholes are the host's own blocks: traffic to unused addresses in them must not travel in
	// circles.
	Blackholes []netip.Prefix
	Tunnels    []Tunnel // most specific first
	// WorkloadPrefixes begin the names of workloads' interfaces: destinations on these are exported
	// address by address.
	WorkloadPrefixes []string
	// Debug and Verbose add to the warnings of the speaker's own log.
	Debug, Verbose bool
	// Problems of objects in etcd that could not be honoured, in key order.
	Problems []Problem
}

// Session is a BGP session. It carries routes of its addresses' family.
type Session struct {
	Peer     netip.Addr
	Local    netip.Addr
	ASNumber uint32 // of the peer
	Origin   Origin
	// Passive: the peer is another host, which connects. Two that connect to each other at the same
	// moment may settle on different connections, and lose a hold time or a graceful restart over
	// it. The host whose address is the greater text connects, as with later versions of Calico's
	// peers.
	Passive bool
}

// Origin is the definition of a session. A later one is more specific and wins.
type Origin int

const (
	Mesh      Origin = iota + 1 // all hosts peer with each other
	Global                      // all hosts peer with this one
	OwnOfHost                   // this host alone peers with it
)

func (o Origin) String() string { return [...]string{"", "mesh", "global", "host"}[o] }

// Tunnel has routes inside Pool leave by Device, except to next hops inside Except, this host's
// network, if that is valid.
type Tunnel struct {
	Pool   netip.Prefix
	Device string
	Except netip.Prefix
}

// Problem is an object in etcd that the plan could not honour.
type Problem struct{ Key, Reason string }

// Exports reports whether the speaker announces a route to dst.
func (p *Plan) Exports(dst netip.Prefix) bool {
	return p.Export[familyOf(dst.Addr())].accepts(dst)
}

// Device returns the tunnel device by which a route to dst with that next hop leaves, "" for none.
func (p *Plan) Device(dst netip.Prefix, nextHop netip.Addr) string {
	for _, t := range p.Tunnels {
		if !inside(t.Pool).Contains(dst) {
			continue
		}
		if t.Except.IsValid() && t.Except.Contains(nextHop) {
			return ""
		}
		return t.Device
	}
	return ""
}

// New makes the plan of a host from all entries of etcd below its [Prefixes], in any order, and its
// blocks.
func New(host Host, entries []Entry, blocks []netip.Prefix) *Plan {
	r := read(host.Name, entries)
	own := r.hosts[host.Name]
	p := &Plan{ASNumber: r.asNumber(own), RouterID: host.RouterID}
	for _, a := range own.addresses {
		if a.IsValid() {
			p.Addresses = append(p.Addresses, a)
		}
	}
	if !p.RouterID.IsValid() {
		p.RouterID = cmp.Or(own.addresses[0], nameAsID(host.Name))
	}
	p.Sessions = r.sessions(host.Name, own)
	p.Blackholes = slices.SortedFunc(slices.Values(blocks), netip.Prefix.Compare)
	p.Blackholes = slices.Compact(p.Blackholes)
	var pools []netip.Prefix
	for _, pool := range r.pools {
		pools = append(pools, pool.CIDR)
	}
	p.Export = map[Family]Filter{}
	for _, f := range []Family{IPv4, IPv6} {
		p.Export[f] = exportFilter(f, p.Blackholes, r.custom(f), pools)
	}
	p.Tunnels = tunnels(r.pools, own.network)
	p.WorkloadPrefixes = r.workloadPrefixes()
	level := cmp.Or(r.logLevels[0], r.logLevels[1])
	p.Debug, p.Verbose = level == "debug", level == "debug" || level == "info"
	slices.SortFunc(r.problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Reason, b.Reason)) })
	p.Problems = r.problems
	return p
}

// nameAsID returns the router ID of a host without an IPv4 address: a hash of its name, as Calico's
// later peers use. It must be unique among the hosts that peer.
func nameAsID(name string) netip.Addr {
	h := fnv.New32a()
	h.Write([]byte(name))
	sum := h.Sum(nil)
	if sum[0] == 0 {
		sum[0] = 1 // 0.0.0.0 is no router ID
	}
	return netip.AddrFrom4([4]byte(sum))
}

// asNumber returns a host's own AS number, else the global one.
func (r *reading) asNumber(h hostAddresses) uint32 {
	return cmp.Or(h.asNumber, r.global, defaultASNumber)
}

// sessions returns all sessions of a host: each address once, by its most specific definition,
// never its own.
func (r *reading) sessions(name string, own hostAddresses) []Session {
	byPeer := map[netip.Addr]Session{}
	isHost := map[netip.Addr]bool{}
	for _, h := range r.hosts {
		for _, a := range h.addresses {
			isHost[a] = true
		}
	}
	add := func(peer netip.Addr, as uint32, origin Origin) {
		local := own.of(peer)
		if !local.IsValid() || peer == local || byPeer[peer].Origin > origin {
			return
		}
		byPeer[peer] = Session{Peer: peer, Local: local, ASNumber: as, Origin: origin,
			Passive: isHost[peer] && peer.String() > local.String()}
	}
	if r.mesh {
		for _, other := range slices.Sorted(maps.Keys(r.hosts)) {
			for _, a := range r.hosts[other].addresses {
				if other != name && a.IsValid() {
					add(a, r.asNumber(r.hosts[other]), Mesh)
				}
			}
		}
	}
	for _, peer := range r.peers {
		add(peer.peer.IP, peer.peer.ASNumber, peer.origin)
	}
	return slices.SortedFunc(maps.Values(byPeer), func(a, b Session) int { return a.Peer.Compare(b.Peer) })
}

// tunnels returns the pools, the most specific first, as a route takes the tunnel of its nearest
// pool; none if no pool has a tunnel.
func tunnels(pools []calico.Pool, network netip.Prefix) []Tunnel {
	var all []Tunnel
	for _, pool := range pools {
		t := Tunnel{Pool: pool.CIDR, Device: pool.IPIP}
		if pool.IPIPMode == "cross-subnet" {
			t.Except = network
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Tunnel) int {
		return cmp.Or(cmp.Compare(b.Pool.Bits(), a.Pool.Bits()), a.Pool.Compare(b.Pool))
	})
	if !slices.ContainsFunc(all, func(t Tunnel) bool { return t.Device != "" }) {
		return nil
	}
	return all
}
