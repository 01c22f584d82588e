package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"

	"heddle/internal/api/jointoken"
	"heddle/internal/topology/flow"
)

// flowPoster posts records of the flow log to the server that asks for them.
type flowPoster struct {
	plain bool // over plain HTTP, too, to another machine
}

func (p flowPoster) post(ctx context.Context, id string, s *flow.FlowSubscription, body *flow.FlowPost) (over bool, err error) {
	failures := []error{errors.New("it names no URL by which this host reaches it")}
	for _, server := range s.URLs {
		trust := jointoken.Pinned(server, x509.NewCertPool(), s.Pin)
		err := jointoken.Post(ctx, server+"/v1/flow-subscriptions/"+id, trust, p.plain, http.StatusOK, body, &struct{}{})
		if err == nil || jointoken.Refused(err) {
			return err != nil, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", server, err))
	}
	return false, errors.Join(failures...)
}
