package bgp

import (
	"context"
	"errors"
	"net/netip"

	"heddle/internal/hostnet"
)

// batch bounds how many events of the kernel are handled at once.
const batch = 1024

// target presents the kernel's main table to the reconciler: the speaker's routes by destination.
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

// kernelEvents handles an event of the kernel, and those that are queued behind it.
func (a *Agent) kernelEvents(e hostnet.TableEvent, more <-chan hostnet.TableEvent) error {
	lookUp, lost := false, false // routes may have gone without an event
	for n, ok := 0, true; ok && n <= batch; n++ {
		lost = lost || e.Lost || e.Link != "" && !e.Up && a.rib.table.uses(e.LinkIndex)
		used := a.rib.kernelEvent(e)
		switch {
		case e.Link != "" && (used || a.rib.isTunnel(e.Link)):
			a.routes.KickAll() // the kernel drops routes without an event when their link goes down
		case e.Removed && e.Route.Protocol == hostnet.ProtocolBGP && a.routes.InPlace(e.Route.Dst.String()):
			a.routes.Sweep() // another program has removed it
		}
		lookUp = lookUp || used
		select {
		case e, ok = <-more:
		default:
			ok = false
		}
	}
	if lost {
		return a.reread()
	}
	if lookUp {
		a.lookUpAll()
	}
	return nil
}

// reread reads the kernel's table as a whole.
func (a *Agent) reread() error {
	links, err := a.net.Links()
	if err != nil {
		return err
	}
	all, err := a.net.Table()
	if err != nil {
		return err
	}
	a.rib.setTable(links, all)
	a.lookUpAll()
	return nil
}

// lookUpAll looks up the ways to all known next hops again.
func (a *Agent) lookUpAll() {
	ways := make(map[netip.Addr]hostnet.Path, len(a.rib.ways))
	for hop := range a.rib.ways {
		ways[hop] = a.lookUp(hop)
	}
	a.rib.setWays(ways)
}

// lookUp asks the kernel for the way to a next hop; the zero Path when there is none.
func (a *Agent) lookUp(hop netip.Addr) hostnet.Path {
	found, err := a.net.RouteTo(hop)
	if err == nil && !found.Local {
		return hostnet.Path{Gateway: found.NextHop, Link: found.Link.Name}
	}
	if before, known := a.rib.ways[hop]; !known || before != (hostnet.Path{}) {
		a.log.Warn("no way to a next hop: its routes are not used", "hop", hop, "err", err)
	}
	return hostnet.Path{}
}

// settle has the speaker and the kernel follow what has changed.
func (a *Agent) settle() {
	ways := map[netip.Addr]hostnet.Path{}
	for _, hop := range a.rib.unresolved() {
		ways[hop] = a.lookUp(hop)
	}
	if len(ways) > 0 {
		a.rib.setWays(ways)
	}
	d := a.rib.settle()
	for _, r := range d.set {
		a.routes.Want(r.Dst.String(), r)
	}
	for _, dst := range d.unset {
		a.routes.Unwant(dst.String())
	}
	if a.rib.converged {
		a.routes.Complete() // only now: routes that are not wanted are swept
	}
	if a.speaker.server == nil {
		return // all is announced when it starts
	}
	if err := errors.Join(a.speaker.announce(d.exports), a.speaker.withdraw(d.exports)); err != nil {
		a.status.fail("announce", err)
		a.behind = true
	}
}

// Cleanup removes all routes that an agent has put into the kernel of this network namespace. No
// agent may run.
func Cleanup() error {
	net, err := hostnet.Here()
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
