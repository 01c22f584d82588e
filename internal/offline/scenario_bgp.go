package offline

import (
	"encoding/json"
	"maps"
	"strconv"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
)

// maxAS is the greatest AS number.
const maxAS = 1<<32 - 1

// addBGP gives a router a BGP speaker with its peers (services §11). The port of its container is
// called ROUTER.bgp.
func (s *scenario) addBGP(n node) error {
	o, err := n.object("router", "local_as", "peers")
	if err != nil {
		return err
	}
	router, err := s.routing.routers.find(o.get("router"))
	if err != nil {
		return err
	}
	as, given, err := o.get("local_as").number(1, maxAS)
	if err == nil && !given {
		err = fileErrorf(o.under("local_as"), "is missing")
	}
	if err != nil {
		return err
	}
	id := s.derive("bgp", s.nameOf[router])
	s.world.now = bornAt(len(s.nameOf))
	body := map[string]any{"local_as": json.Number(strconv.Itoa(as)), "logical_router": router}
	if err := s.at(n, s.world.create(s.world.kinds[neutron.BGPSpeakers.Name()], id, object{n, body})); err != nil {
		return err
	}
	return s.setPeers(router, o.get("peers"))
}

// updateBGP replaces the peers of a router's speaker: {bgp: router, peers}.
func (s *scenario) updateBGP(n node) error {
	o, err := n.object("bgp", "peers")
	if err != nil {
		return err
	}
	router, err := s.routing.routers.find(o.get("bgp"))
	if err != nil {
		return err
	}
	return s.setPeers(router, o.get("peers"))
}

// setPeers makes the peers of a router's speaker those of a list. New ones come before others go,
// so that the speaker's container stays.
func (s *scenario) setPeers(router string, n node) error {
	name := s.nameOf[router]
	speaker := s.derive("bgp", name)
	wanted, err := each(n, func(n node) (p scenarioPeer, err error) { return p, p.read(n) })
	if err != nil {
		return err
	}
	b, err := s.world.service.BGPSpeakers().Show(s.world.ctx, administrator(), speaker)
	if err != nil {
		return fileErrorf(n.place, "router %s has no BGP speaker", name)
	}
	had := map[string]string{} // ids by address
	for _, id := range b.PeerIDs {
		p, err := s.world.service.BGPPeers().Show(s.world.ctx, administrator(), id)
		if err != nil {
			return err
		}
		had[p.PeerIP.String()] = id
	}
	gone := maps.Clone(had)
	for _, p := range wanted {
		p.id = s.derive("bgp peer", name, p.ip, p.as)
		if had[p.ip] == p.id {
			delete(gone, p.ip)
			continue
		}
		if had[p.ip] != "" { // of another AS
			if err := s.dropPeer(had[p.ip]); err != nil {
				return err
			}
			delete(gone, p.ip)
		}
		if err := s.addPeer(speaker, &p); err != nil {
			return err
		}
	}
	for _, id := range gone {
		if err := s.dropPeer(id); err != nil {
			return err
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return s.addContainer(name+".bgp", translate.BGPContainer(router))
}

func (s *scenario) dropPeer(id string) error {
	return s.world.kinds[neutron.BGPPeers.Name()].remove(id)
}

// addPeer makes a peer of a speaker.
func (s *scenario) addPeer(speaker string, p *scenarioPeer) error {
	body := map[string]any{"peer_ip": p.ip, "remote_as": json.Number(p.as), "auth_type": neutron.BGPAuthNone}
	if err := s.at(p.node, s.world.create(s.world.kinds[neutron.BGPPeers.Name()], p.id, object{p.node, body})); err != nil {
		return err
	}
	return s.at(p.node, s.world.service.BGPSpeakers().AddPeer(s.world.ctx, administrator(), speaker, p.id))
}

// scenarioPeer is a peer of a speaker.
type scenarioPeer struct {
	node       node
	id, ip, as string
}

// read reads a peer: {ip, as}.
func (p *scenarioPeer) read(n node) error {
	p.node = n
	o, err := n.object("ip", "as")
	if err != nil {
		return err
	}
	ip, err := o.get("ip").addr()
	if err != nil {
		return err
	}
	as, given, err := o.get("as").number(1, maxAS)
	switch {
	case err != nil:
		return err
	case !ip.IsValid():
		return fileErrorf(o.under("ip"), "is missing")
	case !given:
		return fileErrorf(o.under("as"), "is missing")
	}
	p.ip, p.as = ip.String(), strconv.Itoa(as)
	return nil
}
