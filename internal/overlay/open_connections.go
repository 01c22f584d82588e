package overlay

import (
	"net/netip"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// mostExamples bounds the connections that an answer lists.
const mostExamples = 5

// openConnections answers a request by the flows in the kernel: those of openers' packets, each of
// which is a connection that has not ended.
func (e *engine) openConnections(q *flow.ConnectionsRequest) (*flow.ConnectionsAnswer, error) {
	a := &flow.ConnectionsAnswer{Examples: []flow.OpenConnection{}}
	err := e.dp.Dump(func(f datapath.FlowState) bool {
		if e.isOpen(&f) && e.isInSets(q.Sets, &f) {
			if a.Count++; len(a.Examples) < mostExamples {
				a.Examples = append(a.Examples, flow.OpenConnection{Protocol: f.Proto, Source: netip.AddrPortFrom(f.Src, f.SrcPort), Destination: netip.AddrPortFrom(f.Dst, f.DstPort)})
			}
		}
		return true
	})
	return a, err
}

// isOpen reports whether a flow is that of the opener's packets of a connection that goes on.
func (e *engine) isOpen(f *datapath.FlowState) bool {
	if f.Stale || f.Out.Drops() || f.FIN || f.RST || f.Proto != packet.ProtoTCP && f.Proto != packet.ProtoUDP && f.Proto != packet.ProtoSCTP {
		return false
	}
	e.memory.mu.Lock()
	defer e.memory.mu.Unlock()
	known := e.memory.flows.get(f.Cookie)
	return known != nil && !(known.tracked && known.reply)
}

func (e *engine) isInSets(sets []flow.ConnectionSet, f *datapath.FlowState) bool {
	to := netip.AddrPortFrom(f.Dst, f.DstPort)
	if w := f.Rewrite; w != nil {
		to = netip.AddrPortFrom(w.Dst, w.DstPort)
	}
	e.net.mu.RLock()
	defer e.net.mu.RUnlock()
	port := e.net.ports[f.Key.Port]
	if port == nil {
		return false
	}
	for i := range sets {
		if sets[i].Has(port.id, f.Src, f.Proto, to) {
			return true
		}
	}
	return false
}
