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

// Endpoint is a service that the catalog tells clients of.
type Endpoint struct {
	Type string // such as "network"
	Name string // such as "neutron"
	// URL is how clients reach the service; that of a network service without /v2.0, which clients add (neutron-api
	// §11). When empty, the service is on Port of whatever host the client reached the identity service by.
	URL  string
	Port int
	Path string // after the port; for an empty URL only
}

// catalog is fixed when the server starts: what runs is what is listed.
type catalog struct {
	region   string
	services []Endpoint
}

// url is where the client that sent r reaches the service.
func (e Endpoint) url(r *http.Request) string {
	if e.URL != "" {
		return e.URL
	}
	base, err := url.Parse(api.BaseURL(r))
	if err != nil {
		return "" // a Host header that is none
	}
	if e.Port == 0 {
		return base.String() + e.Path
	}
	return base.Scheme + "://" + net.JoinHostPort(base.Hostname(), strconv.Itoa(e.Port)) + e.Path
}

// interfaces are the three faces Keystone gives each service; ours are all the same address.
func interfaces() []string { return []string{"public", "internal", "admin"} }

// fixedID makes an id of the shape Keystone's have, the same at every start and on every server.
func fixedID(parts ...string) string {
	sum := sha256.Sum256([]byte("heddle catalog " + strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

func (c *catalog) serviceID(e Endpoint) string { return fixedID("service", e.Type, e.Name) }

func (c *catalog) endpointID(e Endpoint, face string) string {
	return fixedID("endpoint", e.Type, e.Name, face, c.region)
}

// view is the catalog as tokens carry it.
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

// views are what the catalog shows in lists of a kind.
func (c *catalog) views(r *http.Request, kind string) []object {
	switch kind {
	case "services":
		return c.serviceViews(r)
	case "endpoints":
		return c.endpointViews(r)
	}
	return c.regionViews(r)
}

// listed answers with all objects of a kind that the catalog shows.
func (s *Service) listed(kind string, filters ...string) func(*call) error {
	return func(c *call) error { return c.list(kind, s.catalog.views(c.r, kind), filters...) }
}

// listedOne answers with one of them.
func (s *Service) listedOne(kind string) func(*call) error {
	one := strings.TrimSuffix(kind, "s")
	return func(c *call) error {
		for _, o := range s.catalog.views(c.r, kind) {
			if o["id"] == c.path("id") {
				return c.one(http.StatusOK, one, o)
			}
		}
		return notFound(one, c.path("id"))
	}
}

// version is what clients discover the API by.
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

func notFound(kind, id string) error {
	return api.Errorf(http.StatusNotFound, "Could not find %s: %s.", kind, id)
}
