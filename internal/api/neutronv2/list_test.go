package neutronv2

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/neutron"
)

// aCollection is a collection of subnets that are only there to be listed.
func aCollection() *collection[neutron.Subnet] {
	h := &handler{tables: neutron.NewTables(""), patience: time.Minute, log: slog.New(slog.DiscardHandler)}
	return &collection[neutron.Subnet]{handler: h, table: h.tables.Subnets}
}

func someSubnets(n int) []*neutron.Subnet {
	list := make([]*neutron.Subnet, n)
	for i := range list {
		list[i] = &neutron.Subnet{Standard: neutron.Standard{ID: fmt.Sprintf("%03d", i), Name: fmt.Sprint(i % 3)}, IPVersion: 4 + i%2*2}
	}
	return list
}

func TestSorts(t *testing.T) {
	t.Parallel()
	tests := []struct{ query, want string }{
		{"sort_key=nosuch&sort_dir=asc", "['nosuch'] is invalid attribute for sort_keys"},
		{"sort_key=host_routes&sort_dir=asc", "['host_routes'] is invalid attribute for sort_keys"},
		{"sort_key=name", "The number of sort_keys and sort_dirs must be same"},
		{"sort_key=name&sort_dir=up", "['up'] is invalid value for sort_dirs, valid value is 'asc' and 'desc'"},
		{"sort_key=name&sort_key=tenant_id&sort_dir=asc&sort_dir=desc", ""},
		{"sort_key=", ""},
	}
	for _, tt := range tests {
		params, _ := url.ParseQuery(tt.query)
		_, err := aCollection().sorts(params)
		if got := errorText(err); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.query, got, tt.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestReadPage(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"limit=-1": "Bad limit request: Limit must be an integer 0 or greater and not '-1'.",
		"limit=x":  "Bad limit request: Limit must be an integer 0 or greater and not 'x'.",
		"limit=0":  "",
		"limit=7":  "",
		"":         "",
	} {
		params, _ := url.ParseQuery(query)
		if _, err := readPage(params); errorText(err) != want {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}

// TestPagesAreTheList: walking the pages in either direction gives the sorted list, whatever the keys and the limit.
func TestPagesAreTheList(t *testing.T) {
	t.Parallel()
	c := aCollection()
	rapid.Check(t, func(t *rapid.T) {
		all := someSubnets(rapid.IntRange(0, 30).Draw(t, "objects"))
		params := url.Values{}
		for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"name", "ip_version", "gateway_ip", "id"}), 0, 3).Draw(t, "keys") {
			params.Add("sort_key", key)
			params.Add("sort_dir", rapid.SampledFrom([]string{"asc", "desc"}).Draw(t, "direction"))
		}
		sorts, err := c.sorts(params)
		if err != nil {
			t.Fatal(err)
		}
		order := newOrder(sorts, c.table.SortKey("id"))
		sorted := order.sort(rapid.Permutation(all).Draw(t, "order"))
		find := func(_ context.Context, id string) (*neutron.Subnet, error) {
			i := slices.IndexFunc(all, func(o *neutron.Subnet) bool { return o.ID == id })
			if i < 0 {
				return nil, neutron.Subnets.NotFound(id)
			}
			return all[i], nil
		}
		p := page{limit: rapid.IntRange(1, 7).Draw(t, "limit"), reverse: rapid.Bool().Draw(t, "reverse")}
		var walked []*neutron.Subnet
		for range len(all) + 1 {
			part, err := cut(t.Context(), sorted, p, order, find)
			if err != nil {
				t.Fatal(err)
			}
			if len(part) == 0 {
				break
			}
			if p.reverse {
				walked, p.marker = append(slices.Clone(part), walked...), part[0].ID
			} else {
				walked, p.marker = append(walked, part...), part[len(part)-1].ID
			}
		}
		if !slices.Equal(walked, sorted) {
			t.Fatalf("walked %v, want %v", ids(walked), ids(sorted))
		}
	})
}

func ids(list []*neutron.Subnet) string {
	var s []string
	for _, o := range list {
		s = append(s, o.ID)
	}
	return strings.Join(s, " ")
}

