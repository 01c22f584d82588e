package neutronv2

import (
	"encoding/json"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// flavors is the part of flavors and of the providers that they choose. It rests on that of
// routers.
func flavors() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.Flavor]{h, h.tables.Flavors, h.ops.Flavors()})
			register(on, &collection[*neutron.ServiceProfile]{h, h.tables.ServiceProfiles, h.ops.ServiceProfiles()})
			providers := &collection[*neutron.ServiceProvider]{h, h.tables.ServiceProviders, h.ops.ServiceProviders()}
			on("GET /v2.0"+neutron.ServiceProvidersResource.Path(), providers.list)
			on("POST /v2.0/flavors/{id}/service_profiles", h.addProfile)
			on("DELETE /v2.0/flavors/{id}/service_profiles/{profile}", h.removeProfile)
			on("GET /v2.0/flavors/{id}/next_providers", h.nextProviders)
		},
		extensions: []extension{
			{"flavors", "Neutron Service Flavors", "2015-09-17T10:00:00-00:00", "Flavor specification for Neutron advanced services."},
			{"l3-flavors", "Router Flavor Extension", "2016-05-17T00:00:00-00:00", "Flavor support for routers."},
			{"service-type", "Neutron Service Type Management", "2013-01-20T00:00:00-00:00",
				"API for retrieving service providers for Neutron advanced services"},
		},
	}
}

// addProfile answers a request to give a flavor a profile: with the flavor's id, as the reference.
func (h *handler) addProfile(w http.ResponseWriter, r *http.Request) error {
	var profile string
	err := readObject(r, func(body document) error {
		var o map[string]any
		if json.Unmarshal(body[neutron.ServiceProfiles.Name()], &o) != nil || o == nil {
			return badRequest("Unable to find 'service_profile' in request body")
		}
		var ok bool
		if profile, ok = o["id"].(string); !ok {
			return badRequest("Failed to parse request. Required attribute 'id' not specified")
		}
		return nil
	})
	if err != nil {
		return err
	}
	f, err := h.ops.AddProfile(r.Context(), api.Caller(r.Context()), r.PathValue("id"), profile)
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusCreated, map[string]any{"service_profile": map[string]string{"id": f.ID}})
	return nil
}

func (h *handler) removeProfile(w http.ResponseWriter, r *http.Request) error {
	return empty(w, http.StatusNoContent, h.ops.RemoveProfile(r.Context(), api.Caller(r.Context()), r.PathValue("id"), r.PathValue("profile")))
}

// nextProviders answers which provider a flavor chooses.
func (h *handler) nextProviders(w http.ResponseWriter, r *http.Request) error {
	p, err := h.ops.NextProvider(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"next_providers": []any{map[string]string{"driver": p.Driver, "provider": p.Name}}})
	return nil
}
