//go:build storm

package main

import (
	"testing"
	"time"
)

// TestServicesStorm makes faults at random in a cloud with all services for a long time, and looks
// after every dozen whether all is well: see servicesStorm.
//
//	scripts/storm services [-storm 10m] [-storm-seed N]
func TestServicesStorm(t *testing.T) {
	s := newServicesStorm(t, servicesStormOptions{seed: *stormSeed, longest: 20 * time.Second, settle: 90 * time.Second, timed: true})
	for end := time.Now().Add(*stormTime); time.Now().Before(end) && !t.Failed(); {
		s.run(12)
	}
	s.tearDown()
}
