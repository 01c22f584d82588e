package overlay

import (
	"fmt"
	"sync"

	"heddle/internal/overlay/supportbundle"
	"heddle/internal/overlay/workload"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// traces answers trace requests with the live state of this host.
type traces struct {
	*engine
	sim       *simulate.Simulator
	report    func(traffic bool) *flow.HostReport
	workloads *workload.Host
	support   *supportbundle.Collector
	readers   *flowReaders

	mu      sync.Mutex
	pending map[string]bool // requests that workloads answer later, by id
}

// changed answers a request while it exists. The simulation leaves nothing behind.
func (t *traces) changed(c *snapshot.Changed) {
	r, ok := c.New.(*flow.TraceRequest)
	if !ok {
		if old, ok := c.Old.(*flow.TraceRequest); ok {
			t.withdraw(old)
		}
		return
	}
	if r.Policy != nil {
		return // the policy agent answers
	}
	t.count.traces.Add(1)
	switch {
	case r.Workload != nil:
		t.submit(r)
	case r.Live != nil:
		t.live.add(r)
	case r.Support != nil:
		t.publish(r, flow.TraceAnswer{Support: t.support.Part(r.Support)})
	case r.Flows != nil:
		t.readers.start(r)
	case r.Counters != nil:
		t.publish(r, t.counted(r.Counters))
	case r.Connections != nil:
		t.publish(r, t.connections(r.Connections))
	case r.Report:
		t.publish(r, flow.TraceAnswer{Report: t.report(r.Traffic)})
	default:
		t.publish(r, t.answer(r))
	}
}

func (t *traces) counted(q *flow.CountersRequest) flow.TraceAnswer {
	counters, err := t.counters(q)
	if err != nil {
		return flow.TraceAnswer{Error: err.Error()}
	}
	return flow.TraceAnswer{Counters: counters}
}

func (t *traces) connections(q *flow.ConnectionsRequest) flow.TraceAnswer {
	open, err := t.openConnections(q)
	if err != nil {
		return flow.TraceAnswer{Error: err.Error()}
	}
	return flow.TraceAnswer{Connections: open}
}

func (t *traces) publish(r *flow.TraceRequest, answer flow.TraceAnswer) {
	answer.ID, answer.HostID, answer.LiveState = r.ID, t.host, true
	t.reports.set(schema.TraceAnswers.KeyOf(&answer), &answer)
}

// submit passes a request on to the workloads, whose answer counts while the request exists.
func (t *traces) submit(r *flow.TraceRequest) {
	t.mu.Lock()
	t.pending[r.ID] = true
	t.mu.Unlock()
	t.workloads.Submit(r.Workload, func(answer *flow.WorkloadAnswer) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.pending[r.ID] {
			t.publish(r, flow.TraceAnswer{Workload: answer})
		}
	})
}

// withdraw takes back the answer to a request that is gone.
func (t *traces) withdraw(r *flow.TraceRequest) {
	t.live.remove(r.ID)
	t.readers.stop(r.ID)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pending, r.ID)
	t.reports.Delete(schema.TraceAnswers.KeyOf(&flow.TraceAnswer{ID: r.ID, HostID: r.HostID}))
}

func (t *traces) answer(r *flow.TraceRequest) flow.TraceAnswer {
	t.net.mu.RLock()
	defer t.net.mu.RUnlock()
	var state simulate.State = liveState{t.engine, true}
	if r.State != nil {
		state = simulate.Assume(state, r.State)
	}
	answer := flow.Answer(t.sim.Run(simulate.Input{PortID: r.PortID, HostID: t.engine.host, Frame: r.Frame, State: state, Explain: true}))
	if t.net.portByID[r.PortID] == nil {
		answer.Error = fmt.Sprintf("port %s is not attached on this host: its interface is not there; the walk is what would happen if it were", r.PortID)
	}
	return answer
}
