package console

import (
	"context"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/explain"
	"heddle/internal/store/records"
	"heddle/internal/topology/flow"
)

// faultStatus has the statuses that answer faults of questions.
var faultStatus = map[explain.FaultKind]int{
	explain.Invalid: http.StatusBadRequest, explain.Missing: http.StatusNotFound,
	explain.Ambiguous: http.StatusConflict, explain.Unfit: http.StatusConflict,
}

// why answers whether a new connection would pass, and why.
func (c *console) why(w http.ResponseWriter, r *http.Request) error {
	var req operator.WhyRequest
	if err := api.ReadStrictJSON(r, &req); err != nil {
		return err
	}
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return err
	}
	a, err := c.world.Why(r.Context(), snap, &req, func(ctx context.Context, p *explain.Probe) (*flow.TraceAnswer, error) {
		return c.askLive(ctx, snap, entry{p.PortID, p.HostID}, p.Frame, p.State)
	})
	if err != nil {
		return faultError(err)
	}
	a.Names = whyNames(snap, a)
	api.WriteJSON(w, http.StatusOK, a)
	return nil
}

// whyNames returns what the ids in an answer stand for.
func whyNames(snap *records.Snap, a *operator.WhyAnswer) map[string]flow.TraceName {
	texts := []string{a.There.Reason, a.There.Port, a.From.Port, a.To.Port}
	traces := []*flow.TraceAnswer{&a.There.Trace}
	nearest := a.There.Nearest
	if a.Back != nil {
		texts = append(texts, a.Back.Reason, a.Back.Port)
		traces = append(traces, &a.Back.Trace)
		nearest = append(nearest, a.Back.Nearest...)
	}
	for _, n := range nearest {
		texts = append(texts, n.Group, n.Text)
		texts = append(texts, n.Fails...)
	}
	for _, r := range a.Remedies {
		texts = append(texts, r.Text)
	}
	var ids []string
	for _, t := range traces {
		ids = append(ids, idsIn(t)...)
	}
	return namesOf(snap, append(ids, idsOf(texts)...))
}
