package neutronv2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
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
func aCollection() *collection[*neutron.SubnetView] {
	h := &handler{tables: neutron.NewTables(""), timeout: time.Minute, log: slog.New(slog.DiscardHandler)}
	return &collection[*neutron.SubnetView]{handler: h, table: h.tables.Subnets}
}

func someSubnets(n int) []*neutron.SubnetView {
	list := make([]*neutron.SubnetView, n)
	for i := range list {
		list[i] = &neutron.SubnetView{Subnet: &neutron.Subnet{Standard: neutron.Standard{ID: fmt.Sprintf("%03d", i), Name: fmt.Sprint(i % 3)}, IPVersion: 4 + i%2*2}}
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

// lists has the collection answer with these subnets, which are in order of ids.
func (c *collection[T]) lists(all []T) {
	c.ops.List = func(context.Context, neutron.Caller, neutron.Query) (iter.Seq[T], error) {
		return slices.Values(all), nil
	}
	c.ops.Show = func(_ context.Context, _ neutron.Caller, id string) (T, error) {
		i := slices.IndexFunc(all, func(o T) bool { return c.id(o) == id })
		if i < 0 {
			var none T
			return none, c.table.Resource.NotFound(id)
		}
		return all[i], nil
	}
}

// page asks for a list and returns the ids on it.
func (c *collection[T]) page(t interface{ Fatalf(string, ...any) }, query url.Values) []string {
	r := httptest.NewRequest(http.MethodGet, "/v2.0/subnets?"+query.Encode(), nil)
	w := httptest.NewRecorder()
	c.answer(c.list).ServeHTTP(w, r)
	var doc struct {
		Subnets []struct{ ID string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", query.Encode(), w.Code, w.Body, err)
	}
	var ids []string
	for _, s := range doc.Subnets {
		ids = append(ids, s.ID)
	}
	return ids
}

// TestPagesAreTheList: walking the pages in either direction gives the whole list in its order,
// whatever the keys, the filters, the fields and the limit.
func TestPagesAreTheList(t *testing.T) {
	t.Parallel()
	c := aCollection()
	rapid.Check(t, func(t *rapid.T) {
		c.lists(someSubnets(rapid.IntRange(0, 30).Draw(t, "objects")))
		query := url.Values{"fields": {"id"}}
		for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"name", "ip_version", "gateway_ip", "id"}), 0, 3).Draw(t, "keys") {
			query.Add("sort_key", key)
			query.Add("sort_dir", rapid.SampledFrom([]string{"asc", "desc"}).Draw(t, "direction"))
		}
		query["name"] = rapid.SliceOfN(rapid.SampledFrom([]string{"0", "1"}), 0, 2).Draw(t, "names")
		whole := c.page(t, query)
		query.Set("limit", fmt.Sprint(rapid.IntRange(1, 7).Draw(t, "limit")))
		reverse := rapid.Bool().Draw(t, "reverse")
		query.Set("page_reverse", fmt.Sprint(reverse))
		var walked []string
		for range len(whole) + 1 {
			part := c.page(t, query)
			if len(part) == 0 {
				break
			}
			if reverse {
				walked = append(part, walked...)
				query.Set("marker", part[0])
			} else {
				walked = append(walked, part...)
				query.Set("marker", part[len(part)-1])
			}
		}
		if !slices.Equal(walked, whole) {
			t.Fatalf("walked %v, want %v", walked, whole)
		}
	})
}

// TestPageIsWalkedNoFurther: what is on a page in order of ids is all that is asked of the
// operation.
func TestPageIsWalkedNoFurther(t *testing.T) {
	t.Parallel()
	c := aCollection()
	all := someSubnets(100)
	c.lists(all)
	made := 0
	c.ops.List = func(_ context.Context, _ neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SubnetView], error) {
		return func(yield func(*neutron.SubnetView) bool) {
			for _, o := range all {
				if q.InRange(o.ID) {
					if made++; !yield(o) {
						return
					}
				}
			}
		}, nil
	}
	for _, tt := range []struct{ query, want string }{
		{"limit=3", "000 001 002"},
		{"limit=3&marker=049", "050 051 052"},
		{"limit=3&marker=003&page_reverse=true", "000 001 002"},
	} {
		made = 0
		query, _ := url.ParseQuery(tt.query)
		if got := strings.Join(c.page(t, query), " "); got != tt.want || made != 3 {
			t.Errorf("%s: %q of %d made, want %q of 3", tt.query, got, made, tt.want)
		}
	}
}

func TestUnknownMarker(t *testing.T) {
	t.Parallel()
	c := aCollection()
	c.lists(someSubnets(3))
	for _, query := range []string{"limit=1&marker=x", "limit=1&marker=x&sort_key=name&sort_dir=asc"} {
		w := httptest.NewRecorder()
		c.answer(c.list).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2.0/subnets?"+query, nil))
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "SubnetNotFound") {
			t.Errorf("%s: %d %s, want SubnetNotFound", query, w.Code, w.Body)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	c := aCollection()
	list := someSubnets(2)
	tests := []struct {
		name, query string
		list        []*neutron.SubnetView
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
		"/v2.0/networks/../ports.json": "/v2.0/networks/%2E%2E/ports",
		"/v2.0/networks/.":             "/v2.0/networks/%2E",
		"/v2.0/networks/x/tags/..":     "/v2.0/networks/x/tags/%2E%2E",
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
		c.lists(all)
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
		h := &handler{timeout: time.Minute, log: slog.New(slog.DiscardHandler)}
		if tt.status == http.StatusServiceUnavailable {
			h.timeout = time.Millisecond
		}
		w := httptest.NewRecorder()
		h.answer(tt.e).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != tt.status || !strings.Contains(w.Body.String(), `"type":"`+tt.typ+`"`) || strings.Contains(w.Body.String(), "secret") || w.Body.Len() > 2*maxMessage {
			t.Errorf("%s: %d %.200s", tt.name, w.Code, w.Body)
		}
	}
}
