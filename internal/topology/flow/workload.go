package flow

import "time"

// WorkloadAnswer is the answer of a temporary workload, or the reason why there is none.
type WorkloadAnswer struct {
	Results []ProbeResult `json:"results,omitempty"` // of the request's probes, in their order
	// Received counts the UDP datagrams that the workload has received so far, by the
	// sender's address.
	Received map[string]int `json:"received"`
	Error    string         `json:"error,omitempty"` // why there is no workload, in words
}

// ProbeResult is the result of a probe.
type ProbeResult struct {
	Passed bool          `json:"passed"`
	Detail string        `json:"detail"` // what was found, or what is wrong
	Took   time.Duration `json:"took"`
}
