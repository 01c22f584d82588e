package console

import (
	"context"
	"errors"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/explain"
	"heddle/internal/store/records"
	"heddle/internal/topology/flow"
)

// reach answers who can reach a machine, or what a machine can reach.
func (c *console) reach(r *http.Request, req *operator.ReachRequest) (*operator.ReachAnswer, error) {
	end, err := c.asked.begin(api.Caller(r.Context()).UserID)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(r.Context(), questionTime)
	defer cancel()
	at, err := c.moment(ctx, req.At)
	if err != nil {
		return nil, err
	}
	if at, err = c.with(ctx, at, req.With); err != nil {
		return nil, err
	}
	a, err := c.surveyed(at).Reach(ctx, at.snap, req)
	if err != nil {
		return nil, faultError(err)
	}
	a.Revision, a.Time, a.Refused, a.Names = at.revision(), at.time, at.refused(), reachNames(at.snap, a)
	return a, nil
}

// surveyed returns the world for questions about many machines, which may take long: those about
// single connections do not wait for them.
func (c *console) surveyed(at moment) *explain.World {
	if at.time != nil {
		return at.world
	}
	return c.surveys
}

// faultError answers a fault of a question with its status.
func faultError(err error) error {
	var fault *explain.Fault
	if errors.As(err, &fault) {
		return api.Errorf(faultStatus[fault.Kind], "%v", fault)
	}
	return err
}

// reachNames returns what the groups and networks in an answer stand for.
func reachNames(snap *records.Snap, a *operator.ReachAnswer) map[string]flow.TraceName {
	var ids []string
	for _, row := range a.Reaches {
		for _, p := range row.Ports {
			ids = append(ids, p.Groups...)
		}
	}
	for _, p := range a.Pairs {
		ids = append(ids, p.From, p.To)
	}
	return namesOf(snap, idsOf(ids))
}

// assert holds the virtual network to rules about who reaches whom.
func (c *console) assert(r *http.Request, req *operator.AssertRequest) (*operator.AssertAnswer, error) {
	end, err := c.asked.begin(api.Caller(r.Context()).UserID)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(r.Context(), questionTime)
	defer cancel()
	at, err := c.moment(ctx, req.At)
	if err != nil {
		return nil, err
	}
	if at, err = c.with(ctx, at, req.With); err != nil {
		return nil, err
	}
	a, err := c.surveyed(at).Assert(ctx, at.snap, req)
	if err != nil {
		return nil, faultError(err)
	}
	a.Revision, a.Time, a.Refused = at.revision(), at.time, at.refused()
	for i := range a.Results {
		for _, b := range a.Results[i].Examples {
			if b.Why != nil {
				b.Why.Names = whyNames(at.snap, b.Why)
			}
		}
	}
	return a, nil
}
