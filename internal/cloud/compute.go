package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
)

// computeTimeout bounds a request to Nova.
const computeTimeout = 30 * time.Second

// Compute calls Nova's API.
type Compute struct{ client *gophercloud.ServiceClient }

// Compute returns a client of Nova's API at a URL, or at that of the catalog if it is "".
func (s *Session) Compute(url string) (*Compute, error) {
	if url != "" {
		return &Compute{&gophercloud.ServiceClient{ProviderClient: s.provider, Endpoint: strings.TrimSuffix(url, "/") + "/", Type: "compute"}}, nil
	}
	c, err := openstack.NewComputeV2(s.provider, gophercloud.EndpointOpts{Region: s.region})
	if err != nil {
		return nil, fmt.Errorf("the catalog lists no Nova: %w", err)
	}
	return &Compute{c}, nil
}

// SendExternalEvents sends events of other services about servers. It returns Nova's code for each
// of them, in order; if Nova knows none of their servers, 404 for all.
func (c *Compute) SendExternalEvents(ctx context.Context, events []any) (codes []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	res, err := c.client.Request(ctx, http.MethodPost, c.client.ServiceURL("os-server-external-events"), &gophercloud.RequestOpts{
		JSONBody: map[string]any{"events": events}, KeepResponseBody: true,
		OkCodes: []int{http.StatusOK, http.StatusMultiStatus},
	})
	if err = refusal(err); IsGone(err) {
		codes = make([]int, len(events))
		for i := range codes {
			codes[i] = http.StatusNotFound
		}
		return codes, nil
	}
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var answer struct{ Events []struct{ Code int } }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("answer of Nova: %w", err)
	}
	if len(answer.Events) != len(events) {
		return nil, fmt.Errorf("answer of Nova: it has %d events of %d", len(answer.Events), len(events))
	}
	for _, e := range answer.Events {
		codes = append(codes, e.Code)
	}
	return codes, nil
}
