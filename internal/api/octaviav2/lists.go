package octaviav2

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// page holds the parameters of a list, except filters.
type page struct {
	limit   int // 0 = all
	marker  string
	reverse bool
	sorts   []sortKey
}

type sortKey struct {
	name string
	desc bool
}

// row is an object of a list with what it is sorted by.
type row[V any] struct {
	object V
	id     string
}

func (c *collection[V]) list(w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	p, err := readPage(params)
	if err != nil {
		return err
	}
	filters, err := c.filters(r, params)
	if err != nil {
		return err
	}
	by, err := c.sorting(p.sorts)
	if err != nil {
		return err
	}
	q := neutron.Query{ProjectIDs: params["project_id"]}
	found, err := c.ops(r).List(r.Context(), caller(r), q)
	if err != nil {
		return c.inPool(r, err)
	}
	rows := []row[V]{}
	id := c.column("id").get
	for o := range found {
		rows = append(rows, row[V]{o, id(o).(string)})
	}
	slices.SortStableFunc(rows, by)
	at := -1
	if p.marker != "" {
		if at = slices.IndexFunc(rows, func(x row[V]) bool { return x.id == p.marker }); at < 0 {
			return badRequest("Supplied pagination marker '" + p.marker + "' is not valid.")
		}
		if p.reverse {
			rows = rows[:at]
		} else {
			rows = rows[at+1:]
		}
	}
	rows = slices.DeleteFunc(rows, func(x row[V]) bool {
		return slices.ContainsFunc(filters, func(passes func(V) bool) bool { return !passes(x.object) })
	})
	full := p.limit > 0 && len(rows) >= p.limit
	if full {
		rows = rows[:p.limit]
	}
	objects := make([]map[string]any, len(rows))
	for i, x := range rows {
		objects[i] = c.answer(x.object, params["fields"])
	}
	links := []map[string]string{}
	if p.limit > 0 && len(rows) > 0 {
		if p.marker != "" {
			links = append(links, link(r, params, p.limit, rows[0].id, "previous"))
		}
		if full {
			links = append(links, link(r, params, p.limit, rows[len(rows)-1].id, "next"))
		}
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{c.plural: objects, c.plural + "_links": links})
	return nil
}

// link returns the link to the page before or after an object.
func link(r *http.Request, params url.Values, limit int, marker, rel string) map[string]string {
	q := "limit=" + strconv.Itoa(limit)
	for _, name := range []string{"sort", "sort_key", "sort_dir"} {
		if v := params.Get(name); v != "" {
			q += "&" + name + "=" + url.QueryEscape(v)
		}
	}
	for _, name := range slices.Sorted(mapsKeys(params)) {
		if !slices.Contains(notFilters, name) {
			q += "&" + name + "=" + url.QueryEscape(strings.Join(params[name], ","))
		}
	}
	q += "&marker=" + marker
	if rel == "previous" {
		q += "&page_reverse=True"
	}
	return map[string]string{"rel": rel, "href": api.BaseURL(r) + r.URL.Path + "?" + q}
}

func mapsKeys(v url.Values) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range v {
			if !yield(name) {
				return
			}
		}
	}
}

// notFilters are the parameters that say how to list, not what.
var notFilters = []string{"fields", "sort", "sort_key", "sort_dir", "limit", "marker", "page_reverse"}

// tagFilters pass objects by their tags.
func tagFilter(name string) func(tags, want []string) bool {
	hasAll := func(tags, want []string) bool {
		return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(tags, w) })
	}
	hasAny := func(tags, want []string) bool {
		return slices.ContainsFunc(want, func(w string) bool { return slices.Contains(tags, w) })
	}
	switch name {
	case "tags":
		return hasAll
	case "tags-any":
		return hasAny
	case "not-tags":
		return func(t, w []string) bool { return !hasAll(t, w) }
	case "not-tags-any":
		return func(t, w []string) bool { return !hasAny(t, w) }
	}
	return nil
}

// invalidArguments is Octavia's answer to parameters that it does not know.
func invalidArguments() error {
	return badRequest("One or more arguments are either duplicate or invalid")
}

