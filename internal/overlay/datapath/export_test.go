package datapath

import "heddle/internal/topology/flow"

// RewriteByHand is the reference for the programs' rewrites, which tests with an agent also send.
func RewriteByHand(frame []byte, r *flow.Rewrite) []byte { return rewriteByHand(frame, r) }
