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

// cutConnections asks all hosts for their open connections among some.
func (c *console) cutConnections(ctx context.Context, snap *records.Snap, sets []flow.ConnectionSet) (*operator.CutConnections, error) {
	hosts, err := overlayHosts(snap, "")
	if err != nil {
		return nil, err
	}
	requests := make([]flow.TraceRequest, len(hosts))
	for i, h := range hosts {
		requests[i] = flow.TraceRequest{HostID: h.ID, Connections: &flow.ConnectionsRequest{Sets: setsAt(snap, h, sets)}}
	}
	answers := c.askEach(ctx, requests)
	cut := &operator.CutConnections{Examples: []operator.CutConnection{}}
	for i, h := range hosts {
		a, why := answers[i].answer, answers[i].why
		if why == "" && a.Connections == nil {
			why = agentEarlier
		}
		if why != "" {
			cut.Missing = append(cut.Missing, operator.CountedHost{Name: h.Name, Error: why})
			continue
		}
		cut.Count += a.Connections.Count
		for _, x := range a.Connections.Examples {
			cut.Examples = append(cut.Examples, operator.CutConnection{Host: h.Name, OpenConnection: x})
		}
	}
	return cut, nil
}

// setsAt returns the parts of sets of connections that may come in at a host.
func setsAt(snap *records.Snap, h *topology.Host, sets []flow.ConnectionSet) (at []flow.ConnectionSet) {
	for _, s := range sets {
		s.Ports = slices.DeleteFunc(slices.Clone(s.Ports), func(id string) bool {
			p, ok := schema.Ports.Peek(snap, id)
			return !ok || p.ServedBy() != h.ID
		})
		if len(s.Ports)+len(s.From) > 0 {
			at = append(at, s)
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
