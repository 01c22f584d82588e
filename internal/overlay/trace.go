package overlay

import (
	"fmt"

	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// answerTrace simulates the frame of a request with the live state of this host, and tells the answer for as long as the
// request is there. Nothing of it is remembered: the packet was never sent.
func (a *Agent) answerTrace(r *topology.TraceRequest) {
	answer := a.trace(r)
	answer.ID, answer.HostID, answer.LiveState = r.ID, a.opts.HostID, true
	a.engine.count.traces.Add(1)
	if err := a.presence.SetRecord(schema.TraceAnswers.KeyOf(&answer), &answer); err != nil {
		a.log.Error("cannot answer a trace", "request", r.ID, "err", err)
	}
}

func (a *Agent) trace(r *topology.TraceRequest) flow.TraceAnswer {
	e := a.engine
	e.world.RLock()
	defer e.world.RUnlock()
	d := a.tracer.Run(simulate.Input{PortID: r.PortID, Frame: r.Frame, State: liveState{e}, Explain: true})
	answer := flow.Answer(d)
	if e.portByID[r.PortID] == nil {
		answer.Error = fmt.Sprintf("port %s is not attached on this host: its interface is not there; the walk is what would happen if it were", r.PortID)
	}
	return answer
}
