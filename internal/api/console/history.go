package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/history"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

const (
	// historyLimit and mostHistory are the number of changes in a page unless the query has
	// another, and the most that it may have.
	historyLimit, mostHistory = 100, 1000
	// historySearch bounds the search for a page. What is found by then is answered, with where to
	// go on.
	historySearch = 5 * time.Second
	// journalWait bounds the wait for the journal to have the newest changes.
	journalWait = 2 * time.Second
)

// history answers with the changes that the query selects: object, by, since, before and limit.
func (c *console) history(r *http.Request) (*operator.History, error) {
	q, err := historyQuery(r)
	if err != nil {
		return nil, err
	}
	withEffect := r.URL.Query().Get("effect") == "true"
	if withEffect && !q.Caller.Admin() {
		return nil, api.Errorf(http.StatusForbidden, "effect: the effect of changes wants the role admin.")
	}
	if withEffect || !q.Caller.Admin() {
		end, err := c.asked.begin(q.Caller.UserID)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	snap, err := c.past(r.Context())
	if err != nil {
		return nil, err
	}
	if q.Name != "" {
		q.IDs = idsNamed(snap, q.Caller, q.Name)
	}
	ctx, cancel := context.WithTimeout(r.Context(), historySearch)
	defer cancel()
	answer, err := history.Page(ctx, c.Journal, q)
	if err != nil {
		return nil, invalidQuery(err)
	}
	answer.Revision, answer.Names = snap.Revision(), changeNames(snap, q.Caller, answer.Changes)
	if withEffect {
		c.addEffects(r.Context(), answer)
	}
	return answer, nil
}

// revision answers with what changed at a revision.
func (c *console) revision(r *http.Request) (*operator.History, error) {
	caller := api.Caller(r.Context())
	if err := checkAsker(caller); err != nil {
		return nil, err
	}
	snap, err := c.past(r.Context())
	if err != nil {
		return nil, err
	}
	newest := c.Journal.Position().Epoch
	at, err := history.ParsePosition(r.PathValue("revision"), newest)
	if err != nil {
		return nil, invalidQuery(err)
	}
	found, err := history.Show(r.Context(), c.Journal, caller, at)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, api.Errorf(http.StatusNotFound, "revision %s: this server has no change of it; heddle history lists those that there are", r.PathValue("revision"))
	}
	answer := operator.History{Revision: snap.Revision(), Epoch: newest, Changes: []operator.Revision{*found}, Gaps: []operator.Gap{}}
	answer.Names = changeNames(snap, caller, answer.Changes)
	return &answer, nil
}

// past returns a snapshot of the present, once the journal has all changes up to it or cannot have
// them.
func (c *console) past(ctx context.Context) (*records.Snap, error) {
	if c.Journal == nil {
		return nil, api.Errorf(http.StatusNotFound, "This server keeps no journal.")
	}
	snap, err := c.DB.View(ctx)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, journalWait)
	defer cancel()
	if err := c.Journal.Await(waiting, snap.Revision()); err != nil && ctx.Err() != nil {
		return nil, err
	}
	return snap, nil
}

func historyQuery(r *http.Request) (q history.Query, err error) {
	values, caller := r.URL.Query(), api.Caller(r.Context())
	if err := checkAsker(caller); err != nil {
		return q, err
	}
	q = history.Query{Caller: caller, By: values.Get("by"), Before: values.Get("before"), Limit: historyLimit}
	if object := values.Get("object"); uuids.FindString(object) == object && object != "" {
		q.IDs = []string{object}
	} else {
		q.Name = object
	}
	if since := values.Get("since"); since != "" {
		if q.Since, err = time.Parse(time.RFC3339, since); err != nil {
			return q, api.Errorf(http.StatusBadRequest, "since %q: want a time such as 2026-11-28T06:00:00Z", since)
		}
	}
	if limit := values.Get("limit"); limit != "" {
		if q.Limit, err = strconv.Atoi(limit); err != nil || q.Limit < 1 || q.Limit > mostHistory {
			return q, api.Errorf(http.StatusBadRequest, "limit %q: want 1 to %d", limit, mostHistory)
		}
	}
	return q, nil
}

func invalidQuery(err error) error {
	var invalid *history.InvalidError
	if errors.As(err, &invalid) {
		return api.Errorf(http.StatusBadRequest, "%v", invalid)
	}
	return err
}

// idsNamed returns the ids of the objects of a caller's that have a name, or a floating IP's
// address.
func idsNamed(snap *records.Snap, caller neutron.Caller, name string) (ids []string) {
	n := namedObjects{snap: snap, caller: caller}
	addNamed(&n, schema.Networks, "name", name, func(o *neutron.Network) *neutron.Standard { return &o.Standard })
	addNamed(&n, schema.Subnets, "name", name, func(o *neutron.Subnet) *neutron.Standard { return &o.Standard })
	addNamed(&n, schema.Ports, "name", name, func(o *neutron.Port) *neutron.Standard { return &o.Standard })
	addNamed(&n, schema.Ports, "ip_address", name, func(o *neutron.Port) *neutron.Standard { return &o.Standard })
	addNamed(&n, schema.SecurityGroups, "name", name, func(o *neutron.SecurityGroup) *neutron.Standard { return &o.Standard })
	addNamed(&n, schema.Routers, "name", name, func(o *neutron.Router) *neutron.Standard { return &o.Standard })
	if h, err := schema.HostByName(snap, name); err == nil && caller.Admin() {
		n.ids = append(n.ids, h.ID)
	}
	return n.ids
}

// namedObjects collects the ids of a caller's objects.
type namedObjects struct {
	snap   *records.Snap
	caller neutron.Caller
	ids    []string
}

func addNamed[T any](n *namedObjects, table *records.Table[T], index, name string, standard func(*T) *neutron.Standard) {
	for o := range table.By(n.snap, index, name) {
		if s := standard(o); n.caller.Owns(s.ProjectID) {
			n.ids = append(n.ids, s.ID)
		}
	}
}

// changeNames returns what the ids in changes stand for: at present, or else as the changes say.
// Tenants hear the names in what they see of the changes alone.
func changeNames(snap *records.Snap, caller neutron.Caller, changes []operator.Revision) map[string]flow.TraceName {
	var texts []string
	named := map[string]flow.TraceName{}
	for _, change := range changes {
		for _, o := range change.Objects {
			texts = append(texts, o.ID)
			if o.Name != "" {
				named[o.ID] = flow.TraceName{Kind: o.Kind, Name: o.Name}
			}
			for _, f := range o.Fields {
				texts = append(texts, f.Name, string(f.Before), string(f.After))
			}
		}
	}
	if !caller.Admin() {
		return named
	}
	ids := idsOf(texts)
	for id, name := range namesOf(snap, ids) {
		named[id] = flow.TraceName{Kind: cmp.Or(name.Kind, named[id].Kind), Name: cmp.Or(name.Name, named[id].Name)}
	}
	for _, id := range ids {
		if s, ok := schema.Subnets.Peek(snap, id); ok {
			named[id] = flow.TraceName{Kind: "subnet", Name: s.Name}
		}
	}
	return named
}
