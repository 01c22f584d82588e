package task

import (
	"slices"
	"testing"
)

// TestWatchdog: a loop hangs that has been at one piece of work for two looks, not one that waits
// or gets on.
func TestWatchdog(t *testing.T) {
	var w Watchdog
	waits, works := w.Loop("waits"), w.Loop("works")
	for _, step := range []struct {
		name string
		do   func()
		hung []string
	}{
		{"before any work", func() {}, nil},
		{"at a first piece", func() { waits.Begin(); waits.End(); works.Begin() }, nil},
		{"still at it", func() {}, []string{"works"}},
		{"and still", func() {}, []string{"works"}},
		{"at the next", func() { works.End(); works.Begin() }, nil},
		{"done", func() { works.End() }, nil},
		{"waiting", func() {}, nil},
	} {
		step.do()
		if got := w.Hung(); !slices.Equal(got, step.hung) {
			t.Errorf("%s: hung %q, want %q", step.name, got, step.hung)
		}
	}
	asked, done := w.Ask("selects")
	for _, step := range []struct {
		name string
		do   func()
		hung []string
	}{
		{"not asked yet", func() {}, nil},
		{"it takes the notice", func() { <-asked }, nil},
		{"it does not", func() {}, []string{"selects"}},
		{"and still not", func() {}, []string{"selects"}},
		{"it does late", func() { <-asked }, nil},
		{"it has ended", done, nil},
	} {
		step.do()
		if got := w.Hung(); !slices.Equal(got, step.hung) {
			t.Errorf("%s: hung %q, want %q", step.name, got, step.hung)
		}
	}
	var none *Watchdog
	l := none.Loop("alone")
	l.Begin()
	for range 2 {
		if hung := none.Hung(); hung != nil {
			t.Errorf("a nil Watchdog found that %q hang", hung)
		}
	}
}
