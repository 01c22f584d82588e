package schema

import (
	"strings"
	"testing"

	"heddle/internal/topology"
)

// TestZoneName: a host that writes what a terminal would obey is in the default zone.
func TestZoneName(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		"": DefaultZone, "east": "east", "Halle 2, Köln": "Halle 2, Köln", strings.Repeat("x", MaxZoneName): strings.Repeat("x", MaxZoneName),
		strings.Repeat("x", MaxZoneName+1): DefaultZone, "\x1b[2Jeast": DefaultZone, "east\nwest": DefaultZone, "east\u202e": DefaultZone, "east\xff": DefaultZone,
	} {
		if got := zone(&topology.HostUnderlay{AvailabilityZone: written}); got != want {
			t.Errorf("%q counts as %q, want %q", written, got, want)
		}
	}
}
