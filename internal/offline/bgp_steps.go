package offline

import (
	"encoding/json"
	"maps"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// Fields that Neutron's plugin hands to a driver beside the attributes of the API
// (midonet-translations §14): the speaker of a peer, whole, and the peers of a speaker that is to
// be deleted.
const (
	peerSpeaker  = "bgp_speaker"
	deletedPeers = "del_bgp_peer_ids"
)

// createBGPSpeaker makes a speaker of IPv4, unless it says otherwise.
func (w *world) createBGPSpeaker(k *kind, id string, data object) error {
	fields := withoutFields(data, deletedPeers)
	if _, given := fields.fields["ip_version"]; !given {
		fields.fields["ip_version"] = json.Number("4")
	}
	v, err := w.newValues(k, id, fields)
	if err != nil {
		return err
	}
	return k.create(v)
}

// updateBGPSpeaker changes a speaker, after the peers that it is to lose are deleted.
func (w *world) updateBGPSpeaker(k *kind, id string, data object) error {
	if _, err := k.show(id); err != nil {
		return err
	}
	peers, err := each(data.get(deletedPeers), idOf)
	if err != nil {
		return err
	}
	for _, peer := range peers {
		if err := ignoreMissing(w.kinds[neutron.BGPPeers.Name()].remove(peer)); err != nil {
			return err
		}
	}
	return w.change(k, id, withoutFields(data, deletedPeers, "router_id"))
}

// createBGPPeer makes a peer, and gives it to the speaker that it names, which is made with it if
// need be.
func (w *world) createBGPPeer(k *kind, id string, data object) error {
	peer := withoutFields(data, peerSpeaker)
	if _, given := peer.fields["auth_type"]; !given {
		peer.fields["auth_type"] = neutron.BGPAuthNone
		if !data.get("password").null() {
			peer.fields["auth_type"] = neutron.BGPAuthMD5
		}
	}
	v, err := w.newValues(k, id, peer)
	if err != nil {
		return err
	}
	if data.get(peerSpeaker).null() {
		return k.create(v)
	}
	speaker, err := w.speakerOf(data.get(peerSpeaker))
	if err != nil {
		return err
	}
	if err := k.create(v); err != nil {
		return err
	}
	if err := w.service.BGPSpeakers().AddPeer(w.ctx, administrator(), speaker, id); err != nil {
		_ = k.remove(id) // a refused step changes nothing
		return err
	}
	return nil
}

// speakerOf returns the id of the speaker that a peer comes with, of its router if it has no id. It
// has the router from now on.
func (w *world) speakerOf(n node) (string, error) {
	o, err := n.anyObject()
	if err != nil {
		return "", err
	}
	if err := checkAttributes(neutron.BGPSpeakers, o); err != nil {
		return "", err
	}
	router, _ := o.fields["router_id"].(string)
	if router == "" {
		router, _ = o.fields["logical_router"].(string)
	}
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return "", err
	}
	id := translate.Derive(peerSpeaker, router)
	if o.has("id") {
		if id, err = idOf(o.get("id")); err != nil {
			return "", err
		}
	} else {
		for b := range schema.BGPSpeakers.By(snap, "router", router) {
			id = b.ID
		}
	}
	k := w.kinds[neutron.BGPSpeakers.Name()]
	switch b, there := schema.BGPSpeakers.Peek(snap, id); {
	case there && (b.RouterID != "" || router == ""):
		return id, nil
	case there: // made before it had a router, which speakers do not get later
		if err := k.remove(id); err != nil {
			return "", err
		}
	}
	return id, w.createBGPSpeaker(k, id, o)
}

// withoutFields returns data without some fields; its fields may be changed.
func withoutFields(data object, names ...string) object {
	fields := maps.Clone(data.fields)
	if fields == nil {
		fields = map[string]any{}
	}
	for _, n := range names {
		delete(fields, n)
	}
	return object{data.node, fields}
}