func TestUnknownMarker(t *testing.T) {
	t.Parallel()
	c := aCollection()
	_, err := cut(t.Context(), someSubnets(3), page{limit: 1, marker: "x"}, newOrder(nil, c.table.SortKey("id")),
		func(_ context.Context, id string) (*neutron.Subnet, error) { return nil, neutron.Subnets.NotFound(id) })
	var got *neutron.Error
	if !errors.As(err, &got) || got.Type != "SubnetNotFound" {
		t.Errorf("%v, want SubnetNotFound", err)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	c := aCollection()
	list := someSubnets(2)
	tests := []struct {
		name, query string
		list        []*neutron.Subnet
		want        []string
	}{
		{"no limit", "", list, nil},
		{"full page", "limit=2&name=a&name=b", list, []string{
			"next http://h/v2.0/subnets?limit=2&marker=001&name=a&name=b",
			"previous http://h/v2.0/subnets?limit=2&marker=000&name=a&name=b&page_reverse=True"}},
		{"last page", "limit=3&marker=x", list, []string{"previous http://h/v2.0/subnets?limit=3&marker=000&page_reverse=True"}},
		{"empty page", "limit=3&marker=x", nil, []string{"previous http://h/v2.0/subnets?limit=3&page_reverse=True"}},
		{"first page from behind", "limit=3&page_reverse=True", list, []string{"next http://h/v2.0/subnets?limit=3&marker=001"}},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(http.MethodGet, "http://h/v2.0/subnets?"+tt.query, nil)
		p, err := readPage(r.URL.Query())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range c.links(r, r.URL.Query(), p, tt.list) {
			got = append(got, l.Rel+" "+l.Href)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

func TestIfMatch(t *testing.T) {
	t.Parallel()
	tests := []struct{ header, want string }{
		{"", "-"}, {"etag", "-"}, {"*", "-"},
		{"revision_number=3", "3"}, {`"revision_number=3"`, "3"}, {`"x", W/"revision_number=3"`, "3"},
		{"revision_number=x", "Bad if-match request: Revision number etag must be in the format of revision_number=<int>."},
		{`"revision_number=1","revision_number=2"`, "Bad if-match request: Multiple revision_number etags are not supported.."},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(http.MethodPut, "/", nil)
		r.Header.Set("If-Match", tt.header)
		n, err := ifMatch(r)
		got := "-"
		switch {
		case err != nil:
			got = err.Error()
		case n != nil:
			got = fmt.Sprint(*n)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.header, got, tt.want)
		}
	}
}

func TestPlainPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/v2.0/":                       "/v2.0",
		"/v2.0":                        "/v2.0",
		"/v2.0/networks.json":          "/v2.0/networks",
		"/v2.0/networks/x.json?name=a": "/v2.0/networks/x?name=a",
		"/v2.0/quotas/p/details.json":  "/v2.0/quotas/p/details",
		"/v2.0/networks/x/tags/a.json": "/v2.0/networks/x/tags/a.json",
		"/v2.0/networks/x/tags/a%2Fb/": "/v2.0/networks/x/tags/a%2Fb",
		"/v2.0/networks/../ports.json": "/v2.0/networks/../ports",
		"/v2.0/networks/?limit=1":      "/v2.0/networks?limit=1",
	} {
		if got := plainPath(httptest.NewRequest(http.MethodGet, path, nil)).URL.RequestURI(); got != want {
			t.Errorf("%s becomes %s, want %s", path, got, want)
		}
	}
}

// FuzzQuery: no query string panics.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"name=a&limit=1&marker=000", "sort_key=name&sort_dir=asc&page_reverse=true", "fixed_ips=x&tags=a,b&shared=%zz", "limit=99999999999999999999", "changed_since=2&mtu=1;x"} {
		f.Add(seed)
	}
	all := someSubnets(5)
	f.Fuzz(func(t *testing.T, query string) {
		c := aCollection()
		c.ops.list = func(context.Context, neutron.Caller, neutron.Query) ([]*neutron.Subnet, error) { return all, nil }
		c.ops.show = func(_ context.Context, _ neutron.Caller, id string) (*neutron.Subnet, error) {
			return nil, neutron.Subnets.NotFound(id)
		}
		r := httptest.NewRequest(http.MethodGet, "/v2.0/subnets", nil)
		r.URL.RawQuery = query
		w := httptest.NewRecorder()
		c.answer(c.list).ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%q: %d %s", query, w.Code, w.Body)
		}
	})
}

func TestAnswerToErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		e      endpoint
		status int
		typ    string
	}{
		{"the store is away", func(_ http.ResponseWriter, r *http.Request) error { <-r.Context().Done(); return errors.New("away") },
			http.StatusServiceUnavailable, "ServiceUnavailable"},
		{"ours", func(http.ResponseWriter, *http.Request) error { return errors.New("secret") }, http.StatusInternalServerError, "HTTPInternalServerError"},
		{"of no kind", func(http.ResponseWriter, *http.Request) error { return &neutron.Error{Message: "secret"} },
			http.StatusInternalServerError, "HTTPInternalServerError"},
		{"wrapped", func(http.ResponseWriter, *http.Request) error {
			return fmt.Errorf("x: %w", neutron.Ports.NotFound("y"))
		},
			http.StatusNotFound, "PortNotFound"},
		{"long", func(http.ResponseWriter, *http.Request) error { return badRequest(strings.Repeat("x", 1<<20)) },
			http.StatusBadRequest, "HTTPBadRequest"},
	}
	for _, tt := range tests {
		h := &handler{patience: time.Minute, log: slog.New(slog.DiscardHandler)}
		if tt.status == http.StatusServiceUnavailable {
			h.patience = time.Millisecond
		}
		w := httptest.NewRecorder()
		h.answer(tt.e).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != tt.status || !strings.Contains(w.Body.String(), `"type":"`+tt.typ+`"`) || strings.Contains(w.Body.String(), "secret") || w.Body.Len() > 2*maxMessage {
			t.Errorf("%s: %d %.200s", tt.name, w.Code, w.Body)
		}
	}
}
