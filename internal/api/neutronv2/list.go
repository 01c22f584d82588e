package neutronv2

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// list answers a collection: the operation finds by index what it can, the rest is filtered, sorted
// and cut here. What is asked for in order of ids is neither sorted nor made before it is written,
// so that a page costs what is on it.
func (c *collection[T]) list(w http.ResponseWriter, r *http.Request) error {
	caller, params := api.Caller(r.Context()), r.URL.Query()
	fields := nonEmpty(params["fields"])
	filters, err := c.filters(caller.Admin(), params)
	if err != nil {
		return err
	}
	sorts, err := c.sorts(params)
	if err != nil {
		return err
	}
	page, err := readPage(params)
	if err != nil {
		return err
	}
	q := selective(params, caller.Admin())
	q.WithoutComputed = !c.table.NeedsComputed(append(slices.Clone(fields), attributesNamed(params)...)) && len(fields) > 0
	if sorts == nil && page.limit > 0 {
		q.After, q.Before = page.bounds()
		filters = append(filters, func(o T) bool { return q.InRange(c.id(o)) })
	}
	found, err := c.ops.List(r.Context(), caller, q)
	if err != nil {
		return err
	}
	found = filter(found, filters)
	var chosen []T // of a page
	if page.limit > 0 || sorts != nil {
		if chosen, err = c.order(r.Context(), caller, found, sorts, page); err != nil {
			return err
		}
		found = slices.Values(chosen)
	}
	e := c.table.Encoder(caller.Admin(), fields)
	out := newListWriter(w, http.StatusOK, c.table.Resource.Collection())
	for o := range found {
		out.item(func(b []byte) []byte { return e.Append(b, o) })
	}
	return out.end(c.links(r, params, page, chosen))
}

func (c *collection[T]) id(o T) string { return c.table.SortKey("id")(o).Text }

// order sorts what was found in order of ids, if that is not asked for, and takes the page.
func (c *collection[T]) order(ctx context.Context, caller neutron.Caller, found iter.Seq[T], sorts order[T], p page) ([]T, error) {
	var marker T
	if p.limit > 0 && p.marker != "" {
		var err error
		marker, err = c.ops.Show(ctx, caller, p.marker) // filters may leave it out
		switch {
		case err != nil && c.table.Resource == neutron.QoSPolicies: // of which the reference needs none
			p.marker = ""
		case err != nil:
			return nil, err
		}
	}
	if sorts == nil {
		return take(found, p), nil
	}
	sorts = append(sorts, sortBy[T]{key: c.table.SortKey("id")})
	sorted := sorts.sort(slices.Collect(found))
	if p.limit == 0 {
		return sorted, nil
	}
	var at []neutron.Key
	if p.marker != "" {
		at = sorts.keys(marker)
	}
	return sorts.cut(sorted, p, at), nil
}

// notFilters are the query parameters that say how to list, not what.
var notFilters = []string{"fields", "sort_key", "sort_dir", "limit", "marker", "page_reverse"}

// filters are the tests that all must pass; names that are not filters are ignored (neutron-api
// §2).
func (c *collection[T]) filters(admin bool, params url.Values) ([]func(o T) bool, error) {
	var tests []func(o T) bool
	for name, values := range params {
		if slices.Contains(notFilters, name) {
			continue
		}
		test, err := c.table.Filter(admin, name, values)
		if err != nil {
			return nil, err
		}
		if test != nil {
			tests = append(tests, test)
		}
	}
	return tests, nil
}

func filter[T any](all iter.Seq[T], tests []func(o T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for o := range all {
			if !slices.ContainsFunc(tests, func(pass func(o T) bool) bool { return !pass(o) }) && !yield(o) {
				return
			}
		}
	}
}

// attributesNamed returns the attributes that filters and sort keys name.
func attributesNamed(params url.Values) []string {
	names := slices.Clone(params["sort_key"])
	for name := range params {
		if !slices.Contains(notFilters, name) {
			names = append(names, name)
		}
	}
	return names
}

