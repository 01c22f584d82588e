package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/wireguard"
	"heddle/internal/task"
	"heddle/internal/topology/packet"
)

// paths is the part of the datapath that the underlay uses.
type paths interface {
	AttachUnderlay(ifname string, locals ...netip.Addr) error
	DetachUnderlay(ifindex int) error
	Underlays() []int
	SetTunnel(datapath.TunnelPath) (datapath.Tunnel, error)
	RemoveTunnel(remote netip.Addr) error
	Tunnels() map[datapath.Tunnel]datapath.TunnelPath
}

// underlay keeps the tunnels to the other hosts as the kernel's routes and neighbours have them:
// which link to leave by, which MAC to write. It watches both, and has the kernel confirm the
// neighbours in use, since frames that eBPF sends do not.
type underlay struct {
	net   hostnet.Net
	paths paths
	local netip.Addr // this host's tunnel address
	log   *slog.Logger
	found func()      // called when a tunnel is there that was not, or the MTU has changed
	crypt *encryption // nil: this host does not encrypt
	kick  task.Notice
	// unreachable is called with whether no interface has the local address; nil: nothing is.
	unreachable func(bool)

	mu       sync.Mutex
	wanted   map[netip.Addr]bool // remote hosts' tunnel addresses; nil while they are not known
	tunnels  map[netip.Addr]way
	attached hostnet.Link // the first link by which tunnels come in, whose MTU counts
	inward   map[int]bool // indexes of all of them
	outward  map[int]bool // indexes of the links by which tunnels leave
	routed   bool         // the local address is on the loopback
	missing  bool         // no interface has the local address
	mtu      int          // of the link with the local address, bytes
	problem  map[netip.Addr]*problem
}

// problem is an address to which there is no way.
type problem struct {
	since  time.Time
	logged string // the error in the log
}

// way is a tunnel that is in place.
type way struct {
	number datapath.Tunnel
	path   datapath.TunnelPath
}

const (
	// confirmEvery is the interval at which the kernel confirms the tunnels' neighbours.
	confirmEvery = 10 * time.Second
	// settle is the time for which changes of routes and links are gathered before a pass.
	settle = 5 * time.Millisecond
	// noWayAfter is the time without a path that is not logged yet: finding a MAC takes a moment.
	noWayAfter = 3 * time.Second
)

func newUnderlay(n hostnet.Net, p paths, local netip.Addr, found func(), log *slog.Logger) *underlay {
	u := &underlay{net: n, paths: p, local: local, log: log, found: found, kick: task.NewNotice(),
		tunnels: map[netip.Addr]way{}, outward: map[int]bool{}, inward: map[int]bool{}, problem: map[netip.Addr]*problem{}}
	for number, path := range p.Tunnels() {
		u.tunnels[path.Remote] = way{number: number, path: path}
	}
	return u
}

// Want replaces the remote tunnel addresses to be reached; tunnels to others are removed.
func (u *underlay) Want(remotes map[netip.Addr]bool) {
	u.mu.Lock()
	same := u.wanted != nil && maps.Equal(u.wanted, remotes)
	u.wanted = remotes
	u.mu.Unlock()
	if !same {
		u.wake()
	}
}

func (u *underlay) locked(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f()
}

func (u *underlay) wake() { u.kick.Give() }

// Tunnel returns the tunnel to a remote address, if there is a way to it.
func (u *underlay) Tunnel(remote netip.Addr) (datapath.Tunnel, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w, ok := u.tunnels[remote]
	return w.number, ok
}

// fits is the largest IP packet of a workload that a tunnel carries, in bytes.
func (u *underlay) fits(t datapath.Tunnel) (mtu int, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, w := range u.tunnels {
		if w.number == t {
			return w.path.MTU - datapath.Overhead, true
		}
	}
	return 0, false
}

// uses reports whether tunnels go through the link.
func (u *underlay) uses(link hostnet.Link) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.inward[link.Index] || u.outward[link.Index]
}

// count returns the number of hosts reached.
func (u *underlay) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.tunnels)
}

// MTU returns that of the underlay in bytes, less the overhead of encryption; 0 while unknown.
func (u *underlay) MTU() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.crypt != nil && u.mtu != 0 {
		return u.mtu - wireguard.Overhead
	}
	return u.mtu
}

// Run keeps the ways until ctx ends. ready is called once after the first pass.
func (u *underlay) Run(ctx context.Context, ready func()) error {
	events, err := u.net.Watch(ctx)
	if err != nil {
		return err
	}
	u.pass()
	ready()
	confirm := time.Tick(confirmEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events:
			if !ok {
				if ctx.Err() != nil {
					return nil
				}
				return errors.New("the watch of links, routes and neighbours has ended")
			}
			if !u.concerns(e) {
				continue
			}
			task.Pause(ctx, settle)
			u.skip(events)
		case <-u.kick:
		case <-confirm:
		}
		u.pass()
	}
}

