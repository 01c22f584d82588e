package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"heddle/calico"
	"heddle/internal/hostnet"
	"heddle/internal/reconcile"
)

// RouteProtocol marks the routes of this agent in the kernel, so that they can be told from everybody else's.
const RouteProtocol = 79

// grace is how long a workload's interface keeps routes that nobody here asked for after it has appeared: who made it may
// have prepared them (spec §8.3).
const grace = 10 * time.Second

// wiring is what the interface of an active workload is to have.
type wiring struct {
	MAC     *calico.MAC  // of the workload: its IPv4 addresses get permanent neighbour entries
	Routed  []netip.Addr // in order: its own and its floating addresses
	Own     []netip.Addr // in order: its own IPv4 addresses
	Gateway netip.Addr   // IPv6 address for which the host answers, if valid
	found   bool         // it was read, not asked for
	strange int          // routes to be rid of, of what is found
}

// wiringOf says what a workload's interface is to have; the zero wiring where it is inactive.
func wiringOf(ep *calico.WorkloadEndpoint, ipv6 bool) wiring {
	w := wiring{}
	if ep.State != calico.Active {
		return w
	}
	routed := map[netip.Addr]bool{}
	for _, n := range ep.IPv4Nets {
		routed[n.Addr()] = true
		w.Own = append(w.Own, n.Addr())
	}
	for _, n := range ep.IPv4NAT {
		routed[n.ExtIP] = true
	}
	if ipv6 {
		for _, n := range ep.IPv6Nets {
			routed[n.Addr()] = true
		}
		for _, n := range ep.IPv6NAT {
			routed[n.ExtIP] = true
		}
		w.Gateway = ep.IPv6Gateway
	}
	w.Routed = slices.SortedFunc(maps.Keys(routed), netip.Addr.Compare)
	slices.SortFunc(w.Own, netip.Addr.Compare)
	w.MAC = ep.MAC
	return w
}

// equal says whether two wirings are the same.
func (w wiring) equal(o wiring) bool {
	return w.strange == o.strange && slices.Equal(w.Routed, o.Routed) && slices.Equal(w.Own, o.Own) && w.Gateway == o.Gateway &&
		(w.MAC == nil) == (o.MAC == nil) && (w.MAC == nil || *w.MAC == *o.MAC)
}

// interfaces keeps the interfaces of workloads wired. It is the target of a reconciler whose items are interfaces by
// name, and belongs to the goroutine that makes the passes.
type interfaces struct {
	net  hostnet.Net
	log  *slog.Logger
	ipv6 bool
	now  func() time.Time
	// mine says whether an interface is a workload's and not somebody else's.
	mine func(name string) bool

	touched bool                       // something was tried since this was last asked
	devices map[string]*device         // all that there are, by name; shared with the agent
	since   map[string]time.Time       // when an interface appeared
	placed  map[string]wiring          // what was last put in place
	strange map[string][]hostnet.Route // routes that nobody here asked for, as last read
}

func newInterfaces(n hostnet.Net, devices map[string]*device, mine func(string) bool, now func() time.Time, log *slog.Logger) *interfaces {
	return &interfaces{net: n, log: log, now: now, mine: mine, devices: devices, ipv6: true, since: map[string]time.Time{},
		placed: map[string]wiring{}, strange: map[string][]hostnet.Route{}}
}

// reconciler makes the reconciler that keeps the interfaces.
func (i *interfaces) reconciler() *reconcile.Reconciler[string, wiring] {
	return reconcile.New(reconcile.Options[string, wiring]{Name: "interfaces", Target: i, Equal: i.inPlace, SweepEvery: 24 * time.Hour, Log: i.log, Now: i.now})
}

// appeared notes an interface that was not there, or that is another one of the same name.
func (i *interfaces) appeared(name string) {
	i.since[name] = i.now()
	delete(i.placed, name)
	delete(i.strange, name)
}

// gone forgets an interface: the kernel has taken all it had.
func (i *interfaces) gone(name string) {
	delete(i.since, name)
	delete(i.placed, name)
	delete(i.strange, name)
}

