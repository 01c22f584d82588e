package simulate

import (
	"sync"
	"testing"
)

// Simulators share the world while nothing is applied; the race detector watches what they write.
func TestSimulatorsShareTheWorld(t *testing.T) {
	t.Parallel()
	l := strict()
	l.group("web", allowFrom("members", "web", 0))
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			s := NewSimulator(l.World)
			for _, frame := range probes() {
				for range 50 {
					s.Run(Input{PortID: "p3", Frame: frame, State: l.mem})
				}
			}
		})
	}
	done.Wait()
}

func TestSimulatorsShareRouters(t *testing.T) {
	t.Parallel()
	l := example()
	frame := frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.tcp(4000, 80)
	l.send("p-y", frame)
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			s := NewSimulator(l.World)
			for range 50 {
				s.Run(Input{PortID: "p-y", Frame: frame, State: l.mem})
				s.Run(Input{PortID: "p-y", Frame: frameSpec{n: 2, to: 2, src: ipY, dst: ipX, ttl: 1}.udp(1, 2), State: l.mem})
			}
		})
	}
	done.Wait()
}
