package overlay

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
)

// upcallCounts counts the upcalls of each port, in the current round of upkeep and in the last.
type upcallCounts struct {
	mu            sync.Mutex
	current, last map[datapath.Port]int
	began         time.Duration // the current round
	took          time.Duration // the last one
}

func newUpcallCounts(now time.Duration) *upcallCounts {
	return &upcallCounts{current: map[datapath.Port]int{}, began: now}
}

func (c *upcallCounts) add(port datapath.Port) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current[port]++
}

// turn begins a round.
func (c *upcallCounts) turn(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.current = c.current, map[datapath.Port]int{}
	c.took, c.began = now-c.began, now
}

// perSecond returns the upcalls of ports in a second of the last round.
func (c *upcallCounts) perSecond() map[datapath.Port]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[datapath.Port]int, len(c.last))
	for port, n := range c.last {
		all[port] = int(float64(n) / max(c.took, time.Millisecond).Seconds())
	}
	return all
}

// portsReported bounds the ports in a report on a host, for each figure.
const portsReported = 5

// busyPorts returns the ports with the most flows, and those with the most upcalls.
func (e *engine) busyPorts() (busy []flow.PortReport) {
	flows, upcalls := e.memory.flowsByPort(), e.upcalls.perSecond()
	e.net.mu.RLock()
	all := make([]flow.PortReport, 0, len(e.net.ports))
	for number, p := range e.net.ports {
		if r := (flow.PortReport{ID: p.id, LANOf: p.localnet, Flows: flows[number], Upcalls: upcalls[number]}); r.Flows+r.Upcalls > 0 {
			all = append(all, r)
		}
	}
	e.net.mu.RUnlock()
	for _, figure := range []func(*flow.PortReport) int{
		func(r *flow.PortReport) int { return r.Upcalls }, func(r *flow.PortReport) int { return r.Flows },
	} {
		slices.SortFunc(all, func(a, b flow.PortReport) int {
			return cmp.Or(cmp.Compare(figure(&b), figure(&a)), strings.Compare(a.ID, b.ID))
		})
		for _, r := range all[:min(len(all), portsReported)] {
			if figure(&r) > 0 && !slices.Contains(busy, r) {
				busy = append(busy, r)
			}
		}
	}
	return busy
}

// flowsByPort returns how many flows there are of the frames that came in by each port.
func (m *memory) flowsByPort() map[datapath.Port]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[datapath.Port]int{}
	for _, f := range m.flows.byCookie {
		all[f.key.Port]++
	}
	return all
}
