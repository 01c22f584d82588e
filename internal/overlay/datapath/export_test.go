package datapath

import (
	"time"

	"heddle/internal/topology/flow"
)

// RewriteByHand is the reference for the programs' rewrites, which tests with an agent also send.
func RewriteByHand(frame []byte, r *flow.Rewrite) []byte { return rewriteByHand(frame, r) }

// Tokens returns what is in the bucket of a limit, by the time it takes to fill; below 0 it is
// overdrawn.
func (s *limitSet) Tokens(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.buckets[s.byName[name].number]
	b := &l.Bits
	if b.Rate == 0 {
		b = &l.Packets
	}
	return time.Duration(min(monotonicNow()-b.Due, b.Depth))
}

// LimitedEntries counts the interfaces with limits.
func (s *portSet) LimitedEntries() (n int) {
	entries := s.maps.Limited.Iterate()
	var key bpfLanKey
	var value bpfLimited
	for entries.Next(&key, &value) {
		n++
	}
	return n
}
