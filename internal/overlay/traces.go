package overlay

import (
	"fmt"

	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// traces answers trace requests with the live state of this host.
type traces struct {
	*engine
	sim    *simulate.Simulator
	report func(traffic bool) *flow.HostReport
}

// changed answers a request while it exists. The simulation leaves nothing behind.
func (t *traces) changed(c *snapshot.Changed) {
	r, ok := c.New.(*topology.TraceRequest)
	if !ok {
		if old, ok := c.Old.(*topology.TraceRequest); ok {
			t.reports.Delete(schema.TraceAnswers.KeyOf(&flow.TraceAnswer{ID: old.ID, HostID: old.HostID}))
		}
		return
	}
	var answer flow.TraceAnswer
	if r.Report {
		answer.Report = t.report(r.Traffic)
	} else {
		answer = t.answer(r)
	}
	answer.ID, answer.HostID, answer.LiveState = r.ID, t.host, true
	t.count.traces.Add(1)
	t.reports.set(schema.TraceAnswers.KeyOf(&answer), &answer)
}

func (t *traces) answer(r *topology.TraceRequest) flow.TraceAnswer {
	t.net.mu.RLock()
	defer t.net.mu.RUnlock()
	answer := flow.Answer(t.sim.Run(simulate.Input{PortID: r.PortID, HostID: t.engine.host, Frame: r.Frame, State: liveState{t.engine, true}, Explain: true}))
	if t.net.portByID[r.PortID] == nil {
		answer.Error = fmt.Sprintf("port %s is not attached on this host: its interface is not there; the walk is what would happen if it were", r.PortID)
	}
	return answer
}
