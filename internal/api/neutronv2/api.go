package neutronv2

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// Options of the API.
type Options struct {
	Operations  Operations
	Tokens      api.Validator
	IdentityURL string        // public address of the identity service, told to who has no valid token
	DNSDomain   string        // completes the names in a port's dns_assignment; "" = openstacklocal, as the reference
	Patience    time.Duration // how long an operation may take, such as while the store is away; 0 = 30 s
	Log         *slog.Logger
}

// handler serves the routes.
type handler struct {
	ops      Operations
	tables   *neutron.Tables
	patience time.Duration
	log      *slog.Logger
}

// endpoint answers one route; its error becomes an error body.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// New makes the API's handler. Only the list of versions needs no token.
func New(o Options) http.Handler {
	if o.DNSDomain == "" {
		o.DNSDomain = "openstacklocal"
	}
	if o.Patience == 0 {
		o.Patience = 30 * time.Second
	}
	h := &handler{ops: o.Operations, tables: neutron.NewTables(o.DNSDomain), patience: o.Patience, log: o.Log}
	withToken := api.RequireToken(o.Tokens, o.IdentityURL, api.Routes(h.routes(), h.noRoute))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			h.versions(w, r)
			return
		}
		withToken.ServeHTTP(w, plainPath(r))
	})
}

// routes is every route that needs a token.
func (h *handler) routes() *http.ServeMux {
	mux := http.NewServeMux()
	on := func(pattern string, e endpoint) { mux.Handle(pattern, h.answer(e)) }

	on("GET /v2.0", h.resources)
	on("GET /v2.0/extensions", h.extensions)
	on("GET /v2.0/extensions/{alias}", h.extension)

	register(on, h.networks(), "/v2.0/networks")
	register(on, h.subnets(), "/v2.0/subnets")
	register(on, h.ports(), "/v2.0/ports")
	register(on, h.securityGroups(), "/v2.0/security-groups")
	register(on, h.securityGroupRules(), "/v2.0/security-group-rules")
	register(on, h.agents(), "/v2.0/agents")

	on("GET /v2.0/quotas", h.listQuotas)
	on("GET /v2.0/quotas/tenant", h.ownProject("tenant"))
	on("GET /v2.0/quotas/project", h.ownProject("project"))
	on("GET /v2.0/quotas/{project}", h.showQuota)
	on("GET /v2.0/quotas/{project}/default", h.defaultQuota)
	on("GET /v2.0/quotas/{project}/details", h.quotaDetails)
	on("PUT /v2.0/quotas/{project}", h.setQuota)
	on("DELETE /v2.0/quotas/{project}", h.resetQuota)
	return mux
}

// register adds the routes of a collection: those of the operations it has, and its tags if it can have any.
func register[T any](on func(string, endpoint), c *collection[T], path string) {
	item := path + "/{id}"
	on("GET "+path, c.list)
	on("GET "+item, c.show)
	if c.ops.update != nil {
		on("PUT "+item, c.update)
		on("PUT "+path, c.updateNothing)
	}
	if c.ops.create != nil {
		on("POST "+path, c.create)
	}
	if c.ops.delete != nil {
		on("DELETE "+item, c.delete)
	}
	if c.ops.standard != nil {
		on("GET "+item+"/tags", c.listTags)
		on("PUT "+item+"/tags", c.replaceTags)
		on("DELETE "+item+"/tags", c.removeTags)
		on("GET "+item+"/tags/{tag}", c.hasTag)
		on("PUT "+item+"/tags/{tag}", c.addTag)
		on("DELETE "+item+"/tags/{tag}", c.removeTag)
	}
}

