package simulate

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/topology/packet"
)

// TestClassesReportChanges: whatever changes, the ports whose keys are reported as they may have
// changed are enough for two ports to have the same key as if all were made anew.
func TestClassesReportChanges(t *testing.T) {
	t.Parallel()
	for name, p := range playgrounds() {
		t.Run(name, func(t *testing.T) { rapid.Check(t, p.classesReportChanges) })
	}
}

func (p *playground) classesReportChanges(t *rapid.T) {
	w := p.world(t)
	c := w.NewClasses()
	kept := map[machineEnd]string{}
	for range rapid.IntRange(1, 8).Draw(t, "changes") {
		change := p.change.Draw(t, "change")
		change.apply(w)
		if rapid.IntRange(0, 2).Draw(t, "more") == 0 {
			continue
		}
		ends := w.someEnds()
		maps.DeleteFunc(kept, func(e machineEnd, _ string) bool { return !slices.Contains(ends, e) })
		changed := c.Refresh()
		for _, e := range ends {
			inPrefix := func(p netip.Prefix) bool { return p.Contains(e.address) }
			_, known := kept[e]
			if !known || changed.All || changed.Ports[e.port] || changed.Addresses[e.address] || slices.ContainsFunc(changed.Prefixes, inPrefix) {
				kept[e] = string(c.Key(e.port, e.mac, []netip.Addr{e.address}, e.address))
			}
		}
		anew, fresh := map[machineEnd]string{}, w.NewClasses()
		for _, e := range ends {
			anew[e] = string(fresh.Key(e.port, e.mac, []netip.Addr{e.address}, e.address))
		}
		for i, a := range ends {
			for _, b := range ends[:i] {
				if (kept[a] == kept[b]) != (anew[a] == anew[b]) {
					t.Fatalf("after %s: %v and %v are alike: %t, made anew: %t", change.name, a, b, kept[a] == kept[b], anew[a] == anew[b])
				}
			}
		}
	}
}

// machineEnd is a machine at a port.
type machineEnd struct {
	port    string
	mac     packet.MAC
	address netip.Addr
}

// someEnds returns machines that may be at the world's ports.
func (w *World) someEnds() (ends []machineEnd) {
	for _, id := range slices.Sorted(maps.Keys(w.ports)) {
		n := w.ports[id].network
		if n == nil {
			continue
		}
		for a := range n.neighbours {
			ends = append(ends, machineEnd{id, *n.neighbours[a].top, a})
		}
	}
	return ends
}
