package main

import (
	"testing"

	"heddle/internal/overlay/datapath"
	"heddle/internal/policy/nft"
)

// The policy agent keeps workloads from the very port that the overlay listens on: the two packages
// may not know each other.
func TestOverlayPort(t *testing.T) {
	t.Parallel()
	if nft.OverlayPort != datapath.TunnelPort {
		t.Errorf("policy protects UDP port %d, the overlay uses %d", nft.OverlayPort, datapath.TunnelPort)
	}
}
