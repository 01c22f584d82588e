//go:build !race

package ipam_test

import (
	"testing"

	"pgregory.net/rapid"
)

// Any operations, from two processes in turn, give what a simple map of addresses gives.
func TestModel(t *testing.T) {
	t.Parallel()
	w := start(t)
	other := w.another(t)
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, w, other)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			step := rapid.SampledFrom([]func(*rapid.T){m.AutoAssign, m.AutoAssign, m.AutoAssign, m.AssignIP, m.ReleaseIPs, m.ReleaseIPs, m.ByHandle, m.Affinities, m.Toggle}).Draw(t, "step")
			step(t)
			m.Check(t)
		}
	})
}
