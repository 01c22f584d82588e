package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Configuration is the desired state of a link for one IP version: these addresses and no others,
// and a default route by Gateway or, without one, no default route.
type Configuration struct {
	Family    int            // 4 or 6
	Addresses []netip.Prefix // IPv6 link-local addresses are not counted among them
	Gateway   netip.Addr
}

func (c Configuration) family() int {
	if c.Family == 6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// has reports whether address is one of the addresses.
func (c Configuration) has(address netip.Addr) bool {
	return slices.ContainsFunc(c.Addresses, func(p netip.Prefix) bool { return p.Addr() == address })
}

// Configure gives a link the addresses and the default route of c in place of its own, and verifies
// them. It adds new addresses before it deletes old ones, so that the host keeps its routes by the
// link and is never without an address. Routes that prefer a deleted address as their source prefer
// the new one after. On failure the link gets back its former state.
//
// lost are routes that went with the old addresses and that the new ones do not reach. undo
// restores the former state.
func (l *Linux) Configure(link string, c Configuration) (lost []Route, undo func() error, err error) {
	if c.Family != 4 && c.Family != 6 {
		return nil, nil, fmt.Errorf("configure link %s: IP version %d: %w", link, c.Family, ErrInvalid)
	}
	found, err := l.find(link)
	if err != nil {
		return nil, nil, err
	}
	before, err := l.readConfigured(found, c.family())
	if err != nil {
		return nil, nil, err
	}
	undo = func() error { return l.restoreConfigured(found, before) }
	if lost, err = l.configure(found, before, c); err != nil {
		if back := undo(); back != nil {
			return nil, nil, fmt.Errorf("configure link %s: %w; what it had before could not be restored: %w", link, err, back)
		}
		return nil, nil, fmt.Errorf("configure link %s: %w; it has what it had before", link, err)
	}
	return lost, undo, nil
}

// configured is the state of a link for one IP version, as the kernel spells it.
type configured struct {
	family    int
	up        bool
	addresses []netlink.Addr  // of the link, in the kernel's order
	routes    []netlink.Route // of all links and tables, without those that the kernel makes for addresses
}

func (l *Linux) readConfigured(link netlink.Link, family int) (c configured, err error) {
	c.family, c.up = family, link.Attrs().RawFlags&unix.IFF_UP != 0
	all, err := l.addresses(link, family)
	if err != nil {
		return c, wrap(err, "addresses of link %s", link.Attrs().Name)
	}
	for _, a := range all {
		if p, ok := prefixOf(a.IPNet); ok && !(p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()) {
			c.addresses = append(c.addresses, a)
		}
	}
	routes, err := listWhole(func() ([]netlink.Route, error) {
		return l.handle.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return c, wrap(err, "list routes")
	}
	for _, r := range routes {
		if r.Protocol != unix.RTPROT_KERNEL && r.Table != unix.RT_TABLE_LOCAL && r.Flags&unix.RTM_F_CLONED == 0 {
			c.routes = append(c.routes, r)
		}
	}
	return c, nil
}

// prefixes returns the link's addresses.
func (c configured) prefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, a := range c.addresses {
		p, _ := prefixOf(a.IPNet)
		all = append(all, p)
	}
	return all
}

func (l *Linux) configure(link netlink.Link, before configured, c Configuration) (lost []Route, err error) {
	name := link.Attrs().Name
	var want []netlink.Addr
	for _, p := range c.Addresses {
		want = append(want, *ownAddress(p))
	}
	if len(want) > 0 && !before.up {
		if err := l.SetUp(name, true); err != nil {
			return nil, err
		}
	}
	if err := l.replaceAddresses(link, c.family(), want); err != nil {
		return nil, err
	}
	if lost, err = l.returnRoutes(link, before, c); err != nil {
		return nil, err
	}
	if err := l.setDefaultRoute(link, c); err != nil {
		return nil, err
	}
	return lost, l.verify(link, c)
}

// replaceAddresses adds missing addresses, and then deletes others. Deleting an IPv4 address
// deletes all of its subnet that were added after it, unless the kernel is set to promote one of
// them: it is, and where that cannot be set they are added again.
func (l *Linux) replaceAddresses(link netlink.Link, family int, want []netlink.Addr) error {
	name := link.Attrs().Name
	if family == netlink.FAMILY_V4 {
		setting := "ipv4/conf/" + name + "/promote_secondaries"
		if value, err := l.Setting(setting); err == nil && value != "1" && l.Set(Setting{setting, "1"}) == nil {
			defer func() { _ = l.Set(Setting{setting, value}) }() // harmless if it stays
		}
	}
	if err := l.addAddresses(link, want); err != nil {
		return err
	}
	now, err := l.readConfigured(link, family)
	if err != nil {
		return err
	}
	for i, p := range now.prefixes() {
		if slices.ContainsFunc(want, func(a netlink.Addr) bool { w, _ := prefixOf(a.IPNet); return w == p }) {
			continue
		}
		if err := l.handle.AddrDel(link, &now.addresses[i]); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return wrap(err, "delete address %s of link %s", p, name)
		}
	}
	if now, err = l.readConfigured(link, family); err != nil {
		return err
	}
	there := now.prefixes()
	return l.addAddresses(link, slices.DeleteFunc(slices.Clone(want), func(a netlink.Addr) bool {
		p, _ := prefixOf(a.IPNet)
		return slices.Contains(there, p)
	}))
}

