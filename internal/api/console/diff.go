package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/explain"
	"heddle/internal/history"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// diff answers what a change would do, or what has changed between two times.
func (c *console) diff(r *http.Request, req *operator.DiffRequest) (*operator.DiffAnswer, error) {
	end, err := c.asked.begin(api.Caller(r.Context()).UserID)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(r.Context(), questionTime)
	defer cancel()
	switch {
	case req.From != "" && len(req.Change) == 0 && req.At == "":
		return c.diffTimes(ctx, req)
	case req.From == "" && req.To == "" && len(req.Change) > 0:
		return c.diffChange(ctx, req)
	}
	return nil, api.Errorf(http.StatusBadRequest, "want either change, a list of steps, with or without at, or from and to, two times")
}

// diffChange answers what a change would do.
func (c *console) diffChange(ctx context.Context, req *operator.DiffRequest) (*operator.DiffAnswer, error) {
	at, err := c.moment(ctx, req.At)
	if err != nil {
		return nil, err
	}
	after, err := c.with(ctx, at, req.Change)
	if err != nil {
		return nil, err
	}
	changes, err := after.draft.fork.Changes()
	if err != nil {
		return nil, err
	}
	a, err := after.world.Diff(ctx, at.snap, after.snap, api.ClientAddr(ctx))
	if err != nil {
		return nil, faultError(err)
	}
	a.Revision, a.Time, a.Refused = after.revision(), at.time, after.refused()
	completeDiff(a, api.Caller(ctx), at.snap, after.snap, changes)
	if req.At == "" && len(a.Cuts) > 0 {
		a.Cut, err = c.cutConnections(ctx, at.snap, a.Cuts)
	}
	return a, err
}

// cutConnections asks the hosts where some connections may come in which of them are open.
func (c *console) cutConnections(ctx context.Context, snap *records.Snap, sets []flow.ConnectionSet) (*operator.CutConnections, error) {
	hosts, err := overlayHosts(snap, "")
	if err != nil {
		return nil, err
	}
	at := setsByHost(snap, hosts, sets)
	hosts = slices.DeleteFunc(hosts, func(h *topology.Host) bool { return at[h.ID] == nil })
	requests := make([]flow.TraceRequest, len(hosts))
	for i, h := range hosts {
		requests[i] = flow.TraceRequest{HostID: h.ID, Connections: &flow.ConnectionsRequest{Sets: at[h.ID]}}
	}
	answers := c.askEach(ctx, requests)
	cut := &operator.CutConnections{Examples: []operator.CutConnection{}}
	for i, h := range hosts {
		a, why := answers[i].answer, answers[i].why
		if why == "" && a.Connections == nil {
			why = agentEarlier
		}
		if why != "" {
			cut.Missing = append(cut.Missing, operator.CountedHost{Name: h.Name, Plane: planeOverlay, Error: why})
			continue
		}
		cut.Count += a.Connections.Count
		for _, x := range a.Connections.Examples {
			cut.Examples = append(cut.Examples, operator.CutConnection{Host: h.Name, OpenConnection: x})
		}
	}
	return cut, nil
}

// setsByHost returns the parts of sets of connections that may come in at hosts, by their ids: by
// the ports that are bound there, and from outside by each.
func setsByHost(snap *records.Snap, hosts []*topology.Host, sets []flow.ConnectionSet) map[string][]flow.ConnectionSet {
	at := map[string][]flow.ConnectionSet{}
	for _, s := range sets {
		if len(s.From) > 0 {
			for _, h := range hosts {
				at[h.ID] = append(at[h.ID], s)
			}
			continue
		}
		ports := map[string][]string{}
		for _, id := range s.Ports {
			if p, ok := schema.Ports.Peek(snap, id); ok {
				ports[p.ServedBy()] = append(ports[p.ServedBy()], id)
			}
		}
		for host, ids := range ports {
			s.Ports = ids
			at[host] = append(at[host], s)
		}
	}
	return at
}

// diffTimes answers what has changed between two times. Both are as the journal has them, so that
// what it does not record makes no difference.
func (c *console) diffTimes(ctx context.Context, req *operator.DiffRequest) (*operator.DiffAnswer, error) {
	present, err := c.past(ctx)
	if err != nil {
		return nil, err
	}
	to := req.To
	if to == "" || to == "now" {
		to = fmt.Sprintf("%d.%d", c.Journal.Position().Epoch, present.Revision())
	}
	from, err := c.moment(ctx, req.From)
	if err != nil {
		return nil, err
	}
	until, err := c.moment(ctx, to)
	if err != nil {
		return nil, err
	}
	changes, err := records.Compare(from.snap, until.snap, schema.All()...)
	if err != nil {
		return nil, err
	}
	a, err := explain.NewWorld().Diff(ctx, from.snap, until.snap, api.ClientAddr(ctx))
	if err != nil {
		return nil, faultError(err)
	}
	a.Revision, a.Time, a.Until, a.UntilTime, a.Refused = from.snap.Revision(), from.time, until.snap.Revision(), until.time, []operator.RefusedStep{}
	completeDiff(a, api.Caller(ctx), from.snap, until.snap, changes)
	return a, nil
}

// completeDiff adds the objects that differ, and what ids stand for.
func completeDiff(a *operator.DiffAnswer, asker neutron.Caller, before, after *records.Snap, changes []records.ChangedRecord) {
	a.Objects = history.Objects(changes)
	a.Names = map[string]flow.TraceName{}
	texts := []string{}
	for _, w := range a.Warnings {
		texts = append(texts, w.Text)
	}
	for _, r := range a.Refused {
		texts = append(texts, r.Message)
	}
	texts = append(texts, nameExamples(after, a.Gained, a.Lost)...)
	for _, snap := range []*records.Snap{before, after} {
		for id, name := range changeNames(snap, asker, []operator.Revision{{Objects: a.Objects}}) {
			a.Names[id] = name
		}
		for id, name := range namesOf(snap, idsOf(texts)) {
			a.Names[id] = name
		}
	}
}

// nameExamples adds to the examples of connections what ids in them stand for, and returns the ids
// of the groups of machines.
func nameExamples(snap *records.Snap, both ...[]operator.ReachChange) (groups []string) {
	for _, rows := range both {
		for i := range rows {
			for _, p := range slices.Concat(rows[i].From.Ports, rows[i].To.Ports) {
				groups = append(groups, p.Groups...)
			}
			if why := rows[i].Example.Why; why != nil {
				why.Names = whyNames(snap, why)
			}
		}
	}
	return groups
}
