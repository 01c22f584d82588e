package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"heddle/internal/api"
	"heddle/internal/explain"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// maxFrame bounds the frame of a trace, bytes.
const maxFrame = 64 << 10

// traceRequest is the body of POST /v1/traces.
type traceRequest struct {
	Port    string `json:"port"`    // by which the frame comes in
	Network string `json:"network"` // in place of a port: it comes in from the network's LAN
	Host    string `json:"host"`    // where it does, by id or name
	Frame   []byte `json:"frame"`   // base64 in JSON
}

// entry is a port of the topology and the host at which a frame comes in by it.
type entry struct{ port, host string }

func (c *console) trace(r *http.Request, req *traceRequest) (*flow.TraceAnswer, error) {
	if (req.Port == "") == (req.Network == "") || (req.Host == "") != (req.Network == "") || len(req.Frame) == 0 || len(req.Frame) > maxFrame {
		return nil, api.Errorf(http.StatusBadRequest, "want port, an id, or network, an id, and host; and frame, 1 to %d bytes in base64", maxFrame)
	}
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	at, err := req.entry(snap)
	if err != nil {
		return nil, err
	}
	answer, err := c.answer(r.Context(), snap, at, req.Frame)
	if err != nil {
		return nil, err
	}
	explain.NameObjects(snap, answer)
	answer.Names = namesIn(snap, answer)
	return answer, nil
}

// entry finds out where the frame comes in.
func (req *traceRequest) entry(snap *records.Snap) (entry, error) {
	if req.Network != "" {
		return localnetEntry(snap, req.Network, req.Host)
	}
	port, err := schema.Ports.Get(snap, req.Port)
	if err != nil {
		return entry{}, notFound(err, "port", req.Port)
	}
	if n, ok := schema.Networks.Peek(snap, port.NetworkID); ok && n.Routed() {
		return entry{}, api.Errorf(http.StatusConflict, "port %s is on a routed network, which has no virtual topology: ask heddle calico check, and the rules on its host", req.Port)
	}
	if port.BoundHostID == "" {
		return entry{}, api.Errorf(http.StatusConflict, "port %s is not bound to a host: no frame can enter by it; set its binding:host_id", req.Port)
	}
	return entry{req.Port, port.ServedBy()}, nil
}

// localnetEntry returns the entry of frames from the LAN of a network at one host, which has to
// carry its physical network.
func localnetEntry(snap *records.Snap, network, host string) (entry, error) {
	n, err := schema.Networks.Get(snap, network)
	if err != nil {
		return entry{}, notFound(err, "network", network)
	}
	h, err := findHost(snap, host)
	if err != nil {
		return entry{}, err
	}
	if n.PhysicalNetwork == "" {
		return entry{}, api.Errorf(http.StatusConflict, "network %s is of type %s, on no physical network: no frame can enter by a LAN; name a port", network, n.NetworkType)
	}
	if u, ok := schema.Underlays.Peek(snap, h.ID); !ok || u.PhysicalNetworks[n.PhysicalNetwork] == "" {
		return entry{}, api.Errorf(http.StatusConflict, "host %s does not carry the physical network %s: start its agent with --physical %s=INTERFACE, or name a host that does",
			h.Name, n.PhysicalNetwork, n.PhysicalNetwork)
	}
	if port := explain.LANPort(snap, network); port != "" {
		return entry{port, h.ID}, nil
	}
	return entry{}, api.Errorf(http.StatusConflict, "network %s has no port towards its LAN yet: update the network", network)
}

// answer has the host at the entry answer with its live state, or simulates here when no agent of
// it does.
func (c *console) answer(ctx context.Context, snap *records.Snap, at entry, frame []byte) (*flow.TraceAnswer, error) {
	if live, err := c.askLive(ctx, snap, at, frame, nil); err != nil || live != nil {
		return live, err
	}
	answer := c.world.Trace(snap, simulate.Input{PortID: at.port, HostID: at.host, Frame: frame, Explain: true})
	return &answer, nil
}

// askLive has the agent of the host at the entry say what becomes of a frame; nil if none does. The
// state counts as if packets had left it there.
func (c *console) askLive(ctx context.Context, snap *records.Snap, at entry, frame []byte, state *flow.State) (*flow.TraceAnswer, error) {
	answer, err := c.askAgent(ctx, snap, flow.TraceRequest{HostID: at.host, PortID: at.port, Frame: frame, State: state}, c.TraceWait)
	if _, alive := schema.HostStates.Peek(snap, at.host); alive && err == nil && answer == nil {
		c.Log.Warn("no answer to a trace", "host", schema.HostName(snap, at.host), "id", at.host, "port", at.port, "waited", c.TraceWait)
	}
	return answer, err
}

// askAgent has the agent of a live host answer a request; nil if it does not, or is not alive.
func (c *console) askAgent(ctx context.Context, snap *records.Snap, request flow.TraceRequest, wait time.Duration) (*flow.TraceAnswer, error) {
	if _, alive := schema.HostStates.Peek(snap, request.HostID); !alive {
		return nil, nil
	}
	return c.ask(ctx, request, wait)
}

// ask leaves a request to an agent in the store, under a lease, and waits for the answer; nil when
// none came in time. The request lacks its ID.
func (c *console) ask(ctx context.Context, request flow.TraceRequest, timeout time.Duration) (*flow.TraceAnswer, error) {
	st := c.DB.Store()
	lease, err := st.Grant(ctx, timeout+5*time.Second)
	if err != nil {
		return nil, err
	}
	defer func() {
		// Without it the request stays until the lease ends, which does no harm.
		_ = st.Revoke(context.WithoutCancel(ctx), lease)
	}()
	request.ID = uuid.NewString()
	from, err := st.Revision(ctx)
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers := schema.TraceAnswers
	if request.Policy != nil {
		answers = schema.PolicyAnswers
	}
	changes, _ := st.Watch(wait, from, answers.Key(request.HostID+"/"+request.ID))
	_, err = c.DB.Update(ctx, func(tx *records.Tx) error {
		return schema.TraceRequests.PutLeased(tx, &request, lease)
	})
	if err != nil {
		return nil, err
	}
	for change := range changes {
		for _, e := range change.Events {
			if e.Deleted {
				continue
			}
			var a flow.TraceAnswer
			if err := json.Unmarshal(e.Value, &a); err != nil {
				return nil, fmt.Errorf("answer of host %s: %w", request.HostID, err)
			}
			return &a, nil
		}
	}
	return nil, ctx.Err()
}
