package bgp

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"heddle/internal/bgp/plan"
	"heddle/internal/hostnet"
)

// target is the kernel's main table for the reconciler: the speaker's routes by destination.
type target struct{ net *hostnet.Linux }

func (t target) Found(context.Context) (map[string]hostnet.OwnedRoute, error) {
	all, err := t.net.OwnedRoutes(owner())
	found := make(map[string]hostnet.OwnedRoute, len(all))
	for _, r := range all {
		found[r.Dst.String()] = r
	}
	return found, err
}

func (t target) Set(_ context.Context, _ string, r hostnet.OwnedRoute) error {
	return t.net.SetOwned(owner(), r)
}

func (t target) Delete(_ context.Context, dst string) error {
	prefix, err := netip.ParsePrefix(dst)
	if err != nil {
		return err
	}
	return t.net.DeleteOwned(owner(), prefix)
}

// kernelEvents takes an event in, with those that wait behind it.
func (a *Agent) kernelEvents(e hostnet.TableEvent, more <-chan hostnet.TableEvent, changed map[netip.Prefix]bool) error {
	look, lost := false, false // whether other ways may lead to the next hops; whether routes may have gone without a word
	for n := 0; ; n++ {
		lost = lost || e.Lost || e.Link != "" && !e.Up && a.table.uses(e.LinkIndex)
		look = a.kernelEvent(e, changed) || look
		if n == batch {
			break
		}
		var ok bool
		select {
		case e, ok = <-more:
		default:
		}
		if !ok {
			break
		}
	}
	if lost {
		return a.reread(changed)
	}
	if look {
		a.lookAround(changed)
	}
	return nil
}

// kernelEvent takes one event in and says whether other ways may lead to the next hops now.
func (a *Agent) kernelEvent(e hostnet.TableEvent, changed map[netip.Prefix]bool) (look bool) {
	switch {
	case e.Lost:
		return false
	case e.Link != "":
		a.table.set(e)
		return a.linkChanged(e.Link)
	case e.Route.Protocol == hostnet.ProtocolBGP:
		if e.Removed && a.routes.InPlace(e.Route.Dst.String()) {
			a.routes.Sweep() // somebody else has removed it
		}
		return !e.Removed && len(a.unreachable) > 0
	}
	dst, ok := a.table.set(e)
	if ok {
		changed[dst] = true
	}
	return ok
}

// linkChanged tries routes over a link again, as the kernel drops them in silence when a link goes down, and says
// whether next hops were reached over it.
func (a *Agent) linkChanged(link string) (used bool) {
	for _, way := range a.hops {
		used = used || way.Link == link
	}
	if used || a.plan != nil && slices.ContainsFunc(a.plan.Tunnels, func(t plan.Tunnel) bool { return t.Device == link }) {
		a.routes.KickAll()
	}
	return used
}

// reread reads the kernel's table anew.
func (a *Agent) reread(changed map[netip.Prefix]bool) error {
	links, err := a.net.Links()
	if err != nil {
		return err
	}
	all, err := a.net.Table()
	if err != nil {
		return err
	}
	for dst := range a.table.replace(links, all) {
		changed[dst] = true
	}
	a.lookAround(changed)
	return nil
}

// lookAround looks up the ways to all next hops again, and marks what is reached by one whose way has changed.
func (a *Agent) lookAround(changed map[netip.Prefix]bool) {
	before := a.hops
	a.hops = map[netip.Addr]hostnet.Path{}
	moved := map[netip.Addr]bool{}
	for hop, way := range before {
		if a.way(hop) != way {
			moved[hop] = true
		}
	}
	if len(moved) == 0 {
		return
	}
	for dst, h := range a.learned {
		if slices.ContainsFunc(h.hops, func(hop netip.Addr) bool { return moved[hop] }) {
			changed[dst] = true
		}
	}
}

// way is how the kernel reaches a next hop; the zero Path when it does not.
func (a *Agent) way(hop netip.Addr) hostnet.Path {
	way, known := a.hops[hop]
	if known {
		return way
	}
	found, err := a.net.RouteTo(hop)
	if err == nil && !found.Local {
		way = hostnet.Path{Gateway: found.NextHop, Link: found.Link.Name}
		delete(a.unreachable, hop)
	} else if !a.unreachable[hop] {
		a.unreachable[hop] = true
		a.log.Warn("no way to a next hop: its routes are not used", "hop", hop, "err", err)
	}
	a.hops[hop] = way
	return way
}

// exports are the destinations that the speaker shall know as this host's own, with true, and those that it knows and
// shall not, with false.
func (a *Agent) exports() map[netip.Prefix]bool {
	all := map[netip.Prefix]bool{}
	for dst := range a.speaker.announced {
		all[dst] = false
	}
	for dst := range a.blocks {
		all[dst] = true
	}
	for dst := range a.table.routes {
		if a.exported(dst) {
			all[dst] = true
		}
	}
	return all
}

// exported says whether the speaker shall know a destination as this host's own: its blocks, and what it has on its
// links as far as the export filter lets it out.
func (a *Agent) exported(dst netip.Prefix) bool {
	return a.blocks[dst] || a.plan.Exports(dst) && a.table.local(dst, a.plan)
}

// settle brings exports and the kernel in step for the destinations that may have changed, and empties the set.
func (a *Agent) settle(changed map[netip.Prefix]bool) {
	if a.plan == nil || len(changed) == 0 {
		return // with the first plan all is announced, and what is wanted of the kernel depends on it
	}
	exports := make(map[netip.Prefix]bool, len(changed))
	for dst := range changed {
		exports[dst] = a.exported(dst)
		if r, ok := a.route(dst); ok {
			a.routes.Want(dst.String(), r)
		} else {
			a.routes.Unwant(dst.String())
		}
	}
	clear(changed)
	if a.speaker.server == nil {
		return // all is announced when it starts
	}
	if err := errors.Join(a.speaker.announce(exports), a.speaker.withdraw(exports)); err != nil {
		a.fail("announce", err)
		a.behind = true
	}
}

// route is what the kernel shall have for a destination; false for nothing. A destination that somebody else routes is
// left to him.
func (a *Agent) route(dst netip.Prefix) (hostnet.OwnedRoute, bool) {
	r := hostnet.OwnedRoute{Dst: dst}
	if a.blocks[dst] {
		return r, true
	}
	h, ok := a.learned[dst]
	if !ok || a.table.taken(dst) {
		return r, false
	}
	for _, hop := range h.hops {
		if device := a.plan.Device(dst, hop); device != "" {
			r.Paths = append(r.Paths, hostnet.Path{Gateway: hop, Link: device, OnLink: true})
		} else if way := a.way(hop); way.Link != "" && !slices.Contains(r.Paths, way) {
			r.Paths = append(r.Paths, way)
		}
	}
	return r, len(r.Paths) > 0
}

// Cleanup takes away all routes that an agent has put into the kernel of this network namespace. No agent may run.
func Cleanup() error {
	ns, err := hostnet.CurrentNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	net, err := hostnet.NewLinux(ns)
	if err != nil {
		return err
	}
	defer net.Close()
	all, err := net.OwnedRoutes(owner())
	errs := []error{err}
	for _, r := range all {
		errs = append(errs, net.DeleteOwned(owner(), r.Dst))
	}
	return errors.Join(errs...)
}
