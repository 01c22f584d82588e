package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"heddle/internal/api"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// maxFrame bounds the frame of a trace, bytes.
const maxFrame = 64 << 10

// traceRequest is the body of POST /v1/traces.
type traceRequest struct {
	Port  string `json:"port"`
	Frame []byte `json:"frame"` // base64 in JSON
}

func (c *console) trace(w http.ResponseWriter, r *http.Request) error {
	var req traceRequest
	if err := api.ReadJSON(r, &req); err != nil {
		return err
	}
	if req.Port == "" || len(req.Frame) == 0 || len(req.Frame) > maxFrame {
		return api.Errorf(http.StatusBadRequest, "want port, an id, and frame, 1 to %d bytes in base64", maxFrame)
	}
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return err
	}
	port, err := schema.Ports.Get(snap, req.Port)
	if err != nil {
		return notFound(err, "port", req.Port)
	}
	if n, ok := schema.Networks.Peek(snap, port.NetworkID); ok && n.Routed() {
		return api.Errorf(http.StatusConflict, "port %s is on a routed network, which has no virtual topology: ask heddle calico check, and the rules on its host", req.Port)
	}
	if port.BoundHostID == "" {
		return api.Errorf(http.StatusConflict, "port %s is not bound to a host: no frame can enter by it; set its binding:host_id", req.Port)
	}
	answer, err := c.answer(r.Context(), snap, port.ServedBy(), req)
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// answer has the port's host answer with its live state, or simulates here when no agent of it
// does.
func (c *console) answer(ctx context.Context, snap *records.Snap, host string, req traceRequest) (*flow.TraceAnswer, error) {
	if _, alive := schema.HostStates.Peek(snap, host); alive {
		answer, err := c.ask(ctx, host, req)
		if err != nil || answer != nil {
			return answer, err
		}
		c.Log.Warn("no answer to a trace", "host", host, "port", req.Port, "waited", c.TraceWait)
	}
	return c.simulate(ctx, snap, req)
}

// ask leaves the request in the store, under a lease, and waits for the agent's answer; nil when
// none came.
func (c *console) ask(ctx context.Context, host string, req traceRequest) (*flow.TraceAnswer, error) {
	st := c.DB.Store()
	lease, err := st.Grant(ctx, c.TraceWait+5*time.Second)
	if err != nil {
		return nil, err
	}
	defer func() {
		// Without it the request stays until the lease ends, which does no harm.
		_ = st.Revoke(context.WithoutCancel(ctx), lease)
	}()
	id := uuid.NewString()
	from, err := st.Revision(ctx)
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, c.TraceWait)
	defer cancel()
	changes, _ := st.Watch(wait, from, schema.TraceAnswers.Key(host+"/"+id))
	_, err = c.DB.Update(ctx, func(tx *records.Tx) error {
		return schema.TraceRequests.PutLeased(tx, &topology.TraceRequest{ID: id, HostID: host, PortID: req.Port, Frame: req.Frame}, lease)
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
				return nil, fmt.Errorf("answer of host %s: %w", host, err)
			}
			return &a, nil
		}
	}
	return nil, ctx.Err()
}

// simulate answers from what the store says, as if nothing had been sent before.
func (c *console) simulate(ctx context.Context, snap *records.Snap, req traceRequest) (*flow.TraceAnswer, error) {
	world := simulate.NewWorld(simulate.Options{})
	if err := load(ctx, c.DB.Store(), world); err != nil {
		return nil, err
	}
	for h := range schema.Hosts.All(snap) {
		reached, _ := schema.HostWithTunnels(snap, h.ID)
		world.ApplyHost(h.ID, reached)
	}
	d := simulate.NewSimulator(world).Run(simulate.Input{PortID: req.Port, Frame: req.Frame, Explain: true})
	a := flow.Answer(d)
	return &a, nil
}

// load reads the topology into world.
func load(ctx context.Context, st store.Store, world *simulate.World) error {
	kvs, _, err := st.List(ctx, schema.TopologyPrefix)
	if err != nil {
		return err
	}
	for _, kv := range kvs {
		var b schema.Bundle
		if err := json.Unmarshal(kv.Value, &b); err != nil {
			return fmt.Errorf("%s: %w", kv.Key, err)
		}
		world.Apply(b.Owner, &b.Bundle)
	}
	return nil
}