// filters returns the tests that objects of a list have to pass.
func (c *collection[V]) filters(r *http.Request, params url.Values) ([]func(V) bool, error) {
	var all []func(V) bool
	for _, name := range slices.Sorted(mapsKeys(params)) {
		values := params[name]
		if slices.Contains(notFilters, name) {
			continue
		}
		if pass := tagFilter(name); pass != nil {
			tags, want := c.column("tags").get, strings.Split(strings.Join(values, ","), ",")
			all = append(all, func(o V) bool { return pass(tags(o).([]string), want) })
			continue
		}
		col := c.column(name)
		if col == nil || !col.filter || len(values) != 1 {
			return nil, invalidArguments()
		}
		if name == "project_id" && !caller(r).SeesLB(values[0]) {
			return nil, neutron.LBForbidden("get_" + c.name)
		}
		want := values[0]
		all = append(all, func(o V) bool { return equals(col.get(o), want) })
	}
	return all, nil
}

// equals reports whether a value of an answer is that of a filter.
func equals(v any, want string) bool {
	switch v := v.(type) {
	case nil:
		return want == ""
	case string:
		return v == want
	case bool:
		b, ok := truth(want)
		return ok && b == v
	}
	return fmt.Sprint(v) == want
}

func (c *collection[V]) column(name string) *column[V] {
	i := slices.IndexFunc(c.columns, func(col column[V]) bool { return col.name == name })
	if i < 0 {
		return nil
	}
	return &c.columns[i]
}

// sorting returns the order of a list: as asked for, then by age.
func (c *collection[V]) sorting(keys []sortKey) (func(a, b row[V]) int, error) {
	type order struct {
		get  func(V) any
		desc bool
	}
	var orders []order
	for _, k := range keys {
		col := c.column(k.name)
		if col == nil || !col.filter {
			return nil, badRequest("Supplied sort key '" + k.name + "' is not valid.")
		}
		orders = append(orders, order{col.get, k.desc})
	}
	orders = append(orders, order{c.column("created_at").get, false})
	return func(a, b row[V]) int {
		for _, o := range orders {
			n := compare(o.get(a.object), o.get(b.object))
			if o.desc {
				n = -n
			}
			if n != 0 {
				return n
			}
		}
		return cmp.Compare(a.id, b.id)
	}, nil
}

// compare orders values of one attribute; null comes first.
func compare(a, b any) int {
	switch x := a.(type) {
	case int:
		if y, ok := b.(int); ok {
			return cmp.Compare(x, y)
		}
	case bool:
		if y, ok := b.(bool); ok {
			return cmp.Compare(map[bool]int{true: 1}[x], map[bool]int{true: 1}[y])
		}
	case json.Number:
		if y, ok := b.(json.Number); ok {
			return cmp.Compare(x, y)
		}
	case string:
		if y, ok := b.(string); ok {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(map[bool]int{true: 1}[a != nil], map[bool]int{true: 1}[b != nil])
}

func readPage(params url.Values) (page, error) {
	p := page{marker: params.Get("marker")}
	p.reverse, _ = truth(params.Get("page_reverse"))
	bad := func(what, value string) (page, error) {
		return p, &pageFault{http.StatusBadRequest, "Bad Request", "Supplied " + what + " '" + value + "' is not valid."}
	}
	if text := params.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return bad("pagination limit", text)
		}
		p.limit = max(n, 0)
	}
	dirs := params["sort_dir"]
	for i, name := range params["sort_key"] {
		dir := "asc"
		if i < len(dirs) {
			dir = dirs[i]
		}
		if dir != "asc" && dir != "desc" {
			return bad("sort direction", dir)
		}
		p.sorts = append(p.sorts, sortKey{name, dir == "desc"})
	}
	for _, all := range params["sort"] {
		for key := range strings.SplitSeq(all, ",") {
			name, dir, given := strings.Cut(key, ":")
			if given && dir != "asc" && dir != "desc" {
				return bad("sort direction", dir)
			}
			p.sorts = append(p.sorts, sortKey{name, dir == "desc"})
		}
	}
	return p, nil
}
