package history

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"heddle/internal/api/operator"
)

// identityKinds has the kinds of what calls of the identity API change, by their collections.
// Tokens are not among them.
var identityKinds = map[string]string{
	"users": "user", "projects": "project", "domains": "domain", "roles": "role", "application_credentials": "application credential",
}

// requested returns the object that a call of the identity API has changed, by what the call says:
// nothing of users is journalled. It returns false for calls of other APIs, and about tokens.
func requested(a *operator.Author) (o operator.ChangedObject, ok bool) {
	if a == nil || a.API != "identity" {
		return o, false
	}
	_, path, _ := strings.Cut(strings.Trim(a.Path, "/"), "/") // without the version
	parts := strings.Split(path, "/")
	change := map[string]string{"POST": "created", "PUT": "created", "PATCH": "changed", "DELETE": "deleted"}[a.Method]
	if i := slices.Index(parts, "roles"); i > 0 { // given to a user, for a project or domain
		return operator.ChangedObject{Key: a.Path, Kind: "role assignment", ID: strings.Join(parts, " "), Change: change}, true
	}
	for len(parts) > 2 && identityKinds[parts[2]] != "" { // of a user
		parts = parts[2:]
	}
	o = operator.ChangedObject{Key: a.Path, Kind: identityKinds[parts[0]], Change: change}
	if len(parts) > 1 {
		o.ID = parts[1]
	}
	if len(parts) > 2 { // a part of it, such as the password
		o.Change = "changed"
	}
	var body map[string]map[string]json.RawMessage
	if json.Unmarshal([]byte(a.Body), &body) == nil { // one that is cut off, or struck out as a whole, has no fields
		for _, members := range body {
			_ = json.Unmarshal(members["name"], &o.Name) // one of another form is refused by the API
			for _, name := range slices.Sorted(maps.Keys(members)) {
				o.Fields = append(o.Fields, operator.ChangedField{Name: name, After: members[name]})
			}
		}
	}
	return o, o.Kind != ""
}