// selective returns the filters that an index can answer.
func selective(params url.Values, admin bool) neutron.Query {
	either := func(names ...string) []string {
		for _, n := range names {
			if len(params[n]) > 0 {
				return params[n]
			}
		}
		return nil
	}
	all := func(name string) bool {
		values := params[name]
		return len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return !strings.EqualFold(v, "true") && v != "1" })
	}
	q := neutron.Query{
		IDs:                params["id"],
		ProjectIDs:         either("project_id", "tenant_id"),
		Names:              params["name"],
		NetworkIDs:         params["network_id"],
		DeviceIDs:          params["device_id"],
		DeviceOwners:       params["device_owner"],
		SecurityGroupIDs:   either("security_group_id", "security_groups"),
		RemoteGroupIDs:     params["remote_group_id"],
		PortIDs:            params["port_id"],
		RouterIDs:          params["router_id"],
		FloatingIPs:        params["floating_ip_address"],
		FloatingNetworkIDs: params["floating_network_id"],
		IPVersions:         params["ip_version"],
		ObjectIDs:          params["object_id"],
		OnlyShared:         all("shared"),
		OnlyExternal:       all("router:external"),
	}
	q.RemoteAddressGroupIDs = params["remote_address_group_id"]
	if admin {
		q.HostIDs = params["binding:host_id"]
	}
	var ips neutron.FixedIPFilter
	for _, v := range params["fixed_ips"] {
		_ = ips.Add(v) // the filter itself has refused what cannot be read
	}
	q.IPAddresses, q.SubnetIDs = ips.Addresses, ips.SubnetIDs
	q.MACAddresses = neutron.CanonicalMACs(params["mac_address"])
	return q
}

// sortBy is one sort key with its direction.
type sortBy[T any] struct {
	key  func(o T) neutron.Key
	desc bool
}

// sorts reads sort_key and sort_dir; nil is by id.
func (c *collection[T]) sorts(params url.Values) (order[T], error) {
	keys, dirs := nonEmpty(params["sort_key"]), nonEmpty(params["sort_dir"])
	if len(keys) != len(dirs) {
		return nil, badRequest("The number of sort_keys and sort_dirs must be same")
	}
	var sorts order[T]
	var unknown, wrong []string
	for i, name := range keys {
		key := c.table.SortKey(name)
		if key == nil {
			unknown = append(unknown, "'"+name+"'")
		}
		if dirs[i] != "asc" && dirs[i] != "desc" {
			wrong = append(wrong, "'"+dirs[i]+"'")
		}
		sorts = append(sorts, sortBy[T]{key, dirs[i] == "desc"})
	}
	if unknown != nil {
		return nil, badRequest("[" + strings.Join(unknown, ", ") + "] is invalid attribute for sort_keys")
	}
	if wrong != nil {
		return nil, badRequest("[" + strings.Join(wrong, ", ") + "] is invalid value for sort_dirs, valid value is 'asc' and 'desc'")
	}
	return sorts, nil
}

// order is the order of a list: the sort keys asked for, and last the id.
type order[T any] []sortBy[T]

func (s order[T]) keys(o T) []neutron.Key {
	keys := make([]neutron.Key, len(s))
	for i := range s {
		keys[i] = s[i].key(o)
	}
	return keys
}

func (s order[T]) compare(a, b []neutron.Key) int {
	for i := range s {
		if d := a[i].Compare(b[i]); d != 0 {
			if s[i].desc {
				return -d
			}
			return d
		}
	}
	return 0
}

// sort gives a sorted copy.
func (s order[T]) sort(list []T) []T {
	type keyed struct {
		o    T
		keys []neutron.Key
	}
	sorted := make([]keyed, len(list))
	for i, o := range list {
		sorted[i] = keyed{o, s.keys(o)}
	}
	slices.SortFunc(sorted, func(a, b keyed) int { return s.compare(a.keys, b.keys) })
	out := make([]T, len(list))
	for i := range sorted {
		out[i] = sorted[i].o
	}
	return out
}

// page is which part of a sorted list is wanted.
type page struct {
	limit   int    // 0 = all
	marker  string // id of the last object the client has; "" = none
	reverse bool   // towards the start
}