// concerns reports whether an event may change a path, unlike those of workloads coming and going.
func (u *underlay) concerns(e hostnet.Event) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch e.Kind {
	case hostnet.LinkSet, hostnet.LinkGone:
		return e.Link.Index == u.attached.Index || e.Link.Name == u.attached.Name || u.outward[e.Link.Index]
	case hostnet.NeighbourSet, hostnet.NeighbourGone:
		return u.outward[e.LinkIndex]
	}
	return true
}

// skip reads what else has come.
func (u *underlay) skip(events <-chan hostnet.Event) {
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		default:
			return
		}
	}
}

// pass looks up every way and puts it in place.
func (u *underlay) pass() {
	u.mu.Lock()
	wanted := maps.Clone(u.wanted)
	clear(u.outward)
	u.mu.Unlock()

	link, err := u.checkLocal()
	if err == nil {
		err = u.attachLocal(link)
	}
	if !errors.Is(err, hostnet.ErrNotFound) { // that is logged already
		u.report(u.local, err)
	}
	neighbours, err := u.neighbours()
	if err != nil {
		u.log.Warn("cannot read neighbours, will try again", "err", err)
		return
	}
	for remote := range wanted {
		u.report(remote, u.find(remote, neighbours))
	}
	if wanted != nil {
		u.removeOthers(wanted)
		u.detachOthers()
	}
}

// detachOthers detaches from links that no tunnel uses any more.
func (u *underlay) detachOthers() {
	u.mu.Lock()
	first, outward := u.attached.Index, maps.Clone(u.outward)
	u.mu.Unlock()
	if first == 0 {
		return // what an earlier agent attached is all there is
	}
	for _, i := range u.paths.Underlays() {
		if i == first || outward[i] {
			continue
		}
		if err := u.paths.DetachUnderlay(i); err != nil {
			u.log.Warn("cannot detach from an underlay interface, will try again", "index", i, "err", err)
			continue
		}
		u.locked(func() { delete(u.inward, i) })
	}
}

// removeOthers takes tunnels away that are not wanted.
func (u *underlay) removeOthers(wanted map[netip.Addr]bool) {
	u.mu.Lock()
	var gone []netip.Addr
	for remote := range u.tunnels {
		if !wanted[remote] {
			gone = append(gone, remote)
		}
	}
	u.mu.Unlock()
	for _, remote := range gone {
		if err := u.remove(remote); err != nil {
			u.log.Warn("cannot remove tunnel, will try again", "remote", remote, "err", err)
			continue
		}
		u.locked(func() { delete(u.problem, remote) })
	}
}

// remove takes the tunnel to a host away, if there is one.
func (u *underlay) remove(remote netip.Addr) error {
	if err := u.paths.RemoveTunnel(remote); err != nil {
		return err
	}
	u.locked(func() { delete(u.tunnels, remote) })
	return nil
}

// report logs when the way to an address is lost, once that has lasted, and when it is found again.
func (u *underlay) report(remote netip.Addr, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.problem[remote]
	switch {
	case err == nil && p == nil:
	case err == nil:
		delete(u.problem, remote)
		if p.logged != "" {
			u.log.Info("found path to host", "remote", remote)
		}
	case p == nil:
		u.problem[remote] = &problem{since: time.Now()}
	case p.logged != err.Error() && time.Since(p.since) > noWayAfter:
		p.logged = err.Error()
		u.log.Warn("no path to host", "remote", remote, "err", err)
	}
}

// checkLocal returns the link that has the local address, and logs and tells when none has, and
// when one has again.
func (u *underlay) checkLocal() (hostnet.Link, error) {
	link, err := u.net.LinkWith(u.local)
	missing := errors.Is(err, hostnet.ErrNotFound)
	u.mu.Lock()
	changed := u.missing != missing && (missing || err == nil)
	if changed {
		u.missing = missing
	}
	u.mu.Unlock()
	if !changed {
		return link, err
	}
	if missing {
		u.log.Warn("other hosts do not reach this one", "err", mendAddress(u.local))
	} else {
		u.log.Info("an interface has the tunnel address now", "address", u.local, "interface", link.Name)
	}
	if u.unreachable != nil {
		u.unreachable(missing)
	}
	return link, err
}

