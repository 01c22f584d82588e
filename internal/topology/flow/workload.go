package flow

import "time"

// WorkloadAnswer is the answer of a temporary workload, or the reason why there is none.
type WorkloadAnswer struct {
	Results []ProbeResult `json:"results,omitempty"` // of the request's probes, in their order
	// Received counts the UDP datagrams that the workload has received so far, by the
	// sender's address.
	Received map[string]int `json:"received,omitzero"`
	// IPv6 reports that the workload has the IPv6 address that was asked for. It has none on a host
	// whose kernel has no IPv6, and of agents of earlier versions.
	IPv6  bool   `json:"ipv6,omitempty"`
	Error string `json:"error,omitempty"` // why there is no workload, in words
}

// ProbeResult is the result of a probe.
type ProbeResult struct {
	Passed bool          `json:"passed"`
	Detail string        `json:"detail"` // what was found, or what is wrong
	Took   time.Duration `json:"took"`
}
