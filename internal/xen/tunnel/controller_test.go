package tunnel

import (
	"testing"
	"time"

	"heddle/internal/store"
)

// TestStar makes a network across three hosts, moves its center as planned, kills the center, and brings it back.
func TestStar(t *testing.T) {
	t.Parallel()
	l := newLab(t, 4)
	network, tunnels := l.star("gre")
	st := store.NewMemory()
	_, stop := l.controller(st)
	l.active(tunnels, 0, 1, 2, 3)
	l.reach()

	before := l.rows()
	p := l.ping(1, 2)
	stop()
	_, stop = l.controller(st)
	l.active(tunnels, 0, 1, 2, 3)
	if longest, lost := p.gap(t); lost > 0 {
		t.Errorf("%d answers lost, %s without any, while the controller began anew", lost, longest)
	}
	l.same(before)

	center := l.center(tunnels)
	spokes := []int{(center + 1) % 4, (center + 2) % 4, (center + 3) % 4}
	p = l.ping(spokes[0], spokes[1])
	l.call("network.add_to_other_config", network, "heddle:preferred-center", l.call("host.get_uuid", l.named(l.hosts[spokes[2]].Name)))
	l.until("the center moves", func() bool {
		for _, s := range l.statuses(tunnels) {
			if s["heddle:center"] != l.call("host.get_uuid", l.named(l.hosts[spokes[2]].Name)) {
				return false
			}
		}
		return true
	})
	if longest, lost := p.gap(t); longest > 600*time.Millisecond {
		t.Errorf("planned move: %s without an answer, %d lost", longest, lost)
	} else {
		t.Logf("planned move: %s without an answer, %d lost", longest, lost)
	}
	l.reach()

	center = spokes[2]
	p = l.ping(spokes[0], spokes[1])
	if err := l.hosts[center].Kill(); err != nil {
		t.Fatal(err)
	}
	l.until("another center", func() bool {
		c := l.statuses(tunnels)
		return c[spokes[0]]["active"] == "true" && c[spokes[1]]["active"] == "true" && c[center]["active"] == "false" &&
			c[spokes[0]]["heddle:center"] != l.call("host.get_uuid", l.named(l.hosts[center].Name))
	})
	if longest, lost := p.gap(t); longest > 6*time.Second {
		t.Errorf("center killed: %s without an answer, %d lost", longest, lost)
	} else {
		t.Logf("center killed: %s without an answer, %d lost", longest, lost)
	}
	if err := l.hosts[center].Start(); err != nil {
		t.Fatal(err)
	}
	l.active(tunnels, 0, 1, 2, 3)
	l.reach()
	_ = stop
}
