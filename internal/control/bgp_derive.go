package control

import (
	"errors"
	"net/netip"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// What BGP means to a router is derived from the router, its ports and their subnets, its speaker
// and the speaker's peers. It is there while the speaker has a peer. Each operation that changes
// one of these derives it again.

// routerBGP returns what the BGP of a speaker's router is derived from. A transaction guards all of
// it.
func routerBGP(r records.Reader, b *neutron.BGPSpeaker) (*translate.RouterBGP, error) {
	router, err := schema.Routers.Get(r, b.RouterID)
	if err != nil {
		return nil, err
	}
	x := &translate.RouterBGP{Router: router, Speaker: b}
	for _, id := range b.PeerIDs {
		p, err := schema.BGPPeers.Get(r, id)
		if err != nil {
			return nil, err
		}
		x.Peers = append(x.Peers, p)
	}
	for _, id := range schema.RouterPorts.Referrers(r, "router", router.ID) {
		l, err := bgpLink(r, id)
		if err != nil {
			return nil, err
		}
		x.Links = append(x.Links, l)
	}
	return x, nil
}

// bgpLink returns a port of a router with its network and its subnets.
func bgpLink(r records.Reader, port string) (l translate.RouterLink, err error) {
	x, err := schema.RouterPorts.Get(r, port)
	if err != nil {
		return l, err
	}
	if l.Port, err = schema.Ports.Get(r, port); err != nil {
		return l, err
	}
	if l.Network, err = schema.Networks.Get(r, l.Port.NetworkID); err != nil {
		return l, err
	}
	for _, id := range x.SubnetIDs {
		s, err := schema.Subnets.Get(r, id)
		if err != nil {
			return l, err
		}
		l.Subnets = append(l.Subnets, s)
	}
	return l, nil
}

// deriveBGP stores what a speaker means to its router now.
func (o *operation) deriveBGP(b *neutron.BGPSpeaker) error {
	switch {
	case b.RouterID == "":
		return nil
	case len(b.PeerIDs) == 0:
		return errors.Join(o.changePasswords(b.RouterID, schema.TakeBGPPasswords), o.endSessions(b.RouterID))
	}
	x, err := routerBGP(o.tx, b)
	if err != nil {
		return err
	}
	bundle := x.Bundle()
	for i := range bundle.BgpPeers {
		bundle.BgpPeers[i].Password = "" // for one host alone
	}
	if err := errors.Join(o.changePasswords(b.RouterID, schema.GiveBGPPasswords), o.putBundle(kindRouterBGP, b.RouterID, bundle)); err != nil {
		return err
	}
	var subnets []*neutron.Subnet
	for i := range x.Links {
		subnets = append(subnets, x.Links[i].Subnets...)
	}
	space, err := o.linkSpace(subnets, translate.BGPContainer(b.RouterID), translate.LBContainer(b.RouterID))
	if err != nil {
		return err
	}
	return o.putContainer(translate.RouterBGPContainer(b.RouterID, space))
}

// endSessions removes what a router has of BGP. If a host runs its container, that is left with a
// speaker without sessions, and the scheduler removes it: the speaker's last messages to its
// neighbours need the way by the router.
func (o *operation) endSessions(router string) error {
	_, unbound := schema.ContainerBindings.Get(o.tx, translate.BGPContainer(router))
	old, gone := schema.Bundles.Get(o.tx, schema.RouterBGPBundleID(router))
	switch err := errors.Join(unbound, gone); {
	case errors.As(err, new(*records.NotFoundError)):
		return o.dropBGP(router)
	case err != nil:
		return err
	}
	rest := topology.Bundle{Chains: old.Bundle.Chains, Routes: old.Bundle.Routes}
	for _, s := range old.Bundle.BgpSpeakers {
		s.Sessions, s.Announced, s.AnnouncesFloating = nil, nil, false
		rest.BgpSpeakers = append(rest.BgpSpeakers, s)
	}
	return o.putBundle(kindRouterBGP, router, rest)
}

// dropBGP removes what a router has of BGP at once.
func (o *operation) dropBGP(router string) error {
	return errors.Join(o.dropBundle(kindRouterBGP, router), o.dropContainer(translate.BGPContainer(router)))
}

// changePasswords gives the passwords of a router's peers to the host that runs the router's
// speaker, or takes them away. The scheduler does so when it chooses another host.
func (o *operation) changePasswords(router string, change func(tx *records.Tx, routerID, hostID string) error) error {
	to, err := schema.ContainerBindings.Get(o.tx, translate.BGPContainer(router))
	if errors.As(err, new(*records.NotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	return change(o.tx, router, to.HostID)
}

// linkSpace returns what the link of a router's container is chosen from, when the router is on
// some subnets and has another container.
func (o *operation) linkSpace(subnets []*neutron.Subnet, container, other string) (translate.LinkSpace, error) {
	own, err := o.containerLink(container)
	if err != nil {
		return translate.LinkSpace{}, err
	}
	taken, err := o.containerLink(other)
	s := translate.LinkSpace{Subnets: subnets, Own: own}
	if taken.IsValid() {
		s.Others = []netip.Prefix{taken}
	}
	return s, err
}

// containerLink returns the link of a container's port, invalid if there is no such container.
func (o *operation) containerLink(container string) (link netip.Prefix, err error) {
	b, err := schema.Bundles.Get(o.tx, schema.ContainerBundleID(container))
	if errors.As(err, new(*records.NotFoundError)) {
		return link, nil
	}
	if err != nil {
		return link, err
	}
	for i := range b.Bundle.Ports {
		for _, p := range b.Bundle.Ports[i].PortSubnet {
			link = p.Masked()
		}
	}
	return link, nil
}

// speakerOf returns the speaker of a router, nil for none. One that comes meanwhile fails the
// commit.
func (o *operation) speakerOf(router string) (*neutron.BGPSpeaker, error) {
	ids := schema.BGPSpeakers.Referrers(o.tx, "router", router)
	if len(ids) == 0 {
		return nil, nil
	}
	return schema.BGPSpeakers.Get(o.tx, ids[0])
}

// followBGP derives the BGP of a router whose routes, ports or state have changed. A router without
// a speaker becomes that of one that waits for it.
func (o *operation) followBGP(router string) error {
	b, err := o.speakerOf(router)
	if err != nil {
		return err
	}
	if b != nil {
		return o.deriveBGP(b)
	}
	if b, err = o.waitingSpeaker(router); b == nil || err != nil {
		return err
	}
	changed := *b
	changed.RouterID = router
	return o.putSpeaker(&changed)
}

// waitingSpeaker returns a speaker without a router that has a gateway network to which a router
// leads, nil for none. Ports that other operations give to the router meanwhile are no conflict:
// each looks for itself.
func (o *operation) waitingSpeaker(router string) (*neutron.BGPSpeaker, error) {
	for x := range schema.RouterPorts.By(o.tx, "router", router) {
		p, ok := schema.Ports.Peek(o.tx, x.PortID)
		if !ok {
			continue
		}
		for _, id := range schema.BGPSpeakers.Referrers(o.tx, "network", p.NetworkID) {
			b, err := schema.BGPSpeakers.Get(o.tx, id)
			if err != nil {
				return nil, err
			}
			if b.RouterID != "" {
				continue
			}
			toward, err := o.availableRouterToward(p.NetworkID)
			if err != nil {
				return nil, err
			}
			if toward == router {
				return b, nil
			}
		}
	}
	return nil, nil
}

// followBGPOn is followBGP for the routers on some subnets.
func (o *operation) followBGPOn(subnets []*neutron.Subnet) error {
	var routers []string
	for _, s := range subnets {
		for x := range schema.RouterPorts.By(o.tx, "subnet", s.ID) {
			if !slices.Contains(routers, x.RouterID) && schema.BGPSpeakers.CountBy(o.tx, "router", x.RouterID) > 0 {
				routers = append(routers, x.RouterID)
			}
		}
	}
	for _, id := range routers {
		if err := o.followBGP(id); err != nil {
			return err
		}
	}
	return nil
}

// checkNoSpeaker refuses to delete a router with a speaker.
func (o *operation) checkNoSpeaker(router string) error {
	b, err := o.speakerOf(router)
	if b == nil || err != nil {
		return err
	}
	return conflict("RouterInUse", "Router %s is associated with bgp speaker %s.", router, b.ID)
}