// missingAddress returns what is wrong while no interface has a tunnel address.
func missingAddress(ip netip.Addr) string {
	return fmt.Sprintf("no interface of this host has the tunnel address %s", ip)
}

// mendAddress returns what is wrong and to be done while no interface has a tunnel address.
func mendAddress(ip netip.Addr) string {
	return missingAddress(ip) + ": give it to one, or with --tunnel-ip name an address that an interface has"
}

// attachLocal accepts tunnels on the link with the local address. With a routed underlay that
// is the loopback, and tunnels come in by the links that lead to other hosts; see find.
func (u *underlay) attachLocal(link hostnet.Link) error {
	u.locked(func() { u.routed = link.Kind == hostnet.Loopback })
	if link.Kind == hostnet.Loopback {
		return nil
	}
	return u.attach(link, true)
}

// attach accepts tunnels on a link. The first link's MTU is that of the underlay.
func (u *underlay) attach(link hostnet.Link, first bool) error {
	u.mu.Lock()
	first = first || u.attached.Index == 0 || u.attached.Index == link.Index
	same := u.inward[link.Index]
	narrowed := first && u.mtu != link.MTU
	if first {
		u.mtu = link.MTU
	}
	u.mu.Unlock()
	if narrowed {
		u.found()
	}
	if !same {
		if err := u.paths.AttachUnderlay(link.Name, u.local); err != nil {
			return fmt.Errorf("attach to underlay interface %s: %w", link.Name, err)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inward[link.Index] = true
	if first {
		u.attached = link
	}
	return nil
}

type hopKey struct {
	link string
	ip   netip.Addr
}

func (u *underlay) neighbours() (map[hopKey]hostnet.Neighbour, error) {
	list, err := u.net.Neighbours()
	if err != nil {
		return nil, err
	}
	all := make(map[hopKey]hostnet.Neighbour, len(list))
	for _, n := range list {
		all[hopKey{n.Link, n.IP}] = n
	}
	return all, nil
}

// pathTo is the path of the tunnel to remote, which the kernel sends to by hop.
func (u *underlay) pathTo(remote netip.Addr, hop hostnet.Hop, neighbours map[hopKey]hostnet.Neighbour) (p datapath.TunnelPath, err error) {
	p = datapath.TunnelPath{Interface: hop.Link.Index, Local: u.local, Remote: remote, MTU: hop.MTU}
	if u.crypt != nil {
		device, err := u.crypt.to(remote)
		if err != nil { // a way in the clear must not stay
			return p, errors.Join(err, u.remove(remote))
		}
		if device != 0 {
			p.Interface, p.MTU = device, hop.MTU-wireguard.Overhead
			return p, nil
		}
	}
	if err := u.net.Probe(hop.Link.Name, hop.NextHop); err != nil {
		return p, err
	}
	n, known := neighbours[hopKey{hop.Link.Name, hop.NextHop}]
	if !known || !n.Usable() {
		return p, fmt.Errorf("nobody answers for %s on %s yet", hop.NextHop, hop.Link.Name)
	}
	p.SrcMAC, p.DstMAC = packet.MAC(hop.Link.MAC), packet.MAC(n.MAC)
	return p, nil
}

// find puts the tunnel to remote in place. A known path stays until a better one is found: a
// neighbour that is being confirmed is still used.
func (u *underlay) find(remote netip.Addr, neighbours map[hopKey]hostnet.Neighbour) error {
	if !remote.Is4() {
		return fmt.Errorf("tunnel address %s is not IPv4", remote)
	}
	hop, err := u.net.RouteTo(remote)
	if err != nil {
		return err
	}
	if hop.Local {
		return fmt.Errorf("tunnel address %s of another host is this host's own", remote)
	}
	u.mu.Lock()
	routed := u.routed
	u.mu.Unlock()
	inward := []hostnet.Link{hop.Link}
	if routed { // what the other host sends may come by any of several next hops
		links, err := u.net.LinksTo(remote)
		if err != nil {
			return err
		}
		inward = append(inward, links...)
	}
	for _, link := range inward {
		u.locked(func() { u.outward[link.Index] = true })
		if err := u.attach(link, false); err != nil {
			return err
		}
	}
	path, err := u.pathTo(remote, hop, neighbours)
	if err != nil {
		return err
	}
	u.mu.Lock()
	old, there := u.tunnels[remote]
	u.mu.Unlock()
	if there && old.path == path {
		return nil
	}
	number, err := u.paths.SetTunnel(path)
	if err != nil {
		return err
	}
	u.locked(func() { u.tunnels[remote] = way{number: number, path: path} })
	if !there {
		u.found()
	}
	return nil
}
