package overlay

import (
	"testing"
	"time"

	"heddle/internal/topology"
)

// movingPort returns a port that moves from host a to host b.
func movingPort(id string) *topology.Bundle {
	return &topology.Bundle{Ports: []topology.Port{{ID: id, NetworkID: "n", HostID: "b", InterfaceName: "tap", PreviousHostID: "a", PreviousInterface: "tap"}}}
}

// TestStateBeforeBinding: state that comes before the binding is not waited for once more, unless
// that was long ago or another host sent it.
func TestStateBeforeBinding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, from string
		after      time.Duration
		done       bool
	}{
		{"just before", "a", 100 * time.Millisecond, true},
		{"long before", "a", handoverMost, false},
		{"from another host", "c", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			now := time.Minute
			x := newHandovers(&engine{host: "b", clock: func() time.Duration { return now }})
			x.received(c.from, []string{"p"})
			now += c.after
			x.rebind(&topology.Bundle{}, movingPort("p"))
			if a := x.arriving["p"]; a == nil || a.done != c.done {
				t.Errorf("arriving: %+v, want done: %t", a, c.done)
			}
			now += handoverMost
			x.tick()
			if len(x.early) > 0 {
				t.Errorf("early after %v: %v", handoverMost, x.early)
			}
		})
	}
}

// TestHandoverBegins: a port that begins to move from here is handed over at once, and not again
// because its record changes.
func TestHandoverBegins(t *testing.T) {
	t.Parallel()
	x := newHandovers(&engine{host: "a", clock: func() time.Duration { return time.Minute }})
	begun := func() bool {
		select {
		case <-x.begun:
			return true
		default:
			return false
		}
	}
	x.rebind(&topology.Bundle{}, movingPort("p"))
	if !begun() {
		t.Error("no notice of a port that moves from here")
	}
	x.rebind(movingPort("p"), movingPort("p"))
	if begun() {
		t.Error("a notice of a port that moves already")
	}
}
