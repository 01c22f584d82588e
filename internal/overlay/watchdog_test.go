package overlay

import (
	"slices"
	"testing"

	"heddle/internal/task"
)

// TestWatchdogFindsDeadlock: while the engine's lock is held for good, the decision that needs it
// is found to hang; once it goes on, nothing is.
func TestWatchdogFindsDeadlock(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n, group := l.network("net"), l.group(everything()...)
	var watchdog task.Watchdog
	h := l.hosts[0]
	h.options.Watchdog = &watchdog
	l.start()
	a, b := n.machine(h, group), n.machine(h, group)
	b.listen("tcp4", 80)
	talk(t, a, b)
	l.wait("no loop to hang", func() bool { return len(watchdog.Hung()) == 0 })

	h.agent.engine.net.mu.Lock()
	locked := true
	unlock := func() {
		if locked {
			h.agent.engine.net.mu.Unlock()
			locked = false
		}
	}
	defer unlock() // before the agent is stopped
	opened := make(chan error, 1)
	go func() {
		c, err := a.dial(b.v4, 80, waitLimit)
		if err == nil {
			err = c.Close()
		}
		opened <- err
	}()
	l.wait("the decision to hang", func() bool { return slices.Contains(watchdog.Hung(), "decisions") })
	unlock()
	if err := <-opened; err != nil {
		t.Errorf("the connection that waited for its decision: %v", err)
	}
	l.wait("no loop to hang any more", func() bool { return len(watchdog.Hung()) == 0 })
}
