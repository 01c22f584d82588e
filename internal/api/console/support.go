package console

import (
	"net/http"

	"heddle/internal/api"
	"heddle/internal/sealing"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// supportRequest is the body of POST /v1/support: the part of a support bundle of a host that
// follows an offset.
type supportRequest struct {
	Host      string `json:"host"`   // by id or name
	Bundle    string `json:"bundle"` // a UUID which the client has made; its first request has the agent collect it
	Hours     int    `json:"hours"`  // of logs
	Anonymise bool   `json:"anonymise"`
	Offset    int64  `json:"offset"`
}

// support has a host's agent return a part of a support bundle. The answer has a size of 0 while
// the agent collects it.
func (c *console) support(r *http.Request, req *supportRequest) (*flow.SupportAnswer, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	host, err := findHost(snap, req.Host)
	if err != nil {
		return nil, err
	}
	state, alive := schema.HostStates.Peek(snap, host.ID)
	if !alive {
		return nil, api.Errorf(http.StatusConflict, "host %s is down, or has no virtual networks", host.Name)
	}
	key, err := sealing.NewHostKey()
	if err != nil {
		return nil, err
	}
	answer, err := c.ask(r.Context(), flow.TraceRequest{HostID: host.ID, Support: &topology.SupportRequest{
		Bundle: req.Bundle, Hours: req.Hours, Anonymise: req.Anonymise, Offset: req.Offset, Key: key.Public(),
	}}, c.TraceWait)
	switch {
	case err != nil:
		return nil, err
	case answer == nil:
		return nil, api.Errorf(http.StatusGatewayTimeout, "the agent of host %s did not answer within %s", host.Name, c.TraceWait)
	case answer.Support == nil:
		return nil, api.Errorf(http.StatusNotImplemented, "the agent of host %s is of version %s, which collects no bundles on request: upgrade it", host.Name, state.Version)
	case answer.Support.Error != "":
		return nil, api.Errorf(http.StatusConflict, "host %s: %s", host.Name, answer.Support.Error)
	case answer.Support.Size == 0:
		return &flow.SupportAnswer{}, nil
	}
	part, err := key.Open(req.Bundle, answer.Support.Part)
	if err != nil {
		return nil, api.Errorf(http.StatusBadGateway, "host %s: %v", host.Name, err)
	}
	return &flow.SupportAnswer{Size: answer.Support.Size, Part: part}, nil
}