func readPage(params url.Values) (page, error) {
	p := page{marker: params.Get("marker"), reverse: strings.EqualFold(params.Get("page_reverse"), "true")}
	if !params.Has("limit") {
		return p, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(params.Get("limit")))
	if err != nil || n < 0 {
		return p, neutron.Errorf(neutron.Invalid, "BadRequest",
			"Bad limit request: Limit must be an integer 0 or greater and not '%s'.", params.Get("limit"))
	}
	p.limit = n
	return p, nil
}

// bounds are the ids between which a page of a list in order of ids lies; "" = no bound.
func (p page) bounds() (after, before string) {
	if p.reverse {
		return "", p.marker
	}
	return p.marker, ""
}

// take takes the page out of what lies within its bounds, in order.
func take[T any](within iter.Seq[T], p page) []T {
	var taken []T
	for o := range within {
		taken = append(taken, o)
		switch {
		case !p.reverse && len(taken) == p.limit:
			return taken
		case len(taken) > p.limit:
			taken = taken[1:]
		}
	}
	return taken
}

// cut takes the page out of the sorted list; marker has the keys of the last object that the client
// has, nil for the first page.
func (s order[T]) cut(list []T, p page, marker []neutron.Key) []T {
	before, after := len(list), 0 // where the marker is: what comes before it, and where what comes after it starts
	if marker != nil {
		i, found := slices.BinarySearchFunc(list, marker, func(o T, keys []neutron.Key) int { return s.compare(s.keys(o), keys) })
		before, after = i, i
		if found {
			after = i + 1
		}
	}
	if p.reverse {
		return list[max(before-p.limit, 0):before]
	}
	return list[after:min(after+p.limit, len(list))]
}

// links point to the next and the previous page.
func (c *collection[T]) links(r *http.Request, params url.Values, p page, list []T) []link {
	if p.limit == 0 {
		return nil
	}
	full := len(list) >= p.limit
	var links []link
	href := func(marker int, reverse bool) string {
		q := url.Values{}
		for k, v := range params {
			if k != "marker" && k != "page_reverse" {
				q[k] = v
			}
		}
		if len(list) > 0 {
			q.Set("marker", c.id(list[marker]))
		}
		if reverse {
			q.Set("page_reverse", "True")
		}
		return api.BaseURL(r) + r.URL.EscapedPath() + "?" + q.Encode()
	}
	if full || p.reverse {
		links = append(links, link{"next", href(len(list)-1, false)})
	}
	if full || !p.reverse {
		links = append(links, link{"previous", href(0, true)})
	}
	return links
}

// listWriter writes {"networks":[…],"networks_links":[…]}; a long list leaves in parts, so that it
// is never held whole.
type listWriter struct {
	w          http.ResponseWriter
	status     int
	collection string
	buf        []byte
	items      int
	sent       bool
}

// partSize is the number of bytes to collect before they are sent.
const partSize = 64 << 10

func newListWriter(w http.ResponseWriter, status int, collection string) *listWriter {
	l := &listWriter{w: w, status: status, collection: collection, buf: make([]byte, 0, partSize/4)}
	l.buf = fmt.Appendf(l.buf, `{"%s":[`, collection)
	return l
}

func (l *listWriter) item(write func(b []byte) []byte) {
	if l.items > 0 {
		l.buf = append(l.buf, ',')
	}
	l.items++
	if l.buf = write(l.buf); len(l.buf) >= partSize {
		l.flush()
	}
}

func (l *listWriter) flush() {
	if !l.sent {
		l.sent = true
		l.w.Header().Set("Content-Type", "application/json")
		l.w.WriteHeader(l.status)
	}
	_, _ = l.w.Write(l.buf) // a client that has gone is not our error
	l.buf = l.buf[:0]
}

func (l *listWriter) end(links []link) error {
	l.buf = append(l.buf, ']')
	if links != nil {
		text, err := json.Marshal(links)
		if err != nil {
			return err
		}
		l.buf = fmt.Appendf(l.buf, `,"%s_links":%s`, l.collection, text)
	}
	l.buf = append(l.buf, '}')
	if !l.sent {
		l.w.Header().Set("Content-Length", strconv.Itoa(len(l.buf)))
	}
	l.flush()
	return nil
}
