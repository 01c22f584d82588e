package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/internal/api/operator"
	"heddle/internal/audit"
	"heddle/internal/neutron"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Query selects changes.
type Query struct {
	// Caller is the user who asks: tenants see changes of their project alone, and nothing else
	// decides what is selected for them.
	Caller neutron.Caller
	// IDs and Name are those of one object, of which all that concerns it is wanted: a change of
	// the object, and of what begins or ceases to refer to it. Both empty: all objects.
	IDs   []string
	Name  string
	By    string    // name or id of a user; "" = all
	Since time.Time // zero: as far back as the journal goes
	// Before continues a page, see operator.History.Next; "" = the newest changes.
	Before string
	Limit  int
}

// ParsePosition reads a position in the form EPOCH.REVISION, or REVISION of the newest epoch.
func ParsePosition(text string, newest int) (journal.Position, error) {
	epoch, revision, both := strings.Cut(text, ".")
	if !both {
		epoch, revision = strconv.Itoa(newest), text
	}
	e, err1 := strconv.Atoi(epoch)
	r, err2 := strconv.ParseInt(revision, 10, 64)
	if err1 != nil || err2 != nil || e < 1 || r < 1 {
		return journal.Position{}, &InvalidError{fmt.Sprintf("%q is no revision: give one as heddle history prints it, REVISION or EPOCH.REVISION", text)}
	}
	return journal.Position{Epoch: e, Revision: r}, nil
}

// InvalidError reports a query that cannot be answered, and why.
type InvalidError struct{ text string }

func (e *InvalidError) Error() string { return e.text }

// Page returns the changes that a query selects, the newest first. The names of objects in them are
// the caller's to fill in.
func Page(ctx context.Context, j *journal.Journal, q Query) (*operator.History, error) {
	var before journal.Position
	newest := j.Position().Epoch
	if q.Before != "" {
		var err error
		if before, err = ParsePosition(q.Before, newest); err != nil {
			return nil, err
		}
	}
	var changes []operator.Revision
	jq := journal.Query{Before: before, Since: q.Since, Limit: q.Limit, Want: func(c *journal.Commit) bool {
		r := seenBy(q.Caller, c)
		if !q.matches(&r) {
			return false
		}
		changes = append(changes, r)
		return true
	}}
	if q.IDs != nil || q.Name != "" {
		jq.About = q.mentions
	}
	if q.By != "" && q.Caller.Admin() {
		jq.Match = func(c *journal.Commit) bool { return q.isBy(authorOf(c)) }
	}
	p, err := j.Commits(ctx, jq)
	if err != nil {
		return nil, err
	}
	h := &operator.History{Epoch: newest, Changes: append([]operator.Revision{}, changes...), Gaps: []operator.Gap{}, Begins: p.BeginsTime, Problem: j.Problem()}
	for i := range p.Gaps {
		h.Gaps = append(h.Gaps, *describeGap(&p.Gaps[i]))
	}
	if !q.Caller.Admin() {
		concealFaults(h)
	}
	if p.Next != (journal.Position{}) {
		h.Next = fmt.Sprintf("%d.%d", p.Next.Epoch, p.Next.Revision)
	}
	return h, nil
}

func describeGap(g *journal.Gap) *operator.Gap {
	return &operator.Gap{After: g.After.Revision, AfterTime: g.AfterTime, Until: g.Until.Revision, UntilTime: g.UntilTime, Reason: g.Unreadable}
}

// Show returns what changed at a position. It returns nil if nothing that is recorded did, or
// nothing of the caller's.
func Show(ctx context.Context, j *journal.Journal, caller neutron.Caller, at journal.Position) (*operator.Revision, error) {
	is := func(c *journal.Commit) bool { return c.Position == at }
	p, err := j.Commits(ctx, journal.Query{Before: journal.Position{Epoch: at.Epoch, Revision: at.Revision + 1}, Limit: 1, Match: is})
	if err != nil || len(p.Commits) == 0 {
		return nil, err
	}
	r := seenBy(caller, &p.Commits[0])
	if !caller.Admin() && len(r.Objects) == 0 {
		return nil, nil
	}
	return &r, nil
}

// mentions reports whether a key or its value has the name or an id of the object.
func (q *Query) mentions(key string, value []byte) bool {
	has := func(text string) bool { return strings.Contains(key, text) || bytes.Contains(value, []byte(text)) }
	return q.Name != "" && has(quoted(q.Name)) || slices.ContainsFunc(q.IDs, has)
}

// quoted returns a name as a JSON value has it, without its quotes.
func quoted(name string) string {
	raw, _ := json.Marshal(name) // of a string
	return string(raw[1 : len(raw)-1])
}

func (q *Query) isBy(a *operator.Author) bool {
	return a != nil && (a.User == q.By || a.UserID == q.By)
}

// matches reports whether a change is wanted, by what the caller may know of it.
func (q *Query) matches(r *operator.Revision) bool {
	if len(r.Objects) == 0 || q.By != "" && !q.isBy(r.Author) {
		return false
	}
	return q.IDs == nil && q.Name == "" || slices.ContainsFunc(r.Objects, q.concerns)
}