// Set wires an interface.
func (i *interfaces) Set(_ context.Context, name string, w wiring) error {
	i.touched = true
	d := i.devices[name]
	switch {
	case d == nil:
		return fmt.Errorf("interface %s is not there: %w", name, reconcile.ErrWait)
	case !d.Up:
		return fmt.Errorf("interface %s is down: %w", name, reconcile.ErrWait)
	}
	if err := i.wire(name, w); err != nil {
		if errors.Is(err, hostnet.ErrNotFound) || errors.Is(err, hostnet.ErrUnreachable) {
			return fmt.Errorf("%w: %w", reconcile.ErrWait, err) // it went away meanwhile; an event follows
		}
		return err
	}
	return nil
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
	if old, ok := i.placed[name]; ok {
		errs = append(errs, i.unwire(name, old, w))
	}
	i.placed[name] = w
	errs = append(errs, i.tidy(name, w))
	return errors.Join(errs...)
}

// host is the prefix of one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// configure sets the kernel's parameters of a workload's interface (spec §8.2).
func (i *interfaces) configure(name string) error {
	err := i.net.Set(
		hostnet.Setting{Name: "ipv4/conf/" + name + "/rp_filter", Value: "1"},
		hostnet.Setting{Name: "ipv4/conf/" + name + "/route_localnet", Value: "1"},
		hostnet.Setting{Name: "ipv4/conf/" + name + "/proxy_arp", Value: "1"},
		hostnet.Setting{Name: "ipv4/neigh/" + name + "/proxy_delay", Value: "0"},
		hostnet.Setting{Name: "ipv4/conf/" + name + "/forwarding", Value: "1"})
	if err != nil || !i.ipv6 {
		return err
	}
	err = i.net.Set(
		hostnet.Setting{Name: "ipv6/conf/" + name + "/proxy_ndp", Value: "1"},
		hostnet.Setting{Name: "ipv6/conf/" + name + "/forwarding", Value: "1"})
	if errors.Is(err, hostnet.ErrNotFound) {
		return nil // a kernel without IPv6, or it is off
	}
	return err
}

// unwire takes away what an interface has by old and not by w.
func (i *interfaces) unwire(name string, old, w wiring) error {
	var errs []error
	for _, a := range old.Routed {
		if !slices.Contains(w.Routed, a) {
			errs = append(errs, i.net.DeleteRouteOf(hostnet.Route{Dst: host(a), Link: name}))
		}
	}
	if old.MAC != nil {
		for _, a := range old.Own {
			if w.MAC == nil || !slices.Contains(w.Own, a) {
				errs = append(errs, i.net.DeleteNeighbour(name, a))
			}
		}
	}
	if old.Gateway.IsValid() && old.Gateway != w.Gateway {
		errs = append(errs, i.net.DeleteProxy(hostnet.Proxy{Link: name, IP: old.Gateway}))
	}
	return errors.Join(errs...)
}

