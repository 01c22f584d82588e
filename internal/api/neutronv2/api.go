// Package neutronv2 is the Neutron v2.0 HTTP API: routes, bodies, filters, fields, sorting and
// pages. It decodes a request through the attribute tables of package neutron, calls one operation
// of package control, and renders the answer for the caller's role. What needs other objects is
// decided by the operations.
package neutronv2

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"heddle/internal/api"
	"heddle/internal/control"
	"heddle/internal/neutron"
)

// Options of the API.
type Options struct {
	Operations  *control.Service
	Tokens      api.Validator
	IdentityURL string        // public address of the identity service, for clients without a valid token
	DNSDomain   string        // completes the names in a port's dns_assignment; "" = openstacklocal, as the reference
	Timeout     time.Duration // how long an operation may take, such as while the store is away; 0 = 30 s
	Log         *slog.Logger
}

// handler serves the routes.
type handler struct {
	ops     *control.Service
	tables  *neutron.Tables
	timeout time.Duration
	log     *slog.Logger

	extensions []extension // by alias
}

// part is a part of the API: routes, and the extensions that announce them. An extension may rest
// on several parts.
type part struct {
	routes     func(h *handler, on func(pattern string, e endpoint))
	extensions []extension
}

// served returns the parts of this server.
func served() []part {
	return []part{
		{routes: (*handler).core, extensions: coreExtensions()},
		portBindings(), portMetadata(), routers(), floatingIPs(), ndpProxies(), metering(), logging(), firewalls(), firewallGroups(), addressGroups(), defaultRules(), sharing(),
		trunks(), qos(),
		agents(), flavors(), segments(),
		subnetPools(), autoTopologies(),
		localIPs(),
		bgp(),
		taps(),
		gatewayDevices(), l2Gateways(),
		loadBalancers(), loadBalancersV1(),
	}
}

// endpoint answers one route; its error becomes an error body.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// New makes the API's handler. Only the list of versions needs no token.
func New(o Options) http.Handler { return newAPI(o, served()) }

// newAPI makes the handler of an API that serves these parts.
func newAPI(o Options, parts []part) http.Handler {
	o.DNSDomain = cmp.Or(o.DNSDomain, "openstacklocal")
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	h := &handler{ops: o.Operations, tables: neutron.NewTables(o.DNSDomain), timeout: o.Timeout, log: o.Log, extensions: announced(parts)}
	withToken := api.RequireToken(o.Tokens, o.IdentityURL, api.Routes(h.routes(parts), h.noRoute))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			h.versions(w, r)
			return
		}
		withToken.ServeHTTP(w, plainPath(r))
	})
}

// routes is every route that needs a token.
func (h *handler) routes(parts []part) *http.ServeMux {
	mux := http.NewServeMux()
	for _, p := range parts {
		p.routes(h, func(pattern string, e endpoint) { mux.Handle(pattern, h.answer(e)) })
	}
	return mux
}

// core registers the routes of networks and what is on them.
func (h *handler) core(on func(pattern string, e endpoint)) {
	on("GET /v2.0", h.listResources)
	on("GET /v2.0/extensions", h.listExtensions)
	on("GET /v2.0/extensions/{alias}", h.showExtension)

	register(on, &collection[*neutron.NetworkView]{h, h.tables.Networks, h.ops.Networks()})
	register(on, &collection[*neutron.SubnetView]{h, h.tables.Subnets, h.ops.Subnets()})
	register(on, &collection[*neutron.PortView]{h, h.tables.Ports, h.ops.Ports()})
	register(on, &collection[*neutron.SecurityGroupView]{h, h.tables.SecurityGroups, h.ops.SecurityGroups()})
	register(on, &collection[*neutron.SecurityGroupRule]{h, h.tables.SecurityGroupRules, h.ops.SecurityGroupRules()})
	register(on, &collection[*neutron.IPAvailability]{h, h.tables.IPAvailabilities, h.ops.IPAvailabilities()})

	on("GET /v2.0/quotas", h.listQuotas)
	on("GET /v2.0/quotas/tenant", h.ownProject("tenant"))
	on("GET /v2.0/quotas/project", h.ownProject("project"))
	on("GET /v2.0/quotas/{project}", h.showQuota)
	on("GET /v2.0/quotas/{project}/default", h.defaultQuota)
	on("GET /v2.0/quotas/{project}/details", h.quotaDetails)
	on("PUT /v2.0/quotas/{project}", h.setQuota)
	on("DELETE /v2.0/quotas/{project}", h.resetQuota)
}