// addAddresses adds addresses. One that is there and would expire becomes permanent.
func (l *Linux) addAddresses(link netlink.Link, all []netlink.Addr) error {
	for _, a := range all {
		if err := l.handle.AddrReplace(link, &a); err != nil {
			p, _ := prefixOf(a.IPNet)
			return wrap(err, "add address %s to link %s", p, link.Attrs().Name)
		}
	}
	return nil
}

// returnRoutes adds the routes again that went with the link's addresses: those by the link, and
// those that preferred one of them as source, but not the default route. It returns those that the
// new addresses do not reach.
func (l *Linux) returnRoutes(link netlink.Link, before configured, c Configuration) (lost []Route, err error) {
	now, err := l.readConfigured(link, c.family())
	if err != nil {
		return nil, err
	}
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	for _, r := range before.routes {
		sourced := before.sources(r)
		if r.LinkIndex != link.Attrs().Index && !sourced || isMainDefault(r, link) ||
			slices.ContainsFunc(now.routes, func(x netlink.Route) bool { return sameRoute(x, r) && (!sourced || c.has(addrOf(x.Src))) }) {
			continue
		}
		x := routeOf(r)
		x.Link = names[r.LinkIndex]
		if len(c.Addresses) == 0 {
			lost = append(lost, x)
			continue
		}
		if sourced {
			r.Src = sourceFor(r, c.Addresses, addrOf(r.Src))
		}
		r.Flags &= unix.RTNH_F_ONLINK // the rest says how the next hop is at the moment
		switch err := l.handle.RouteReplace(&r); {
		case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ENETDOWN):
			lost = append(lost, x)
		case err != nil:
			return nil, wrap(err, "set route to %s again", x.Dst)
		}
	}
	return lost, nil
}

// sources reports whether a route prefers one of the link's addresses as its source.
func (c configured) sources(r netlink.Route) bool {
	return r.Src != nil && slices.ContainsFunc(c.prefixes(), func(p netip.Prefix) bool { return p.Addr() == addrOf(r.Src) })
}

// isMainDefault reports whether r is a default route by the link in the main table.
func isMainDefault(r netlink.Route, link netlink.Link) bool {
	return isDefault(r) && r.Table == unix.RT_TABLE_MAIN && r.LinkIndex == link.Attrs().Index
}

func isDefault(r netlink.Route) bool {
	dst, ok := prefixOf(r.Dst)
	return !ok || dst.Bits() == 0
}

