package identity

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/internal/api"
)

// timeForm is Keystone's form of times: UTC, microseconds, Z.
const timeForm = "2006-01-02T15:04:05.000000Z"

// object is one answer's object: attributes known and unknown to the server mix, so it is a map.
type object map[string]any

func keystoneTime(t time.Time) string { return t.UTC().Format(timeForm) }

// self is the link of an object to itself.
func self(r *http.Request, parts ...string) object {
	return object{"self": api.BaseURL(r) + "/v3/" + strings.Join(parts, "/")}
}

// withExtra adds the attributes that clients attached; those of the server win.
func withExtra(o object, e extra) object {
	for name, raw := range e {
		if _, ours := o[name]; !ours {
			o[name] = json.RawMessage(raw)
		}
	}
	return o
}

func domainView(r *http.Request, d *Domain) object {
	return object{"id": d.ID, "name": d.Name, "description": d.Description, "enabled": d.Enabled, "tags": []string{},
		"options": object{}, "links": self(r, "domains", d.ID)}
}

func projectView(r *http.Request, p *Project) object {
	tags := p.Tags
	if tags == nil {
		tags = []string{}
	}
	return withExtra(object{"id": p.ID, "name": p.Name, "domain_id": p.DomainID, "description": p.Description, "enabled": p.Enabled,
		"parent_id": p.DomainID, "is_domain": false, "tags": tags, "options": object{}, "links": self(r, "projects", p.ID)}, p.Extra)
}

func userView(r *http.Request, u *User) object {
	o := object{"id": u.ID, "name": u.Name, "domain_id": u.DomainID, "enabled": u.Enabled, "password_expires_at": nil,
		"options": object{}, "links": self(r, "users", u.ID)}
	if u.DefaultProjectID != "" {
		o["default_project_id"] = u.DefaultProjectID
	}
	return withExtra(o, u.Extra)
}

func roleView(r *http.Request, role *Role) object {
	return object{"id": role.ID, "name": role.Name, "domain_id": nil, "description": role.Description, "options": object{},
		"links": self(r, "roles", role.ID)}
}

// writeList answers with the objects that the query's filters let through, and the links every list
// carries. Filters are the names given that the objects have, or have with one of the endings of
// comparisons.
func writeList(w http.ResponseWriter, r *http.Request, kind string, all []object, filters ...string) {
	query := r.URL.Query()
	kept := make([]object, 0, len(all))
	for _, o := range all {
		if matches(o, query, filters) {
			kept = append(kept, o)
		}
	}
	here := api.BaseURL(r) + r.URL.Path
	if r.URL.RawQuery != "" {
		here += "?" + r.URL.RawQuery
	}
	api.WriteJSON(w, http.StatusOK, object{kind: kept, "links": object{"self": here, "previous": nil, "next": nil}})
}

// compare compares by an operator, which follows "__" in a filter's name; an i before it ignores
// case.
func compare(op, have, want string) bool {
	if op != "" && op[0] == 'i' {
		op, have, want = op[1:], strings.ToLower(have), strings.ToLower(want)
	}
	switch op {
	case "":
		return have == want
	case "contains":
		return strings.Contains(have, want)
	case "startswith":
		return strings.HasPrefix(have, want)
	case "endswith":
		return strings.HasSuffix(have, want)
	}
	return true // a comparison unknown to Keystone filters nothing
}

func matches(o object, query url.Values, filters []string) bool {
	for key, values := range query {
		name, op, _ := strings.Cut(key, "__")
		if !slices.Contains(filters, name) || len(values) == 0 {
			continue
		}
		want := values[0]
		switch have := o[name].(type) {
		case string:
			if !compare(op, have, want) {
				return false
			}
		case bool:
			// As Keystone: "0" and "false" ask for what is off, anything else, "enabled" alone too,
			// for what is on.
			if b, err := strconv.ParseBool(strings.ToLower(want)); have != (b || err != nil) {
				return false
			}
		case nil:
			if want != "" && want != "null" {
				return false
			}
		}
	}
	return tagsMatch(o, query)
}

// tagsMatch applies the four filters on tags that projects have.
func tagsMatch(o object, query url.Values) bool {
	tags, ok := o["tags"].([]string)
	if !ok {
		return true
	}
	count := func(key string) (asked, found int) {
		for _, t := range strings.FieldsFunc(query.Get(key), func(r rune) bool { return r == ',' }) {
			asked++
			if slices.Contains(tags, t) {
				found++
			}
		}
		return asked, found
	}
	if asked, found := count("tags"); found < asked {
		return false
	}
	if asked, found := count("tags-any"); asked > 0 && found == 0 {
		return false
	}
	if asked, found := count("not-tags"); asked > 0 && found == asked {
		return false
	}
	_, found := count("not-tags-any")
	return found == 0
}
