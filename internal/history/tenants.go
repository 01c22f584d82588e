package history

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/journal"
	"heddle/internal/store/schema"
)

// anOperator stands for authors outside a tenant's project.
const anOperator = "an operator"

// told has the collections of which tenants see fields: those that Neutron's API shows them.
var told = map[string]neutron.Resource{
	"networks": neutron.Networks, "subnets": neutron.Subnets, "ports": neutron.Ports, "security-groups": neutron.SecurityGroups,
	"routers": neutron.Routers, "floatingips": neutron.FloatingIPs,
}

// concealed returns what a tenant may know of a change: its project's objects, by the attributes
// that Neutron's API shows tenants, and who of the project has made it. It is made anew of what is
// known to be harmless.
func concealed(c *journal.Commit, r *operator.Revision, project string) operator.Revision {
	seen := operator.Revision{Epoch: r.Epoch, Revision: r.Revision, Time: r.Time, Objects: []operator.ChangedObject{}}
	for i := range r.Objects {
		o := r.Objects[i]
		at := slices.IndexFunc(c.Changes, func(change journal.Change) bool { return change.Key == o.Key })
		if at < 0 || !isOf(&c.Changes[at], project) { // users are not journalled
			continue
		}
		hadFields := len(o.Fields) > 0
		o.Fields = fieldsTold(&o)
		if o.Change != "changed" || len(o.Fields) > 0 || !hadFields {
			seen.Objects = append(seen.Objects, o)
		}
	}
	seen.Author = concealedAuthor(r.Author, seen.Objects, project, r.Time)
	return seen
}

// isOf reports whether a changed object is a project's, before and after.
func isOf(change *journal.Change, project string) bool {
	if !strings.HasPrefix(change.Key, schema.NeutronPrefix) || project == "" {
		return false
	}
	for _, value := range [][]byte{change.Before, change.After} {
		var object struct {
			ProjectID string `json:"project_id"`
		}
		if value != nil && (json.Unmarshal(value, &object) != nil || object.ProjectID != project) {
			return false
		}
	}
	return true
}

// fieldsTold returns the fields of an object that Neutron's API shows tenants.
func fieldsTold(o *operator.ChangedObject) (fields []operator.ChangedField) {
	collection, _, _ := strings.Cut(strings.TrimPrefix(o.Key, schema.NeutronPrefix), "/")
	resource, known := told[collection]
	if !known {
		return nil
	}
	for _, f := range o.Fields {
		name, _, _ := strings.Cut(f.Name, "[")
		if slices.ContainsFunc(resource.Attributes(), func(a *neutron.Attribute) bool {
			return a.Name == name && a.See == neutron.Everyone && !a.Hidden && !a.Secret
		}) {
			fields = append(fields, f)
		}
	}
	return fields
}

// concealedAuthor returns what a tenant may know of an author. The summary of a call by the project
// is told unless it names what is not among the objects.
func concealedAuthor(a *operator.Author, objects []operator.ChangedObject, project string, journalled time.Time) *operator.Author {
	switch {
	case a == nil:
		return nil
	case a.ProjectID != project:
		return &operator.Author{User: anOperator, Time: journalled}
	}
	seen := &operator.Author{User: a.User, UserID: a.UserID, ProjectID: a.ProjectID, API: a.API, Method: a.Method, RequestID: a.RequestID, Time: a.Time}
	for _, word := range strings.Fields(a.Summary) {
		if strings.ContainsAny(word, "0123456789") && !names(objects, word) {
			return seen
		}
	}
	seen.Summary = a.Summary
	return seen
}

// names reports whether an id is that of an object, or of an entry in one.
func names(objects []operator.ChangedObject, id string) bool {
	return slices.ContainsFunc(objects, func(o operator.ChangedObject) bool {
		return o.ID == id || slices.ContainsFunc(o.Fields, func(f operator.ChangedField) bool { return strings.HasSuffix(f.Name, "["+id+"]") })
	})
}

// seenBy returns what a caller may know of a commit. Of one that changes nothing of the caller's
// project, no object is left.
func seenBy(caller neutron.Caller, c *journal.Commit) operator.Revision {
	r := describe(c)
	if caller.Admin() {
		return r
	}
	return concealed(c, &r, caller.ProjectID)
}

// concealFaults leaves of faults of a journal that there are some: their words name files.
func concealFaults(h *operator.History) {
	if h.Problem != "" {
		h.Problem = "ask an operator"
	}
	for i := range h.Gaps {
		h.Gaps[i].Reason = ""
	}
}
