package flow

// SupportAnswer is the answer to a topology.SupportRequest.
type SupportAnswer struct {
	Size  int64  `json:"size"`            // bytes of the whole bundle; 0: it is being collected
	Part  []byte `json:"part,omitempty"`  // what follows the offset, sealed for the asker with the bundle's id
	Error string `json:"error,omitempty"` // why there is no bundle, in words
}
