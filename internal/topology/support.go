package topology

// SupportRequest asks a host's agent for a part of a support bundle.
type SupportRequest struct {
	// Bundle is the bundle's id, a UUID which the asker has made. Its first request has the agent
	// collect it.
	Bundle    string `json:"bundle"`
	Hours     int    `json:"hours"` // of logs
	Anonymise bool   `json:"anonymise,omitempty"`
	Offset    int64  `json:"offset,omitempty"` // of the part, bytes
	// Key is the asker's public key for which the part is sealed: hosts read each other's reports.
	Key []byte `json:"key"`
}
