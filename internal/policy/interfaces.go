package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"heddle/calico"
	"heddle/internal/hostnet"
	"heddle/internal/reconcile"
)

// RouteProtocol marks the routes of this agent in the kernel.
const RouteProtocol = 79

// grace is the time for which a new interface keeps unexplained routes, which its maker may have
// prepared (spec §8.3).
const grace = 10 * time.Second

// interfaces wires the interfaces of workloads. It is the target of a reconciler whose items are
// interfaces by name. Its methods are for the goroutine of the loop.
type interfaces struct {
	net  hostnet.Net
	log  *slog.Logger
	now  func() time.Time
	host *core // read only

	touched bool // something was tried since this was last cleared
	states  map[string]*interfaceState
}

// interfaceState is the state of an interface as far as known.
type interfaceState struct {
	index   int             // of the link: another one of the same name has nothing
	placed  *wiring         // nil: nothing was put in place
	strange []hostnet.Route // routes that no endpoint explains
}

func newInterfaces(n hostnet.Net, host *core, now func() time.Time, log *slog.Logger) *interfaces {
	return &interfaces{net: n, log: log, now: now, host: host, states: map[string]*interfaceState{}}
}

// reconciler returns the reconciler that keeps the interfaces wired.
func (i *interfaces) reconciler() *reconcile.Reconciler[string, wiring] {
	return reconcile.New(reconcile.Options[string, wiring]{Name: "interfaces", Target: i, Equal: wiring.inPlace,
		SweepEvery: 24 * time.Hour, Log: i.log, Now: i.now})
}

// state returns the state of the interface of that name, which is empty if there is none.
func (i *interfaces) state(name string) *interfaceState {
	d := i.host.device(name)
	if d == nil {
		delete(i.states, name)
		return &interfaceState{}
	}
	s := i.states[name]
	if s == nil || s.index != d.Index {
		s = &interfaceState{index: d.Index}
		i.states[name] = s
	}
	return s
}

func (s *interfaceState) wiring() wiring {
	if s.placed == nil {
		return wiring{}
	}
	return *s.placed
}

// Set wires an interface.
func (i *interfaces) Set(_ context.Context, name string, w wiring) error {
	i.touched = true
	d := i.host.device(name)
	switch {
	case d == nil:
		return fmt.Errorf("interface %s is not there: %w", name, reconcile.ErrWait)
	case !d.Up:
		return fmt.Errorf("interface %s is down: %w", name, reconcile.ErrWait)
	}
	err := i.wire(name, w)
	if errors.Is(err, hostnet.ErrNotFound) || errors.Is(err, hostnet.ErrUnreachable) {
		return fmt.Errorf("%w: %w", reconcile.ErrWait, err) // it went away meanwhile; an event follows
	}
	return err
}