// concerns reports whether a changed object is the one asked for, or begins or ceases to refer to
// it.
func (q *Query) concerns(o operator.ChangedObject) bool {
	if slices.Contains(q.IDs, o.ID) || q.Name != "" && o.Name == q.Name {
		return true
	}
	return slices.ContainsFunc(o.Fields, func(f operator.ChangedField) bool {
		return slices.ContainsFunc(q.IDs, func(id string) bool {
			return strings.Contains(f.Name, id) || bytes.Contains(f.Before, []byte(id)) || bytes.Contains(f.After, []byte(id))
		})
	})
}

// describe returns what a commit has changed, and who requested it.
func describe(c *journal.Commit) operator.Revision {
	r := operator.Revision{Epoch: c.Epoch, Revision: c.Revision, Time: c.Time, Author: authorOf(c), Objects: []operator.ChangedObject{}}
	ofNeutron := slices.ContainsFunc(c.Changes, func(change journal.Change) bool { return strings.HasPrefix(change.Key, schema.NeutronPrefix) })
	for _, change := range c.Changes {
		has := func(prefix string) bool { return strings.HasPrefix(change.Key, prefix) }
		switch {
		case has(audit.Prefix):
		case has(schema.TopologyPrefix), ofNeutron && has(schema.CalicoPrefix):
			r.Derived = append(r.Derived, change.Key)
		default:
			if o := describeObject(change); o.Change != "changed" || len(o.Fields) > 0 || change.Unknown {
				r.Objects = append(r.Objects, o)
			}
		}
	}
	if o, ok := requested(r.Author); ok {
		r.Objects = append(r.Objects, o)
	}
	return r
}

// authorOf returns the request that made a commit, or nil.
func authorOf(c *journal.Commit) *operator.Author {
	for _, change := range c.Changes {
		if !strings.HasPrefix(change.Key, audit.Prefix) || change.After == nil {
			continue
		}
		var a audit.Record
		if json.Unmarshal(change.After, &a) != nil {
			return nil // of a version that writes them otherwise
		}
		return &operator.Author{User: a.User, UserID: a.UserID, ProjectID: a.ProjectID, ApplicationCredentialID: a.ApplicationCredentialID, Client: a.Client,
			API: a.API, Method: a.Method, Path: a.Path, RequestID: a.RequestID, Summary: a.Summary, Time: a.Time, Body: a.Body, Cut: a.Cut}
	}
	return nil
}

// Objects returns the objects that differ between two snapshots, by the records that do, without
// secrets and what follows from the objects.
func Objects(changes []records.ChangedRecord) []operator.ChangedObject {
	objects := []operator.ChangedObject{}
	for _, c := range changes {
		if !strings.HasPrefix(c.Key, schema.NeutronPrefix) && !strings.HasPrefix(c.Key, schema.HostsPrefix) {
			continue
		}
		before, told := keep(c.Key, c.Before)
		after, stillTold := keep(c.Key, c.After)
		if !told || !stillTold {
			continue
		}
		if o := describeObject(journal.Change{Key: c.Key, Before: before, After: after}); o.Change != "changed" || len(o.Fields) > 0 {
			objects = append(objects, o)
		}
	}
	return objects
}

func describeObject(change journal.Change) operator.ChangedObject {
	o := operator.ChangedObject{Key: change.Key, Change: "changed"}
	o.Kind, o.ID = kindAndID(change.Key)
	if !change.Unknown {
		o.Fields = fieldChanges(change.Before, change.After)
	}
	value := change.After
	switch {
	case change.After == nil:
		o.Change, value = "deleted", change.Before
	case change.Before == nil && !change.Unknown:
		o.Change = "created"
	}
	var named struct {
		Name              string
		FloatingIPAddress string `json:"floating_ip_address"`
	}
	if json.Unmarshal(value, &named) == nil { // values of another form have no name
		o.Name = cmp.Or(named.Name, named.FloatingIPAddress)
	}
	return o
}

// kindAndID returns what kind of object a key has, and its id.
func kindAndID(key string) (kind, id string) {
	if rest, ok := strings.CutPrefix(key, schema.NeutronPrefix); ok {
		collection, id, _ := strings.Cut(rest, "/")
		return singular(collection), id
	}
	if rest, ok := strings.CutPrefix(key, schema.StatePrefix); ok {
		host, what, _ := strings.Cut(rest, "/")
		if port, isPort := strings.CutPrefix(what, "ports/"); isPort {
			return "port state", port
		}
		return "host state", host
	}
	if rest, ok := strings.CutPrefix(key, schema.CalicoPrefix); ok {
		return "calico key", rest
	}
	if rest, ok := strings.CutPrefix(key, xenObjects); ok {
		class, ref, _ := strings.Cut(rest, "/")
		return "pool " + class, ref
	}
	parts := strings.SplitN(strings.TrimPrefix(key, schema.Root), "/", 2)
	return singular(parts[0]), parts[len(parts)-1]
}

// singular returns the word for one object of a collection, such as "security group".
func singular(collection string) string {
	words := strings.ReplaceAll(collection, "-", " ")
	if stem, ok := strings.CutSuffix(words, "ies"); ok {
		return stem + "y"
	}
	return strings.TrimSuffix(words, "s")
}
