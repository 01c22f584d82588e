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
	snap, err := c.past(r.Context())
	if err != nil {
		return nil, err
	}
	if q.Name != "" {
		q.IDs = idsNamed(snap, q.Name)
	}
	ctx, cancel := context.WithTimeout(r.Context(), historySearch)
	defer cancel()
	answer, err := history.Page(ctx, c.Journal, q)
	if err != nil {
		return nil, invalidQuery(err)
	}
	answer.Revision, answer.Names = snap.Revision(), changeNames(snap, answer.Changes)
	if r.URL.Query().Get("effect") == "true" {
		err = c.addEffects(r.Context(), answer)
	}
	return answer, err
}

// revision answers with what changed at a revision.
func (c *console) revision(r *http.Request) (*operator.History, error) {
	snap, err := c.past(r.Context())
	if err != nil {
		return nil, err
	}
	newest := c.Journal.Position().Epoch
	at, err := history.ParsePosition(r.PathValue("revision"), newest)
	if err != nil {
		return nil, invalidQuery(err)
	}
	found, err := history.Show(r.Context(), c.Journal, at)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, api.Errorf(http.StatusNotFound, "revision %s: this server has no change of it; heddle history lists those that there are", r.PathValue("revision"))
	}
	answer := operator.History{Revision: snap.Revision(), Epoch: newest, Changes: []operator.Revision{*found}, Gaps: []operator.Gap{}}
	answer.Names = changeNames(snap, answer.Changes)
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
	values := r.URL.Query()
	q = history.Query{By: values.Get("by"), Before: values.Get("before"), Limit: historyLimit}
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

// idsNamed returns the ids of the objects that have a name, or a floating IP's address.
func idsNamed(snap *records.Snap, name string) (ids []string) {
	addNamed(&ids, snap, schema.Networks, "name", name, func(o *neutron.Network) string { return o.ID })
	addNamed(&ids, snap, schema.Subnets, "name", name, func(o *neutron.Subnet) string { return o.ID })
	addNamed(&ids, snap, schema.Ports, "name", name, func(o *neutron.Port) string { return o.ID })
	addNamed(&ids, snap, schema.Ports, "ip_address", name, func(o *neutron.Port) string { return o.ID })
	addNamed(&ids, snap, schema.SecurityGroups, "name", name, func(o *neutron.SecurityGroup) string { return o.ID })
	addNamed(&ids, snap, schema.Routers, "name", name, func(o *neutron.Router) string { return o.ID })
	if h, err := schema.HostByName(snap, name); err == nil {
		ids = append(ids, h.ID)
	}
	return ids
}

func addNamed[T any](ids *[]string, snap *records.Snap, table *records.Table[T], index, name string, id func(*T) string) {
	for o := range table.By(snap, index, name) {
		*ids = append(*ids, id(o))
	}
}

// changeNames returns what the ids in changes stand for: at present, or else as the changes say.
func changeNames(snap *records.Snap, changes []operator.Revision) map[string]flow.TraceName {
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