// plainPath takes off what old clients add to a path: ".json" and a slash at the end. Tags may end in anything.
func plainPath(r *http.Request) *http.Request {
	path := r.URL.EscapedPath()
	plain := strings.TrimRight(path, "/")
	if !strings.Contains(plain, "/tags/") {
		plain = strings.TrimSuffix(plain, ".json")
	}
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

// link is how Neutron points to another answer.
type link struct {
	Rel  string `json:"rel"`
	Href string `json:"href"`
}

// resources lists the core resources, those the reference lists of those that are here.
func (h *handler) resources(w http.ResponseWriter, r *http.Request) error {
	type entry struct {
		Name       string `json:"name"`
		Collection string `json:"collection"`
		Links      []link `json:"links"`
	}
	var list []entry
	for _, res := range []neutron.Resource{neutron.Networks, neutron.Subnets, neutron.Ports} {
		list = append(list, entry{res.Name(), res.Collection(), []link{{"self", api.BaseURL(r) + "/v2.0/" + res.Collection()}}})
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"resources": list})
	return nil
}

func (h *handler) networks() *collection[neutron.NetworkView] {
	return &collection[neutron.NetworkView]{handler: h, table: h.tables.Networks, ops: operations[neutron.NetworkView]{
		create: h.ops.CreateNetworks, update: h.ops.UpdateNetwork, delete: h.ops.DeleteNetwork, show: h.ops.Network, list: h.ops.Networks,
		standard: func(o *neutron.NetworkView) *neutron.Standard { return &o.Standard },
	}}
}

func (h *handler) subnets() *collection[neutron.SubnetView] {
	return &collection[neutron.SubnetView]{handler: h, table: h.tables.Subnets, ops: operations[neutron.SubnetView]{
		create: h.ops.CreateSubnets, update: h.ops.UpdateSubnet, delete: h.ops.DeleteSubnet, show: h.ops.Subnet, list: h.ops.Subnets,
		standard: func(o *neutron.SubnetView) *neutron.Standard { return &o.Standard },
	}}
}

func (h *handler) ports() *collection[neutron.PortView] {
	return &collection[neutron.PortView]{handler: h, table: h.tables.Ports, ops: operations[neutron.PortView]{
		create: h.ops.CreatePorts, update: h.ops.UpdatePort, delete: h.ops.DeletePort, show: h.ops.Port, list: h.ops.Ports,
		standard: func(o *neutron.PortView) *neutron.Standard { return &o.Standard },
	}}
}

func (h *handler) securityGroups() *collection[neutron.SecurityGroupView] {
	return &collection[neutron.SecurityGroupView]{handler: h, table: h.tables.SecurityGroups, ops: operations[neutron.SecurityGroupView]{
		create: h.ops.CreateSecurityGroups, update: h.ops.UpdateSecurityGroup, delete: h.ops.DeleteSecurityGroup,
		show: h.ops.SecurityGroup, list: h.ops.SecurityGroups,
		standard: func(o *neutron.SecurityGroupView) *neutron.Standard { return &o.Standard },
	}}
}

func (h *handler) securityGroupRules() *collection[neutron.SecurityGroupRule] {
	return &collection[neutron.SecurityGroupRule]{handler: h, table: h.tables.SecurityGroupRules, ops: operations[neutron.SecurityGroupRule]{
		create: h.ops.CreateSecurityGroupRules, update: h.ops.UpdateSecurityGroupRule, delete: h.ops.DeleteSecurityGroupRule,
		show: h.ops.SecurityGroupRule, list: h.ops.SecurityGroupRules,
	}}
}

// agents can be seen and changed; they come and go with their hosts.
func (h *handler) agents() *collection[neutron.AgentView] {
	return &collection[neutron.AgentView]{handler: h, table: h.tables.Agents, ops: operations[neutron.AgentView]{
		update: func(ctx context.Context, c neutron.Caller, id string, v neutron.Values, _ *int64) (*neutron.AgentView, error) {
			return h.ops.UpdateAgent(ctx, c, id, v)
		},
		delete: func(ctx context.Context, c neutron.Caller, id string, _ *int64) error {
			return h.ops.DeleteAgent(ctx, c, id)
		},
		show: h.ops.Agent,
		list: func(ctx context.Context, c neutron.Caller, _ neutron.Query) (iter.Seq[*neutron.AgentView], error) {
			agents, err := h.ops.Agents(ctx, c)
			return slices.Values(agents), err
		},
	}}
}