func (i *interfaces) wire(name string, w wiring) error {
	errs := []error{i.configure(name)}
	for _, a := range w.Routed {
		errs = append(errs, i.net.SetRoute(hostnet.Route{Dst: host(a), Link: name, Protocol: RouteProtocol}))
	}
	if w.MAC != nil {
		for _, a := range w.Own {
			errs = append(errs, i.net.SetNeighbour(name, a, hostnet.MAC(*w.MAC)))
		}
	}
	if w.Gateway.IsValid() {
		errs = append(errs, i.net.SetProxy(hostnet.Proxy{Link: name, IP: w.Gateway}))
	}
	s := i.state(name)
	errs = append(errs, i.unwire(name, s.wiring(), w))
	s.placed = &w
	return errors.Join(append(errs, i.removeStrange(name, s, w))...)
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// parameters returns the kernel parameters of a workload's interface by IP version (spec §8.2).
func parameters(name string) (ipv4, ipv6 []hostnet.Setting) {
	return []hostnet.Setting{
			{Name: "ipv4/conf/" + name + "/rp_filter", Value: "1"},
			{Name: "ipv4/conf/" + name + "/route_localnet", Value: "1"},
			{Name: "ipv4/conf/" + name + "/proxy_arp", Value: "1"},
			{Name: "ipv4/neigh/" + name + "/proxy_delay", Value: "0"},
			{Name: "ipv4/conf/" + name + "/forwarding", Value: "1"},
		}, []hostnet.Setting{
			{Name: "ipv6/conf/" + name + "/proxy_ndp", Value: "1"},
			{Name: "ipv6/conf/" + name + "/forwarding", Value: "1"},
		}
}

// configure sets the parameters of an interface. A kernel without IPv6 has only some of them.
func (i *interfaces) configure(name string) error {
	ipv4, ipv6 := parameters(name)
	if err := i.net.Set(ipv4...); err != nil || !i.host.hasIPv6() {
		return err
	}
	if err := i.net.Set(ipv6...); !errors.Is(err, hostnet.ErrNotFound) {
		return err
	}
	return nil
}

// isMisconfigured reports whether a parameter of an interface is there with another value.
func (i *interfaces) isMisconfigured(name string) bool {
	all, ipv6 := parameters(name)
	if i.host.hasIPv6() {
		all = append(all, ipv6...)
	}
	return slices.ContainsFunc(all, func(s hostnet.Setting) bool {
		value, err := i.net.Setting(s.Name)
		return err == nil && value != s.Value
	})
}

// unwire removes what an interface has by old and not by w.
func (i *interfaces) unwire(name string, old, w wiring) error {
	var errs []error
	for _, a := range subtract(old.Routed, w.Routed) {
		errs = append(errs, i.net.DeleteRouteOf(hostnet.Route{Dst: host(a), Link: name}))
	}
	if old.MAC != nil {
		for _, a := range old.Own {
			if w.MAC == nil || !w.owns(a) {
				errs = append(errs, i.net.DeleteNeighbour(name, a))
			}
		}
	}
	if old.Gateway.IsValid() && old.Gateway != w.Gateway {
		errs = append(errs, i.net.DeleteProxy(hostnet.Proxy{Link: name, IP: old.Gateway}))
	}
	return errors.Join(errs...)
}

// removeStrange removes unexplained routes. Those of an earlier run of the agent go at once, with
// the connections of their addresses; others go when the interface is no longer new.
func (i *interfaces) removeStrange(name string, s *interfaceState, w wiring) error {
	var errs []error
	var left []netip.Addr
	isNew := i.isNew(name)
	s.strange = slices.DeleteFunc(s.strange, func(r hostnet.Route) bool {
		switch {
		case w.routes(r.Dst):
			return true
		case r.Protocol == RouteProtocol:
			left = append(left, r.Dst.Addr())
		case isNew:
			return false
		default:
			i.log.Info("removing a route that no endpoint explains", "interface", name, "to", r.Dst)
		}
		errs = append(errs, i.net.DeleteRouteOf(hostnet.Route{Dst: r.Dst, Link: name}))
		return true
	})
	if len(left) > 0 {
		errs = append(errs, i.net.ForgetConnections(left...))
	}
	return errors.Join(errs...)
}

// isNew reports whether an interface may still have routes that its maker has prepared.
func (i *interfaces) isNew(name string) bool {
	d := i.host.device(name)
	return d != nil && i.now().Sub(d.since) < grace
}

func (i *interfaces) noteStrange(r hostnet.Route) {
	s := i.state(r.Link)
	s.strange = append(s.strange, r)
}

// Release removes what an interface has and w lacks, before policy or another interface changes.
func (i *interfaces) Release(name string, w wiring) error {
	s := i.state(name)
	if s.placed == nil {
		return nil
	}
	err := i.unwire(name, *s.placed, w)
	if err == nil {
		stays := s.placed.common(w)
		s.placed = &stays
	}
	return err
}

// Delete removes all that a workload's interface has. From an interface that is no longer a
// workload's, it removes only our routes.
func (i *interfaces) Delete(_ context.Context, name string) error {
	i.touched = true
	s := i.state(name)
	if i.host.device(name) == nil {
		return nil
	}
	if !i.host.isOurs(name) {
		s.placed = nil
		s.strange = slices.DeleteFunc(s.strange, func(r hostnet.Route) bool { return r.Protocol != RouteProtocol })
		return i.removeStrange(name, s, wiring{})
	}
	err := errors.Join(i.unwire(name, s.wiring(), wiring{}), i.removeStrange(name, s, wiring{}))
	if err == nil {
		s.placed = nil
	}
	return err
}

// Found reads what the interfaces of workloads have, and changes nothing in the kernel. What it
// finds counts as put in place, so that Set and Delete remove what should not be there.
func (i *interfaces) Found(context.Context) (map[string]wiring, error) {
	routes, err := i.net.Routes()
	if err != nil {
		return nil, err
	}
	neighbours, err := i.net.Neighbours()
	if err != nil {
		return nil, err
	}
	proxies, err := i.net.Proxies()
	if err != nil {
		return nil, err
	}
	found := map[string]*wiring{}
	of := func(name string) *wiring {
		if found[name] == nil {
			found[name] = &wiring{observed: &observation{}}
		}
		return found[name]
	}
	for name, s := range i.states {
		s.strange = nil
		if i.state(name).placed != nil {
			of(name).observed.misconfigured = i.isMisconfigured(name)
		}
	}
	for _, r := range routes {
		if r.Link != "" && (r.Protocol == RouteProtocol || i.host.isOurs(r.Link)) {
			i.addRoute(of(r.Link), r)
		}
	}
	for _, n := range neighbours {
		if n.Permanent && n.IP.Is4() && i.host.isOurs(n.Link) {
			w, mac := of(n.Link), calico.MAC(n.MAC)
			w.Own, w.MAC = append(w.Own, n.IP), &mac
		}
	}
	for _, p := range proxies {
		if i.host.isOurs(p.Link) {
			of(p.Link).Gateway = p.IP
		}
	}
	all := make(map[string]wiring, len(found))
	for name, w := range found {
		all[name] = *w
		i.state(name).note(*w)
	}
	return all, nil
}

// addRoute adds a route to what was found of its interface.
func (i *interfaces) addRoute(w *wiring, r hostnet.Route) {
	s, ours := i.state(r.Link), r.Protocol == RouteProtocol
	if s.wiring().routes(r.Dst) {
		if ours {
			w.Routed = append(w.Routed, r.Dst.Addr())
		}
		return
	}
	s.strange = append(s.strange, r)
	if ours || !i.isNew(r.Link) {
		w.observed.strangeRoutes++
	}
}

// note records neighbours and proxies that are there as put in place.
func (s *interfaceState) note(found wiring) {
	p := s.wiring()
	p.Own = slices.Concat(p.Own, subtract(found.Own, p.Own))
	if p.MAC == nil {
		p.MAC = found.MAC
	}
	if found.Gateway.IsValid() {
		p.Gateway = found.Gateway
	}
	s.placed = &p
}
