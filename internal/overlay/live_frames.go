package overlay

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// mostLive bounds the requests that wait for a frame on a host.
const mostLive = 16

// liveFrames holds the requests that wait for a frame which comes in without a flow. A frame costs
// one atomic read while there are none.
type liveFrames struct {
	waiting atomic.Int32 // number of requests

	mu       sync.Mutex
	requests []*flow.TraceRequest
	publish  func(*flow.TraceRequest, flow.TraceAnswer)
}

// add has a request wait; one too many is answered with an error.
func (l *liveFrames) add(r *flow.TraceRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.requests) >= mostLive {
		l.publish(r, flow.TraceAnswer{Error: fmt.Sprintf("%d questions wait for frames on this host already: ask again later", mostLive)})
		return
	}
	l.requests = append(l.requests, r)
	l.waiting.Store(int32(len(l.requests)))
}

// remove has a request wait no longer.
func (l *liveFrames) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = slices.DeleteFunc(l.requests, func(r *flow.TraceRequest) bool { return r.ID == id })
	l.waiting.Store(int32(len(l.requests)))
}

// take returns the requests that a frame answers, which wait no longer.
func (l *liveFrames) take(port string, f *packet.Frame, dropped bool) (all []*flow.TraceRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = slices.DeleteFunc(l.requests, func(r *flow.TraceRequest) bool {
		if r.PortID != port || r.Live.Dropped && !dropped || !isLive(r.Live, f) {
			return false
		}
		all = append(all, r)
		return true
	})
	l.waiting.Store(int32(len(l.requests)))
	return all
}

// isLive reports whether a frame is one that is waited for.
func isLive(want *flow.LiveFrames, f *packet.Frame) bool {
	return f.IsIP() && f.SrcIP == want.Src && f.DstIP == want.Dst && f.Proto == want.Proto &&
		(want.SrcPort == 0 || want.SrcPort == f.TpSrc) && (want.DstPort == 0 || want.DstPort == f.TpDst)
}

// answerLive explains a frame that has been decided to the requests that wait for it, before it has
// left anything behind: the translations are those that the decision has chosen.
func (e *engine) answerLive(port *localPort, u *datapath.Upcall, d *flow.Decision) {
	var f packet.Frame
	if e.live.waiting.Load() == 0 || packet.DecodeHead(u.Frame, u.Length, &f) != nil {
		return
	}
	requests := e.live.take(port.id, &f, d.Verdict == flow.Drop || d.Verdict == flow.ErrorDrop)
	if len(requests) == 0 {
		return
	}
	state := simulate.Assume(liveState{e, true}, &flow.State{Translations: d.NewNATs})
	e.net.mu.RLock()
	answer := flow.Answer(simulate.NewSimulator(e.net.world).Run(simulate.Input{PortID: port.id, HostID: e.host, Frame: u.Frame, WireLen: u.Length, State: state, Explain: true}))
	e.net.mu.RUnlock()
	answer.Frame = slices.Clone(u.Frame)
	answer.State.Translations = append(answer.State.Translations, d.NewNATs...)
	for _, r := range requests {
		e.live.publish(r, answer)
	}
}
