// Package octaviav2 is Octavia's HTTP API, version 2: load balancers, listeners, pools, members and
// health monitors, as today's clients know them. It reads requests and answers as Octavia does, and
// runs the operations of package control, which Neutron's LBaaS APIs run too.
package octaviav2

import (
	"cmp"
	"log/slog"
	"net/http"
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
	Timeout     time.Duration // how long an operation may take, such as while the store is away; 0 = 30 s
	// ProviderAliases are names that requests may give as the provider beside [neutron.LBProvider],
	// such as those of the provider that a user's files were written for.
	ProviderAliases []string
	Log             *slog.Logger
}

// MaxBody is the most bytes of a request body; for the server.
const MaxBody = 1 << 20

// handler serves the routes.
type handler struct {
	ops     *control.LoadBalancing
	timeout time.Duration
	aliases []string
	log     *slog.Logger

	// The attributes of each resource, and those that requests may have.
	balancers tableOf[*neutron.LoadBalancerView]
	listener  tableOf[*neutron.ListenerView]
	pool      tableOf[*neutron.LBPoolView]
	member    tableOf[*neutron.LBMemberView]
	monitor   tableOf[*neutron.HealthMonitorView]
}

// tableOf has the columns of a resource, and the rows of those that requests may have.
type tableOf[V any] struct {
	columns []column[V]
	rows    []*attribute
}

func newTable[V any](columns []column[V]) tableOf[V] { return tableOf[V]{columns, attributes(columns)} }

// endpoint answers one route; its error becomes an error body.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// New makes the API's handler. Only the list of versions and the health check need no token.
func New(o Options) http.Handler {
	h := &handler{ops: o.Operations.LoadBalancing(), timeout: cmp.Or(o.Timeout, 30*time.Second), aliases: o.ProviderAliases, log: o.Log}
	h.balancers, h.listener, h.pool = newTable(loadBalancerColumns(h)), newTable(listenerColumns(h)), newTable(poolColumns(h))
	h.member, h.monitor = newTable(memberColumns()), newTable(monitorColumns())
	guarded := api.RequireToken(o.Tokens, o.IdentityURL, api.Routes(h.routes(), noRoute))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = canonicalPath(r)
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			switch r.URL.Path {
			case "/":
				versions(w, r)
				return
			case "/healthcheck":
				api.WriteJSON(w, http.StatusOK, map[string]any{"detailed": false, "reasons": []string{}})
				return
			}
		}
		guarded.ServeHTTP(w, r)
	})
}

// servicePrefix comes before paths where several services share a port.
const servicePrefix = "/load-balancer"

// canonicalPath makes one of the spellings of a path: /v2.0 is /v2, and a slash at the end and the
// prefix of the service mean nothing.
func canonicalPath(r *http.Request) *http.Request {
	path := strings.TrimPrefix(r.URL.Path, servicePrefix)
	if path != r.URL.Path && path != "" && path[0] != '/' {
		path = r.URL.Path
	}
	path = "/" + strings.Trim(path, "/")
	if path == "/v2.0" || strings.HasPrefix(path, "/v2.0/") {
		path = "/v2" + strings.TrimPrefix(path, "/v2.0")
	}
	if path == r.URL.Path {
		return r
	}
	r = r.WithContext(r.Context()) // a copy
	u := *r.URL
	u.Path, u.RawPath = path, ""
	r.URL = &u
	return r
}

// lbaas is the path above the resources.
const lbaas = "/v2/lbaas"

// routes is every route that needs a token.
func (h *handler) routes() *http.ServeMux {
	mux := http.NewServeMux()
	on := func(pattern string, e endpoint) { mux.Handle(pattern, h.answer(e)) }
	root := func(w http.ResponseWriter, _ *http.Request) error {
		api.WriteJSON(w, http.StatusOK, "v2")
		return nil
	}
	on("GET /v2", root)
	on("GET "+lbaas, root)

	balancers := h.loadBalancers()
	register(on, lbaas+"/loadbalancers", balancers)
	on("GET "+lbaas+"/loadbalancers/{id}/status", h.statuses)
	on("GET "+lbaas+"/loadbalancers/{id}/statuses", h.statuses)
	on("GET "+lbaas+"/loadbalancers/{id}/stats", h.loadBalancerStats)
	on("PUT "+lbaas+"/loadbalancers/{id}/failover", h.failover)
	register(on, lbaas+"/listeners", h.listeners())
	on("GET "+lbaas+"/listeners/{id}/stats", h.listenerStats)
	register(on, lbaas+"/pools", h.pools())
	members := h.members()
	register(on, lbaas+"/pools/{pool}/members", members)
	on("PUT "+lbaas+"/pools/{pool}/members", h.replaceMembers)
	register(on, lbaas+"/healthmonitors", h.monitors())
	h.registerQuotas(on)
	h.registerProviders(on)
	h.registerAbsent(on)
	return mux
}

// register adds the routes of a collection.
func register[V any](on func(string, endpoint), path string, c *collection[V]) {
	on("GET "+path, c.list)
	on("POST "+path, c.create)
	on("GET "+path+"/{id}", c.show)
	on("PUT "+path+"/{id}", c.update)
	on("DELETE "+path+"/{id}", c.remove)
	missingID := func(http.ResponseWriter, *http.Request) error { return badRequest(`Missing argument: "id"`) }
	if c.name != "member" {
		on("PUT "+path, missingID)
	}
	on("DELETE "+path, missingID)
}

// versions is the list of versions at the root. It ends with the newest of which all is answered
// (2.14 has availability zones).
func versions(w http.ResponseWriter, r *http.Request) {
	type link struct {
		Href string `json:"href"`
		Rel  string `json:"rel"`
	}
	type version struct {
		ID      string `json:"id"`
		Status  string `json:"status"`
		Updated string `json:"updated"`
		Links   []link `json:"links"`
	}
	var all []version
	for _, v := range [][2]string{
		{"v2.0", "2016-12-11T00:00:00Z"}, {"v2.1", "2018-04-20T00:00:00Z"}, {"v2.2", "2018-07-31T00:00:00Z"}, {"v2.3", "2018-12-18T00:00:00Z"},
		{"v2.4", "2018-12-19T00:00:00Z"}, {"v2.5", "2019-01-21T00:00:00Z"}, {"v2.6", "2019-01-25T00:00:00Z"}, {"v2.7", "2018-01-25T12:00:00Z"},
		{"v2.8", "2019-02-12T00:00:00Z"}, {"v2.9", "2019-03-04T00:00:00Z"}, {"v2.10", "2019-03-05T00:00:00Z"}, {"v2.11", "2019-06-24T00:00:00Z"},
		{"v2.12", "2019-09-11T00:00:00Z"}, {"v2.13", "2019-09-13T00:00:00Z"},
	} {
		all = append(all, version{ID: v[0], Status: "SUPPORTED", Updated: v[1], Links: []link{{api.BaseURL(r) + "/v2", "self"}}})
	}
	all[len(all)-1].Status = "CURRENT"
	api.WriteJSON(w, http.StatusOK, map[string]any{"versions": all})
}

// caller returns whose request it is.
func caller(r *http.Request) neutron.Caller { return api.Caller(r.Context()) }
