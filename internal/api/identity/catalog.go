package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"heddle/internal/api"
)

// Endpoint is a service in the catalog.
type Endpoint struct {
	Type string // such as "network"
	Name string // such as "neutron"
	// URL by which clients reach the service; that of a network service without /v2.0, which
	// clients add (neutron-api §11). If empty, it is Port of the host by which the client reached
	// the identity service.
	URL  string
	Port int
	Path string // after the port; for an empty URL only
	// TLS: the service has TLS even if the identity service, at whose host it is, has not. For an
	// empty URL only.
	TLS bool
}

// catalog lists the services; it is fixed when the server starts.
type catalog struct {
	region   string
	services []Endpoint
}

// url returns the URL by which the client that sent r reaches the service.
func (e Endpoint) url(r *http.Request) string {
	if e.URL != "" {
		return e.URL
	}
	base, err := url.Parse(api.BaseURL(r))
	if err != nil {
		return "" // the Host header is not one
	}
	if e.Port == 0 {
		return base.String() + e.Path
	}
	if e.TLS {
		base.Scheme = "https"
	}
	return base.Scheme + "://" + net.JoinHostPort(base.Hostname(), strconv.Itoa(e.Port)) + e.Path
}

// interfaces returns Keystone's three interfaces of a service, which here have the same address.
func interfaces() []string { return []string{"public", "internal", "admin"} }

// fixedID makes an id of the shape of Keystone's, the same at every start and on every server.
func fixedID(parts ...string) string {
	sum := sha256.Sum256([]byte("heddle catalog " + strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

func (c *catalog) serviceID(e Endpoint) string { return fixedID("service", e.Type, e.Name) }

func (c *catalog) endpointID(e Endpoint, face string) string {
	return fixedID("endpoint", e.Type, e.Name, face, c.region)
}

// view returns the catalog as tokens carry it.
func (c *catalog) view(r *http.Request) []object {
	all := make([]object, 0, len(c.services))
	for _, e := range c.services {
		ends := make([]object, 0, 3)
		for _, face := range interfaces() {
			ends = append(ends, object{"id": c.endpointID(e, face), "interface": face, "region": c.region, "region_id": c.region, "url": e.url(r)})
		}
		all = append(all, object{"id": c.serviceID(e), "type": e.Type, "name": e.Name, "endpoints": ends})
	}
	return all
}

func (c *catalog) serviceViews(r *http.Request) []object {
	all := make([]object, 0, len(c.services))
	for _, e := range c.services {
		id := c.serviceID(e)
		all = append(all, object{"id": id, "type": e.Type, "name": e.Name, "description": "", "enabled": true, "links": self(r, "services", id)})
	}
	return all
}

func (c *catalog) endpointViews(r *http.Request) []object {
	all := make([]object, 0, 3*len(c.services))
	for _, e := range c.services {
		for _, face := range interfaces() {
			id := c.endpointID(e, face)
			all = append(all, object{"id": id, "interface": face, "region": c.region, "region_id": c.region, "service_id": c.serviceID(e),
				"url": e.url(r), "enabled": true, "links": self(r, "endpoints", id)})
		}
	}
	return all
}

func (c *catalog) regionViews(r *http.Request) []object {
	return []object{{"id": c.region, "description": "", "parent_region_id": nil, "links": self(r, "regions", c.region)}}
}

func (c *catalog) routes() []route {
	var routes []route
	for _, x := range []struct {
		kind    string // without its s
		views   func(r *http.Request) []object
		filters []string
	}{
		{"service", c.serviceViews, []string{"type", "name"}},
		{"endpoint", c.endpointViews, []string{"interface", "service_id", "region", "region_id"}},
		{"region", c.regionViews, []string{"parent_region_id"}},
	} {
		list := func(q *call) error { return q.list(x.kind+"s", x.views(q.r), x.filters...) }
		show := func(q *call) error {
			for _, o := range x.views(q.r) {
				if o["id"] == q.path("id") {
					return q.one(http.StatusOK, x.kind, o)
				}
			}
			return notFound(x.kind, q.path("id"))
		}
		routes = append(routes,
			route{"GET /v3/" + x.kind + "s", "list_" + x.kind + "s", user, list},
			route{"GET /v3/" + x.kind + "s/{id}", "get_" + x.kind, user, show})
	}
	whole := func(q *call) error { return q.list("catalog", c.view(q.r)) }
	return append(routes, route{"GET /v3/auth/catalog", "get_auth_catalog", user, whole})
}

// version returns the version by which clients discover the API.
func version(r *http.Request) object {
	return object{"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
		"links":       []object{{"rel": "self", "href": api.BaseURL(r) + "/v3/"}},
		"media-types": []object{{"base": jsonContentType, "type": "application/vnd.openstack.identity-v3+json"}}}
}

func discoverAll(w http.ResponseWriter, r *http.Request) {
	api.WriteJSON(w, http.StatusMultipleChoices, object{"versions": object{"values": []object{version(r)}}})
}

func discover(w http.ResponseWriter, r *http.Request) {
	api.WriteJSON(w, http.StatusOK, object{"version": version(r)})
}
