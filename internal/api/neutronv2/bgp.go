package neutronv2

import (
	"context"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/control"
	"heddle/internal/neutron"
)

// bgp is the part of BGP speakers and their peers. It rests on that of agents.
func bgp() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			ops := h.ops.BGPSpeakers()
			register(on, &collection[*neutron.BGPSpeaker]{h, h.tables.BGPSpeakers, ops.Operations})
			register(on, &collection[*neutron.BGPPeer]{h, h.tables.BGPPeers, h.ops.BGPPeers()})
			speaker := "/v2.0" + neutron.BGPSpeakers.Path() + "/{id}/"
			on("PUT "+speaker+"add_bgp_peer", changeSpeaker("bgp_peer_id", ops.AddPeer, echo))
			on("PUT "+speaker+"remove_bgp_peer", changeSpeaker("bgp_peer_id", ops.RemovePeer, noEcho))
			on("PUT "+speaker+"add_gateway_network", changeSpeaker("network_id", ops.AddNetwork, echo))
			on("PUT "+speaker+"remove_gateway_network", changeSpeaker("network_id", ops.RemoveNetwork, echo))
			on("GET "+speaker+"get_advertised_routes", advertisedRoutes(ops))
			scheduled(h, on, "bgp-drinstances", "bgp-dragents", h.tables.BGPSpeakers, h.ops.BGPSchedule())
		},
		extensions: []extension{
			{"bgp", "Neutron BGP Dynamic Routing Extension", "2016-05-10T15:37:00-00:00",
				"Discover and advertise routes for Neutron prefixes dynamically via BGP"},
			{"bgp_4byte_asn", "BGP 4-byte AS numbers", "2017-09-07T00:00:00-00:00",
				"Support bgp 4-byte AS number"},
			{"bgp_dragent_scheduler", "BGP Dynamic Routing Agent Scheduler", "2015-07-30T10:00:00-00:00",
				"Schedules BgpSpeakers on BgpDrAgent"},
			{"bgp-speaker-router-insertion", "BGP Speaker Router Insertion", "2017-05-01T00:00:00-00:00",
				"Attaches BGP speakers to logical routers"},
		},
	}
}

// echo answers an action with what it was about; noEcho with null, as the reference answers one of
// them.
func echo(name, id string) any  { return map[string]string{name: id} }
func noEcho(string, string) any { return nil }

// changeSpeaker answers a request to give a speaker something that the body names by its id, or to
// take it away.
func changeSpeaker(name string, change func(ctx context.Context, c neutron.Caller, id, other string) error, answer func(name, id string) any) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		var other string
		err := readObject(r, func(body document) error {
			raw, given := body[name]
			value, err := decodeValue(raw)
			if err != nil {
				return err
			}
			other, err = neutron.BGPReference(name, value, given)
			return err
		})
		if err != nil {
			return err
		}
		if err := change(r.Context(), api.Caller(r.Context()), r.PathValue("id"), other); err != nil {
			return err
		}
		api.WriteJSON(w, http.StatusOK, answer(name, other))
		return nil
	}
}

// advertisedRoutes answers what a speaker announces.
func advertisedRoutes(ops control.BGPSpeakerOperations) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		routes, err := ops.AdvertisedRoutes(r.Context(), api.Caller(r.Context()), r.PathValue("id"))
		if err != nil {
			return err
		}
		out := newListWriter(w, http.StatusOK, "advertised_routes")
		for _, route := range routes {
			out.item(route.Append)
		}
		return out.end(nil)
	}
}
