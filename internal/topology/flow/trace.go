package flow

import (
	"net/netip"

	"heddle/internal/topology"
)

// TraceRequest asks a host's agent to simulate a frame on a port with its live state, to report on
// the host or on packets, to probe from a temporary workload, or for a support bundle; short-lived.
type TraceRequest struct {
	ID     string `json:"id"`
	HostID string `json:"hostId"`
	PortID string `json:"portId"`
	Frame  []byte `json:"frame"`
	// Live asks for a frame that comes in by the port, in place of one that is given; agents of
	// earlier versions do not know it.
	Live *LiveFrames `json:"live,omitempty"`
	// State counts as if packets had left it on this host.
	State  *State `json:"state,omitempty"`
	Report bool   `json:"report,omitempty"` // in place of a walk; agents of earlier versions do not know it
	// Traffic has the report list all tunnels and networks; agents of earlier versions leave these
	// out.
	Traffic bool `json:"traffic,omitempty"`
	// Workload is the work asked for in place of a walk; agents of earlier versions do not know it.
	Workload *topology.WorkloadRequest `json:"workload,omitempty"`
	// Support asks for a bundle in place of a walk; agents of earlier versions do not know it.
	Support *topology.SupportRequest `json:"support,omitempty"`
	// Counters asks for counters in place of a walk; agents of earlier versions do not know it.
	Counters *CountersRequest `json:"counters,omitempty"`
	// Policy asks the policy agent for counters; the overlay's leaves it alone, and agents of
	// earlier versions do not know it.
	Policy *CountersRequest `json:"policy,omitempty"`
	// Connections asks for open connections in place of a walk; agents of earlier versions do not
	// know it.
	Connections *ConnectionsRequest `json:"connections,omitempty"`
	// Flows asks for the flow log in place of a walk; agents of earlier versions do not know it.
	Flows *FlowSubscription `json:"flows,omitempty"`
}

// LiveFrames are the first frames of connections that a question waits for.
type LiveFrames struct {
	Src     netip.Addr `json:"src"`
	Dst     netip.Addr `json:"dst"`
	Proto   uint8      `json:"proto"`
	SrcPort uint16     `json:"srcPort,omitempty"` // 0: any
	DstPort uint16     `json:"dstPort,omitempty"` // 0: any, as of protocols without ports
	Dropped bool       `json:"dropped,omitempty"` // only one that is dropped
}

// TraceAnswer is the answer to a [TraceRequest], as `heddle trace` prints it.
type TraceAnswer struct {
	ID     string `json:"id"`     // of the request
	HostID string `json:"hostId"` // who answered; "" = a server
	// LiveState: an agent's connections were used; a server knows none.
	LiveState bool          `json:"liveState"`
	Verdict   string        `json:"verdict"`
	Device    string        `json:"device,omitempty"` // where it was dropped
	Code      Code          `json:"code,omitzero"`    // of the drop
	Reason    string        `json:"reason,omitempty"`
	Outputs   []TraceOutput `json:"outputs,omitempty"`
	Copies    []TraceOutput `json:"copies,omitempty"`  // ports that get copies for mirrors
	Replies   []TraceReply  `json:"replies,omitempty"` // what the virtual network itself sends
	Walk      []Step        `json:"walk"`
	// Frame holds the frame that came in, if the request waited for one.
	Frame []byte `json:"frame,omitempty"`
	// Rewrite has the headers with which the packet leaves; null: those with which it came.
	Rewrite *Rewrite `json:"rewrite,omitempty"`
	// State holds what the packet would leave behind; nil from agents of earlier versions.
	State *State `json:"state,omitempty"`
	// Names has what the ids in the answer stand for, as far as the server knows.
	Names map[string]TraceName `json:"names,omitempty"`
	Error string               `json:"error,omitempty"` // the request could not be answered, in words
	// Report is the answer in place of a walk, if the request asked for it.
	Report *HostReport `json:"report,omitempty"`
	// Workload likewise.
	Workload *WorkloadAnswer `json:"workload,omitempty"`
	// Support likewise.
	Support *SupportAnswer `json:"support,omitempty"`
	// Counters likewise.
	Counters *CountersAnswer `json:"counters,omitempty"`
	// Connections likewise.
	Connections *ConnectionsAnswer `json:"connections,omitempty"`
}

// TraceOutput is a port that gets the frame.
type TraceOutput struct {
	PortID string `json:"portId"`
	HostID string `json:"hostId"`
}

// TraceName is the kind and name of an object.
type TraceName struct {
	Kind string `json:"kind"` // such as network, or rule of security group
	Name string `json:"name,omitempty"`
}

// TraceReply is a frame that the virtual network sends to a port.
type TraceReply struct {
	PortID string `json:"portId"`
	Frame  []byte `json:"frame"`
}

// Answer is d as a TraceAnswer without ID, HostID and LiveState.
func Answer(d *Decision) TraceAnswer {
	a := TraceAnswer{Verdict: d.Verdict.String(), Device: d.Device, Code: d.Code, Reason: d.Reason, Walk: append([]Step{}, d.Walk...)}
	for _, o := range d.Outputs {
		a.Outputs = append(a.Outputs, TraceOutput{PortID: o.PortID, HostID: o.HostID})
	}
	for _, c := range d.Copies {
		a.Copies = append(a.Copies, TraceOutput{PortID: c.PortID, HostID: c.HostID})
	}
	for _, e := range d.Emit {
		a.Replies = append(a.Replies, TraceReply{PortID: e.PortID, Frame: append([]byte(nil), e.Frame...)})
	}
	a.State = &State{Connections: append([]ConnKey{}, d.NewConns...), Translations: append([]NATEntry{}, d.NewNATs...)}
	if d.Rewrite != nil {
		r := *d.Rewrite
		if r.Quote != nil {
			q := *r.Quote
			r.Quote = &q
		}
		a.Rewrite = &r
	}
	return a
}