// tidy removes the routes that nobody asks for. Those of an earlier life go at once, with the connections of addresses
// that have left meanwhile; somebody else's when the interface is no longer new.
func (i *interfaces) tidy(name string, w wiring) error {
	var errs []error
	var left []netip.Addr
	young := i.now().Sub(i.since[name]) < grace
	i.strange[name] = slices.DeleteFunc(i.strange[name], func(r hostnet.Route) bool {
		switch {
		case w.routes(r.Dst):
			return true
		case r.Protocol != RouteProtocol && young:
			return false
		case r.Protocol == RouteProtocol:
			left = append(left, r.Dst.Addr())
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

// routes says whether a route to dst is wanted.
func (w wiring) routes(dst netip.Prefix) bool {
	return dst.IsSingleIP() && slices.Contains(w.Routed, dst.Addr())
}

// Release takes away at once what an interface has and will not have by w, before policy or another interface changes.
func (i *interfaces) Release(name string, w wiring) error {
	old, ok := i.placed[name]
	if !ok {
		return nil
	}
	err := i.unwire(name, old, w)
	if err == nil {
		i.placed[name] = old.common(w)
	}
	return err
}

// common is what stays of a wiring when another takes its place.
func (w wiring) common(next wiring) wiring {
	w.Routed, w.Own = both(w.Routed, next.Routed), both(w.Own, next.Own)
	if next.MAC == nil {
		w.MAC = nil
	}
	if w.Gateway != next.Gateway {
		w.Gateway = netip.Addr{}
	}
	return w
}

// both are the addresses in either list.
func both(a, b []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(x netip.Addr) bool { return !slices.Contains(b, x) })
}

// Delete takes away all that a workload's interface has.
func (i *interfaces) Delete(_ context.Context, name string) error {
	i.touched = true
	if i.devices[name] == nil {
		i.gone(name)
		return nil
	}
	if !i.mine(name) {
		return i.leave(name)
	}
	err := errors.Join(i.unwire(name, i.placed[name], wiring{}), i.tidy(name, wiring{}))
	if err == nil {
		delete(i.placed, name)
	}
	return err
}

// leave takes our routes from an interface that is somebody else's by now. What else is there may be his.
func (i *interfaces) leave(name string) error {
	delete(i.placed, name)
	i.strange[name] = slices.DeleteFunc(i.strange[name], func(r hostnet.Route) bool { return r.Protocol != RouteProtocol })
	return i.tidy(name, wiring{})
}

// Found reads what the interfaces of workloads have, and puts their parameters back: comparing those is all the work.
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
	found := map[string]wiring{}
	clear(i.strange)
	for _, r := range routes {
		if r.Link == "" || !i.mine(r.Link) && r.Protocol != RouteProtocol {
			continue
		}
		w := found[r.Link]
		switch {
		case i.placed[r.Link].routes(r.Dst):
			if r.Protocol == RouteProtocol {
				w.Routed = append(w.Routed, r.Dst.Addr())
			}
		default:
			i.strange[r.Link] = append(i.strange[r.Link], r)
			if r.Protocol == RouteProtocol || i.now().Sub(i.since[r.Link]) >= grace {
				w.strange++
			}
		}
		found[r.Link] = w
	}
	for _, n := range neighbours {
		if n.Permanent && n.IP.Is4() && i.mine(n.Link) {
			w, mac := found[n.Link], calico.MAC(n.MAC)
			w.Own, w.MAC = append(w.Own, n.IP), &mac
			found[n.Link] = w
		}
	}
	for _, p := range proxies {
		if i.mine(p.Link) {
			w := found[p.Link]
			w.Gateway = p.IP
			found[p.Link] = w
		}
	}
	for name := range i.placed {
		if _, ok := found[name]; !ok && i.devices[name] != nil {
			found[name] = wiring{}
		}
		if err := i.configure(name); err != nil && !errors.Is(err, hostnet.ErrNotFound) {
			i.log.Warn("cannot set the parameters of an interface", "interface", name, "err", err)
		}
	}
	for name, w := range found {
		i.remember(name, w)
		w.found = true
		found[name] = w
	}
	return found, nil
}

// remember notes neighbours and proxies that are there, so that those nobody wants are taken away.
func (i *interfaces) remember(name string, found wiring) {
	p := i.placed[name]
	for _, a := range found.Own {
		if !slices.Contains(p.Own, a) {
			p.Own = append(slices.Clone(p.Own), a)
		}
	}
	if p.MAC == nil {
		p.MAC = found.MAC
	}
	if found.Gateway.IsValid() {
		p.Gateway = found.Gateway
	}
	i.placed[name] = p
}

// inPlace says whether an interface has all it is to have, and nothing else that it should be rid of by now. Of two
// wirings that are asked for it says whether they are the same.
func (i *interfaces) inPlace(w, found wiring) bool {
	if !found.found {
		return w.equal(found)
	}
	slices.SortFunc(found.Routed, netip.Addr.Compare)
	slices.SortFunc(found.Own, netip.Addr.Compare)
	if w.MAC == nil {
		w.Own, found.Own, found.MAC = nil, nil, nil
	} else if len(w.Own) == 0 {
		w.MAC, found.MAC = nil, nil
	}
	return w.equal(found)
}