// register adds the routes of a collection: those of the operations it has, and its tags if it can
// have any.
func register[T any](on func(string, endpoint), c *collection[T]) {
	registerAt(on, c.table.Resource.Path(), c)
}

// registerAt adds the routes of a collection at a path below /v2.0.
func registerAt[T any](on func(string, endpoint), path string, c *collection[T]) {
	path = "/v2.0" + path
	item := path + "/{id}"
	on("GET "+path, c.list)
	on("GET "+item, c.show)
	if c.ops.Update != nil {
		on("PUT "+item, c.update)
		on("PUT "+path, c.updateNothing)
	}
	if c.ops.Create != nil {
		on("POST "+path, c.create)
	}
	if c.ops.Delete != nil {
		on("DELETE "+item, c.delete)
	}
	if c.ops.ChangeTags != nil {
		registerTags(on, item, c)
	}
}

// registerTags adds the routes of the tags of the objects at a path.
func registerTags[T any](on func(string, endpoint), item string, c *collection[T]) {
	on("GET "+item+"/tags", c.listTags)
	on("PUT "+item+"/tags", c.replaceTags)
	on("DELETE "+item+"/tags", c.removeTags)
	on("GET "+item+"/tags/{tag}", c.hasTag)
	on("PUT "+item+"/tags/{tag}", c.addTag)
	on("DELETE "+item+"/tags/{tag}", c.removeTag)
}

// plainPath takes off what old clients add to a path: ".json" and a slash at the end. Tags may end
// in anything. It escapes the segments "." and "..", which are ids and tags like any other text.
func plainPath(r *http.Request) *http.Request {
	path := r.URL.EscapedPath()
	plain := strings.TrimRight(path, "/")
	if !strings.Contains(plain, "/tags/") {
		plain = strings.TrimSuffix(plain, ".json")
	}
	segments := strings.Split(plain, "/")
	for i, s := range segments {
		if s == "." || s == ".." {
			segments[i] = strings.ReplaceAll(s, ".", "%2E")
		}
	}
	plain = strings.Join(segments, "/")
	decoded, err := url.PathUnescape(plain)
	if plain == path || plain == "" || err != nil {
		return r
	}
	r = r.WithContext(r.Context()) // a copy
	u := *r.URL
	u.Path, u.RawPath = decoded, plain
	r.URL = &u
	return r
}

// versions is the list of versions at the root.
func (h *handler) versions(w http.ResponseWriter, r *http.Request) {
	type version struct {
		ID     string `json:"id"`
		Status string `json:"status"`
		Links  []link `json:"links"`
	}
	api.WriteJSON(w, http.StatusOK, map[string][]version{"versions": {
		{ID: "v2.0", Status: "CURRENT", Links: []link{{Rel: "self", Href: api.BaseURL(r) + "/v2.0/"}}},
	}})
}

// link is Neutron's reference to another answer.
type link struct {
	Rel  string `json:"rel"`
	Href string `json:"href"`
}

// listResources lists the core resources, those the reference lists of those that are here.
func (h *handler) listResources(w http.ResponseWriter, r *http.Request) error {
	type entry struct {
		Name       string `json:"name"`
		Collection string `json:"collection"`
		Links      []link `json:"links"`
	}
	var list []entry
	for _, res := range []neutron.Resource{neutron.Networks, neutron.Subnets, neutron.SubnetPools, neutron.Ports} {
		list = append(list, entry{res.Name(), res.Collection(), []link{{"self", api.BaseURL(r) + "/v2.0/" + res.Collection()}}})
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"resources": list})
	return nil
}
