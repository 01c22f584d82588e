package console

import (
	"context"
	"errors"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/explain"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
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
	a, probe, err := c.world.Why(snap, &req)
	var fault *explain.Fault
	if errors.As(err, &fault) {
		return api.Errorf(faultStatus[fault.Kind], "%v", fault)
	} else if err != nil {
		return err
	}
	live, err := c.askLive(r.Context(), snap, probe)
	if err != nil {
		return err
	}
	if live != nil {
		explain.Settle(a, live)
	}
	a.Names = whyNames(snap, a)
	api.WriteJSON(w, http.StatusOK, a)
	return nil
}

// askLive has the agent of the host where a packet comes in say what becomes of it; nil if none
// does.
func (c *console) askLive(ctx context.Context, snap *records.Snap, p *explain.Probe) (*flow.TraceAnswer, error) {
	if p == nil {
		return nil, nil
	}
	if _, alive := schema.HostStates.Peek(snap, p.HostID); !alive {
		return nil, nil
	}
	answer, err := c.ask(ctx, topology.TraceRequest{HostID: p.HostID, PortID: p.PortID, Frame: p.Frame}, c.TraceWait)
	if err != nil || answer == nil || answer.Error != "" {
		c.Log.Warn("no answer to a trace", "host", schema.HostName(snap, p.HostID), "id", p.HostID, "port", p.PortID, "err", err)
		return nil, ctx.Err()
	}
	return answer, nil
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