// sameRoute reports whether two routes are the same to the kernel, which has one for each
// destination, table, metric and way.
func sameRoute(a, b netlink.Route) bool {
	return routeOf(a).Dst == routeOf(b).Dst && a.Table == b.Table && a.Priority == b.Priority && a.LinkIndex == b.LinkIndex && a.Gw.Equal(b.Gw) && a.Tos == b.Tos
}

// sourceFor returns the source address for a route whose own may be gone: that of the gateway's
// subnet, else the first.
func sourceFor(r netlink.Route, addresses []netip.Prefix, old netip.Addr) net.IP {
	var first net.IP
	for _, p := range addresses {
		if p.Addr() == old || r.Gw != nil && p.Contains(addrOf(r.Gw)) {
			return p.Addr().AsSlice()
		}
		if first == nil {
			first = p.Addr().AsSlice()
		}
	}
	return first
}

// setDefaultRoute sets the default route by the link's gateway, and deletes others by the link.
func (l *Linux) setDefaultRoute(link netlink.Link, c Configuration) error {
	name := link.Attrs().Name
	if c.Gateway.IsValid() {
		if err := l.SetRoute(Route{Dst: everything(c.family()), Gateway: c.Gateway, Link: name}); err != nil {
			return err
		}
	}
	now, err := l.readConfigured(link, c.family())
	if err != nil {
		return err
	}
	for _, r := range now.routes {
		if !isMainDefault(r, link) || c.Gateway.IsValid() && (addrOf(r.Gw) == c.Gateway || r.Protocol == unix.RTPROT_RA) {
			continue
		}
		if err := l.handle.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return wrap(err, "delete default route by link %s", name)
		}
	}
	return nil
}

// verify reads back the link's state.
func (l *Linux) verify(link netlink.Link, c Configuration) error {
	now, err := l.readConfigured(link, c.family())
	if err != nil {
		return err
	}
	have, want := now.prefixes(), slices.Clone(c.Addresses)
	slices.SortFunc(have, netip.Prefix.Compare)
	slices.SortFunc(want, netip.Prefix.Compare)
	if !slices.Equal(have, slices.Compact(want)) {
		return fmt.Errorf("the kernel has the addresses %v, not %v", have, want)
	}
	if !c.Gateway.IsValid() {
		return nil
	}
	for _, r := range now.routes {
		if isMainDefault(r, link) && addrOf(r.Gw) == c.Gateway {
			return nil
		}
	}
	return fmt.Errorf("the kernel has no default route by %s", c.Gateway)
}

// restoreConfigured gives a link back its former state.
func (l *Linux) restoreConfigured(link netlink.Link, before configured) error {
	name := link.Attrs().Name
	addresses := slices.Clone(before.addresses)
	for i := range addresses {
		addresses[i].Flags &= unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MANAGETEMPADDR
		if before.family == netlink.FAMILY_V6 {
			addresses[i].Flags |= unix.IFA_F_NODAD
		}
	}
	errs := []error{l.replaceAddresses(link, before.family, addresses)}
	now, err := l.readConfigured(link, before.family)
	errs = append(errs, err)
	for _, r := range now.routes { // default routes that were made
		if isMainDefault(r, link) && !slices.ContainsFunc(before.routes, func(x netlink.Route) bool { return sameRoute(x, r) }) {
			errs = append(errs, wrap(l.handle.RouteDel(&r), "delete default route by link %s", name))
		}
	}
	for _, r := range before.routes {
		if (r.LinkIndex == link.Attrs().Index || before.sources(r)) && !slices.ContainsFunc(now.routes, func(x netlink.Route) bool { return sameRoute(x, r) && x.Src.Equal(r.Src) }) {
			r.Flags &= unix.RTNH_F_ONLINK
			errs = append(errs, wrap(l.handle.RouteReplace(&r), "set route to %s again", routeOf(r).Dst))
		}
	}
	if !before.up && link.Attrs().RawFlags&unix.IFF_UP == 0 {
		errs = append(errs, l.SetUp(name, false))
	}
	return errors.Join(errs...)
}
