package octaviav2

import (
	"encoding/json"
	"net/http"
	"slices"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// knowsProvider reports whether requests may name a provider.
func (h *handler) knowsProvider(name string) bool {
	return name == neutron.LBProvider || slices.Contains(h.aliases, name)
}

// registerProviders adds the routes of providers, and of what providers could have and this one has
// not: flavors and zones.
func (h *handler) registerProviders(on func(string, endpoint)) {
	on("GET "+lbaas+"/providers", func(w http.ResponseWriter, r *http.Request) error {
		provider := object{"name": neutron.LBProvider, "description": "Layer 4 balancing by the hosts' own flow tables."}
		asked := r.URL.Query()["fields"]
		for name := range provider {
			if len(asked) > 0 && !slices.Contains(asked, name) {
				delete(provider, name)
			}
		}
		api.WriteJSON(w, http.StatusOK, object{"providers": []object{provider}, "providers_links": []any{}})
		return nil
	})
	for _, kind := range []string{"flavor", "availability_zone"} {
		on("GET "+lbaas+"/providers/{name}/"+kind+"_capabilities", func(w http.ResponseWriter, r *http.Request) error {
			if !caller(r).LBAdmin() {
				return neutron.LBForbidden("get_provider-" + kind)
			}
			if name := r.PathValue("name"); !h.knowsProvider(name) {
				return neutron.LBProviderUnknown(name)
			}
			api.WriteJSON(w, http.StatusOK, object{kind + "_capabilities": []any{}, kind + "_capabilities_links": []any{}})
			return nil
		})
	}
}

// empty is a collection that never has an object.
type empty struct {
	path, plural, links string
	name                string // in texts
	admins              bool   // only admins list it
}

// registerAbsent adds the routes of features that are not there: lists of them are empty, and
// creating one is refused.
func (h *handler) registerAbsent(on func(string, endpoint)) {
	for _, e := range []empty{
		{lbaas + "/flavors", "flavors", "flavors_links", "Flavor", false},
		{lbaas + "/flavorprofiles", "flavorprofiles", "flavorprofile_links", "Flavor Profile", true},
		{lbaas + "/availabilityzones", "availability_zones", "availability_zones_links", "Availability Zone", false},
		{lbaas + "/availabilityzoneprofiles", "availability_zone_profiles", "availability_zone_profile_links", "Availability Zone Profile", true},
		{"/v2/octavia/amphorae", "amphorae", "amphorae_links", "Amphora", true},
		{lbaas + "/l7policies", "l7policies", "l7policies_links", "L7 Policy", false},
	} {
		h.registerEmpty(on, e)
	}
	on("POST "+lbaas+"/l7policies", h.createL7Policy)
}

func (h *handler) registerEmpty(on func(string, endpoint), e empty) {
	allowed := func(r *http.Request) error {
		if e.admins && !caller(r).LBAdmin() {
			return neutron.LBForbidden("get_" + e.plural)
		}
		return nil
	}
	on("GET "+e.path, func(w http.ResponseWriter, r *http.Request) error {
		if err := allowed(r); err != nil {
			return err
		}
		api.WriteJSON(w, http.StatusOK, object{e.plural: []any{}, e.links: []any{}})
		return nil
	})
	missing := func(_ http.ResponseWriter, r *http.Request) error {
		if err := allowed(r); err != nil {
			return err
		}
		return neutron.LBNotFound(e.name, r.PathValue("id"))
	}
	on("GET "+e.path+"/{id}", missing)
	on("PUT "+e.path+"/{id}", missing)
	on("DELETE "+e.path+"/{id}", missing)
	if e.name != "L7 Policy" && e.name != "Amphora" {
		on("POST "+e.path, func(_ http.ResponseWriter, r *http.Request) error {
			if !caller(r).LBAdmin() {
				return neutron.LBForbidden("create_" + e.plural)
			}
			return neutron.LBUnsupported("%s", e.plural)
		})
	}
}

// l7Table has the attributes of a policy that are looked at before it is refused.
var l7Table = []*attribute{
	{name: "listener_id", create: true, mandatory: true, def: none{}, parse: id},
	{name: "action", create: true, mandatory: true, def: none{}, parse: oneOf("REJECT", "REDIRECT_TO_URL", "REDIRECT_PREFIX", "REDIRECT_TO_POOL")},
}

// createL7Policy refuses policies at layer 7: connections are balanced as a whole.
func (h *handler) createL7Policy(_ http.ResponseWriter, r *http.Request) error {
	var v neutron.Values
	err := readBody(r, create, "l7policy", "l7policy", func(b *body, raw json.RawMessage) (err error) {
		given, _ := members(raw)
		known := object{}
		for _, a := range l7Table {
			if value, ok := given[a.name]; ok {
				known[a.name] = value
			}
		}
		text, err := json.Marshal(known)
		if err != nil {
			return err
		}
		v, err = b.object(l7Table, "l7policy", text)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := h.ops.Listeners().Show(r.Context(), caller(r), v.Text("listener_id")); err != nil {
		return err
	}
	return neutron.LBUnsupported("L7 policies")
}
